#include "fmt/gguf.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/test.h"

/* A writer of files, as wrong as a test wants them. */

static void put(struct qr_buf *b, uint64_t v, size_t bytes)
{
    qr_buf_add(b, &v, bytes); // little-endian machines only, as the reader
}

static void put_str(struct qr_buf *b, const char *s)
{
    put(b, strlen(s), 8);
    qr_buf_str(b, s);
}

static void put_header(struct qr_buf *b, uint64_t n_tensors, uint64_t n_kvs)
{
    qr_buf_str(b, "GGUF");
    put(b, 3, 4);
    put(b, n_tensors, 8);
    put(b, n_kvs, 8);
}

static void put_kv(struct qr_buf *b, const char *key, enum qr_gguf_type type, uint64_t v, size_t bytes)
{
    put_str(b, key);
    put(b, type, 4);
    put(b, v, bytes);
}

static void put_tensor(struct qr_buf *b, const char *name, uint64_t d0, uint64_t d1, uint32_t type,
                       uint64_t offset)
{
    put_str(b, name);
    put(b, 2, 4);
    put(b, d0, 8);
    put(b, d1, 8);
    put(b, type, 4);
    put(b, offset, 8);
}

static void put_data(struct qr_buf *b, size_t bytes)
{
    while (b->len % 32) qr_buf_char(b, 0);
    for (size_t i = 0; i < bytes; i++) qr_buf_char(b, (char)(i * 7 + 1));
}

// One of everything that is right.
static void put_good(struct qr_buf *b)
{
    float f = 1.5f;
    double d = -2.25;
    uint32_t fbits;
    uint64_t dbits;
    memcpy(&fbits, &f, 4);
    memcpy(&dbits, &d, 8);
    put_header(b, 3, 14);
    put_kv(b, "u8", QR_GGUF_U8, 200, 1);
    put_kv(b, "i8", QR_GGUF_I8, (uint8_t)-3, 1);
    put_kv(b, "u16", QR_GGUF_U16, 65535, 2);
    put_kv(b, "i16", QR_GGUF_I16, (uint16_t)-300, 2);
    put_kv(b, "u32", QR_GGUF_U32, 4000000000u, 4);
    put_kv(b, "i32", QR_GGUF_I32, (uint32_t)-5, 4);
    put_kv(b, "f32", QR_GGUF_F32, fbits, 4);
    put_kv(b, "bool", QR_GGUF_BOOL, 1, 1);
    put_kv(b, "u64", QR_GGUF_U64, UINT64_MAX, 8);
    put_kv(b, "i64", QR_GGUF_I64, (uint64_t)-7, 8);
    put_kv(b, "f64", QR_GGUF_F64, dbits, 8);
    put_str(b, "str");
    put(b, QR_GGUF_STR, 4);
    put_str(b, "hello");
    put_str(b, "words");
    put(b, QR_GGUF_ARR, 4);
    put(b, QR_GGUF_STR, 4);
    put(b, 3, 8);
    put_str(b, "a");
    put_str(b, "");
    put_str(b, "ccc");
    put_str(b, "numbers");
    put(b, QR_GGUF_ARR, 4);
    put(b, QR_GGUF_I16, 4);
    put(b, 2, 8);
    put(b, (uint16_t)-1, 2);
    put(b, 9, 2);
    put_tensor(b, "w", 32, 2, 2, 0);      // Q4_0: 36 bytes
    put_tensor(b, "x", 4, 2, 0, 64);      // F32: 32 bytes
    put_tensor(b, "odd", 4, 1, 9999, 96); // a type of the future
    put_data(b, 104);
}

// Opens an exact heap copy, so that the sanitizer sees a read past the end.
static enum qr_status open_copy(const struct qr_buf *b, size_t bytes, struct qr_gguf **out, uint8_t **copy,
                                struct qr_error *err)
{
    *copy = malloc(bytes ? bytes : 1);
    if (bytes) memcpy(*copy, b->data, bytes);
    return qr_gguf_open_mem(*copy, bytes, out, err);
}

static void expect_refused(struct qr_buf *b, const char *part)
{
    struct qr_gguf *g = NULL;
    struct qr_error err = {0};
    uint8_t *copy;
    enum qr_status st = open_copy(b, b->len, &g, &copy, &err);
    if (st == QR_OK || !strstr(err.msg, part))
        fail_msg("status %d, message \"%s\", expected \"%s\"", st, err.msg, part);
    assert_null(g);
    assert_int_equal(err.code, st);
    assert_null(strchr(err.msg, '\n'));
    free(copy);
    qr_buf_fini(b);
}

static bool str_is(struct qr_gguf_str s, const char *want)
{
    return s.bytes == strlen(want) && memcmp(s.data, want, s.bytes) == 0;
}

