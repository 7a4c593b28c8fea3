"""The prefix cache: the same answers with and without it, and who finds what."""
import json
import threading

import pytest

from conftest import on_threads

C, H = "/v1/completions", "/v1/chat/completions"
PROMPT = list(range(20, 270))  # 15 blocks of 16, and 10 tokens


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def said(answer):
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]


def test_a_cached_prompt_gives_the_same_bits(start):
    off = start("--no-enable-prefix-caching")
    tails = [[], [300], list(range(301, 340)), [5, 6, 7]]
    lengths = [1, 2, 15, 16, 17, 31, 32, 33, 100, 240, 250]
    bodies = [{"prompt": PROMPT[:n] + tail, "max_tokens": 20, "logprobs": 3, "ignore_eos": True} for n in lengths for tail in tails]
    right = [off.complete(**b) for b in bodies]
    assert all(cached(a) == 0 for a in right)
    for flags in [], ["--max-num-batched-tokens", "16", "--max-num-seqs", "8"], ["--block-size", "64"]:
        s = start("--check", "step", *flags)
        s.complete(PROMPT, max_tokens=1)
        answers = [s.complete(**b) for b in bodies]
        assert [said(a) for a in answers] == [said(a) for a in right], flags
        for b, a in zip(bodies, answers):
            assert cached(a) >= min(len(b["prompt"]), 250) - 64 and cached(a) < len(b["prompt"])
        again = on_threads(lambda b: s.complete(**b), bodies, 16)  # all at once: chunks, company
        assert [said(a) for a in again] == [said(a) for a in right], flags
        s.idle()


@pytest.mark.parametrize("flags", [["--kv-cache-dtype", t] for t in ("f16", "f32", "int8", "fp8")] + [["--activations", "f32"]])
def test_whatever_the_types(start, flags):
    bodies = [{"prompt": PROMPT[:n] + [300], "max_tokens": 20, "logprobs": 2, "ignore_eos": True} for n in (10, 37, 160, 250)]
    off, on = start("--no-enable-prefix-caching", *flags), start("--check", "step", *flags)
    on.complete(PROMPT, max_tokens=1)
    for b in bodies:
        a = on.complete(**b)
        assert cached(a) == min(len(b["prompt"]) - 1, 250) and said(a) == said(off.complete(**b))


def test_choices_begin_with_the_cached_prompt(start):
    body = {"prompt": PROMPT, "max_tokens": 20, "n": 4, "seed": 3, "temperature": 1, "logprobs": 2, "ignore_eos": True}
    off, on = start("--no-enable-prefix-caching"), start("--check", "step")
    right = off.complete(**body)["choices"]
    for expect in 0, 249, 249:
        a = on.complete(**body)
        assert cached(a) == expect and a["choices"] == right
    on.idle()


def test_preempted_and_swapped_requests_keep_their_answers(start):
    off = start("--no-enable-prefix-caching")
    bodies = [{"prompt": PROMPT[:100] + [300 + i % 3, 7], "max_tokens": 150, "logprobs": 1, "ignore_eos": True} for i in range(12)]
    right = [said(off.complete(**b)) for b in bodies]
    for flags in ["--preemption-mode", "recompute"], ["--preemption-mode", "swap", "--swap-space", "64M"]:
        s = start("--check", "step", "--num-kv-blocks", "40", "--max-model-len", "512", *flags)
        assert [said(a) for a in on_threads(lambda b: s.complete(**b), bodies, 12)] == right, flags
        assert s.metric("vllm:num_preemptions_total") > 0 and s.metric("vllm:prefix_cache_hits_total") > 500
        s.idle()


def test_the_last_partly_filled_block_is_found(start):
    s = start("--check", "step")
    assert cached(s.complete(PROMPT, max_tokens=1)) == 0
    assert cached(s.complete(PROMPT, max_tokens=1)) == 249  # all but the last token, whose logits are wanted
    assert cached(s.complete(PROMPT[:245] + [1, 2], max_tokens=1)) == 245  # a part of it
    assert cached(s.complete(PROMPT[:37] + [1, 2], max_tokens=1)) == 37  # a part of a full one
    assert cached(s.complete([1] + PROMPT, max_tokens=1)) == 0
    s.idle()


def test_salts_see_their_own_only(start):
    s = start()
    for salt in None, "one", "two":
        body = {"prompt": PROMPT, "max_tokens": 2, **({"cache_salt": salt} if salt else {})}
        assert cached(s.complete(**body)) == 0
        assert cached(s.complete(**body)) == 249


