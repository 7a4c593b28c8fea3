#!/usr/bin/env python3
"""Writes a seed corpus for gguf_fuzz: files with every value type, every tensor type, v2 and v3, and broken ones.
usage: make_corpus.py FOLDER"""
import os
import struct
import sys

# (GGUF id, elements a block, bytes a block) as in src/kern/qtypes.def, and one id of no type
TENSOR_TYPES = [(0, 1, 4), (1, 1, 2), (2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34),
                (12, 256, 144), (13, 256, 176), (14, 256, 210), (30, 1, 2), (9999, 1, 1)]
SCALARS = [(0, "B", 7), (1, "b", -7), (2, "H", 700), (3, "h", -700), (4, "I", 70000), (5, "i", -70000),
           (6, "f", 1.5), (7, "B", 1), (10, "Q", 1 << 40), (11, "q", -(1 << 40)), (12, "d", 2.5)]


def string(s):
    return struct.pack("<Q", len(s)) + s


def kv(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def all_kvs():
    out = [kv(b"s%d" % t, t, struct.pack("<" + c, v)) for t, c, v in SCALARS]
    out += [kv(b"a%d" % t, 9, struct.pack("<IQ3" + c, t, 3, v, v, v)) for t, c, v in SCALARS]
    out.append(kv(b"str", 8, string(b"text")))
    out.append(kv(b"strs", 9, struct.pack("<IQ", 8, 3) + string(b"a") + string(b"") + string(b"ccc")))
    return out


def file(version, kvs, tensors, alignment=32):
    """tensors: (name, dims, type id, bytes)"""
    infos, data = b"", b""
    for name, dims, kind, n in tensors:
        data += b"\0" * (-len(data) % alignment)
        infos += string(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, kind, len(data))
        data += bytes(i * 7 % 251 for i in range(n))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(kvs)) + b"".join(kvs) + infos
    return head + b"\0" * (-len(head) % alignment) + data


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    tensors = [(b"t%d" % t, (n, 2), t, 2 * size) for t, n, size in TENSOR_TYPES]
    seeds = {
        "empty": b"",
        "header": file(3, [], []),
        "keys_v2": file(2, all_kvs(), []),
        "keys_v3": file(3, all_kvs(), []),
        "tensors": file(3, [], tensors),
        "aligned": file(3, [kv(b"general.alignment", 4, struct.pack("<I", 64))], tensors, 64),
        "dims": file(3, [], [(b"d%d" % n, (32,) + (1,) * (n - 1), 8, 34) for n in range(1, 5)]),
        "all": file(3, all_kvs(), tensors),
        "twice": file(3, all_kvs()[:1] * 2, []),
        "huge": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60),
    }
    seeds["cut"] = seeds["all"][:-40]
    for name, data in seeds.items():
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)


main()
