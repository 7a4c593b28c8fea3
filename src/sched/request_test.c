#include "sched/request.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static const struct qr_sched_conf conf = {.max_num_seqs = 8,
                                          .max_num_batched_tokens = 512,
                                          .max_model_len = 2048,
                                          .block_size = 16,
                                          .n_blocks = 64};

static struct qr_req of(int32_t n_prompt, int32_t max_tokens, int32_t n)
{
    static int32_t ids[4096];
    struct qr_req r = {
        .prompt = ids, .n_prompt = n_prompt, .n_choices = n, .sampling = {.max_tokens = max_tokens}};
    return r;
}

static enum qr_status fits(int32_t n_prompt, int32_t max_tokens, int32_t n, struct qr_error *err)
{
    struct qr_req r = of(n_prompt, max_tokens, n);
    memset(err, 0, sizeof *err);
    return qr_sched_req_fits(&conf, &r, err);
}

QR_TEST(request_refusal_says_the_arithmetic_of_blocks)
{
    struct qr_error err;
    assert_int_equal(fits(900, 500, 1, &err), QR_ETOOBIG);
    assert_string_equal(err.msg,
                        "prompt 900 + max_tokens 500 = 1400 tokens need 88 blocks of 16; the pool has 64");
    assert_string_equal(err.param, "max_tokens");
    assert_int_equal(fits(1024, 0, 1, &err), QR_OK); // 64 blocks exactly
    assert_int_equal(fits(1000, 24, 1, &err), QR_OK);
    assert_int_equal(fits(1000, 25, 1, &err), QR_ETOOBIG);
    assert_int_equal(fits(1025, 0, 1, &err), QR_ETOOBIG);
    assert_string_equal(err.param, "prompt");
}

QR_TEST(request_refusal_names_the_context_length)
{
    struct qr_error err;
    assert_int_equal(fits(2000, 100, 1, &err), QR_ETOOBIG);
    assert_non_null(strstr(err.msg, "maximum context length is 2048 tokens"));
    assert_non_null(strstr(err.msg, "prompt 2000 + max_tokens 100 = 2100"));
    assert_string_equal(err.param, "max_tokens");
    assert_int_equal(fits(2049, 1, 1, &err), QR_ETOOBIG);
    assert_string_equal(err.param, "prompt");
    struct qr_req huge = of(2000, INT32_MAX, 1); // the sum does not wrap
    assert_int_equal(qr_sched_req_fits(&conf, &huge, &err), QR_ETOOBIG);
}

QR_TEST(request_choices_count_their_shared_prompt_once)
{
    struct qr_error err;
    // Prompt 161: ten whole blocks before its last token are shared. 161 + 31 = 192 tokens, 12 blocks: each
    // choice has 2 of its own. 10 + 8 * 2 = 26.
    struct qr_sched_conf c = conf;
    struct qr_req r = of(161, 31, 8);
    c.n_blocks = 26;
    assert_int_equal(qr_sched_req_fits(&c, &r, &err), QR_OK);
    c.n_blocks = 25;
    assert_int_equal(qr_sched_req_fits(&c, &r, &err), QR_ETOOBIG);
    assert_string_equal(
        err.msg, "prompt 161 + max_tokens 31 = 192 tokens, in 8 choices that share the prompt, need 26 "
                 "blocks of 16; the pool has 25");
    assert_int_equal(fits(10, 10, 9, &err), QR_ETOOBIG);
    assert_string_equal(err.msg, "9 choices run at once; max_num_seqs is 8");
    assert_string_equal(err.param, "n");
}

QR_TEST(request_refuses_what_is_malformed)
{
    struct qr_error err;
    assert_int_equal(fits(0, 10, 1, &err), QR_EINVAL);
    assert_string_equal(err.param, "prompt");
    assert_int_equal(fits(1, -1, 1, &err), QR_EINVAL);
    assert_int_equal(fits(1, 1, 0, &err), QR_EINVAL);
    assert_int_equal(fits(1, 1, QR_CHOICES_MAX + 1, &err), QR_EINVAL);
}

QR_TEST(request_new_takes_all_its_memory_at_once)
{
    struct qr_req src = of(5, 7, 3);
    struct qr_sched_req *r = NULL;
    size_t live = qr_mem_live_bytes(QR_MEM_REQ);
    for (uint64_t at = 1; at <= 2; at++) {
        qr_mem_fail_at(at, 0);
        enum qr_status st = qr_sched_req_new(&src, 1, &r);
        qr_mem_fail_at(0, 0);
        assert_int_equal(st, QR_ENOMEM);
        assert_int_equal(qr_mem_live_bytes(QR_MEM_REQ), live);
    }
    assert_int_equal(qr_sched_req_new(&src, 42, &r), QR_OK);
    assert_int_equal(r->n_live, 3);
    for (int32_t c = 0; c < 3; c++)
        for (int32_t i = 0; i < 7; i++) r->seqs[c].generated[i] = c * 100 + i;
    for (int32_t c = 0; c < 3; c++) r->seqs[c].n_ids += 7;
    assert_int_equal(qr_seq_id(r, &r->seqs[0], 11), 6);
    assert_int_equal(qr_seq_id(r, &r->seqs[1], 5), 100);
    assert_int_equal(qr_seq_id(r, &r->seqs[2], 11), 206);
    assert_int_equal(qr_seq_wanted(r, &r->seqs[0]), 4); // the leader: the prompt but its last token
    assert_int_equal(qr_seq_wanted(r, &r->seqs[1]), 0);
    r->seqs[0].done = true;
    assert_int_equal(qr_seq_wanted(r, &r->seqs[1]), 4);
    r->forked = true;
    assert_int_equal(qr_seq_wanted(r, &r->seqs[2]), 12);
    qr_sched_req_free(&r);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_REQ), live);
}
