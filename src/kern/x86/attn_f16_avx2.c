#if defined(__x86_64__)
#define KERN_ISA avx2
#define ATTN_DECODE attn_decode_f16
#define ATTN_PREFILL attn_prefill_f16
#define ATTN_F16
#include "kern/tmpl/attn_words_internal.h"

#include "kern/tmpl/attn_tmpl_internal.h"
#endif
