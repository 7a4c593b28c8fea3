# Compiler flags by file name: src/kern/x86/gemm_d_avx512vnni.c is built with the flags that kern/isa.def gives avx512vnni.
# The compiler's preprocessor reads that list, for it has the sets of one architecture: files of the others have no flags
# and are empty. A name needs more than one word: kvtype/bf16.c is no file of the set bf16.
isa_of    = $(lastword $(wordlist 2,9,$(subst _, ,$(basename $(notdir $(1))))))
isa_table := $(shell $(CC) -E -P -x c src/kern/isa.def | sed -n 's/^QR_ISA(\([a-z0-9]*\), "\(.*\)")$$/\1 \2/p' | tr ' ' '~')
isa_flags = $(if $(call isa_of,$(1)),$(subst ~, ,$(patsubst $(call isa_of,$(1))~%,%,$(filter $(call isa_of,$(1))~%,$(isa_table)))))
