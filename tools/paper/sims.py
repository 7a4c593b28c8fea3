"""Runs of `quire sim`, several at a time, each asked for once."""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

SECONDS_MIN = 300  # that a run lasts at least: short answers at high rates need thousands of requests to fill a batch

HERE = os.path.dirname(os.path.abspath(__file__))


def data(name):
    return os.path.join(HERE, "data", name)


class Sims:
    def __init__(self, quire, requests, seed):
        self.quire, self.requests, self.seed = quire, requests, seed
        self.known, self.n, self.started, self.shown = {}, 0, time.time(), 0.0
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)

    def _run(self, args):
        p = subprocess.run([self.quire, "sim", *args, "--json", "-"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if p.returncode:
            raise SystemExit(f"paper: quire sim {' '.join(args)}: {p.stderr.strip()}")
        self.n += 1
        if sys.stderr.isatty() and time.time() - self.shown > 0.2:
            self.shown = time.time()
            print(f"\r{self.n} runs in {self.shown - self.started:.0f} s \033[K", end="", file=sys.stderr)
        return json.loads(p.stdout)

    def start(self, model, **options):
        """A future; options become flags: num_prompts=5 is --num-prompts 5."""
        arriving = float(options.get("request_rate", 0)) * SECONDS_MIN
        options = {"num_prompts": max(self.requests, int(arriving)), "seed": self.seed, **options}
        args = [model]
        for k, v in sorted(options.items()):
            args += ["--" + k.replace("_", "-")] + ([] if v is True else [str(v)])
        key = tuple(args)
        if key not in self.known:
            self.known[key] = self.pool.submit(self._run, args)
        return self.known[key]

    def get(self, model, **options):
        return self.start(model, **options).result()

    def all(self, runs):
        """[(model, options)] → results, side by side."""
        return [f.result() for f in [self.start(m, **o) for m, o in runs]]

    def sustained(self, limit, lo, hi, model, **options):
        """The highest rate whose normalised latency is within the limit, by bisection to 2 %."""
        ok = lambda rate: self.get(model, request_rate=f"{rate:.4g}", **options)["normalized_latency_s"] <= limit
        if not ok(lo):
            return lo
        while hi / lo > 1.02:
            mid = (lo * hi) ** 0.5
            if ok(mid):
                lo = mid
            else:
                hi = mid
        return lo
