#include "sim/replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kv/store.h"
#include "sched/policy.h"
#include "sim/replay_internal.h"

#define TIME_MAX ((uint64_t)1 << 62) // ns: sums of two stay within 64 bits

/* ==== Lines. ==== */

// What is wrong, of what *err says already, is wrong in this line.
static enum qr_status in_line(struct replay *p, enum qr_status st)
{
    char where[4200];
    snprintf(where, sizeof where, "%.4096s:%ld", p->conf->path, p->lines.n);
    return qr_fail_in(p->err, st, where);
}

enum qr_status replay_bad(struct replay *p, const char *want)
{
    return in_line(p, qr_fail(p->err, QR_EFORMAT, "expected %s, got \"%.40s\"", want, p->lines.line));
}

// Reads up to `max` numbers behind the letter; a negative one, as a priority may be, is its two's complement. False:
// something is no number.
static bool read_numbers(struct replay *p, int max)
{
    const char *s = p->lines.line + (p->lines.len > 0);
    for (p->n = 0; *s == ' ' && p->n < max; p->n++) {
        const char *digit = s + 1 + (s[1] == '-');
        if (*digit < '0' || *digit > '9') break;
        char *end;
        p->v[p->n] = strtoull(s + 1, &end, 10);
        s = end;
    }
    p->rest = s;
    return *s == ' ' || *s == 0;
}

// Just n numbers, and nothing behind them.
static bool numbers(struct replay *p, int n)
{
    return read_numbers(p, n) && p->n == n && *p->rest == 0;
}

static enum qr_status differs(struct replay *p, const char *what, uint64_t recorded, uint64_t came)
{
    p->out->differs = true;
    snprintf(p->out->why, sizeof p->out->why, "%.120s:%ld: step %" PRIu64 ": %s: recorded %" PRIu64 ", replayed %" PRIu64,
             p->conf->path, p->lines.n, p->out->n_steps + 1, what, recorded, came);
    return QR_OK;
}

/* ==== Chrome's trace: an array of events, times in microseconds. ==== */

static void put_event(struct replay *p, const char *fmt, ...) QR_PRINTF(2, 3);
static void put_event(struct replay *p, const char *fmt, ...)
{
    va_list args;
    if (!p->conf->chrome) return;
    fputs(p->any_event ? ",\n" : "[\n", p->conf->chrome);
    p->any_event = true;
    va_start(args, fmt);
    vfprintf(p->conf->chrome, fmt, args);
    va_end(args);
}

static void put_span(struct replay *p, const struct replay_live *l, const char *name, uint64_t from, uint64_t to)
{
    if (from == 0 || to < from) return;
    put_event(p, "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"X\",\"pid\":2,\"tid\":%" PRIu64 ",\"ts\":%.3f,\"dur\":%.3f,"
                 "\"args\":{\"prompt_tokens\":%d,\"output_tokens\":%d,\"preemptions\":%d}}",
              name, l->r->id, (double)from * 1e-3, (double)(to - from) * 1e-3, l->times.n_prompt, l->times.n_output,
              l->times.n_preemptions);
}

static void put_step(struct replay *p, const struct qr_batch *b, uint64_t elapsed_ns)
{
    struct qr_snapshot s = {0};
    if (!p->conf->chrome) return;
    qr_sched_snapshot(p->s, &s);
    put_event(p, "{\"name\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%" PRIu64
                 ",\"sequences\":%d,\"tokens\":%d,\"copies\":%d}}",
              (double)p->now_ns * 1e-3, (double)elapsed_ns * 1e-3, b->step, b->n_seqs, b->n_tokens, b->n_copies);
    put_event(p, "{\"name\":\"blocks\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"used\":%u,\"cached\":%u}}",
              (double)p->now_ns * 1e-3, s.n_blocks_used, s.n_blocks_cached);
    put_event(p, "{\"name\":\"requests\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"running\":%d,\"waiting\":%d}}",
              (double)p->now_ns * 1e-3, s.n_running, s.n_waiting);
}

/* ==== Requests. ==== */

