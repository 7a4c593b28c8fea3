"""quire bench: the load client against servers of known behaviour."""
import json
import os
import pty
import re
import socket
import subprocess
import threading

import pytest

from conftest import BUILD, QUIRE, ROOT, TINY

TOKENS = ["--token-ids", "5-499"]


def bench(*args, code=0):
    p = subprocess.run([QUIRE, "bench", *args], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert p.returncode == code, (args, p.returncode, p.stdout, p.stderr)
    return p


def serve(server, *args):
    out = bench("serve", "--base-url", server.base, *TOKENS, "--num-warmups", "0", "--json", "-", *args).stdout
    return json.loads(out)["result"]


def test_help_teaches():
    text = bench("--help").stdout
    for line in open(os.path.join(os.path.dirname(__file__), "..", "..", "src", "bench", "bench.def")):
        if line.startswith("QR_BENCH("):
            name = line[9:].split(",")[0]
            assert f"  {name} " in text
            own = bench(name, "--help").stdout
            assert own.startswith(f"usage: quire bench {name}") and f"quire bench {name}" in own.split("\n", 1)[1]
            # Its own options and no other's: what is listed is taken.
            assert ("--context" in own) == (name == "step") and ("--base-url" in own) == (name == "serve")
            assert ("--threads" in own) == (name != "serve") and ("--batch-size" in own) == (name == "latency")
            assert "--context" in text and "--base-url" in text
    assert "--context is an option of quire bench step, not of quire bench latency" in bench("latency", TINY, "--context", "5", code=2).stderr
    assert "--max-concurrency is an option of quire bench serve, not of quire bench step" in bench("step", TINY, "--max-concurrency", "5", code=2).stderr
    assert "--interval is an option of quire top, not of quire bench" in bench("serve", "--interval", "5", code=2).stderr
    assert "expected a URL, or --host and --port" in bench("serve", "--base-url", "http://127.0.0.1:9", "--port", "9", code=2).stderr
    assert "expected one of serve, " in bench("nothing", code=2).stderr
    assert bench(code=2).stderr.startswith("usage:")
    assert "takes no argument" in bench("serve", "URL", code=2).stderr


def test_serve_counts_what_the_server_counts(start):
    s = start("--num-kv-blocks", "2048", "--served-model-name", "m")
    r = serve(s, "--num-prompts", "40", "--input-len", "60", "--output-len", "20", "--max-concurrency", "8", "--seed", "3")
    s.idle()
    assert r["completed"] == 40 and r["failed"] == 0 and r["model_id"] == "m" and r["max_concurrent_requests"] <= 8
    for ours, theirs in ("total_input_tokens", "vllm:prompt_tokens_total"), ("total_output_tokens", "vllm:generation_tokens_total"):
        assert r[ours] == s.metric(theirs)
    assert s.metric("vllm:request_success_total", 'finished_reason="length"') == 40
    assert s.metric("vllm:time_to_first_token_seconds_count") == 40
    # The client's times hold the server's within them.
    assert r["mean_ttft_ms"] * 40 >= s.metric("vllm:time_to_first_token_seconds_sum") * 1e3
    assert r["mean_e2el_ms"] * 40 >= s.metric("vllm:e2e_request_latency_seconds_sum") * 1e3 * 0.9
    assert r["output_throughput"] == pytest.approx(r["total_output_tokens"] / r["duration"])
    assert r["total_token_throughput"] == pytest.approx((r["total_input_tokens"] + r["total_output_tokens"]) / r["duration"])
    assert r["request_throughput"] == r["request_goodput"] == pytest.approx(40 / r["duration"])
    assert r["median_itl_ms"] <= r["p95_itl_ms"] <= r["p99_itl_ms"]


def test_serve_takes_host_and_port(tiny):
    out = bench("serve", "--host", "127.0.0.1", "--port", str(tiny.port), *TOKENS, "--input-len", "5", "--output-len", "2", "--num-prompts", "2").stdout
    assert "Successful requests:" in out


def test_serve_prints_what_vllm_prints(tiny, tmp_path):
    path = tmp_path / "r.json"
    out = bench("serve", "--base-url", tiny.base, *TOKENS, "--dataset", "random", "--input-len", "12", "--output-len", "6", "--num-prompts", "10",
                "--request-rate", "200", "--goodput", "ttft:100000 e2el:0.000001", "--json", str(path), "--save-detailed").stdout
    lines = out.splitlines()
    assert lines[0] == "============ Serving Benchmark Result ============" and lines[-1] == "=" * 50
    value = {name.strip(): number for name, number in (line.split(":") for line in lines if ":" in line)}
    assert int(value["Successful requests"]) == 10 and int(value["Total input tokens"]) == 120 and int(value["Total generated tokens"]) == 60
    assert float(value["Request rate configured (RPS)"]) == 200 and float(value["Request goodput (req/s)"]) == 0
    r = json.loads(path.read_text())["result"]
    assert float(value["Median TTFT (ms)"]) == pytest.approx(r["median_ttft_ms"], abs=0.006)
    assert r["input_lens"] == [12] * 10 and r["output_lens"] == [6] * 10 and len(r["ttfts"]) == 10 and all(r["ok"])
    assert r["duration"] >= 0.045  # ten arrivals at 200 a second
    assert r["start_times"] == sorted(r["start_times"])


def test_serve_shares_prefixes_of_a_trace(tiny, tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens,hash_ids\n0,40,4,0-2\n0.01,48,5,0-1 7\n0.02,9999,9999,\n0.03,16,6,0\n")
    r = serve(tiny, "--workload", str(trace), "--max-model-len", "256")
    assert r["completed"] == 3 and r["total_input_tokens"] == 104 and r["total_output_tokens"] == 15 and r["duration"] >= 0.03


def test_serve_plays_sessions_turn_by_turn(tiny, tmp_path):
    trace = tmp_path / "sessions.csv"
    trace.write_text("session,turn,arrival_s,input_tokens,output_tokens,think_s\n0,0,0,20,8,\n0,1,,40,8,0.2\n0,2,,60,4,0.2\n1,0,0,10,4,\n")
    r = serve(tiny, "--workload", str(trace), "--request-rate", "inf", "--save-detailed")
    assert r["completed"] == 4 and r["total_input_tokens"] == 130 and r["duration"] >= 0.4
    first, second, third, other = r["start_times"]
    assert second >= first + 0.2 and third >= second + 0.2 and other < 0.2


def test_two_servers_by_turns(tiny, start, tmp_path):
    path = tmp_path / "pairs.json"
    other = start("--num-kv-blocks", "512")
    args = ["serve", "--base-url", tiny.base, "--vs", other.base, *TOKENS, "--dataset", "random", "--input-len", "10", "--output-len", "8",
            "--num-prompts", "8", "--max-concurrency", "4", "--pairs", "3", "--num-warmups", "0", "--json", str(path)]
    out = bench(*args).stdout
    assert "3 pairs" in out and "Output throughput" in out
    r = json.loads(path.read_text())
    assert [(x["pair"], x["side"]) for x in r["runs"]] == [(0, "A"), (0, "B"), (1, "B"), (1, "A"), (2, "A"), (2, "B")]
    assert all(x["result"]["completed"] == 8 for x in r["runs"])
    by = {(x["pair"], x["side"]): x["result"]["output_throughput"] for x in r["runs"]}
    ratios = sorted(by[i, "A"] / by[i, "B"] for i in range(3))
    q = r["versus"]["output_throughput"]
    assert [q["ratio_min"], q["ratio"], q["ratio_max"]] == pytest.approx(ratios)


def test_errors_are_one_clear_line(tiny, tmp_path):
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    cases = [
        (["serve", "--base-url", f"http://127.0.0.1:{port}"], 1, "Connection refused"),
        (["serve", "--base-url", "http://no-such-host.invalid"], 1, "no-such-host.invalid"),
        (["serve", "--base-url", "https://127.0.0.1"], 1, "TLS"),
        (["serve", "--base-url", "http://:80"], 2, "expected a URL"),
        (["serve", "--base-url", tiny.base, "--endpoint", "/v1/nothing"], 1, "status 404"),
        (["serve", "--base-url", tiny.base, "--model", "another"], 1, "does not exist"),
        (["serve", "--base-url", tiny.base, "--extra-body", "[1]"], 2, "--extra-body"),
        (["serve", "--base-url", tiny.base, "--extra-body", '{"temperature":9}', *TOKENS], 1, "temperature"),
        (["serve", "--base-url", tiny.base, *TOKENS, "--json", str(tmp_path / "no" / "r.json")], 1, "cannot write"),
        (["serve", "--workload", "/nothing.csv"], 1, "/nothing.csv"),
        (["serve", "--base-url", tiny.base, "--vs", f"http://127.0.0.1:{port}"], 1, "Connection refused"),
        (["serve", "--vs", "http://x", "--pairs", "0"], 2, "--pairs"),
        (["serve", "--max-concurrency", "9999"], 2, "--max-concurrency"),
    ]
    for args, code, says in cases:
        err = bench(*args, "--num-prompts", "2", code=code).stderr
        assert says in err and err.splitlines()[-1].startswith("quire: "), (args, err)


def test_a_server_that_breaks_off_is_a_failed_request():
    """Half an answer, an error event, no stream at all: counted, with the first reason shown."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    token = b'data: {"choices":[{"text":"a"}]}\n\n'
    answers = [head + token + token, head + b'data: {"error":{"message":"out of luck"}}\n\n',
               b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
               b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 900\r\n\r\n" + token]
    models = b'{"data":[{"id":"x"}]}'
    sock = socket.create_server(("127.0.0.1", 0))

    def play():
        for answer in [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(models) + models] + answers:
            conn, _ = sock.accept()
            with conn:
                got = b""
                while b"\r\n\r\n" not in got or (b"POST" in got and not got.endswith(b"}")):
                    got += conn.recv(65536)
                conn.sendall(answer)

    thread = threading.Thread(target=play)
    thread.start()
    p = bench("serve", "--base-url", f"http://127.0.0.1:{sock.getsockname()[1]}", "--num-prompts", "4", "--max-concurrency", "1", "--num-warmups", "0",
              "--dataset", "random", "--input-len", "4", "--output-len", "2")
    thread.join()
    sock.close()
    assert "Successful requests:                     1 " in p.stdout and "Failed requests:                         3 " in p.stdout
    assert "3 of 4 requests failed; the first: out of luck" in p.stderr


def test_waiting_for_a_server_that_starts(start):
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    p = subprocess.Popen([QUIRE, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", *TOKENS, "--num-prompts", "2", "--output-len", "4",
                          "--ready-check-timeout-sec", "60"], stdout=subprocess.PIPE, text=True)
    start("--num-kv-blocks", "128", "--port", str(port))
    out, _ = p.communicate(timeout=60)
    assert p.returncode == 0 and "Successful requests:                     2 " in out


def test_throughput_counts_its_load():
    r = json.loads(bench("throughput", TINY, *TOKENS, "--num-prompts", "20", "--seed", "1", "--json", "-").stdout)
    r2 = json.loads(bench("throughput", TINY, *TOKENS, "--num-prompts", "20", "--seed", "1", "--threads", "1", "--json", "-").stdout)
    assert r["num_requests"] == 20 and r["total_num_tokens"] == r2["total_num_tokens"] > r["total_output_tokens"] == r2["total_output_tokens"]
    assert r["tokens_per_second"] == pytest.approx(r["total_num_tokens"] / r["elapsed_time"])
    out = bench("throughput", TINY, *TOKENS, "--num-prompts", "2").stdout
    assert out.startswith("Throughput: ") and "Total num output tokens:  " in out


def test_latency_prints_percentiles():
    args = ["latency", TINY, "--batch-size", "2", "--output-len", "8", "--num-iters", "5"]
    r = json.loads(bench(*args, "--json", "-").stdout)
    assert len(r["latencies"]) == 5 and r["avg_latency"] == pytest.approx(sum(r["latencies"]) / 5)
    assert r["percentiles"]["50"] == sorted(r["latencies"])[2]
    out = bench(*args).stdout
    assert out.startswith("Avg latency: ") and "99% percentile latency: " in out
    assert "--batch-size" in bench("latency", TINY, "--batch-size", "0", code=2).stderr
    assert "expected a model" in bench("latency", code=2).stderr


def test_step_adds_up_and_its_costs_are_read_by_sim(tmp_path):
    costs = tmp_path / "costs.json"
    r = json.loads(bench("step", TINY, "--context", "100", "--costs", str(costs), "--json", "-").stdout)
    for column in r["steps"]:
        parts = sum(v for k, v in column.items() if k not in ("users", "step", "plan, publish"))
        assert parts == pytest.approx(column["step"], rel=0.35)  # medians of parts are not parts of the median
        assert column["layer products, SwiGLU"] > 0 and column["attention, RoPE, KV write"] > 0
    assert [c["users"] for c in r["steps"]] == [1, 32]
    table = json.loads(costs.read_text())
    assert table["model"] == "tiny" and all(isinstance(v, int) and v >= 0 for v in r["costs"].values()) and table["fixed_ns"] >= 1
    p = subprocess.run([QUIRE, "sim", "smollm2-135m", "--workload", "64/16", "--num-prompts", "20", "--request-rate", "5", "--costs", str(costs),
                        "--num-kv-blocks", "512"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stderr
    # Before anything is measured, or a model looked for.
    assert "--costs: cannot write" in bench("step", "nosuch.gguf", "--costs", str(tmp_path / "no" / "c.json"), code=1).stderr
    assert "--json: cannot write" in bench("step", "nosuch.gguf", "--json", str(tmp_path / "no" / "c.json"), code=1).stderr


def test_step_says_how_far_it_is(tmp_path):
    master, slave = pty.openpty()
    p = subprocess.Popen([QUIRE, "bench", "step", TINY, "--context", "20", "--costs", str(tmp_path / "c.json")], stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    said = b""
    try:
        while part := os.read(master, 4096):
            said += part
    except OSError:  # how a terminal says that nobody writes to it any more
        pass
    os.close(master)
    assert p.wait(60) == 0
    assert b"steps of one user: 1 of 68" in said and re.search(rb"steps of the cost table: \d+ of \d+", said), said


def packed_formats(path):
    """What the file's matrices are packed as, by the table that maps types to formats."""
    gguf = pytest.importorskip("gguf")
    table = re.findall(r"^QR_QTYPE\(\w+, (\d+), \d+, \d+, (\w+)\)", open(os.path.join(ROOT, "src", "kern", "qtypes.def")).read(), re.M)
    packed = {int(number): name.lower() for number, name in table}
    tensors = gguf.GGUFReader(path).tensors
    names = {t.name for t in tensors}
    return {packed[int(t.tensor_type)] for t in tensors
            if len(t.shape) == 2 and not (t.name == "token_embd.weight" and "output.weight" in names)}


def test_kernels_of_a_model():
    path = os.path.join(BUILD, "tiny", "llama-mixed.gguf")
    out = bench("kernels", path, "--isa", "avx2", "--threads", "1").stdout
    lines = [line.split() for line in out.splitlines()]
    products = {(line[0], line[1]) for line in lines if len(line) > 12 and line[0] in ("D", "D15", "P")}
    formats = packed_formats(path)
    assert len(formats) > 1 and {f for _, f in products} == formats and {c for c, _ in products} == {"D", "D15", "P"}
    assert "avx512" not in out
    r = json.loads(bench("kernels", path, "--isa", "avx2", "--threads", "1", "--json", "-").stdout)
    assert {p["isa"] for p in r["peaks"]} == {"avx2"} and {p["rows"] for p in r["products"]} == {1, 8, 32, 128, 512}
    for p in r["products"]:
        assert p["isa"] == "avx2" and p["gops"] == pytest.approx(2 * p["rows"] * p["outputs"] * p["inputs"] / p["ns"])
        assert 0 < p["peak_share"] and 0 < p["memory_share"]
    assert {(a["kernel"], a["type"]) for a in r["attention"]} == {(k, t) for k in ("decode", "prefill") for t in ("bf16", "f16", "f32", "int8", "fp8")}
    assert {p["kernel"] for p in r["plain"]} >= {"rmsnorm", "swiglu", "quant_g32", "argmax"}
    exact = json.loads(bench("kernels", path, "--isa", "avx2", "--threads", "1", "--numerics", "exact", "--json", "-").stdout)
    assert {p["class"] for p in exact["products"]} == {"D", "D15"}
    assert "nothing.gguf" in bench("kernels", "/nothing.gguf", code=1).stderr
