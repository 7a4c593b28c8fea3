"""n > 1: several answers to one prompt, computed once and shared until they part."""
import threading

C = "/v1/completions"
SAMPLED = {"temperature": 1.0, "max_tokens": 24, "ignore_eos": True, "seed": 11}


def test_choices_differ_and_come_again_with_the_seed(tiny):
    prompt = list(range(10, 60))
    a = tiny.complete(prompt, n=4, **{**SAMPLED})
    b = tiny.complete(prompt, n=4, **{**SAMPLED})
    texts = [c["text"] for c in a["choices"]]
    assert [c["index"] for c in a["choices"]] == [0, 1, 2, 3]
    assert texts == [c["text"] for c in b["choices"]] and len(set(texts)) == 4
    assert a["usage"]["prompt_tokens"] == 50 and a["usage"]["completion_tokens"] == 4 * 24
    # The first choices do not depend on how many there are.
    assert [c["text"] for c in tiny.complete(prompt, n=2, **SAMPLED)["choices"]] == texts[:2]
    assert tiny.complete(prompt, **SAMPLED)["choices"][0]["text"] == texts[0]


def test_greedy_choices_are_equal(tiny):
    one = tiny.complete("Hello", max_tokens=12)["choices"][0]["text"]
    assert [c["text"] for c in tiny.complete("Hello", max_tokens=12, n=3)["choices"]] == [one] * 3


def test_several_prompts_times_n_in_order(tiny):
    prompts = [list(range(10, 30)), list(range(40, 75)), [7]]
    together = tiny.complete(prompts, n=2, **SAMPLED)
    assert [c["index"] for c in together["choices"]] == list(range(6))
    assert together["usage"]["prompt_tokens"] == 20 + 35 + 1
    for i, p in enumerate(prompts):
        alone = tiny.complete(p, n=2, **SAMPLED)
        assert [c["text"] for c in alone["choices"]] == [c["text"] for c in together["choices"][2 * i:2 * i + 2]]


def test_streams_of_choices_carry_their_index(tiny):
    whole = tiny.complete("Hello", n=3, logprobs=1, **SAMPLED)
    events = tiny.stream(C, {"prompt": "Hello", "n": 3, "logprobs": 1, "stream_options": {"include_usage": True}, **SAMPLED})
    texts, finishes, logprobs = [""] * 3, [None] * 3, [[], [], []]
    for e in events:
        for c in e["choices"]:
            texts[c["index"]] += c["text"]
            logprobs[c["index"]] += c["logprobs"]["token_logprobs"]
            finishes[c["index"]] = c["finish_reason"] or finishes[c["index"]]
    assert texts == [c["text"] for c in whole["choices"]] and finishes == ["length"] * 3
    assert logprobs == [c["logprobs"]["token_logprobs"] for c in whole["choices"]]
    assert events[-1]["usage"]["completion_tokens"] == 3 * 24


def test_chat_choices_each_have_a_role(tiny):
    body = {"messages": [{"role": "user", "content": "مرحبا 你好 🙂"}], "n": 2, **SAMPLED}
    roles, texts = [], ["", ""]
    for e in tiny.stream("/v1/chat/completions", body):
        for c in e["choices"]:
            if c["delta"].get("role"):
                roles.append(c["index"])
            texts[c["index"]] += c["delta"].get("content", "")
    assert sorted(roles) == [0, 1]
    r = tiny.post("/v1/chat/completions", body).json()
    assert [c["message"]["content"] for c in r["choices"]] == texts


def test_prompt_scores_stand_in_every_choice(tiny):
    prompt = list(range(20, 45))
    one = tiny.complete(prompt, echo=True, logprobs=2, **SAMPLED)["choices"][0]["logprobs"]["token_logprobs"]
    three = tiny.complete(prompt, echo=True, logprobs=2, n=3, **SAMPLED)["choices"]
    for c in three:
        assert c["logprobs"]["token_logprobs"][:25] == one[:25] and len(c["logprobs"]["tokens"]) == 49
    scored = tiny.complete(prompt, prompt_logprobs=1, n=2, **SAMPLED)["choices"]
    assert len(scored[0]["prompt_logprobs"]) == 25 and scored[0]["prompt_logprobs"] == scored[1]["prompt_logprobs"]


def test_a_stop_string_ends_only_its_choice(tiny):
    plain = tiny.complete("Hello", n=4, **{**SAMPLED, "max_tokens": 60})["choices"]
    stop = next(ch for ch in plain[0]["text"][5:] if ch.isalnum() or ch == " ")
    stopped = tiny.complete("Hello", n=4, stop=[stop], **{**SAMPLED, "max_tokens": 60})["choices"]
    for p, s in zip(plain, stopped):
        if stop in p["text"]:
            assert s["finish_reason"] == "stop" and s["text"] == p["text"].split(stop)[0] and s["stop_reason"] == stop
        else:
            assert s["finish_reason"] == "length" and s["text"] == p["text"]


def test_the_prompt_is_stored_once(start):
    s = start("--num-kv-blocks", "96", "--max-num-seqs", "8")
    prompt = list(range(10, 10 + 320))  # twenty blocks
    t = threading.Thread(target=s.complete, args=(prompt,), kwargs={"n": 8, **SAMPLED, "max_tokens": 60})
    t.start()
    seen = 0
    while t.is_alive():
        kv = s.kv()
        if len(kv["sequences"]) == 8 and all(q["computed_tokens"] > 320 for q in kv["sequences"]):
            seen += 1
            first = kv["sequences"][0]["blocks"][:19]
            assert all(q["blocks"][:19] == first for q in kv["sequences"])
            assert kv["blocks_used"] <= 20 + 8 * 5  # apart they would be 8 * 24, twice the pool
    t.join()
    assert seen > 0


def test_metrics_count_requests_not_choices(start):
    s = start()
    s.complete("Hello", n=3, **SAMPLED)
    m = s.metrics()
    value = lambda name: next(v for k, v in m.items() if k.startswith(name + "{"))
    assert value("vllm:request_params_n_sum") == 3 and value("vllm:request_params_n_count") == 1
    assert value("vllm:e2e_request_latency_seconds_count") == 1
    assert value("vllm:request_generation_tokens_count") == 3 and value("vllm:generation_tokens_total") == 72


def test_what_is_refused(tiny):
    for fields in {"n": 65}, {"n": 2, "best_of": 3}:
        r = tiny.post(C, {"prompt": "a", **fields})
        assert r.status == 400 and r.error["param"] in ("n", "best_of"), r.text
    assert tiny.post(C, {"prompt": "a", "n": 2, "best_of": 2, "max_tokens": 1}).status == 200
