#include <math.h>

#include "kern/kern.h"
#include "sample/sample.h"
#include "sample/sample_internal.h"

static size_t rounded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static void *carve(uint8_t **at, size_t bytes)
{
    void *p = *at;
    *at += rounded(bytes);
    return p;
}

struct sample_work sample_work_at(void *mem, int32_t n)
{
    uint8_t *at = (uint8_t *)(((uintptr_t)mem + 63) & ~(uintptr_t)63);
    size_t row = (size_t)n * sizeof(float);
    struct sample_work w;
    w.raw = carve(&at, row);
    w.maxima = carve(&at, ((size_t)n / SAMPLE_CHUNK + 1) * sizeof(float));
    w.sums = carve(&at, ((size_t)n / SAMPLE_BLOCK + 1) * sizeof(float));
    w.ids = carve(&at, row);
    w.values = carve(&at, row);
    w.exps = carve(&at, row);
    return w;
}

size_t qr_sample_work_bytes(int32_t n_vocab)
{
    size_t n = (size_t)n_vocab;
    return 64 + 4 * rounded(n * sizeof(float)) + rounded((n / SAMPLE_CHUNK + 1) * sizeof(float)) +
           rounded((n / SAMPLE_BLOCK + 1) * sizeof(float));
}

// NaN compares false and so never becomes a maximum. Sixteen lanes with fixed trips: the compiler makes them
// vectors.
static float chunk_max(const float *x)
{
    float m[16];
    for (int l = 0; l < 16; l++) m[l] = x[l] > -INFINITY ? x[l] : -INFINITY;
    for (int j = 16; j < SAMPLE_CHUNK; j += 16)
        for (int l = 0; l < 16; l++) m[l] = x[j + l] > m[l] ? x[j + l] : m[l];
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) m[l] = m[l + half] > m[l] ? m[l + half] : m[l];
    return m[0];
}

void sample_chunk_maxima(const float *x, int32_t n, float *maxima)
{
    int32_t full = n / SAMPLE_CHUNK;
    for (int32_t c = 0; c < full; c++) maxima[c] = chunk_max(x + (size_t)c * SAMPLE_CHUNK);
    float m = -INFINITY;
    for (int32_t i = full * SAMPLE_CHUNK; i < n; i++) m = x[i] > m ? x[i] : m;
    if (full * SAMPLE_CHUNK < n) maxima[full] = m;
}

// Radix selection, a byte a pass from the top: linear whatever the values are.
float sample_kth_largest(const float *x, int32_t n, int32_t k)
{
    uint32_t prefix = 0, mask = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int32_t count[256] = {0};
        for (int32_t i = 0; i < n; i++) {
            uint32_t key = sample_key(x[i]);
            if ((key & mask) == prefix) count[key >> shift & 255]++;
        }
        int bin = 255;
        while (bin > 0 && count[bin] < k) k -= count[bin--];
        prefix |= (uint32_t)bin << shift;
        mask |= (uint32_t)255 << shift;
    }
    uint32_t u = prefix ^ (prefix >> 31 ? 0x80000000u : 0xffffffffu);
    float value;
    memcpy(&value, &u, sizeof value);
    return value;
}

int32_t sample_collect(const float *x, int32_t n, float floor, struct sample_work *w)
{
    int32_t found = 0, n_chunks = (n + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
    for (int32_t c = 0; c < n_chunks; c++) {
        if (!(w->maxima[c] >= floor)) continue;
        int32_t end = (c + 1) * SAMPLE_CHUNK < n ? (c + 1) * SAMPLE_CHUNK : n;
        for (int32_t i = c * SAMPLE_CHUNK; i < end; i++) {
            w->ids[found] = i;
            w->values[found] = x[i];
            found += x[i] >= floor;
        }
    }
    return found;
}

/* The k-th largest of the chunks' maxima is not above the k-th largest of the row: k chunks hold a value that
 * large. The candidates above it are few, and the exact answer is among them. */
float sample_kth_of_row(const float *x, int32_t n, int32_t k, struct sample_work *w)
{
    int32_t n_chunks = (n + SAMPLE_CHUNK - 1) / SAMPLE_CHUNK;
    float floor = k <= n_chunks ? sample_kth_largest(w->maxima, n_chunks, k) : -INFINITY;
    int32_t found = sample_collect(x, n, floor, w);
    return found < k ? -INFINITY : sample_kth_largest(w->values, found, k);
}

int32_t sample_top(const float *x, int32_t n, int32_t k, struct sample_work *w, struct qr_top *top)
{
    if (k > n) k = n;
    if (k <= 0) return 0;
    sample_chunk_maxima(x, n, w->maxima);
    int32_t found = sample_collect(x, n, sample_kth_of_row(x, n, k, w), w), kept = 0;
    for (int32_t i = 0; i < found; i++) {
        int32_t at = kept;
        while (at > 0 && top[at - 1].logprob < w->values[i]) at--;
        if (at == k) continue;
        if (kept < k) kept++;
        for (int32_t j = kept - 1; j > at; j--) top[j] = top[j - 1];
        top[at] = (struct qr_top){.id = w->ids[i], .logprob = w->values[i]};
    }
    return kept;
}

// As sample_kth_largest, but what is counted down is mass: the bin is the one in which the mass above it
// passes `mass`.
struct sample_nucleus sample_top_p(const float *values, const float *exps, int32_t n, double mass)
{
    uint32_t prefix = 0, mask = 0;
    double above = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        double in_bin[256] = {0};
        int lowest = 255;
        for (int32_t i = 0; i < n; i++) {
            uint32_t key = sample_key(values[i]);
            if ((key & mask) != prefix) continue;
            int bin = key >> shift & 255;
            in_bin[bin] += (double)exps[i];
            if (bin < lowest) lowest = bin;
        }
        int bin = 255; // rounding may leave the whole mass short of `mass`: the lowest bin that is used ends
                       // the walk
        while (bin > lowest && (in_bin[bin] == 0 || above + in_bin[bin] < mass)) above += in_bin[bin--];
        prefix |= (uint32_t)bin << shift;
        mask |= (uint32_t)255 << shift;
    }
    struct sample_nucleus s = {.n_equal = 0};
    for (int32_t i = 0; i < n; i++) {
        if (sample_key(values[i]) != prefix) continue;
        s.cut = values[i];
        if (s.n_equal > 0 && above >= mass) break;
        above += (double)exps[i];
        s.n_equal++;
    }
    return s;
}

double sample_log_sum_exp(const float *x, int32_t n, float max)
{
    const struct qr_kern *kern = qr_kern();
    double sum = 0;
    for (int32_t i = 0; i < n; i += SAMPLE_BLOCK) {
        int32_t len = n - i < SAMPLE_BLOCK ? n - i : SAMPLE_BLOCK;
        sum += (double)kern->sum_exp(x + i, len, max);
    }
    return (double)max + log(sum);
}
