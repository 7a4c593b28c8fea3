#include "model/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define ROWS_PER_TASK 4 // of row-wise work: about a microsecond a row
#define TASKS_PER_WORKER                                                                                     \
    6 // of a product: enough that a stolen core delays little, few enough that claims cost nothing
#define P_PANELS 3 // that kernels of class P multiply at once

static int div_up(int a, int b)
{
    return (a + b - 1) / b;
}

static void run(struct qr_forward *f, enum qr_phase phase, int n_tasks, qr_task_fn *fn, void *arg)
{
    uint64_t begin = qr_phase_begin(f->conf.phases);
    qr_workers_run(f->workers, n_tasks, fn, arg);
    qr_phase_end(f->conf.phases, phase, begin);
}

/* ==== Inputs of products. ==== */

static enum qr_akind kind_of(const struct forward_group *g, const struct model_linear *lin)
{
    return qr_akind_of(forward_class(g->cls, lin), lin->w.fmt);
}

// Bits of the forms in which a class needs the input.
static unsigned kinds_of(const struct forward_group *g, const struct layers_linears *l)
{
    unsigned kinds = 0;
    for (int i = 0; i < l->n; i++) kinds |= 1u << kind_of(g, l->lin[i]);
    return kinds;
}

static void lay_out_acts(struct qr_forward *f, const struct layers_linears *l)
{
    int k = l->lin[0]->w.k;
    for (int i = 0; i < f->n_groups; i++) {
        struct forward_group *g = &f->groups[i];
        unsigned kinds = kinds_of(g, l);
        for (int kind = 0; g->n > 0 && kind < QR_A_COUNT; kind++)
            if (kinds >> kind & 1)
                qr_acts_init(&g->acts[f->side][kind], (enum qr_akind)kind, g->n, k,
                             g->acts_mem[f->side][kind]);
    }
}

// Stores x[0..n) as elements from k0 on of a row of the input of products.
static void set_input_part(struct qr_forward *f, const struct layers_linears *l, int row, int k0, int n,
                           const float *x)
{
    const struct forward_group *g = forward_group_of(f, row);
    unsigned kinds = kinds_of(g, l);
    for (int kind = 0; kind < QR_A_COUNT; kind++)
        if (kinds >> kind & 1) qr_acts_set_part(&g->acts[f->side][kind], row - g->row0, k0, n, x);
}

static void set_input(struct qr_forward *f, const struct layers_linears *l, int row, const float *x)
{
    set_input_part(f, l, row, 0, l->lin[0]->w.k, x);
}

/* ==== Row-wise phases. ==== */

struct rows_task {
    struct qr_forward *f;
    const float *weight;
    const struct layers_linears *next;
    int n_rows;
};

static void run_rows(struct qr_forward *f, qr_task_fn *fn, struct rows_task *t)
{
    t->f = f;
    t->n_rows = f->n_rows;
    run(f, QR_PHASE_ROWS, div_up(f->n_rows, ROWS_PER_TASK), fn, t);
}

static int rows_end(const struct rows_task *t, int i_task)
{
    int end = (i_task + 1) * ROWS_PER_TASK;
    return end < t->n_rows ? end : t->n_rows;
}

static void embed_task(void *arg, int i_task, int i_worker)
{
    const struct rows_task *t = arg;
    struct qr_forward *f = t->f;
    const struct model_config *c = &f->m->cfg;
    for (int r = i_task * ROWS_PER_TASK; r < rows_end(t, i_task); r++) {
        qr_wmat_row(&f->m->embd.w, f->row_id[r], f->x + (size_t)r * (size_t)c->d_model);
        model_rope_row(f->m->inv_freq, c->d_rot, f->row_pos[r], f->cs + (size_t)r * (size_t)c->d_rot);
    }
}

void layers_embed(struct qr_forward *f)
{
    struct rows_task t = {0};
    run_rows(f, embed_task, &t);
}

