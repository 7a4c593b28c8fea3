#if defined(__x86_64__)
#define KERN_ISA avx512
#include "kern/x86/vec_tmpl_internal.h"
#endif
