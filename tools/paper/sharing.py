#!/usr/bin/env python3
"""Memory saved by sharing (the paper's 6.3, Figure 15), measured on a running model: blocks saved by sharing, of those that
there would be without it, summed over all steps. Prints the table of docs/PAPER.md.

Prompts are real text cut to drawn lengths, answers have drawn lengths: pairs of the length files. Prefixes are not cached
between requests, so all that is shared is shared inside a request."""
import argparse
import csv
import gzip
import http.client
import json
import os
import queue
import random
import re
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SETS = {"Alpaca": "lens_alpaca_gpt2bpe.csv", "ShareGPT": "lens_sharegpt_firstturn_llama2.csv.gz"}
PAPER = {("Alpaca", "sampling"): (6.1, 9.8), ("Alpaca", "beam"): (37.6, 55.2),
         ("ShareGPT", "sampling"): (16.2, 30.5), ("ShareGPT", "beam"): (44.3, 66.3)}


def lengths(path, longest):
    with (gzip.open(path, "rt") if path.endswith(".gz") else open(path)) as f:
        pairs = [(int(r["input_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(f)]
    return [(i, o) for i, o in pairs if i >= 4 and o >= 2 and i + o <= longest]


def texts(data):
    """Instructions and questions, as long runs of text to cut prompts from."""
    out = []
    with open(os.path.join(data, "prompts_selfinstruct.jsonl")) as f:
        out += [r["instruction"] + "\n" + (r.get("input") or "") for r in map(json.loads, f)]
    with open(os.path.join(data, "prompts_mt_bench.jsonl")) as f:
        for r in map(json.loads, f):
            out += [str(t) for v in r.values() if isinstance(v, list) for t in v]
    with gzip.open(os.path.join(data, "fewshot_gsm8k.jsonl.gz"), "rt") as f:
        out += [t for r in map(json.loads, f) for t in r.values() if isinstance(t, str) and len(t) > 40][:500]
    return out


def post(port, path, body):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    data = r.read()
    if r.status != 200:
        sys.exit(f"{path}: {r.status} {data[:500]!r}")
    return json.loads(data)


def counters(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    return [float(re.search(rf"^quire:kv_blocks_{k}_total\{{.*\}} (\S+)$", text, re.M).group(1)) for k in ("unshared", "held")]


def start(a):
    flags = ["--port", "0", "--no-enable-prefix-caching", "--max-model-len", str(a.longest), "--kv-cache-memory-bytes", "2G"]
    p = subprocess.Popen([a.quire, "serve", a.model, *flags, *a.flags.split()], stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        m = re.search(r"listening on http://\S+:(\d+)", line)
        if m:
            threading.Thread(target=p.stderr.read, daemon=True).start()
            return p, int(m.group(1))
    sys.exit("the server did not start")


def cell(port, asks, n, beam, at_once):
    before, todo = counters(port), queue.Queue()
    for i, (prompt, n_out) in enumerate(asks):
        body = {"prompt": prompt, "max_tokens": n_out, "n": n, "ignore_eos": True, "seed": i}
        todo.put({**body, "use_beam_search": True} if beam else {**body, "temperature": 1.0})

    def work():
        while True:
            try:
                body = todo.get_nowait()
            except queue.Empty:
                return
            post(port, "/v1/completions", body)

    threads = [threading.Thread(target=work) for _ in range(at_once)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    entries, held = (x - y for x, y in zip(counters(port), before))
    return 100 * (1 - held / entries)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="the folder of length files (lens_*.csv) and prompts (prompts_*.jsonl, fewshot_gsm8k.jsonl.gz): the names at the head of this program")
    p.add_argument("--model", default="smollm2-135m-instruct")
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--requests", type=int, default=50, help="a cell")
    p.add_argument("--at-once", type=int, default=4)
    p.add_argument("--longest", type=int, default=2048, help="prompt and answer, in tokens; longer pairs are left out")
    p.add_argument("--sets", default="Alpaca,ShareGPT")
    p.add_argument("--kinds", default="sampling,beam")
    p.add_argument("--widths", default="2,4,6", help="answers of a request, or beams")
    p.add_argument("--flags", default="", help="more flags for the server")
    a = p.parse_args()
    server, port = start(a)
    try:
        ids = []
        for t in texts(a.data):
            ids += post(port, "/tokenize", {"prompt": t + "\n\n", "add_special_tokens": False})["tokens"]
        widths = [int(w) for w in a.widths.split(",")]
        print("| lengths | decoding | " + " | ".join(map(str, widths)) + " | the paper, 2 to 6 |\n|---|---|" + "---|" * (len(widths) + 1), flush=True)
        for name in a.sets.split(","):
            rng = random.Random(1)
            asks = []
            for n_in, n_out in rng.sample(lengths(os.path.join(a.data, SETS[name]), a.longest), a.requests):
                at = rng.randrange(len(ids) - n_in)
                asks.append((ids[at:at + n_in], n_out))
            for kind in a.kinds.split(","):
                saved = []
                for n in widths:
                    begun = time.time()
                    saved.append(cell(port, asks, n, kind == "beam", a.at_once))
                    print(f"{name} {kind} {n}: {saved[-1]:.1f} %, {time.time() - begun:.0f} s", file=sys.stderr, flush=True)
                low, high = PAPER[name, kind]
                print(f"| {name} | {kind} | " + " | ".join(f"{x:.1f}" for x in saved) + f" | {low} to {high} |", flush=True)
    finally:
        server.terminate()
        server.wait(60)


if __name__ == "__main__":
    main()
