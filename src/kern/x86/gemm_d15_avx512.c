#if defined(__x86_64__)
#define GEMM_NAME(x) qr_gemm_##x##_avx512
#define GEMM_PARTS 2
#include "kern/tmpl/gemm_d_tmpl.h"
#endif
