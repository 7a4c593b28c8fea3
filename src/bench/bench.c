#include "bench/bench_internal.h"

#include <string.h>

static const struct bench_entry entries[] = {
#define QR_BENCH(name, model, args, summary) {#name, BENCH_##model, args, summary, bench_##name, bench_##name##_help},
#include "bench/bench.def"
#undef QR_BENCH
};

const struct bench_entry *qr_bench_list(size_t *n)
{
    *n = sizeof entries / sizeof *entries;
    return entries;
}

const struct bench_entry *qr_bench_find(const char *name)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0) return &entries[i];
    return NULL;
}
