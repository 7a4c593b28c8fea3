#if defined(__x86_64__)
#include "kern/x86/amx_internal.h"
#define GEMM_NAME(x) qr_gemm_##x##_amx
#include "kern/tmpl/gemm_d_amx_tmpl.h"
#endif
