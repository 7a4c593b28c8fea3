# Checks. `check` is quick and needs no network once built; `test` is everything.
# Asked of the shell, quoted: the folder may have spaces in its name, which abspath takes for two.
PYTEST = QUIRE="$$(realpath $(BUILD)/quire)" QUIRE_BUILD="$$(realpath $(BUILD))" $(VENV)/bin/python -m pytest -q -p no:cacheprovider
HEADERS = $(shell find src -name '*.h' ! -name 'test.h')

.PHONY: force check test e2e e2e-real asan sim-long sim-million layers hdr tidy fmt
check: $(BUILD)/quire $(BUILD)/quire-test $(BUILD)/tiny/.stamp $(VENV)/.tests ## unit and end-to-end tests on a tiny model, under a minute
	@$(MAKE) --no-print-directory layers tidy
	@QUIRE_BUILD=$(BUILD) $(BUILD)/quire-test
	@$(PYTEST) tests/e2e -m "not real"

# All of it passed once for these files: until one of them changes there is nothing to do. FORCE=1 runs it again.
TESTED_FROM = $(shell find src tests tools mk Makefile VERSION -type f ! -path '*/__pycache__/*')
$(BUILD)/.tested: $(TESTED_FROM) $(if $(FORCE),force) | $(MODEL_FILE)
	@$(MAKE) --no-print-directory hdr
	@QUIRE_TEST_MODEL="$(MODEL_FILE)" $(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory kern
	@$(MAKE) --no-print-directory e2e-real
	@LC_ALL=C date > $@

test: $(BUILD)/.tested ## everything: check, header and kernel tests, end to end on the real model (FORCE=1: again)
	@echo "all tests passed on $$(cat $(BUILD)/.tested), and nothing changed since"

e2e: $(BUILD)/quire $(BUILD)/tiny/.stamp $(VENV)/.tests ## end-to-end tests on the tiny model
	@$(PYTEST) tests/e2e -m "not real"

e2e-real: $(BUILD)/quire $(MODEL_FILE) $(BUILD)/tiny/.stamp $(VENV)/.tests ## end-to-end tests on the default model
	@QUIRE_TEST_MODEL="$(MODEL_FILE)" $(PYTEST) tests/e2e -m real

asan: $(BUILD)/tiny/.stamp ## unit tests under AddressSanitizer and UBSan
	@$(MAKE) --no-print-directory unit BUILD=$(BUILD)/asan RUST_BUILD=$(BUILD)/rust DEPS_CACHE=$(BUILD)/deps \
	    QUIRE_TEST_DATA=$(BUILD) OPT=-O1 SAN="-fsanitize=address,undefined -fno-sanitize-recover=undefined"

$(BUILD)/tiny/.stamp: tests/tiny-model/make.py $(VENV)/.tests
	@$(VENV)/bin/python tests/tiny-model/make.py $(@D) && touch $@

sim-long: $(BUILD)/quire-test ## many random workloads over scheduler and engine (QUIRE_SIM_SEEDS=2000, about a minute)
	@QUIRE_SIM_SEEDS=$(or $(QUIRE_SIM_SEEDS),2000) $(BUILD)/quire-test sim_long

# 4 GB of KV are tight enough that requests are preempted all the time; a leak would show at the end.
sim-million: $(BUILD)/quire ## a million simulated requests, every invariant walked each thousandth step (about a minute)
	@$(BUILD)/quire sim llama-3-8b --hardware h100 --workload '30/60*3,160/200*5,600/450*2' --request-rate 16 \
	    --num-prompts 1000000 --kv-cache-memory 2G --check 1000

layers: ## the include law of src/LAYERS
	@awk -f tools/layers.awk src/LAYERS $$(find src -name '*.[ch]' -o -name '*.def')

hdr: $(BUILD)/.setup ## every header compiles alone
	@for h in $(HEADERS); do $(CC) $(ALLFLAGS) -fsyntax-only -x c $$h || exit 1; done

tidy: ## sizes, words, a test beside every file
	@sh tools/tidy.sh

fmt: ## format the C code (clang-format)
	clang-format-14 -i $$(find src tests -name '*.[ch]')
