"""quire serve --trace-file, and going through the record again."""
import json
import resource
import subprocess
import threading

import pytest
from conftest import QUIRE, TINY, Server


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


def test_priorities_of_any_sign_are_replayed(start, tmp_path):
    trace = tmp_path / "run.trace"
    s = start("--trace-file", str(trace), "--scheduling-policy", "priority")
    for p in -(2**31), -1, 2**31 - 1:
        s.complete("hello", max_tokens=2, priority=p)
    s.stop()
    r = replay(trace)
    assert r.returncode == 0 and "of 3 requests" in r.stdout, r.stdout + r.stderr


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
    bad.write_text("quire-trace 2\nC 1 2\n")
    assert "bad.trace:2: expected C" in replay(bad).stderr
    bad.write_text("quire-trace 2\n")
    assert replay(bad).returncode == 1 and "bad.trace: the record ends behind its first line" in replay(bad).stderr
    assert replay(tmp_path / "absent").returncode == 1


def serve_once(*flags, **kw):
    return subprocess.run([QUIRE, "serve", TINY, "--port", "0", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, **kw)


def test_a_file_that_is_no_trace_is_left_alone(start, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_text("precious")
    r = serve_once("--trace-file", str(path))
    assert r.returncode == 1 and "it is left alone" in r.stderr, r.stderr
    assert path.read_text() == "precious"
    trace = tmp_path / "run.trace"
    s = start("--trace-file", str(trace))
    assert "another process uses it" in serve_once("--trace-file", str(trace)).stderr
    assert "another process uses it" in serve_once("--trace-file", str(tmp_path / "x"), "--swap-file", str(tmp_path / "x"), "--swap-file-size", "1M").stderr
    s.complete("hello", max_tokens=2)
    s.stop()
    first = trace.stat().st_size
    start("--trace-file", str(trace)).stop()
    assert 0 < trace.stat().st_size < first  # an earlier record is replaced


@pytest.mark.parametrize("flags", [["--swap-file", "x", "--swap-file-size", "1M"], ["--prefix-cache-file", "x", "--prefix-cache-file-size", "1M"]])
def test_a_limit_of_file_sizes_is_an_error_and_no_signal(tmp_path, flags):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    r = serve_once(*flags, cwd=tmp_path, preexec_fn=limit)
    assert r.returncode == 1 and "File too large" in r.stderr, (r.returncode, r.stderr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A trace of four requests."""
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    s = Server(TINY, "--trace-file", str(path), "--no-enable-prefix-caching", "--step-budget-ms", "0")
    for i in range(4):
        s.complete(list(range(10, 40 + 11 * i)), max_tokens=30, ignore_eos=True)
    s.stop()
    return path


def test_figures_of_a_record_are_of_what_happened(whole):
    out = replay(whole).stdout
    assert "4 finished, 0 unfinished, in " in out and "recorded seconds" in out and "simulated seconds" not in out
    batch = next(line for line in out.splitlines() if line.startswith("batch"))
    assert float(batch.split(" steps of ")[1].split()[0]) > 0, batch
    assert "trace ends" not in out


def test_a_trace_without_steps_says_so(whole, tmp_path):
    none = tmp_path / "none.trace"
    none.write_text("".join(whole.read_text().splitlines(keepends=True)[:3]))
    r = replay(none)
    assert r.returncode == 0 and "No step was recorded: there is no decision to compare." in r.stdout and "the same" not in r.stdout


def test_chrome_to_standard_output(whole):
    events = json.loads(replay(whole, "--chrome", "-").stdout)
    assert {"step", "decode"} <= {e["name"] for e in events}


def test_a_step_that_lost_a_token_is_named(whole, tmp_path):
    lines = whole.read_text().splitlines(keepends=True)
    token = [i for i, line in enumerate(lines) if line.startswith("T ")][5]
    bad = tmp_path / "bad.trace"
    bad.write_text("".join(lines[:token] + lines[token + 1:]))
    r = replay(bad)
    assert r.returncode == 1 and f"{bad}:{token + 1}: expected T, V or E for each sequence that has computed all it knows" in r.stderr, r.stderr


def test_a_cut_trace_says_where_it_ends_and_what_had_not_finished(whole, tmp_path):
    lines = whole.read_text().splitlines(keepends=True)
    begun = [i for i, line in enumerate(lines) if line.startswith("A ")]
    ended = [i for i, line in enumerate(lines) if line.startswith("E ")]
    cut = tmp_path / "cut.trace"
    at = begun[3] + 20
    cut.write_text("".join(lines[:at]) + lines[at][:1])  # within a line of the fourth request
    r = replay(cut)
    assert r.returncode == 0 and "of 4 requests" in r.stdout, r.stdout + r.stderr
    assert f"The trace ends within line {at + 1}; the lines before count. 1 request had not finished" in r.stdout
    assert "3 finished, 1 unfinished" in r.stdout and "Not simulated from its step times" in r.stdout
    at = ended[0] - 5
    cut.write_text("".join(lines[:at]))  # between two lines, before any request has ended
    r = replay(cut)
    assert r.returncode == 0 and "of 1 request " in r.stdout, r.stdout + r.stderr
    assert "The trace ends before the run did" in r.stdout and "1 request had not finished" in r.stdout
    assert "0 finished, 1 unfinished" in r.stdout and " 0.0 tokens/s generated" not in r.stdout


def test_a_killed_server_leaves_a_trace_that_is_replayed(tmp_path):
    path = tmp_path / "run.trace"
    s = Server(TINY, "--trace-file", str(path))
    ids = [10 + i % 90 for i in range(400)]
    for _ in range(4):  # more than a buffer of lines
        s.complete(ids, max_tokens=50, ignore_eos=True)
    s.proc.kill()
    s.proc.wait()
    assert path.stat().st_size > 0
    r = replay(path)
    assert r.returncode == 0 and "The trace ends" in r.stdout and "requests    " in r.stdout, r.stdout + r.stderr
    (tmp_path / "none.trace").write_text("")
    assert "none.trace:1: expected" in replay(tmp_path / "none.trace").stderr


def test_lines_that_cannot_be_are_named_with_the_whole_path(whole, tmp_path):
    bad = tmp_path / "bad.trace"
    bad.write_text("".join(whole.read_text().splitlines(keepends=True)[:5]) + "Y 1\n")
    assert f"{bad}:6: expected a line that begins with one of A B C D" in replay(bad).stderr
