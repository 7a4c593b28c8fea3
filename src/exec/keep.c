#include "exec/keep.h"

#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

#define PAGE ((size_t)4096)

static const char magic[16] = "quire prefix 1\n";

struct head {
    char magic[16];
    uint64_t identity[2], key[2];
    uint64_t n_slots, block_bytes, tag_bytes;
    uint64_t sum; // of all before
};

struct record { // a slot that holds nothing is zero
    uint64_t block_sum;
    uint64_t sum; // of the slot's number, block_sum and tag
    uint8_t tag[];
};

static struct record *record_of(const struct keep *k, uint32_t slot)
{
    QR_ASSERT(slot < k->n_slots);
    return (struct record *)(k->records + slot * k->record_bytes);
}

static uint64_t sum_of(const struct keep *k, uint32_t slot, const struct record *r)
{
    return qr_hash_words(qr_mix64(slot ^ r->block_sum), r->tag, k->tag_bytes) | 1; // never 0
}

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

enum qr_status keep_init(struct keep *k, uint32_t n_slots, size_t block_bytes, size_t tag_bytes,
                         const uint64_t identity[2])
{
    *k = (struct keep){.n_slots = n_slots, .block_bytes = block_bytes, .tag_bytes = tag_bytes};
    k->record_bytes = (sizeof(struct record) + tag_bytes + 7) & ~(size_t)7;
    k->records_bytes = pages(n_slots * k->record_bytes);
    memcpy(k->identity, identity, sizeof k->identity);
    k->records = qr_pages_alloc(QR_MEM_EXEC, k->records_bytes);
    return k->records ? QR_OK : QR_ENOMEM;
}

void keep_fini(struct keep *k)
{
    if (k->records) qr_pages_free(QR_MEM_EXEC, k->records, k->records_bytes);
    *k = (struct keep){0};
}

size_t keep_head_bytes(const struct keep *k)
{
    return PAGE + k->records_bytes;
}

static void fill_head(const struct keep *k, struct head *h)
{
    memset(h, 0, sizeof *h);
    memcpy(h->magic, magic, sizeof magic);
    memcpy(h->identity, k->identity, sizeof h->identity);
    memcpy(h->key, k->key, sizeof h->key);
    h->n_slots = k->n_slots;
    h->block_bytes = k->block_bytes;
    h->tag_bytes = k->tag_bytes;
    h->sum = qr_hash_words(1, h, offsetof(struct head, sum));
}

static bool read_all(int fd, void *p, size_t n, off_t at)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)p + done, n - done, at + (off_t)done);
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static const char *judge(const struct keep *k, const struct head *h)
{
    if (memcmp(h->magic, magic, sizeof magic) != 0) return "it is no prefix cache";
    if (h->sum != qr_hash_words(1, h, offsetof(struct head, sum))) return "its head is damaged";
    if (memcmp(h->identity, k->identity, sizeof h->identity) != 0)
        return "it is of another model, build or kind of numbers";
    if (h->n_slots != k->n_slots || h->block_bytes != k->block_bytes || h->tag_bytes != k->tag_bytes)
        return "it is of another size";
    return NULL;
}

bool keep_read(struct keep *k, int fd, uint64_t file_bytes, uint64_t want_bytes, const char **why)
{
    struct head h;
    *why = NULL;
    k->n_found = 0;
    if (!read_all(fd, &h, sizeof h, 0)) *why = "it is cut short";
    if (!*why) *why = judge(k, &h);
    if (!*why && file_bytes < want_bytes) *why = "it is cut short";
    if (!*why && !read_all(fd, k->records, k->records_bytes, PAGE)) *why = "it cannot be read";
    if (*why) {
        memset(k->records, 0, k->records_bytes);
        return false;
    }
    memcpy(k->key, h.key, sizeof k->key);
    for (uint32_t i = 0; i < k->n_slots; i++) {
        struct record *r = record_of(k, i);
        if (r->sum != 0 && r->sum == sum_of(k, i, r))
            k->n_found++;
        else
            memset(r, 0, k->record_bytes);
    }
    return true;
}

enum qr_status keep_begin(struct keep *k, int fd)
{
    struct head h;
    if (getrandom(k->key, sizeof k->key, 0) != (ssize_t)sizeof k->key) return QR_EIO;
    fill_head(k, &h);
    // The old records first: a new head over them would make them good.
    if (ftruncate(fd, 0) != 0 || pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h) return QR_EIO;
    return QR_OK;
}

bool keep_is_ours(int fd)
{
    char head[sizeof magic];
    return pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head, magic, sizeof head) == 0;
}

const void *keep_tag(const struct keep *k, uint32_t slot)
{
    const struct record *r = record_of(k, slot);
    return r->sum ? r->tag : NULL;
}

uint64_t keep_sum(const struct keep *k, uint32_t slot)
{
    return record_of(k, slot)->block_sum;
}

void keep_note(struct keep *k, uint32_t slot, uint64_t sum, const void *tag, size_t *at, size_t *bytes)
{
    struct record *r = record_of(k, slot);
    r->block_sum = sum;
    memcpy(r->tag, tag, k->tag_bytes);
    r->sum = sum_of(k, slot, r);
    size_t from = slot * k->record_bytes / PAGE * PAGE, to = pages((slot + 1) * k->record_bytes);
    *at = PAGE + from;
    *bytes = to - from;
}
