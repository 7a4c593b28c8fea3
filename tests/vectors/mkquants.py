#!/usr/bin/env python3
"""Writes tests/vectors/quants.bin: blocks of every weight type and their values by the gguf package.

Needs gguf==0.19.0 and numpy. The file is small and committed, so the tests need neither.

    u32 magic "QRQV", u32 n_types, then for each type:
    u32 gguf id, u32 n_elems, u32 n_bytes, the bytes, n_elems little-endian float32
"""
import struct
import sys

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Byte offsets of the float16 fields in a block. Blocks without one are plain numbers.
F16_AT = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
          T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}
# Zero, negative zero, the least denormal, a denormal, the least normal, one, the largest, their negatives.
EXTREME_F16 = [0x0000, 0x8000, 0x0001, 0x8201, 0x0400, 0x3C00, 0x7BFF, 0xFBFF]
EXTREME_F32 = [0x00000000, 0x80000000, 0x00000001, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000]


def blocks(t, rng):
    elems, size = GGML_QUANT_SIZES[t]
    if t == T.F32:
        values = rng.normal(size=120).astype(np.float32).view(np.uint32)
        return np.concatenate([values, np.array(EXTREME_F32, np.uint32)]).view(np.uint8)
    if t == T.F16:
        bits = rng.integers(0, 1 << 16, 248).astype(np.uint16)
        bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0x83FF, bits).astype(np.uint16)
        return np.concatenate([bits, np.array(EXTREME_F16, np.uint16)]).view(np.uint8)
    if t == T.BF16:
        bits = (rng.normal(size=120).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return np.concatenate([bits, (np.array(EXTREME_F32, np.uint32) >> 16).astype(np.uint16)]).view(np.uint8)
    n = 24 if elems == 32 else 8
    out = []
    for fill in ["random"] * n + [0x00, 0xFF, 0x80, 0x7F] * 2:
        b = rng.integers(0, 256, size).astype(np.uint8) if fill == "random" else np.full(size, fill, np.uint8)
        for at in F16_AT[t]:
            h = rng.normal(scale=0.05) if rng.random() < 0.5 else None
            bits = np.float16(h).view(np.uint16) if h is not None else EXTREME_F16[rng.integers(len(EXTREME_F16))]
            b[at:at + 2] = np.array([bits], np.uint16).view(np.uint8)
        out.append(b)
    return np.concatenate(out)


def main():
    rng = np.random.default_rng(20250101)
    types = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K,
             T.Q2_K, T.Q3_K, T.IQ4_NL, T.IQ4_XS]
    out = [struct.pack("<4sI", b"QRQV", len(types))]
    for t in types:
        raw = blocks(t, rng)
        with np.errstate(all="ignore"):
            values = dequantize(raw, t).astype(np.float32).reshape(-1)
        out.append(struct.pack("<III", int(t), values.size, raw.size))
        out += [raw.tobytes(), values.tobytes()]
    with open(sys.argv[1] if len(sys.argv) > 1 else "tests/vectors/quants.bin", "wb") as f:
        f.write(b"".join(out))


if __name__ == "__main__":
    main()