static void norm_task(void *arg, int i_task, int i_worker)
{
    const struct rows_task *t = arg;
    struct qr_forward *f = t->f;
    int d = f->m->cfg.d_model;
    float *y = forward_scratch(f, i_worker); // (d_model)
    for (int r = i_task * ROWS_PER_TASK; r < rows_end(t, i_task); r++) {
        f->kern->rmsnorm(f->x + (size_t)r * (size_t)d, t->weight, f->m->cfg.rms_eps, d, y);
        set_input(f, t->next, r, y);
    }
}

void layers_norm(struct qr_forward *f, const float *weight, const struct layers_linears *next)
{
    struct rows_task t = {.weight = weight, .next = next};
    lay_out_acts(f, next);
    run_rows(f, norm_task, &t);
}

/* ==== Products. ==== */

// Consecutive tasks over the panels of one linear for one class.
struct product_span {
    const struct forward_group *g;
    const struct model_linear *lin;
    float *y;
    int first_task, panels_per_task;
};

struct product {
    struct qr_forward *f;
    int ldy;
    bool add;
    uint64_t i_phase; // this run among all of f's
    int n_spans;
    struct product_span spans[LAYERS_LINEARS_MAX * FORWARD_GROUPS_MAX];
};

// A product of some panels for the rows of a group.
struct piece {
    const struct forward_group *g;
    const struct model_linear *lin;
    int panel0, panel1;
    float *y;
    int ldy;
    bool add;
    int side; // of its input
    uint64_t i_phase;
};

static void multiply(struct qr_forward *f, const struct piece *p, int i_worker)
{
    const struct qr_wmat *w = &p->lin->w;
    struct forward_held *held = &f->held[i_worker];
    struct forward_held now = {p->i_phase, &p->g->acts[p->side][kind_of(p->g, p->lin)],
                               p->g->gemm[p->lin->fine][w->fmt]->fn};
    struct qr_gemm g = {
        .w = w,
        .panel0 = p->panel0,
        .panel1 = p->panel1 < w->n_panels ? p->panel1 : w->n_panels,
        .acts = now.acts,
        .y = p->y,
        .ldy = (size_t)p->ldy,
        .bias = p->lin->bias,
        .add = p->add,
        .scratch = forward_scratch(f, i_worker),
        .ahead = f->ahead,
        .again = held->i_phase == now.i_phase && held->acts == now.acts && held->fn == now.fn,
    };
    *held = now;
    now.fn(&g);
}

static void product_task(void *arg, int i_task, int i_worker)
{
    const struct product *p = arg;
    int s = p->n_spans - 1;
    while (p->spans[s].first_task > i_task) s--;
    const struct product_span *span = &p->spans[s];
    int from = (i_task - span->first_task) * span->panels_per_task;
    struct piece piece = {
        .g = span->g,
        .lin = span->lin,
        .panel0 = from,
        .panel1 = from + span->panels_per_task,
        .y = span->y,
        .ldy = p->ldy,
        .add = p->add,
        .side = p->f->side,
        .i_phase = p->i_phase,
    };
    multiply(p->f, &piece, i_worker);
}

static int total_panels(const struct layers_linears *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) n += l->lin[i]->w.n_panels;
    return n;
}

void layers_linear(struct qr_forward *f, const struct layers_linears *l, float *y, int ldy, bool add)
{
    struct product p = {.f = f, .ldy = ldy, .add = add, .i_phase = ++f->n_products};
    int n_tasks = 0;
    int per_task = div_up(total_panels(l), f->n_workers * TASKS_PER_WORKER);
    for (int i = f->n_groups - 1; i >= 0; i--) { // prompt rows first: their tasks are the longest
        const struct forward_group *g = &f->groups[i];
        int column = 0;
        for (int j = 0; g->n > 0 && j < l->n; j++) {
            p.spans[p.n_spans++] = (struct product_span){
                g, l->lin[j], y + (size_t)g->row0 * (size_t)ldy + column, n_tasks, per_task};
            n_tasks += div_up(l->lin[j]->w.n_panels, per_task);
            column += l->lin[j]->w.n;
        }
    }
    run(f, QR_PHASE_PRODUCTS, n_tasks, product_task, &p);
}

