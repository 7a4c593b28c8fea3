/* A first guess of what steps cost, from the model's shapes. Engines refine it while they serve. */
#include "lib/lib_internal.h"

// What one thread does, in operations a nanosecond, and what memory gives all of them, in bytes a nanosecond.
// From SmolLM2-135M Q4_1 with two threads of a Zen 4 (AVX-512 VNNI and BF16): a step of 1 and of 32 generating
// sequences 2.9 and 21 ms, 16, 128, 512 and 4096 prompt rows. Only the order of magnitude matters, because the
// first seconds of serving replace them.
#define ROW_OPS 205.0      // products of generated rows
#define PROMPT_OPS 210.0   // products of prompt rows
#define UNPACK_WEIGHTS 9.0 // weights unpacked for a step's prompt rows
#define QUERY_OPS 190.0    // attention of prompt rows
#define MEMORY_BYTES 33.0
#define FIXED_PART 0.05    // of the floor

struct qr_costs qr_lib_guess_costs(const struct qr_lib_info *info)
{
    const struct qr_model_info *m = &info->model;
    double d = m->d_model, heads = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    double layer = d * heads * 2 + d * kv * 2 + 3.0 * d * m->d_ff, layers = layer * m->n_layers;
    double all = layers + d * m->n_vocab; // the head is for rows that sample
    double threads = info->n_threads, token_bytes = (double)info->block_bytes / info->block_size;
    double floor_ns = (double)m->packed_bytes / MEMORY_BYTES;
    return (struct qr_costs){
        .epoch = 1,
        .fixed_ns = (uint64_t)(FIXED_PART * floor_ns) + 1,
        .row_ns = (uint64_t)(2 * all / (threads * ROW_OPS)) + 1,
        .prompt_fixed_ns = (uint64_t)(layers / (threads * UNPACK_WEIGHTS)) + 1,
        .prompt_row_ns = (uint64_t)(2 * layers / (threads * PROMPT_OPS)) + 1,
        .context_ps = (uint64_t)(1e3 * token_bytes / MEMORY_BYTES) + 1,
        .floor_ns = (uint64_t)floor_ns,
        .query_context_ps = (uint64_t)(1e3 * 4 * heads * m->n_layers / (threads * QUERY_OPS)) + 1,
    };
}