QR_TEST(gguf_reads_every_kind_of_value)
{
    struct qr_buf b = {0};
    struct qr_gguf *g;
    struct qr_error err;
    uint64_t u;
    double d;
    bool yes;
    struct qr_gguf_str s;
    put_good(&b);
    assert_int_equal(qr_gguf_open_mem(b.data, b.len, &g, &err), QR_OK);
    assert_int_equal(qr_gguf_version(g), 3);
    assert_int_equal(qr_gguf_n_kvs(g), 14);
    assert_true(qr_gguf_u64(g, "u8", &u) && u == 200);
    assert_false(qr_gguf_u64(g, "i8", &u));
    assert_true(qr_gguf_f64(g, "i8", &d) && d == -3);
    assert_true(qr_gguf_u64(g, "u16", &u) && u == 65535);
    assert_true(qr_gguf_f64(g, "i16", &d) && d == -300);
    assert_true(qr_gguf_u64(g, "u32", &u) && u == 4000000000u);
    assert_true(qr_gguf_f64(g, "i32", &d) && d == -5);
    assert_true(qr_gguf_f64(g, "f32", &d) && d == 1.5);
    assert_true(qr_gguf_bool(g, "bool", &yes) && yes);
    assert_false(qr_gguf_u64(g, "bool", &u));
    assert_false(qr_gguf_bool(g, "u8", &yes));
    assert_true(qr_gguf_u64(g, "u64", &u) && u == UINT64_MAX);
    assert_true(qr_gguf_f64(g, "i64", &d) && d == -7);
    assert_true(qr_gguf_f64(g, "f64", &d) && d == -2.25);
    assert_true(qr_gguf_str(g, "str", &s) && str_is(s, "hello"));
    assert_false(qr_gguf_str(g, "words", &s));
    assert_false(qr_gguf_str(g, "nowhere", &s));
    const struct qr_gguf_kv *words = qr_gguf_find(g, "words"), *numbers = qr_gguf_find(g, "numbers");
    assert_int_equal(words->n, 3);
    assert_true(str_is(words->strs[0], "a") && str_is(words->strs[1], "") && str_is(words->strs[2], "ccc"));
    assert_int_equal(qr_gguf_arr_i64(numbers, 0), -1);
    assert_true(qr_gguf_arr_f64(numbers, 1) == 9);
    qr_gguf_free(&g);
    assert_null(g);
    qr_buf_fini(&b);
}

QR_TEST(gguf_lists_tensors_and_leaves_unknown_types_without_data)
{
    struct qr_buf b = {0};
    struct qr_gguf *g;
    struct qr_error err;
    put_good(&b);
    assert_int_equal(qr_gguf_open_mem(b.data, b.len, &g, &err), QR_OK);
    const struct qr_gguf_tensor *w = qr_gguf_tensor(g, "w"), *x = qr_gguf_tensor(g, "x"),
                                *odd = qr_gguf_tensor(g, "odd");
    assert_int_equal(qr_gguf_n_tensors(g), 3);
    assert_ptr_equal(w, qr_gguf_tensor_at(g, 0));
    assert_string_equal(w->type->name, "Q4_0");
    assert_int_equal(w->bytes, 36);
    assert_int_equal(w->dims[0], 32);
    assert_int_equal(w->dims[1], 2);
    assert_int_equal(w->dims[2], 1);
    assert_int_equal(w->data[0], 1);
    assert_int_equal(x->bytes, 32);
    assert_int_equal(x->data - w->data, 64);
    assert_null(odd->type);
    assert_null(odd->data);
    assert_int_equal(odd->type_id, 9999);
    assert_null(qr_gguf_tensor(g, "y"));
    qr_gguf_free(&g);
    qr_buf_fini(&b);
}

QR_TEST(gguf_opens_a_mapped_file_and_drops_pages)
{
    struct qr_buf b = {0};
    struct qr_gguf *g;
    struct qr_error err;
    char path[] = "/tmp/quire-gguf-XXXXXX";
    int fd = mkstemp(path);
    put_good(&b);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    close(fd);
    assert_int_equal(qr_gguf_open(path, &g, &err), QR_OK);
    assert_int_equal(qr_gguf_file_bytes(g), b.len);
    const struct qr_gguf_tensor *w = qr_gguf_tensor(g, "w");
    qr_gguf_drop(g, w);
    assert_int_equal(w->data[1], 8); // reads the same from the file again
    qr_gguf_free(&g);
    unlink(path);
    assert_int_equal(qr_gguf_open(path, &g, &err), QR_ENOTFOUND);
    assert_int_equal(qr_gguf_open("/", &g, &err), QR_EIO);
    assert_int_equal(qr_gguf_open("/dev/null", &g, &err), QR_EIO);
    qr_buf_fini(&b);
}

