/* Attention over a paged KV cache, and the layout of a block (DESIGN 3).
 *
 * Owns: the byte layout of a unit of 16 tokens for each KV type. Refuses to know: who owns which block.
 * Threads: pure functions; a task writes the output rows it is given. Lifetime: static tables.
 *
 *   block    = [layer][kv head][unit of 16 tokens]{ K, V }        one contiguous run
 *   bf16 K   = [d/2][16 tokens][2]     one 64-byte line: two dimensions of 16 tokens
 *   bf16 V   = [d/16][8 token pairs][16][2]  one line: 16 dimensions of two tokens
 *   f16, f32 K = [d][16 tokens]        V = [d/16][16 tokens][16]
 *   int8, fp8 K = [d/4][16 tokens][4], then the 16 tokens' scales in float32
 *   int8, fp8 V = [d/16][4 token quads][16][4], then scales
 *
 * d is a multiple of 16, 16 to 256. Slots past the sequence's end hold anything, NaN included: kernels mask
 * them. Numerics N4: chunks of 64 tokens at absolute positions, online softmax over chunks ascending; the
 * decode kernel splits at multiples of 512 from position 0 and merges splits ascending, also when there is
 * one. A row's bits depend on nothing but its query and the K and V of its positions: not on n_rows, pos0 of
 * the call, table order or block_size. */
#ifndef QR_KERN_ATTN_H
#define QR_KERN_ATTN_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define QR_KV_UNIT 16 // tokens

enum qr_kvtype {
    QR_KV_AUTO, // a choice to be made; no function but qr_kvtype_name takes it
#define QR_KVTYPE(ID, name, other, value_bytes, scale_bytes, tol) QR_KV_##ID,
#include "kern/kvtypes.def"
#undef QR_KVTYPE
    QR_KV_COUNT
};
const char *qr_kvtype_name(enum qr_kvtype t);
// "auto" or a type by either of its names. QR_EINVAL lists the names.
enum qr_status qr_kvtype_parse(const char *name, enum qr_kvtype *out, struct qr_error *err) QR_MUST_CHECK;

// Bytes of one unit (16 tokens of K and V) of one head of size d.
size_t qr_kv_unit_bytes(enum qr_kvtype t, int d);

// Where the KV of one (layer, kv head) of one sequence is.
struct qr_kv_view {
    uint8_t *pool; // block b begins at pool + b * block_bytes
    size_t block_bytes;
    size_t head_off;       // of (layer, kv head) within a block
    const uint32_t *table; // block ids of the sequence, in order
    int block_size;        // tokens; 16 to 128, a multiple of 16
    int d;                 // head size
};

struct qr_attn {
    struct qr_kv_view kv;
    int n_group;      // query heads on this kv head: 1 to 16
    float scale;      // of the scores, above 0, usually 1 / sqrt(d)
    float softcap;    // 0: none; else scores become softcap * tanh(score / softcap)
    int window;       // 0: none; else a row at position p sees p - window + 1 .. p, and blocks before are not read
    int pos0, n_rows; // row i is at position pos0 + i and sees positions 0 .. pos0 + i
    const float *q;   // row i, head g: q + i * ldq + g * d
    size_t ldq;
    float *out; // same shape, stride ldo
    size_t ldo;
    // What the same worker reads next, of ahead_end > 0 positions, or NULL. Decode kernels ask memory for its first
    // units while they finish; a wrong guess costs time alone.
    const struct qr_kv_view *ahead;
    int ahead_end;
    void *scratch; // QR_ATTN_SCRATCH(n_group, d) bytes of the task's own, 64-byte aligned
};
#define QR_ATTN_ROWS_MAX 16 // rows a call of the prefill kernel
#define QR_ATTN_SCRATCH(n_group, d) ((size_t)(n_group)*QR_ATTN_ROWS_MAX * ((size_t)(d)*12 + 1024) + (size_t)(d)*512 + 24576)

typedef void qr_attn_fn(const struct qr_attn *a);
// Writes K and V of one token (d floats each, K already rotated) at position pos.
typedef void qr_kv_write_fn(const struct qr_kv_view *kv, int pos, const float *k, const float *v);

#endif
