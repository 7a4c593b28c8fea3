"""Beam search over the API, and mixed company: nobody's text depends on who else is served."""
import itertools
import json
import random

import pytest
from conftest import on_threads

C, H = "/v1/completions", "/v1/chat/completions"
BEAM = {"use_beam_search": True, "n": 4, "max_tokens": 20, "ignore_eos": True}


def texts(r):
    assert [c["index"] for c in r["choices"]] == list(range(len(r["choices"])))
    return [c["text"] if "text" in c else c["message"]["content"] for c in r["choices"]]


def sums(r):
    return [sum(c["logprobs"]["token_logprobs"]) for c in r["choices"]]


def test_beams_are_the_likeliest_and_come_in_order(tiny):
    r = tiny.complete("once upon a time", logprobs=0, **BEAM)
    total = sums(r)
    assert len(set(texts(r))) == 4 and total == sorted(total, reverse=True)
    greedy = sums(tiny.complete("once upon a time", logprobs=0, max_tokens=20, ignore_eos=True))
    assert total[0] >= greedy[0]
    assert r["usage"]["completion_tokens"] == 80 and all(c["finish_reason"] == "length" for c in r["choices"])
    # One beam is greedy; temperature and seed do not enter.
    one = {**BEAM, "n": 1}
    assert texts(tiny.complete("once upon a time", **one)) == texts(tiny.complete("once upon a time", max_tokens=20, ignore_eos=True))
    assert texts(tiny.complete("once upon a time", **{**BEAM, "temperature": 1.5, "seed": 4})) == texts(r)


def test_scores_of_beams_are_those_of_the_same_tokens_as_a_prompt(start):
    s = start("--activations", "f32")
    r = s.complete("the page", logprobs=0, return_token_ids=True, **BEAM)
    for c in r["choices"]:
        again = s.complete(c["prompt_token_ids"] + c["token_ids"], echo=True, logprobs=0, max_tokens=0)
        assert again["choices"][0]["logprobs"]["token_logprobs"][-20:] == pytest.approx(c["logprobs"]["token_logprobs"], abs=1e-4)


@pytest.mark.parametrize("path,ask", [(C, {"prompt": "numbers like 1 2 3"}), (H, {"messages": [{"role": "user", "content": "hello"}]})])
def test_streams_send_what_is_settled(tiny, path, ask):
    body = {**ask, **BEAM, "max_tokens": 60, "stream_options": {"include_usage": True}}
    whole = texts(tiny.post(path, {**ask, **BEAM, "max_tokens": 60}).json())
    got = [""] * 4
    events = tiny.stream(path, body)
    for e in events:
        for c in e["choices"]:
            got[c["index"]] += c["text"] if "text" in c else c["delta"].get("content", "")
    assert got == whole and events[-1]["usage"]["completion_tokens"] == 240


def test_end_tokens_finish_beams(tiny):
    free = tiny.complete("hello", return_token_ids=True, **BEAM)["choices"]
    end = free[0]["token_ids"][6]
    for early in ({}, {"early_stopping": True}, {"early_stopping": False}, {"early_stopping": "never"}):
        r = tiny.complete("hello", return_token_ids=True, stop_token_ids=[end], length_penalty=0, **BEAM, **early)
        ended = [c for c in r["choices"] if c["finish_reason"] == "stop"]
        assert ended and all(c["token_ids"].index(end) == len(c["token_ids"]) - 1 and c["stop_reason"] == end for c in ended)
        assert all(end not in c["token_ids"] for c in r["choices"] if c["finish_reason"] == "length")
    late = tiny.complete("hello", return_token_ids=True, stop_token_ids=[end], min_tokens=19, **BEAM)["choices"]
    assert all(end not in c["token_ids"][:19] for c in late)


def test_length_penalty_orders_answers(tiny):
    end = tiny.complete("hello", return_token_ids=True, **BEAM)["choices"][0]["token_ids"][3]
    lens = {p: [c["token_ids"] for c in tiny.complete("hello", return_token_ids=True, stop_token_ids=[end], early_stopping="never",
                                                      length_penalty=p, **BEAM)["choices"]] for p in (-4, 0, 8)}
    mean = {p: sum(map(len, a)) for p, a in lens.items()}
    assert mean[-4] <= mean[0] <= mean[8] and mean[-4] < mean[8]


def test_metrics_say_what_sharing_saved(start):
    s = start("--no-enable-prefix-caching")
    s.complete([5] * 100, max_tokens=40, ignore_eos=True)
    assert s.metric("quire:kv_shared_ratio") == 0
    s.complete([5] * 100, **{**BEAM, "max_tokens": 40})
    entries, held = s.metric("quire:kv_blocks_unshared_total"), s.metric("quire:kv_blocks_held_total")
    # Six blocks of the prompt belong to four beams.
    assert s.metric("quire:kv_shared_ratio") == pytest.approx(1 - held / entries) and 0.3 < 1 - held / entries < 0.75


def test_what_makes_no_sense_is_refused(tiny):
    for name, value in {"stop": "a", "top_p": 0.5, "top_k": 3, "min_p": 0.1, "presence_penalty": 1, "logit_bias": {"5": 1},
                        "bad_words": ["a"], "allowed_token_ids": [5], "logprobs": 2, "n": 65, "max_tokens": 0, "best_of": 9}.items():
        r = tiny.post(C, {"prompt": "a", **BEAM, name: value})
        assert r.status == 400 and r.error["param"] == name, r.text
    r = tiny.post(C, {"prompt": "a", "length_penalty": 2})
    assert r.status == 400 and r.error["param"] == "length_penalty"
    tiny.alive()


def asks(n):
    rng = random.Random(3)
    for i in range(n):
        prompt = [rng.randrange(3, 500) for _ in range(rng.choice((3, 20, 60, 150)))]
        common = {"prompt": prompt, "max_tokens": rng.randrange(1, 40), "priority": rng.randrange(-2, 3), "ignore_eos": rng.random() < 0.5}
        if i % 3 == 0:
            yield {**common, "use_beam_search": True, "n": rng.randrange(1, 7), "length_penalty": rng.choice((0, 1, 2))}
        else:
            yield {**common, "n": rng.choice((1, 1, 2, 4)), "temperature": rng.choice((0, 0.8)), "seed": i}


@pytest.mark.parametrize("flags", [(), ("--swap-space", "32M")])
def test_two_hundred_mixed_requests_say_what_each_says_alone(start, flags):
    s = start("--num-kv-blocks", "96", "--max-model-len", "256", "--max-num-seqs", "24", "--scheduling-policy", "priority", "--check", "step", *flags)
    todo = list(asks(200))
    alone = [texts(s.complete(**a)) for a in todo]

    def serve(i):
        if i % 10 == 9:  # a client that leaves
            with s.socket() as sock:
                body = json.dumps({**todo[i], "stream": True}).encode()
                sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                sock.recv(1)
            return None
        return texts(s.complete(**todo[i]))

    together = on_threads(serve, range(200), 48)
    for got, want in itertools.zip_longest(together, alone):
        assert got is None or got == want
    assert s.metric("vllm:num_preemptions_total") > 0
    s.idle()