static struct replay_live **find(struct replay *p, uint64_t id)
{
    struct replay_live **l = &p->table[id % REPLAY_BUCKETS];
    while (*l && (*l)->r->id != id) l = &(*l)->chain;
    return l;
}

static void free_live(struct replay_live *l)
{
    if (!l) return;
    qr_sched_req_free(&l->r);
    qr_free(l->last_ns);
    qr_free(l);
}

// Room for one more of an array that grows.
static enum qr_status more(struct replay *p, void **array, size_t n, size_t *cap, size_t bytes)
{
    if (n < *cap) return QR_OK;
    size_t wider = *cap ? *cap * 2 : 256;
    void *v = qr_realloc(QR_MEM_MISC, *array, wider * bytes);
    if (!v) return qr_fail(p->err, QR_ENOMEM, "no memory for %zu records", wider);
    *array = v;
    *cap = wider;
    return QR_OK;
}

static enum qr_status keep_record(struct replay *p, struct replay_live *l)
{
    struct qr_replay *o = p->out;
    void *records = o->recorded.records;
    enum qr_status st = more(p, &records, o->recorded.n_records, &o->records_cap, sizeof *o->recorded.records);
    o->recorded.records = records;
    if (st != QR_OK) return st;
    struct qr_sim_item *it = &o->workload.items[l->times.item];
    it->arrival_s = (double)l->drained_ns * 1e-9;
    l->times.seen_ns = l->drained_ns;
    it->n_output = l->times.n_output / l->r->req->n_choices > 0 ? l->times.n_output / l->r->req->n_choices : 1;
    o->recorded.records[o->recorded.n_records++] = l->times;
    return QR_OK;
}

static bool read_ids(const char *s, int32_t n, int32_t *ids)
{
    for (int32_t i = 0; i < n; i++) {
        char *end;
        if (*s != ' ') return false;
        long id = strtol(s + 1, &end, 10);
        if (end == s + 1 || id < 0 || id > INT32_MAX) return false;
        ids[i] = (int32_t)id;
        s = end;
    }
    return *s == 0;
}

static enum qr_status take_add(struct replay *p)
{
    const uint64_t *v = p->v;
    if (!read_numbers(p, 12) || p->n < 12 || v[1] < 1 || v[1] > INT32_MAX || v[2] > INT32_MAX || v[3] > QR_CHOICES_MAX || v[9] > 1 ||
        v[10] > 1 || (v[11] > 0 && v[11] != v[3]) || (v[11] > 0 && v[2] == 0))
        return replay_bad(p, "A with an id, lengths, and the ids of a prompt");
    int32_t *ids = qr_malloc(QR_MEM_MISC, v[1] * sizeof *ids);
    struct replay_live *l = qr_calloc(QR_MEM_MISC, 1, sizeof *l);
    enum qr_status st = ids && l ? QR_OK : qr_fail(p->err, QR_ENOMEM, "no memory for a prompt");
    if (st == QR_OK && (!read_ids(p->rest, (int32_t)v[1], ids) || *find(p, v[0])))
        st = replay_bad(p, "A with a new id and as many prompt ids as it says");
    struct qr_req q = {.prompt = ids,
                       .n_prompt = (int32_t)v[1],
                       .n_choices = (int32_t)v[3],
                       .priority = (int32_t)v[4],
                       .arrival_ns = v[5],
                       .deadline_ns = v[6],
                       .tenant = v[7],
                       .fair_key = v[8],
                       .no_cache_read = v[9],
                       .beam = {.width = (int32_t)v[11], .length_penalty = 1},
                       .sampling = {.max_tokens = (int32_t)v[2], .n_logprobs = -1, .n_prompt_logprobs = v[10] ? 0 : -1}};
    if (st == QR_OK && qr_sched_req_fits(&p->out->conf, &q, p->err) != QR_OK) st = in_line(p, QR_EFORMAT);
    if (st == QR_OK && (qr_sched_req_new(&q, v[0], &l->r) != QR_OK || qr_sched_req_reserve(l->r, &p->out->conf) != QR_OK ||
                        !(l->last_ns = qr_calloc(QR_MEM_MISC, (size_t)q.n_choices, sizeof *l->last_ns))))
        st = qr_fail(p->err, QR_ENOMEM, "no memory for a request of %d + %d tokens", q.n_prompt, q.sampling.max_tokens);
    qr_free(ids);
    if (st != QR_OK) {
        free_live(l);
        return st;
    }
    struct qr_replay *o = p->out;
    void *items = o->workload.items;
    st = more(p, &items, o->workload.n_items, &o->items_cap, sizeof *o->workload.items);
    o->workload.items = items;
    if (st != QR_OK) {
        free_live(l);
        return st;
    }
    l->times = (struct qr_sim_record){.item = (int64_t)o->workload.n_items, .arrival_ns = v[5], .n_prompt = q.n_prompt};
    o->workload.items[o->workload.n_items++] = // without an answer until it has ended
        (struct qr_sim_item){.n_prompt = q.n_prompt, .session = -1, .next = -1, .is_first = true};
    if (q.n_choices > p->out->n_choices_max) p->out->n_choices_max = q.n_choices;
    l->r->user = l;
    *find(p, v[0]) = l;
    l->next_new = p->news;
    p->news = l;
    p->paused |= qr_sched_idle(p->s);
    qr_sched_add(p->s, l->r);
    return QR_OK;
}

