/* The engine over an executor of a few lines, which answers every sampled row with position + 100. Scenarios
 * with a simulator stand in sim/. */
#include "engine/engine.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/test.h"

struct fake {
    struct qr_exec face;
    struct qr_out_row rows[8];
    int32_t n_rows, n_open, n_ids_at_open, n_trims;
};

static void fake_info(struct qr_exec *x, struct qr_exec_info *out)
{
    *out = (struct qr_exec_info){.n_slots = 2,
                                 .n_tokens_max = 32,
                                 .block_size = 16,
                                 .n_blocks = 6,
                                 .n_groups = 1,
                                 .block_bytes = {1024},
                                 .n_vocab = 1000,
                                 .ctx_max = 96};
}

static enum qr_status fake_open(struct qr_exec *x, int32_t slot, const struct qr_sampling *s, int32_t choice,
                                const int32_t *ids, int32_t n_prompt, int32_t n_ids)
{
    ((struct fake *)x)->n_open++;
    ((struct fake *)x)->n_ids_at_open = n_ids;
    return QR_OK;
}

static void fake_seq_close(struct qr_exec *x, int32_t slot)
{
    ((struct fake *)x)->n_open--;
}

static enum qr_status fake_submit(struct qr_exec *x, const struct qr_batch *b, qr_ticket *out)
{
    struct fake *f = (struct fake *)x;
    f->n_rows = 0;
    for (int32_t i = 0; i < b->n_seqs; i++) {
        const struct qr_batch_seq *q = &qr_batch_seqs(b)[i];
        int32_t last = q->pos0 + q->n_tokens - 1;
        if (q->flags & QR_BATCH_SAMPLE)
            f->rows[f->n_rows++] =
                (struct qr_out_row){.i_seq = i, .pos = last, .token = last + 100, .logprob = -1.0f};
    }
    *out = b->step;
    return QR_OK;
}

static enum qr_status fake_wait(struct qr_exec *x, qr_ticket t, struct qr_exec_result *out)
{
    struct fake *f = (struct fake *)x;
    *out = (struct qr_exec_result){.elapsed_ns = 5, .n_rows = f->n_rows, .rows = f->rows};
    return QR_OK;
}

static void fake_close(struct qr_exec *x)
{
}

static void fake_trim(struct qr_exec *x)
{
    ((struct fake *)x)->n_trims++;
}

static const struct qr_exec_ops fake_ops = {.info = fake_info,
                                            .seq_open = fake_open,
                                            .seq_close = fake_seq_close,
                                            .submit = fake_submit,
                                            .wait = fake_wait,
                                            .trim = fake_trim,
                                            .close = fake_close};

static struct qr_engine *open_engine(struct fake *f, struct qr_clock_virtual *clock)
{
    struct qr_engine *e = NULL;
    *f = (struct fake){.face = {&fake_ops}};
    qr_clock_virtual_init(clock);
    struct qr_engine_conf c = {.max_num_seqs = 2,
                               .max_num_batched_tokens = 32,
                               .max_model_len = 96,
                               .inbox_capacity = 8,
                               .outbox_capacity = 64,
                               .clock = &clock->face,
                               .kv_idle_release_ns = 5000,
                               .check_every_step = true};
    assert_int_equal(qr_engine_new(&c, &f->face, &e, NULL), QR_OK);
    return e;
}

static qr_req_id submit(struct qr_engine *e, int32_t n_prompt, int32_t max_tokens)
{
    static const int32_t ids[96];
    qr_req_id id = 0;
    struct qr_req r = {.prompt = ids,
                       .n_prompt = n_prompt,
                       .n_choices = 1,
                       .arrival_ns = 3,
                       .sampling = {.max_tokens = max_tokens, .n_logprobs = -1, .n_prompt_logprobs = -1}};
    assert_int_equal(qr_engine_submit(e, &r, &id, NULL), QR_OK);
    return id;
}

static struct qr_event next(struct qr_engine *e)
{
    struct qr_event ev;
    assert_true(qr_engine_poll(e, &ev));
    return ev;
}

QR_TEST(engine_publishes_tokens_in_order_and_finish_last)
{
    struct fake f;
    struct qr_clock_virtual clock;
    struct qr_engine *e = open_engine(&f, &clock);
    struct qr_event none;
    qr_req_id id = submit(e, 10, 2);
    assert_int_equal(qr_engine_step(e), QR_OK);
    struct qr_event ev = next(e);
    assert_int_equal(ev.id, id);
    assert_int_equal(ev.kind, QR_EVENT_TOKEN);
    assert_int_equal(ev.token, 109);
    assert_int_equal(ev.pos, 10);
    assert_int_equal(ev.arrival_ns, 3);
    assert_true(ev.logprob == -1.0f);
    assert_false(qr_engine_poll(e, &none));
    assert_int_equal(f.n_open, 1);
    assert_int_equal(qr_engine_step(e), QR_OK);
    assert_int_equal(next(e).token, 110);
    ev = next(e);
    assert_int_equal(ev.kind, QR_EVENT_FINISH);
    assert_int_equal(ev.finish, QR_FINISH_LENGTH);
    assert_int_equal(f.n_open, 0); // in the very step
    assert_int_equal(qr_engine_step(e), QR_AGAIN);
    qr_engine_free(&e);
    assert_null(e);
}