/* ==== The gated products of a feed-forward layer. ==== */

struct gated {
    struct qr_forward *f;
    const struct model_linear *gate, *up;
    struct layers_linears next;
    uint64_t i_phase;
    int columns_per_task;
    int n_tasks_each; // of a group
    int n_groups;
    const struct forward_group *groups[FORWARD_GROUPS_MAX];
};

static void gated_task(void *arg, int i_task, int i_worker)
{
    const struct gated *t = arg;
    struct qr_forward *f = t->f;
    const struct forward_group *g = t->groups[i_task / t->n_tasks_each];
    int d_ff = f->m->cfg.d_ff, from = i_task % t->n_tasks_each * t->columns_per_task;
    int n = d_ff - from < t->columns_per_task ? d_ff - from : t->columns_per_task;
    float *y = f->ffn + (size_t)g->row0 * (size_t)f->ld_ffn;
    struct piece piece = {
        .g = g,
        .lin = t->gate,
        .panel0 = from / QR_PANEL,
        .panel1 = div_up(from + n, QR_PANEL),
        .y = y,
        .ldy = f->ld_ffn,
        .side = f->side ^ 1,
        .i_phase = t->i_phase,
    };
    multiply(f, &piece, i_worker);
    piece.lin = t->up;
    piece.y = y + d_ff;
    multiply(f, &piece, i_worker);
    for (int r = 0; r < g->n; r++) {
        float *gate = y + (size_t)r * (size_t)f->ld_ffn + from;
        f->kern->swiglu(gate, gate + d_ff, n, gate);
        set_input_part(f, &t->next, g->row0 + r, from, n, gate);
    }
}

// Columns of a task: whole groups of the next input's forms and, where there are enough, whole steps of the
// kernels of class P.
static int gated_columns(const struct qr_forward *f, const struct layers_linears *next)
{
    int n = f->n_workers * TASKS_PER_WORKER, d_ff = f->m->cfg.d_ff, unit = 32;
    for (int i = 0; i < f->n_groups; i++)
        if (kinds_of(&f->groups[i], next) >> QR_A_Q256 & 1) unit = 256;
    if (d_ff >= n * P_PANELS * unit) unit *= P_PANELS;
    return div_up(div_up(d_ff, n), unit) * unit;
}

void layers_gated(struct qr_forward *f, const struct model_linear *gate, const struct model_linear *up,
                  const struct model_linear *next)
{
    struct gated t = {.f = f, .gate = gate, .up = up, .next = {1, {next}}, .i_phase = ++f->n_products};
    f->side ^= 1; // the input of the next product is written while that of these is read
    lay_out_acts(f, &t.next);
    t.columns_per_task = gated_columns(f, &t.next);
    t.n_tasks_each = div_up(f->m->cfg.d_ff, t.columns_per_task);
    for (int i = f->n_groups - 1; i >= 0; i--) // prompt rows first: their tasks are the longest
        if (f->groups[i].n > 0) t.groups[t.n_groups++] = &f->groups[i];
    run(f, QR_PHASE_PRODUCTS, t.n_groups * t.n_tasks_each, gated_task, &t);
}

/* ==== Attention. ==== */

struct attention {
    struct qr_forward *f;
    const struct forward_tile *tiles;
    size_t layer_off;  // of the layer within a block
    size_t head_bytes; // of one head within a block
    struct layers_linears next;
};

static struct qr_kv_view view_of(const struct attention *a, const struct forward_tile *t, int head)
{
    const struct qr_forward *f = a->f;
    return (struct qr_kv_view){
        .pool = f->pool,
        .block_bytes = f->block_bytes,
        .head_off = a->layer_off + (size_t)head * a->head_bytes,
        .table = qr_batch_table(f->batch) + qr_batch_seqs(f->batch)[t->i_seq].first_block,
        .block_size = f->block_size,
        .d = f->m->cfg.head_dim,
    };
}

