#if defined(__aarch64__)
#define KERN_ISA neon
#define ATTN_DECODE attn_decode_bf16
#define ATTN_PREFILL attn_prefill_bf16
#define ATTN_BF16
#include "kern/tmpl/attn_words_internal.h"

#include "kern/tmpl/attn_tmpl_internal.h"
#endif
