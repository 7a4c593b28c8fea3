#if defined(__aarch64__)
#define GEMM_NAME(x) qr_gemm_##x##_dotprod
#define GEMM_PARTS 2
#include "kern/tmpl/gemm_d_tmpl.h"
#endif
