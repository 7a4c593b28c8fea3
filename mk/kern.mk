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
