"""The official openai client against the server."""
import openai
import pytest


def client(server, key="none"):
    return openai.OpenAI(base_url=server.base + "/v1", api_key=key, max_retries=0, timeout=60)


def test_models(tiny):
    c = client(tiny)
    assert [m.id for m in c.models.list()] == ["m", "m-alias"]
    card = c.models.retrieve("m-alias")
    assert card.id == "m-alias" and card.object == "model" and card.max_model_len == 2048
    with pytest.raises(openai.NotFoundError):
        c.models.retrieve("nobody")


def test_completion(tiny):
    r = client(tiny).completions.create(model="m", prompt="the quick brown fox", max_tokens=8, temperature=0)
    assert r.object == "text_completion" and r.model == "m" and r.id.startswith("cmpl-")
    assert len(r.choices) == 1 and r.choices[0].text and r.choices[0].finish_reason == "length"
    assert r.usage.completion_tokens == 8 and r.usage.total_tokens == r.usage.prompt_tokens + 8
    assert 0 <= r.usage.prompt_tokens_details.cached_tokens < r.usage.prompt_tokens


def test_completion_stream_equals_answer(tiny):
    c, args = client(tiny), dict(model="m", prompt="the quick brown fox", max_tokens=24, temperature=0)
    whole = c.completions.create(**args)
    chunks = list(c.completions.create(**args, stream=True, stream_options={"include_usage": True}))
    assert "".join(k.choices[0].text for k in chunks if k.choices) == whole.choices[0].text
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 24
    assert [k.choices[0].finish_reason for k in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert all(k.usage is None for k in chunks[:-1])


def test_completion_of_several_prompts(tiny):
    c, prompts = client(tiny), ["the quick", "a page of text", "once upon a time"]
    solo = [c.completions.create(model="m", prompt=p, max_tokens=12, temperature=0).choices[0].text for p in prompts]
    r = c.completions.create(model="m", prompt=prompts, max_tokens=12, temperature=0)
    assert [k.index for k in r.choices] == [0, 1, 2]
    assert [k.text for k in r.choices] == solo
    texts = ["", "", ""]
    for k in c.completions.create(model="m", prompt=prompts, max_tokens=12, temperature=0, stream=True):
        texts[k.choices[0].index] += k.choices[0].text
    assert texts == solo


def test_completion_of_token_ids(tiny):
    ids = tiny.post("/tokenize", {"prompt": "the quick brown fox"}).json()["tokens"]
    c = client(tiny)
    a = c.completions.create(model="m", prompt=ids, max_tokens=12, temperature=0)
    b = c.completions.create(model="m", prompt="the quick brown fox", max_tokens=12, temperature=0)
    both = c.completions.create(model="m", prompt=[ids, ids], max_tokens=12, temperature=0)
    assert a.choices[0].text == b.choices[0].text == both.choices[0].text == both.choices[1].text


def test_completion_logprobs_and_echo(tiny):
    prompt = "the quick brown fox"
    r = client(tiny).completions.create(model="m", prompt=prompt, max_tokens=4, temperature=0, logprobs=3, echo=True)
    lp, text = r.choices[0].logprobs, r.choices[0].text
    assert text.startswith(prompt)
    assert "".join(lp.tokens) == text
    assert lp.token_logprobs[0] is None and lp.top_logprobs[0] is None
    n = r.usage.prompt_tokens + 4
    assert len(lp.tokens) == len(lp.token_logprobs) == len(lp.top_logprobs) == len(lp.text_offset) == n
    assert lp.text_offset == [len("".join(lp.tokens[:i])) for i in range(n)]
    for token, logprob, top in list(zip(lp.tokens, lp.token_logprobs, lp.top_logprobs))[1:]:
        assert logprob <= 0 and top[token] == logprob and 3 <= len(top) <= 4
    for logprob, top in list(zip(lp.token_logprobs, lp.top_logprobs))[-4:]:
        assert logprob == max(top.values())  # greedy


def test_echo_without_answer_scores_the_prompt(tiny):
    r = tiny.complete("a b c", max_tokens=0, echo=True, logprobs=1)
    assert r["choices"][0]["text"] == "a b c" and r["usage"]["completion_tokens"] == 0
    assert r["choices"][0]["finish_reason"] == "length"
    scored = r["choices"][0]["logprobs"]["token_logprobs"]
    longer = tiny.complete("a b c", max_tokens=3, echo=True, logprobs=1)["choices"][0]["logprobs"]["token_logprobs"]
    assert scored[0] is None and scored == longer[:len(scored)]


def test_chat_and_its_stream(tiny):
    c, args = client(tiny), dict(model="m", messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello world"}],
                                 max_tokens=16, temperature=0)
    r = c.chat.completions.create(**args)
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.system_fingerprint
    m = r.choices[0].message
    assert m.role == "assistant" and m.content and m.tool_calls is None
    chunks = list(c.chat.completions.create(**args, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}))
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].choices[0].delta.content == ""
    assert "".join(k.choices[0].delta.content for k in chunks if k.choices) == m.content
    assert [k.choices[0].finish_reason for k in chunks if k.choices].count("length") == 1
    assert chunks[-1].usage.completion_tokens == 16 and all(k.usage for k in chunks)


