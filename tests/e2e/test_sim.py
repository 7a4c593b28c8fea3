"""quire sim from outside: its figures against numpy over its own request lines, the same bytes for the same seed, one line for
bad input; and every KV layout in the real server."""
import csv
import json
import pathlib
import resource
import subprocess

import numpy as np
import pytest

from conftest import QUIRE, TINY, on_threads

ROOT = pathlib.Path(__file__).resolve().parents[2]

ARGS = ["opt-13b", "--workload", "30/60*3,160/200*5,600/450*2", "--request-rate", "3"]


def sim(*args, code=0):
    p = subprocess.run([QUIRE, "sim", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert p.returncode == code, (p.returncode, p.stderr)
    return p.stdout if code == 0 else p.stderr


def test_dash_is_standard_output_and_input(tmp_path):
    args = ["opt-13b", "--workload", "-", "--out", "-"]
    p = subprocess.run([QUIRE, "sim", *args], input="arrival_s,input_tokens,output_tokens\n0,5,5\n1,6,7\n", capture_output=True, text=True,
                       timeout=60, cwd=tmp_path)
    rows = list(csv.DictReader(p.stdout.splitlines()))
    assert p.returncode == 0 and [r["output_tokens"] for r in rows] == ["5", "7"], p.stderr
    p = subprocess.run([QUIRE, "plan", "opt-13b", "--workload", "-"], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert p.returncode == 2 and "a plan reads it several times" in p.stderr
    assert not list(tmp_path.iterdir())


def test_what_does_nothing_is_said():
    def said(*args):
        p = subprocess.run([QUIRE, "sim", "opt-13b", "--workload", "9/9", "--request-rate", "inf", "--num-prompts", "3", *args], capture_output=True,
                           text=True, timeout=60)
        assert p.returncode == 0, p.stderr
        return p.stderr

    for system in "orca-max", "ft", "tgi1":
        assert f"--swap-space: not used: {system}" in said("--system", system, "--swap-space", "8G")
        assert f"--preemption-mode: not used: {system}" in said("--system", system, "--preemption-mode", "recompute")
    assert "--enable-prefix-caching: not used: layout contiguous-max" in said("--system", "orca-max", "--enable-prefix-caching")
    assert "not used" not in said("--swap-space", "8G", "--enable-prefix-caching")
    assert "not used" not in said("--system", "orca-max")


def test_help_lists_every_machine_and_model_type(tmp_path):
    text = subprocess.run([QUIRE, "sim", "--help"], capture_output=True, text=True, timeout=60).stdout
    for name in sim("opt-13b", "--hardware", "?", "--workload", "9/9", code=1).split("expected one of ")[1].split(", got")[0].split(", "):
        assert name in next(line for line in text.splitlines() if line.startswith("  --hardware"))
    c = tmp_path / "config.json"
    c.write_text('{"model_type": "bert", "num_hidden_layers": 2}')
    assert f'{c}: model_type "bert" is not modelled' in sim(c, "--workload", "9/9", code=1)
    assert "model_type may be: llama, mistral" in text


def test_what_the_sizes_of_a_config_leave_out_is_said(tmp_path):
    c = tmp_path / "config.json"
    c.write_text(json.dumps({"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100,
                             "max_position_embeddings": 4096, "sliding_window": 1024}))
    for verb in "sim", "plan":
        p = subprocess.run([QUIRE, verb, c, "--hardware", "l4", "--workload", "9/9", "--request-rate", "5", "--num-prompts", "400"], capture_output=True,
                           text=True, timeout=60)
        assert p.returncode == 0 and f"{c}: sliding_window 1024: KV of the whole context counts" in p.stderr, p.stderr


def test_figures_are_those_of_the_request_lines(tmp_path):
    out = tmp_path / "r.csv"
    j = json.loads(sim(*ARGS, "--num-prompts", 800, "--json", "-", "--out", out))
    rows = list(csv.DictReader(out.open()))
    a, f, first, sched = (np.array([float(r[k]) for r in rows]) for k in ("arrival_s", "finish_s", "first_token_s", "scheduled_s"))
    n = np.array([int(r["output_tokens"]) for r in rows])
    assert len(rows) == j["requests"] == 800
    assert sorted(set(n)) == [60, 200, 450]
    span = f.max() - a.min()
    assert j["duration_s"] == pytest.approx(span, rel=1e-6)
    assert j["tokens_per_s"] == pytest.approx(n.sum() / span, rel=1e-6)
    assert j["normalized_latency_s"] == pytest.approx(((f - a) / n).mean(), rel=1e-6)
    for key, v in (("latency_s", f - a), ("ttft_s", first - a), ("queue_s", sched - a), ("tpot_s", (f - first) / (n - 1))):
        assert j[key]["mean"] == pytest.approx(v.mean(), rel=1e-5, abs=1e-8)
        for p in (50, 90, 99):
            assert j[key][f"p{p}"] == pytest.approx(np.percentile(v, p, method="inverted_cdf"), rel=1e-5, abs=1e-8)
    assert j["kv_used"] + j["kv_reserved"] + j["kv_internal"] + j["kv_external"] == pytest.approx(1)


def test_same_seed_same_bytes(tmp_path):
    def run(name, *more):
        text = sim(*ARGS, "--num-prompts", 300, "--out", tmp_path / name, *more)
        return text, (tmp_path / name).read_bytes()

    assert run("a", "--seed", 5) == run("b", "--seed", 5)
    assert run("a", "--seed", 5)[1] != run("c", "--seed", 6)[1]
    assert run("a", "--seed", 5)[1] == run("d", "--seed", 5, "--check", "7")[1]


@pytest.mark.parametrize("system", ["quire", "orca-max", "orca-pow2", "orca-oracle", "ft", "tgi1", "vattention"])
def test_every_invariant_after_every_step(system):
    text = sim(*ARGS, "--num-prompts", 60, "--system", system, "--check", "step", "--kv-cache-memory", "4G")
    assert "60 finished, 0 refused" in text


def test_a_tight_pool_preempts_by_swapping_and_by_recomputing():
    tight = [*ARGS, "--num-prompts", 150, "--kv-cache-memory", "3G", "--check", "step", "--json", "-"]
    swap = json.loads(sim(*tight, "--swap-space", "8G", "--preemption-mode", "swap"))
    again = json.loads(sim(*tight, "--preemption-mode", "recompute"))
    assert swap["preemptions"] > 5 and swap["recomputed_tokens"] == 0
    assert again["preemptions"] > 5 and again["recomputed_tokens"] > 0


def test_shared_prefixes_are_found():
    base = ["llama-13b", "--workload", "60/60", "--request-rate", 10, "--num-prompts", 200, "--shared-prefix", 340, "--json", "-"]
    found = json.loads(sim(*base))
    # 21 whole blocks of 16; the first request computes them, and those that come before it has done so.
    assert 0.9 * 336 / 400 < found["hit_rate"] <= 340 / 400
    for more in (["--no-enable-prefix-caching"], ["--system", "orca-oracle"], ["--system", "tgi1"]):
        none = json.loads(sim(*base, *more))
        assert none["hit_rate"] == 0 and none["ttft_s"]["mean"] > found["ttft_s"]["mean"]


@pytest.mark.parametrize("args, says", [
    (["gpt-9"], 'no model "gpt-9"'),
    (["opt-66b"], "opt-66b does not fit: a100-40g has"),
    (["opt-13b", "--hardware", "abacus"], "--hardware: expected one of a100-40g"),
    (["opt-13b", "--system", "orca"], "--system: expected one of quire, vllm"),
    (["opt-13b", "--kv-layout", "heap"], "--kv-layout: expected paged"),
    (["opt-13b", "--tp", "3"], "expected a divisor of the model's 40 heads"),
    (["opt-13b", "--request-rate", "often"], "--request-rate: expected requests a second, or inf"),
    (["opt-13b", "--n", "2", "--beam-width", "4"], "--n: a beam search returns its 4 beams"),
    (["opt-13b", "--beam-width", "65"], "--beam-width: expected 0 to 64, got 65"),
    (["opt-13b", "--step-budget-ms", "soon"], "--step-budget-ms: expected auto, 0 or a number"),
    (["opt-13b", "--check", "never"], "--check: expected no, step or a number"),
    (["opt-13b", "--workload", "12"], "--workload: no such file: 12; expected a file of requests or lengths"),
    (["opt-13b", "--workload", "none.csv"], "no such file: none.csv"),
    (["opt-13b", "--workload", "0/50"], "--workload: expected prompt and answer lengths from 1 to 16777216"),
    (["opt-13b", "--max-model-len", "100000"], "--max-model-len: expected 1 to 2048, which opt-13b takes, got 100000"),
    (["opt-13b", "--preemption-mode", "swap"], "swapping preempted requests out needs room for them: --swap-space"),
    (["opt-13b", "--swap-space", "4"], "--swap-space: 4 bytes hold no KV block of 13107200; for GiB write 4G"),
    (["opt-13b", "--num-prompts", "0"], "--num-prompts: expected 1 to 100000000, got 0"),
    (["opt-13b", "--out", "/nonexistent/x.csv"], "--out: cannot write /nonexistent/x.csv: No such file or directory"),
    (["opt-13b", "--json", "/tmp"], "--json: cannot write /tmp: Is a directory"),
    (["opt-13b", "--json", "-", "--out", "-"], "--out and --json: expected a file for one of them"),
    (["opt-13b", "--costs", "/tmp"], "--costs: cannot read /tmp"),
    (["opt-13b", "--workload", "/usr"], "/usr: expected a file, got a directory"),
    (["opt-13b", "--request-rate", "1e-300"], "--request-rate: at 1e-300 a second the last of 1000 requests comes after"),
    (["llama-3-8b", "--hardware", "l4", "--kv-cache-memory", "4T"], "--kv-cache-memory-bytes: expected at most"),
    (["llama-3-8b", "--hardware", "l4", "--num-kv-blocks", "900000000"], "--num-gpu-blocks-override: expected at most"),
    (["opt-13b", "--swap-space", "4000000T"], "--swap-space: expected less than 1e+09 blocks"),
    (["opt-13b", "--chrome", "x.json"], "--chrome: only with --replay"),
    (["opt-13b", "--workload", "3000/10"], "no request can be served: a prompt of 3000 tokens"),
    (["opt-13b", "--costs", "/nonexistent", "--num-kv-blocks", "9"], "--costs: cannot read"),
    (["opt-13b", "--kv-cache-memory", "1000"], "expected 1 to 1e9 blocks"),
])
def test_bad_input_is_one_line(args, says):
    more = [] if "--workload" in args else ["--workload", "10/10"]
    if "--request-rate" not in args:
        more += ["--request-rate", "inf"]
    p = subprocess.run([QUIRE, "sim", *args, *more], capture_output=True, text=True, timeout=60)
    assert p.returncode in (1, 2) and p.stdout == ""
    assert says in p.stderr and p.stderr.count("\n") == 1, p.stderr


def test_help_shows_the_defaults_that_are_used():
    def shown(verb):
        text = subprocess.run([QUIRE, verb, "--help"], capture_output=True, text=True, timeout=60).stdout
        lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  --")}
        return text, lambda flag: lines[f"--{flag}"].rsplit(" [", 1)[1].split("]")[0] if " [" in lines[f"--{flag}"] else ""

    text, default = shown("sim")
    used = json.loads(sim(*ARGS, "--json", "-"))
    for flag, key in (("max-num-seqs", "max_num_seqs"), ("max-num-batched-tokens", "max_num_batched_tokens"), ("block-size", "block_size")):
        assert default(flag).split(",")[0] == str(used["config"][key]), flag
    assert default("num-prompts") == f"all of a file, {used['requests']} of lengths"
    assert default("request-rate") == "as the file says; needed where it does not" and default("step-budget-ms") == "0"
    words = text.split()
    for i, word in enumerate(words):
        if word == "--workload" and words[i + 1].endswith((".csv", ".csv.gz")):
            assert (ROOT / words[i + 1]).exists(), words[i + 1]
    _, default = shown("plan")
    assert "are tried" in default("max-num-seqs") and "not inf" in default("request-rate") and default("goodput") == "ttft:5000 tpot:200"
    assert shown("serve")[1]("max-num-seqs") == "128"


def test_a_file_of_a_table_editor_keeps_its_times_and_unknown_columns_are_said(tmp_path):
    t = tmp_path / "t.csv"
    t.write_bytes(b"\xef\xbb\xbfarrival_s,input_tokens,output_tokens,user\r\n0,5,5,a\r\n9,5,5,b\r\n")
    p = subprocess.run([QUIRE, "sim", "opt-13b", "--workload", t, "--json", "-"], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0 and json.loads(p.stdout)["duration_s"] > 9
    assert f'{t}: "user": not used' in p.stderr


def test_a_model_file_and_a_cached_name(tmp_path, monkeypatch):
    j = json.loads(sim(TINY, "--hardware", "l4", "--workload", "30/20", "--request-rate", 1, "--num-prompts", 5, "--json", "-"))
    assert j["requests"] == 5 and j["config"]["model"] == "tiny.gguf"
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "my-tiny.gguf").symlink_to(TINY)
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path))
    assert json.loads(sim("my-tiny", "--workload", "30/20", "--request-rate", 1, "--num-prompts", 5, "--json", "-"))["requests"] == 5
    for verb in "sim", "plan":
        p = subprocess.run([QUIRE, verb, "nosuch", "--workload", "9/9", "--request-rate", "1"], capture_output=True, text=True, timeout=60)
        assert p.returncode == 1 and "opt-13b" in p.stderr and "cached: my-tiny" in p.stderr, p.stderr


@pytest.mark.parametrize("args, says", [
    (["llama-3-8b"], '--replay takes no model: the trace says what ran; got "llama-3-8b"'),
    (["--hardware", "l4"], "--hardware: --replay does not use it"),
    (["--json", "-"], "--json: --replay does not use it"),
    (["--check", "often"], "--check: expected no, step or a number"),
    (["--replay", "-"], "--replay: a trace is read twice"),
])
def test_a_replay_refuses_what_it_does_not_use(tmp_path, args, says):
    t = tmp_path / "t.trace"
    t.write_text("quire-trace 2\n")
    assert says in sim(*(args if "--replay" in args else [*args, "--replay", t]), code=2)


def test_a_table_that_is_far_off_is_said_again(tmp_path):
    c = tmp_path / "c.json"
    table = {"fixed_ns": 1000000, "row_ns": 1000, "prompt_fixed_ns": 0, "prompt_row_ns": 0, "context_ps": 0, "query_context_ps": 0}
    load = ["--costs", c, "--workload", "10/21", "--request-rate", "1", "--num-prompts", "20"]
    for verb, more in (("sim", ["smollm2-135m", "--num-kv-blocks", "100"]), ("plan", [TINY])):
        for off, said in ((0.277, True), (0.03, False)):
            c.write_text(json.dumps({**table, "error_median": off}))
            p = subprocess.run([QUIRE, verb, *more, *map(str, load)], capture_output=True, text=True, timeout=120)
            assert p.returncode == 0 and ("the table is off by 27.7 % (median)" in p.stderr) == said, p.stderr


def test_a_malformed_trace_names_its_line(tmp_path):
    t = tmp_path / "t.csv"
    t.write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n1,many,5\n")
    assert f'{t}:3: input_tokens: expected a whole number from 1 to 16777216, got "many"' in sim("opt-13b", "--workload", t, code=1)
    broken = tmp_path / "t.csv.gz"
    broken.write_bytes(b"not gzip")
    assert "expected a gzip file" in sim("opt-13b", "--workload", broken, code=1)


def test_costs_of_a_table(tmp_path):
    c = tmp_path / "c.json"
    c.write_text(json.dumps({"fixed_ns": 1000000, "row_ns": 0, "prompt_fixed_ns": 0, "prompt_row_ns": 0, "context_ps": 0,
                             "query_context_ps": 0}))
    j = json.loads(sim("smollm2-135m", "--costs", c, "--num-kv-blocks", 100, "--workload", "10/21", "--request-rate", "inf",
                       "--num-prompts", 1, "--json", "-"))
    assert j["steps"] == 21 and j["duration_s"] == pytest.approx(0.021)
    # As bench step's help has it: in this machine's memory.
    text = sim("smollm2-135m", "--costs", c, "--workload", "10/21", "--request-rate", "inf", "--num-prompts", 1)
    assert "of this machine's memory" in text
    assert "in 25.8 GB of l4" in sim("smollm2-135m", "--costs", c, "--hardware", "l4", "--workload", "10/21", "--request-rate", 1, "--num-prompts", 1)


def test_a_copied_block_is_priced_beside_a_table(tmp_path):
    names = "row_ns", "prompt_fixed_ns", "prompt_row_ns", "context_ps", "query_context_ps"
    table = {"fixed_ns": 1000000, **dict.fromkeys(names, 0)}
    c = tmp_path / "costs.json"

    def seconds(extra, *where):
        c.write_text(json.dumps({**table, **extra}))
        return json.loads(sim("opt-13b", "--costs", c, "--num-kv-blocks", 900, "--beam-width", 4, "--workload", "40/40", "--request-rate", "inf",
                              "--num-prompts", 10, "--json", "-", *where))["duration_s"]

    a100 = "--hardware", "a100-40g"
    free, there, here = seconds({"copy_ns": 0}), seconds({}, *a100), seconds({})
    assert free == seconds({"copy_ns": 0}, *a100) < there < here


def test_what_is_read_is_not_written_over(tmp_path):
    load = tmp_path / "load.csv"
    load.write_text("input_tokens,output_tokens\n" + "64,4\n" * 30)
    for flag in "--out", "--json":
        assert f"{flag}: expected another file than that of --workload" in sim("opt-13b", "--workload", load, "--request-rate", "1", flag, load, code=2)
    one = tmp_path / "one"
    assert "--json: expected another file than that of --out" in sim("opt-13b", "--workload", load, "--request-rate", "1", "--out", one, "--json", one, code=2)
    p = subprocess.run([QUIRE, "sim", "--replay", load, "--chrome", load], capture_output=True, text=True, timeout=60)
    assert p.returncode == 2 and "--chrome: expected another file than that of --replay" in p.stderr
    assert load.read_text().startswith("input_tokens")


def test_any_number_of_requests_may_come_at_once():
    j = json.loads(sim("opt-13b", "--workload", "64/4", "--num-prompts", 9000, "--request-rate", "inf", "--json", "-"))
    assert j["requests"] == 9000


def test_a_clock_that_runs_out_is_said(tmp_path):
    names = "fixed_ns", "row_ns", "prompt_fixed_ns", "prompt_row_ns", "context_ps", "query_context_ps", "floor_ns"
    c = tmp_path / "costs.json"
    c.write_text(json.dumps(dict.fromkeys(names, 2**40)))
    args = [QUIRE, "sim", "llama-3-8b", "--hardware", "h100", "--costs", c, "--workload", "8000/1", "--request-rate", "1", "--num-prompts", "400"]
    p = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert p.returncode == 1 and "simulated time passes 73 years" in p.stderr, p.stderr
    c.write_text(json.dumps(dict.fromkeys(names, 2**40 + 1)))
    p = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert p.returncode == 1 and "fixed_ns: expected a whole number" in p.stderr, p.stderr


LAYOUTS = ["contiguous-max", "contiguous-pow2", "contiguous-oracle", "virtual"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_text_on_every_layout(tiny, start, layout):
    prompts = [f"page {i} " * (1 + 7 * i) for i in range(6)]
    ask = lambda s: lambda p: s.complete(p, max_tokens=40, ignore_eos=True)["choices"][0]["text"]
    s = start("--kv-layout", layout, "--check", "step", "--num-kv-blocks", "512", "--max-model-len", "1024")
    assert on_threads(ask(s), prompts) == on_threads(ask(tiny), prompts)
    kv = s.idle()
    assert sum(kv["slot_steps"].values()) == kv["steps"] * kv["blocks"] * 16
    assert kv["steps"] <= kv["step_sequences"] and kv["slot_steps"]["used"] > 0


@pytest.mark.parametrize("args", [["--replay"], ["llama-3-8b", "--hardware", "h100", "--workload"]])
def test_a_file_without_lines_is_no_text(args):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

    r = subprocess.run([QUIRE, "sim", *args, "/dev/zero"], capture_output=True, text=True, timeout=60, preexec_fn=limit, stdin=subprocess.DEVNULL)
    assert r.returncode == 1 and "/dev/zero:1: expected a line of text" in r.stderr, r.stderr
