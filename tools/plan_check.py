#!/usr/bin/env python3
"""What `quire plan` expects beside what `quire bench serve` measures: the default model on this machine, the same requests at the same
times. Prints measured / expected for each run and the median; --within fails it where a median is farther off.

Steps are measured once (`quire bench step --costs`); each run has a seed of its own: a plan, a server with the plan's settings, the load."""
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


def run(a, costs, seed):
    load = ["--workload", a.workload, "--num-prompts", a.requests, "--seed", seed]
    plan = json.loads(call(a.quire, "plan", a.model, "--costs", costs, *load, "--request-rate", a.rate, "--goodput", a.goodput,
                           "--max-model-len", a.longest, "--json", "-"))
    s, expected = plan["settings"], plan["expected_at_percentile"]
    server, port = start(a.quire, a.model, "--max-num-seqs", s["max_num_seqs"], "--max-num-batched-tokens", s["max_num_batched_tokens"],
                         "--max-model-len", a.longest, "--kv-cache-memory-bytes", s["kv_cache_memory_bytes"])
    try:
        got = json.loads(call(a.quire, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", *load, "--request-rate", a.rate / s["replicas"],
                              "--json", "-"))["result"]
    finally:
        server.terminate()
        server.wait(60)
    if got["failed"]:
        sys.exit(f"plan_check: {got['failed']} requests failed")
    ratios = [got[bench] * unit / expected[name] for _, name, bench, unit in FIGURES]
    print(f"seed {seed}: {s['replicas']} replicas, max-num-seqs {s['max_num_seqs']}: "
          + ", ".join(f"{f[0]} {got[f[2]] * f[3]:.4g} / {expected[f[1]]:.4g} = {r:.2f}" for f, r in zip(FIGURES, ratios)), flush=True)
    return ratios


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--model", default="smollm2-135m-instruct")
    p.add_argument("--costs", default="", help="a table measured before; else it is measured now")
    p.add_argument("--workload", default="160/200*3,400/100")
    p.add_argument("--rate", type=float, default=2.0, help="requests a second")
    p.add_argument("--goodput", default="ttft:1000 tpot:100")
    p.add_argument("--requests", type=int, default=100)
    p.add_argument("--longest", type=int, default=2048)
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--within", type=float, default=0.15)
    a = p.parse_args()
    if os.getloadavg()[0] > 0.7:
        print(f"plan_check: other programs run here (load {os.getloadavg()[0]:.1f}): this says little", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        costs = a.costs or os.path.join(folder, "costs.json")
        if not a.costs:
            print("measuring steps", file=sys.stderr, flush=True)
            call(a.quire, "bench", "step", a.model, "--costs", costs)
        runs = [run(a, costs, seed) for seed in range(1, a.runs + 1)]
    medians = [median(v) for v in zip(*runs)]
    print("median measured / expected: " + ", ".join(f"{f[0]} {m:.3f}" for f, m in zip(FIGURES, medians)))
    off = [f[0] for f, m in zip(FIGURES, medians) if abs(m - 1) > a.within]
    if off:
        sys.exit(f"plan_check: {', '.join(off)}: more than {100 * a.within:g} % off")


if __name__ == "__main__":
    main()
