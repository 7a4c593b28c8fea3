#!/usr/bin/env python3
"""Golden logits from `transformers` in float32 on the dequantised weights of GGUF files. Not needed to run the tests.
usage: mkgolden.py MODEL.gguf TINY_FOLDER WIKITEXT.raw.gz OUT_FOLDER [DRAFT]
DRAFT, a line of answer ids a prompt from anywhere, saves time: only what the reference itself would choose is kept.
pins: torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 gguf==0.19.0 numpy==2.4.6

Writes OUT_FOLDER/smollm2_golden.txt, tiny_golden.txt and wikitext_ids.txt. A golden file is a list of cases:
  case NAME N_PROMPT N_IDS          the first N_PROMPT ids are the prompt, the others the reference's greedy answer
  ids ...
  steps ...                         for positions N_PROMPT-1 .. N_IDS-2: gap between the two largest logits
  row POS MAX N id logit ...        N logits of one position, and the largest |logit| there"""
import gzip
import os
import sys

import numpy as np
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

N_ANSWER = 64
N_TOP, N_OTHER = 24, 12  # logits kept of a row: the largest, and some at random
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
CHAT = ["What is the capital of France?", "Explain in two sentences how rainbows form.",
        "Write a haiku about the sea.", "ما هي عاصمة مصر؟", "اكتب جملة عن البحر.", "请用一句话介绍北京。", "你好，今天天气怎么样？",
        "Write a Python function that reverses a string.", "What does this mean? 🎉🚀🌍", "Translate to German: good morning 😀"]
RAW = ["Once upon a time, in a small village by the river,", "The three laws of thermodynamics are",
       "في عام 1969 هبط الإنسان على", "人工智能是计算机科学的一个分支，", "def fibonacci(n):\n    \"\"\"Return the n-th number.\"\"\"\n",
       "#include <stdio.h>\n\nint main(void)\n{\n    for (int i = 0;", "SELECT name, COUNT(*) FROM users WHERE",
       "🍎🍌🍒 are fruits; 🐶🐱 are", "2 + 2 = 4, 3 + 3 = 6, 4 + 4 =", "The quick brown fox"]


