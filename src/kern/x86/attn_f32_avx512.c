#if defined(__x86_64__)
#define KERN_ISA avx512
#define ATTN_DECODE attn_decode_f32
#define ATTN_PREFILL attn_prefill_f32
#define ATTN_F32
#include "kern/tmpl/attn_words_internal.h"

#include "kern/tmpl/attn_tmpl_internal.h"
#endif
