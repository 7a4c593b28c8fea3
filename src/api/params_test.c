#include "api/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static const struct api_limits limits = {
    .n_vocab = 49152, .max_model_len = 2048, .max_logprobs = 20, .default_temperature = -1};

// Parses {"prompt":"a",FIELDS} or {"messages":[],FIELDS}.
static enum qr_status parse(bool chat, const char *fields, struct api_params *p, struct qr_json_doc **doc,
                            struct qr_error *err)
{
    char text[4096];
    *err = (struct qr_error){0};
    *p = (struct api_params){0};
    snprintf(text, sizeof text, "{%s%s%s}", chat ? "\"messages\":[]" : "\"prompt\":\"a\"", *fields ? "," : "",
             fields);
    enum qr_status rc = qr_json_parse(text, strlen(text), QR_JSON_DEPTH_MAX, doc, err);
    if (rc != QR_OK) return rc;
    return api_params_parse(qr_json_root(*doc), chat, &limits, p, err);
}

struct bad {
    const char *fields, *param;
};

static void refuse_all(bool chat, const struct bad *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct api_params p;
        struct qr_error err;
        struct qr_json_doc *doc = NULL;
        enum qr_status rc = parse(chat, rows[i].fields, &p, &doc, &err);
        if (rc == QR_OK || strcmp(err.param, rows[i].param) != 0 || err.msg[0] == 0)
            fail_msg("%s: status %d, param \"%s\", message \"%s\"", rows[i].fields, rc, err.param, err.msg);
        qr_json_free(&doc);
    }
}

