#!/usr/bin/env python3
"""One user beside llama.cpp: `quire bench latency` and `llama-bench` by turns on the same file, two threads each. Prints the table of
docs/PERFORMANCE.md: tokens a second of an answer (from an empty context) and of prompts, and the ratio of each pair of runs.

Where quire is to read another file than llama.cpp (its best type beside quire's): FILE=FILE_OF_LLAMA."""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def call(cmd, env=None):
    p = subprocess.run([str(c) for c in cmd], capture_output=True, text=True, env=env)
    if p.returncode:
        sys.exit(f"llama_check: {' '.join(map(str, cmd))}: {p.stderr.strip()[-500:]}")
    return p.stdout


def quire(a, model, n_in, n_out):
    out = call([a.quire, "bench", "latency", model, "--batch-size", 1, "--input-len", n_in, "--output-len", n_out, "--num-iters", 1,
                "--num-iters-warmup", 1, "--threads", a.threads, "--json", "-"])
    return (n_out if n_out > 1 else n_in) / json.loads(out)["avg_latency"]


def llama(a, model, n_in, n_out):
    folder = os.path.dirname(os.path.abspath(a.llama_bench))
    out = call([a.llama_bench, "-m", model, "-p", n_in if n_out == 1 else 0, "-n", n_out if n_out > 1 else 0, "-t", a.threads, "-r", 1, "-o", "json",
                *a.llama_flags.split()], {**os.environ, "LD_LIBRARY_PATH": folder})
    return json.loads(out)[0]["avg_ts"]


def spread(v):
    v = sorted(v)
    middle = (v[(len(v) - 1) // 2] + v[len(v) // 2]) / 2
    return middle, v[0], v[-1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="+", metavar="FILE", help="a .gguf file for both, or FILE=FILE_OF_LLAMA")
    p.add_argument("--llama-bench", required=True, help="the program, with its libraries beside it")
    p.add_argument("--llama-flags", default="", help="more flags for it, as \"-fa 1\"")
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--work", default="1/128,512/1,2048/1", help="prompt/answer, in tokens: an answer of more than one token is what is timed")
    a = p.parse_args()
    print("| model | | llama.cpp, tok/s | quire, tok/s | ratio (least, most) |\n|---|---|---|---|---|", flush=True)
    for model in a.models:
        ours, _, theirs = model.partition("=")
        theirs = theirs or ours
        for n_in, n_out in (map(int, w.split("/")) for w in a.work.split(",")):
            pairs = []
            for i in range(a.rounds):
                order = (quire, ours), (llama, theirs)
                got = {f: f(a, m, n_in, n_out) for f, m in (order if i % 2 else order[::-1])}
                pairs.append((got[quire], got[llama]))
                print(f"{ours} {n_in}/{n_out}: {got[quire]:.1f} {got[llama]:.1f}", file=sys.stderr, flush=True)
            q, l, r = (spread(v) for v in ([x for x, _ in pairs], [y for _, y in pairs], [x / y for x, y in pairs]))
            what = f"answer of {n_out}" if n_out > 1 else f"prompt of {n_in:,}"
            print(f"| {os.path.basename(ours)} | {what} | {l[0]:,.0f} | {q[0]:,.0f} | {r[0]:.1f} ({r[1]:.1f}, {r[2]:.1f}) |", flush=True)


if __name__ == "__main__":
    main()
