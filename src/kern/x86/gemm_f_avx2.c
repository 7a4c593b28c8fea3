#if defined(__x86_64__)
#define GEMM_NAME(x) qr_gemm_##x##_avx2
#include "kern/tmpl/gemm_f_tmpl.h"
#endif
