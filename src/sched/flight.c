/* Blocks on their way to or from the file. Both ends of a block's I/O are pinned until it is done (K7): a request
 * that is cancelled or preempted meanwhile leaves at once, and its blocks when they may. */
#include "base/assert.h"
#include "base/mem.h"
#include "sched/sched_internal.h"

enum qr_status sched_flight_new(struct qr_sched *s)
{
    size_t n = s->conf.n_slots[QR_TIER_FILE] + s->conf.n_prefix[QR_TIER_FILE];
    QR_ASSERT(n == 0 || s->conf.layout == QR_KV_PAGED); // other layouts pin no single blocks
    s->ios = qr_calloc(QR_MEM_SCHED, n + 1, sizeof *s->ios);
    s->flight = qr_malloc(QR_MEM_SCHED, (n + 1) * sizeof *s->flight);
    s->io_orders = qr_malloc(QR_MEM_SCHED, (n + 1) * sizeof *s->io_orders);
    if (!s->ios || !s->flight || !s->io_orders) return QR_ENOMEM;
    return qr_kv_tier_new(s->conf.n_staging, s->conf.n_blocks, &s->staging);
}

void sched_flight_free(struct qr_sched *s)
{
    // Tables check nothing when they are freed, so pins may be left as they are.
    qr_kv_tier_free(&s->staging);
    qr_free(s->ios);
    qr_free(s->flight);
    qr_free(s->io_orders);
}

void sched_io_start(struct qr_sched *s, struct qr_sched_req *r, const struct qr_io *io)
{
    s->ios[io->file] = (struct sched_io){.owner = r, .io = *io, .at = s->n_flight};
    s->flight[s->n_flight++] = io->file;
    s->io_orders[s->n_io_orders++] = *io;
    if (r) r->n_io++;
    if (sched_spill_owns_file(s, io->file))
        sched_spill_pin(s, io);
    else
        qr_kv_tier_ref(s->tiers[QR_TIER_FILE], io->file);
    if (io->kind == QR_IO_WRITE) return; // a staging slot is nobody else's
    qr_kv_pool_ref(s->pool, io->mem);
    s->n_reads++;
}

bool sched_io_is_busy(const struct qr_sched *s, uint32_t file)
{
    uint32_t at = s->ios[file].at;
    return at < s->n_flight && s->flight[at] == file;
}

// The I/O is over, or never began.
static void unpin(struct qr_sched *s, uint32_t file, bool arrived)
{
    struct sched_io *i = &s->ios[file];
    uint32_t last = s->flight[--s->n_flight];
    QR_ASSERT(i->at <= s->n_flight && s->ios[last].at == s->n_flight);
    s->flight[i->at] = last;
    s->ios[last].at = i->at;
    if (sched_spill_owns_file(s, file))
        sched_spill_unpin(s, &i->io, arrived);
    else
        qr_kv_tier_unref(s->tiers[QR_TIER_FILE], file);
    if (i->io.kind == QR_IO_WRITE) {
        if (!sched_spill_owns_mem(s, i->io.mem))
            qr_kv_tier_unref(s->staging, i->io.mem - s->conf.n_slots[QR_TIER_RAM]);
    } else {
        qr_kv_pool_unref(s->pool, i->io.mem);
        s->n_reads--;
    }
}

void sched_io_revoke_writes(struct qr_sched *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_io_orders; i++) {
        struct qr_io io = s->io_orders[i];
        if (io.kind == QR_IO_READ) {
            s->io_orders[n++] = io;
            continue;
        }
        if (s->ios[io.file].owner) s->ios[io.file].owner->n_io--;
        unpin(s, io.file, false);
    }
    s->n_io_orders = n;
}

void sched_io_disown(struct qr_sched *s, const struct qr_sched_req *r)
{
    for (uint32_t i = 0; i < s->n_flight; i++)
        if (s->ios[s->flight[i]].owner == r) s->ios[s->flight[i]].owner = NULL;
}

bool sched_frees_soon(const struct qr_sched *s)
{
    for (uint32_t i = 0; i < s->n_flight; i++) {
        const struct sched_io *f = &s->ios[s->flight[i]];
        if (f->io.kind == QR_IO_READ && (!f->owner || !f->owner->loading)) return true;
    }
    return false;
}

