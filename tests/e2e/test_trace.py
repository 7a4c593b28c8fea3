"""quire serve --trace-file, and going through the record again."""
import json
import subprocess
import threading

from conftest import QUIRE


def replay(path, *args):
    return subprocess.run([QUIRE, "sim", "--replay", str(path), *args], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def test_a_recorded_run_decides_the_same_again(start, tmp_path):
    trace = tmp_path / "run.trace"
    s = start("--trace-file", str(trace), "--num-kv-blocks", "40", "--max-num-seqs", "6", "--swap-space", "1M")
    def one(i):
        fields = [{"n": 3, "temperature": 1.0, "seed": i}, {"prompt_logprobs": 1}, {"stop": ["e", "a"]}, {}, {"use_beam_search": True, "n": 3}][i % 5]
        r = s.post("/v1/completions", {"prompt": list(range(10 + i % 3, 60 + 9 * i)), "max_tokens": 90 + 5 * i, "temperature": 0, "ignore_eos": True, **fields})
        answered.append(r.status == 200)
    answered = []
    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    preempted = s.metric("vllm:num_preemptions_total")
    s.stop()
    chrome = tmp_path / "run.json"
    r = replay(trace, "--check", "step", "--chrome", str(chrome))
    assert r.returncode == 0, r.stdout + r.stderr
    assert "every decision is the same" in r.stdout and f"of {sum(answered)} requests" in r.stdout and sum(answered) > 8
    assert f"preempted   {int(preempted)} times" in r.stdout and preempted > 0
    events = json.loads(chrome.read_text())
    assert {e["name"] for e in events} >= {"step", "blocks", "requests", "queued", "prefill", "decode"}
    steps = [e for e in events if e["name"] == "step"]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1 for a, b in zip(steps, steps[1:]))


def test_step_times_of_a_run_foretell_that_run(start, tmp_path):
    trace = tmp_path / "run.trace"
    s = start("--trace-file", str(trace), "--num-kv-blocks", "512", "--no-enable-prefix-caching", "--step-budget-ms", "0")
    threads = [threading.Thread(target=s.complete, args=(list(range(10, 30 + 11 * i)),), kwargs={"max_tokens": 100 + 7 * i, "ignore_eos": True}) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    s.stop()
    r = replay(trace)
    assert r.returncode == 0, r.stdout + r.stderr
    rows = [line for line in r.stdout.splitlines() if line.endswith("%") and "  " in line][-6:]
    assert len(rows) == 6
    for line in rows:
        assert abs(float(line.split()[-2])) <= 1.0, r.stdout


def test_what_is_no_record_is_named(tmp_path):
    bad = tmp_path / "bad.trace"
    bad.write_text("hello\n")
    assert "bad.trace:1: expected" in replay(bad).stderr
    bad.write_text("quire-trace 1\nC 1 2\n")
    assert "bad.trace:2: expected C" in replay(bad).stderr
    assert replay(tmp_path / "absent").returncode == 1
