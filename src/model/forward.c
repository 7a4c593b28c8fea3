/* A step: the plan of its rows, and the walk through embedding, layers and head. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "model/layers.h"

#define LINE 64
#define TILE QR_KV_UNIT // rows of a prompt that one attention task takes (QR_ATTN_ROWS_MAX)

/* ==== Memory. ==== */

// First pass with mem == NULL to add up, second pass to hand out.
struct carver {
    uint8_t *mem;
    size_t at;
};

static void *carve(struct carver *c, size_t count, size_t bytes)
{
    void *p = c->mem ? c->mem + c->at : NULL;
    c->at += (count * bytes + LINE - 1) / LINE * LINE;
    return p;
}

// Bits of the forms of activations that rows of a class need anywhere in the model.
static unsigned kinds_of(const struct qr_model *m, enum qr_class cls)
{
    unsigned kinds = 1u << qr_akind_of(forward_class(cls, m->head), m->head->w.fmt);
    for (int i = 0; i < m->cfg.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        const struct model_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            kinds |= 1u << qr_akind_of(forward_class(cls, all[j]), all[j]->w.fmt);
    }
    return kinds;
}

static void carve_acts(struct qr_forward *f, struct carver *c, struct forward_group *g, int n_rows)
{
    unsigned kinds = kinds_of(f->m, g->cls);
    // A narrower phase needs no more than the widest; 256 more elements cover its rounding.
    for (int kind = 0; kind < QR_A_COUNT; kind++)
        for (int side = 0; side < 2 && kinds >> kind & 1; side++)
            g->acts_mem[side][kind] =
                carve(c, 1, qr_acts_bytes((enum qr_akind)kind, n_rows, (f->k_max + 511) / 256 * 256));
}

static void carve_all(struct qr_forward *f, struct carver *c)
{
    const struct model_config *cfg = &f->m->cfg;
    size_t n = (size_t)f->conf.n_tokens_max, n_seqs = (size_t)f->conf.n_seqs_max,
           n_logits = (size_t)f->conf.n_logit_rows, n_heads = (size_t)f->conf.n_head_rows;
    size_t n_tiles = n / TILE + 4 * n_seqs; // both ends of a sequence's prompt rows and of its generated rows
    f->seqs = carve(c, n_seqs, sizeof *f->seqs);
    f->row_id = carve(c, n, sizeof *f->row_id);
    f->row_pos = carve(c, n, sizeof *f->row_pos);
    f->writes = carve(c, n_tiles, sizeof *f->writes);
    f->attends = carve(c, n_tiles, sizeof *f->attends);
    f->heads_left = carve(c, n, sizeof *f->heads_left);
    f->heads = carve(c, n_heads, sizeof *f->heads);
    f->head_order = carve(c, n_heads, sizeof *f->head_order);
    f->tiles = carve(c, n_heads * (size_t)f->n_tiles, sizeof *f->tiles);
    f->x = carve(c, n * (size_t)cfg->d_model, sizeof *f->x);
    f->qkv = carve(c, n * (size_t)f->ld_qkv, sizeof *f->qkv);
    f->att = carve(c, n * (size_t)f->ld_att, sizeof *f->att);
    f->ffn = carve(c, n * (size_t)f->ld_ffn, sizeof *f->ffn);
    f->cs = carve(c, n * (size_t)cfg->d_rot, sizeof *f->cs);
    f->logits = carve(c, n_logits * (size_t)cfg->n_vocab, sizeof *f->logits);
    f->tile_mem = carve(c, (size_t)f->n_workers * n_heads * LOGIT_TILE_LD, sizeof *f->tile_mem);
    int n_acts = f->conf.n_tokens_max > f->conf.n_head_rows ? f->conf.n_tokens_max : f->conf.n_head_rows;
    for (int i = 0; i < f->n_groups; i++) carve_acts(f, c, &f->groups[i], n_acts);
    f->held = carve(c, (size_t)f->n_workers, sizeof *f->held);
    f->scratch = carve(c, (size_t)f->n_workers, f->scratch_bytes);
}

static size_t scratch_bytes(const struct qr_forward *f)
{
    const struct model_config *c = &f->m->cfg;
    size_t gemm = QR_GEMM_SCRATCH(f->k_max), attn = QR_ATTN_SCRATCH(c->n_heads / c->n_kv_heads, c->head_dim);
    size_t bytes = gemm > attn ? gemm : attn; // also a row of floats
    return (bytes + LINE - 1) / LINE * LINE;
}

