# Kernel checks (tests/checkasm): every instruction set of this machine against portable C.
# `make kern K="--bench attn"` passes options and words of kernel names.
CHECKASM_SRCS = $(wildcard tests/checkasm/*.c) \
    $(filter-out %_test.c %_fuzz.c,$(wildcard src/base/*.c src/kern/*.c src/kern/*/*.c))

.PHONY: kern
kern: $(BUILD)/checkasm ## kernels against portable C (K="--bench attn" for options and names)
	@$(BUILD)/checkasm $(K)

$(BUILD)/checkasm: $(call obj,$(CHECKASM_SRCS)) $(DEP_OBJS)
	@mkdir -p $(@D)
	$(call quiet,link $@) $(CC) $(ALLFLAGS) -o $@.part $^ -lm -lpthread -ldl && mv $@.part $@

-include $(patsubst %.o,%.d,$(call obj,$(CHECKASM_SRCS)))

# The ARM kernels on any machine: cross-compiled and run by an emulator, as the processor with every set and as one that has
# plain NEON. All other C is compiled for ARM too, not linked: its libraries are not at hand. `make kern` is the check on ARM.
ARM_BUILD = $(BUILD)/arm64
ARM_CC   ?= aarch64-linux-gnu-gcc
ARM_SYNTAX = $(addprefix arm-syntax/,$(filter-out src/kern/% src/base/% %_test.c %_fuzz.c,$(wildcard src/*/*.c src/*/*/*.c)))

.PHONY: kern-arm kern-arm-build $(ARM_SYNTAX)
kern-arm: | $(BUILD)/deps/yyjson/yyjson.c ## ARM kernels against portable C, emulated (K as for kern; installs Debian's cross compiler)
	@if sh tools/setup.sh arm; then \
	    $(MAKE) --no-print-directory BUILD=$(ARM_BUILD) DEPS_CACHE=$(BUILD)/deps CC="$(ARM_CC)" kern-arm-build && \
	    for cpu in max cortex-a57; do \
	        echo "  checkasm, emulated $$cpu"; \
	        qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu $$cpu $(ARM_BUILD)/checkasm $(K) || exit 1; \
	    done; \
	else echo "SKIP kern-arm: no cross compiler, C library or emulator for ARM"; fi

kern-arm-build: $(BUILD)/checkasm $(ARM_SYNTAX)

# The headers of libraries are this machine's: they are the same for every processor.
$(ARM_SYNTAX): arm-syntax/%: % $(BUILD)/deps/yyjson/yyjson.h
	@$(CC) -std=gnu17 -O0 $(WARN) $(CPPFLAGS) -idirafter /usr/include -fsyntax-only $<
