"""Each figure of the paper: what is run, the picture, the table with the paper's numbers beside ours, and why they differ.

A figure is a function of the runs that returns (name, title, [(picture's suffix, svg)], lines of Markdown)."""
import svg
from sims import data

SYSTEMS = [("vllm", "vLLM"), ("orca-oracle", "Orca (Oracle)"), ("orca-pow2", "Orca (Pow2)"), ("orca-max", "Orca (Max)"), ("ft", "FasterTransformer")]
ORCA = SYSTEMS[:4]
# As the paper's own implementation used its GPUs: hardware.def says how its overheads were inferred.
MODELS = {"opt-13b": dict(hardware="a100-40g-2023"), "opt-66b": dict(hardware="a100-40g-2023", tp=4), "opt-175b": dict(hardware="a100-80g-2023", tp=8)}
TODAY = {m: dict(o, hardware=o["hardware"].replace("-2023", "")) for m, o in MODELS.items()}
A13 = MODELS["opt-13b"]
LIMIT_S = 0.5  # a token; the paper's curves are drawn up to 1 s and turn upward well below
SHAREGPT, ALPACA = data("sharegpt.csv.gz"), data("alpaca.csv")


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)] + ["| " + " | ".join(str(c) for c in r) + " |" for r in rows]


def pct(x):
    return f"{100 * x:.1f}"


def memory_waste(s):
    paper = {"vllm": 96.3, "orca-oracle": 38.2, "orca-pow2": 26.8, "orca-max": 20.4}
    runs = s.all([("opt-13b", dict(workload=SHAREGPT, request_rate=2, system=k, **A13)) for k, _ in ORCA])
    parts = [("token states", "kv_used"), ("reserved", "kv_reserved"), ("internal", "kv_internal"), ("external", "kv_external")]
    picture = svg.stacked("KV memory by what becomes of it", [n for _, n in ORCA], [(label, [100 * r[key] for r in runs]) for label, key in parts], "% of KV memory")
    rows = [[n, pct(r["kv_used"]), paper[k], pct(r["kv_reserved"]), pct(r["kv_internal"]), pct(r["kv_external"])] for (k, n), r in zip(ORCA, runs)]
    return "memory_waste", "Memory waste by system (Figure 2)", [("", picture)], table(
        ["OPT-13B, ShareGPT, 2 requests/s", "token states %", "paper", "reserved %", "internal %", "external %"], rows)


GRID = {("opt-13b", "sharegpt"): 2.6, ("opt-66b", "sharegpt"): 1.3, ("opt-175b", "sharegpt"): 3.5,
        ("opt-13b", "alpaca"): 44, ("opt-66b", "alpaca"): 30, ("opt-175b", "alpaca"): 40}


def curve(s, systems, model, top, points=12, **options):
    rates = [top * (i + 1) / points for i in range(points)]
    runs = [(model, dict(request_rate=f"{r:.4g}", system=k, **options)) for k, _ in systems for r in rates]
    got = iter(s.all(runs))
    return [(name, [(r, next(got)["normalized_latency_s"]) for r in rates]) for _, name in systems]


def rates_of(s, systems, model, top, limit=LIMIT_S, **options):
    return {k: s.sustained(limit, top / 400, top * 2, model, system=k, **options) for k, _ in systems}


