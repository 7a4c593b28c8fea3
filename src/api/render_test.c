#include <string.h>

#include "api/api_internal.h"
#include "base/mem.h"
#include "base/test.h"

/* A vocabulary of seven tokens: a, b, " c", the two halves of "é" (Ã and ©, the names of bytes C3 and A9 in
 * byte-level BPE), a special end token and a quote. */
enum { TOK_A, TOK_B, TOK_SP_C, TOK_C3, TOK_A9, TOK_END, TOK_QUOTE, N_TOKENS };

static struct qr_tokenizer *tiny_tokenizer(void)
{
    static const struct qr_text_span tokens[] = {{"a", 1},
                                                 {"b", 1},
                                                 {"\xC4\xA0"
                                                  "c",
                                                  3},
                                                 {"\xC3\x83", 2},
                                                 {"\xC2\xA9", 2},
                                                 {"<|end|>", 7},
                                                 {"\"", 1}};
    static const int32_t types[] = {1, 1, 1, 1, 1, 3, 1};
    struct qr_vocab v = {.model = "gpt2",
                         .pre = "gpt-2",
                         .n_tokens = N_TOKENS,
                         .tokens = tokens,
                         .types = types,
                         .bos = -1,
                         .eos = TOK_END,
                         .unk = -1};
    struct qr_tokenizer *t = NULL;
    struct qr_error err = {0};
    if (qr_tokenizer_from_vocab(&v, &t, &err) != QR_OK) fail_msg("%s", err.msg);
    return t;
}

struct fixture {
    struct api *a;
    struct call c;
    struct api_gen g;
    struct api_seq seq;
    struct qr_tokenizer *tok;
    int32_t prompt[3];
    struct qr_buf out;
    struct qr_json_doc *doc;
};

static struct fixture *make(bool chat)
{
    struct fixture *f = qr_calloc(QR_MEM_MISC, 1, sizeof *f);
    assert_non_null(f);
    f->a = qr_calloc(QR_MEM_MISC, 1, sizeof *f->a);
    assert_non_null(f->a);
    f->tok = tiny_tokenizer();
    f->a->tok = f->tok;
    f->a->model_name = "m\"1";
    strcpy(f->a->fingerprint, "quire-0-1");
    f->c.api = f->a;
    atomic_store(&f->c.gen, &f->g);
    f->g.params = (struct api_params){.chat = chat, .prompt_logprobs = -1};
    f->g.params.sampling.n_logprobs = f->g.params.sampling.n_prompt_logprobs = -1;
    strcpy(f->g.id, chat ? "chatcmpl-1" : "cmpl-1");
    f->g.created = 1700000000;
    f->g.seqs = &f->seq;
    atomic_store(&f->g.n_seqs, 1);
    f->prompt[0] = TOK_A;
    f->prompt[1] = TOK_SP_C;
    f->prompt[2] = TOK_B;
    f->seq = (struct api_seq){.call = &f->c,
                              .prompt = f->prompt,
                              .n_prompt = 3,
                              .stop_token = -1,
                              .stop_string = -1,
                              .n_generated = 2,
                              .n_cached = 1};
    return f;
}

static void drop(struct fixture *f)
{
    qr_json_free(&f->doc);
    pieces_fini(&f->seq.pieces);
    qr_buf_fini(&f->seq.text);
    qr_buf_fini(&f->out);
    qr_tokenizer_free(&f->tok);
    qr_free(f->a);
    qr_free(f);
}

// Parses what was rendered, strictly, behind `skip` bytes and without `tail` bytes.
static qr_json *parsed(struct fixture *f, size_t skip, size_t tail)
{
    struct qr_error err = {0};
    assert_false(f->out.failed);
    qr_json_free(&f->doc);
    if (qr_json_parse(f->out.data + skip, f->out.len - skip - tail, 16, &f->doc, &err) != QR_OK)
        fail_msg("%s in %s", err.msg, f->out.data);
    return qr_json_root(f->doc);
}

static qr_json *event(struct fixture *f)
{
    assert_memory_equal(f->out.data, "data: ", 6);
    assert_memory_equal(f->out.data + f->out.len - 2, "\n\n", 2);
    assert_null(memchr(f->out.data, '\n', f->out.len - 2)); // one line
    return parsed(f, 6, 2);
}

// The value rendered as text must be `want`.
static void expect(qr_json *v, const char *want)
{
    struct qr_buf b = {0};
    qr_json_render(v, &b);
    assert_string_equal(b.data, want);
    qr_buf_fini(&b);
}

static struct qr_gen_token token(int32_t id, float logprob)
{
    return (struct qr_gen_token){.id = id, .logprob = logprob, .rank = 1};
}

