/* Opening a GGUF file: one forward pass over header, keys and tensor directory, then checks across tensors.
 *
 *   +-------+---------+-----------+-------+----------+--------------+---------+------------------+
 *   | magic | version | n_tensors | n_kvs | kv pairs | tensor infos | padding | tensor data ...  |
 *   |  4 B  |  u32    |   u64     |  u64  |          |              |         | (each aligned)   |
 *   +-------+---------+-----------+-------+----------+--------------+---------+------------------+
 * A string is a u64 length and its bytes. A kv pair is a string, a u32 type and the value; an array value is
 * a u32 element type, a u64 count and the elements. A tensor info is a string, a u32 number of dimensions, as
 * many u64, a u32 type and a u64 offset from the start of the data. Everything is little-endian.
 *
 * Vectors grow with what was really read, so a file cannot claim its way to a large allocation. */
#include "fmt/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "fmt/gguf_internal.h"

#define KEY_BYTES_MAX 65535      // the format's own limit
#define NAME_BYTES_MAX 255       // of a tensor; the format's authors use at most 64
#define ALIGNMENT_MAX (1u << 20) // more would only be padding
#define KV_BYTES_MIN 13          // empty key, type, one byte
#define TENSOR_BYTES_MIN 32      // empty name, one dimension

struct cursor {
    const uint8_t *data;
    uint64_t bytes, at;
    struct qr_error *err;
};

// A name for a message: printable ASCII, at most 40 characters.
struct shown {
    char text[44];
};
static struct shown show(struct qr_gguf_str s)
{
    struct shown out;
    size_t n = s.bytes < 40 ? s.bytes : 40;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s.data[i];
        out.text[i] = c >= 0x20 && c < 0x7F ? (char)c : '?';
    }
    memcpy(out.text + n, s.bytes > 40 ? "..." : "", s.bytes > 40 ? 4 : 1);
    return out;
}

static enum qr_status fail_at(const struct cursor *c, uint64_t at, const char *what,
                              unsigned long long expected_max, unsigned long long got)
{
    return qr_fail(c->err, QR_EFORMAT, "GGUF byte %llu: %s: expected at most %llu, got %llu",
                   (unsigned long long)at, what, expected_max, got);
}

static uint64_t left(const struct cursor *c)
{
    return c->bytes - c->at;
}

static enum qr_status need(const struct cursor *c, uint64_t n, const char *what)
{
    if (n <= left(c)) return QR_OK;
    return qr_fail(c->err, QR_EFORMAT, "GGUF byte %llu: %s needs %llu bytes, the file has %llu more",
                   (unsigned long long)c->at, what, (unsigned long long)n, (unsigned long long)left(c));
}

static enum qr_status take_u32(struct cursor *c, const char *what, uint32_t *out)
{
    enum qr_status st = need(c, 4, what);
    if (st) return st;
    memcpy(out, c->data + c->at, 4);
    c->at += 4;
    return QR_OK;
}

static enum qr_status take_u64(struct cursor *c, const char *what, uint64_t *out)
{
    enum qr_status st = need(c, 8, what);
    if (st) return st;
    memcpy(out, c->data + c->at, 8);
    c->at += 8;
    return QR_OK;
}

static enum qr_status take_str(struct cursor *c, const char *what, uint64_t bytes_max,
                               struct qr_gguf_str *out)
{
    uint64_t n, at = c->at;
    enum qr_status st = take_u64(c, what, &n);
    if (st) return st;
    if (n > left(c)) return fail_at(c, at, what, left(c), n);
    if (n > bytes_max) return fail_at(c, at, what, bytes_max, n);
    *out = (struct qr_gguf_str){(const char *)c->data + c->at, (size_t)n};
    c->at += n;
    return QR_OK;
}