def basic_sampling(s):
    pictures, rows, spread = [], [], {"orca-oracle": [], "orca-max": [], "ft": []}
    for (model, set_name), top in GRID.items():
        o = dict(workload=SHAREGPT if set_name == "sharegpt" else ALPACA, **MODELS[model])
        series = curve(s, SYSTEMS, model, top, **o)
        title = f"{model.upper()}, {'ShareGPT' if set_name == 'sharegpt' else 'Alpaca'}"
        pictures.append((f"_{model}_{set_name}", svg.lines(title, series, "requests a second", "normalised latency, s a token", y_top=1.0)))
        r = rates_of(s, SYSTEMS, model, top, **o)
        ratio = {k: r["vllm"] / r[k] for k in r}
        for k in spread:
            if set_name == "sharegpt":
                spread[k].append(ratio[k])
        rows.append([title] + [f"{r[k]:.2f}" for k, _ in SYSTEMS] + [f"{ratio[k]:.1f}" for k in ("orca-oracle", "orca-max", "ft")])
    text = table(["sustained rate at 0.5 s a token"] + [n for _, n in SYSTEMS] + ["vLLM / Oracle", "vLLM / Max", "vLLM / FT"], rows)
    text += ["", f"On ShareGPT the paper says 1.7 to 2.7 times Orca (Oracle), 2.7 to 8 times Orca (Max), up to 22 times FasterTransformer. Here: "
             f"{min(spread['orca-oracle']):.1f} to {max(spread['orca-oracle']):.1f}, {min(spread['orca-max']):.1f} to {max(spread['orca-max']):.1f}, up to {max(spread['ft']):.0f}."]
    return "basic_sampling", "Normalised latency against request rate (Figure 12)", pictures, text


def limit_matters(s):
    """How far the ratios depend on where the line is drawn."""
    rows = []
    for limit in (0.2, 0.5, 1.0):
        r = rates_of(s, SYSTEMS, "opt-13b", 2.6, limit=limit, workload=SHAREGPT, **MODELS["opt-13b"])
        rows.append([f"{limit} s a token"] + [f"{r['vllm'] / r[k]:.1f}" for k in ("orca-oracle", "orca-pow2", "orca-max", "ft")])
    for n in (1000, 4000):
        r = rates_of(s, SYSTEMS, "opt-13b", 2.6, workload=SHAREGPT, num_prompts=n, **MODELS["opt-13b"])
        rows.append([f"{n} requests a run, 0.5 s"] + [f"{r['vllm'] / r[k]:.1f}" for k in ("orca-oracle", "orca-pow2", "orca-max", "ft")])
    return "limit_matters", "How the ratios depend on the line that is drawn", [], table(
        ["OPT-13B, ShareGPT: vLLM's rate over that of", "Orca (Oracle)", "Orca (Pow2)", "Orca (Max)", "FasterTransformer"], rows) + [
        "", "The paper's runs last an hour. A queue that only grows has less time to grow in a shorter run, so a longer run or a stricter line moves "
        "every system, and those that overload first most."]


def batched_requests(s):
    paper = {"sharegpt": {"vllm": 30.42, "orca-oracle": 13.62, "orca-pow2": 9.81, "orca-max": 7.00},
             "alpaca": {"vllm": 132.44, "orca-oracle": 72.75, "orca-pow2": 43.24, "orca-max": 7.00}}
    rows, series = [], []
    for set_name, path, rate in (("sharegpt", SHAREGPT, 2), ("alpaca", ALPACA, 30)):
        runs = s.all([("opt-13b", dict(workload=path, request_rate=rate, system=k, **A13)) for k, _ in ORCA])
        for (k, n), r in zip(ORCA, runs):
            rows.append([f"{set_name}, {rate} requests/s", n, f"{r['batch_mean']:.1f}", paper[set_name][k]])
        series.append((set_name, [r["batch_mean"] for r in runs]))
    pictures = [(f"_{name}", svg.bars(f"Batched requests, {name}", [n for _, n in ORCA], [("here", v), ("paper", [paper[name][k] for k, _ in ORCA])], "sequences a step"))
                for name, v in series]
    return "batched_requests", "Batched requests (Figure 13)", pictures, table(["OPT-13B", "system", "here", "paper"], rows)


