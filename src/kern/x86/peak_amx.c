#if defined(__x86_64__)
#include "kern/peak_internal.h"
#include "kern/x86/amx_internal.h"

// Tiles 0 to 3 are sums, 4 and 5 activations, 6 and 7 weights, as in a product of two tiles by two.
static const struct amx_config tiles = {
    .palette = 1, .colsb = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void)
{
    amx_config(&tiles);
    AMX_ZERO(0);
    AMX_ZERO(1);
    AMX_ZERO(2);
    AMX_ZERO(3);
    AMX_ZERO(4);
    AMX_ZERO(5);
    AMX_ZERO(6);
    AMX_ZERO(7);
}

#define PEAK(kind, DOT)                                                                                      \
    void kern_peak_##kind##_amx(uint64_t n_rounds)                                                           \
    {                                                                                                        \
        begin();                                                                                             \
        for (uint64_t n = 0; n < n_rounds; n++) {                                                            \
            DOT(0, 4, 6);                                                                                    \
            DOT(1, 4, 7);                                                                                    \
            DOT(2, 5, 6);                                                                                    \
            DOT(3, 5, 7);                                                                                    \
        }                                                                                                    \
        amx_release();                                                                                       \
    }
PEAK(bf16, AMX_DOT_BF16)
PEAK(int8, AMX_DOT_I8)
#endif