QR_TEST(render_completion_answer)
{
    struct fixture *f = make(false);
    qr_buf_str(&f->seq.text, "a\"\n\xC3\xA9");
    f->seq.done = true;
    f->seq.finish = QR_FINISH_STOP;
    f->seq.stop_token = TOK_B;
    render_answer(&f->c, &f->out);
    qr_json *r = parsed(f, 0, 0), *choice = qr_json_at(qr_json_get(r, "choices"), 0);
    expect(qr_json_get(r, "id"), "\"cmpl-1\"");
    expect(qr_json_get(r, "object"), "\"text_completion\"");
    expect(qr_json_get(r, "model"), "\"m\\\"1\"");
    expect(qr_json_get(choice, "text"), "\"a\\\"\\n\xC3\xA9\"");
    expect(qr_json_get(choice, "logprobs"), "null");
    expect(qr_json_get(choice, "finish_reason"), "\"stop\"");
    expect(qr_json_get(choice, "stop_reason"), "1");
    expect(qr_json_get(r, "usage"), "{\"prompt_tokens\":3,\"total_tokens\":5,\"completion_tokens\":2,"
                                    "\"prompt_tokens_details\":{\"cached_tokens\":1}}");
    expect(qr_json_get(r, "system_fingerprint"), "\"quire-0-1\"");
    drop(f);
}

QR_TEST(render_completion_logprobs_with_echo)
{
    struct fixture *f = make(false);
    f->g.params.echo = f->g.params.return_token_ids = true;
    f->g.params.sampling.n_logprobs = f->g.params.sampling.n_prompt_logprobs = 2;
    pieces_begin(&f->seq);
    struct qr_gen_token t = token(TOK_SP_C, -0.5f);
    t.is_prompt = true;
    t.n_top = 2;
    t.top[0] = (struct qr_top){TOK_SP_C, -0.5f};
    t.top[1] = (struct qr_top){TOK_B, -1.5f};
    pieces_add(&f->seq, &t);
    t = token(TOK_B, -__builtin_inff());
    t.is_prompt = true;
    pieces_add(&f->seq, &t);
    t = token(TOK_C3, -0.25f); // shows as U+FFFD, and so does the most likely other
    t.n_top = 2;
    t.top[0] = (struct qr_top){TOK_A9, -0.125f};
    t.top[1] = (struct qr_top){TOK_A, -2};
    pieces_add(&f->seq, &t);
    pieces_add(&f->seq, &(struct qr_gen_token){.id = TOK_END, .logprob = -1});
    f->seq.done = true;
    f->seq.finish = QR_FINISH_LENGTH;
    render_answer(&f->c, &f->out);
    qr_json *choice = qr_json_at(qr_json_get(parsed(f, 0, 0), "choices"), 0),
            *lp = qr_json_get(choice, "logprobs");
    expect(qr_json_get(lp, "tokens"), "[\"a\",\" c\",\"b\",\"\xEF\xBF\xBD\",\"<|end|>\"]");
    expect(qr_json_get(lp, "token_logprobs"), "[null,-0.5,-9999.0,-0.25,-1.0]");
    expect(qr_json_get(lp, "text_offset"), "[0,1,3,4,5]");
    expect(qr_json_get(lp, "top_logprobs"),
           "[null,{\" "
           "c\":-0.5,\"b\":-1.5},{\"b\":-9999.0},{\"\xEF\xBF\xBD\":-0.25,\"a\":-2.0},{\"<|end|>\":-1.0}]");
    expect(qr_json_get(choice, "token_ids"), "[3,5]");
    expect(qr_json_get(choice, "prompt_token_ids"), "[0,2,1]");
    expect(qr_json_get(choice, "finish_reason"), "\"length\"");
    drop(f);
}

QR_TEST(render_chat_logprobs_carry_bytes)
{
    struct fixture *f = make(true);
    f->g.params.sampling.n_logprobs = 1;
    f->g.params.prompt_logprobs = 0;
    pieces_begin(&f->seq);
    struct qr_gen_token t = token(TOK_B, -0.5f);
    t.is_prompt = true;
    t.rank = 7;
    pieces_add(&f->seq, &t);
    t = token(TOK_C3, -0.25f);
    t.n_top = 1;
    t.top[0] = (struct qr_top){TOK_QUOTE, -0.125f};
    pieces_add(&f->seq, &t);
    qr_buf_str(&f->seq.text, "x");
    f->seq.done = true;
    f->seq.finish = QR_FINISH_STOP;
    f->g.params.stops[0] = (struct qr_text_span){"END", 3};
    f->g.params.n_stops = 1;
    f->seq.stop_string = 0;
    render_answer(&f->c, &f->out);
    qr_json *r = parsed(f, 0, 0), *choice = qr_json_at(qr_json_get(r, "choices"), 0);
    expect(qr_json_get(r, "object"), "\"chat.completion\"");
    expect(qr_json_get(qr_json_get(choice, "message"), "content"), "\"x\"");
    expect(qr_json_get(qr_json_get(choice, "message"), "role"), "\"assistant\"");
    expect(qr_json_get(choice, "logprobs"),
           "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-0.25,\"bytes\":[195],\"top_logprobs\":"
           "[{\"token\":\"\\\"\",\"logprob\":-0.125,\"bytes\":[34]}]}]}");
    expect(qr_json_get(choice, "stop_reason"), "\"END\"");
    expect(qr_json_get(r, "prompt_logprobs"),
           "[null,{\"1\":{\"logprob\":-0.5,\"rank\":7,\"decoded_token\":\"b\"}}]");
    drop(f);
}