static const struct bad bad_values[] = {
    // Rows 7, 8, 11 and 27 of the list of inputs that broke other servers.
    {"\"max_tokens\":0", "max_tokens"},
    {"\"max_tokens\":-1", "max_tokens"},
    {"\"max_tokens\":\"16\"", "max_tokens"},
    {"\"max_tokens\":1.5", "max_tokens"},
    {"\"max_tokens\":1e30", "max_tokens"},
    {"\"max_tokens\":true", "max_tokens"},
    {"\"use_beam_search\":1", "use_beam_search"},
    {"\"length_penalty\":2", "length_penalty"},
    {"\"use_beam_search\":true,\"n\":65", "n"},
    {"\"use_beam_search\":true,\"length_penalty\":1e30", "length_penalty"},
    {"\"use_beam_search\":true,\"early_stopping\":\"always\"", "early_stopping"},
    {"\"use_beam_search\":true,\"early_stopping\":1", "early_stopping"},
    {"\"use_beam_search\":true,\"stop\":\"a\"", "stop"},
    {"\"use_beam_search\":true,\"top_p\":0.5", "top_p"},
    {"\"use_beam_search\":true,\"top_k\":5", "top_k"},
    {"\"use_beam_search\":true,\"min_p\":0.1", "min_p"},
    {"\"use_beam_search\":true,\"presence_penalty\":1", "presence_penalty"},
    {"\"use_beam_search\":true,\"frequency_penalty\":1", "frequency_penalty"},
    {"\"use_beam_search\":true,\"repetition_penalty\":1.1", "repetition_penalty"},
    {"\"use_beam_search\":true,\"logit_bias\":{\"5\":1}", "logit_bias"},
    {"\"use_beam_search\":true,\"allowed_token_ids\":[5]", "allowed_token_ids"},
    {"\"use_beam_search\":true,\"bad_words\":[\"a\"]", "bad_words"},
    {"\"use_beam_search\":true,\"prompt_logprobs\":0", "prompt_logprobs"},
    {"\"n\":1000000", "n"},
    {"\"n\":0", "n"},
    {"\"n\":-1", "n"},
    {"\"n\":65", "n"},
    {"\"best_of\":100000", "best_of"},
    {"\"best_of\":2", "best_of"},
    {"\"n\":3,\"best_of\":4", "best_of"},
    {"\"logit_bias\":{\"999999999\":1}", "logit_bias"},
    {"\"logit_bias\":{\"-1\":1}", "logit_bias"},
    {"\"logit_bias\":{\"abc\":1}", "logit_bias"},
    {"\"logit_bias\":{\"5\":\"x\"}", "logit_bias"},
    {"\"logit_bias\":{\"05\":1}", "logit_bias"},
    {"\"logit_bias\":{\"\":1}", "logit_bias"},
    {"\"logit_bias\":[]", "logit_bias"},
    {"\"logit_bias\":{\"49152\":1}", "logit_bias"},
    {"\"stop_token_ids\":[999999999]", "stop_token_ids"},
    {"\"stop_token_ids\":[\"1\"]", "stop_token_ids"},
    {"\"stop_token_ids\":5", "stop_token_ids"},
    {"\"allowed_token_ids\":[]", "allowed_token_ids"},
    {"\"allowed_token_ids\":[-5]", "allowed_token_ids"},
    {"\"allowed_token_ids\":[1.5]", "allowed_token_ids"},
    {"\"temperature\":-1", "temperature"},
    {"\"temperature\":3", "temperature"},
    {"\"temperature\":\"0.7\"", "temperature"},
    {"\"temperature\":true", "temperature"},
    {"\"top_p\":0", "top_p"},
    {"\"top_p\":1.0001", "top_p"},
    {"\"top_k\":-2", "top_k"},
    {"\"top_k\":1.5", "top_k"},
    {"\"min_p\":2", "min_p"},
    {"\"repetition_penalty\":0", "repetition_penalty"},
    {"\"presence_penalty\":2.5", "presence_penalty"},
    {"\"frequency_penalty\":-2.5", "frequency_penalty"},
    {"\"seed\":9223372036854775808", "seed"},
    {"\"seed\":\"1\"", "seed"},
    {"\"logprobs\":-2", "logprobs"},
    {"\"logprobs\":\"5\"", "logprobs"},
    {"\"logprobs\":100000", "logprobs"},
    {"\"logprobs\":true", "logprobs"},
    {"\"logprobs\":-1", "logprobs"},
    {"\"prompt_logprobs\":21", "prompt_logprobs"},
    {"\"prompt_logprobs\":1,\"stream\":true", "prompt_logprobs"},
    {"\"min_tokens\":5,\"max_tokens\":2", "min_tokens"},
    {"\"min_tokens\":17", "min_tokens"},
    {"\"priority\":1e30", "priority"},
    {"\"timeout\":0", "timeout"},
    {"\"timeout\":\"5\"", "timeout"},
    {"\"stop\":[\"\",\"a\"]", "stop"},
    {"\"stop\":\"\"", "stop"},
    {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\"]", "stop"},
    {"\"stop\":[1]", "stop"},
    {"\"stop\":5", "stop"},
    {"\"cache_salt\":\"\"", "cache_salt"},
    {"\"cache_salt\":\"a/b\"", "cache_salt"},
    {"\"bad_words\":[\"\"]", "bad_words"},
    {"\"bad_words\":\"x\"", "bad_words"},
    {"\"stream\":1", "stream"},
    {"\"stream\":\"true\"", "stream"},
    {"\"stream_options\":{\"include_usage\":true}", "stream_options"},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options"},
    {"\"stream_options\":[]", "stream_options"},
    {"\"truncate_prompt_tokens\":-2", "truncate_prompt_tokens"},
    {"\"truncation_side\":\"up\"", "truncation_side"},
    {"\"model\":5", "model"},
    {"\"echo\":\"x\"", "echo"},
    // Known and not supported: never in silence.
    {"\"suffix\":\"x\"", "suffix"},
    {"\"prompt_embeds\":\"AA\"", "prompt_embeds"},
    {"\"length_penalty\":0.5", "length_penalty"},
    {"\"guided_json\":{}", "guided_json"},
    {"\"guided_choice\":[\"a\"]", "guided_choice"},
    {"\"structured_outputs\":{\"regex\":\"a\"}", "structured_outputs"},
    {"\"priority\":3", "priority"},
    {"\"response_format\":{\"type\":\"json_object\"}", "response_format"},
    {"\"response_format\":{}", "response_format"},
    {"\"response_format\":\"text\"", "response_format"},
    {"\"return_tokens_as_token_ids\":true", "return_tokens_as_token_ids"},
    {"\"spaces_between_special_tokens\":false", "spaces_between_special_tokens"},
    {"\"repetition_detection\":{}", "repetition_detection"},
    {"\"logprob_token_ids\":[1]", "logprob_token_ids"},
};