def test_keys_see_their_own_only(start):
    s = start("--api-key", "alpha,beta")

    def ask(key, x=False, **fields):
        head = {"x-api-key": key} if x else {"Authorization": "Bearer " + key}
        r = s.post(C, {"prompt": PROMPT, "max_tokens": 2, "temperature": 0, **fields}, headers=head)
        assert r.status == 200
        return cached(r.json())

    assert [ask("alpha"), ask("beta"), ask("alpha"), ask("beta"), ask("alpha", x=True)] == [0, 0, 249, 249, 249]
    # The same salt under two keys is two salts.
    assert [ask("alpha", cache_salt="s"), ask("beta", cache_salt="s"), ask("alpha", cache_salt="s")] == [0, 0, 249]
    assert s.post("/reset_prefix_cache", b"").status == 401
    assert s.post("/reset_prefix_cache", b"", headers={"x-api-key": "beta"}).json() == {"success": True}
    assert ask("alpha") == 0


def test_reset_forgets(start):
    s = start("--check", "step")
    for _ in range(3):
        assert cached(s.complete(PROMPT, max_tokens=2)) == 0
        assert cached(s.complete(PROMPT, max_tokens=2)) == 249
        assert s.post("/reset_prefix_cache", b"").json() == {"success": True}
    assert s.get("/reset_prefix_cache").status == 405
    assert s.idle()["blocks_cached"] == 0


def test_a_reset_under_load_changes_no_answer(start):
    s = start("--check", "step", "--num-kv-blocks", "80", "--max-model-len", "512")
    body = {"prompt": PROMPT, "max_tokens": 60, "logprobs": 1, "ignore_eos": True}
    right, stop = said(s.complete(**body)), threading.Event()

    def resets():
        while not stop.is_set():
            assert s.post("/reset_prefix_cache", b"").status == 200

    t = threading.Thread(target=resets)
    t.start()
    try:
        assert all(said(a) == right for a in on_threads(lambda b: s.complete(**b), [body] * 24, 8))
    finally:
        stop.set()
        t.join()
    s.idle()


def test_a_chat_finds_its_own_answers(start):
    s = start("--check", "step")
    messages = []
    for turn in range(4):
        messages.append({"role": "user", "content": f"turn {turn}: the quick brown fox jumps over the lazy dog"})
        a = s.chat(messages, max_tokens=24, logit_bias={"2": -100})
        if turn > 0:
            # All of the turn before: its prompt and, where the text is the same tokens again, its answer.
            assert cached(a) >= before["prompt_tokens"] - 1, (turn, a["usage"])
        before = a["usage"]
        messages.append({"role": "assistant", "content": a["choices"][0]["message"]["content"]})
    s.idle()


def generated_turn(s):
    """A second turn, by token ids: the first one's prompt, its answer, and more."""
    first = s.complete(PROMPT, max_tokens=50, ignore_eos=True, return_token_ids=True)
    prompt = PROMPT + first["choices"][0]["token_ids"] + [9, 8, 7]
    return prompt, s.complete(prompt, max_tokens=30, logprobs=2, ignore_eos=True)


def test_answers_are_cached_and_counted(start):
    s = start("--check", "step")
    prompt, a = generated_turn(s)
    assert cached(a) == 250 + 49  # the last token that was drawn has no K and V
    assert s.metric("quire:prefix_cache_generated_hits_total") == 49
    assert s.metric("vllm:prefix_cache_hits_total") == 299
    assert s.metric("vllm:prefix_cache_queries_total") == 250 + len(prompt)
    kv = s.idle()
    assert kv["prefix_hit_tokens"] == 299 and kv["prefix_query_tokens"] == 250 + len(prompt)


def test_exact_numerics_make_a_cached_answer_the_same_bits(start):
    off = start("--numerics", "exact", "--no-enable-prefix-caching")
    on = start("--numerics", "exact", "--check", "step", "--max-num-batched-tokens", "64", "--max-num-seqs", "16")
    prompt, right = generated_turn(off)
    again, a = generated_turn(on)
    assert again == prompt and cached(a) == 299 and said(a) == said(right)
    assert on.metric("quire:prefix_cache_generated_hits_total") == 0  # nothing differs


