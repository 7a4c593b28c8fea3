# Set-up: system packages once per build folder, a Python environment, the default model. All of it is stamped, so a
# second run costs nothing.
VENV  = $(BUILD)/venv
MODEL = smollm2-135m-instruct
CACHE_MODELS = $(if $(QUIRE_CACHE),$(QUIRE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/quire)/models
MODEL_FILE = $(CACHE_MODELS)/$(MODEL).gguf

$(BUILD)/.setup: tools/setup.sh
	@mkdir -p $(@D)
	@sh tools/setup.sh
	@touch $@

$(VENV)/.made: | $(BUILD)/.setup
	@python3 -m venv $(VENV) && touch $@

$(VENV)/.tests: tests/requirements.txt | $(VENV)/.made
	@echo "installing the Python packages of the tests"
	@for try in 1 2 3; do \
	    timeout 600 $(VENV)/bin/python -m pip --disable-pip-version-check install -q -r tests/requirements.txt </dev/null && break; \
	    [ $$try -lt 3 ] || exit 1; \
	done
	@touch $@

$(MODEL_FILE): | $(VENV)/.made
	@python3 tools/fetch_model.py $(VENV)/bin/python

.PHONY: run model model-qwen
model: $(MODEL_FILE) ## bring the default model into the cache folder
model-qwen: | $(VENV)/.made ## bring Qwen2.5-Coder-1.5B-Instruct Q4_K_M (1.1 GB): quire run qwen2.5-coder-1.5b-instruct
	@python3 tools/fetch_model.py $(VENV)/bin/python qwen2.5-coder-1.5b-instruct

# ARGS are handed to the server: make run ARGS="--port 9000"
run: $(BUILD)/quire $(MODEL_FILE) ## build, bring the default model, serve it (ARGS="--port 9000")
	@exec $(BUILD)/quire serve $(MODEL) $(ARGS)