enum qr_status qr_forward_new(const struct qr_model *m, struct qr_workers *w,
                              const struct qr_forward_conf *conf, struct qr_forward **out)
{
    const struct model_config *c = &m->cfg;
    QR_ASSERT(conf->n_tokens_max > 0 && conf->n_seqs_max > 0);
    QR_ASSERT(conf->n_logit_rows > 0 && conf->n_head_rows >= conf->n_logit_rows);
    struct qr_forward *f = qr_calloc(QR_MEM_EXEC, 1, sizeof *f);
    if (!f) return QR_ENOMEM;
    f->m = m;
    f->workers = w;
    f->n_workers = qr_workers_count(w);
    f->ahead = qr_gemm_ahead(qr_isa_active());
    f->conf = *conf;
    f->kern = qr_kern();
    f->kv = qr_kern_kv(f->kern, m->info.kvtype);
    f->ld_att = c->n_heads * c->head_dim;
    f->ld_qkv = (c->n_heads + 2 * c->n_kv_heads) * c->head_dim;
    f->ld_ffn = 2 * c->d_ff;
    f->n_tiles = qr_logit_tiles(c->n_vocab);
    f->k_max = c->d_model > c->d_ff ? c->d_model : c->d_ff;
    if (f->ld_att > f->k_max) f->k_max = f->ld_att;
    f->scratch_bytes = scratch_bytes(f);
    if (m->activations == QR_ACT_F32) {
        f->n_groups = 1;
        f->groups[0].cls = QR_CLASS_F;
    } else {
        f->n_groups = 2;
        f->groups[0].cls = QR_CLASS_D;
        f->groups[1].cls = QR_CLASS_P;
    }
    struct carver sum = {0};
    carve_all(f, &sum);
    f->mem_bytes = sum.at;
    f->mem = qr_pages_alloc(QR_MEM_EXEC, f->mem_bytes);
    if (!f->mem) {
        qr_free(f);
        return QR_ENOMEM;
    }
    struct carver hand_out = {f->mem, 0};
    carve_all(f, &hand_out);
    *out = f;
    return QR_OK;
}

void qr_forward_free(struct qr_forward **fp)
{
    struct qr_forward *f = *fp;
    if (!f) return;
    qr_pages_free(QR_MEM_EXEC, f->mem, f->mem_bytes);
    qr_free(f);
    *fp = NULL;
}

/* ==== The plan. ==== */

// Sizes of the groups, and for each the kernels that take so many rows.
static void set_groups(struct qr_forward *f, int n_first, int n_rows)
{
    uint32_t isa = qr_isa_active();
    f->groups[0].row0 = 0;
    f->groups[0].n = n_first;
    if (f->n_groups > 1) {
        f->groups[1].row0 = n_first;
        f->groups[1].n = n_rows - n_first;
    }
    for (int i = 0; i < f->n_groups; i++)
        for (int fmt = 0; f->groups[i].n > 0 && fmt < QR_W_COUNT; fmt++)
            for (int fine = 0; fine < 2; fine++) {
                struct model_linear lin = {.fine = fine};
                f->groups[i].gemm[fine][fmt] = qr_gemm_pick(isa, forward_class(f->groups[i].cls, &lin),
                                                            (enum qr_wfmt)fmt, f->groups[i].n);
            }
}

static int prompt_tokens(const struct qr_batch_seq *s)
{
    int n = s->flags & QR_BATCH_EXACT ? 0 : s->n_prompt - s->pos0;
    return n < 0 ? 0 : n > s->n_tokens ? s->n_tokens : n;
}

// Cuts n positions from pos0 at multiples of the tile: no two tiles of a sequence share a unit of KV.
static int add_tiles(struct forward_tile *tiles, int at, struct forward_tile all)
{
    for (int done = 0; done < all.n;) {
        struct forward_tile t = all;
        int room = TILE - (all.pos0 + done) % TILE;
        t.pos0 += done;
        t.row0 += done;
        t.n = all.n - done < room ? all.n - done : room;
        tiles[at++] = t;
        done += t.n;
    }
    return at;
}

static void plan_tiles(struct qr_forward *f, int i_seq)
{
    const struct qr_batch_seq *s = &qr_batch_seqs(f->batch)[i_seq];
    const struct forward_seq *rows = &f->seqs[i_seq];
    bool alone = s->n_tokens == 1;
    int n_d = s->n_tokens - rows->n_p;
    struct forward_tile p = {i_seq, s->pos0, rows->row_p, rows->n_p, false, alone};
    struct forward_tile d = {i_seq, s->pos0 + rows->n_p, rows->row_d, n_d, true, alone};
    // A write tile may hold rows of both classes: it finds them by position.
    if (!alone)
        f->n_writes = add_tiles(f->writes, f->n_writes,
                                (struct forward_tile){i_seq, s->pos0, 0, s->n_tokens, false, false});
    f->n_attends = add_tiles(f->attends, f->n_attends, p);
    f->n_attends = add_tiles(f->attends, f->n_attends, d);
}

