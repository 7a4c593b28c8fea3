"""Runs of `quire sim`, several at a time, each asked for once."""
import concurrent.futures
import json
import os
import subprocess
import sys
import time

SECONDS_MIN = 300  # that a run lasts at least: short answers at high rates need thousands of requests to fill a batch
WITHIN = 1.02      # to which a sustained rate is found

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def data(name):
    return os.path.join(HERE, "data", name)


def side_by_side(jobs):
    """{key: function} → {key: result}."""
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        futures = {k: pool.submit(f) for k, f in jobs.items()}
        return {k: f.result() for k, f in futures.items()}


class Sims:
    def __init__(self, quire, requests, seed):
        self.quire, self.requests, self.seed = quire, requests, seed
        self.known, self.n, self.started, self.shown = {}, 0, time.time(), 0.0
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1)

    def _run(self, args):
        p = subprocess.run([self.quire, "sim", *args, "--json", "-"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if p.returncode:
            raise SystemExit(f"paper: quire sim {' '.join(args)}: {p.stderr.strip() or f'ended with {p.returncode}'}")
        self.n += 1
        if sys.stderr.isatty() and time.time() - self.shown > 0.2:
            self.shown = time.time()
            print(f"\r{self.n} runs in {self.shown - self.started:.0f} s \033[K", end="", file=sys.stderr)
        return json.loads(p.stdout)

    def arguments(self, model, seconds=None, **options):
        """Options become flags: num_prompts=5 is --num-prompts 5. seconds: as many requests as arrive in them."""
        rate = float(options.get("request_rate", 0))
        n = int(rate * seconds) if seconds else max(self.requests, int(rate * SECONDS_MIN))
        options = {"num_prompts": max(n, 1), "seed": self.seed, **options}
        args = [model]
        for k, v in sorted(options.items()):
            args += ["--" + k.replace("_", "-")] + ([] if v is True else [str(v)])
        return args

    def command(self, model, **options):
        """A run as one would type it in the repository's folder."""
        return " ".join(["quire sim", *self.arguments(model, **options)]).replace(ROOT + os.sep, "")

    def start(self, model, **options):
        """A future."""
        args = self.arguments(model, **options)
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
        """The highest rate whose normalised latency is within the limit, by bisection to 2 % from bounds that give way where they do not hold it."""
        ok = lambda rate: self.get(model, request_rate=f"{rate:.4g}", **options)["normalized_latency_s"] <= limit
        while not ok(lo):
            lo, hi = lo / 10, lo
            if lo < 1e-6:
                raise SystemExit(f"paper: {self.command(model, **options)}: over {limit} s a token at any rate")
        bound = hi
        while hi / lo > WITHIN:
            mid = (lo * hi) ** 0.5
            if ok(mid):
                lo = mid
            else:
                hi = mid
            if hi == bound and hi / lo <= WITHIN:
                hi = bound = 4 * bound
        return lo