def test_tokens_behind_a_stop_are_not_cached(start):
    s = start("--check", "step")
    n = 1500  # so many that the stop's cancel finds the answer still running, unless the machine holds it up for long
    whole = s.complete(PROMPT, max_tokens=60, ignore_eos=True, return_token_ids=True)["choices"][0]
    stop = whole["text"][20:24]
    for _ in range(20):
        s.post("/reset_prefix_cache", b"")
        before = s.idle()["generated_tokens"]
        cut = s.complete(PROMPT, max_tokens=n, ignore_eos=True, stop=stop, return_token_ids=True)["choices"][0]
        assert cut["finish_reason"] == "stop" and len(cut["token_ids"]) < 50
        if s.idle()["generated_tokens"] - before < n:
            break  # it came in time
    else:
        pytest.fail("the stop came too late each time")
    found = cached(s.complete(PROMPT + whole["token_ids"], max_tokens=1))
    assert 250 - 1 <= found <= 250 + len(cut["token_ids"])


def test_a_scored_prompt_reads_no_cache(start):
    s = start("--check", "step")
    body = {"prompt": PROMPT, "max_tokens": 3, "prompt_logprobs": 1}
    first = s.complete(**body)
    for _ in range(2):
        a = s.complete(**body)
        assert cached(a) == 0 and a["choices"] == first["choices"]
    assert s.metric("vllm:prefix_cache_queries_total") == 0
    assert cached(s.complete(PROMPT, max_tokens=3)) == 249  # but it leaves its blocks


def test_a_small_pool_serves_many_with_one_prefix(start):
    off = start("--no-enable-prefix-caching")
    bodies = [{"prompt": PROMPT[:200] + [300 + i, 7], "max_tokens": 40, "logprobs": 1, "ignore_eos": True} for i in range(40)]
    right = [said(a) for a in on_threads(lambda b: off.complete(**b), bodies, 16)]
    s = start("--check", "step", "--num-kv-blocks", "34", "--max-model-len", "512")  # two would fit without sharing
    assert [said(a) for a in on_threads(lambda b: s.complete(**b), bodies, 16)] == right
    assert s.metric("vllm:prefix_cache_hits_total") > 0.5 * 200 * 40
    s.idle()


def test_the_cache_can_be_turned_off(start):
    s = start("--no-enable-prefix-caching", "--check", "step")
    for _ in range(2):
        assert cached(s.complete(PROMPT, max_tokens=2)) == 0
    m = s.metrics()
    assert s.metric("vllm:prefix_cache_queries_total") == 0 and s.kv()["blocks_cached"] == 0
    assert any('enable_prefix_caching="False"' in k for k in m)


SYSTEM = json.dumps({"rules": [f"rule {i}: an answer names its source, page {i * 7} of volume {i % 9}, and is short" for i in range(200)]})


@pytest.mark.real
def test_real_a_long_system_prompt_is_computed_once(start_real):
    s = start_real("--max-model-len", "8192", "--kv-cache-memory", "1G")
    n = s.post("/tokenize", {"prompt": SYSTEM}).json()["count"]
    system = SYSTEM
    while n > 4000:
        system = system[:len(system) * 4000 // n]
        n = s.post("/tokenize", {"prompt": system}).json()["count"]
    assert 3900 <= n <= 4000

    def ask(i):
        return s.chat([{"role": "system", "content": system}, {"role": "user", "content": f"What is rule {i}?"}], max_tokens=8)

    answers = [ask(0)] + on_threads(ask, range(1, 32), 8)
    prompts = sum(a["usage"]["prompt_tokens"] for a in answers)
    computed = s.metric("vllm:prompt_tokens_by_source_total", "local_compute")
    hits = s.metric("vllm:prefix_cache_hits_total")
    print(f"{len(answers)} requests, {prompts} prompt tokens, {computed:.0f} computed: {100 * (1 - computed / prompts):.1f} % fewer")
    assert computed + hits == prompts and sum(cached(a) for a in answers) == hits
    assert computed <= 0.2 * prompts


@pytest.mark.real
def test_real_a_cached_prompt_gives_the_same_bits(start_real):
    off = start_real("--no-enable-prefix-caching", "--kv-cache-memory", "256M", "--max-model-len", "2048")
    on = start_real("--kv-cache-memory", "256M", "--max-model-len", "2048", "--check", "step")
    for n in 700, 1500:
        body = {"prompt": SYSTEM[:n], "max_tokens": 40, "logprobs": 5, "ignore_eos": True}
        right = said(off.complete(**body))
        on.complete(SYSTEM[:1100], max_tokens=1)
        assert said(on.complete(**body)) == right
        again = on.complete(**body)
        assert said(again) == right and cached(again) == again["usage"]["prompt_tokens"] - 1