int32_t qr_sched_io(struct qr_sched *s, const struct qr_io **out)
{
    int32_t n = (int32_t)s->n_io_orders;
    *out = s->io_orders;
    s->n_io_orders = 0;
    return n;
}

// What it had is gone, and is computed again.
static void lose(struct qr_sched *s, struct qr_sched_req *r)
{
    const struct qr_seq *lead = qr_sched_req_leader(r);
    for (int32_t i = 0; i < r->req->n_choices; i++) {
        const struct qr_seq *q = &r->seqs[i];
        int32_t shared = q == lead || !r->forked ? 0 : r->req->n_prompt;
        if (q->n_computed > shared) s->counts.n_lost += (uint64_t)(q->n_computed - shared);
    }
    r->found = (struct qr_sched_found){0};
    sched_drop_saved(s, r);
}

uint64_t qr_sched_lost_tokens(const struct qr_sched *s)
{
    return s->counts.n_lost;
}

void qr_sched_io_done(struct qr_sched *s, const struct qr_io_done *done)
{
    struct sched_io *i = &s->ios[done->io.file];
    struct qr_sched_req *r = i->owner;
    QR_ASSERT(i->io.kind == done->io.kind && i->io.mem == done->io.mem);
    unpin(s, done->io.file, done->status == QR_OK);
    if (sched_spill_owns_file(s, done->io.file))
        ; // counted as hits
    else if (done->status == QR_OK && done->io.kind == QR_IO_WRITE)
        s->counts.n_blocks_out[QR_TIER_FILE]++;
    else if (done->status == QR_OK)
        s->counts.n_blocks_in[QR_TIER_FILE]++;
    if (!r) return;
    r->n_io--;
    if (done->status != QR_OK) r->io_failed = true;
    if (r->n_io > 0 || r->loading || !r->io_failed) return;
    lose(s, r); // it waits
}

int32_t qr_sched_io_in_flight(const struct qr_sched *s)
{
    return (int32_t)s->n_flight;
}

bool qr_sched_io_is_in_flight(const struct qr_sched *s, const struct qr_io *io)
{
    if (io->file >= s->conf.n_slots[QR_TIER_FILE] + s->conf.n_prefix[QR_TIER_FILE] || !sched_io_is_busy(s, io->file)) return false;
    const struct qr_io *known = &s->ios[io->file].io;
    return known->kind == io->kind && known->mem == io->mem;
}

// Its blocks did not all arrive: it keeps its slots and computes its tokens again.
static void start_over(struct qr_sched *s, struct qr_sched_req *r)
{
    for (int32_t i = 0; i < r->req->n_choices; i++)
        if (r->seqs[i].slot >= 0) qr_kv_table_drop(s->tables, r->seqs[i].slot);
    lose(s, r);
    r->loading = false;
    r->forked = r->n_live == 1;
    sched_fork(s, r);
}

void sched_land(struct qr_sched *s)
{
    for (int32_t i = s->n_running - 1; i >= 0; i--) {
        struct qr_sched_req *r = s->running[i];
        if (!r->loading || r->n_io > 0) continue;
        if (r->io_failed) {
            start_over(s, r);
            continue;
        }
        r->loading = false;
        if (r->n_live == 1) r->forked = true;
        sched_forget_saved(s, r);
        if (r->found.n_tokens > 0) sched_count_found(s, r);
    }
}

void sched_check_flight(const struct qr_sched *s)
{
    uint32_t n_reads = 0;
    uint32_t n_staged = 0;
    QR_ASSERT(s->n_flight <= s->conf.n_slots[QR_TIER_FILE] + s->conf.n_prefix[QR_TIER_FILE]);
    for (uint32_t i = 0; i < s->n_flight; i++) {
        const struct sched_io *f = &s->ios[s->flight[i]];
        QR_ASSERT(f->at == i && f->io.file == s->flight[i] && (!f->owner || f->owner->n_io > 0));
        if (f->io.kind == QR_IO_READ) QR_ASSERT(qr_kv_pool_refs(s->pool, f->io.mem) > 0);
        n_reads += f->io.kind == QR_IO_READ;
        n_staged += f->io.kind == QR_IO_WRITE && !sched_spill_owns_mem(s, f->io.mem);
    }
    QR_ASSERT(n_reads == s->n_reads);
    qr_kv_tier_check(s->staging);
    QR_ASSERT(qr_kv_tier_ref_sum(s->staging) == n_staged);
}
