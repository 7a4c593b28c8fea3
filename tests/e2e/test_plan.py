"""quire plan from outside: its figures against numpy over quire sim's request lines, the same bytes for the same seed, a model file's
sizes, one line for bad input."""
import csv
import json
import subprocess

import numpy as np
import pytest

from conftest import QUIRE, TINY

LOAD = ["--workload", "60/40*3,300/80", "--seed", "5"]
ON = ["opt-13b", "--hardware", "a100-40g", *LOAD]


def plan(*args, code=0):
    p = subprocess.run([QUIRE, "plan", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert p.returncode == code, (p.returncode, p.stderr)
    return p.stdout if code == 0 else p.stderr


def test_what_it_expects_is_what_the_simulator_says(tmp_path):
    j = json.loads(plan(*ON, "--request-rate", 3, "--num-prompts", 500, "--goodput", "ttft:600 tpot:40", "--target-percentile", 90, "--json", "-"))
    s = j["settings"]
    assert s["replicas"] == 1
    out = tmp_path / "r.csv"
    kv = int(j["expected_at_percentile"]["kv_cache_memory_bytes"])
    subprocess.run([QUIRE, "sim", *ON, "--request-rate", "3", "--num-prompts", "500", "--max-num-seqs", str(s["max_num_seqs"]),
                    "--max-num-batched-tokens", str(s["max_num_batched_tokens"]), "--num-kv-blocks", str(kv // (16 * 819200)),
                    "--step-budget-ms", "auto", "--out", out], check=True, capture_output=True, timeout=300)
    rows = list(csv.DictReader(out.open()))
    a, f, first = (np.array([float(r[k]) for r in rows]) for k in ("arrival_s", "finish_s", "first_token_s"))
    tpot = (f - first) / (np.array([int(r["output_tokens"]) for r in rows]) - 1)
    e = j["expected_at_percentile"]
    for key, v in (("ttft_s", first - a), ("tpot_s", tpot), ("e2el_s", f - a)):
        assert e[key] == pytest.approx(np.percentile(v, 90, method="inverted_cdf"), rel=1e-4)
    assert e["late"] == int((((first - a) > 0.6) | (tpot > 0.04)).sum())
    # With less memory, as recommended, nothing changes: it held as many of the longest requests as ran at once.
    assert s["kv_cache_memory_bytes"] <= kv and e["preemptions"] == 0
    assert s["kv_cache_memory_bytes"] >= e["peak_seqs"] * 380 * 819200


def test_same_seed_same_bytes_and_text_says_why():
    args = [*ON, "--request-rate", "12", "--num-prompts", "300", "--goodput", "ttft:500 tpot:40"]
    assert plan(*args) == plan(*args)
    assert plan(*args, "--json", "-") == plan(*args, "--json", "-")
    text = plan(*args)
    for words in ("replicas", "max-num-seqs", "max-num-batched-tokens", "kv-cache-memory", "swap-space", "What binds", "How it was found"):
        assert words in text


def test_rows_that_say_the_same_are_one():
    text = plan("llama-3-8b", "--hardware", "l4", "--workload", "512/128*3,2000/400", "--request-rate", "8", "--goodput", "ttft:2000 tpot:100")
    rows = [line.split()[4:] for line in text.split("in time\n")[1].splitlines() if "late of the first" in line]
    rows = [" ".join(r).split(" (so with")[0] for r in rows]
    assert len(rows) == len(set(rows)) and "(so with 4 other settings)" in text
    assert "no step had more than" in text


def test_a_stricter_target_never_needs_fewer_replicas():
    def n(ttft, p):
        return json.loads(plan(*ON, "--request-rate", "60", "--num-prompts", "300", "--goodput", f"ttft:{ttft}", "--target-percentile", p,
                               "--json", "-"))["settings"]["replicas"]

    counts = [n(5000, 80), n(2000, 80), n(2000, 95), n(400, 95), n(200, 95)]
    assert counts == sorted(counts) and counts[-1] > counts[0]


def test_a_model_file_on_this_machine(tmp_path):
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps({"fixed_ns": 2000000, "row_ns": 100000, "prompt_fixed_ns": 100000, "prompt_row_ns": 50000,
                                 "context_ps": 100, "query_context_ps": 10}))
    args = [TINY, "--workload", "30/20", "--request-rate", "2", "--num-prompts", "100", "--goodput", "ttft:500 tpot:50"]
    j = json.loads(plan(*args, "--costs", costs, "--json", "-"))
    assert j["hardware"] == "this machine" and j["costs"] == str(costs) and j["settings"]["replicas"] == 1
    guess = plan(*args)
    assert "guess" in guess and "quire bench step" in guess
    # The pool's bytes a token are the server's own.
    import gguf
    r = gguf.GGUFReader(TINY)
    key = lambda k: int(r.fields[f"llama.{k}"].parts[-1][0])
    head = key("attention.key_length") if "llama.attention.key_length" in r.fields else key("embedding_length") // key("attention.head_count")
    token = 2 * 2 * key("block_count") * key("attention.head_count_kv") * head
    assert f"{token} bytes of KV a token" in guess
    assert j["settings"]["kv_cache_memory_bytes"] % (16 * token) == 0
    assert j["weight_bytes"] == sum(int(t.n_bytes) for t in r.tensors)


BAD = [
    (["--hardware", "l4", *LOAD, "--request-rate", "1"], "weights take"),
    (["--hardware", "l5", *LOAD, "--request-rate", "1"], "--hardware: expected one of"),
    ([*ON[1:], "--request-rate", "inf"], "--request-rate: expected requests a second"),
    (ON[1:], "expected requests a second, above 0\n"),  # and no word of inf, which a plan cannot take
    (["--hardware", "l4", *LOAD, "--request-rate", "1", "--kv-cache-memory", "4T"], "weights take"),
    ([*ON[1:], "--request-rate", "1", "--kv-cache-memory", "4T"], "--kv-cache-memory-bytes: expected at most"),
    (["--request-rate", "1"], "--workload: expected a file"),
    ([*ON[1:], "--request-rate", "1", "--goodput", "itl:5"], "--goodput: expected milliseconds"),
    ([*ON[1:], "--request-rate", "1", "--target-percentile", "101"], "--target-percentile: expected 1 to 100"),
    ([*ON[1:], "--request-rate", "1", "--target-percentile", "0.95"], "--target-percentile: expected 1 to 100, of 100 requests, got 0.95"),
    ([*ON[1:], "--request-rate", "1", "--goodput", "ttft:500 ttft:60"], "--goodput: expected ttft once"),
    ([*ON[1:], "--request-rate", "1", "--num-prompts", "0"], "--num-prompts: expected 1 to 100000000, got 0"),
    ([*ON[1:], "--request-rate", "1", "--num-prompts", "1"], "--num-prompts: expected at least 20 requests to plan from, got 1"),
    ([*ON[1:], "--request-rate", "1", "--threads", "2"], "--threads: expected neither --hardware nor --costs beside it"),
    ([*ON[1:], "--request-rate", "1", "--goodput", "tpot:1"], "no number of replicas keeps the target"),
    ([*ON[1:], "--request-rate", "1e9"], "need at least"),
    ([*ON[1:], "--request-rate", "1", "--kv-cache-memory", "100M"], "a request of --max-model-len 2048 needs 128 KV blocks"),
    ([*ON[1:], "--request-rate", "1", "--tp", "7"], "expected a divisor"),
    ([*ON[1:], "--request-rate", "1", "--max-model-len", "100000"], "--max-model-len: expected 1 to 2048, which opt-13b takes, got 100000"),
    ([*ON[1:], "--request-rate", "1", "--json", "/nonexistent/x"], "--json: cannot write /nonexistent/x: No such file or directory"),
    ([*ON[1:], "--request-rate", "1", "--costs", "/nonexistent"], "--costs: cannot read"),
]


@pytest.mark.parametrize("args,says", BAD)
def test_bad_input_is_one_line(args, says):
    p = subprocess.run([QUIRE, "plan", "opt-13b", *args], capture_output=True, text=True, timeout=300)
    assert p.returncode in (1, 2) and p.stdout == "" and says in p.stderr
    assert len(p.stderr.strip().splitlines()) == 1 and p.stderr.startswith("quire: ")


def test_an_unknown_model_is_one_line(tmp_path):
    assert "no model" in plan("nobody", *LOAD, "--request-rate", "1", code=1)
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUX" + bytes(100))
    assert "not a GGUF file" in plan(bad, *LOAD, "--request-rate", "1", code=1)


def test_a_rate_that_is_promised_is_answered():
    """A loose limit hides an overload for minutes: what is planned must hold for longer than a plan simulates."""
    args = ["llama-3-8b", "--hardware", "l4", "--workload", "100/10"]
    j = json.loads(plan(*args, "--request-rate", "33", "--json", "-"))
    s = j["settings"]
    with_settings = ["--max-num-seqs", s["max_num_seqs"], "--max-num-batched-tokens", s["max_num_batched_tokens"], "--step-budget-ms", "auto"]
    for rate, kv in ((33 / s["replicas"], ["--kv-cache-memory", s["kv_cache_memory_bytes"]]), (j["replica_rate_most"], [])):
        p = subprocess.run([QUIRE, "sim", *args, *map(str, [*with_settings, *kv]), "--request-rate", str(rate), "--num-prompts", "20000",
                            "--json", "-"], check=True, capture_output=True, text=True, timeout=300)
        got = json.loads(p.stdout)
        assert got["requests_per_s"] > 0.98 * rate and got["ttft_s"]["p90"] < 5
    assert s["replicas"] == 2
    assert any(r["answers_per_s_most"] and 30 < r["answers_per_s_most"] < 33 for r in j["runs"] if r["replicas"] == 1)


def test_requests_that_never_fit_are_said_and_not_counted(tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "".join(f"{i},50,5\n" for i in range(30)) + "30,5000,5\n31,5,99999\n")
    p = subprocess.run([QUIRE, "plan", "llama-3-8b", "--hardware", "l4", "--max-model-len", "4096", "--workload", trace, "--json", "-"],
                       check=True, capture_output=True, text=True, timeout=300)
    assert "2 of 32 requests can never fit and are in no figure" in p.stderr and len(p.stderr.splitlines()) == 1
    j = json.loads(p.stdout)
    assert j["settings"]["replicas"] == 1 and j["requests_that_never_fit"] == 2 and j["expected_at_percentile"]["requests"] == 30
    assert j["binds"] == "nothing" and j["replica_rate_most"] is None


TABLE = {"fixed_ns": 2000000, "row_ns": 100000, "prompt_fixed_ns": 100000, "prompt_row_ns": 50000, "context_ps": 100,
         "query_context_ps": 10, "model": "smollm2-135m-instruct", "processor": "Abacus 3", "error_median": 0.07, "error_max": 0.3}


def test_a_table_of_another_model_or_machine_is_said(tmp_path):
    costs = tmp_path / "costs.json"
    costs.write_text(json.dumps(TABLE))
    load = ["--workload", "30/20", "--request-rate", "2", "--num-prompts", "100"]

    def said(*args):
        p = subprocess.run([QUIRE, *map(str, args), *load, "--costs", costs], check=True, capture_output=True, text=True, timeout=300)
        return p

    on_l4 = said("plan", "llama-3-8b", "--hardware", "l4")
    assert f"{costs} was measured with smollm2-135m-instruct, not llama-3-8b" in on_l4.stderr
    assert f"{costs} was measured on Abacus 3, not l4" in on_l4.stderr
    assert "(smollm2-135m-instruct on Abacus 3), off by 7.0 % (median), 30.0 % at most" in on_l4.stdout
    assert "was measured on Abacus 3, not " in said("plan", TINY).stderr
    assert "was measured with smollm2-135m-instruct, not llama-3-8b" in said("sim", "llama-3-8b", "--hardware", "l4").stderr
    assert "was measured on" not in said("sim", "smollm2-135m", "--num-kv-blocks", "1000").stderr  # that machine is what is simulated
    assert "was measured on Abacus 3, not " in said("sim", "smollm2-135m").stderr  # with this machine's memory
    own = dict(TABLE, model=TINY.split("/")[-1].removesuffix(".gguf"), error_median=0.01)
    own.pop("processor")
    costs.write_text(json.dumps(own))
    assert "measured" not in said("plan", TINY).stderr
    costs.write_text(json.dumps({k: v for k, v in TABLE.items() if k.endswith("s")}))  # written by hand
    assert "measured" not in said("plan", "llama-3-8b", "--hardware", "l4").stderr