size_t gguf_scalar_bytes(uint32_t type)
{
    static const uint8_t bytes[QR_GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < QR_GGUF_TYPES ? bytes[type] : 0;
}

// Room for one more element in a vector that holds n; doubles at powers of two.
static bool grow(void **items, size_t n, size_t item_bytes)
{
    if (n != 0 && (n < 8 || (n & (n - 1)) != 0)) return true;
    void *p = qr_realloc(QR_MEM_MODEL, *items, (n < 8 ? 8 : n * 2) * item_bytes);
    if (!p) return false;
    *items = p;
    return true;
}

static enum qr_status no_memory(struct qr_error *err)
{
    return qr_fail(err, QR_ENOMEM, "GGUF: no memory for the directory");
}

// n strings follow. The first pass proves that they are there, so the table is never larger than twice their
// bytes.
static enum qr_status take_strs(struct cursor *c, uint64_t n, struct qr_gguf_kv *kv)
{
    struct cursor probe = *c;
    struct qr_gguf_str s;
    if (n > left(c) / 8) return fail_at(c, c->at, "strings of an array", left(c) / 8, n);
    for (uint64_t i = 0; i < n; i++) {
        enum qr_status st = take_str(&probe, "string of an array", UINT64_MAX, &s);
        if (st) return st;
    }
    struct qr_gguf_str *strs = qr_calloc(QR_MEM_MODEL, n ? n : 1, sizeof *strs);
    if (!strs) return no_memory(c->err);
    kv->strs = strs;
    for (uint64_t i = 0; i < n; i++) {
        enum qr_status st = take_str(c, "string of an array", UINT64_MAX, &strs[i]);
        if (st) return st;
    }
    return QR_OK;
}

static enum qr_status take_scalars(struct cursor *c, uint32_t type, uint64_t n, const struct qr_gguf_kv *kv)
{
    size_t each = gguf_scalar_bytes(type);
    if (each == 0) {
        return qr_fail(c->err, QR_EFORMAT,
                       "GGUF byte %llu: key %s: expected a value type of 0 to 12%s, got %u",
                       (unsigned long long)c->at, show(kv->key).text,
                       kv->type == QR_GGUF_ARR ? " and no array in an array" : "", type);
    }
    if (n > left(c) / each) return fail_at(c, c->at, "elements of a value", left(c) / each, n);
    if (type == QR_GGUF_BOOL) {
        for (uint64_t i = 0; i < n; i++)
            if (c->data[c->at + i] > 1) return fail_at(c, c->at + i, "truth value", 1, c->data[c->at + i]);
    }
    c->at += n * each;
    return QR_OK;
}

static enum qr_status take_kv(struct cursor *c, struct qr_gguf_kv *kv)
{
    uint32_t type, elem;
    enum qr_status st;
    if ((st = take_str(c, "length of a key", KEY_BYTES_MAX, &kv->key))) return st;
    if ((st = take_u32(c, "type of a value", &type))) return st;
    kv->type = (enum qr_gguf_type)type;
    kv->n = 1;
    elem = type;
    if (type == QR_GGUF_ARR) {
        if ((st = take_u32(c, "element type of an array", &elem))) return st;
        if ((st = take_u64(c, "length of an array", &kv->n))) return st;
    }
    kv->elem = (enum qr_gguf_type)elem;
    kv->data = c->data + c->at;
    return elem == QR_GGUF_STR ? take_strs(c, kv->n, kv) : take_scalars(c, elem, kv->n, kv);
}

static enum qr_status take_kvs(struct cursor *c, struct qr_gguf *g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!grow((void **)&g->kvs, g->n_kvs, sizeof *g->kvs)) return no_memory(c->err);
        struct qr_gguf_kv *kv = &g->kvs[g->n_kvs++];
        *kv = (struct qr_gguf_kv){0};
        enum qr_status st = take_kv(c, kv);
        if (st) return st;
    }
    return QR_OK;
}

// Elements and bytes of a tensor whose dimensions are known; false where they overflow.
static bool tensor_size(struct qr_gguf_tensor *t)
{
    uint64_t n = 1;
    for (int d = 0; d < 4; d++)
        if (__builtin_mul_overflow(n, t->dims[d], &n)) return false;
    if (n > INT64_MAX) return false;
    return !t->type || !__builtin_mul_overflow(n / (uint64_t)t->type->block_elems,
                                               (uint64_t)t->type->block_bytes, &t->bytes);
}

