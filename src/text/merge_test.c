/* Merging against its definition, on random small vocabularies: the best pair, the leftmost of equals, one at
 * a time. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "text/text.h"

enum { BYTES = 256, WORDS = 40, SIZE = BYTES + WORDS, TEXT_MAX = 400 };

struct lab {
    char name[SIZE][32]; // as the text has it; letters only
    char merge[WORDS][64];
    int left[WORDS], right[WORDS];
    struct qr_text_span tokens[SIZE], merges[WORDS];
    int32_t types[SIZE];
    float scores[SIZE];
    uint32_t seed;
};

static uint32_t draw(struct lab *l, uint32_t n)
{
    l->seed = l->seed * 1664525 + 1013904223;
    return (l->seed >> 12) % n;
}

static int find(const struct lab *l, const char *s, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(l->name[i], s) == 0) return i;
    return -1;
}

// Joins two tokens over a, b, c until WORDS new ones are there; merge i makes token BYTES + i.
static void grow(struct lab *l)
{
    for (int i = 0; i < WORDS;) {
        char joined[64];
        int a = draw(l, 2) ? 'a' + (int)draw(l, 3) : i ? BYTES + (int)draw(l, (uint32_t)i) : 'a';
        int b = draw(l, 2) ? 'a' + (int)draw(l, 3) : i ? BYTES + (int)draw(l, (uint32_t)i) : 'b';
        snprintf(joined, sizeof joined, "%s%s", l->name[a], l->name[b]);
        if (strlen(joined) > 12 || find(l, joined, BYTES + i) >= 0) continue;
        snprintf(l->name[BYTES + i], sizeof l->name[0], "%.31s", joined);
        char pair[64];
        snprintf(pair, sizeof pair, "%s %s", l->name[a], l->name[b]);
        memcpy(l->merge[i], pair, sizeof pair);
        l->left[i] = a;
        l->right[i] = b;
        i++;
    }
}

static struct qr_tokenizer *build(struct lab *l, bool spm)
{
    for (int i = 0; i < BYTES; i++) {
        bool letter = i >= 'a' && i <= 'c';
        // The other bytes do not occur: any names do, as long as no text holds them.
        snprintf(l->name[i], sizeof l->name[0], letter ? "%c" : "<0x%02X>", i);
        l->types[i] = letter || !spm ? 1 : 6;
    }
    grow(l);
    for (int i = 0; i < SIZE; i++) {
        l->tokens[i] = (struct qr_text_span){l->name[i], strlen(l->name[i])};
        if (i >= BYTES) l->types[i] = 1;
        l->scores[i] = -(float)draw(l, 20); // ties on purpose
    }
    for (int i = 0; i < WORDS; i++) l->merges[i] = (struct qr_text_span){l->merge[i], strlen(l->merge[i])};
    struct qr_vocab v = {.model = spm ? "llama" : "gpt2",
                         .pre = "gpt-2",
                         .n_tokens = SIZE,
                         .tokens = l->tokens,
                         .types = l->types,
                         .scores = l->scores,
                         .n_merges = spm ? 0 : WORDS,
                         .merges = l->merges,
                         .bos = -1,
                         .eos = -1,
                         .unk = -1};
    struct qr_tokenizer *t = NULL;
    struct qr_error err;
    if (qr_tokenizer_from_vocab(&v, &t, &err)) fail_msg("%s", err.msg);
    return t;
}

// What merging ids[i], ids[i + 1] gives: a token and how much it is wanted (lower first), or -1.
static int pair_of(const struct lab *l, bool spm, int a, int b, float *rank)
{
    if (spm) {
        char joined[64];
        snprintf(joined, sizeof joined, "%s%s", l->name[a], l->name[b]);
        int id = find(l, joined, SIZE);
        if (id >= 0) *rank = -l->scores[id];
        return id;
    }
    for (int i = 0; i < WORDS; i++)
        if (l->left[i] == a && l->right[i] == b) {
            *rank = (float)i;
            return BYTES + i;
        }
    return -1;
}

static size_t oracle(const struct lab *l, bool spm, const char *text, size_t n, int *ids)
{
    for (size_t i = 0; i < n; i++) ids[i] = text[i];
    for (;;) {
        size_t at = n;
        float best = 0, rank;
        int into = -1;
        for (size_t i = 0; i + 1 < n; i++) {
            int id = pair_of(l, spm, ids[i], ids[i + 1], &rank);
            if (id >= 0 && (into < 0 || rank < best)) {
                at = i;
                best = rank;
                into = id;
            }
        }
        if (into < 0) return n;
        ids[at] = into;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void compare(bool spm)
{
    struct lab *l = calloc(1, sizeof *l);
    assert_non_null(l);
    l->seed = 7;
    for (int round = 0; round < 40; round++) {
        struct qr_tokenizer *t = build(l, spm);
        for (int k = 0; k < 12; k++) {
            char text[TEXT_MAX];
            int want[TEXT_MAX];
            // Lengths on both sides of 48, where short words end and the heap begins.
            size_t bytes = k == 0 ? TEXT_MAX : 40 + draw(l, 16), n_got;
            for (size_t i = 0; i < bytes; i++) text[i] = (char)('a' + draw(l, 1 + (uint32_t)(round % 3)));
            size_t n = oracle(l, spm, text, bytes, want);
            int32_t *got;
            struct qr_error err;
            assert_int_equal(qr_tokenizer_encode(t, text, bytes, 0, &got, &n_got, &err), QR_OK);
            assert_int_equal(n_got, n);
            for (size_t i = 0; i < n; i++) assert_int_equal(got[i], want[i]);
            qr_free(got);
        }
        qr_tokenizer_free(&t);
    }
    free(l);
}

QR_TEST(tokenizer_merges_as_defined_by_rank)
{
    compare(false);
}

QR_TEST(tokenizer_merges_as_defined_by_score)
{
    compare(true);
}
