"""Preempted requests that are swapped out: the same text, and what the server says about it."""
import subprocess

import pytest
from conftest import QUIRE, TINY, on_threads

# 8 requests of 300 + 340 tokens want 40 blocks of 16 each; the pool has 64.
PROMPTS = [list(range(10 + i, 310 + i)) for i in range(8)]
POOL = ("--num-kv-blocks", "64", "--max-model-len", "1024")


def run(s, prompt, **fields):
    choices = s.complete(prompt, **{"max_tokens": 340, "ignore_eos": True, "logprobs": 0, **fields})["choices"]
    return [(c["text"], c["logprobs"]["token_logprobs"]) for c in choices]


def test_swapped_requests_go_on_as_if_nothing_had_happened(start):
    s = start(*POOL, "--check", "step", "--swap-space", "64M")
    solo = [run(s, p) for p in PROMPTS]
    assert on_threads(lambda p: run(s, p), PROMPTS) == solo
    n = s.metric("quire:preemptions_total", 'method="swap"')
    assert n > 0 and n + s.metric("quire:preemptions_total", 'method="recompute"') == s.metric("vllm:num_preemptions_total")
    out, back = (s.metric("quire:swap_bytes_total", f'tier="ram",direction="{d}"') for d in ("out", "in"))
    assert out > 0 and out == back
    s.idle()
    assert s.metric("quire:swap_blocks", 'tier="ram",state="used"') == 0
    assert s.metric("quire:swap_blocks", 'tier="ram",state="free"') > 64
    line = next(line for line in s.log if "engine: preempted request" in line)
    for word in "(of those that run it began last)", "finds a KV block", "swapped to memory", "to compute them again", "--kv-cache-memory-bytes":
        assert word in line, line
    assert any("swap space:" in line and "--kv-cache-memory-bytes" in line for line in s.log)


def test_a_swap_file(start, tmp_path):
    path = tmp_path / "swap"
    s = start(*POOL, "--check", "step", "--swap-file", str(path), "--swap-file-size", "32M", "--preemption-mode", "swap")
    assert path.stat().st_size > 31e6
    solo = [run(s, p) for p in PROMPTS]
    assert on_threads(lambda p: run(s, p), PROMPTS) == solo
    assert s.metric("quire:preemptions_total", 'method="swap"') > 0
    assert s.metric("quire:swap_bytes_total", 'tier="file",direction="in"') > 0
    s.idle()
    assert s.metric("quire:swap_blocks", 'tier="file",state="used"') == 0
    assert "swapped to the file" in next(line for line in s.log if "engine: preempted request" in line)
    s.stop()
    assert not path.exists()


def test_a_swap_file_that_is_cut_costs_time_and_no_answer(start, tmp_path):
    path = tmp_path / "swap"
    s = start(*POOL, "--check", "preempt-swap", "--swap-file", str(path), "--swap-file-size", "32M")
    want = [run(s, p, max_tokens=60) for p in PROMPTS[:3]]
    path.open("r+b").truncate(4096)
    assert on_threads(lambda p: run(s, p, max_tokens=60), PROMPTS[:3]) == want
    s.alive()


def test_without_swap_space_the_line_says_what_would_keep_them(start):
    s = start(*POOL)
    on_threads(lambda p: run(s, p), PROMPTS)
    assert s.metric("quire:preemptions_total", 'method="swap"') == 0
    assert "--swap-space" in next(line for line in s.log if "engine: preempted request" in line)


@pytest.mark.parametrize("way", ["preempt-swap", "preempt-recompute"])
def test_preempting_everything_in_each_step(start, way):
    prompts = [list(range(10 + i, 60 + 9 * i)) for i in range(6)]
    fields = {"max_tokens": 30, "n": 1, "temperature": 0.8, "seed": 5}
    plain = start("--num-kv-blocks", "256")
    want = [run(plain, p, **fields) for p in prompts]
    s = start("--num-kv-blocks", "256", "--check", way, "--swap-space", "16M")
    assert on_threads(lambda p: run(s, p, **fields), prompts) == want
    assert s.metric("vllm:num_preemptions_total") > 30
    assert (s.metric("quire:preemptions_total", 'method="swap"') > 0) == (way == "preempt-swap")
    s.idle()


def refused(*flags):
    r = subprocess.run([QUIRE, "serve", TINY, *flags], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert r.returncode == 2 and r.stderr.count(b"\n") == 1, r.stderr
    return r.stderr.decode()


def test_options_that_make_no_sense_say_so():
    assert "--swap-space" in refused("--preemption-mode", "swap")
    assert "expected auto, swap or recompute" in refused("--preemption-mode", "drop")
    assert "for GiB write 4G" in refused("--swap-space", "4")
    assert "preempt-swap" in refused("--check", "everything")
    assert "go together" in refused("--swap-file", "x")
    assert "go together" in refused("--swap-file-size", "1G")


def test_a_file_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text("precious")
    r = subprocess.run([QUIRE, "serve", TINY, "--port", "0", "--swap-file", str(path), "--swap-file-size", "1M"],
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    assert r.returncode == 1 and b"it is left alone" in r.stderr, r.stderr
    assert path.read_text() == "precious"
