"""--kv-cache-dtype: each type serves, in company as alone, and says what it is; perplexity of a text by each."""
import json
import subprocess

import pytest
from conftest import QUIRE, TINY, on_threads

TYPES = {"bf16": "bf16", "f16": "f16", "f32": "f32", "int8": "int8", "fp8": "fp8", "fp8_e4m3": "fp8", "auto": "bf16"}
PROMPTS = [list(range(10 + i, 60 + 7 * i)) for i in range(8)]


def run(s, prompt):
    c = s.complete(prompt, max_tokens=24, ignore_eos=True, temperature=0, logprobs=0)["choices"][0]
    return c["text"], c["logprobs"]["token_logprobs"]


@pytest.mark.parametrize("given", TYPES)
def test_answers_do_not_depend_on_company(start, given):
    s = start("--kv-cache-dtype", given, "--check", "step")
    alone = [run(s, p) for p in PROMPTS]
    assert on_threads(lambda p: run(s, p), PROMPTS) == alone
    kind = TYPES[given]
    assert f'cache_dtype="{kind}"' in s.request("GET", "/metrics").text
    assert s.request("GET", "/debug/kv").json()["dtype"] == kind
    assert any("KV cache size" in line and f" {kind}, " in line for line in s.log)


def test_smaller_types_give_more_blocks(start):
    blocks = {}
    for t in ("f32", "bf16", "int8", "fp8"):
        s = start("--kv-cache-dtype", t, "--kv-cache-memory-bytes", "64M")
        blocks[t] = s.request("GET", "/debug/kv").json()["blocks"]
    assert 2 * blocks["f32"] in (blocks["bf16"], blocks["bf16"] - 1)
    assert blocks["int8"] == blocks["fp8"] > 1.6 * blocks["bf16"]  # tiny heads: a scale weighs more


def test_an_unknown_type_is_refused_by_name():
    r = subprocess.run([QUIRE, "serve", TINY, "--kv-cache-dtype", "fp4"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 2
    assert r.stderr.strip() == 'quire: --kv-cache-dtype: expected auto, bf16, f16, f32, int8, fp8, got "fp4"'


def ppl(tmp_path, *flags):
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog, again and again.\n" * 40)
    r = subprocess.run([QUIRE, "bench", "ppl", TINY, str(text), "--ctx", "128", "--json", "-", *flags], capture_output=True, text=True,
                       timeout=120)
    return r, json.loads(r.stdout) if r.returncode == 0 else None


def test_perplexity_scores_each_token_once(tmp_path):
    _, whole = ppl(tmp_path, "--activations", "f32")
    n = whole["tokens"]
    windows = -(-n // 128)
    assert whole["tokens_scored"] == n - windows
    _, overlapped = ppl(tmp_path, "--activations", "f32", "--stride", "64")
    assert overlapped["tokens_scored"] == n - 1
    _, first = ppl(tmp_path, "--activations", "f32", "--text-tokens", "100")
    assert first["tokens"] == 100 and first["tokens_scored"] == 99
    for t in ("f32", "f16", "bf16", "int8", "fp8"):
        _, other = ppl(tmp_path, "--activations", "f32", "--kv-cache-dtype", t)
        assert other["kv_cache_dtype"] == t
        assert abs(other["mean_nll"] - whole["mean_nll"]) < 0.05


@pytest.mark.parametrize("flags,word", [(("--ctx", "1"), "--ctx"), (("--stride", "200"), "--stride"), (("--text-tokens", "1"), "2 tokens")])
def test_perplexity_refuses_what_it_cannot_do(tmp_path, flags, word):
    r, _ = ppl(tmp_path, *flags)
    assert r.returncode == 2 and word in r.stderr
