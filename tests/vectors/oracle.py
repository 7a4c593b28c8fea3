#!/usr/bin/env python3
"""A Llama or Qwen2 forward pass in numpy on the dequantised weights of a GGUF file, written from the models' descriptions.
It agrees with the logits of `transformers` in the golden files (mkgolden.py) and needs no torch, so it extends them.
usage: oracle.py TINY_FOLDER GOLDEN.txt    checks every case there, then adds a case for each model that has none
       oracle.py MODEL.gguf ID...          the ten largest logits behind these token ids, and their perplexity
pins: gguf==0.19.0 numpy==2.4.6"""
import os
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

N_TOP, N_OTHER = 24, 12  # logits kept of a row: the largest, and some at random


class Oracle:
    """Weights are dequantised when a layer needs them: memory is that of the largest tensor."""

    def __init__(self, path, dtype=np.float64):
        r = GGUFReader(path)
        self.tensors = {t.name: t for t in r.tensors}
        self.dtype = dtype
        self.arch = a = r.fields["general.architecture"].contents()

        def get(key, otherwise=None):
            return r.fields[f"{a}.{key}"].contents() if f"{a}.{key}" in r.fields else otherwise

        self.d, self.n_layers = get("embedding_length"), get("block_count")
        self.heads, self.kv = get("attention.head_count"), get("attention.head_count_kv")
        self.hd = get("attention.key_length", self.d // self.heads)
        self.eps = get("attention.layer_norm_rms_epsilon")
        freqs = get("rope.freq_base", 10000.0) ** (-np.arange(0, self.hd, 2) / self.hd)
        kind, factor = get("rope.scaling.type"), get("rope.scaling.factor")
        if kind == "linear":
            freqs = freqs / factor
        if kind == "llama3":
            low, high, ctx = (get("rope.scaling." + k) for k in ("low_freq_factor", "high_freq_factor", "original_context_length"))
            turns = ctx * freqs / (2 * np.pi)
            smooth = np.clip((turns - low) / (high - low), 0, 1)
            freqs = freqs * (smooth + (1 - smooth) / factor)
        if "rope_freqs.weight" in self.tensors:
            freqs = freqs / self.weight("rope_freqs.weight")
        self.freqs = freqs

    def weight(self, name):
        t = self.tensors[name]
        return dequantize(t.data, t.tensor_type).astype(self.dtype).reshape([int(x) for x in reversed(t.shape)])

    def linear(self, name, x):
        y = x @ self.weight(name + ".weight").T
        return y + self.weight(name + ".bias") if name + ".bias" in self.tensors else y

    def norm(self, name, x):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight(name + ".weight")

    def rotate(self, x):
        """(n, heads, hd). Qwen2 pairs the halves of a head, a llama GGUF neighbours."""
        angle = (np.arange(len(x))[:, None] * self.freqs).astype(np.float64)[:, None]
        c, s = np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)
        out = np.empty_like(x)
        half = self.hd // 2
        a, b = (slice(0, half), slice(half, None)) if self.arch == "qwen2" else (slice(0, None, 2), slice(1, None, 2))
        out[..., a] = x[..., a] * c - x[..., b] * s
        out[..., b] = x[..., b] * c + x[..., a] * s
        return out

    def attention(self, p, x):
        n = len(x)
        q = self.rotate(self.linear(p + "attn_q", x).reshape(n, self.heads, self.hd))
        k = self.rotate(self.linear(p + "attn_k", x).reshape(n, self.kv, self.hd))
        v = self.linear(p + "attn_v", x).reshape(n, self.kv, self.hd)
        future = np.triu(np.full((n, n), -np.inf, self.dtype), 1)
        out = np.empty_like(q)
        for h in range(self.heads):
            g = h // (self.heads // self.kv)
            scores = q[:, h] @ k[:, g].T / self.dtype(np.sqrt(self.hd)) + future
            e = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, g]
        return self.linear(p + "attn_output", out.reshape(n, -1))

    def logits(self, ids, first=0):
        """Of positions first, first + 1, ..."""
        x = self.weight("token_embd.weight")[ids]
        for i in range(self.n_layers):
            p = f"blk.{i}."
            x = x + self.attention(p, self.norm(p + "attn_norm", x))
            h = self.norm(p + "ffn_norm", x)
            gate = self.linear(p + "ffn_gate", h)
            x = x + self.linear(p + "ffn_down", gate / (1 + np.exp(-gate)) * self.linear(p + "ffn_up", h))
        return self.linear("output" if "output.weight" in self.tensors else "token_embd", self.norm("output_norm", x[first:]))


def cases(path):
    out, case = [], None
    with open(path) as f:
        for line in f:
            word, *rest = line.split()
            if word == "case":
                case = dict(name=rest[0], rows=[])
                out.append(case)
            elif word == "ids":
                case["ids"] = [int(x) for x in rest]
            elif word == "row":
                case["rows"].append((int(rest[0]), float(rest[1]), [int(x) for x in rest[3::2]], [float(x) for x in rest[4::2]]))
    return out


def case_text(name, ids, logits, rng):
    out = f"case {name} {len(ids)} {len(ids)}\nids {' '.join(map(str, ids))}\nsteps \n"
    for pos in 0, 37, len(ids) - 1:
        row = logits[pos]
        keep = np.argsort(-row)[:N_TOP].tolist() + rng.integers(0, len(row), N_OTHER).tolist()
        out += f"row {pos} {np.abs(row).max():.7g} {len(keep)} {' '.join(f'{i} {row[i]:.7g}' for i in keep)}\n"
    return out


def tiny(folder, golden):
    known, rng = cases(golden), np.random.Generator(np.random.PCG64(3))
    for c in known:
        logits = Oracle(os.path.join(folder, c["name"] + ".gguf")).logits(c["ids"])
        worst = max(np.abs(logits[pos, at] - want).max() / top for pos, top, at, want in c["rows"])
        print(f"{c['name']}: within {worst:.1e} of the largest")
        assert worst < 2e-5
    with open(golden, "a") as f:
        for name in sorted(os.listdir(folder)):
            if not name.endswith(".gguf") or name == "llama-yarn.gguf" or name[:-5] in {c["name"] for c in known}:
                continue
            m = Oracle(os.path.join(folder, name))
            ids = rng.integers(3, m.tensors["token_embd.weight"].shape[1], 100).tolist()
            f.write(case_text(name[:-5], ids, m.logits(ids), rng))
            print(f"{name[:-5]}: added")


def one(path, ids):
    logits = Oracle(path, np.float32).logits(ids).astype(np.float64)
    log_p = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1, keepdims=True)) - logits.max(-1, keepdims=True)
    if len(ids) > 1:
        print(f"perplexity {np.exp(-log_p[np.arange(len(ids) - 1), ids[1:]].mean()):.4f}")
    for i in np.argsort(-logits[-1])[:10]:
        print(f"{i} {logits[-1, i]:.5f}")


if __name__ == "__main__":
    if os.path.isdir(sys.argv[1]):
        tiny(sys.argv[1], sys.argv[2])
    else:
        one(sys.argv[1], [int(x) for x in sys.argv[2:]])