QR_TEST(engine_snapshot_counts_slots_tokens_and_time)
{
    struct fake f;
    struct qr_clock_virtual clock;
    struct qr_engine *e = open_engine(&f, &clock);
    struct qr_snapshot s;
    submit(e, 20, 5);
    qr_engine_snapshot(e, &s);
    assert_int_equal(s.n_waiting, 1);
    assert_int_equal(s.n_blocks_free, 6);
    assert_int_equal(s.block_bytes, 1024);
    assert_int_equal(qr_engine_step(e), QR_OK);
    qr_engine_snapshot(e, &s);
    assert_int_equal(s.n_running, 1);
    assert_int_equal(s.n_waiting, 0);
    assert_int_equal(s.n_blocks_used, 2);
    assert_int_equal(s.slots_allocated, 32);
    assert_int_equal(s.slots_filled, 20);
    assert_int_equal(s.waste_slots, 12);
    assert_int_equal(s.waste_of_slots, 32);
    assert_int_equal(s.step_ns, 5);
    assert_int_equal(s.n_step_tokens, 20);
    assert_int_equal(s.n_prompt_tokens, 20);
    assert_int_equal(s.n_generated_tokens, 1);
    qr_engine_free(&e);
    assert_int_equal(f.n_open, 0);
}

QR_TEST(engine_opens_a_resumed_sequence_with_all_its_tokens)
{
    struct fake f;
    struct qr_clock_virtual clock;
    struct qr_engine *e = open_engine(&f, &clock);
    struct qr_snapshot s;
    qr_log_set_level(QR_LOG_WARN);
    submit(e, 30, 60);
    submit(e, 15, 60);
    do {
        assert_int_equal(qr_engine_step(e), QR_OK);
        qr_engine_snapshot(e, &s);
    } while (s.n_preemptions == 0);
    assert_int_equal(f.n_ids_at_open, 15);
    while (s.n_running + s.n_waiting == 2) {
        assert_int_equal(qr_engine_step(e), QR_OK);
        for (struct qr_event ev; qr_engine_poll(e, &ev);)
            assert_true(ev.kind == QR_EVENT_FINISH || ev.token == ev.pos + 99);
        qr_engine_snapshot(e, &s);
    }
    assert_int_equal(qr_engine_step(e), QR_OK);
    assert_true(f.n_ids_at_open > 15); // prompt and what it had generated
    qr_engine_free(&e);
    qr_log_set_level(QR_LOG_INFO);
}

QR_TEST(engine_shows_blocks_and_tables_while_somebody_asks)
{
    struct fake f;
    struct qr_clock_virtual clock;
    struct qr_engine *e = open_engine(&f, &clock);
    struct qr_inspect *p = qr_engine_inspect(e); // the first question: nothing was seen yet
    assert_non_null(p);
    assert_int_equal(p->n_seqs, 0);
    qr_free(p);
    qr_req_id a = submit(e, 20, 30), b = submit(e, 10, 30), c = submit(e, 5, 30);
    assert_int_equal(qr_engine_step(e), QR_OK);
    p = qr_engine_inspect(e);
    assert_non_null(p);
    assert_int_equal(p->n_seqs, 3); // two slots: a and b run, c waits
    assert_int_equal(p->seqs[0].id, a);
    assert_int_equal(p->seqs[0].n_computed, 20);
    assert_int_equal(p->seqs[0].n_ids, 21);
    assert_int_equal(p->seqs[0].n_blocks, 2);
    assert_int_equal(p->seqs[1].id, b);
    assert_int_equal(p->seqs[2].id, c);
    assert_false(p->seqs[2].running);
    assert_int_equal(p->seqs[2].n_blocks, 0);
    assert_int_equal(p->n_states, 3);
    uint32_t n_used = 0;
    for (uint32_t i = 0; i < p->n_states; i++) n_used += p->states[i] == '1';
    assert_int_equal(n_used, 3);
    for (uint32_t i = 0; i < p->n_tables; i++) assert_int_equal(p->states[p->tables[i]], '1');
    assert_int_equal(p->snapshot.n_requests, 3);
    qr_free(p);
    qr_engine_free(&e);
}

QR_TEST(engine_shows_itself_to_another_thread_when_idle)
{
    struct fake f;
    struct qr_engine *e = NULL;
    f = (struct fake){.face = {&fake_ops}};
    struct qr_engine_conf c = {.max_num_seqs = 2,
                               .max_num_batched_tokens = 32,
                               .max_model_len = 96,
                               .inbox_capacity = 8,
                               .outbox_capacity = 64,
                               .clock = qr_clock_wall(),
                               .check_every_step = true};
    assert_int_equal(qr_engine_new(&c, &f.face, &e, NULL), QR_OK);
    assert_int_equal(qr_engine_start(e), QR_OK);
    for (int i = 0; i < 3; i++) {
        struct qr_inspect *p = qr_engine_inspect(e);
        assert_non_null(p);
        assert_true(p->now_ns > 0);
        assert_int_equal(p->n_seqs, 0);
        qr_free(p);
    }
    qr_engine_free(&e);
}

QR_TEST(engine_gives_the_pool_back_when_it_was_idle_for_long)
{
    struct fake f;
    struct qr_clock_virtual clock;
    struct qr_engine *e = open_engine(&f, &clock);
    struct qr_snapshot s;
    for (int round = 1; round <= 2; round++) {
        submit(e, 20, 1);
        assert_int_equal(qr_engine_step(e), QR_OK);
        (void)next(e);
        (void)next(e);
        assert_int_equal(qr_engine_step(e), QR_AGAIN); // from here on it is idle
        clock.ns += 4000;
        assert_int_equal(qr_engine_step(e), QR_AGAIN);
        assert_int_equal(f.n_trims, round - 1);
        clock.ns += 2000;
        assert_int_equal(qr_engine_step(e), QR_AGAIN);
        assert_int_equal(f.n_trims, round);
        clock.ns += 60000;
        assert_int_equal(qr_engine_step(e), QR_AGAIN); // once is enough
        assert_int_equal(f.n_trims, round);
        qr_engine_snapshot(e, &s);
        assert_int_equal(s.n_blocks_free, s.n_blocks);
    }
    qr_engine_free(&e);
}