// file_offset holds the offset from the start of the data until place_tensors.
static enum qr_status take_tensor(struct cursor *c, struct qr_gguf_tensor *t)
{
    uint32_t n_dims;
    uint64_t at = c->at;
    enum qr_status st;
    if ((st = take_str(c, "length of a tensor name", NAME_BYTES_MAX, &t->name))) return st;
    if ((st = take_u32(c, "number of dimensions", &n_dims))) return st;
    if (n_dims < 1 || n_dims > 4) {
        return qr_fail(c->err, QR_EFORMAT, "GGUF byte %llu: tensor %s: expected 1 to 4 dimensions, got %u",
                       (unsigned long long)at, show(t->name).text, n_dims);
    }
    t->n_dims = (int)n_dims;
    for (int d = 0; d < 4; d++) t->dims[d] = 1;
    for (int d = 0; d < t->n_dims; d++) {
        if ((st = take_u64(c, "dimension of a tensor", &t->dims[d]))) return st;
        if (t->dims[d] == 0) {
            return qr_fail(c->err, QR_EFORMAT,
                           "GGUF byte %llu: tensor %s: expected dimensions of at least 1, got 0",
                           (unsigned long long)c->at - 8, show(t->name).text);
        }
    }
    if ((st = take_u32(c, "type of a tensor", &t->type_id))) return st;
    if ((st = take_u64(c, "offset of a tensor", &t->file_offset))) return st;
    t->type = qr_qtype(t->type_id);
    if (t->type && t->dims[0] % (uint64_t)t->type->block_elems != 0) {
        return qr_fail(c->err, QR_EFORMAT,
                       "GGUF byte %llu: tensor %s: expected rows of a multiple of %d elements (%s), got %llu",
                       (unsigned long long)at, show(t->name).text, t->type->block_elems, t->type->name,
                       (unsigned long long)t->dims[0]);
    }
    if (!tensor_size(t)) {
        return qr_fail(c->err, QR_EFORMAT,
                       "GGUF byte %llu: tensor %s: expected fewer than 2^63 elements and bytes",
                       (unsigned long long)at, show(t->name).text);
    }
    return QR_OK;
}

static enum qr_status take_tensors(struct cursor *c, struct qr_gguf *g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (!grow((void **)&g->tensors, g->n_tensors, sizeof *g->tensors)) return no_memory(c->err);
        struct qr_gguf_tensor *t = &g->tensors[g->n_tensors++];
        *t = (struct qr_gguf_tensor){0};
        enum qr_status st = take_tensor(c, t);
        if (st) return st;
    }
    return QR_OK;
}

