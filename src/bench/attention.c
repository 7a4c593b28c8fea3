/* Attention over a pool of blocks in any order: one generated token, or 16 of a prompt, over a long context. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "bench/kernels_internal.h"
#include "kern/kern.h"

// A step's order: for each layer and head, sequence by sequence.
#define SEQS 16
#define CONTEXT 512
#define BLOCK 16
#define SEQ_BLOCKS (CONTEXT / BLOCK)

double kernels_attention_bytes(const struct kernels_attention *a)
{
    return (double)qr_kv_unit_bytes(a->type, a->d) * a->context / QR_KV_UNIT;
}

// A row at position p sees p + 1 tokens; a multiplication and an addition for each value of K and again of V.
double kernels_attention_ops(const struct kernels_attention *a)
{
    double seen = (double)a->rows * a->context - (double)a->rows * (a->rows - 1) / 2;
    return 4.0 * a->d * a->n_group * seen;
}

const char *kernels_attention_kind(const struct kernels_attention *a)
{
    if (!strcmp(a->isa, "ref") || !strcmp(a->isa, "amx")) return NULL;
    if (a->type == QR_KV_INT8) return "int8";
    return a->type == QR_KV_BF16 && strstr(a->isa, "bf16") ? "bf16" : "f32";
}

struct timing {
    qr_attn_fn *fn;
    struct qr_attn a;
    uint32_t tables[SEQS][SEQ_BLOCKS];
    size_t head_bytes; // within a block
    int n_heads, at;   // heads of all layers
};

static void attend(void *arg)
{
    struct timing *t = arg;
    t->a.kv.table = t->tables[t->at % SEQS];
    t->a.kv.head_off = (size_t)(t->at / SEQS % t->n_heads) * t->head_bytes;
    t->at++;
    t->fn(&t->a);
}

static void shuffle(uint32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        int j = (int)(qr_rand_u64(1, 0, (uint64_t)i) % (uint64_t)(i + 1));
        ids[i] = ids[j];
        ids[j] = (uint32_t)i;
    }
}

static const char *origin_of(enum qr_kvtype t, bool prefill)
{
    char slot[64];
    snprintf(slot, sizeof slot, "attn_%s_%s", prefill ? "prefill" : "decode", qr_kvtype_name(t));
    return qr_kern_origin(slot, qr_isa_active());
}

enum qr_status kernels_time_attention(const struct kernels_arena *a, const struct kernels_shapes *s, enum qr_kvtype type,
                                      bool prefill, struct kernels_attention *out, struct qr_error *err)
{
    struct qr_kv_kernels k = qr_kern_kv(qr_kern(), type);
    struct kernels_attention r = {.type = type, .prefill = prefill, .isa = origin_of(type, prefill), .context = CONTEXT,
                                  .rows = prefill ? QR_ATTN_ROWS_MAX : 1, .n_group = s->n_heads / s->n_kv_heads, .d = s->d};
    struct timing t = {.fn = prefill ? k.prefill : k.decode, .head_bytes = qr_kv_unit_bytes(type, s->d) * (BLOCK / QR_KV_UNIT)};
    size_t block_bytes = a->bytes / (SEQS * SEQ_BLOCKS), width = (size_t)(r.n_group * r.d);
    t.n_heads = (int)(block_bytes / t.head_bytes);
    block_bytes = (size_t)t.n_heads * t.head_bytes;
    shuffle(&t.tables[0][0], SEQS * SEQ_BLOCKS);
    size_t io_bytes = width * QR_ATTN_ROWS_MAX * sizeof(float), scratch_bytes = QR_ATTN_SCRATCH(r.n_group, r.d);
    float *q = qr_malloc(QR_MEM_MISC, io_bytes), *o = qr_malloc(QR_MEM_MISC, io_bytes);
    void *scratch = qr_pages_alloc(QR_MEM_MISC, scratch_bytes);
    bool ok = q && o && scratch;
    if (ok) {
        for (size_t i = 0; i < width * QR_ATTN_ROWS_MAX; i++) q[i] = (float)((int)(i * 37 % 101) - 50) / 50;
        t.a = (struct qr_attn){.kv = {.pool = a->p, .block_bytes = block_bytes, .block_size = BLOCK, .d = r.d},
                               .n_group = r.n_group, .scale = 1 / sqrtf((float)r.d), .pos0 = CONTEXT - r.rows, .n_rows = r.rows,
                               .q = q, .ldq = width, .out = o, .ldo = width, .scratch = scratch};
        r.ns = bench_quick_ns(attend, &t);
        *out = r;
    }
    qr_free(q);
    qr_free(o);
    if (scratch) qr_pages_free(QR_MEM_MISC, scratch, scratch_bytes);
    return ok ? QR_OK : qr_fail(err, QR_ENOMEM, "no memory for attention");
}