QR_TEST(gguf_refuses_a_wrong_header)
{
    struct qr_buf b = {0};
    qr_buf_str(&b, "GGML");
    put(&b, 3, 4);
    put(&b, 0, 8);
    put(&b, 0, 8);
    expect_refused(&b, "expected the magic \"GGUF\" at byte 0");
    put_header(&b, 0, 0);
    b.data[4] = 1;
    expect_refused(&b, "byte 4: expected version 2 or 3, got 1");
    put_header(&b, 0, 0);
    memcpy(b.data + 4, "\0\0\0\3", 4);
    expect_refused(&b, "big-endian");
}

QR_TEST(gguf_refuses_absurd_counts_without_the_memory)
{
    struct qr_buf b = {0};
    uint64_t calls = qr_mem_calls();
    put_header(&b, 1ull << 60, 0);
    expect_refused(&b, "byte 8: number of tensors: expected at most 0, got 1152921504606846976");
    put_header(&b, 0, UINT64_MAX);
    expect_refused(&b, "byte 16: number of keys: expected at most 0");
    put_header(&b, 0, 1);
    put_str(&b, "words");
    put(&b, QR_GGUF_ARR, 4);
    put(&b, QR_GGUF_STR, 4);
    put(&b, 1ull << 61, 8);
    put(&b, 0, 8);
    expect_refused(&b, "byte 53: strings of an array: expected at most 1, got");
    put_header(&b, 0, 1);
    put_str(&b, "numbers");
    put(&b, QR_GGUF_ARR, 4);
    put(&b, QR_GGUF_F64, 4);
    put(&b, 1ull << 61, 8); // times 8 overflows
    put(&b, 0, 8);
    expect_refused(&b, "elements of a value: expected at most 1, got");
    put_header(&b, 0, 1);
    put(&b, UINT64_MAX - 4, 8);
    put(&b, 0, 8);
    expect_refused(&b, "byte 24: length of a key");
    assert_true(qr_mem_calls() - calls < 30);
}

QR_TEST(gguf_refuses_wrong_values)
{
    struct qr_buf b = {0};
    put_header(&b, 0, 1);
    put_kv(&b, "flag", QR_GGUF_BOOL, 2, 1);
    expect_refused(&b, "truth value: expected at most 1, got 2");
    put_header(&b, 0, 1);
    put_kv(&b, "what", (enum qr_gguf_type)13, 0, 8);
    expect_refused(&b, "key what: expected a value type of 0 to 12, got 13");
    put_header(&b, 0, 1);
    put_str(&b, "deep");
    put(&b, QR_GGUF_ARR, 4);
    put(&b, QR_GGUF_ARR, 4);
    put(&b, 0, 8);
    expect_refused(&b, "no array in an array");
    put_header(&b, 0, 2);
    put_kv(&b, "twice", QR_GGUF_U8, 2, 1);
    put_kv(&b, "twice", QR_GGUF_U8, 2, 1);
    expect_refused(&b, "byte 50: expected each name once, got twice again");
    for (uint64_t a = 0; a < 24; a += 3) {
        put_header(&b, 0, 1);
        put_kv(&b, "general.alignment", QR_GGUF_U32, a, 4);
        expect_refused(&b, "general.alignment: expected a power of two of 8 to");
    }
}

QR_TEST(gguf_refuses_wrong_tensors)
{
    struct qr_buf b = {0};
    put_header(&b, 1, 0);
    put_tensor(&b, "w", 33, 1, 2, 0);
    put_data(&b, 64);
    expect_refused(&b, "tensor w: expected rows of a multiple of 32 elements (Q4_0), got 33");
    put_header(&b, 1, 0);
    put_tensor(&b, "w", 32, 0, 2, 0);
    put_data(&b, 64);
    expect_refused(&b, "expected dimensions of at least 1");
    put_header(&b, 1, 0);
    put_tensor(&b, "w", 1ull << 40, 1ull << 40, 0, 0);
    put_data(&b, 64);
    expect_refused(&b, "expected fewer than 2^63");
    put_header(&b, 1, 0);
    put_tensor(&b, "w", 1ull << 30, 1ull << 30, 0, 0); // its size fits 64 bits and not the file
    put_data(&b, 64);
    expect_refused(&b, "is the file cut?");
    put_header(&b, 1, 0);
    put_tensor(&b, "w", 16, 1, 0, 8);
    put_data(&b, 128);
    expect_refused(&b, "multiple of 32, got 8");
    put_header(&b, 1, 0);
    put_tensor(&b, "w", 16, 1, 0, UINT64_MAX - 31);
    put_data(&b, 64);
    expect_refused(&b, "is the file cut?");
    put_header(&b, 2, 0);
    put_tensor(&b, "w", 16, 1, 0, 0);
    put_tensor(&b, "v", 16, 1, 0, 32);
    put_data(&b, 128);
    expect_refused(&b, "tensor v: expected to begin after tensor w ends");
    put_header(&b, 2, 0);
    put_tensor(&b, "w", 8, 1, 0, 0);
    put_tensor(&b, "w", 8, 1, 0, 32);
    put_data(&b, 128);
    expect_refused(&b, "expected each name once, got w again");
    put_header(&b, 1, 0);
    put_str(&b, "w");
    put(&b, 5, 4);
    for (int i = 0; i < 8; i++) put(&b, 1, 8);
    expect_refused(&b, "expected 1 to 4 dimensions, got 5");
}

