"""The step's budget in time: what it says of itself, and (marker `real`) that a long prompt does not hold up streams.

The measurement alone, on a quiet machine:  QUIRE_MEASURE=8000 pytest -m real -s tests/e2e/test_budget.py (the number: tokens of the prompt;
QUIRE_TEST_MODEL names another model)"""
import http.client
import json
import os
import random
import threading
import time

import pytest

from conftest import Server, real_model

N = 32


def test_costs_are_learnt_while_serving(start):
    s = start("--num-kv-blocks", "2048")
    first = s.get("/debug/sched").json()
    assert first["policy"] == "fcfs" and first["step_budget_ms"] == "auto" and first["costs"]["epoch"] == 1
    s.complete(list(range(10, 400)), max_tokens=300, ignore_eos=True)
    now = s.get("/debug/sched").json()
    assert now["costs"]["epoch"] > 1 and now["costs"] != first["costs"]
    assert all(v > 0 for v in now["predicted_ms"].values())


def test_answers_do_not_depend_on_the_budget(start):
    """32 streams and long prompts among them, under budgets from none to next to nothing."""
    r = random.Random(3)
    reqs = [{"prompt": [r.randrange(5, 500) for _ in range(r.choice((20, 60, 700)))], "max_tokens": 60, "ignore_eos": True} for _ in range(16)]
    texts = []
    for budget in ("0", "auto", "0.05", "2"):
        s = start("--num-kv-blocks", "2048", "--step-budget-ms", budget, "--check", "step")
        got = [None] * len(reqs)

        def run(i):
            got[i] = s.complete(**reqs[i])["choices"][0]["text"]

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(reqs))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        texts.append(got)
    assert all(t == texts[0] for t in texts) and len(set(texts[0])) > 8


class Stream:
    """A stream that notes when each of its events came."""

    def __init__(self, server, prompt, max_tokens):
        self.times = []
        self.conn = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
        body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "temperature": 0, "ignore_eos": True}
        self.conn.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        self.reply = self.conn.getresponse()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            while line := self.reply.readline():
                if line.startswith(b"data: {"):
                    self.times.append(time.monotonic())
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # hung up

    def close(self):
        self.conn.sock.close() if self.conn.sock else self.reply.close()

    def gaps(self, a, b):
        t = [x for x in list(self.times) if a <= x <= b]
        return [y - x for x, y in zip(t, t[1:])]


def percentile(values, p):
    values = sorted(values)
    return values[int((len(values) - 1) * p)] * 1e3


def measure(budget, n_prompt=8000):
    """Time between tokens of 32 streams, before and while a prompt of n_prompt tokens is computed beside them; ms."""
    s = Server(real_model(), "--kv-cache-memory", "4G", "--max-num-seqs", "40", "--step-budget-ms", budget)
    try:
        r = random.Random(1)
        ids = lambda n: [r.randrange(1000, 40000) for _ in range(n)]
        streams = [Stream(s, ids(200), 7900) for _ in range(N)]
        while not all(len(x.times) >= 40 for x in streams):
            time.sleep(0.05)
        a = time.monotonic()
        while min(len([t for t in x.times if t > a]) for x in streams) < 40:
            time.sleep(0.05)
        b = time.monotonic()
        reply = s.post("/v1/completions", {"prompt": ids(n_prompt), "max_tokens": 1, "temperature": 0})
        assert reply.status == 200, reply.text
        c = time.monotonic()
        while min(len([t for t in x.times if t > c]) for x in streams) < 40:
            time.sleep(0.05)
        d = time.monotonic()
        sched = s.get("/debug/sched").json()
        for x in streams:
            x.close()
        before = [g for x in streams for g in x.gaps(a, b)]
        beside = [g for x in streams for g in x.gaps(b, c)]
        after = [g for x in streams for g in x.gaps(c, d)]
        costs = sched["costs"]
        # One 16-row tile at that context, and what the budget leaves for prompts, by the table as it was learnt.
        tile = (max(costs["fixed_ns"], costs["floor_ns"]) + costs["prompt_fixed_ns"] + 16 * costs["prompt_row_ns"]) * 1e-6 + 16 * n_prompt * costs["query_context_ps"] * 1e-9
        decode = max(percentile(before, 0.5), percentile(after, 0.5))
        limit = decode + (costs["prompt_fixed_ns"] + 256 * costs["prompt_row_ns"]) * 1e-6 if budget == "auto" else float(budget)
        return {"p50": percentile(beside, 0.5), "p99": percentile(beside, 0.99), "p99_before": percentile(before, 0.99), "decode": decode,
                "tile": tile, "budget": limit, "seconds": c - b, "bound": 2 * max(decode, tile, limit), "costs": costs}
    finally:
        s.proc.kill()
        s.proc.wait()


@pytest.mark.real
def test_a_long_prompt_leaves_streams_steady():
    """Up to three tries: a stolen core lengthens single steps, and 1 % of all gaps is soon reached."""
    n = int(os.environ.get("QUIRE_MEASURE", 0))
    if not n:
        pytest.skip("a measurement, for a quiet machine: QUIRE_MEASURE=8000")
    for attempt in range(3):
        m = measure("auto", n)
        print("\n%d tokens beside %d streams, %.1f s: time between tokens p50 %.0f ms, p99 %.0f ms (p99 before: %.0f ms); a step of %d rows "
              "%.0f ms, a tile at that context %.0f ms, budget %.0f ms, so at most %.0f ms" % (
                  n, N, m["seconds"], m["p50"], m["p99"], m["p99_before"], N, m["decode"], m["tile"], m["budget"], m["bound"]))
        print(json.dumps(m["costs"]))
        if m["p99"] <= m["bound"]:
            return
    assert m["p99"] <= m["bound"], m


@pytest.mark.real
def test_print_budgets():
    """For people: the same numbers under the budgets of QUIRE_BUDGETS="0,auto,60,100"."""
    budgets = os.environ.get("QUIRE_BUDGETS")
    if not budgets:
        pytest.skip("QUIRE_BUDGETS names no budgets")
    for budget in budgets.split(","):
        m = measure(budget)
        print("\nbudget %s: %.1f s, p50 %.0f ms, p99 %.0f ms; a step of %d rows %.0f ms" % (budget, m["seconds"], m["p50"], m["p99"], N, m["decode"]))