int gguf_name_cmp(const void *a, const void *b)
{
    const struct qr_gguf_str *x = *(const struct qr_gguf_str *const *)a,
                             *y = *(const struct qr_gguf_str *const *)b;
    size_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
    int c = n ? memcmp(x->data, y->data, n) : 0;
    return c ? c : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

// Sorts the names, which are the first members of n items, and refuses a name that stands twice.
static enum qr_status sort_names(const void *items, size_t n, size_t item_bytes,
                                 const struct qr_gguf_str ***out, const struct cursor *c)
{
    const struct qr_gguf_str **names = qr_calloc(QR_MEM_MODEL, n ? n : 1, sizeof *names);
    if (!names) return no_memory(c->err);
    *out = names;
    for (size_t i = 0; i < n; i++) names[i] = (const void *)((const char *)items + i * item_bytes);
    qsort(names, n, sizeof *names, gguf_name_cmp);
    for (size_t i = 1; i < n; i++) {
        if (gguf_name_cmp(&names[i - 1], &names[i])) continue;
        const char *later = names[i - 1]->data > names[i]->data ? names[i - 1]->data : names[i]->data;
        return qr_fail(c->err, QR_EFORMAT, "GGUF byte %llu: expected each name once, got %s again",
                       (unsigned long long)((const uint8_t *)later - c->data), show(*names[i]).text);
    }
    return QR_OK;
}

static enum qr_status find_alignment(struct qr_gguf *g, struct qr_error *err)
{
    uint64_t a = 32; // the format's default
    const struct qr_gguf_kv *kv = qr_gguf_find(g, "general.alignment");
    if (kv && !qr_gguf_u64(g, "general.alignment", &a)) a = 0;
    if (a < 8 || a > ALIGNMENT_MAX || (a & (a - 1)) != 0) {
        return qr_fail(err, QR_EFORMAT,
                       "GGUF byte %llu: general.alignment: expected a power of two of 8 to %u, got %llu",
                       (unsigned long long)(kv->data - g->data), ALIGNMENT_MAX, (unsigned long long)a);
    }
    g->alignment = (uint32_t)a;
    return QR_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct qr_gguf_tensor *x = *(const struct qr_gguf_tensor *const *)a,
                                *y = *(const struct qr_gguf_tensor *const *)b;
    return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

// Sorted by offset, each tensor must end before the next begins. A tensor of an unknown type has no known
// end.
static enum qr_status check_overlaps(const struct qr_gguf *g, struct qr_error *err)
{
    const struct qr_gguf_tensor **order =
        qr_calloc(QR_MEM_MODEL, g->n_tensors ? g->n_tensors : 1, sizeof *order);
    if (!order) return no_memory(err);
    for (size_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensors[i];
    qsort(order, g->n_tensors, sizeof *order, by_offset);
    enum qr_status st = QR_OK;
    for (size_t i = 1; i < g->n_tensors && !st; i++) {
        const struct qr_gguf_tensor *a = order[i - 1], *b = order[i];
        bool same = a->file_offset == b->file_offset;
        if (!same && a->bytes <= b->file_offset - a->file_offset) continue;
        st = qr_fail(err, QR_EFORMAT,
                     "GGUF byte %llu: tensor %s: expected to begin after tensor %s ends at byte %llu",
                     (unsigned long long)b->file_offset, show(b->name).text, show(a->name).text,
                     (unsigned long long)(a->file_offset + a->bytes));
    }
    qr_free(order);
    return st;
}

static enum qr_status place_tensors(struct qr_gguf *g, const struct cursor *c)
{
    uint64_t pad = (uint64_t)g->alignment - 1;
    g->data_at = (c->at + pad) & ~pad; // cannot overflow: at is a place in the file
    uint64_t room = g->data_at < g->bytes ? g->bytes - g->data_at : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct qr_gguf_tensor *t = &g->tensors[i];
        if ((t->file_offset & pad) != 0) {
            return qr_fail(c->err, QR_EFORMAT,
                           "GGUF: tensor %s: expected an offset that is a multiple of %u, got %llu",
                           show(t->name).text, g->alignment, (unsigned long long)t->file_offset);
        }
        if (t->file_offset > room || t->bytes > room - t->file_offset) {
            return qr_fail(c->err, QR_EFORMAT,
                           "GGUF: tensor %s: expected its %llu bytes at offset %llu within the %llu bytes of "
                           "data (is the file cut?)",
                           show(t->name).text, (unsigned long long)t->bytes,
                           (unsigned long long)t->file_offset, (unsigned long long)room);
        }
        t->file_offset += g->data_at;
        if (t->type) t->data = g->data + t->file_offset;
    }
    return check_overlaps(g, c->err);
}

static enum qr_status read_header(struct cursor *c, struct qr_gguf *g, uint64_t *n_tensors, uint64_t *n_kvs)
{
    enum qr_status st;
    uint32_t magic = 0;
    if ((st = take_u32(c, "magic", &magic))) return st;
    if (magic != 0x46554747u)
        return qr_fail(c->err, QR_EFORMAT,
                       "not a GGUF file: expected the magic \"GGUF\" at byte 0, got 0x%08x", magic);
    if ((st = take_u32(c, "version", &g->version))) return st;
    if (g->version != 2 && g->version != 3) {
        bool swapped = g->version != 0 && (g->version & 0xFFFF) == 0;
        return qr_fail(c->err, swapped || g->version < 2 ? QR_ENOTSUP : QR_EFORMAT,
                       "GGUF byte 4: expected version 2 or 3, got %u%s", g->version,
                       swapped ? " (a big-endian file)" : "");
    }
    if ((st = take_u64(c, "number of tensors", n_tensors))) return st;
    if ((st = take_u64(c, "number of keys", n_kvs))) return st;
    if (*n_tensors > left(c) / TENSOR_BYTES_MIN)
        return fail_at(c, 8, "number of tensors", left(c) / TENSOR_BYTES_MIN, *n_tensors);
    if (*n_kvs > left(c) / KV_BYTES_MIN)
        return fail_at(c, 16, "number of keys", left(c) / KV_BYTES_MIN, *n_kvs);
    return QR_OK;
}

static enum qr_status read_directory(struct qr_gguf *g, struct qr_error *err)
{
    struct cursor c = {g->data, g->bytes, 0, err};
    uint64_t n_tensors, n_kvs;
    enum qr_status st;
    if ((st = read_header(&c, g, &n_tensors, &n_kvs))) return st;
    if ((st = take_kvs(&c, g, n_kvs))) return st;
    if ((st = sort_names(g->kvs, g->n_kvs, sizeof *g->kvs, &g->kv_names, &c))) return st;
    if ((st = find_alignment(g, err))) return st;
    if ((st = take_tensors(&c, g, n_tensors))) return st;
    if ((st = sort_names(g->tensors, g->n_tensors, sizeof *g->tensors, &g->tensor_names, &c))) return st;
    return place_tensors(g, &c);
}

static enum qr_status open_bytes(const void *data, uint64_t bytes, bool mapped, struct qr_gguf **out,
                                 struct qr_error *err)
{
    struct qr_gguf *g = qr_calloc(QR_MEM_MODEL, 1, sizeof *g);
    if (!g) {
        if (mapped) munmap((void *)data, bytes);
        return no_memory(err);
    }
    g->data = data;
    g->bytes = bytes;
    g->mapped = mapped;
    enum qr_status st = read_directory(g, err);
    if (st) {
        qr_gguf_free(&g);
        return st;
    }
    *out = g;
    return QR_OK;
}

enum qr_status qr_gguf_open_mem(const void *data, size_t bytes, struct qr_gguf **out, struct qr_error *err)
{
    return open_bytes(data, bytes, false, out, err);
}

enum qr_status qr_gguf_open(const char *path, struct qr_gguf **out, struct qr_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return qr_fail(err, errno == ENOENT ? QR_ENOTFOUND : QR_EIO, "%s: cannot open: %s", path,
                       strerror(errno));
    }
    struct stat s;
    enum qr_status st = QR_OK;
    void *p = MAP_FAILED;
    if (fstat(fd, &s) != 0) {
        st = qr_fail(err, QR_EIO, "%s: cannot stat: %s", path, strerror(errno));
    } else if (!S_ISREG(s.st_mode)) {
        st = qr_fail(err, QR_EIO, "%s: expected a regular file", path);
    } else if (s.st_size < 24) {
        st = qr_fail(err, QR_EFORMAT, "%s: expected a GGUF file of at least 24 bytes, got %lld", path,
                     (long long)s.st_size);
    } else if ((p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED) {
        st = qr_fail(err, QR_EIO, "%s: cannot map: %s", path, strerror(errno));
    }
    close(fd); // the mapping holds the file
    if (st) return st;
    st = open_bytes(p, (uint64_t)s.st_size, true, out, err);
    if (st && err) {
        struct qr_error inner = *err;
        const char *slash = strrchr(path, '/');
        qr_fail(err, inner.code, "%.60s: %s", slash ? slash + 1 : path, inner.msg);
    }
    return st;
}

void qr_gguf_free(struct qr_gguf **gp)
{
    struct qr_gguf *g = *gp;
    if (!g) return;
    for (size_t i = 0; i < g->n_kvs; i++) qr_free((void *)g->kvs[i].strs);
    qr_free(g->kvs);
    qr_free(g->tensors);
    qr_free(g->kv_names);
    qr_free(g->tensor_names);
    if (g->mapped) munmap((void *)g->data, g->bytes);
    qr_free(g);
    *gp = NULL;
}

void qr_gguf_drop(const struct qr_gguf *g, const struct qr_gguf_tensor *t)
{
    if (!g->mapped || !t->data || t->bytes == 0) return;
    // Whole pages, the shared ones at both ends too: a neighbour that is still read faults its page in again.
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t from = t->file_offset & ~(page - 1), to = t->file_offset + t->bytes;
    (void)madvise((void *)(g->data + from), to - from, MADV_DONTNEED);
}