// Reads everything a caller could, so that the sanitizer sees a view that leaves the file.
static uint64_t read_all(const struct qr_gguf *g)
{
    uint64_t h = 0;
    for (size_t i = 0; i < qr_gguf_n_kvs(g); i++) {
        const struct qr_gguf_kv *kv = qr_gguf_kv_at(g, i);
        h ^= qr_hash_bytes(h, kv->key.data, kv->key.bytes);
        for (uint64_t j = 0; j < kv->n; j++) {
            if (kv->elem == QR_GGUF_STR) {
                h ^= qr_hash_bytes(h, kv->strs[j].data, kv->strs[j].bytes);
            } else {
                h ^= (uint64_t)qr_gguf_arr_i64(kv, j) + (uint64_t)(qr_gguf_arr_f64(kv, j) > 0);
            }
        }
    }
    for (size_t i = 0; i < qr_gguf_n_tensors(g); i++) {
        const struct qr_gguf_tensor *t = qr_gguf_tensor_at(g, i);
        h ^= qr_hash_bytes(h, t->name.data, t->name.bytes);
        if (t->data) h ^= qr_hash_bytes(h, t->data, (size_t)t->bytes);
    }
    return h;
}

QR_TEST(gguf_cut_anywhere_ends_in_an_error)
{
    struct qr_buf b = {0};
    put_good(&b);
    size_t needed = b.len - 8; // the tensor of unknown type needs no bytes of its own
    for (size_t n = 0; n < needed; n++) {
        struct qr_gguf *g = NULL;
        struct qr_error err = {0};
        uint8_t *copy;
        assert_int_not_equal(open_copy(&b, n, &g, &copy, &err), QR_OK);
        assert_true(err.msg[0] && !strchr(err.msg, '\n'));
        free(copy);
    }
    qr_buf_fini(&b);
}

QR_TEST(gguf_mutated_ends_in_an_error_or_reads)
{
    struct qr_buf good = {0};
    int n_ok = 0;
    put_good(&good);
    for (uint64_t seed = 0; seed < 10000; seed++) {
        struct qr_gguf *g = NULL;
        struct qr_error err = {0};
        uint8_t *copy = malloc(good.len);
        memcpy(copy, good.data, good.len);
        uint64_t n_changes = 1 + qr_rand_u64(seed, 0, 0) % 4;
        for (uint64_t i = 0; i < n_changes; i++) {
            size_t at = (size_t)(qr_rand_u64(seed, 1, i) % good.len);
            // Half of the changes are the bytes that break arithmetic.
            static const uint8_t bad[4] = {0x00, 0x7F, 0x80, 0xFF};
            uint64_t r = qr_rand_u64(seed, 2, i);
            copy[at] = r & 1 ? bad[(r >> 1) & 3] : (uint8_t)(r >> 8);
        }
        if (qr_gguf_open_mem(copy, good.len, &g, &err) == QR_OK) {
            n_ok++;
            (void)read_all(g);
            qr_gguf_free(&g);
        } else {
            assert_true(err.msg[0] && !strchr(err.msg, '\n'));
        }
        free(copy);
    }
    assert_in_range(n_ok, 1, 9999);
    qr_buf_fini(&good);
}

QR_TEST(gguf_survives_refused_memory)
{
    struct qr_buf b = {0};
    struct qr_gguf *g = NULL;
    struct qr_error err;
    put_good(&b);
    size_t live = qr_mem_live_bytes(QR_MEM_MODEL);
    enum qr_status st = QR_ENOMEM;
    for (uint64_t n = 1; st != QR_OK; n++) {
        assert_true(n < 100);
        qr_mem_fail_at(n, 0);
        st = qr_gguf_open_mem(b.data, b.len, &g, &err);
        qr_mem_fail_at(0, 0);
        if (st == QR_OK)
            qr_gguf_free(&g);
        else
            assert_int_equal(st, QR_ENOMEM);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_MODEL), live);
    }
    qr_buf_fini(&b);
}