def test_chat_logprobs(tiny):
    args = dict(model="m", messages=[{"role": "user", "content": "hello"}], max_tokens=6, temperature=0, logprobs=True, top_logprobs=4)
    content = client(tiny).chat.completions.create(**args).choices[0].logprobs.content
    assert len(content) == 6
    for t in content:
        assert len(t.top_logprobs) == 4 and t.top_logprobs[0].logprob == t.logprob
        assert bytes(t.bytes).decode(errors="replace") == t.token
    streamed = [t for k in client(tiny).chat.completions.create(**args, stream=True) if k.choices[0].logprobs
                for t in k.choices[0].logprobs.content]
    assert streamed == content


def test_seed_repeats(tiny):
    c = client(tiny)

    def say(seed):
        return c.completions.create(model="m", prompt="the", max_tokens=24, temperature=1.5, seed=seed).choices[0].text

    assert say(7) == say(7)
    assert len({say(s) for s in range(8)}) > 1
    drawn = {tiny.complete("the", max_tokens=24, temperature=1.5)["choices"][0]["text"] for _ in range(6)}
    assert len(drawn) > 1


def test_errors_are_the_clients_classes(tiny):
    c = client(tiny)
    with pytest.raises(openai.BadRequestError) as e:
        c.completions.create(model="m", prompt="a", temperature=3)
    assert e.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        c.completions.create(model="nobody", prompt="a")
    with pytest.raises(openai.BadRequestError, match="maximum context length is 2048 tokens"):
        c.completions.create(model="m", prompt="word " * 3000, max_tokens=1)
    with pytest.raises(openai.BadRequestError, match="maximum context length is 2048 tokens"):
        c.completions.create(model="m", prompt="word " * 3000000, max_tokens=1)  # 15 MB: refused before it is tokenised


def test_keys(start):
    s = start("--api-key", "one", "--api-key", "two")
    for key in "one", "two":
        assert client(s, key).models.list().data
    with pytest.raises(openai.AuthenticationError):
        client(s, "three").models.list()
    for path in "/health", "/ping", "/version":
        assert s.get(path).status == 200
    for path in "/metrics", "/v1/models", "/debug/kv", "/load", "/nowhere":
        r = s.get(path)
        assert r.status == 401 and r.headers["www-authenticate"] == "Bearer" and r.error["code"] == 401
    assert s.get("/metrics", headers={"x-api-key": "two"}).status == 200
    assert s.post("/v1/completions", {"prompt": "a"}).status == 401


def test_request_id_becomes_the_answers(tiny):
    r = tiny.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": "my-id.1"})
    assert r.json()["id"] == "cmpl-my-id.1" and r.headers["x-request-id"] == "my-id.1"
    r = tiny.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, headers={"X-Request-Id": 'x"y'})
    assert '"' not in r.json()["id"]


def test_ignored_fields_are_listed(tiny):
    r = tiny.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "frobnicate": 1, "x-y": None, "bad name": 2, "b\u00e4r": 3, "a\nb": 4})
    assert r.status == 200 and r.headers["x-quire-ignored"] == "frobnicate, x-y, bad%20name, b%C3%A4r, a%0Ab"


def test_what_openai_refuses_is_refused(tiny):
    hello = {"role": "user", "content": "hello"}
    for fields, param, says in (({"messages": [{"role": "user", "content": []}]}, "messages", "empty list of parts"),
                                ({"messages": [hello], "user": 5}, "user", "a string"),
                                ({"messages": [hello], "request_id": "a\nb"}, "request_id", "1 to 128 letters"),
                                ({"messages": [hello], "n": 2.5}, "n", "must be an integer, got 2.5")):
        r = tiny.post("/v1/chat/completions", {"max_tokens": 1, **fields})
        assert r.status == 400 and r.error["param"] == param and says in r.error["message"], r.text


def test_return_token_ids(tiny):
    r = tiny.complete("the quick", max_tokens=5, return_token_ids=True)["choices"][0]
    assert len(r["token_ids"]) == 5
    assert r["prompt_token_ids"] == tiny.post("/tokenize", {"prompt": "the quick"}).json()["tokens"]
    events = tiny.stream("/v1/completions", {"prompt": "the quick", "max_tokens": 5, "temperature": 0, "return_token_ids": True})
    assert sum((e["choices"][0]["token_ids"] for e in events), []) == r["token_ids"]
    assert [e["choices"][0].get("prompt_token_ids") for e in events] == [r["prompt_token_ids"]] + [None] * (len(events) - 1)


