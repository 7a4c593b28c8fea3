# Fuzzing with clang's libFuzzer: `make fuzz` runs every target for FUZZ_S seconds on a corpus that grows in $(BUILD)/fuzz.
FUZZ_CC ?= clang-14
FUZZ_S  ?= 60
FUZZ_SRCS = $(filter-out %_test.c,$(wildcard src/fmt/*.c src/kern/qtype.c src/kern/quant/*.c)) \
            src/base/assert.c src/base/mem.c src/base/printable.c src/base/status.c

.PHONY: fuzz
fuzz: $(BUILD)/fuzz/gguf_fuzz $(BUILD)/fuzz/seeds/.stamp ## fuzz the file readers (FUZZ_S=60 seconds; needs clang-14)
	@mkdir -p $(BUILD)/fuzz/corpus
	$(BUILD)/fuzz/gguf_fuzz -max_total_time=$(FUZZ_S) -max_len=8192 -rss_limit_mb=1024 -print_final_stats=1 \
	    -artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/corpus $(BUILD)/fuzz/seeds

$(BUILD)/fuzz/gguf_fuzz: tests/fuzz/gguf_fuzz.c $(FUZZ_SRCS)
	@mkdir -p $(@D)
	$(FUZZ_CC) -std=gnu17 -O1 -g $(CPPFLAGS) -ffp-contract=off -fsanitize=fuzzer,address,undefined \
	    -fno-sanitize-recover=undefined -o $@ $^ -lm -lpthread

$(BUILD)/fuzz/seeds/.stamp: tests/fuzz/make_corpus.py
	@mkdir -p $(@D)
	$(PYTHON) tests/fuzz/make_corpus.py $(@D) && touch $@