QR_TEST(params_priority_needs_a_policy_that_knows_it)
{
    struct api_params p;
    struct qr_error err;
    struct qr_json_doc *doc = NULL;
    assert_int_equal(parse(true, "\"priority\":-4", &p, &doc, &err), QR_EINVAL);
    assert_string_equal(err.param, "priority");
    assert_non_null(strstr(err.msg, "scheduling policy is fcfs"));
    qr_json_free(&doc);
    struct api_limits lim = limits;
    lim.policy = "priority", lim.takes_priority = true;
    static const char text[] = "{\"prompt\":\"a\",\"priority\":-4,\"timeout\":2.5}";
    assert_int_equal(qr_json_parse(text, sizeof text - 1, 8, &doc, &err), QR_OK);
    assert_int_equal(api_params_parse(qr_json_root(doc), false, &lim, &p, &err), QR_OK);
    assert_int_equal(p.priority, -4);
    assert_true(p.timeout == 2.5);
    api_params_fini(&p);
    qr_json_free(&doc);
}

QR_TEST(params_refuse_bad_values_by_name)
{
    refuse_all(false, bad_values, sizeof bad_values / sizeof bad_values[0]);
}

QR_TEST(params_refuse_bad_chat_values_by_name)
{
    static const struct bad rows[] = {
        {"\"logprobs\":5", "logprobs"},
        {"\"top_logprobs\":3", "top_logprobs"},
        {"\"logprobs\":true,\"top_logprobs\":21", "top_logprobs"},
        {"\"logprobs\":true,\"top_logprobs\":-1", "top_logprobs"},
        {"\"max_tokens\":0", "max_tokens"},
        {"\"max_completion_tokens\":0", "max_completion_tokens"},
        {"\"max_tokens\":0,\"echo\":true", "max_tokens"},
        {"\"tools\":[]", "tools"},
        {"\"tools\":[{}]", "tools"},
        {"\"tool_choice\":\"none\"", "tool_choice"},
        {"\"functions\":[]", "functions"},
        {"\"reasoning_effort\":\"low\"", "reasoning_effort"},
        {"\"documents\":[{}]", "documents"},
        {"\"chat_template\":\"{% for i in range(999999999) %}x{% endfor %}\"", "chat_template"},
        {"\"chat_template_kwargs\":{\"tokenize\":true}", "chat_template_kwargs"},
        {"\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs"},
        {"\"chat_template_kwargs\":{\"add_generation_prompt\":\"x\"}", "chat_template_kwargs"},
        {"\"chat_template_kwargs\":[]", "chat_template_kwargs"},
        {"\"add_generation_prompt\":1", "add_generation_prompt"},
        {"\"continue_final_message\":true,\"add_generation_prompt\":true", "continue_final_message"},
        {"\"parallel_tool_calls\":1", "parallel_tool_calls"},
    };
    refuse_all(true, rows, sizeof rows / sizeof rows[0]);
}

QR_TEST(params_let_neutral_values_pass)
{
    static const char *const both[] = {
        "\"best_of\":1",
        "\"best_of\":null",
        "\"n\":null",
        "\"n\":1",
        "\"suffix\":null",
        "\"priority\":0",
        "\"length_penalty\":1.0",
        "\"use_beam_search\":false",
        "\"logit_bias\":{}",
        "\"logit_bias\":null",
        "\"stop\":[]",
        "\"stop\":null",
        "\"seed\":-1",
        "\"response_format\":{\"type\":\"text\"}",
        "\"response_format\":null",
        "\"user\":\"x\"",
        "\"stop_token_ids\":[]",
        "\"top_k\":0",
        "\"top_k\":-1",
        "\"max_tokens\":null",
        "\"max_tokens\":16.0",
        "\"temperature\":0",
        "\"cache_salt\":\"abc\"",
        "\"guided_json\":null",
        "\"stream_options\":null",
        "\"stream\":null",
        "\"thinking_token_budget\":-1",
        "\"bad_words\":[]",
        "\"model\":null",
        "\"seed\":9223372036854775807",
        "\"seed\":-9223372036854775808",
        "\"min_tokens\":16,\"max_tokens\":16",
    };
    static const char *const chat[] = {
        "\"tools\":null",
        "\"tool_choice\":null",
        "\"parallel_tool_calls\":false",
        "\"include_reasoning\":true",
        "\"documents\":[]",
        "\"chat_template_kwargs\":{}",
        "\"chat_template_kwargs\":{\"enable_thinking\":false}",
        "\"top_logprobs\":0",
        "\"logprobs\":false",
        "\"chat_template\":null",
        "\"continue_final_message\":true",
        "\"logprobs\":true,\"top_logprobs\":20",
    };
    for (size_t i = 0; i < sizeof both / sizeof both[0] + sizeof chat / sizeof chat[0]; i++) {
        bool is_chat = i >= sizeof both / sizeof both[0];
        const char *fields = is_chat ? chat[i - sizeof both / sizeof both[0]] : both[i];
        struct api_params p;
        struct qr_error err;
        struct qr_json_doc *doc = NULL;
        if (parse(is_chat, fields, &p, &doc, &err) != QR_OK) fail_msg("%s: %s", fields, err.msg);
        assert_string_equal(p.ignored, "");
        api_params_fini(&p);
        qr_json_free(&doc);
    }
}

