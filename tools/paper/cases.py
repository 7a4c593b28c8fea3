"""Cases that are not of the paper: a long system prompt, the pool's settings, the practitioner's."""
from common import SHAREGPT, pct, run_of, table
from sims import data


def system_prompt(s):
    rows = []
    base = dict(hardware="l4", workload="200/150", shared_prefix=4000, request_rate=1, num_prompts=300, system="quire")
    for cached in (False, True):
        o = {"enable_prefix_caching": True} if cached else {"no_enable_prefix_caching": True}
        r = s.get("llama-3-8b", **base, **o)
        total = 300 * 4200
        rows.append(["cached" if cached else "not cached", f"{total - r['cached_tokens']:,}", pct(r["cached_tokens"] / total), f"{r['ttft_s']['p50']:.2f}", f"{r['ttft_s']['p90']:.2f}", f"{r['latency_s']['p50']:.1f}"])
    return "system_prompt", "A system prompt of 4,000 tokens that all share", [], table(
        ["Llama-3-8B on one L4, 200 own tokens, 1 request/s", "prompt tokens computed", "saved %", "TTFT p50, s", "TTFT p90, s", "latency p50, s"], rows) + run_of(s, "llama-3-8b", **base, **o)


def pool_settings(s):
    rows = []
    o = dict(workload=SHAREGPT, request_rate=1.0, system="quire", hardware="a100-40g-2023", num_prompts=1500)
    for label, more in (("all memory, 256 at once", {}), ("half the pool", dict(num_kv_blocks=490)), ("half, at most 12 at once", dict(num_kv_blocks=490, max_num_seqs=12)),
                        ("half, swap to host memory", dict(num_kv_blocks=490, swap_space="16G", preemption_mode="swap")), ("at most 16 at once", dict(max_num_seqs=16))):
        r = s.get("opt-13b", **o, **more)
        rows.append([label, f"{r['tokens_per_s']:.0f}", f"{r['normalized_latency_s']:.3f}", f"{r['ttft_s']['p50']:.2f}", f"{r['ttft_s']['p90']:.1f}", f"{1000 * r['itl_s']['p99']:.0f}",
                     r["preemptions"], f"{r['recomputed_tokens']:,}", pct(r["kv_fill"])])
    return "pool_settings", "The pool's use against its settings", [], table(
        ["OPT-13B, ShareGPT, 1 request/s", "tokens/s", "s a token", "TTFT p50, s", "TTFT p90, s", "ITL p99, ms", "preemptions", "recomputed tokens", "pool filled %"], rows) + run_of(s, "opt-13b", **o, num_kv_blocks=490) + [
        "", "Many preemptions beside a filled pool: more memory is worth most (the first row against the second). Without it, swapping saves the recomputing, a "
        "smaller --max-num-seqs trades time to the first token for even times between tokens (its row against the second), and too small a one leaves "
        "the pool idle (the last row: nothing is preempted, half of the memory is unused on average)."]


def practitioner(s):
    """The number of sequences at once is raised from 18 to 96."""
    reported = {18: ("240", "4.1"), 96: ("1,920", "1.3")}
    rows, more = [], []
    o = dict(hardware="h100", workload=data("practitioner.csv"), max_num_batched_tokens=2048, system="quire")
    for n in (18, 32, 64, 96):
        r = s.get("llama-3-70b-awq", **o, request_rate=6, max_num_seqs=n)
        rows.append([n, f"{r['tokens_per_s']:.0f}", reported.get(n, ("", ""))[0], f"{r['batch_mean']:.1f}", f"{r['ttft_s']['p90']:.2f}", f"{r['latency_s']['p50']:.1f}", f"{r['latency_s']['p90']:.1f}", reported.get(n, ("", ""))[1]])
    for rate in (0.5, 1, 2, 4, 6, 12):
        runs = [s.get("llama-3-70b-awq", **o, request_rate=rate, max_num_seqs=n) for n in (18, 96)]
        more.append([rate] + [x for r in runs for x in (f"{r['tokens_per_s']:.0f}", f"{r['ttft_s']['p90']:.2f}", f"{r['latency_s']['p90']:.1f}")])
    return "practitioner", "The practitioner's case", [], table(
        ["sequences at once", "tokens/s", "reported", "batch", "TTFT p90, s", "latency p50, s", "latency p90, s", "reported p95, s"], rows) + run_of(
        s, "llama-3-70b-awq", **o, request_rate=6, max_num_seqs=96) + [
        "", "Llama-3-70B with 4-bit weights on one H100-80G, prompts and answers of mean 280 and deviation 220 tokens, 6 requests/s. No source is known in which the reported figures could be looked up; they "
        "say neither the rate nor what the p95 is of. The report compares a contiguous layout with a paged one; here only the number at once changes. The rate moves it most:", ""] + table(
        ["requests/s", "18 at once: tokens/s", "TTFT p90, s", "latency p90, s", "96 at once: tokens/s", "TTFT p90, s", "latency p90, s"], more) + [
        "", "240 tokens/s are what less than one request a second asks for, and 1,920 are more than this machine gives at any rate. So no rate explains both, and what else moves them could not be found out."]
