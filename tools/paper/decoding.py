"""Figures 14 to 17: several answers, beams, shared prefixes, conversations."""
import svg
from common import A13, ALPACA, CUT, MEANS, ORCA, SHAREGPT, SYSTEMS, TODAY, curve, rate_lines, rates_of, run_of, table, times
from sims import data, side_by_side

PAIR = SYSTEMS[:2]
WIDTHS = (2, 4, 6)
SHARE = dict(enable_prefix_caching=True)
HALF_POOL = dict(kv_cache_memory_bytes="6400M")  # of OPT-13B's 12.8 GB


def costs(name):
    """The roofline of OPT-13B as a table, so that one number of it can be moved: tools/paper/data/README.md."""
    return dict(costs=data(f"costs/{name}.json"))


def several(s, flag, letter, title, what, top):
    """Figure 14 for one way to ask for several answers."""
    pictures, rows = [], []
    for n in WIDTHS:
        o = dict(workload=ALPACA, **{flag: n}, **A13)
        pictures.append((f"_{letter}{n}", rate_lines(f"OPT-13B, Alpaca, {title.format(n)}", curve(s, ORCA, "opt-13b", top / n, **o))))
        r = rates_of(s, ORCA, "opt-13b", top / n, **o)
        rows.append([n] + [f"{r[k]:.2f}" for k, _ in ORCA] + [times(r, "orca-oracle")])
    last = dict(workload=ALPACA, system="vllm", request_rate=f"{r['vllm']:.4g}", **{flag: WIDTHS[-1]}, **A13)
    return pictures, table([what, *[n for _, n in ORCA], "vLLM / Oracle"], rows) + run_of(s, "opt-13b", **last)


def moved(s, flag, top, cases):
    """vLLM over Orca (Oracle) by number of answers, under each assumption: (label, options, options of Orca alone)."""
    def row(more, orca):
        out = []
        for n in WIDTHS:
            r = rates_of(s, PAIR, "opt-13b", top / n, only={"orca-oracle": orca}, **{**dict(workload=ALPACA, max_num_seqs=1024, **{flag: n}), **A13, **more})
            out.append(times(r, "orca-oracle"))
        return out
    got = side_by_side({label: (lambda more=more, orca=orca: row(more, orca)) for label, more, orca in cases})
    return table(["vLLM / Oracle, 1,024 sequences at most", *WIDTHS], [[label, *got[label]] for label, _, _ in cases])


def parallel_sampling(s):
    pictures, text = several(s, "n", "n", "{} answers a request", "answers a request", 36.0)
    return "parallel_sampling", "Parallel sampling (Figure 14)", pictures, text + [""] + moved(s, "n", 36.0, [
        ("as above", {}, {}), ("0.16 ms a sequence", costs("opt-13b_160us"), {}), ("0.08 ms", costs("opt-13b_80us"), {}), ("no host time", TODAY["opt-13b"], {}),
        ("Orca with half the pool", {}, HALF_POOL)]) + [
        "", "The paper's text says that more answers bring more improvement over the Orcas, without a number for parallel sampling. Here it does not grow. Sharing cannot make it grow much: the blocks it saves "
        "are 4 to 7 % here and 6 to 10 % in the paper (Figure 15). What a sequence costs outside the GPU moves its height and not its slope, a smaller pool for Orca its slope by a tenth; "
        "what the paper's slope comes from could not be found out."]


