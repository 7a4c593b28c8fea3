#if defined(__x86_64__)
#include "kern/x86/amx_internal.h"
#define KERN_ISA amx
#define ATTN_PREFILL attn_prefill_int8
#define ATTN_INT8
#include "kern/tmpl/attn_amx_tmpl.h"
#endif
