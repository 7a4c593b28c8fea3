#!/usr/bin/env python3
"""make paper-real: the paper's comparisons in wall-clock on the real server. KV layouts and preemption on one pool that is too small for
the load, and a shared prefix with and without its cache, through `quire bench serve`; the block table's walk, by checkasm. Writes docs/paper/real.md; with other numbers than the
defaults (a quick look) the page goes to standard output.

Each line is a server of its own, started, warmed up by one request, loaded and stopped. Batch and memory are sums over all steps, from
/debug/kv before and after."""
import argparse
import csv
import datetime
import gzip
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
LAYOUTS = [("paged", "paged"), ("contiguous-oracle", "contiguous, exact length known"), ("contiguous-pow2", "contiguous, powers of two"),
           ("contiguous-max", "contiguous, longest length"), ("virtual", "address ranges, pages on demand")]
SIZES = "rows", "cap", "longest", "blocks", "rate", "seed"  # that the page in docs/paper is of, at their defaults
MODES = [("recompute", "recompute", []), ("swap", "swap", ["--swap-space", "1G"]), ("auto", "the cheaper one", ["--swap-space", "1G"])]


def rows_of(n, cap, seed):
    """n rows of ShareGPT's lengths, drawn by seed; answers cut at cap."""
    with gzip.open(os.path.join(HERE, "data", "sharegpt.csv.gz"), "rt") as f:
        pairs = [(int(r["input_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(f)]
    return [(i, min(o, cap)) for i, o in random.Random(seed).sample(pairs, n)]


class Server:
    def __init__(self, a, flags):
        self.proc = subprocess.Popen([a.quire, "serve", a.model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        said = []
        for line in self.proc.stderr:
            said.append(line)
            m = re.search(r"listening on http://\S+:(\d+)", line)
            if m:
                self.port = int(m.group(1))
                threading.Thread(target=self.proc.stderr.read, daemon=True).start()
                return
        sys.exit("paper-real: the server did not start: " + "".join(said[-3:]))

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        c.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        if r.status != 200:
            sys.exit(f"paper-real: {path}: {r.status} {data[:300]!r}")
        return json.loads(data)

    def stop(self):
        self.proc.terminate()
        self.proc.wait(60)


def measure(a, flags, load):
    """One server under one load: figures of `quire bench serve`, and what its steps held."""
    s = Server(a, flags)
    try:
        s.ask("POST", "/v1/completions", {"prompt": list(range(1000, 1300)), "max_tokens": 8, "temperature": 0, "ignore_eos": True})
        before = s.ask("GET", "/debug/kv")
        bench = [a.quire, "bench", "serve", "--base-url", f"http://127.0.0.1:{s.port}", "--num-warmups", "0", "--seed", str(a.seed),
                 "--save-detailed", "--json", "-", *load]
        p = subprocess.run(bench, capture_output=True, text=True, timeout=1800)
        if p.returncode:
            sys.exit("paper-real: quire bench serve: " + p.stderr.strip())
        after = s.ask("GET", "/debug/kv")
    finally:
        s.stop()
    r = json.loads(p.stdout)["result"]
    if r["failed"]:
        sys.exit(f"paper-real: {r['failed']} requests failed: {p.stderr.strip()}")
    steps = after["steps"] - before["steps"]
    slots = {k: after["slot_steps"][k] - before["slot_steps"][k] for k in after["slot_steps"]}
    held = sum(v for k, v in slots.items() if k != "free") or 1
    return {"batch": (after["step_sequences"] - before["step_sequences"]) / steps, "used": slots["used"] / held,
            "reserved": slots["reserved"] / held, "internal": slots["internal"] / held, "external": slots["external"] / held,
            "fill": slots["used"] / (held + slots["free"]), "tokens_s": r["output_throughput"], "seconds": r["duration"],
            "normalized": sum(l / n for l, n in zip(r["latencies"], r["output_lens"])) / len(r["latencies"]),
            "latency": r["mean_e2el_ms"] / 1e3, "ttft": r["p95_ttft_ms"] / 1e3, "tpot": r["p95_tpot_ms"], "cached": r["total_cached_tokens"],
            "preemptions": after["preemptions"] - before["preemptions"], "again": after["recomputed_tokens"] - before["recomputed_tokens"]}


def median(runs):
    mid = lambda v: sorted(v)[len(v) // 2] if len(v) % 2 else sum(sorted(v)[len(v) // 2 - 1:len(v) // 2 + 1]) / 2
    return {k: mid([r[k] for r in runs]) for k in runs[0]}


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(r) + " |" for r in rows]


def pct(x):
    return f"{100 * x:.1f}"


def machine(quire):
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read())
    with open("/proc/meminfo") as f:
        gib = int(re.search(r"MemTotal:\s*(\d+)", f.read()).group(1)) / 2**20
    version = subprocess.run([quire, "--version"], capture_output=True, text=True).stdout.strip()
    return f"{version}, {len(os.sched_getaffinity(0))} processors of {cpu.group(1) if cpu else 'an unknown kind'}, {gib:.0f} GiB, " \
           f"{datetime.date.today()}, load at the start {os.getloadavg()[0]:.1f}"


class Runs:
    """Every cell of every table, measured round by round, so that a slow minute meets all of them."""

    def __init__(self, a, csv_path):
        self.a, self.cells = a, {}
        trace = ["--workload", csv_path]
        base = ["--max-model-len", str(a.longest), "--max-num-seqs", str(a.rows)]
        tight = [*base, "--num-kv-blocks", str(a.blocks), "--no-enable-prefix-caching"]
        self.commands = {}
        for k, _ in LAYOUTS:
            flags = [*tight, "--kv-layout", k]
            self.add(("layout", k), flags, [*trace, "--request-rate", "inf"])
            if a.rate > 0:
                self.add(("rate", k), flags, [*trace, "--request-rate", f"{a.rate:g}"])
        for k, _, more in MODES:
            self.add(("mode", k), [*tight, "--preemption-mode", k, *more], [*trace, "--request-rate", "inf"])
        shared = ["--dataset", "prefix", "--prefix-len", "1000", "--input-len", "50", "--output-len", "64", "--num-prompts", str(a.rows),
                  "--max-concurrency", "16"]
        for k in ("on", "off"):
            flag = "--enable-prefix-caching" if k == "on" else "--no-enable-prefix-caching"
            self.add(("prefix", k), [*base, "--num-kv-blocks", "4096", flag], shared)

    def add(self, key, flags, load):
        self.cells[key] = (flags, load, [])

    def measure(self):
        begun = time.time()
        for i in range(self.a.rounds):
            for n, ((table, k), (flags, load, runs)) in enumerate(self.cells.items()):
                runs.append(measure(self.a, flags, load))
                r = runs[-1]
                print(f"{time.time() - begun:5.0f} s  round {i + 1}, {n + 1} of {len(self.cells)}: {table} {k}: batch {r['batch']:.1f}, "
                      f"{r['tokens_s']:.0f} tokens/s", file=sys.stderr, flush=True)

    def get(self, *key):
        return median(self.cells[key][2])

    def commands_of(self, csv_name):
        out = []
        for flags, load, _ in self.cells.values():
            load = [csv_name if load[i - 1] == "--workload" else w for i, w in enumerate(load)]
            out += [f"quire serve {self.a.model_name} {' '.join(flags)}", f"quire bench serve --num-warmups 0 --seed {self.a.seed} {' '.join(load)}"]
        return out


def layouts(a, runs):
    got = {k: runs.get("layout", k) for k, _ in LAYOUTS}
    rows = [[name, f"{g['batch']:.1f}", f"{g['tokens_s']:.0f}", f"{g['latency']:.1f}", f"{1e3 * g['normalized']:.0f}", pct(g["used"]),
             pct(g["reserved"]), pct(g["internal"]), pct(g["external"]), f"{g['preemptions']:.0f}"]
            for (k, name) in LAYOUTS for g in [got[k]]]
    p, worst = got["paged"], got["contiguous-max"]
    text = ["## KV layouts (Figures 2, 12, 13)", "", f"{a.rows} requests at once:", ""]
    text += table(["layout", "sequences a step", "tokens/s", "latency, mean s", "normalised, ms a token", "token states %", "reserved %",
                   "internal %", "external %", "preemptions"], rows)
    text += ["", f"Pages hold {p['batch'] / worst['batch']:.1f} times the sequences of reservations of the longest length, "
             f"{p['batch'] / got['contiguous-pow2']['batch']:.1f} times those of powers of two and {p['batch'] / got['contiguous-oracle']['batch']:.1f} "
             f"times those of exact lengths; they generate {p['tokens_s'] / worst['tokens_s']:.2f}, "
             f"{p['tokens_s'] / got['contiguous-pow2']['tokens_s']:.2f} and {p['tokens_s'] / got['contiguous-oracle']['tokens_s']:.2f} times as fast. "
             f"The paper's GPU gains more from a batch than two cores: there a step reads its weights for all of it in the same time, here rows "
             f"are soon arithmetic. Of the memory that is held, {pct(p['used'])} % are token states with pages (the paper: 96.3), "
             f"{pct(worst['used'])} % with the longest length (20.4)."]
    if a.rate > 0:
        got = {k: runs.get("rate", k) for k, _ in LAYOUTS}
        rows = [[name, f"{g['batch']:.1f}", f"{1e3 * g['normalized']:.0f}", f"{g['latency']:.1f}", f"{g['ttft']:.2f}", f"{g['tpot']:.0f}"]
                for (k, name) in LAYOUTS for g in [got[k]]]
        text += ["", f"The same requests arriving at {a.rate:g} a second:", ""]
        text += table(["layout", "sequences a step", "normalised, ms a token", "latency, mean s", "first token, P95 s", "a token, P95 ms"], rows)
        times = lambda layout, what: f"{got[layout][what] / got['paged'][what]:.1f}"
        text += ["", f"Beside pages, a request's normalised latency is {times('contiguous-max', 'normalized')} times as long when the longest length is "
                 f"reserved and {times('contiguous-oracle', 'normalized')} times when the exact one is; its first token (P95) comes after "
                 f"{times('contiguous-max', 'ttft')} and {times('contiguous-oracle', 'ttft')} times as long."]
    return text


def modes(runs):
    got = {k: runs.get("mode", k) for k, _, _ in MODES}
    rows = [[name, f"{g['tokens_s']:.0f}", f"{g['latency']:.1f}", f"{g['preemptions']:.0f}", f"{g['again']:.0f}"]
            for (k, name, _) in MODES for g in [got[k]]]
    s, r = got["swap"], got["recompute"]
    more = "faster" if s["tokens_s"] > r["tokens_s"] else "slower"
    return ["", "## Swap or recompute (Figure 19)", "", "Paged, the same load at once:", "",
            *table(["preempted requests", "tokens/s", "latency, mean s", "preemptions", "tokens computed again"], rows), "",
            f"Swapping is {100 * abs(s['tokens_s'] / r['tokens_s'] - 1):.0f} % {more} here: a block is copied within the same memory, while recomputing "
            f"{r['again']:.0f} tokens is arithmetic. The paper's recomputing takes at most 20 % longer."]


def prefix(a, runs):
    on, off = runs.get("prefix", "on"), runs.get("prefix", "off")
    rows = [[k, f"{g['tokens_s']:.0f}", f"{g['latency']:.2f}", f"{g['ttft']:.2f}", f"{g['cached']:.0f}"] for k, g in (("on", on), ("off", off))]
    return ["", "## Shared prefix (Figure 16)", "", f"{a.rows} prompts of 1,000 tokens in common and 50 of their own, answers of 64, 16 users:", "",
            *table(["prefix cache", "tokens/s", "latency, mean s", "first token, P95 s", "prompt tokens found"], rows), "",
            f"The cache makes it {on['tokens_s'] / off['tokens_s']:.1f} times as fast. The paper's 1.7 and 3.6 times, for prefixes of 80 and 341 "
            "tokens, are over Orca (Oracle), not over itself without sharing."]


def walk(checkasm):
    """Decode attention through a block table beside memory where each head's tokens lie in one run: rows of checkasm's table."""
    p = subprocess.run([checkasm, "--versus", "paged"], capture_output=True, text=True)
    if p.returncode:
        sys.exit("paper-real: " + (p.stderr or p.stdout).strip())
    return walk_rows(p.stdout) or sys.exit("paper-real: checkasm --versus paged: expected rows of shuffled blocks, got " + repr(p.stdout[:200]))


def walk_rows(text):
    """{(type, "32 x 295"): {block size: time beside one run's}} of shuffled blocks."""
    out = {}
    for kind, seqs, tokens, block, ratio in re.findall(r"^(\w+) +(\d+) x (\d+) +(\d+) +shuffled +([\d.]+)", text, re.M):
        out.setdefault((kind, f"{seqs} x {tokens}"), {})[int(block)] = float(ratio)
    return out


def walk_page(got):
    sizes = sorted({size for ratios in got.values() for size in ratios})
    rows = [[kind, shape, *(f"{ratios[size]:.2f}" for size in sizes)] for (kind, shape), ratios in got.items()]
    return ["", "## The block table's walk (Figure 18a)", "", "Decode attention, one core, its blocks shuffled in memory: time beside the same kernel where each "
            "head's tokens lie in one run, the median of 400 pairs by turns:", "",
            *table(["KV type", "sequences x tokens", *(f"blocks of {size}" for size in sizes)], rows), "",
            "The paper's kernel takes 20 to 26 % more than FasterTransformer's. What it takes here: docs/PERFORMANCE.md, Pages against contiguous memory."]


def page(a, runs, walked, where, took):
    pool = a.blocks * 16
    return "\n".join([
        "# The paper's comparisons on the real server", "",
        f"`make paper-real` writes this page: {a.model_name}, {a.rows} rows of ShareGPT's lengths (tools/paper/data/sharegpt.csv.gz, seed {a.seed}, "
        f"answers cut at {a.cap}), a pool of {a.blocks} blocks ({pool:,} tokens; sequences of {a.longest} at most), so that memory binds. "
        f"rows.csv of the commands below is those rows (--keep FOLDER writes it); a second run of one configuration, the first row of Swap or recompute beside that of KV layouts, "
        f"says how far runs differ. Each cell is a server of its own{'' if a.rounds == 1 else f', the median of {a.rounds} rounds'}; batch and memory are sums over all its "
        "steps. Shares of memory are of what is not free.", "", f"Machine: {where}. It took {took / 60:.0f} minutes.", "",
        *layouts(a, runs), *walk_page(walked), *modes(runs), *prefix(a, runs), "", "## Commands", "", "```sh", *runs.commands_of("rows.csv"),
        'make kern K="--versus paged"', "```", ""])


def arguments(words=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--checkasm", default=os.path.join(ROOT, "build", "checkasm"))
    p.add_argument("--model", default="smollm2-135m-instruct")
    p.add_argument("--out", help="where the page goes, - for standard output; by default docs/paper/real.md for a run with the defaults, else -")
    p.add_argument("--rows", type=int, default=64)
    p.add_argument("--cap", type=int, default=600, help="longest answer")
    p.add_argument("--longest", type=int, default=2048, help="--max-model-len: what contiguous-max reserves")
    p.add_argument("--blocks", type=int, default=640, help="the pool, in blocks of 16 tokens")
    p.add_argument("--rate", type=float, default=2, help="requests a second of the runs at a rate; 0: none")
    p.add_argument("--keep", metavar="FOLDER", help="leaves rows.csv there")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args(words)
    a.model_name = os.path.basename(a.model).removesuffix(".gguf")
    as_kept = a.model_name == p.get_default("model") and all(getattr(a, k) == p.get_default(k) for k in SIZES)
    a.out = a.out or (os.path.join(ROOT, "docs", "paper", "real.md") if as_kept else "-")
    return a


def main():
    a = arguments()
    if os.getloadavg()[0] > 0.7:
        print(f"paper-real: other programs run here (load {os.getloadavg()[0]:.1f}): batch and memory will be right, seconds will not", file=sys.stderr)
    where, begun = machine(a.quire), time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(a.keep or folder, "rows.csv")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write("arrival_s,input_tokens,output_tokens\n" + "".join(f"0,{i},{o}\n" for i, o in rows_of(a.rows, a.cap, a.seed)))
        print("the block table's walk", file=sys.stderr, flush=True)
        walked = walk(a.checkasm)
        runs = Runs(a, path)
        runs.measure()
    text = page(a, runs, walked, where, time.time() - begun)
    if a.out == "-":
        print(text, end="")
        return
    with open(a.out, "w") as f:
        f.write(text)
    print(f"wrote {os.path.relpath(a.out)} after {(time.time() - begun) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