// The live sequence that a T or E line names; NULL: there is none.
static struct qr_seq *named(struct replay *p, struct replay_live **l)
{
    if (!numbers(p, 3)) return NULL;
    *l = *find(p, p->v[0]);
    if (!*l || p->v[1] >= (uint64_t)(*l)->r->req->n_choices) return NULL;
    struct qr_seq *q = &(*l)->r->seqs[p->v[1]];
    return q->done ? NULL : q;
}

static enum qr_status take_token(struct replay *p)
{
    struct replay_live *l = NULL;
    struct qr_seq *q = named(p, &l);
    if (!q || p->v[2] > INT32_MAX) return replay_bad(p, "T with a live request, a choice and a token");
    if (l->r->req->beam.width > 0 && l->n_moved != p->out->n_steps) return replay_bad(p, "V before the tokens of beams");
    if (q->n_computed != q->n_ids || q->n_ids - l->r->req->n_prompt >= l->r->req->sampling.max_tokens)
        return differs(p, "a token was drawn for a sequence that has computed", (uint64_t)q->n_ids, (uint64_t)q->n_computed);
    qr_sched_append(l->r, q, (int32_t)p->v[2]);
    replay_settle(p, l);
    uint64_t *last = &l->last_ns[q->choice];
    if (*last) p->out->recorded.itl[qr_sim_itl_bucket(p->end_ns - *last)]++;
    *last = p->end_ns;
    if (l->times.first_ns == 0) l->times.first_ns = p->end_ns;
    l->times.n_output++;
    p->out->n_tokens++;
    return QR_OK;
}