def weights(reader, heads, kv_heads, permuted):
    """Tensors under the names of transformers. A llama GGUF interleaves the halves of each rotary head."""
    names = dict(attn_norm="input_layernorm", ffn_norm="post_attention_layernorm", attn_q="self_attn.q_proj",
                 attn_k="self_attn.k_proj", attn_v="self_attn.v_proj", attn_output="self_attn.o_proj",
                 ffn_gate="mlp.gate_proj", ffn_up="mlp.up_proj", ffn_down="mlp.down_proj")
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    out = {}
    for t in reader.tensors:
        if t.name == "rope_freqs.weight":
            continue
        w = dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(x) for x in reversed(t.shape)])
        stem, kind = t.name.rsplit(".", 1)
        if stem in top:
            key = top[stem]
        else:
            _, layer, part = stem.split(".")
            h = {"attn_q": heads, "attn_k": kv_heads}.get(part)
            if h and permuted:
                w = w.reshape(h, w.shape[0] // h // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
            key = f"model.layers.{layer}.{names[part]}"
        out[f"{key}.{kind}"] = torch.from_numpy(w.copy())
    return out


def load(path):
    r = GGUFReader(path)

    def get(key, otherwise=None):
        return r.fields[key].contents() if key in r.fields else otherwise

    a = get("general.architecture")
    d, heads, kv = get(a + ".embedding_length"), get(a + ".attention.head_count"), get(a + ".attention.head_count_kv")
    rope = dict(rope_type="default", rope_theta=float(get(a + ".rope.freq_base", 10000.0)))
    scaling = get(a + ".rope.scaling.type")
    if scaling == "linear":
        rope.update(rope_type="linear", factor=get(a + ".rope.scaling.factor"))
    has_factors = any(t.name == "rope_freqs.weight" for t in r.tensors)
    if scaling == "llama3" or has_factors:  # the tiny models put the same numbers into keys or into a tensor
        rope.update(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                    original_max_position_embeddings=256)
    w = weights(r, heads, kv, a == "llama")
    common = dict(hidden_size=d, intermediate_size=get(a + ".feed_forward_length"), num_hidden_layers=get(a + ".block_count"),
                  num_attention_heads=heads, num_key_value_heads=kv, head_dim=d // heads, hidden_act="silu",
                  rms_norm_eps=get(a + ".attention.layer_norm_rms_epsilon"), rope_parameters=rope,
                  max_position_embeddings=get(a + ".context_length"), vocab_size=w["model.embed_tokens.weight"].shape[0],
                  tie_word_embeddings="lm_head.weight" not in w, bos_token_id=None, eos_token_id=None, pad_token_id=None,
                  attn_implementation="eager")
    config, model = (LlamaConfig, LlamaForCausalLM) if a == "llama" else (Qwen2Config, Qwen2ForCausalLM)
    m = model(config(**common)).to(torch.float32).eval()
    missing, unexpected = m.load_state_dict(w, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    m.tie_weights()
    assert rope["rope_type"] == m.model.rotary_emb.rope_type
    return m, r


def tokenizer(r):
    tokens, kinds = r.fields["tokenizer.ggml.tokens"].contents(), r.fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in r.fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([s for s, k in zip(tokens, kinds) if k == 3])
    return t


def row_text(rng, logits, pos):
    top = torch.topk(logits, N_TOP).indices.tolist()
    keep = top + [int(i) for i in rng.integers(0, len(logits), N_OTHER)]
    body = " ".join(f"{i} {float(logits[i]):.7g}" for i in keep)
    return f"row {pos} {float(logits.abs().max()):.7g} {len(keep)} {body}\n"


def case_text(rng, name, ids, n_prompt, logits, first, rows):
    """logits[i] are of position first + i."""
    out = f"case {name} {n_prompt} {len(ids)}\nids {' '.join(map(str, ids))}\n"
    steps = []
    for pos in range(n_prompt - 1, len(ids) - 1):
        top = torch.topk(logits[pos - first], 2)
        assert int(top.indices[0]) == ids[pos + 1] or n_prompt == len(ids)
        steps.append(f"{float(top.values[0] - top.values[1]):.5g}")
    out += "steps " + " ".join(steps) + "\n"
    return out + "".join(row_text(rng, logits[pos - first], pos) for pos in rows)


@torch.no_grad()
def greedy(m, ids, draft):
    """Answer and logits of its positions. A draft is checked in one pass and cut where the reference parts from it."""
    n, out = len(ids), list(ids) + draft[:N_ANSWER]
    while True:
        logits = m(input_ids=torch.tensor([out])).logits[0, n - 1:]
        for i in range(N_ANSWER):
            best = int(logits[i].argmax())
            if n + i == len(out) or out[n + i] != best:
                out = out[:n + i] + [best]
                break
        else:
            return out, logits


def smollm2(path, wikitext, folder, drafts):
    m, r = load(path)
    t = tokenizer(r)
    rng = np.random.Generator(np.random.PCG64(1))
    prompts = [f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n" for p in CHAT]
    with open(os.path.join(folder, "smollm2_golden.txt"), "w") as f:
        for i, text in enumerate(prompts + RAW):
            ids = t.encode(text).ids
            full, logits = greedy(m, ids, drafts[i] if i < len(drafts) else [])
            n = len(ids)
            f.write(case_text(rng, f"{'chat' if i < len(CHAT) else 'raw'}{i}", full, n, logits, n - 1, [n - 1, n + 20, n + 62]))
            print(i, repr(t.decode(full[n:n + 24])))
    with gzip.open(wikitext, "rt", encoding="utf-8") as f:
        ids = t.encode(f.read(16000)).ids[:2001]
    assert len(ids) == 2001
    with open(os.path.join(folder, "wikitext_ids.txt"), "w") as f:
        f.write("\n".join(" ".join(map(str, ids[i:i + 16])) for i in range(0, len(ids), 16)) + "\n")


@torch.no_grad()
def tiny(tiny_folder, folder):
    rng = np.random.Generator(np.random.PCG64(2))
    with open(os.path.join(folder, "tiny_golden.txt"), "w") as f:
        for name in sorted(os.listdir(tiny_folder)):
            if not name.endswith(".gguf") or name == "llama-yarn.gguf":
                continue
            m, _ = load(os.path.join(tiny_folder, name))
            # Long enough that scaled and plain frequencies part.
            ids = [int(i) for i in rng.integers(3, m.config.vocab_size, 400 if "rope" in name or "linear" in name else 100)]
            logits = m(input_ids=torch.tensor([ids])).logits[0]
            f.write(case_text(rng, name[:-5], ids, len(ids), logits, 0, [0, 37, len(ids) - 1]))


def main():
    model, tiny_folder, wikitext, folder = sys.argv[1:5]
    drafts = []
    if len(sys.argv) > 5:
        with open(sys.argv[5]) as f:
            drafts = [[int(x) for x in line.split()] for line in f]
    torch.set_num_threads(2)
    tiny(tiny_folder, folder)
    smollm2(model, wikitext, folder, drafts)


if __name__ == "__main__":
    main()
