# quire: build, run and test. `make help` lists what there is to do.
# Everything built goes under $(BUILD); nothing else is written but the model in the cache folder.

BUILD  ?= build
CC     ?= cc
ifndef ROOMS
ROOMS = $(patsubst src/%/,%,$(sort $(dir $(wildcard src/*/))))
endif
OPT    ?= -O2
SAN    ?=
WARN    = -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wno-unused-parameter
CFLAGS ?= -g
CPPFLAGS += -Isrc -I$(BUILD)/gen -I$(BUILD)/deps -DQUIRE_VERSION='"$(VERSION)"'
# -ffp-contract=off: a fused multiply-add happens where the source says fmaf, and nowhere else (DESIGN N2).
ALLFLAGS = -std=gnu17 $(OPT) $(CFLAGS) $(WARN) $(SAN) $(CPPFLAGS) -ffp-contract=off -fno-math-errno -pthread
VERSION := $(shell cat VERSION 2>/dev/null || echo 0)
LIBS     = -lmicrohttpd -ledit -lm -lpthread -ldl

SRCS  = $(foreach r,$(ROOMS),$(wildcard src/$(r)/*.c src/$(r)/*/*.c))
# Tests that cross rooms need all of them.
# A choice of rooms has a program of its own, so that a part is never taken for the whole.
ALL_ROOMS = $(if $(filter file,$(origin ROOMS)),yes)
space := $() $()
TESTER = $(BUILD)/quire-test$(if $(ALL_ROOMS),,-$(subst $(space),-,$(strip $(ROOMS))))
TESTS = $(filter %_test.c,$(SRCS)) $(if $(ALL_ROOMS),$(wildcard tests/unit/*_test.c))
CODE  = $(filter-out %_test.c %_fuzz.c src/cmd/%,$(SRCS))
CMD   = $(filter-out %_test.c,$(filter src/cmd/%,$(SRCS)))
obj   = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
# The text room needs the Rust library; a build of other rooms does not.
needs_rust = $(if $(filter text,$(ROOMS)),$(RUSTLIB))

ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

include mk/isa.mk
include mk/setup.mk
include mk/deps.mk
include mk/rust.mk
include mk/fuzz.mk
include mk/kern.mk
include mk/check.mk
include mk/paper.mk

.DEFAULT_GOAL := help
# Commands are shown by name; V=1 shows them whole.
quiet = @$(if $(V),,echo '  $(1)' &&)
.PHONY: help build unit
help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile mk/*.mk

build: $(BUILD)/quire ## the program, at build/quire

$(BUILD)/quire: $(call obj,$(CODE) $(CMD)) $(needs_rust)
	@mkdir -p $(@D)
	$(call quiet,link $@) $(CC) $(ALLFLAGS) $(LINKFLAGS) -o $@.part $^ $(LIBS) && mv $@.part $@

# Unit tests of the rooms in ROOMS: `make unit ROOMS="base core kv"`, `T=pool` to filter by name.
unit: $(TESTER) ## unit tests (ROOMS="base kv" for some rooms, T=word for some tests)
	@QUIRE_BUILD=$(or $(QUIRE_TEST_DATA),$(BUILD)) $(TESTER) $(T)

$(TESTER): $(call obj,$(CODE) $(TESTS) tests/unit/main.c) $(needs_rust)
	@mkdir -p $(@D)
	$(call quiet,link $@) $(CC) $(ALLFLAGS) -o $@.part $^ $(filter-out $(if $(filter http,$(ROOMS)),,-lmicrohttpd) -ledit,$(LIBS)) -lcmocka && mv $@.part $@

$(BUILD)/obj/%.o: %.c | $(BUILD)/.setup
	@mkdir -p $(@D)
	$(call quiet,cc $<) $(CC) $(ALLFLAGS) $(call isa_flags,$<) -MMD -MP -c -o $@ $<

-include $(patsubst %.o,%.d,$(call obj,$(SRCS) $(TESTS) tests/unit/main.c))
