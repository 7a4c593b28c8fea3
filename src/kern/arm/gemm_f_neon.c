#if defined(__aarch64__)
#define GEMM_NAME(x) qr_gemm_##x##_neon
#include "kern/tmpl/gemm_f_tmpl.h"
#endif
