#if defined(__aarch64__)
#define KERN_ISA neon
#include "kern/tmpl/vec_tmpl_internal.h"
#endif
