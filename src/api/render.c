/* Answers, chunks, and the pieces that logprobs are made of. */
#include "api/api_internal.h"

#include <string.h>

#include "base/assert.h"

// --- Values ---

static void put_str(struct qr_buf *b, const char *s, size_t bytes)
{
    struct qr_json_writer w;
    qr_jw_init(&w, b);
    qr_jw_strn(&w, s, bytes);
}

static void put_text(struct qr_buf *b, const struct qr_buf *text)
{
    put_str(b, text->data ? text->data : "", text->len);
}

static void put_double(struct qr_buf *b, double v)
{
    struct qr_json_writer w;
    qr_jw_init(&w, b);
    qr_jw_double(&w, v);
}

// A comma, unless the piece is empty.
static void comma(struct qr_buf *b)
{
    if (b->len) qr_buf_char(b, ',');
}

static void put_array(struct qr_buf *b, const struct qr_buf *inside)
{
    qr_buf_char(b, '[');
    if (inside->len) qr_buf_add(b, inside->data, inside->len);
    qr_buf_char(b, ']');
}

static void put_ids(struct qr_buf *b, const int32_t *ids, size_t n)
{
    qr_buf_char(b, '[');
    for (size_t i = 0; i < n; i++) qr_buf_printf(b, "%s%d", i ? "," : "", ids[i]);
    qr_buf_char(b, ']');
}

static struct api_gen *gen_of(const struct call *c)
{
    return atomic_load(&((struct call *)c)->gen);
}

static const struct qr_tokenizer *tokenizer_of(const struct api_seq *s)
{
    return s->call->api->tok;
}

// --- Pieces ---

struct qr_text_span token_text(const struct qr_tokenizer *t, int32_t id)
{
    struct qr_text_span s = qr_tokenizer_bytes(t, id);
    return s.bytes == 0 || qr_tokenizer_is_special(t, id) ? qr_tokenizer_piece(t, id) : s;
}

bool wants_tokens(const struct api_params *p)
{
    return p->sampling.n_logprobs >= 0 || p->sampling.n_prompt_logprobs >= 0 || p->return_token_ids;
}

// Characters of the JSON string that begins at `at`, quotes not counted.
static int64_t json_chars(const struct qr_buf *b, size_t at)
{
    int64_t n = 0;
    if (b->failed) return 0;
    for (size_t i = at + 1; i + 1 < b->len; i++) {
        unsigned char ch = (unsigned char)b->data[i];
        if (ch == '\\')
            i += b->data[i + 1] == 'u' ? 5 : 1;
        else if ((ch & 0xC0) == 0x80)
            continue;
        n++;
    }
    return n;
}

// {"token": logprob, ...}: the token itself, then the most likely ones. Two tokens may show as the same text
// (halves of characters do); a name stands once, for the more likely.
static void put_top_map(struct qr_buf *b, const struct qr_tokenizer *t, const struct qr_gen_token *tok)
{
    size_t at[QR_LOGPROBS_MAX + 1], bytes[QR_LOGPROBS_MAX + 1];
    int n = 0;
    qr_buf_char(b, '{');
    for (int i = -1; i < tok->n_top && !b->failed; i++) {
        int32_t id = i < 0 ? tok->id : tok->top[i].id;
        if (i >= 0 && id == tok->id) continue;
        size_t before = b->len;
        struct qr_text_span s = token_text(t, id);
        if (n) qr_buf_char(b, ',');
        at[n] = b->len;
        put_str(b, s.data, s.bytes);
        if (b->failed) return;
        bytes[n] = b->len - at[n];
        bool twice = false;
        for (int k = 0; k < n; k++)
            twice |= bytes[k] == bytes[n] && memcmp(b->data + at[k], b->data + at[n], bytes[n]) == 0;
        if (twice) {
            b->len = before;
            continue;
        }
        n++;
        qr_buf_char(b, ':');
        put_double(b, i < 0 ? tok->logprob : tok->top[i].logprob);
    }
    qr_buf_char(b, '}');
}