QR_TEST(params_become_sampling)
{
    struct api_params p;
    struct qr_error err;
    struct qr_json_doc *doc = NULL;
    assert_int_equal(
        parse(
            false,
            "\"temperature\":0.7,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.1,\"max_tokens\":7,\"min_tokens\":2,"
            "\"logit_bias\":{\"5\":1e9,\"7\":-3},\"stop\":[\"a\",\"bc\"],\"stop_token_ids\":[3],\"seed\":42,"
            "\"presence_penalty\":1,\"frequency_penalty\":-1,\"repetition_penalty\":1.5,\"logprobs\":3,"
            "\"echo\":true,"
            "\"foo\":1,\"bar-x\":{},\"bad\\nname\":1",
            &p, &doc, &err),
        QR_OK);
    assert_true(fabsf(p.sampling.temperature - 0.7f) < 1e-6f);
    assert_int_equal(p.sampling.top_k, 40);
    assert_int_equal(p.sampling.max_tokens, 7);
    assert_int_equal(p.sampling.min_tokens, 2);
    assert_int_equal(p.sampling.n_bias, 2);
    assert_true(p.sampling.bias[0].id == 5 && p.sampling.bias[0].value == 100);
    assert_true(p.sampling.bias[1].id == 7 && p.sampling.bias[1].value == -3);
    assert_int_equal(p.n_stops, 2);
    assert_int_equal(p.sampling.n_stop_ids, 1);
    assert_int_equal(p.seed, 42);
    assert_int_equal(p.sampling.n_logprobs, 3);
    assert_int_equal(p.sampling.n_prompt_logprobs, 3); // echo with logprobs scores the prompt
    assert_string_equal(p.ignored, "foo, bar-x, bad%0Aname");
    api_params_fini(&p);
    qr_json_free(&doc);
}

static void expect_ignored(const char *fields, const char *list)
{
    struct api_params p;
    struct qr_error err;
    struct qr_json_doc *doc = NULL;
    assert_int_equal(parse(false, fields, &p, &doc, &err), QR_OK);
    assert_string_equal(p.ignored, list);
    api_params_fini(&p);
    qr_json_free(&doc);
}

QR_TEST(params_list_every_unknown_name)
{
    expect_ignored("\"b\xc3\xa4r\":1", "b%C3%A4r");
    expect_ignored("\"a b\":1,\"c,d\":2,\"100%\":3,\"\":4", "a%20b, c%2Cd, 100%25, \"\"");
    expect_ignored("\"a\\u0000b\":1", "a%00b");
    char fields[4096] = "", want[4096] = "";
    memset(want, 'n', 64);
    snprintf(fields, sizeof fields, "\"%s\":1,\"%sm\":1", want, want);
    strcat(want, ", ");
    memset(want + 66, 'n', 64);
    strcat(want, "...");
    expect_ignored(fields, want);
    // More than there is room for: whole names, and a mark.
    size_t n = 0;
    for (int i = 0; i < 100; i++) n += (size_t)sprintf(fields + n, "%s\"field-%02d\":1", i ? "," : "", i);
    n = 0;
    for (int i = 0; i < 50; i++) n += (size_t)sprintf(want + n, "field-%02d, ", i);
    strcat(want, "...");
    expect_ignored(fields, want);
}

