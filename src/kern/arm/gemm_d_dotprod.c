#if defined(__aarch64__)
#define GEMM_NAME(x) qr_gemm_##x##_dotprod
#include "kern/tmpl/gemm_d_tmpl.h"
#endif
