#if defined(__x86_64__)
#define KERN_ISA avx512
#define ATTN_DECODE attn_decode_f16
#define ATTN_PREFILL attn_prefill_f16
#define ATTN_F16
#include "kern/x86/attn_words_internal.h"

#include "kern/x86/attn_tmpl_internal.h"
#endif
