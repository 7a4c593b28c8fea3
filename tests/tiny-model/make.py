#!/usr/bin/env python3
"""Writes tiny random-weight GGUF models: every weight type, RoPE variant, vocabulary kind and family that quire reads.
Deterministic: the same bytes on every machine. Needs the packages of tests/requirements.txt (gguf, numpy).
usage: make.py FOLDER [NAME...]

tiny.gguf is the one that end-to-end tests serve: a byte-level BPE vocabulary with a chat template, and a head that
avoids control tokens and bytes which are no ASCII text, so that greedy answers are readable and end by length."""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFWriter, TokenType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import quantize

CORPUS = """the quick brown fox jumps over the lazy dog and then the other dog jumps over the brown fox again
a page of text is made of words and words are made of letters; the reader turns the page and the text goes on
once upon a time there was a small server that kept its memory in pages and served many users at the same time
what is the capital of france? the capital of france is paris. what is the answer to this question? it is forty two
hello world, how are you today? I am fine, thank you. The weather in the north is cold and in the south it is warm
numbers like 1 2 3 10 20 30 100 and 2024 appear in text, and so does punctuation: (like this), "like that", and so on
def main(): return 0 # code has its own words: for, while, if, else, return, print, import, class, function, value
a quire is a gathering of pages; pages are kept in blocks, blocks are kept in a pool, and the pool is kept in memory"""

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ONLY_READ = (Q.Q2_K, Q.Q3_K, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.IQ4_NL, Q.IQ4_XS)
N_VOCAB = 509  # no multiple of a panel of 16


def byte_chars():
    """The character that stands for each byte in a byte-level vocabulary."""
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    chars, n = {}, 0
    for b in range(256):
        chars[b] = chr(b) if b in keep else chr(256 + n)
        n += b not in keep
    return [chars[b] for b in range(256)]


def train(words, n_merges):
    """Byte pair encoding: n_merges most frequent pairs in turn, ties to the smaller pair. Words are lists of symbols."""
    words = [list(w) for w in words]
    merges = []
    while len(merges) < n_merges:
        counts = {}
        for w in words:
            for pair in zip(w, w[1:]):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda p: (counts[p], [-ord(c) for c in p[0] + p[1]]))
        merges.append(best)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == best:
                    w[i:i + 2] = [w[i] + w[i + 1]]
                i += 1
    return merges


def corpus_words(space):
    out = []
    for line in CORPUS.split("\n"):
        for i, word in enumerate(line.split(" ")):
            out.append((space if i or space == "\u2581" else "") + word)
    return out


