"""make paper: every figure and table of docs/paper from runs of the simulator. The same seed gives the same bytes. With
another seed or number of requests they go to build/paper."""
import argparse
import os
import time

import ablations
import cases
import decoding
import figures
from sims import ROOT, Sims

ALL = [figures.memory_waste, figures.kv_slots, figures.basic_sampling, figures.rate_assumptions, figures.ample_memory, figures.batched_requests, figures.host_time,
       decoding.parallel_sampling, decoding.beam_search, decoding.sharing, decoding.shared_prefix, decoding.chatbot, ablations.block_size, ablations.swap_or_recompute,
       cases.system_prompt, cases.pool_settings, cases.practitioner]
HEAD = """# The paper's figures, from the simulator

`make paper` makes this page and its pictures anew, in minutes, byte for byte. Each run is `quire sim`: the scheduler and block
bookkeeping that serve, under a virtual clock, at the cost of the paper's machines (src/sim/README.md), {requests:,} requests a run unless its command says otherwise, or as
many as arrive in five minutes where those are more.
"Paper" is Kwon et al., SOSP 2023. Sustained rates are the highest at which the mean of end-to-end latency by answer length stays within
0.5 s a token, to 2 %. Below each table stand one of its runs as a command, for the repository's folder (the others differ by what their row or
column says; of a sustained rate, any rate up to it stays within the line), and why its numbers are not the paper's: a table that varies
what could be, or a sentence that says what was tried. docs/PAPER.md says where each part of the paper lives in this code.
"""


def arguments(words=None):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--quire", default=os.path.join(ROOT, "build", "quire"))
    p.add_argument("--out", help="a folder; by default docs/paper for runs with the defaults, else build/paper")
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="", help="a word of the figures' names: " + ", ".join(f.__name__ for f in ALL))
    a = p.parse_args(words)
    if not any(a.only in f.__name__ for f in ALL):
        p.error(f"--only: expected a word of {', '.join(f.__name__ for f in ALL)}, got {a.only!r}")
    if a.requests < 1:
        p.error(f"--requests: expected at least 1, got {a.requests}")
    as_kept = all(getattr(a, k) == p.get_default(k) for k in ("requests", "seed"))
    a.out = a.out or os.path.join(ROOT, *(("docs", "paper") if as_kept else ("build", "paper")))
    return a


def main():
    a = arguments()
    os.makedirs(a.out, exist_ok=True)
    sims, page = Sims(a.quire, a.requests, a.seed), [HEAD.format(requests=a.requests)]
    for figure in ALL:
        if a.only not in figure.__name__:
            continue
        begun = time.time()
        name, title, pictures, text = figure(sims)
        page.append(f"## {title}\n")
        for suffix, svg in pictures:
            with open(os.path.join(a.out, f"{name}{suffix}.svg"), "w") as f:
                f.write(svg)
            page.append(f"![{title}]({name}{suffix}.svg)")
        page += ["", *text, ""]
        print(f"{name}: {len(pictures)} pictures in {time.time() - begun:.0f} s", flush=True)
    if not a.only:
        with open(os.path.join(a.out, "README.md"), "w") as f:
            f.write("\n".join(page))
    else:
        print("\n".join(page[1:]))


if __name__ == "__main__":
    main()
