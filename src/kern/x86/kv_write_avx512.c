#if defined(__x86_64__)
#define KERN_ISA avx512
#include "kern/x86/kv_write_tmpl_internal.h"
#endif
