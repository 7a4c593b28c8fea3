// The kernel on tiles of kern/x86/attn_int8_amx.c over emulated tiles: kern_attn_prefill_int8_amx_emu.
#if defined(__x86_64__)
#include <stdbool.h>

#include "amx_emu.h"
#include "emulated.h"
#define KERN_ISA amx_emu
#define ATTN_PREFILL attn_prefill_int8
#define ATTN_INT8
#include "kern/tmpl/attn_amx_tmpl.h"
#endif