QR_TEST(render_chat_events)
{
    struct fixture *f = make(true);
    f->g.params.include_usage = true;
    render_role(&f->seq, &f->out);
    qr_json *r = event(f), *choice = qr_json_at(qr_json_get(r, "choices"), 0);
    expect(qr_json_get(r, "object"), "\"chat.completion.chunk\"");
    expect(qr_json_get(choice, "delta"), "{\"role\":\"assistant\",\"content\":\"\"}");
    expect(qr_json_get(choice, "finish_reason"), "null");
    assert_null(qr_json_get(r, "usage"));
    qr_buf_clear(&f->out);
    qr_buf_str(&f->seq.text, "hi");
    render_chunk(&f->seq, &f->out);
    choice = qr_json_at(qr_json_get(event(f), "choices"), 0);
    expect(qr_json_get(choice, "delta"), "{\"content\":\"hi\"}");
    assert_null(qr_json_get(choice, "stop_reason"));
    assert_int_equal(f->seq.text.len, 0); // sent
    qr_buf_clear(&f->out);
    f->seq.done = true;
    f->seq.finish = QR_FINISH_LENGTH;
    render_chunk(&f->seq, &f->out);
    r = event(f);
    choice = qr_json_at(qr_json_get(r, "choices"), 0);
    expect(qr_json_get(choice, "delta"), "{\"content\":\"\"}");
    expect(qr_json_get(choice, "finish_reason"), "\"length\"");
    expect(qr_json_get(choice, "stop_reason"), "null");
    assert_non_null(qr_json_get(r, "system_fingerprint"));
    qr_buf_clear(&f->out);
    render_usage_chunk(&f->c, &f->out);
    r = event(f);
    expect(qr_json_get(r, "choices"), "[]");
    expect(qr_json_get(qr_json_get(r, "usage"), "completion_tokens"), "2");
    drop(f);
}

QR_TEST(render_completion_events)
{
    struct fixture *f = make(false);
    f->g.params.include_usage = f->g.params.continuous_usage = f->g.params.return_token_ids = true;
    f->g.params.sampling.n_logprobs = 0;
    pieces_add(&f->seq, &(struct qr_gen_token){.id = TOK_A, .logprob = -1});
    qr_buf_str(&f->seq.text, "a");
    render_chunk(&f->seq, &f->out);
    qr_json *r = event(f), *choice = qr_json_at(qr_json_get(r, "choices"), 0);
    expect(qr_json_get(choice, "text"), "\"a\"");
    expect(qr_json_get(choice, "token_ids"), "[0]");
    expect(qr_json_get(choice, "prompt_token_ids"), "[0,2,1]");
    expect(qr_json_get(qr_json_get(choice, "logprobs"), "text_offset"), "[0]");
    assert_non_null(qr_json_get(r, "usage"));
    qr_buf_clear(&f->out);
    pieces_add(&f->seq, &(struct qr_gen_token){.id = TOK_B, .logprob = -1});
    qr_buf_str(&f->seq.text, "b");
    render_chunk(&f->seq, &f->out);
    choice = qr_json_at(qr_json_get(event(f), "choices"), 0);
    expect(qr_json_get(choice, "token_ids"), "[1]"); // only its own
    assert_null(qr_json_get(choice, "prompt_token_ids"));
    expect(qr_json_get(qr_json_get(choice, "logprobs"), "text_offset"), "[1]");
    drop(f);
}

QR_TEST(render_out_of_memory_is_noticed)
{
    struct fixture *f = make(false);
    f->g.params.sampling.n_logprobs = 0;
    f->g.params.return_token_ids = true;
    bool failed = true;
    int n_failed = 0;
    for (uint64_t n = 1; failed && n < 200; n++) {
        pieces_fini(&f->seq.pieces);
        qr_buf_fini(&f->seq.text);
        qr_buf_fini(&f->out);
        qr_mem_fail_at(n, 1);
        pieces_add(&f->seq, &(struct qr_gen_token){.id = TOK_A, .logprob = -1});
        qr_buf_str(&f->seq.text, "a");
        render_answer(&f->c, &f->out);
        qr_mem_fail_at(0, 0);
        failed = f->out.failed;
        n_failed += failed;
    }
    assert_false(failed);
    assert_true(n_failed >= 7); // the text, the answer, and each of the pieces
    parsed(f, 0, 0);
    drop(f);
}

