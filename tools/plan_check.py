#!/usr/bin/env python3
"""What `quire plan` and `quire sim` expect from a table of costs beside what `quire bench serve` measures: the default model on this machine,
the same requests. First at the rate that the plan is for, where a server that is a little slower than expected has its requests wait
much longer; then all requests at once, which the simulator runs as the server does. Prints measured / expected for each run and the medians;
--within and --within-at-once fail it where a median is farther off.

Each run measures steps anew (`quire bench step --costs`: a machine's speed changes in minutes) and has a seed of its own: a plan, a server
with the plan's settings, the load."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# plan's name, bench's name, factor to plan's unit
FIGURES = [("tokens/s", "tokens_per_s", "output_throughput", 1), ("TTFT", "ttft_s", "p95_ttft_ms", 1e-3), ("TPOT", "tpot_s", "p95_tpot_ms", 1e-3),
           ("E2EL", "e2el_s", "p95_e2el_ms", 1e-3)]
# of all requests at once: name, sim's, bench's, factor to sim's unit
AT_ONCE = [("tokens/s", lambda sim: sim["tokens_per_s"], "output_throughput", 1), ("TTFT p50", lambda sim: sim["ttft_s"]["p50"], "median_ttft_ms", 1e-3),
           ("TPOT p50", lambda sim: sim["tpot_s"]["p50"], "median_tpot_ms", 1e-3), ("TPOT p99", lambda sim: sim["tpot_s"]["p99"], "p99_tpot_ms", 1e-3),
           ("E2EL p50", lambda sim: sim["latency_s"]["p50"], "median_e2el_ms", 1e-3), ("E2EL p99", lambda sim: sim["latency_s"]["p99"], "p99_e2el_ms", 1e-3)]


def call(*args, timeout=1800):
    p = subprocess.run([str(x) for x in args], capture_output=True, text=True, timeout=timeout)
    if p.returncode:
        sys.exit(f"plan_check: {' '.join(map(str, args[:3]))}: {p.stderr.strip()}")
    return p.stdout


def start(quire, *args):
    p = subprocess.Popen([quire, "serve", *map(str, args), "--port", "0"], stderr=subprocess.PIPE, text=True)
    said = []
    for line in p.stderr:
        said.append(line)
        m = re.search(r"listening on http://\S+:(\d+)", line)
        if m:
            threading.Thread(target=p.stderr.read, daemon=True).start()
            return p, m.group(1)
    sys.exit("plan_check: the server did not start: " + "".join(said[-3:]))


def median(v):
    v = sorted(v)
    return (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2


def serve_load(a, settings, load):
    """What bench serve measures of a server with these settings."""
    server, port = start(a.quire, a.model, *settings)
    try:
        got = json.loads(call(a.quire, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", *load, "--json", "-"))["result"]
    finally:
        server.terminate()
        server.wait(60)
    if got["failed"]:
        sys.exit(f"plan_check: {got['failed']} requests failed")
    return got


def say(seed, what, rows):
    """rows: name, measured, expected. Returns the ratios."""
    print(f"seed {seed}: {what}: " + ", ".join(f"{n} {m:.4g} / {e:.4g} = {m / e:.2f}" for n, m, e in rows), flush=True)
    return [m / e for _, m, e in rows]


def at_rate(a, costs, seed):
    load = ["--workload", a.workload, "--num-prompts", a.requests, "--seed", seed]
    plan = json.loads(call(a.quire, "plan", a.model, "--costs", costs, *load, "--request-rate", a.rate, "--goodput", a.goodput,
                           "--max-model-len", a.longest, "--json", "-"))
    s, expected = plan["settings"], plan["expected_at_percentile"]
    got = serve_load(a, ["--max-num-seqs", s["max_num_seqs"], "--max-num-batched-tokens", s["max_num_batched_tokens"], "--max-model-len", a.longest,
                         "--kv-cache-memory-bytes", s["kv_cache_memory_bytes"]], [*load, "--request-rate", a.rate / s["replicas"]])
    return say(seed, f"{s['replicas']} replicas, max-num-seqs {s['max_num_seqs']}",
               [(f, got[bench] * unit, expected[plans]) for f, plans, bench, unit in FIGURES])


def at_once(a, costs, seed):
    load = ["--workload", a.workload, "--num-prompts", a.requests, "--seed", seed, "--request-rate", "inf"]
    settings = ["--max-num-seqs", 16, "--max-num-batched-tokens", 512, "--max-model-len", a.longest, "--kv-cache-memory-bytes", "1G",
                "--step-budget-ms", "auto"]
    sim = json.loads(call(a.quire, "sim", a.model, "--costs", costs, *load, *settings, "--json", "-"))
    got = serve_load(a, settings, load)
    return say(seed, "at once, 16 of them run", [(name, got[bench] * unit, of(sim)) for name, of, bench, unit in AT_ONCE])


def run(a, costs, seed):
    if not a.costs:
        print("measuring steps", file=sys.stderr, flush=True)
        call(a.quire, "bench", "step", a.model, "--costs", costs)
    return at_rate(a, costs, seed), at_once(a, costs, seed)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--model", default="smollm2-135m-instruct")
    p.add_argument("--costs", default="", help="a table measured before; else one is measured before each run")
    p.add_argument("--workload", default="160/200*3,400/100")
    p.add_argument("--rate", type=float, default=2.0, help="requests a second")
    p.add_argument("--goodput", default="ttft:1000 tpot:100")
    p.add_argument("--requests", type=int, default=100)
    p.add_argument("--longest", type=int, default=2048)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--within", type=float, default=0.15)
    p.add_argument("--within-at-once", type=float, default=0.10)
    a = p.parse_args()
    for flag, ok, want in ("runs", a.runs >= 1, "at least 1"), ("requests", a.requests >= 20, "at least 20"), ("rate", 0 < a.rate < 1e9, "requests a second"):
        if not ok:
            p.error(f"--{flag}: expected {want}, got {getattr(a, flag)}")
    if os.getloadavg()[0] > 0.7:
        print(f"plan_check: other programs run here (load {os.getloadavg()[0]:.1f}): this says little", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        costs = a.costs or os.path.join(folder, "costs.json")
        runs = [run(a, costs, seed) for seed in range(1, a.runs + 1)]
    off = []
    for what, names, ratios, within in (("at the rate", FIGURES, [r[0] for r in runs], a.within), ("at once", AT_ONCE, [r[1] for r in runs], a.within_at_once)):
        medians = [(f[0], median(v)) for f, v in zip(names, zip(*ratios))]
        print(f"median measured / expected, {what}: " + ", ".join(f"{name} {m:.3f}" for name, m in medians))
        off += [f"{name} {what}" for name, m in medians if abs(m - 1) > within]
    if off:
        sys.exit(f"plan_check: {', '.join(off)}: farther off than allowed")


if __name__ == "__main__":
    main()
