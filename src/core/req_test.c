#include "core/req.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"

QR_TEST(req_copy_shares_nothing_with_its_source)
{
    int32_t prompt[] = {5, 6, 7}, eos[] = {2}, stop[] = {9, 10}, allowed[] = {1, 2, 3}, bad[] = {4, 4, 5};
    int32_t lens[] = {1, 2};
    struct qr_bias bias[] = {{3, -1.5f}, {8, 2.0f}};
    struct qr_req src = {.prompt = prompt, .n_prompt = 3, .n_choices = 2, .priority = -4, .tenant = 77};
    src.sampling = (struct qr_sampling){.temperature = 0.5f,
                                        .seed = 12,
                                        .max_tokens = 16,
                                        .n_eos = 1,
                                        .eos = eos,
                                        .n_stop_ids = 2,
                                        .stop_ids = stop,
                                        .n_bias = 2,
                                        .bias = bias,
                                        .n_allowed = 3,
                                        .allowed = allowed,
                                        .n_bad = 2,
                                        .bad_ids = bad,
                                        .bad_lens = lens};
    uint64_t calls = qr_mem_calls();
    size_t live = qr_mem_live_bytes(QR_MEM_REQ);
    struct qr_req *r = NULL;
    assert_int_equal(qr_req_copy(&src, &r), QR_OK);
    assert_int_equal(qr_mem_calls(), calls + 1); // one allocation, so one qr_free ends it
    memset(prompt, 0, sizeof prompt);
    memset(eos, 0, sizeof eos);
    memset(stop, 0, sizeof stop);
    memset(allowed, 0, sizeof allowed);
    memset(bad, 0, sizeof bad);
    memset(lens, 0, sizeof lens);
    memset(bias, 0, sizeof bias);
    assert_int_equal(r->n_prompt, 3);
    assert_int_equal(r->prompt[2], 7);
    assert_int_equal(r->priority, -4);
    assert_int_equal(r->tenant, 77);
    assert_int_equal(r->sampling.eos[0], 2);
    assert_int_equal(r->sampling.stop_ids[1], 10);
    assert_int_equal(r->sampling.allowed[2], 3);
    assert_int_equal(r->sampling.bad_ids[2], 5);
    assert_int_equal(r->sampling.bad_lens[1], 2);
    assert_int_equal(r->sampling.bias[1].id, 8);
    assert_true(r->sampling.bias[1].value == 2.0f);
    qr_free(r);
    assert_int_equal(qr_mem_live_bytes(QR_MEM_REQ), live);
}

QR_TEST(req_copy_of_empty_arrays_holds_null)
{
    int32_t prompt[] = {1};
    struct qr_req src = {.prompt = prompt, .n_prompt = 1, .n_choices = 1};
    struct qr_req *r = NULL;
    assert_int_equal(qr_req_copy(&src, &r), QR_OK);
    assert_null(r->sampling.eos);
    assert_null(r->sampling.bad_ids);
    qr_free(r);
}

QR_TEST(req_copy_without_memory_leaves_out_untouched)
{
    int32_t prompt[] = {1};
    struct qr_req src = {.prompt = prompt, .n_prompt = 1, .n_choices = 1};
    struct qr_req *r = &src;
    qr_mem_fail_at(1, 0);
    enum qr_status st = qr_req_copy(&src, &r);
    qr_mem_fail_at(0, 0);
    assert_int_equal(st, QR_ENOMEM);
    assert_ptr_equal(r, &src);
}

QR_TEST(req_finish_names_are_the_api_words)
{
    assert_null(qr_finish_name(QR_FINISH_NONE));
    assert_string_equal(qr_finish_name(QR_FINISH_STOP), "stop");
    assert_string_equal(qr_finish_name(QR_FINISH_LENGTH), "length");
    assert_string_equal(qr_finish_name(QR_FINISH_ABORT), "abort");
    assert_string_equal(qr_finish_name(QR_FINISH_ERROR), "error");
}
