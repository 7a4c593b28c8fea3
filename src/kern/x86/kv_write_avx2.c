#if defined(__x86_64__)
#define KERN_ISA avx2
#include "kern/x86/kv_write_tmpl_internal.h"
#endif
