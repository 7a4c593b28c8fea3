"""Cached prefixes beyond the pool: in other memory and in a file, which the next process finds again."""
import struct
import subprocess
import time

import pytest
from conftest import QUIRE, TINY

# A pool of 32 blocks of 16; prompts of 18 blocks: two of them push each other out.
POOL = ("--num-kv-blocks", "32", "--max-model-len", "400", "--check", "step")
A, B, C = (list(range(20 + 60 * i, 310 + 60 * i)) for i in range(3))


def run(s, prompt, **fields):
    r = s.complete(prompt, max_tokens=8, ignore_eos=True, logprobs=0, **fields)
    c = r["choices"][0]
    return (c["text"], c["logprobs"]["token_logprobs"]), r["usage"]["prompt_tokens_details"]["cached_tokens"]


def by_source(s, source):
    return s.metric("vllm:prompt_tokens_cached_by_source_total", f'source="{source}"')


def until(met, timeout_s=20):
    end = time.monotonic() + timeout_s
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_evicted_prefixes_come_back_from_memory(start):
    s = start(*POOL, "--prefix-cache-ram", "16M")
    first, cached = run(s, A)
    assert cached == 0
    for prompt in B, C:
        run(s, prompt)
    again, cached = run(s, A)
    assert again == first and cached == 288  # all full blocks
    assert by_source(s, "host") > 0 and by_source(s, "disk") == 0
    assert s.metric("vllm:prompt_tokens_cached_total") == by_source(s, "device") + by_source(s, "host") == 288
    assert s.metric("quire:prefix_blocks", 'tier="ram"') > 18
    assert run(start(*POOL), A)[0] == first
    assert s.post("/reset_prefix_cache", {}).status == 200
    s.idle()
    assert run(s, A)[1] == 0


def test_evicted_prefixes_come_back_from_a_file(start, tmp_path):
    s = start(*POOL, "--prefix-cache-file", str(tmp_path / "kv"), "--prefix-cache-file-size", "8M")
    first, _ = run(s, A)
    for prompt in B, C:
        run(s, prompt)
    until(lambda: s.metric("quire:prefix_blocks", 'tier="file"') >= 18)  # written in turn, A's first
    again, cached = run(s, A)
    assert again == first and cached == 288
    assert by_source(s, "disk") > 0 and by_source(s, "host") == 0
    assert by_source(s, "device") + by_source(s, "disk") == 288


def kept(path):
    return (*POOL, "--prefix-cache-file", str(path), "--prefix-cache-file-size", "8M")


def test_a_restart_finds_what_was_cached(start, tmp_path):
    path = tmp_path / "kv"
    s = start(*kept(path))
    first, _ = run(s, A)
    s.stop()
    assert path.stat().st_mode & 0o777 == 0o600  # what it holds is derived from prompts
    s = start(*kept(path))
    assert any("KV blocks of cached prefixes from before" in line for line in s.log)
    again, cached = run(s, A)
    assert again == first and cached == 288 and by_source(s, "disk") == 288
    run(s, B)
    s.stop()
    s = start(*kept(path))  # both, each once
    assert run(s, B)[1] == 288 and run(s, A) == (first, 288)
    assert run(s, A, cache_salt="another")[1] == 0
    s.stop()
    s = start(*kept(path), "--numerics", "exact")  # other numbers: nothing of it is used
    assert any("is begun anew: it is of another model" in line for line in s.log)
    assert run(s, A)[1] == 0


def test_what_an_idle_pool_forgets_is_in_the_file(start, tmp_path):
    trace = tmp_path / "run.trace"
    s = start(*kept(tmp_path / "kv"), "--kv-idle-release", "0.05", "--trace-file", str(trace))
    first, _ = run(s, A)
    for _ in range(2):
        until(lambda: s.kv()["blocks_cached"] == 0)
        assert run(s, A) == (first, 288)
    assert by_source(s, "disk") == 2 * 288 and s.metric("quire:prefix_blocks", 'tier="file"') == 18
    s.stop()
    r = subprocess.run([QUIRE, "sim", "--replay", str(trace), "--check", "step"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert r.returncode == 0 and "every decision is the same" in r.stdout, r.stdout + r.stderr
    assert "\nW 18\nZ\n" in trace.read_text()


@pytest.mark.parametrize("damage", ["head", "blocks", "cut", "empty"])
def test_a_damaged_file_costs_time_and_no_answer(start, tmp_path, damage):
    path = tmp_path / "kv"
    s = start(*kept(path))
    first, _ = run(s, A)
    s.stop()
    data = bytearray(path.read_bytes())
    if damage == "head":
        data[30] ^= 1
    elif damage == "blocks":
        n_slots, _, tag_bytes = struct.unpack_from("<3Q", data, 48)  # of the head, in front of the records
        slots_at = 4096 + -(-n_slots * ((16 + tag_bytes + 7) & ~7) // 4096) * 4096
        for i in range(slots_at, len(data), 512):
            data[i] ^= 1
    elif damage == "cut":
        del data[len(data) // 3:]
    else:
        data.clear()
    path.write_bytes(data)
    s = start(*kept(path))
    answer, cached = run(s, A)
    assert answer == first and cached == 0  # nothing of it came back
    assert by_source(s, "disk") == s.metric("vllm:prefix_cache_hits_total") == s.metric("quire:recomputed_tokens_total") == 0
    if damage == "blocks":
        until(lambda: any("read from their file (checksum mismatch)" in line for line in s.log))
        assert any("tokens computed again for it: 288" in line for line in s.log)
    again, cached = run(s, A)
    assert again == first and cached >= 288  # computed again, and cached again
    if damage in ("head", "cut"):
        assert any("is begun anew" in line for line in s.log)
    s.alive()


def test_somebody_elses_file_is_left_alone(start, tmp_path):
    path = tmp_path / "precious"
    path.write_text("all my notes")
    s = start(*kept(path))
    assert any("it is left alone; cached prefixes stay in memory" in line for line in s.log)
    run(s, A)
    s.stop()
    assert path.read_text() == "all my notes"


def test_options_that_make_no_sense_say_so():
    def refused(*flags):
        r = subprocess.run([QUIRE, "serve", TINY, *flags], stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
        assert r.returncode == 2 and r.stderr.count(b"\n") == 1, r.stderr
        return r.stderr.decode()

    assert "go together" in refused("--prefix-cache-file", "x")
    assert "need prefix caching" in refused("--prefix-cache-ram", "1G", "--no-enable-prefix-caching")
    assert "two files" in refused("--prefix-cache-file", "x", "--prefix-cache-file-size", "1M", "--swap-file", "x", "--swap-file-size", "1M")