// Rotates Q and K of one KV head in the rows of a tile and writes K and V to the pages.
static void rotate_and_write(const struct attention *a, const struct forward_tile *t, int head)
{
    struct qr_forward *f = a->f;
    const struct model_config *c = &f->m->cfg;
    struct qr_kv_view view = view_of(a, t, head);
    int d = c->head_dim, n_group = c->n_heads / c->n_kv_heads;
    void (*rope)(float *, const float *, int) = c->rope_neox ? f->kern->rope_neox : f->kern->rope_norm;
    for (int i = 0; i < t->n; i++) {
        int row = forward_row(&f->seqs[t->i_seq], t->pos0 + i - qr_batch_seqs(f->batch)[t->i_seq].pos0);
        float *q = f->qkv + (size_t)row * (size_t)f->ld_qkv, *k = q + c->n_heads * d + head * d,
              *v = k + c->n_kv_heads * d;
        const float *cs = f->cs + (size_t)row * (size_t)c->d_rot;
        for (int g = 0; g < n_group; g++) rope(q + (head * n_group + g) * d, cs, c->d_rot);
        rope(k, cs, c->d_rot);
        f->kv.write(&view, t->pos0 + i, k, v);
    }
}

static void write_task(void *arg, int i_task, int i_worker)
{
    const struct attention *a = arg;
    int n_kv = a->f->m->cfg.n_kv_heads;
    rotate_and_write(a, &a->tiles[i_task / n_kv], i_task % n_kv);
}

static void attend_task(void *arg, int i_task, int i_worker)
{
    const struct attention *a = arg;
    struct qr_forward *f = a->f;
    const struct model_config *c = &f->m->cfg;
    int head = i_task % c->n_kv_heads, n_group = c->n_heads / c->n_kv_heads;
    const struct forward_tile *t = &a->tiles[i_task / c->n_kv_heads];
    if (t->writes) rotate_and_write(a, t, head);
    size_t column = (size_t)head * (size_t)n_group * (size_t)c->head_dim;
    struct qr_attn attn = {
        .kv = view_of(a, t, head),
        .n_group = n_group,
        .scale = 1.0f / sqrtf((float)c->head_dim),
        .pos0 = t->pos0,
        .n_rows = t->n,
        .q = f->qkv + (size_t)t->row0 * (size_t)f->ld_qkv + column,
        .ldq = (size_t)f->ld_qkv,
        .out = f->att + (size_t)t->row0 * (size_t)f->ld_att + column,
        .ldo = (size_t)f->ld_att,
        .scratch = forward_scratch(f, i_worker),
    };
    struct qr_kv_view ahead;
    if (i_task + 1 < f->n_attends * c->n_kv_heads) { // workers have runs of tasks: the next is mostly this one's
        const struct forward_tile *u = &a->tiles[(i_task + 1) / c->n_kv_heads];
        ahead = view_of(a, u, (i_task + 1) % c->n_kv_heads);
        attn.ahead = &ahead;
        attn.ahead_end = u->pos0 + u->n;
    }
    (t->decode ? f->kv.decode : f->kv.prefill)(&attn);
    // Whoever finishes the last head of a row stores the row for the product that follows: one barrier less.
    for (int r = t->row0; r < t->row0 + t->n; r++)
        if (atomic_fetch_sub_explicit(&f->heads_left[r], 1, memory_order_acq_rel) == 1)
            set_input(f, &a->next, r, f->att + (size_t)r * (size_t)f->ld_att);
}