def parallel_sampling(s):
    pictures, rows = [], []
    for n in (2, 4, 6):
        top = 36.0 / n
        o = dict(workload=ALPACA, n=n, **MODELS["opt-13b"])
        pictures.append((f"_n{n}", svg.lines(f"OPT-13B, Alpaca, {n} answers a request", curve(s, ORCA, "opt-13b", top, **o), "requests a second",
                                             "normalised latency, s a token", y_top=1.0)))
        r = rates_of(s, ORCA, "opt-13b", top, **o)
        rows.append([n] + [f"{r[k]:.2f}" for k, _ in ORCA] + [f"{r['vllm'] / r['orca-oracle']:.1f}"])
    return "parallel_sampling", "Parallel sampling (Figure 14)", pictures, table(
        ["answers a request", *[n for _, n in ORCA], "vLLM / Oracle"], rows) + [
        "", "The paper's improvement over Orca (Oracle) grows from 1.3 times without sharing to 2.3 times at beam width 6; parallel sampling lies between."]


def beam_search(s):
    pictures, rows = [], []
    for n in (2, 4, 6):
        top = 30.0 / n
        o = dict(workload=ALPACA, beam_width=n, **A13)
        pictures.append((f"_w{n}", svg.lines(f"OPT-13B, Alpaca, beam width {n}", curve(s, ORCA, "opt-13b", top, **o), "requests a second",
                                             "normalised latency, s a token", y_top=1.0)))
        r = rates_of(s, ORCA, "opt-13b", top, **o)
        rows.append([n] + [f"{r[k]:.2f}" for k, _ in ORCA] + [f"{r['vllm'] / r['orca-oracle']:.1f}"])
    return "beam_search", "Beam search (Figure 14)", pictures, table(
        ["beam width", *[n for _, n in ORCA], "vLLM / Oracle"], rows) + [
        "", "The paper's improvement over Orca (Oracle) grows from 1.3 times without sharing to 2.3 times at width 6. Beams on the contiguous layouts are "
        "simulated as that many answers, without the copies of KV that moving a beam costs there, so they do better here than they could. Which beam "
        "lives on is made up in the simulator."]


def sharing(s):
    paper = {("Alpaca", "n"): "6.1 to 9.8", ("Alpaca", "beam_width"): "37.6 to 55.2", ("ShareGPT", "n"): "16.2 to 30.5", ("ShareGPT", "beam_width"): "44.3 to 66.3"}
    rows, series = [], []
    for name, path, rate in (("Alpaca", ALPACA, 4), ("ShareGPT", SHAREGPT, 0.25)):
        for flag, label in (("n", "parallel sampling"), ("beam_width", "beam search")):
            runs = s.all([("opt-13b", dict(workload=path, request_rate=rate, system="vllm", num_prompts=600, **{flag: w}, **A13)) for w in (2, 4, 6)])
            saved = [100 * r["kv_shared"] for r in runs]
            rows.append([name, label] + [f"{x:.1f}" for x in saved] + [paper[name, flag]])
            series.append((f"{name}, {label}", saved))
    picture = svg.bars("KV memory saved by sharing, %", ["2", "4", "6"], series, "% of the blocks that no sharing would take")
    return "sharing", "Memory saved by sharing (Figure 15)", [("", picture)], table(
        ["lengths", "", "2", "4", "6", "paper"], rows) + [
        "", "Measured with the real model: docs/PAPER.md. Parallel sampling shares the prompt alone, so what it saves follows the share of prompts in all "
        "tokens: a quarter here on ShareGPT (141 of 618), a third in the paper (161 of 499)."]


def block_size(s):
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    series, rows = [], {b: [b] for b in sizes}
    for name, path, rate in (("ShareGPT", SHAREGPT, 2), ("Alpaca", ALPACA, 30)):
        runs = s.all([("opt-13b", dict(workload=path, request_rate=rate, system="vllm", block_size=b, **A13)) for b in sizes])
        series.append((f"{name}, {rate}/s", [(b, r["normalized_latency_s"]) for b, r in zip(sizes, runs)]))
        for b, r in zip(sizes, runs):
            rows[b] += [f"{r['normalized_latency_s']:.3f}", pct(1 - r["kv_used"]), f"{r['batch_mean']:.1f}"]
    picture = svg.lines("Block size, OPT-13B", series, "tokens a block", "normalised latency, s a token", x_log=True)
    return "block_size", "Block size (Figure 18b)", [("", picture)], table(
        ["block", "ShareGPT: s a token", "waste %", "batch", "Alpaca: s a token", "waste %", "batch"], rows.values()) + [
        "", "The paper finds 16 to 128 best on ShareGPT and 16 and 32 on Alpaca, larger ones wasting memory on short sequences. Its cost of small "
        "blocks lies in the attention kernel's reads, which a roofline does not have; there small blocks are as good as 16."]


