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
    w.tiles = carve(&at, (size_t)qr_logit_tiles(n) * sizeof *w.tiles);
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
           rounded((n / SAMPLE_BLOCK + 1) * sizeof(float)) +
           rounded((size_t)qr_logit_tiles(n_vocab) * sizeof(struct qr_logit_tile));
}

static float value_of(uint32_t key)
{
    uint32_t u = key ^ (key >> 31 ? 0x80000000u : 0xffffffffu);
    float value;
    memcpy(&value, &u, sizeof value);
    return value;
}

// How many values are at least t. Sixteen lanes with fixed trips: the compiler makes them vectors.
static int32_t count_from(const float *x, int32_t n, float t)
{
    int32_t lane[16] = {0}, count = 0, i = 0;
    for (; i + 16 <= n; i += 16)
        for (int l = 0; l < 16; l++) lane[l] += x[i + l] >= t;
    for (int l = 0; l < 16; l++) count += lane[l];
    for (; i < n; i++) count += x[i] >= t;
    return count;
}

// Bisection of the keys, a bit a pass from the top, until exactly k values are above: linear whatever they are, and
// several times faster than counting bytes, which takes values one by one.
float sample_kth_largest(const float *x, int32_t n, int32_t k)
{
    uint32_t key = 0;
    for (uint32_t bit = 1u << 31; bit > 0; bit >>= 1) {
        float t = value_of(key | bit); // NaN above infinity, which no value reaches
        int32_t count = count_from(x, n, t);
        if (count >= k) key |= bit;
        if (count == k) break;
    }
    float floor = value_of(key), least = INFINITY;
    for (int32_t i = 0; i < n; i++) least = x[i] >= floor && x[i] < least ? x[i] : least;
    return least;
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
    qr_kern()->chunk_max(x, n, w->maxima);
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

// Radix selection of what is left of the mass, a byte of the keys a pass from the top: the bin is the one in which the
// mass above it passes `mass`.
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

struct qr_logit_peak sample_peak(const float *x, int32_t n, struct sample_work *w)
{
    int32_t n_tiles = qr_logit_tiles(n);
    for (int32_t t = 0; t < n_tiles; t++) {
        int32_t first = t * QR_LOGIT_TILE, len = n - first < QR_LOGIT_TILE ? n - first : QR_LOGIT_TILE;
        qr_logit_tile(x + first, len, first, true, &w->tiles[t]);
    }
    return qr_logit_merge(w->tiles, n_tiles, true);
}