void layers_attention(struct qr_forward *f, int i_layer, const struct model_linear *next)
{
    const struct model_config *c = &f->m->cfg;
    size_t head_bytes =
        (size_t)(f->block_size / QR_KV_UNIT) * qr_kv_unit_bytes(f->m->info.kvtype, c->head_dim);
    struct attention a = {
        .f = f,
        .tiles = f->writes,
        .layer_off = (size_t)i_layer * (size_t)c->n_kv_heads * head_bytes,
        .head_bytes = head_bytes,
        .next = {1, {next}},
    };
    lay_out_acts(f, &a.next);
    for (int r = 0; r < f->n_rows; r++)
        atomic_store_explicit(&f->heads_left[r], c->n_kv_heads, memory_order_relaxed);
    if (f->n_writes) run(f, QR_PHASE_ATTENTION, f->n_writes * c->n_kv_heads, write_task, &a);
    a.tiles = f->attends;
    run(f, QR_PHASE_ATTENTION, f->n_attends * c->n_kv_heads, attend_task, &a);
}

/* ==== The decoder layer. ==== */

enum qr_status layers_bind_decoder(struct weights *w, struct qr_model *m, int i, enum weights_need qkv_bias)
{
    const struct model_config *c = &m->cfg;
    struct model_layer *l = &m->layers[i];
    int n_q = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    const struct {
        const char *name;
        struct model_linear *lin;
        int n, k;
        enum weights_need bias;
    } linears[] = {
        {"attn_q", &l->q, n_q, c->d_model, qkv_bias},
        {"attn_k", &l->k, n_kv, c->d_model, qkv_bias},
        {"attn_v", &l->v, n_kv, c->d_model, qkv_bias},
        {"attn_output", &l->o, c->d_model, n_q, WEIGHTS_OPTIONAL},
        {"ffn_gate", &l->gate, c->d_ff, c->d_model, WEIGHTS_OPTIONAL},
        {"ffn_up", &l->up, c->d_ff, c->d_model, WEIGHTS_OPTIONAL},
        {"ffn_down", &l->down, c->d_model, c->d_ff, WEIGHTS_OPTIONAL},
    };
    char name[64];
    enum qr_status st;
    for (size_t j = 0; j < sizeof linears / sizeof *linears; j++) {
        snprintf(name, sizeof name, "blk.%d.%s", i, linears[j].name);
        if ((st = weights_linear(w, linears[j].lin, name, linears[j].n, linears[j].k, linears[j].bias)))
            return st;
    }
    l->k.fine = l->v.fine = l->down.fine = true; // with the head: the most quality for the least work
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", i);
    if ((st = weights_vector(w, &l->attn_norm, name, c->d_model, WEIGHTS_REQUIRED))) return st;
    snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", i);
    return weights_vector(w, &l->ffn_norm, name, c->d_model, WEIGHTS_REQUIRED);
}

void layers_run_decoder(struct qr_forward *f, int i)
{
    const struct model_layer *l = &f->m->layers[i];
    struct layers_linears qkv = {3, {&l->q, &l->k, &l->v}}, o = {1, {&l->o}};
    struct layers_linears gate_up = {2, {&l->gate, &l->up}}, down = {1, {&l->down}};
    layers_norm(f, l->attn_norm, &qkv);
    layers_linear(f, &qkv, f->qkv, f->ld_qkv, false);
    layers_attention(f, i, &l->o);
    layers_linear(f, &o, f->x, f->m->cfg.d_model, true);
    layers_norm(f, l->ffn_norm, &gate_up);
    layers_gated(f, &l->gate, &l->up, &l->down);
    layers_linear(f, &down, f->x, f->m->cfg.d_model, true);
}

/* ==== Logits. ==== */

static void logit_norm_task(void *arg, int i_task, int i_worker)
{
    const struct rows_task *t = arg;
    struct qr_forward *f = t->f;
    int d = f->m->cfg.d_model;
    float *y = forward_scratch(f, i_worker);
    for (int i = i_task * ROWS_PER_TASK; i < rows_end(t, i_task); i++) {
        int row = f->heads[f->head_order[i]].row;
        f->kern->rmsnorm(f->x + (size_t)row * (size_t)d, f->m->out_norm, f->m->cfg.rms_eps, d, y);
        set_input(f, t->next, i, y);
    }
}

