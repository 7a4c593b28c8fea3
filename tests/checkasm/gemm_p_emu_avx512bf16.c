// The kernel on tiles of kern/x86/gemm_p_amx.c over emulated tiles: qr_gemm_p_amx_emu.
#if defined(__x86_64__)
#include <stdbool.h>

#include "amx_emu.h"
#include "emulated.h"
#define GEMM_NAME(x) qr_gemm_##x##_amx_emu
#include "kern/tmpl/gemm_p_amx_tmpl.h"
#endif