static enum qr_status take_import(struct replay *p)
{
    size_t bytes = qr_kv_tag_bytes(p->out->conf.block_size);
    if (!read_numbers(p, 1) || p->n != 1 || *p->rest != ' ' || strlen(p->rest + 1) != 2 * bytes ||
        strspn(p->rest + 1, "0123456789abcdef") != 2 * bytes || p->v[0] >= p->out->conf.n_prefix[QR_TIER_FILE])
        return replay_bad(p, "U with a slot of the file and a tag in hexadecimal");
    uint64_t *tag = qr_malloc(QR_MEM_MISC, bytes + sizeof *tag); // aligned for any record
    if (!tag) return qr_fail(p->err, QR_ENOMEM, "no memory for a tag");
    for (size_t i = 0; i < bytes; i++) {
        char two[3] = {p->rest[1 + 2 * i], p->rest[2 + 2 * i], 0};
        ((unsigned char *)tag)[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    (void)qr_sched_import(p->s, (uint32_t)p->v[0], tag);
    qr_free(tag);
    return QR_OK;
}

static enum qr_status take_beams(struct replay *p)
{
    struct qr_beam_move moves[QR_CHOICES_MAX];
    if (!read_numbers(p, REPLAY_NUMBERS_MAX) || *p->rest || p->n < 2 || p->v[1] > QR_CHOICES_MAX ||
        (uint64_t)p->n != 2 + 2 * p->v[1] || !*find(p, p->v[0]))
        return replay_bad(p, "V with a live request and pairs of choices");
    struct replay_live *l = *find(p, p->v[0]);
    uint64_t n = p->v[1], n_choices = (uint64_t)l->r->req->n_choices;
    for (uint64_t i = 0; i < n; i++) {
        if (p->v[2 + 2 * i] >= n_choices || p->v[3 + 2 * i] >= n_choices) return replay_bad(p, "choices of the request");
        moves[i] = (struct qr_beam_move){(int32_t)p->v[2 + 2 * i], (int32_t)p->v[3 + 2 * i]};
    }
    if (!replay_moves_are_sane(l->r, moves, (int32_t)n)) return replay_bad(p, "moves of beams that have computed all they know");
    qr_sched_move_beams(p->s, l->r, moves, (int32_t)n);
    l->n_moved = p->out->n_steps;
    replay_settle(p, l);
    return QR_OK;
}

static enum qr_status take_scored(struct replay *p)
{
    struct replay_live *l = numbers(p, 2) ? *find(p, p->v[0]) : NULL;
    if (!l || p->v[1] > (uint64_t)l->r->req->n_prompt) return replay_bad(p, "Q with a live request and a position of its prompt");
    l->r->n_scored = (int32_t)p->v[1];
    return QR_OK;
}

static enum qr_status take_end(struct replay *p)
{
    struct replay_live *l = NULL;
    struct qr_seq *q = named(p, &l);
    bool is_count = q && (p->v[2] == 0 || (p->v[2] >= (uint64_t)l->r->req->n_prompt && p->v[2] <= (uint64_t)q->n_ids));
    if (!is_count) return replay_bad(p, "E with a live request, a choice and a count");
    q->n_kept = (int32_t)p->v[2];
    (void)qr_sched_end(p->s, l->r, q->choice);
    if (l->r->n_live > 0) return replay_settle(p, l), QR_OK;
    p->n_owing -= l->owes;
    l->times.scheduled_ns = l->r->scheduled_ns;
    l->times.n_preemptions = l->r->n_preemptions;
    l->times.n_cached = l->r->n_cached;
    l->times.finish_ns = p->end_ns;
    put_span(p, l, "queued", l->times.arrival_ns, l->times.scheduled_ns);
    put_span(p, l, "prefill", l->times.scheduled_ns, l->times.first_ns);
    put_span(p, l, "decode", l->times.first_ns, l->times.finish_ns);
    enum qr_status st = l->times.first_ns ? keep_record(p, l) : QR_OK;
    for (struct replay_live **n = &p->news; *n; n = &(*n)->next_new)
        if (*n == l) {
            *n = l->next_new;
            break;
        }
    struct replay_live **at = find(p, l->r->id);
    *at = l->chain;
    free_live(l);
    return st;
}

/* ==== Steps. ==== */

static enum qr_status take_plan(struct replay *p)
{
    if (!numbers(p, 2) || p->v[1] < 1 || p->v[1] > (uint64_t)p->out->conf.max_num_batched_tokens)
        return replay_bad(p, "P with a time and a budget");
    bool is_late = p->v[0] >= p->now_ns && p->v[0] <= TIME_MAX;
    for (const struct replay_live *l = p->news; l && is_late; l = l->next_new) is_late = l->times.arrival_ns <= p->v[0];
    if (!is_late) return replay_bad(p, "P no earlier than the plan before and the requests that it sees");
    if (qr_sched_idle(p->s)) return differs(p, "a plan is made with requests", 1, 0);
    if (p->out->n_step_ns > 0 && !p->paused && p->v[0] > p->now_ns) p->out->step_ns[p->out->n_step_ns - 1] = p->v[0] - p->now_ns;
    p->now_ns = p->end_ns = p->v[0];
    // Simulated, work that begins after a pause begins as early as its first request: those that come later must not
    // miss their step by that, nor by rounding.
    uint64_t early = p->paused ? 1000 : 5000;
    p->paused = false;
    for (; p->news; p->news = p->news->next_new) p->news->drained_ns = p->now_ns > early ? p->now_ns - early : 1;
    p->plan = qr_sched_plan(p->s, p->v[0], (int32_t)p->v[1]);
    p->phase = REPLAY_PLANNED;
    p->out->n_plans++;
    if (p->out->recorded.begin_ns == 0) p->out->recorded.begin_ns = p->now_ns;
    return QR_OK;
}

static enum qr_status take_orders(struct replay *p)
{
    if (!numbers(p, 2)) return replay_bad(p, "O behind P, with a count and a hash");
    p->phase = REPLAY_ORDERED;
    if ((uint64_t)p->plan->n_orders != p->v[0]) return differs(p, "orders about slots", p->v[0], (uint64_t)p->plan->n_orders);
    uint64_t h = qr_trace_orders_hash(p->plan);
    return h == p->v[1] ? QR_OK : differs(p, "the orders' hash", p->v[1], h);
}

static enum qr_status take_batch(struct replay *p)
{
    if (!numbers(p, 5)) return replay_bad(p, "B behind O, with five numbers");
    const struct qr_batch *b = p->batch = qr_sched_batch(p->s);
    p->phase = b ? REPLAY_BATCHED : REPLAY_OVER;
    static const char *const what[] = {"the batch's number", "its sequences", "its tokens", "its copies", "its hash"};
    uint64_t came[5] = {0};
    if (b) {
        came[0] = b->step, came[1] = (uint64_t)b->n_seqs, came[2] = (uint64_t)b->n_tokens;
        came[3] = (uint64_t)b->n_copies, came[4] = qr_trace_batch_hash(b);
    }
    for (int i = 0; i < 5; i++)
        if (came[i] != p->v[i]) return differs(p, what[i], p->v[i], came[i]);
    if (p->conf->check_every && p->out->n_steps % p->conf->check_every == 0) qr_sched_check(p->s);
    return QR_OK;
}

static enum qr_status take_computed(struct replay *p)
{
    struct qr_replay *o = p->out;
    if (!numbers(p, 1) || p->v[0] > TIME_MAX) return replay_bad(p, "D behind B, with a time");
    int32_t n_grants = p->plan->n_grants;
    void *steps = o->step_ns;
    enum qr_status st = more(p, &steps, o->n_step_ns, &o->steps_cap, sizeof *o->step_ns);
    o->step_ns = steps;
    if (st != QR_OK) return st;
    o->step_ns[o->n_step_ns++] = p->v[0];
    p->computed_ns += p->v[0];
    put_step(p, p->batch, p->v[0]);
    bool cycle = p->conf->cycle_ns && o->n_step_ns <= p->conf->n_cycles;
    p->end_ns = p->now_ns + (cycle ? p->conf->cycle_ns[o->n_step_ns - 1] : p->v[0]);
    o->recorded.end_ns = p->end_ns;
    qr_sched_computed(p->s);
    o->n_steps++;
    p->phase = REPLAY_COMPUTED;
    for (int32_t i = 0; i < n_grants; i++) replay_settle(p, p->plan->grants[i].r->user);
    return QR_OK;
}

// A step that was computed elsewhere failed, or cached blocks could not be copied.
static enum qr_status take_failed(struct replay *p)
{
    bool is_step = p->phase == REPLAY_BATCHED;
    int32_t n_grants = is_step ? p->plan->n_grants : 0;
    qr_sched_failed(p->s);
    p->phase = is_step ? REPLAY_FAILED : REPLAY_OVER;
    for (int32_t i = 0; i < n_grants; i++) {
        struct replay_live *l = p->plan->grants[i].r->user;
        l->must_end = true;
        replay_settle(p, l);
    }
    return QR_OK;
}

static enum qr_status take_costs(struct replay *p)
{
    const uint64_t *v = p->v;
    if (p->lines.line[0] == 'S') {
        if (!numbers(p, 9) || !replay_costs_are_sane(v + 1, 7)) return replay_bad(p, "S with nine numbers");
        struct qr_costs c = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
        qr_sched_set_budget(p->s, &c, v[8]);
        p->out->has_budget |= v[8] > 0 && v[0] > 0;
        return QR_OK;
    }
    if (!numbers(p, 1 + QR_TIERS) || !replay_costs_are_sane(v, 1 + QR_TIERS)) return replay_bad(p, "X with a number for each tier");
    struct qr_preempt_costs c = {.token_ns = v[0]};
    for (int t = 0; t < QR_TIERS; t++) c.block_ns[t] = v[1 + t];
    qr_sched_set_costs(p->s, &c);
    return QR_OK;
}

static enum qr_status take_io_started(struct replay *p)
{
    const struct qr_io *io;
    if (!numbers(p, 1)) return replay_bad(p, "J with a count");
    int32_t n = qr_sched_io(p->s, &io);
    p->phase = REPLAY_BETWEEN;
    return (uint64_t)n == p->v[0] ? QR_OK : differs(p, "blocks to read or write", p->v[0], (uint64_t)n);
}

static enum qr_status take_io_done(struct replay *p)
{
    const uint64_t *v = p->v;
    bool ok = numbers(p, 4) && v[0] <= QR_IO_READ && v[1] <= UINT32_MAX && v[2] <= UINT32_MAX && v[3] <= 1;
    struct qr_io_done d = {.io = {(enum qr_io_kind)v[0], (uint32_t)v[1], (uint32_t)v[2], NULL}, .status = v[3] ? QR_EIO : QR_OK};
    if (!ok || !qr_sched_io_is_in_flight(p->s, &d.io)) return replay_bad(p, "I with four numbers, of I/O that is in flight");
    qr_sched_io_done(p->s, &d);
    return QR_OK;
}

static enum qr_status take_flush(struct replay *p)
{
    if (!numbers(p, 1)) return replay_bad(p, "W with a number");
    (void)qr_sched_flush(p->s);
    const struct qr_batch *b = qr_sched_batch(p->s);
    p->phase = b ? REPLAY_FLUSHING : REPLAY_OVER;
    uint64_t came = b ? (uint64_t)b->n_copies : 0;
    return came == p->v[0] ? QR_OK : differs(p, "blocks for the file", p->v[0], came);
}

static enum qr_status take_trim(struct replay *p)
{
    if (!numbers(p, 1) || p->v[0] > 1) return replay_bad(p, "M with 0 or 1");
    bool trimmed = qr_sched_trim(p->s);
    return trimmed == (p->v[0] != 0) ? QR_OK : differs(p, "the pool is given back", p->v[0], trimmed);
}

/* ==== The whole. ==== */

static enum qr_status take_conf(struct replay *p)
{
    if (p->s) return replay_bad(p, "one C line");
    if (!read_numbers(p, QR_TRACE_CONF_NUMBERS) || p->n != QR_TRACE_CONF_NUMBERS || *p->rest != ' ')
        return replay_bad(p, "C with the scheduler's numbers and a policy");
    qr_trace_conf_unpack(p->v, &p->out->conf);
    p->out->conf.policy = qr_policy_find(p->rest + 1);
    if (!p->out->conf.policy || !replay_conf_is_sane(p->v, &p->out->conf)) return replay_bad(p, "a configuration that can be");
    return qr_sched_new(&p->out->conf, &p->s) == QR_OK ? QR_OK : qr_fail(p->err, QR_ENOMEM, "no memory for the scheduler");
}

// Lines of a letter alone.
static enum qr_status take_word(struct replay *p, char letter)
{
    if (p->lines.len != 1) return replay_bad(p, "this letter alone");
    if (letter == 'F') return take_failed(p);
    if (letter == 'R') return qr_sched_reset_prefix(p->s), QR_OK;
    qr_sched_flushed(p->s);
    p->phase = REPLAY_OVER;
    return QR_OK;
}

static enum qr_status take_line(struct replay *p)
{
    char letter = p->lines.line[0];
    if (letter == 'C') return take_conf(p);
    if (!p->s) return replay_bad(p, "a C line before all others");
    enum qr_status st = replay_enter(p, letter);
    if (st != QR_OK) return st;
    switch (letter) {
    case 'A': return take_add(p);
    case 'T': return take_token(p);
    case 'U': return take_import(p);
    case 'V': return take_beams(p);
    case 'Q': return take_scored(p);
    case 'E': return take_end(p);
    case 'P': return take_plan(p);
    case 'O': return take_orders(p);
    case 'B': return take_batch(p);
    case 'D': return take_computed(p);
    case 'S':
    case 'X': return take_costs(p);
    case 'J': return take_io_started(p);
    case 'I': return take_io_done(p);
    case 'W': return take_flush(p);
    case 'M': return take_trim(p);
    default: return take_word(p, letter);
    }
}

static enum qr_status read_all(struct replay *p)
{
    enum qr_status st = qr_lines_next(&p->lines, p->err);
    if (st == QR_AGAIN || (st == QR_OK && strcmp(p->lines.line, QR_TRACE_HEAD) != 0))
        return qr_fail(p->err, QR_EFORMAT,
                       "%.150s:1: expected \"" QR_TRACE_HEAD "\": a file that this version's quire serve --trace-file wrote",
                       p->conf->path);
    while (st == QR_OK && !p->out->differs) {
        st = qr_lines_next(&p->lines, p->err);
        if (st == QR_OK && p->lines.is_cut) {
            p->out->cut_line = (uint64_t)p->lines.n;
            return QR_OK;
        }
        if (st == QR_OK) st = take_line(p);
        p->out->n_lines++;
    }
    if (st == QR_AGAIN && !p->s)
        return qr_fail_in(p->err, qr_fail(p->err, QR_EFORMAT, "the record ends behind its first line: expected a C line, as quire serve "
                                                              "writes at its start"), p->conf->path);
    return st == QR_AGAIN ? QR_OK : st;
}

static void drop_unanswered(struct qr_sim_workload *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_items; i++)
        if (w->items[i].n_output > 0) w->items[n++] = w->items[i];
    w->n_items = n;
}

enum qr_status qr_replay_run(const struct qr_replay_conf *conf, struct qr_replay *out, struct qr_error *err)
{
    *out = (struct qr_replay){.n_choices_max = 1};
    struct replay *p = qr_calloc(QR_MEM_MISC, 1, sizeof *p);
    if (!p) return qr_fail(err, QR_ENOMEM, "no memory for a replay");
    p->conf = conf;
    p->out = out;
    p->err = err;
    enum qr_status st = qr_lines_open(conf->path, &p->lines, err);
    if (st == QR_OK) {
        st = read_all(p);
        qr_lines_close(&p->lines);
    }
    if (p->s) qr_sched_snapshot(p->s, &out->recorded.end);
    out->recorded.recorded = true;
    out->recorded.end.step_ns = p->computed_ns;
    drop_unanswered(&out->workload);
    if (conf->chrome) fputs(p->any_event ? "\n]\n" : "[]\n", conf->chrome);
    for (size_t i = 0; i < REPLAY_BUCKETS; i++)
        for (struct replay_live *l = p->table[i], *next; l; l = next) {
            next = l->chain;
            out->recorded.n_unfinished++;
            out->recorded.n_unfinished_tokens += (uint64_t)l->times.n_output;
            free_live(l);
        }
    qr_sched_free(&p->s);
    qr_free(p);
    if (st != QR_OK) qr_replay_free(out);
    return st;
}

void qr_replay_free(struct qr_replay *r)
{
    qr_sim_result_free(&r->recorded);
    qr_free(r->workload.items);
    qr_free(r->step_ns);
    *r = (struct qr_replay){0};
}
