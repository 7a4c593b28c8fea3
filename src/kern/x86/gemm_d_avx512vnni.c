#if defined(__x86_64__)
#define GEMM_NAME(x) qr_gemm_##x##_avx512vnni
#define GEMM_PARTS 1
#include "kern/tmpl/gemm_d_tmpl.h"
#endif