def beam_search(s):
    pictures, text = several(s, "beam_width", "w", "beam width {}", "beam width", 30.0)
    rows = moved(s, "beam_width", 30.0, [
        ("as above", {}, {}), ("copies of last blocks are free", costs("opt-13b_320us"), {}), ("and 0.16 ms a sequence, not 0.32", costs("opt-13b_160us"), {}),
        ("and 0.08 ms", costs("opt-13b_80us"), {}), ("no host time", TODAY["opt-13b"], {}), ("Orca with half the pool", {}, HALF_POOL),
        ("free copies; Orca copies all KV each step", costs("opt-13b_320us"), costs("opt-13b_320us_kv3")),
        ("free copies; Orca copies all KV each step, into half the pool", costs("opt-13b_320us"), {**costs("opt-13b_320us_kv3"), **HALF_POOL})])
    at_6 = [float(row.split("|")[-2]) for row in rows[2:]]
    where = "lies between the rows" if min(at_6) <= 2.3 <= max(at_6) else f"is beyond all rows, which give {min(at_6)} to {max(at_6)}"
    return "beam_search", "Beam search (Figure 14)", pictures, text + [""] + rows + ["| the paper, over its Orca (Oracle) | | | 2.3 |",
        "", "The paper's improvement over Orca (Oracle) grows from 1.3 times without sharing to 2.3 at width 6. Here memory does not bind vLLM's beams: they share most of it, so that about a third of the pool is in "
        "use, and what binds is the time of a step, 0.32 ms for each sequence of a batch of 200, and the copies of last blocks that parting beams write. Both are assumptions: the 0.32 ms were inferred from one "
        "answer a request, and which beam lives on, so how often one parts, is made up. Orca is favoured beside: its beams are simulated as that many answers, without the copies of KV that moving a beam costs "
        "in contiguous memory. The last rows bound that: every beam's KV read, copied and written in each step, at worst into a second buffer that takes half of the pool. "
        f"The paper's 2.3 {where}; which of these it was could not be found out."]


def saved(s, path, rate, flag, **more):
    runs = s.all([("opt-13b", dict(workload=path, request_rate=rate, system="vllm", num_prompts=600, **{flag: w}, **A13, **more)) for w in WIDTHS])
    return [100 * r["kv_shared"] for r in runs]


def sharing(s):
    paper = {("Alpaca", "n"): "6.1 to 9.8", ("Alpaca", "beam_width"): "37.6 to 55.2", ("ShareGPT", "n"): "16.2 to 30.5", ("ShareGPT", "beam_width"): "44.3 to 66.3"}
    kinds = (("n", "parallel sampling"), ("beam_width", "beam search"))
    rows, series, more = [], [], []
    for name, path, rate in (("Alpaca", ALPACA, 4), ("ShareGPT", SHAREGPT, 0.25)):
        for flag, label in kinds:
            v = saved(s, path, rate, flag)
            rows.append([name, label] + [f"{x:.1f}" for x in v] + [paper[name, flag]])
            series.append((f"{name}, {label}", v))
    cases = [("Alpaca", f"blocks of {b}", ALPACA, 4, dict(block_size=b)) for b in (8, 32)]
    cases += [("ShareGPT", "the paper's mean lengths", MEANS, 0.25, {}), ("ShareGPT", "answers of 440 at most", CUT, 0.25, {}), ("ShareGPT", "blocks of 64", SHAREGPT, 0.25, dict(block_size=64))]
    for name, what, path, rate, o in cases:
        for flag, label in kinds:
            more.append([f"{name}, {what}", label] + [f"{x:.1f}" for x in saved(s, path, rate, flag, **o)] + [paper[name, flag]])
    picture = svg.bars("KV memory saved by sharing, %", list(map(str, WIDTHS)), series, "% of the blocks that no sharing would take")
    return "sharing", "Memory saved by sharing (Figure 15)", [("", picture)], table(["lengths", "", *WIDTHS, "paper"], rows) + run_of(
        s, "opt-13b", workload=ALPACA, request_rate=4, system="vllm", num_prompts=600, beam_width=6, **A13) + [
        "", "Measured with the real model: docs/PAPER.md. What moves it:", ""] + table(["lengths", "", *WIDTHS, "paper"], more) + [
        "", "Parallel sampling shares a prompt's whole blocks and nothing else. On ShareGPT the lengths account for the difference: prompts are a quarter of all tokens here (141 of 618), a third in the paper "
        "(161 of 499). On Alpaca, where a prompt is about one block, the paper lies between blocks of 16 and of 8 here; its prompts are a tenth longer (19 tokens, 18 here).",
        "", "Beams save what the paper's do at width 2, more at 6. Which beams live on is made up in the simulator, and its wide beams part too late; the small model in docs/PAPER.md does the "
        "same. No option moves that but the block: what beams have in common in a block that is not full yet is shared as well. How far back the paper's beams part could not be found out."]


