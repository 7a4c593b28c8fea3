#if defined(__x86_64__)
#define KERN_ISA avx2
#include "kern/tmpl/kv_write_tmpl_internal.h"
#endif
