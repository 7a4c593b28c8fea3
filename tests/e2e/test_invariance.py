"""What a request gets depends on the request alone. The tiny model's ways are in src/lib/invariance_test.c; here the default model's."""
import random

import pytest

from conftest import on_threads

POOL = ["--max-model-len", "1024", "--max-num-seqs", "16"]
WAYS = [["--max-num-batched-tokens", "16", "--threads", "1"],
        ["--max-num-batched-tokens", "2048", "--check", "step"],
        ["--num-kv-blocks", "100", "--preemption-mode", "recompute"],
        ["--num-kv-blocks", "100", "--preemption-mode", "swap", "--swap-space", "256M"]]


def bodies(n):
    rng = random.Random(7)
    prompts = [[rng.randrange(1000, 40000) for _ in range(rng.randint(1, 200))] for _ in range(n)]
    shared = [rng.randrange(1000, 40000) for _ in range(90)]
    return [{"prompt": shared * (i % 2) + p, "max_tokens": 50, "logprobs": 2, "ignore_eos": True, "temperature": 0 if i % 3 else 0.8, "seed": i}
            for i, p in enumerate(prompts)]


def said(answer):
    choice = answer["choices"][0]
    return choice["text"], choice["logprobs"]


@pytest.mark.real
def test_real_answers_depend_on_the_request_alone(start_real):
    asks = bodies(16)
    alone = start_real(*POOL, "--kv-cache-memory", "512M", "--no-enable-prefix-caching", "--threads", "2")
    right = [said(alone.complete(**b)) for b in asks]
    alone.stop()
    for way in WAYS:
        s = start_real(*POOL, *([] if "--num-kv-blocks" in way else ["--kv-cache-memory", "512M"]), *way)
        for _ in range(2):  # the second time with cached prompts
            answers = on_threads(lambda b: s.complete(**b), asks, len(asks))
            assert [said(a) for a in answers] == right, way
        if "--num-kv-blocks" in way:
            assert s.metric("vllm:num_preemptions_total") > 0
        s.stop()