// One entry of a completion's four parallel arrays. scored: false for the first prompt token.
static void add_completion_token(struct api_seq *s, const struct qr_gen_token *tok, bool scored)
{
    struct api_pieces *p = &s->pieces;
    const struct qr_tokenizer *t = tokenizer_of(s);
    struct qr_text_span text = token_text(t, tok->id);
    comma(&p->tokens);
    size_t at = p->tokens.len;
    put_str(&p->tokens, text.data, text.bytes);
    comma(&p->offsets);
    qr_buf_printf(&p->offsets, "%lld", (long long)s->chars);
    s->chars += json_chars(&p->tokens, at);
    comma(&p->logprobs);
    comma(&p->tops);
    if (scored) {
        put_double(&p->logprobs, tok->logprob);
        put_top_map(&p->tops, t, tok);
    } else {
        qr_buf_str(&p->logprobs, "null");
        qr_buf_str(&p->tops, "null");
    }
}

// token, logprob and bytes of chat's format.
static void put_chat_token(struct qr_buf *b, struct qr_text_span s, float logprob)
{
    qr_buf_str(b, "{\"token\":");
    put_str(b, s.data, s.bytes);
    qr_buf_str(b, ",\"logprob\":");
    put_double(b, logprob);
    qr_buf_str(b, ",\"bytes\":[");
    for (size_t i = 0; i < s.bytes; i++) qr_buf_printf(b, "%s%d", i ? "," : "", (unsigned char)s.data[i]);
    qr_buf_char(b, ']');
}

static void add_chat_token(struct api_seq *s, const struct qr_gen_token *tok)
{
    struct qr_buf *b = &s->pieces.content;
    const struct qr_tokenizer *t = tokenizer_of(s);
    comma(b);
    put_chat_token(b, token_text(t, tok->id), tok->logprob);
    qr_buf_str(b, ",\"top_logprobs\":[");
    for (int i = 0; i < tok->n_top; i++) {
        if (i) qr_buf_char(b, ',');
        put_chat_token(b, token_text(t, tok->top[i].id), tok->top[i].logprob);
        qr_buf_char(b, '}');
    }
    qr_buf_str(b, "]}");
}

static void put_prompt_entry(struct qr_buf *b, const struct qr_tokenizer *t, int32_t id, float logprob,
                             int rank)
{
    struct qr_text_span s = token_text(t, id);
    qr_buf_printf(b, "\"%d\":{\"logprob\":", id);
    put_double(b, logprob);
    qr_buf_printf(b, ",\"rank\":%d,\"decoded_token\":", rank);
    put_str(b, s.data, s.bytes);
    qr_buf_char(b, '}');
}

// vLLM's prompt_logprobs: {"id":{"logprob","rank","decoded_token"}, ...} per prompt token.
static void add_prompt_token(struct api_seq *s, const struct qr_gen_token *tok)
{
    struct qr_buf *b = &s->pieces.prompt;
    const struct qr_tokenizer *t = tokenizer_of(s);
    comma(b);
    qr_buf_char(b, '{');
    put_prompt_entry(b, t, tok->id, tok->logprob, tok->rank);
    for (int i = 0; i < tok->n_top; i++) {
        if (tok->top[i].id == tok->id) continue;
        qr_buf_char(b, ',');
        put_prompt_entry(b, t, tok->top[i].id, tok->top[i].logprob, i + 1);
    }
    qr_buf_char(b, '}');
}

static bool echoes_logprobs(const struct api_params *p)
{
    return !p->chat && p->echo && p->sampling.n_logprobs >= 0;
}

void pieces_begin(struct api_seq *s)
{
    const struct api_params *p = &gen_of(s->call)->params;
    struct qr_gen_token first = {.id = s->prompt[0]};
    if (echoes_logprobs(p)) add_completion_token(s, &first, false);
    if (p->prompt_logprobs >= 0) qr_buf_str(&s->pieces.prompt, "null");
}

void pieces_add(struct api_seq *s, const struct qr_gen_token *tok)
{
    const struct api_params *p = &gen_of(s->call)->params;
    if (tok->is_prompt) {
        if (echoes_logprobs(p)) add_completion_token(s, tok, true);
        if (p->prompt_logprobs >= 0) add_prompt_token(s, tok);
        return;
    }
    if (p->return_token_ids) {
        comma(&s->pieces.ids);
        qr_buf_printf(&s->pieces.ids, "%d", tok->id);
    }
    if (p->sampling.n_logprobs < 0) return;
    if (p->chat)
        add_chat_token(s, tok);
    else
        add_completion_token(s, tok, true);
}

static struct qr_buf *piece(struct api_pieces *p, int i)
{
    struct qr_buf *all[] = {&p->tokens,  &p->logprobs, &p->tops,  &p->offsets,
                            &p->content, &p->ids,      &p->prompt};
    return i < (int)(sizeof all / sizeof all[0]) ? all[i] : NULL;
}