def swap_or_recompute(s):
    rows, series = [], {"recompute": [], "swap": []}
    sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    for b in sizes:
        runs = s.all([("opt-13b", dict(workload=SHAREGPT, request_rate=2.4, system="vllm", block_size=b, preemption_mode=m, swap_space="32G", **A13)) for m in series])
        for (m, pts), r in zip(series.items(), runs):
            pts.append((b, r["normalized_latency_s"]))
        rows.append([b] + [f"{r['normalized_latency_s']:.3f}" for r in runs] + [runs[0]["preemptions"]])
    picture = svg.lines("Swap or recompute, OPT-13B, ShareGPT, 2.4 requests/s", list(series.items()), "tokens a block", "normalised latency, s a token", x_log=True)
    return "swap_or_recompute", "Swapping against recomputing (Figure 19)", [("", picture)], table(
        ["block", "recompute: s a token", "swap: s a token", "preemptions"], rows) + [
        "", "The paper finds swapping costly at small blocks, for many small transfers over PCIe, and both alike at 16 to 64. The roofline moves a "
        "request's blocks at PCIe's bandwidth whatever their size, so that effect is not here."]


def shared_prefix(s):
    pictures, rows = [], []
    o = dict(workload=data("wmt13_ende.csv"), **A13)
    for shots, n, top, paper in (("one shot", 80, 60, 1.67), ("five shots", 341, 45, 3.58)):
        systems = [("vllm", "vLLM, prefix shared"), ("orca-oracle", "Orca (Oracle)")]
        r, series = {}, []
        for k, name in systems:
            more = dict(o, shared_prefix=n, **({"enable_prefix_caching": True} if k == "vllm" else {}))
            series += curve(s, [(k, name)], "llama-13b", top, **more)
            r[k] = s.sustained(LIMIT_S, top / 100, top * 2, "llama-13b", system=k, **more)
        pictures.append((f"_{n}", svg.lines(f"LLaMA-13B, English to German, {shots} ({n} tokens)", series, "requests a second", "normalised latency, s a token", y_top=1.0)))
        rows.append([f"{shots}, {n} tokens", f"{r['vllm']:.1f}", f"{r['orca-oracle']:.1f}", f"{r['vllm'] / r['orca-oracle']:.2f}", paper])
    return "shared_prefix", "Shared prefix (Figure 16)", pictures, table(
        ["prefix", "vLLM, requests/s", "Orca (Oracle)", "ratio", "paper"], rows)


def chatbot(s):
    o = dict(workload=data("chatbot.csv"), **A13)
    series = curve(s, ORCA, "opt-13b", 1.6, **o)
    r = rates_of(s, ORCA, "opt-13b", 1.6, **o)
    picture = svg.lines("OPT-13B as a chatbot", series, "requests a second", "normalised latency, s a token", y_top=1.0)
    return "chatbot", "Chatbot (Figure 17)", [("", picture)], table(
        ["sustained rate", *[n for _, n in ORCA], "vLLM / Oracle", "paper"], [["requests/s"] + [f"{r[k]:.2f}" for k, _ in ORCA] + [f"{r['vllm'] / r['orca-oracle']:.1f}", "2"]]) + [
        "", "Prompts are the conversation's last 1,024 tokens, answers have at most 1,024; as in the paper, nothing is kept between turns."]