def bpe_vocab(writer):
    merges = train(corpus_words(byte_chars()[0x20]), N_VOCAB - 256 - len(SPECIALS))
    tokens = SPECIALS + byte_chars() + [a + b for a, b in merges]
    types = [TokenType.CONTROL] * len(SPECIALS) + [TokenType.NORMAL] * (len(tokens) - len(SPECIALS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([a + " " + b for a, b in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
    return tokens


def spm_vocab(writer):
    base = sorted(set("".join(corpus_words("\u2581"))))
    head = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    merges = train(corpus_words("\u2581"), N_VOCAB - len(head) - len(base))
    pieces = [a + b for a, b in merges]
    tokens = head + pieces + base
    scores = [0.0] * len(head) + [-float(i) for i in range(len(pieces))] + [-1000.0 - i for i in range(len(base))]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
    types += [TokenType.NORMAL] * (len(tokens) - len(types))
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
    return tokens


def readable(token):
    return all(0x20 < ord(c) < 0x7F for c in token.replace("\u0120", "").replace("\u2581", "")) and not token.startswith("<")


def f16(x):
    return np.asarray(x, dtype=np.float16).view(np.uint8)


def random_blocks(rng, kind, rows, k, std):
    """Blocks of types that the gguf package can only read: random bytes around sensible scales."""
    n = rows * k // GGML_QUANT_SIZES[kind][0]
    raw = rng.integers(0, 256, (n, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    wobble = 0.5 + rng.random((n, 1))
    if kind == Q.Q6_K:
        raw[:, 192:208] = rng.integers(-64, 64, (n, 16), dtype=np.int8).view(np.uint8)
        raw[:, 208:210] = f16(std / 680 * wobble)
    elif kind == Q.Q2_K:
        raw[:, 80:82] = f16(std / 12 * wobble)
        raw[:, 82:84] = f16(std / 8 * wobble)
    elif kind == Q.Q3_K:
        raw[:, 108:110] = f16(std / 44 * wobble)
    elif kind in (Q.IQ4_NL, Q.IQ4_XS):
        raw[:, 0:2] = f16(std / (70 if kind == Q.IQ4_NL else 1300) * wobble)
    else:
        levels = 15 if kind == Q.Q4_K else 31
        d = std / (12 * levels) * wobble
        raw[:, 0:2] = f16(d)
        raw[:, 2:4] = f16(d * levels / 2)
    return raw.reshape(rows, -1)


class Maker:
    def __init__(self, path, spec):
        self.rng = np.random.Generator(np.random.PCG64(spec["seed"]))
        self.spec = spec
        self.w = GGUFWriter(path, spec["arch"])

    def uniform(self, shape, std):
        return ((self.rng.random(shape) - 0.5) * (std * 12 ** 0.5)).astype(np.float32)

    def matrix(self, name, n, k, shape_values=None):
        kind = self.spec["types"].get(name.split(".")[-2], self.spec["type"])
        std = k ** -0.5 * (self.spec["gain"] if name.startswith("blk.") else 1)
        if kind in ONLY_READ:
            self.w.add_tensor(name, random_blocks(self.rng, kind, n, k, std), raw_dtype=kind)
            return
        x = self.uniform((n, k), std)
        if shape_values:
            shape_values(x)
        if kind == Q.F32:
            self.w.add_tensor(name, x)
        else:
            self.w.add_tensor(name, quantize(x, kind), raw_dtype=kind)

    def vector(self, name, n, mean, std):
        self.w.add_tensor(name, mean + self.uniform((n,), std))

    def keys(self):
        s, w = self.spec, self.w
        w.add_name(s["name"])
        w.add_context_length(s["ctx"])
        w.add_embedding_length(s["d"])
        w.add_block_count(s["layers"])
        w.add_feed_forward_length(s["ff"])
        w.add_head_count(s["heads"])
        w.add_head_count_kv(s["kv"])
        w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_freq_base(s["base"])
        w.add_vocab_size(N_VOCAB)
        for key, value in s["keys"].items():
            if isinstance(value, str):
                w.add_string(f"{s['arch']}.{key}", value)
            elif isinstance(value, int):
                w.add_uint32(f"{s['arch']}.{key}", value)
            else:
                w.add_float32(f"{s['arch']}.{key}", value)

    def layer(self, i):
        s, p = self.spec, f"blk.{i}."
        d, ff, hd = s["d"], s["ff"], s["d"] // s["heads"]

        def silent(x):  # nothing is added to dimension 0 of the residual stream: the head reads it as a constant
            x[0] = 0

        self.vector(p + "attn_norm.weight", d, 1, 0.1)
        self.matrix(p + "attn_q.weight", s["heads"] * hd, d)
        self.matrix(p + "attn_k.weight", s["kv"] * hd, d)
        self.matrix(p + "attn_v.weight", s["kv"] * hd, d)
        if s["arch"] == "qwen2":
            for name, n in ("attn_q", s["heads"]), ("attn_k", s["kv"]), ("attn_v", s["kv"]):
                self.vector(p + name + ".bias", n * hd, 0, 0.5)
        self.matrix(p + "attn_output.weight", d, s["heads"] * hd, silent)
        self.vector(p + "ffn_norm.weight", d, 1, 0.1)
        self.matrix(p + "ffn_gate.weight", ff, d)
        self.matrix(p + "ffn_up.weight", ff, d)
        self.matrix(p + "ffn_down.weight", d, ff, silent)

    def write(self):
        s = self.spec
        self.keys()
        tokens = (spm_vocab if s["spm"] else bpe_vocab)(self.w)
        assert len(tokens) == N_VOCAB and len(set(tokens)) == N_VOCAB

        def constant(x):
            x[:, 0] = 0.5

        def avoid(x):
            x[:, 0] = [0.0 if readable(t) else -16.0 for t in tokens]

        self.matrix("token_embd.weight", N_VOCAB, s["d"], constant)
        for i in range(s["layers"]):
            self.layer(i)
        self.vector("output_norm.weight", s["d"], 1, 0.1)
        if not s["tied"]:
            self.matrix("output.weight", N_VOCAB, s["d"], avoid)
        if s["factors"]:
            self.w.add_tensor("rope_freqs.weight", np.array(s["factors"], dtype=np.float32))
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def llama3_factors(hd, base, factor, low, high, ctx):
    """What converters put into rope_freqs.weight for Llama 3.1 and later."""
    out = []
    for i in range(hd // 2):
        wavelength = 2 * np.pi * base ** (2 * i / hd)
        if wavelength < ctx / high:
            out.append(1.0)
        elif wavelength > ctx / low:
            out.append(factor)
        else:
            smooth = (ctx / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return out


def specs():
    common = dict(arch="llama", type=Q.F32, types={}, layers=2, d=64, ff=160, heads=4, kv=2, base=10000.0, ctx=2048, spm=False,
                  tied=False, keys={}, factors=None, gain=1.0)
    wide = dict(d=256, ff=512, heads=4, kv=1)
    # More gain in the layers than in the embedding: the next token depends on more than the last one.
    out = {"tiny": dict(type=Q.Q8_0, layers=3, d=96, heads=6, ff=256, gain=2.5)}
    for kind in Q.F32, Q.F16, Q.BF16, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0:
        out["llama-" + kind.name.lower()] = dict(type=kind)
    for kind in Q.Q4_K, Q.Q5_K, Q.Q6_K:
        out["llama-" + kind.name.lower()] = dict(type=kind, **wide)
    # As llama.cpp's Q4_K_M: some tensors in Q6_K; and a mixture that needs every form of activations at once.
    out["llama-q4_k_m"] = dict(type=Q.Q4_K, types={"attn_v": Q.Q6_K, "ffn_down": Q.Q6_K, "output": Q.Q6_K}, **wide)
    out["llama-mixed"] = dict(type=Q.Q4_1, types={"attn_q": Q.Q4_K, "attn_k": Q.BF16, "attn_v": Q.Q8_0, "ffn_up": Q.F16,
                                                  "ffn_down": Q.Q5_K, "output": Q.Q6_K}, **wide)
    out["llama-tied"] = dict(type=Q.Q8_0, tied=True)
    hd = common["d"] // common["heads"]
    out["llama-rope3"] = dict(factors=llama3_factors(hd, 10000.0, 8.0, 1.0, 4.0, 256), ctx=2048)
    out["llama-rope3-keys"] = dict(keys={"rope.scaling.type": "llama3", "rope.scaling.factor": 8.0,
                                         "rope.scaling.low_freq_factor": 1.0, "rope.scaling.high_freq_factor": 4.0,
                                         "rope.scaling.original_context_length": 256})
    out["llama-linear"] = dict(keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0})
    out["llama-yarn"] = dict(keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0})
    out["llama-spm"] = dict(spm=True, type=Q.Q8_0)
    out["qwen2"] = dict(arch="qwen2", base=1000000.0)
    out["qwen2-q8_0"] = dict(arch="qwen2", base=1000000.0, type=Q.Q8_0, tied=True)
    # A model's seed is its place in this list: new ones come last.
    for kind in Q.Q2_K, Q.Q3_K, Q.IQ4_NL, Q.IQ4_XS:
        out["llama-" + kind.name.lower()] = dict(type=kind, **wide)
    out["qwen2-low"] = dict(arch="qwen2", base=1000000.0, type=Q.IQ4_XS, tied=True, **wide, types={
        "attn_q": Q.Q3_K, "attn_k": Q.Q5_1, "attn_v": Q.Q5_K, "attn_output": Q.Q5_0, "ffn_up": Q.Q2_K, "ffn_down": Q.IQ4_NL,
        "token_embd": Q.F16})
    return {name: {**common, **s, "name": name, "seed": 1000 + i} for i, (name, s) in enumerate(out.items())}


def main():
    folder, wanted = sys.argv[1], sys.argv[2:]
    os.makedirs(folder, exist_ok=True)
    for name, spec in specs().items():
        if wanted and name not in wanted:
            continue
        path = os.path.join(folder, name + ".gguf")
        Maker(path + ".part", spec).write()
        os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
