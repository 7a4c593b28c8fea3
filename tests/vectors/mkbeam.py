#!/usr/bin/env python3
"""Golden beam searches on the dequantised weights of tiny GGUF files, in float32. Not needed to run the tests.
usage: mkbeam.py TINY_FOLDER OUT.txt
pins: torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 numpy==2.4.6

Rules `transformers` are `generate(num_beams=...)`; rules `vllm` are the loop of vLLM's server over the logits of
`transformers`. A case is
  case MODEL RULES WIDTH LENGTH_PENALTY EARLY MAX_TOKENS N_PROMPT N_ENDS      EARLY: never, heuristic, full
  prompt ids ...
  ends ids ...
  answer SCORE SUM N ids ...        WIDTH lines, best first"""
import itertools
import os
import sys

import numpy as np
import torch
from mkgolden import load

EARLY = {"never": "never", "heuristic": False, "full": True}


@torch.no_grad()
def logprobs(m, ids):
    return torch.log_softmax(m(input_ids=torch.tensor([ids])).logits[0, -1], -1)


@torch.no_grad()
def transformers_search(m, prompt, width, penalty, early, max_tokens, ends):
    out = m.generate(torch.tensor([prompt]), num_beams=width, num_return_sequences=width, length_penalty=penalty,
                     early_stopping=EARLY[early], max_new_tokens=max_tokens, eos_token_id=ends or None, pad_token_id=0,
                     do_sample=False, return_dict_in_generate=True, output_scores=True)
    answers = []
    for ids, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        ids = ids[len(prompt):]
        end = next((i + 1 for i, t in enumerate(ids) if t in ends), len(ids))
        answers.append((score, score * end ** penalty, ids[:end]))
    return answers


def vllm_search(m, prompt, width, penalty, early, max_tokens, ends):
    def score(ids, total):
        n = len(prompt) + len(ids) - (ids[-1] in ends)
        return total / n ** penalty

    beams, completed = [([], 0.0)], []
    for _ in range(max_tokens):
        new = []
        for ids, total in beams:
            top = torch.topk(logprobs(m, prompt + ids), 2 * width)
            for lp, t in zip(top.values.tolist(), top.indices.tolist()):
                (completed if t in ends else new).append((ids + [t], total + lp))
        beams = sorted(new, key=lambda b: b[1], reverse=True)[:width]
    best = sorted(completed + beams, key=lambda b: score(*b), reverse=True)[:width]
    return [(score(ids, total), total, ids) for ids, total in best]


def main(folder, path):
    torch.manual_seed(0)
    with open(path, "w") as f:
        f.write("# made by tests/vectors/mkbeam.py\n")
        for name in ("llama-f32", "qwen2"):
            m, _ = load(os.path.join(folder, name + ".gguf"))
            rng = np.random.Generator(np.random.PCG64(7))
            kinds = itertools.product((2, 4, 6), (0.0, 0.6, 1.0, 2.0, -1.0), ("never", "heuristic", "full"))
            cases = [("transformers", *k) for k in kinds] + [("vllm", w, lp, "never") for w in (1, 2, 4, 6) for lp in (0.0, 1.0, 3.0)]
            cases.append(("transformers", 16, 1.0, "never"))
            for i, (rules, width, penalty, early) in enumerate(cases):
                prompt = [int(t) for t in rng.integers(3, 500, 4 + i % 30)]
                max_tokens = 6 + i * 7 % 26
                # End tokens that come up: what the greedy answer says, and a beam's second choice.
                ids = list(prompt)
                for _ in range(3 + i % 5):
                    ids.append(int(logprobs(m, ids).argmax()))
                ends = [[], [ids[-1]], [ids[-1], int(torch.topk(logprobs(m, prompt), 3).indices[2])]][i % 3]
                search = vllm_search if rules == "vllm" else transformers_search
                answers = search(m, prompt, width, penalty, early, max_tokens, ends)
                f.write(f"case {name} {rules} {width} {penalty} {early} {max_tokens} {len(prompt)} {len(ends)}\n")
                f.write("prompt " + " ".join(map(str, prompt)) + "\nends " + " ".join(map(str, ends)) + "\n")
                for score, total, a in answers:
                    f.write(f"answer {score:.6f} {total:.6f} {len(a)} {' '.join(map(str, a))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
