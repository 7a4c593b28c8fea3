#if defined(__aarch64__)
#define KERN_ISA neon
#define ATTN_DECODE attn_decode_int8
#define ATTN_PREFILL attn_prefill_int8
#include "kern/tmpl/attn_int8_internal.h"

#include "kern/tmpl/attn_tmpl_internal.h"
#endif