struct head {
    struct qr_forward *f;
    uint64_t i_phase;
    int tiles_per_task;
    int n_tasks_each; // of a group
    int n_groups;
    const struct forward_group *groups[FORWARD_GROUPS_MAX];
};

static const struct forward_logit *head_of(const struct qr_forward *f, int row)
{
    return &f->heads[f->head_order[row]];
}

// From a tile of a group's rows: what each row wants.
static void keep_tile(struct qr_forward *f, const struct forward_group *g, int i_tile, const float *y, int n)
{
    int first = i_tile * QR_LOGIT_TILE;
    for (int r = 0; r < g->n; r++, y += LOGIT_TILE_LD) {
        int i = f->head_order[g->row0 + r];
        const struct forward_logit *h = &f->heads[i];
        if (h->want == QR_LOGIT_ALL)
            memcpy(f->logits + (size_t)h->place * (size_t)f->m->cfg.n_vocab + first, y, (size_t)n * sizeof *y);
        else
            qr_logit_tile(y, n, first, h->want == QR_LOGIT_PEAK_NORM,
                          &f->tiles[(size_t)i * (size_t)f->n_tiles + (size_t)i_tile]);
    }
}

static void head_task(void *arg, int i_task, int i_worker)
{
    const struct head *t = arg;
    struct qr_forward *f = t->f;
    const struct forward_group *g = t->groups[i_task / t->n_tasks_each];
    const struct model_linear *all = f->m->head;
    size_t n_vocab = (size_t)f->m->cfg.n_vocab;
    // Those that want all come first, in the order of their places: where there are no others the product needs no move.
    bool in_place = head_of(f, g->row0 + g->n - 1)->want == QR_LOGIT_ALL;
    float *hand = f->tile_mem + (size_t)i_worker * (size_t)f->conf.n_head_rows * LOGIT_TILE_LD;
    float *logits = f->logits + (size_t)head_of(f, g->row0)->place * n_vocab;
    int from = i_task % t->n_tasks_each * t->tiles_per_task, to = from + t->tiles_per_task;
    for (int i = from; i < to && i < f->n_tiles; i++) {
        struct model_linear tile = *all; // as a matrix of its own: the kernel writes its columns side by side
        int first = i * QR_LOGIT_TILE;
        tile.w.data += (size_t)(first / QR_PANEL) * all->w.panel_bytes;
        tile.w.n = all->w.n - first < QR_LOGIT_TILE ? all->w.n - first : QR_LOGIT_TILE;
        tile.w.n_panels = div_up(tile.w.n, QR_PANEL);
        if (tile.bias) tile.bias += first;
        struct piece piece = {.g = g,
                              .lin = &tile,
                              .panel1 = tile.w.n_panels,
                              .y = in_place ? logits + first : hand,
                              .ldy = in_place ? (int)n_vocab : LOGIT_TILE_LD,
                              .side = f->side,
                              .i_phase = t->i_phase};
        multiply(f, &piece, i_worker);
        if (!in_place) keep_tile(f, g, i, hand, tile.w.n);
    }
}

void layers_logits(struct qr_forward *f, int n)
{
    struct layers_linears head = {1, {f->m->head}};
    struct rows_task rows = {.f = f, .next = &head, .n_rows = n};
    struct head t = {.f = f, .i_phase = ++f->n_products};
    lay_out_acts(f, &head);
    run(f, QR_PHASE_HEAD, div_up(n, ROWS_PER_TASK), logit_norm_task, &rows);
    t.tiles_per_task = div_up(f->n_tiles, f->n_workers * TASKS_PER_WORKER);
    t.n_tasks_each = div_up(f->n_tiles, t.tiles_per_task);
    for (int i = f->n_groups - 1; i >= 0; i--) // prompt rows first: their tasks are the longest
        if (f->groups[i].n > 0) t.groups[t.n_groups++] = &f->groups[i];
    run(f, QR_PHASE_HEAD, t.n_groups * t.n_tasks_each, head_task, &t);
}