def test_tokenize(tiny):
    text = "the quick brown fox \u00e9 \U0001F600"
    r = tiny.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert r["count"] == len(r["tokens"]) == len(r["token_strs"]) and r["max_model_len"] == 2048
    assert tiny.post("/detokenize", {"tokens": r["tokens"]}).json()["prompt"] == text
    llama = tiny.post("/tokenize", {"content": text}).json()
    assert llama["tokens"] == r["tokens"]
    assert tiny.post("/tokenize", {"content": "the", "with_pieces": True}).json()["tokens"][0].keys() == {"id", "piece"}
    chat = tiny.post("/tokenize", {"messages": [{"role": "user", "content": "hi"}]}).json()
    assert tiny.post("/detokenize", {"tokens": chat["tokens"]}).json()["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert tiny.chat("hi", max_tokens=1)["usage"]["prompt_tokens"] == chat["count"]
    for bad in {"tokens": [999999]}, {"tokens": [-1]}, {"tokens": "x"}, {}:
        assert tiny.post("/detokenize", bad).status == 400
    assert tiny.post("/tokenize", {}).status == 400


def test_continue_final_message(tiny):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Sure, the"}]
    r = tiny.post("/tokenize", {"messages": messages, "add_generation_prompt": False, "continue_final_message": True}).json()
    text = tiny.post("/detokenize", {"tokens": r["tokens"]}).json()["prompt"]
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nSure, the"
    answer = tiny.chat(messages, continue_final_message=True, add_generation_prompt=False, max_tokens=6)
    plain = tiny.complete(text, max_tokens=6)
    assert answer["choices"][0]["message"]["content"] == plain["choices"][0]["text"]


def test_truncation(tiny):
    ids = list(range(10, 30))
    for side, kept in ("right", ids[:5]), ("left", ids[-5:]), (None, ids[:5]):
        r = tiny.complete(ids, max_tokens=1, truncate_prompt_tokens=5, truncation_side=side, return_token_ids=True)
        assert r["choices"][0]["prompt_token_ids"] == kept
    long = list(range(10, 500)) * 6
    assert tiny.complete(long, max_tokens=8, truncate_prompt_tokens=-1)["usage"]["prompt_tokens"] == 2048 - 8
    assert tiny.post("/v1/completions", {"prompt": ids, "truncate_prompt_tokens": 0}).status == 400


def test_small_pages(tiny):
    assert tiny.get("/version").json()["version"]
    assert tiny.get("/health").json() == {"status": "ok"}
    assert tiny.post("/ping", {}).status == 200
    assert tiny.get("/load").json()["server_load"] >= 0
    kv = tiny.kv()
    assert kv["blocks"] == 2048 and kv["block_size"] == 16


def test_ways_to_stop(tiny):
    ids = tiny.complete("once upon", max_tokens=20, return_token_ids=True)["choices"][0]["token_ids"]
    at = next(i for i in range(3, 20) if ids[i] not in ids[:i])
    r = tiny.complete("once upon", max_tokens=20, stop_token_ids=[ids[at]], return_token_ids=True)
    choice = r["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == ids[at]
    assert choice["token_ids"] == ids[:at + 1] and r["usage"]["completion_tokens"] == at + 1
    later = tiny.complete("once upon", max_tokens=20, stop_token_ids=[ids[at]], min_tokens=at + 2)
    assert later["usage"]["completion_tokens"] >= at + 2


def test_bad_words_are_not_said(tiny):
    def said(**fields):
        return tiny.complete("once upon", max_tokens=30, return_token_ids=True, **fields)["choices"][0]["token_ids"]

    ids = said()
    for id in ids:  # one that is a word of its own to the tokenizer
        word = tiny.post("/detokenize", {"tokens": [id]}).json()["prompt"]
        if word.startswith(" ") and tiny.post("/tokenize", {"prompt": word}).json()["tokens"] == [id]:
            break
    assert id in ids and id not in said(bad_words=[word.strip()])
    assert id not in said(bad_words=[word])


def test_penalties_change_the_answer(tiny):
    plain = tiny.complete("once upon", max_tokens=30)["choices"][0]["text"]
    for field, value in ("repetition_penalty", 1.8), ("presence_penalty", 2), ("frequency_penalty", 2):
        assert tiny.complete("once upon", max_tokens=30, **{field: value})["choices"][0]["text"] != plain