void forward_plan(struct qr_forward *f, const struct qr_batch *b, uint8_t *pool, int block_size)
{
    const struct qr_batch_seq *seqs = qr_batch_seqs(b);
    const int32_t *ids = qr_batch_ids(b);
    int n_d = 0, n_p = 0;
    QR_ASSERT(b->n_tokens <= f->conf.n_tokens_max && b->n_seqs <= f->conf.n_seqs_max);
    QR_ASSERT(block_size > 0 && block_size % QR_KV_UNIT == 0);
    f->batch = b;
    f->pool = pool;
    f->block_size = block_size;
    f->block_bytes = qr_model_block_bytes(f->m, block_size);
    f->n_rows = b->n_tokens;
    f->n_writes = f->n_attends = 0;
    for (int i = 0; i < b->n_seqs; i++) n_d += seqs[i].n_tokens - prompt_tokens(&seqs[i]);
    f->n_first = f->n_groups > 1 ? n_d : b->n_tokens;
    set_groups(f, f->n_first, b->n_tokens);
    n_p = n_d;
    n_d = 0;
    for (int i = 0; i < b->n_seqs; i++) {
        struct forward_seq *s = &f->seqs[i];
        *s = (struct forward_seq){.row_p = n_p, .n_p = prompt_tokens(&seqs[i]), .row_d = n_d};
        n_p += s->n_p;
        n_d += seqs[i].n_tokens - s->n_p;
        QR_ASSERT(n_p <= b->n_tokens);
        for (int t = 0; t < seqs[i].n_tokens; t++) {
            int row = forward_row(s, t), id = ids[seqs[i].first_id + t];
            QR_ASSERT(id >= 0 && id < f->m->cfg.n_vocab);
            f->row_id[row] = id;
            f->row_pos[row] = seqs[i].pos0 + t;
        }
        plan_tiles(f, i);
    }
}

/* ==== The walk. ==== */

void qr_model_forward(const struct qr_model *m, struct qr_forward *f, const struct qr_batch *b, uint8_t *pool,
                      int block_size)
{
    QR_ASSERT(f->m == m);
    forward_plan(f, b, pool, block_size);
    if (f->n_rows == 0) return;
    layers_embed(f);
    for (int i = 0; i < m->cfg.n_layers; i++) m->family->run_layer(f, i);
}

// Lists in the order of the head's rows the heads of a class that want all, or those that do not.
static int order_heads(struct qr_forward *f, int n, int at, bool second, bool all)
{
    for (int i = 0; i < n; i++) {
        struct forward_logit *h = &f->heads[i];
        if ((h->row >= f->n_first) != second || (h->want == QR_LOGIT_ALL) != all) continue;
        f->head_order[at++] = i;
        if (all) h->place = f->n_stored++;
    }
    return at;
}

void qr_model_logits(const struct qr_model *m, struct qr_forward *f, const struct qr_batch *b,
                     const struct qr_logit_row *rows, int32_t n)
{
    QR_ASSERT(f->m == m && f->batch == b);
    QR_ASSERT(n >= 0 && n <= f->conf.n_head_rows);
    if (n == 0) return;
    for (int i = 0; i < n; i++) {
        QR_ASSERT(rows[i].i_seq >= 0 && rows[i].i_seq < b->n_seqs);
        f->heads[i] = (struct forward_logit){.row = forward_row(&f->seqs[rows[i].i_seq], rows[i].i), .want = rows[i].want};
    }
    // The first class's rows go first, so that the head is one product a class.
    f->n_stored = 0;
    int n_first = order_heads(f, n, order_heads(f, n, 0, false, true), false, false);
    order_heads(f, n, order_heads(f, n, n_first, true, true), true, false);
    QR_ASSERT(f->n_stored <= f->conf.n_logit_rows);
    set_groups(f, n_first, n);
    layers_logits(f, n);
}

float *qr_model_logit_row(const struct qr_forward *f, int32_t r)
{
    QR_ASSERT(f->heads[r].want == QR_LOGIT_ALL);
    return f->logits + (size_t)f->heads[r].place * (size_t)f->m->cfg.n_vocab;
}

struct qr_logit_peak qr_model_peak(const struct qr_forward *f, int32_t r)
{
    QR_ASSERT(f->heads[r].want != QR_LOGIT_ALL);
    return qr_logit_merge(f->tiles + (size_t)r * (size_t)f->n_tiles, f->n_tiles,
                          f->heads[r].want == QR_LOGIT_PEAK_NORM);
}
