// The kernels on tiles of kern/x86/gemm_d_amx.c over emulated tiles: qr_gemm_d_<format>_amx_emu.
#if defined(__x86_64__)
#include <stdbool.h>

#include "amx_emu.h"
#include "emulated.h"
#define GEMM_NAME(x) qr_gemm_##x##_amx_emu
#include "kern/tmpl/gemm_d_amx_tmpl.h"
#endif