def shared_prefix(s):
    pictures, rows, more = [], [], []
    systems = [("vllm", "vLLM, prefix shared"), ("orca-oracle", "Orca (Oracle)")]
    cases = [("as above", {}, {}), ("prompts are never hidden behind the weights' reading", costs("llama-13b_320us"), {}), ("no host time", TODAY["opt-13b"], {}), ("vLLM with blocks of 32", {}, dict(block_size=32))]
    found = {label: [] for label, _, _ in cases}
    for shots, n, top, paper in (("one shot", 80, 60, 1.67), ("five shots", 341, 45, 3.58)):
        o = dict(workload=data("wmt13_ende.csv"), shared_prefix=n, **A13)
        series = [line for k, name in systems for line in curve(s, [(k, name)], "llama-13b", top, **o, **(SHARE if k == "vllm" else {}))]
        pictures.append((f"_{n}", rate_lines(f"LLaMA-13B, English to German, {shots} ({n} tokens)", series)))
        for label, more, alone in cases:
            r = rates_of(s, systems, "llama-13b", top, only={"vllm": {**SHARE, **alone}}, **{**o, **more})
            found[label].append(f"{r['vllm'] / r['orca-oracle']:.2f}")
            if label == "as above":
                last = run_of(s, "llama-13b", system="vllm", request_rate=f"{r['vllm']:.4g}", **SHARE, **o)
                rows.append([f"{shots}, {n} tokens", f"{r['vllm']:.1f}", f"{r['orca-oracle']:.1f}", found[label][-1], paper])
    return "shared_prefix", "Shared prefix (Figure 16)", pictures, table(["prefix", "vLLM, requests/s", "Orca (Oracle)", "ratio", "paper"], rows) + last + [
        "", "Orca computes the prefix for each request and keeps a copy; what its tokens cost and what a step costs beside them moves the ratio:", ""] + table(
        ["vLLM / Oracle", "80 tokens", "341 tokens"], [[label, *found[label]] for label, _, _ in cases] + [["paper", "1.67", "3.58"]]) + [
        "", "The paper's 3.58 lies between the roofline, where the prompt rows of a step cost nothing until they take longer than reading the weights, and a machine without the host time, which was inferred "
        "from OPT-13B's batches and may be less for LLaMA-13B's shorter steps."]


def chatbot(s):
    o = dict(workload=data("chatbot.csv"), **A13)
    series = curve(s, ORCA, "opt-13b", 1.6, **o)
    r = rates_of(s, ORCA, "opt-13b", 1.6, **o)
    picture = rate_lines("OPT-13B as a chatbot", series)
    rows = []
    for label, more, alone in (("as above", {}, {}), ("line at 0.1 s", dict(limit=0.1), {}), ("line at 1.0 s", dict(limit=1.0), {}), ("no host time", TODAY["opt-13b"], {}),
                               ("Orca runs 6 at once at most", {}, dict(max_num_seqs=6)), ("prompts of 3/4 the length, answers with the paper's mean", dict(workload=data("chatbot_short.csv")), {})):
        got = rates_of(s, ORCA, "opt-13b", 1.6, only={k: alone for k, _ in ORCA[1:]}, **{**o, **more})
        rows.append([label] + [times(got, k) for k, _ in ORCA[1:]])
    return "chatbot", "Chatbot (Figure 17)", [("", picture)], table(
        ["sustained rate", *[n for _, n in ORCA], "vLLM / Oracle", "paper"], [["requests/s"] + [f"{r[k]:.2f}" for k, _ in ORCA] + [times(r, "orca-oracle"), "2"]]) + run_of(
        s, "opt-13b", system="vllm", request_rate=f"{r['vllm']:.4g}", **o) + [
        "", "Prompts are the conversation's last 1,024 tokens, answers have at most 1,024; as in the paper, nothing is kept between turns. What was tried:", ""] + table(
        ["vLLM's rate over that of", *[n for _, n in ORCA[1:]]], [*rows, ["paper", 2, 2, 2]]) + [
        "", "With prompts of 1,024 tokens, as most of the paper's are, 15,600 slots hold 7 reservations of 2,048 or 12 to 13 sequences as they grow, 1.8 times as many: more than that memory alone cannot "
        "give. It comes to 2 over Orca (Max) if sequences are shorter, and nearly to it if Orca holds one less; that the paper's three Orcas are alike says that all of them reserved 1,024 for an answer, as Max "
        "does. Which of the two it was could not be found out."]
