"""Figures 18 and 19: block size, swapping against recomputing."""
import svg
from common import A13, ALPACA, SHAREGPT, pct, run_of, table
from sims import data

SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
# Figure 19a by arithmetic: a block crosses PCIe as a piece of K and one of V for each of OPT-13B's layers.
PIECES, KV_BYTES, PCIE_GBS, PIECE_US = 2 * 40, 819200, 25, 10


def block_size(s):
    series, rows = [], {b: [b] for b in SIZES}
    for name, path, rate in (("ShareGPT", SHAREGPT, 2), ("Alpaca", ALPACA, 30)):
        runs = s.all([("opt-13b", dict(workload=path, request_rate=rate, system="vllm", block_size=b, **A13)) for b in SIZES])
        series.append((f"{name}, {rate}/s", [(b, r["normalized_latency_s"]) for b, r in zip(SIZES, runs)]))
        for b, r in zip(SIZES, runs):
            rows[b] += [f"{r['normalized_latency_s']:.3f}", pct(1 - r["kv_used"]), f"{r['batch_mean']:.1f}"]
    picture = svg.lines("Block size, OPT-13B", series, "tokens a block", "normalised latency, s a token", x_log=True)
    more = {b: [b] for b in SIZES}
    for o in (dict(workload=SHAREGPT, request_rate=1.2), dict(workload=SHAREGPT, request_rate=1.5), dict(workload=ALPACA, request_rate=20), dict(workload=ALPACA, request_rate=25)):
        for b, r in zip(SIZES, s.all([("opt-13b", dict(system="vllm", block_size=b, **o, **A13)) for b in SIZES])):
            more[b].append(f"{r['normalized_latency_s']:.3f}")
    over = lambda got, b, column: f"{100 * (float(got[b][column]) / min(float(r[column]) for r in got.values()) - 1):.0f} %"
    kernel = {f: s.get("opt-13b", workload=SHAREGPT, request_rate=1.5, system="vllm", block_size=1, costs=data(f"costs/{f}.json"), **A13)["normalized_latency_s"]
              for f in ("opt-13b_320us", "opt-13b_320us_kv3")}
    return "block_size", "Block size (Figure 18b)", [("", picture)], table(
        ["block", "ShareGPT: s a token", "waste %", "batch", "Alpaca: s a token", "waste %", "batch"], rows.values()) + run_of(
        s, "opt-13b", workload=SHAREGPT, request_rate=2, system="vllm", block_size=128, **A13) + [
        "", "The paper finds 16 to 128 best on ShareGPT and 16 and 32 on Alpaca, larger ones wasting memory on short sequences. How large a block may be hangs on the load, since the memory that it wastes "
        f"costs nothing until requests wait for it. At the loads above, blocks of 64 on ShareGPT take {over(rows, 64, 1)} more than the best, blocks of 16 and 32 on Alpaca {over(rows, 16, 4)} and {over(rows, 32, 4)} more than "
        "blocks of 2: so many requests wait there that each slot counts. With fewer, larger blocks cost less:", ""] + table(
        ["block, s a token", "ShareGPT, 1.2 requests/s", "1.5", "Alpaca, 20 requests/s", "25"], more.values()) + [
        "", f"(Blocks of 64 take {over(more, 64, 1)} and {over(more, 64, 2)} more than the best on ShareGPT, of 32 {over(more, 32, 3)} and {over(more, 32, 4)} more on Alpaca.)", "", "What small blocks cost the paper lies in the attention kernel's reads, which a roofline does not have; here they are as good as 16. Were attention's reads at a block of 1 three times as slow, "
        f"ShareGPT at 1.5 requests/s would take {kernel['opt-13b_320us_kv3']:.3f} s a token, not {kernel['opt-13b_320us']:.3f} (costs/opt-13b_320us_kv3.json in tools/paper/data, against opt-13b_320us.json; "
        f"above it is {more[1][2]}, because a table of costs knows no prompt that is hidden behind the weights' reading). "
        "What they cost this server's own kernels: docs/PERFORMANCE.md, Pages against contiguous memory."]


def swap_or_recompute(s):
    rows, series, worst = [], {"recompute": [], "swap": []}, 0
    for b in SIZES:
        runs = s.all([("opt-13b", dict(workload=SHAREGPT, request_rate=2.4, system="vllm", block_size=b, preemption_mode=m, swap_space="32G", **A13)) for m in series])
        for (m, pts), r in zip(series.items(), runs):
            pts.append((b, r["normalized_latency_s"]))
        worst = max(worst, runs[0]["normalized_latency_s"] / runs[1]["normalized_latency_s"] - 1)
        rows.append([b] + [f"{r['normalized_latency_s']:.3f}" for r in runs] + [runs[0]["preemptions"]])
    picture = svg.lines("Swap or recompute, OPT-13B, ShareGPT, 2.4 requests/s", list(series.items()), "tokens a block", "normalised latency, s a token", x_log=True)
    prompt = dict(workload="1024/1", request_rate=1, num_prompts=1, system="vllm", **A13)
    again = 1e6 * s.get("opt-13b", **prompt)["latency_s"]["mean"] / 1024
    at_once = 2e6 * KV_BYTES / (PCIE_GBS * 1e9)
    micro = [[b, f"{again:.0f}", f"{at_once:.0f}", f"{at_once + 2 * PIECES * PIECE_US / b:.0f}"] for b in SIZES]
    return "swap_or_recompute", "Swapping against recomputing (Figure 19)", [("", picture)], table(
        ["block", "recompute: s a token", "swap: s a token", "preemptions"], rows) + run_of(
        s, "opt-13b", workload=SHAREGPT, request_rate=2.4, system="vllm", block_size=16, preemption_mode="swap", swap_space="32G", **A13) + [
        "", f"The paper's recomputing never takes over 20 % more than swapping; here at most {100 * worst:.0f} % more. It finds swapping costly at small blocks, for many small transfers over PCIe, and both "
        "alike at 16 to 64. The roofline moves a request's blocks at PCIe's bandwidth whatever their size, so that effect is not in the runs above. Figure 19a, the two by themselves, with it: out and in again at "
        f"{PCIE_GBS} GB/s, and with {PIECE_US} µs for each of a block's {PIECES} pieces (K and V of each layer; the {PIECE_US} µs are assumed, about what a copy costs to start), by arithmetic; recomputing as "
        f"`{s.command('opt-13b', **prompt)}` says:", ""] + table(
        ["block", "recompute, µs a token", "swap at full bandwidth", "swap in pieces"], micro) + [
        "", "In pieces swapping is far the dearer for blocks of up to 8, like recomputing from 16 to 32 and cheaper above: recomputing takes "
        f"{again / (at_once + 2 * PIECES * PIECE_US / 64):.1f} times as long at 64. The paper finds both alike to 64 and recomputing never over 1.2 times; with pieces of 30 µs, not {PIECE_US}, it would be "
        f"{again / (at_once + 2 * PIECES * 30 / 64):.1f} at 64, and what a piece took there could not be found out."]