QR_TEST(params_refusals_say_what_is_wanted)
{
    static const struct {
        bool chat;
        const char *fields, *says;
    } rows[] = {
        {true, "\"max_tokens\":-1", "`max_tokens` must be at least 1."},
        {true, "\"max_tokens\":0", "`max_tokens` must be at least 1."},
        {true, "\"max_completion_tokens\":-7", "`max_completion_tokens` must be at least 1."},
        {false, "\"max_tokens\":-1", "`max_tokens` must be at least 1, or 0 with `echo`."},
        {false, "\"max_tokens\":0", "`max_tokens` must be at least 1, or 0 with `echo`."},
        {false, "\"n\":2.5", "`n` must be an integer, got 2.5."},
        {false, "\"seed\":1e30", "`seed` must be an integer of 64 bits, got 1e+30."},
        {false, "\"n\":65", "`n` must be between 1 and 64."},
        {false, "\"user\":5", "`user` must be a string"},
        {false, "\"request_id\":\"a\\nb\"", "`request_id` must be 1 to 128 letters, digits"},
        {false, "\"request_id\":\"\"", "`request_id` must be 1 to 128"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct api_params p;
        struct qr_error err;
        struct qr_json_doc *doc = NULL;
        assert_int_equal(parse(rows[i].chat, rows[i].fields, &p, &doc, &err), QR_EINVAL);
        if (!strstr(err.msg, rows[i].says)) fail_msg("%s: %s", rows[i].fields, err.msg);
        qr_json_free(&doc);
    }
}

QR_TEST(params_defaults_are_openais)
{
    struct api_params p;
    struct qr_error err;
    struct qr_json_doc *doc = NULL;
    assert_int_equal(parse(false, "", &p, &doc, &err), QR_OK);
    assert_int_equal(p.sampling.max_tokens, 16);
    assert_true(p.sampling.temperature == 1 && p.sampling.top_p == 1 && p.sampling.repetition == 1);
    assert_true(p.add_special && p.skip_special);
    assert_int_equal(p.sampling.n_logprobs, -1);
    qr_json_free(&doc);
    assert_int_equal(
        parse(true, "\"max_tokens\":5,\"max_completion_tokens\":9,\"logprobs\":true", &p, &doc, &err), QR_OK);
    assert_int_equal(p.sampling.max_tokens, 9);
    assert_false(p.add_special);
    assert_int_equal(p.sampling.n_logprobs, 0);
    qr_json_free(&doc);
    assert_int_equal(parse(true, "\"temperature\":0,\"top_p\":0.5,\"top_k\":3,\"min_p\":0.5", &p, &doc, &err),
                     QR_OK);
    assert_int_equal(p.sampling.max_tokens, -1);
    assert_true(p.sampling.temperature == 0 && p.sampling.top_p == 1 && p.sampling.top_k == 0 &&
                p.sampling.min_p == 0);
    qr_json_free(&doc);
    assert_int_equal(parse(true, "\"temperature\":0.001", &p, &doc, &err), QR_OK);
    assert_true(p.sampling.temperature == 0.01f);
    qr_json_free(&doc);
}

QR_TEST(params_need_an_object_with_a_prompt)
{
    static const struct {
        const char *text;
        bool chat;
        const char *param;
    } rows[] = {{"{}", false, "prompt"},
                {"{\"prompt\":null}", false, "prompt"},
                {"{}", true, "messages"},
                {"[]", false, ""},
                {"5", true, ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct api_params p;
        struct qr_error err = {0};
        struct qr_json_doc *doc = NULL;
        assert_int_equal(qr_json_parse(rows[i].text, strlen(rows[i].text), 64, &doc, &err), QR_OK);
        assert_int_equal(api_params_parse(qr_json_root(doc), rows[i].chat, &limits, &p, &err), QR_EINVAL);
        assert_string_equal(err.param, rows[i].param);
        qr_json_free(&doc);
    }
}

QR_TEST(params_survive_every_failed_allocation)
{
    static const char *const fields =
        "\"logit_bias\":{\"5\":1},\"stop_token_ids\":[3],\"allowed_token_ids\":[1,2],\"stop\":\"x\"";
    struct qr_json_doc *doc = NULL;
    char text[512];
    struct qr_error err;
    snprintf(text, sizeof text, "{\"prompt\":\"a\",%s}", fields);
    assert_int_equal(qr_json_parse(text, strlen(text), QR_JSON_DEPTH_MAX, &doc, &err), QR_OK);
    enum qr_status rc = QR_ENOMEM;
    for (uint64_t n = 1; rc == QR_ENOMEM && n < 100; n++) {
        struct api_params p;
        qr_mem_fail_at(n, 0);
        rc = api_params_parse(qr_json_root(doc), false, &limits, &p, &err);
        qr_mem_fail_at(0, 0);
        if (rc == QR_OK)
            api_params_fini(&p);
        else
            assert_int_equal(err.code, QR_ENOMEM);
    }
    assert_int_equal(rc, QR_OK);
    qr_json_free(&doc);
}