bool pieces_empty(const struct api_pieces *p)
{
    return p->tokens.len == 0 && p->content.len == 0 && p->ids.len == 0;
}

static bool pieces_failed(struct api_pieces *p)
{
    bool failed = false;
    for (int i = 0; piece(p, i); i++) failed |= piece(p, i)->failed;
    return failed;
}

void pieces_fini(struct api_pieces *p)
{
    for (int i = 0; piece(p, i); i++) qr_buf_fini(piece(p, i));
}

// --- What answers and chunks share ---

static void put_head(struct qr_buf *b, const struct call *c, const char *object)
{
    const struct api_gen *g = gen_of(c);
    qr_buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", g->id, object,
                  (long long)g->created);
    put_str(b, c->api->model_name, strlen(c->api->model_name));
    qr_buf_str(b, ",\"choices\":[");
}

static void put_logprobs(struct qr_buf *b, struct api_seq *s)
{
    const struct api_params *p = &gen_of(s->call)->params;
    qr_buf_str(b, ",\"logprobs\":");
    if (p->sampling.n_logprobs < 0) {
        qr_buf_str(b, "null");
    } else if (p->chat) {
        qr_buf_str(b, "{\"content\":");
        put_array(b, &s->pieces.content);
        qr_buf_char(b, '}');
    } else {
        qr_buf_str(b, "{\"text_offset\":");
        put_array(b, &s->pieces.offsets);
        qr_buf_str(b, ",\"token_logprobs\":");
        put_array(b, &s->pieces.logprobs);
        qr_buf_str(b, ",\"tokens\":");
        put_array(b, &s->pieces.tokens);
        qr_buf_str(b, ",\"top_logprobs\":");
        put_array(b, &s->pieces.tops);
        qr_buf_char(b, '}');
    }
}

static void put_finish(struct qr_buf *b, struct api_seq *s)
{
    const struct api_params *p = &gen_of(s->call)->params;
    const char *name = s->done ? qr_finish_name(s->finish) : NULL;
    qr_buf_str(b, ",\"finish_reason\":");
    if (name)
        put_str(b, name, strlen(name));
    else
        qr_buf_str(b, "null");
    if (!s->done && p->chat) return; // chat says why it stopped only when it did
    qr_buf_str(b, ",\"stop_reason\":");
    if (s->stop_string >= 0 && (size_t)s->stop_string < p->n_stops)
        put_str(b, p->stops[s->stop_string].data, p->stops[s->stop_string].bytes);
    else if (s->stop_token >= 0)
        qr_buf_printf(b, "%d", s->stop_token);
    else
        qr_buf_str(b, "null");
}

static void put_token_ids(struct qr_buf *b, struct api_seq *s, bool with_prompt)
{
    const struct api_params *p = &gen_of(s->call)->params;
    if (!p->return_token_ids) return;
    qr_buf_str(b, ",\"token_ids\":");
    put_array(b, &s->pieces.ids);
    if (!with_prompt) return;
    qr_buf_str(b, ",\"prompt_token_ids\":");
    put_ids(b, s->prompt, s->n_prompt);
}

static void put_usage(struct qr_buf *b, const struct call *c)
{
    const struct api_gen *g = gen_of(c);
    long long prompt = 0, generated = 0, cached = 0;
    for (int i = 0; i < g->n_seqs; i++) {
        generated += g->seqs[i].n_generated;
        if (g->seqs[i].choice > 0) continue; // one prompt, computed once
        prompt += (long long)g->seqs[i].n_prompt;
        cached += g->seqs[i].n_cached;
    }
    qr_buf_printf(b,
                  "\"usage\":{\"prompt_tokens\":%lld,\"total_tokens\":%lld,\"completion_tokens\":%lld,"
                  "\"prompt_tokens_details\":{\"cached_tokens\":%lld}}",
                  prompt, prompt + generated, generated, cached);
}

static void put_fingerprint(struct qr_buf *b, const struct call *c)
{
    qr_buf_str(b, ",\"system_fingerprint\":");
    put_str(b, c->api->fingerprint, strlen(c->api->fingerprint));
}

// --- Answers ---