// --- Errors and keys ---

QR_TEST(error_bodies_are_small_and_valid)
{
    char body[1024], message[600];
    memset(message, '\\', sizeof message - 1); // grows when it is escaped
    message[sizeof message - 1] = 0;
    static const char *const messages[] = {"plain", "quote \" and \xFF\xC3 bytes", NULL};
    for (int i = 0; i < 3; i++) {
        struct qr_json_doc *doc = NULL;
        size_t n =
            error_render(400, messages[i] ? messages[i] : message, i ? "prompt" : "", body, sizeof body);
        assert_true(n > 0 && n <= 1024);
        assert_int_equal(qr_json_parse(body, n, 4, &doc, NULL), QR_OK);
        qr_json *e = qr_json_get(qr_json_root(doc), "error");
        expect(qr_json_get(e, "code"), "400");
        expect(qr_json_get(e, "type"), "\"BadRequestError\"");
        if (!messages[i])
            assert_non_null(qr_json_get(e, "message"));
        else
            expect(qr_json_get(e, "param"), i ? "\"prompt\"" : "null");
        qr_json_free(&doc);
    }
}

QR_TEST(auth_takes_bearer_and_x_api_key)
{
    const char *keys[] = {"secret", "other"};
    struct api_conf none = {0}, two = {.keys = keys, .n_keys = 2};
    unsigned key = 9;
    assert_true(auth_ok(&none, NULL, NULL, &key));
    assert_int_equal(key, 0);
    assert_false(auth_ok(&two, NULL, NULL, &key));
    assert_true(auth_ok(&two, "Bearer secret", NULL, &key));
    assert_int_equal(key, 1);
    assert_true(auth_ok(&two, "bearer other", NULL, &key));
    assert_int_equal(key, 2); // who shares with whom
    assert_true(auth_ok(&two, NULL, "other", &key));
    assert_true(auth_ok(&two, "Basic x", "secret", &key));
    assert_false(auth_ok(&two, "Bearer secre", NULL, &key));
    assert_false(auth_ok(&two, "Bearer secrets", NULL, &key));
    assert_false(auth_ok(&two, "secret", NULL, &key));
    assert_false(auth_ok(&two, "Bearer ", "", &key));
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    const char *long_keys[] = {longer};
    struct api_conf one = {.keys = long_keys, .n_keys = 1};
    assert_false(auth_ok(&one, NULL, longer, &key)); // longer than any key may be: never equal by its first part
}

// --- Messages ---

static void check_messages(const char *in, const char *want)
{
    struct qr_json_doc *doc = NULL;
    struct qr_error err = {0};
    struct qr_buf out = {0};
    struct qr_json_writer w;
    assert_int_equal(qr_json_parse(in, strlen(in), 64, &doc, &err), QR_OK);
    qr_jw_init(&w, &out);
    enum qr_status rc = chat_messages(qr_json_root(doc), &w, &err);
    if (want) {
        if (rc != QR_OK) fail_msg("%s: %s", in, err.msg);
        assert_string_equal(out.data, want);
    } else if (rc == QR_OK || strcmp(err.param, "messages") != 0) {
        fail_msg("%s passed", in);
    }
    qr_buf_fini(&out);
    qr_json_free(&doc);
}

QR_TEST(messages_become_what_templates_expect)
{
    check_messages("[{\"role\":\"user\",\"content\":\"x\",\"name\":\"n\"}]",
                   "[{\"role\":\"user\",\"content\":\"x\",\"name\":\"n\"}]");
    check_messages("[{\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}],"
                   "\"role\":\"developer\"}]",
                   "[{\"role\":\"system\",\"content\":\"a\\nb\"}]");
    check_messages("[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":"
                   "\"function\",\"function\":"
                   "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
                   "1}\"}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_call_id\":\"1\"}]",
                   "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
                   "\"function\",\"function\":"
                   "{\"name\":\"f\",\"arguments\":{\"a\":1}}}]},{\"role\":\"tool\",\"content\":\"r\",\"tool_"
                   "call_id\":\"1\"}]");
    static const char *const bad[] = {
        "[]",
        "{}",
        "\"x\"",
        "[5]",
        "[{\"content\":\"x\"}]",
        "[{\"role\":\"robot\",\"content\":\"x\"}]",
        "[{\"role\":\"user\"}]",
        "[{\"role\":\"user\",\"content\":5}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]",
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
        "[{\"role\":\"user\",\"content\":[5]}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"[1]\"}}]}]",
        "[{\"role\":\"assistant\",\"tool_calls\":[5]}]",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) check_messages(bad[i], NULL);
}
