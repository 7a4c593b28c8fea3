#if defined(__aarch64__)
#define KERN_ISA neon
#include "kern/tmpl/kv_write_tmpl_internal.h"
#endif
