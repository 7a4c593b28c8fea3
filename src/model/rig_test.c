#include "model/rig_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

void rig_scatter(uint32_t *table, int n, uint32_t first)
{
    for (int i = 0; i < n; i++) table[i] = first + (uint32_t)(n - 1 - i);
    for (int i = 0; i + 1 < n; i += 2) {
        uint32_t t = table[i];
        table[i] = table[i + 1];
        table[i + 1] = t;
    }
}

void rig_open(struct rig *r, const struct rig_conf *conf)
{
    struct qr_error err = {0};
    *r = (struct rig){.block_size = conf->block_size};
    struct qr_workers_conf wc = {.n_threads = conf->n_threads, .spin_us = 50};
    if (qr_gguf_open(conf->path, &r->g, &err)) fail_msg("%s: %s", conf->path, err.msg);
    if (qr_workers_new(&wc, &r->w, &err)) fail_msg("%s", err.msg);
    struct qr_model_conf mc = {.activations = conf->activations, .kvtype = conf->kvtype, .workers = r->w};
    if (qr_model_load(r->g, &mc, &r->m, &err)) fail_msg("%s: %s", conf->path, err.msg);
    r->n_vocab = qr_model_info(r->m)->n_vocab;
    r->n_logit_rows = 32;
    struct qr_forward_conf fc = {conf->n_tokens, 16, r->n_logit_rows, r->n_logit_rows, NULL};
    assert_int_equal(qr_forward_new(r->m, r->w, &fc, &r->f), QR_OK);
    r->n_blocks = (uint32_t)(conf->n_tokens / conf->block_size + 32);
    r->pool_bytes = r->n_blocks * qr_model_block_bytes(r->m, r->block_size);
    r->pool = qr_pages_alloc(QR_MEM_KV, r->pool_bytes);
    assert_non_null(r->pool);
    memset(r->pool, 0xFF, r->pool_bytes);
    r->caps = (struct qr_batch_caps){16, conf->n_tokens, (int32_t)r->n_blocks, 0};
    r->batch = malloc(qr_batch_bytes(&r->caps));
}

void rig_close(struct rig *r)
{
    free(r->batch);
    qr_pages_free(QR_MEM_KV, r->pool, r->pool_bytes);
    qr_forward_free(&r->f);
    qr_model_free(&r->m);
    qr_workers_free(&r->w);
    qr_gguf_free(&r->g);
}

void rig_step(struct rig *r, const struct rig_seq *seqs, int n_seqs)
{
    struct qr_batch *b = qr_batch_init(r->batch, &r->caps);
    for (int i = 0; i < n_seqs; i++) {
        const struct rig_seq *s = &seqs[i];
        qr_batch_seqs(b)[i] = (struct qr_batch_seq){.slot = i,
                                                    .n_tokens = s->n_tokens,
                                                    .pos0 = s->pos0,
                                                    .n_prompt = s->n_prompt,
                                                    .first_id = b->n_tokens,
                                                    .first_block = b->n_table,
                                                    .n_blocks = s->n_blocks};
        memcpy(qr_batch_ids(b) + b->n_tokens, s->ids + s->pos0, (size_t)s->n_tokens * sizeof *s->ids);
        memcpy(qr_batch_table(b) + b->n_table, s->table, (size_t)s->n_blocks * sizeof *s->table);
        b->n_tokens += s->n_tokens;
        b->n_table += s->n_blocks;
        b->n_seqs++;
    }
    qr_batch_check(b, r->block_size, r->n_blocks);
    qr_model_forward(r->m, r->f, b, r->pool, r->block_size);
}

void rig_run(struct rig *r, const int32_t *ids, int n, int n_prompt, int chunk, float *out)
{
    uint32_t table[1024];
    int n_blocks = (n + r->block_size - 1) / r->block_size;
    assert_true(n_blocks <= 1024 && (uint32_t)n_blocks <= r->n_blocks);
    rig_scatter(table, n_blocks, 0);
    for (int pos = 0; pos < n; pos += chunk) {
        struct rig_seq s = {ids, n_prompt, pos, n - pos < chunk ? n - pos : chunk, table, n_blocks};
        rig_step(r, &s, 1);
        for (int i = 0; out && i < s.n_tokens; i += r->n_logit_rows) {
            struct qr_logit_row rows[64];
            int n_rows = s.n_tokens - i < r->n_logit_rows ? s.n_tokens - i : r->n_logit_rows;
            for (int j = 0; j < n_rows; j++) rows[j] = (struct qr_logit_row){.i = i + j};
            qr_model_logits(r->m, r->f, r->batch, rows, n_rows);
            for (int j = 0; j < n_rows; j++)
                memcpy(out + (size_t)(pos + i + j) * (size_t)r->n_vocab, qr_model_logit_row(r->f, j),
                       (size_t)r->n_vocab * sizeof *out);
        }
    }
}

static void want(int got, int expected, const char *what)
{
    if (got != expected) fail_msg("golden file: cannot read %s", what);
}

static void read_row(FILE *f, struct rig_case *c)
{
    assert_true(c->n_rows < 8);
    struct rig_row *row = &c->rows[c->n_rows++];
    want(fscanf(f, "%d %f %d", &row->pos, &row->max, &row->n), 3, "a row");
    assert_in_range(row->n, 1, 64);
    for (int i = 0; i < row->n; i++) want(fscanf(f, "%d %f", &row->id[i], &row->logit[i]), 2, "a logit");
}

bool rig_next_case(FILE *f, struct rig_case *c)
{
    char word[16];
    *c = (struct rig_case){0};
    if (fscanf(f, " case %63s %d %d ids", c->name, &c->n_prompt, &c->n_ids) != 3) return false;
    assert_in_range(c->n_ids, 1, 1024);
    for (int i = 0; i < c->n_ids; i++) want(fscanf(f, "%d", &c->ids[i]), 1, "an id");
    c->n_steps = c->n_ids - c->n_prompt;
    if (c->n_steps == 0) want(fscanf(f, " %15s", word), 1, "steps");
    if (c->n_steps > 0) want(fscanf(f, " steps %f", &c->gap[0]), 1, "steps");
    assert_in_range(c->n_steps, 0, 127);
    for (int i = 1; i < c->n_steps; i++) want(fscanf(f, "%f", &c->gap[i]), 1, "a gap");
    long at = ftell(f);
    while (fscanf(f, " %15s", word) == 1 && !strcmp(word, "row")) {
        read_row(f, c);
        at = ftell(f);
    }
    fseek(f, at, SEEK_SET);
    return true;
}
