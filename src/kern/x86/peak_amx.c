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

void kern_peak_bf16_amx(uint64_t n_rounds)
{
    begin();
    for (uint64_t n = 0; n < n_rounds; n++) {
        AMX_DOT_BF16(0, 4, 6);
        AMX_DOT_BF16(1, 4, 7);
        AMX_DOT_BF16(2, 5, 6);
        AMX_DOT_BF16(3, 5, 7);
    }
    amx_release();
}

void kern_peak_int8_amx(uint64_t n_rounds)
{
    begin();
    for (uint64_t n = 0; n < n_rounds; n++) {
        AMX_DOT_I8(0, 4, 6);
        AMX_DOT_I8(1, 4, 7);
        AMX_DOT_I8(2, 5, 6);
        AMX_DOT_I8(3, 5, 7);
    }
    amx_release();
}
#endif