static void put_choice(struct qr_buf *b, struct api_seq *s)
{
    const struct api_params *p = &gen_of(s->call)->params;
    qr_buf_printf(b, "%s{\"index\":%d,", s->index ? "," : "", s->index);
    if (p->chat) {
        qr_buf_str(b, "\"message\":{\"role\":\"assistant\",\"content\":");
        put_text(b, &s->text);
        qr_buf_str(b, ",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,"
                      "\"reasoning\":null}");
    } else {
        qr_buf_str(b, "\"text\":");
        put_text(b, &s->text);
    }
    put_logprobs(b, s);
    put_finish(b, s);
    if (!p->chat) {
        qr_buf_str(b, ",\"prompt_logprobs\":");
        if (p->prompt_logprobs >= 0)
            put_array(b, &s->pieces.prompt);
        else
            qr_buf_str(b, "null");
    }
    put_token_ids(b, s, !p->chat);
    qr_buf_char(b, '}');
    if (s->text.failed || pieces_failed(&s->pieces)) b->failed = true;
}

void render_answer(struct call *c, struct qr_buf *out)
{
    struct api_gen *g = gen_of(c);
    bool chat = g->params.chat;
    put_head(out, c, chat ? "chat.completion" : "text_completion");
    for (int i = 0; i < g->n_seqs; i++) put_choice(out, &g->seqs[i]);
    qr_buf_str(out, "],\"service_tier\":null");
    put_fingerprint(out, c);
    qr_buf_char(out, ',');
    put_usage(out, c);
    if (chat) {
        qr_buf_str(out, ",\"prompt_logprobs\":");
        if (g->params.prompt_logprobs >= 0)
            put_array(out, &g->seqs[0].pieces.prompt);
        else
            qr_buf_str(out, "null");
        qr_buf_str(out, ",\"prompt_token_ids\":");
        if (g->params.return_token_ids)
            put_ids(out, g->seqs[0].prompt, g->seqs[0].n_prompt);
        else
            qr_buf_str(out, "null");
    }
    qr_buf_str(out, ",\"kv_transfer_params\":null}");
}

// --- Events ---

static const char *chunk_object(const struct api_params *p)
{
    return p->chat ? "chat.completion.chunk" : "text_completion";
}

static void put_continuous_usage(struct qr_buf *b, const struct call *c)
{
    const struct api_params *p = &gen_of(c)->params;
    if (!p->include_usage || !p->continuous_usage) return;
    qr_buf_char(b, ',');
    put_usage(b, c);
}

void render_role(struct api_seq *s, struct qr_buf *out)
{
    const struct api_params *p = &gen_of(s->call)->params;
    QR_ASSERT(p->chat);
    qr_buf_str(out, "data: ");
    put_head(out, s->call, chunk_object(p));
    qr_buf_printf(out,
                  "{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                  "\"finish_reason\":null}]",
                  s->index);
    if (p->return_token_ids) {
        qr_buf_str(out, ",\"prompt_token_ids\":");
        put_ids(out, s->prompt, s->n_prompt);
    }
    put_continuous_usage(out, s->call);
    qr_buf_str(out, "}\n\n");
}

void render_chunk(struct api_seq *s, struct qr_buf *out)
{
    const struct api_params *p = &gen_of(s->call)->params;
    qr_buf_str(out, "data: ");
    put_head(out, s->call, chunk_object(p));
    qr_buf_printf(out, "{\"index\":%d,%s", s->index, p->chat ? "\"delta\":{\"content\":" : "\"text\":");
    put_text(out, &s->text);
    if (p->chat) qr_buf_char(out, '}');
    put_logprobs(out, s);
    put_finish(out, s);
    put_token_ids(out, s, !p->chat && !s->begun);
    qr_buf_str(out, "}]");
    if (s->done) put_fingerprint(out, s->call);
    put_continuous_usage(out, s->call);
    qr_buf_str(out, "}\n\n");
    if (s->text.failed || pieces_failed(&s->pieces)) out->failed = true;
    qr_buf_clear(&s->text);
    for (int i = 0; piece(&s->pieces, i); i++) qr_buf_clear(piece(&s->pieces, i));
    s->begun = true;
}

void render_usage_chunk(struct call *c, struct qr_buf *out)
{
    qr_buf_str(out, "data: ");
    put_head(out, c, chunk_object(&gen_of(c)->params));
    qr_buf_str(out, "],");
    put_usage(out, c);
    put_fingerprint(out, c);
    qr_buf_str(out, "}\n\n");
}