def system_prompt(s):
    rows = []
    for cached in (False, True):
        o = {"enable_prefix_caching": True} if cached else {"no_enable_prefix_caching": True}
        r = s.get("llama-3-8b", hardware="l4", workload="200/150", shared_prefix=4000, request_rate=1, num_prompts=300, system="quire", **o)
        total = 300 * 4200
        rows.append(["cached" if cached else "not cached", f"{total - r['cached_tokens']:,}", pct(r["cached_tokens"] / total), f"{r['ttft_s']['p50']:.2f}", f"{r['ttft_s']['p90']:.2f}", f"{r['latency_s']['p50']:.1f}"])
    return "system_prompt", "A system prompt of 4,000 tokens that all share", [], table(
        ["Llama-3-8B on one L4, 200 own tokens, 1 request/s", "prompt tokens computed", "saved %", "TTFT p50, s", "TTFT p90, s", "latency p50, s"], rows)


def pool_settings(s):
    rows = []
    o = dict(workload=SHAREGPT, request_rate=1.0, system="quire", hardware="a100-40g-2023", num_prompts=1500)
    for label, more in (("all memory, 256 at once", {}), ("half the pool", dict(num_kv_blocks=490)), ("half, at most 12 at once", dict(num_kv_blocks=490, max_num_seqs=12)),
                        ("half, swap to host memory", dict(num_kv_blocks=490, swap_space="16G", preemption_mode="swap")), ("at most 16 at once", dict(max_num_seqs=16))):
        r = s.get("opt-13b", **o, **more)
        rows.append([label, f"{r['tokens_per_s']:.0f}", f"{r['normalized_latency_s']:.3f}", f"{r['ttft_s']['p50']:.2f}", f"{r['ttft_s']['p90']:.1f}", f"{1000 * r['itl_s']['p99']:.0f}",
                     r["preemptions"], f"{r['recomputed_tokens']:,}", pct(r["kv_fill"])])
    return "pool_settings", "The pool's use against its settings", [], table(
        ["OPT-13B, ShareGPT, 1 request/s", "tokens/s", "s a token", "TTFT p50, s", "TTFT p90, s", "ITL p99, ms", "preemptions", "recomputed tokens", "pool filled %"], rows) + [
        "", "Many preemptions beside a filled pool: more memory is worth most (the first row against the second). Without it, swapping saves the recomputing, a "
        "smaller --max-num-seqs trades time to the first token for even times between tokens (its row against the second), and too small a one leaves "
        "the pool idle (the last row: nothing is preempted, half of the memory is never used)."]


def practitioner(s):
    """The number of sequences at once is raised from 18 to 96."""
    paper = {18: ("240", "4.1"), 96: ("1,920", "1.3")}
    rows = []
    for n in (18, 32, 64, 96):
        r = s.get("llama-3-70b-awq", hardware="h100", workload=data("practitioner.csv"), request_rate=6, max_num_seqs=n, max_num_batched_tokens=2048, system="quire")
        rows.append([n, f"{r['tokens_per_s']:.0f}", paper.get(n, ("", ""))[0], f"{r['batch_mean']:.1f}", f"{r['ttft_s']['p90']:.2f}", f"{r['latency_s']['p50']:.1f}", f"{r['latency_s']['p90']:.1f}", paper.get(n, ("", ""))[1]])
    return "practitioner", "The practitioner's case", [], table(
        ["sequences at once", "tokens/s", "reported", "batch", "TTFT p90, s", "latency p50, s", "latency p90, s", "reported p95, s"], rows) + [
        "", "Llama-3-70B with 4-bit weights on one H100-80G, prompts and answers of mean 280 and deviation 220 tokens, 6 requests/s. The report does not "
        "say at which rate, nor what its p95 is of; it compares a contiguous layout with a paged one, here only the number at once changes."]


ALL = [memory_waste, basic_sampling, limit_matters, batched_requests, parallel_sampling, beam_search, sharing, shared_prefix, chatbot, block_size, swap_or_recompute,
       system_prompt, pool_settings, practitioner]
