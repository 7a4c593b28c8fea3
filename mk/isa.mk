# Compiler flags by file name: src/kern/x86/gemm_d_avx512vnni.c is built with the flags that kern/isa.def gives avx512vnni.
isa_of    = $(lastword $(subst _, ,$(basename $(notdir $(1)))))
isa_table := $(shell sed -n 's/^QR_ISA(\([a-z0-9]*\), "\(.*\)")$$/\1 \2/p' src/kern/isa.def | tr ' ' '~')
isa_flags = $(subst ~, ,$(patsubst $(call isa_of,$(1))~%,%,$(filter $(call isa_of,$(1))~%,$(isa_table))))
