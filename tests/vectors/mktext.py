#!/usr/bin/env python3
"""Writes the golden files that the text tests read: token ids as Hugging Face tokenizers makes them, and chat
templates as transformers renders them. The tests need neither Python nor this script.
usage: mktext.py DEFAULT_MODEL.gguf SHARED_FOLDER [FULL_OUTPUT_FOLDER]
Made with tokenizers 0.23.3, transformers 5.24.0, jinja2 3.1.6, gguf 0.19.0."""
import datetime, json, os, sys
import tokenizers
from gguf import GGUFReader
from transformers.utils.chat_template_utils import _compile_jinja_template

MODEL, SHARED = sys.argv[1], sys.argv[2]
FULL = sys.argv[3] if len(sys.argv) > 3 else None
HERE = os.path.dirname(os.path.abspath(__file__))
NOW = 1722000000  # 2024-07-26 13:20 UTC

TEXTS = [
    "", " ", "  ", "\n", "\n\n\n", "\t\t x", " \n \n x", "a", "Hello, world!", "  leading and trailing  ",
    "The year 2024 has 366 days; pi is 3.14159265.", "don't can't I'll we've he'd SHE'S",
    "مرحبا بالعالم، كيف حالك اليوم؟ ١٢٣٤٥", "这是一个测试。我们正在检查分词器是否正确!", "नमस्ते दुनिया, यह एक परीक्षण है। १२३",
    "こんにちは世界、カタカナとひらがな", "Привет, мир! Ёлка № 5", "안녕하세요 세계", "שלום עולם",
    "👨‍👩‍👧‍👦 family, 👍🏽 thumbs, 🏳️‍🌈 flag", "e\u0301 combining vs é", "\u00a0non\u00a0breaking\u2003em space",
    "\ufeffBOM", "zero\u200bwidth", "nul\x00inside", "\x01\x7f control",
    "def f(x):\n    if x > 0:\n        return [i ** 2 for i in range(x)]\n\n    return None\n",
    "#include <stdio.h>\nint main(void)\n{\n\tprintf(\"%d\\n\", 42);\n}\n", "SELECT * FROM t WHERE a >= 10 AND b <> 'x';",
    "https://example.com/a/b?c=d&e=f#g", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    " " * 70, "x" + " " * 33 + "y", "!!!???...---***", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝕞𝕒𝕥𝕙 ∑∫√∞", "ﷺ ẞ ß ǆ",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|endoftext|>", "a<|im_end|>b <|im_end|> <|im_start",
    "<|im_start|><|im_start|>", "mixed 中文 and عربي and हिन्दी 123 😀!",
]


def field(r, k):
    return r.fields[k].contents() if k in r.fields else None


def hf_tokenizer(path):
    """The tokenizer.json of a smollm vocabulary, as its own repository ships it."""
    r = GGUFReader(path)
    toks, kinds, merges = (field(r, "tokenizer.ggml." + k) for k in ("tokens", "token_type", "merges"))
    added = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i, t in enumerate(toks) if kinds[i] == 3]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, post_processor=None,
                pre_tokenizer=dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), byte_level]),
                decoder=dict(byte_level, add_prefix_space=True),
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                           end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=False,
                           vocab={t: i for i, t in enumerate(toks)}, merges=[m.split(" ") for m in merges]))


def write_ids():
    spec = json.dumps(hf_tokenizer(MODEL))
    on, off = tokenizers.Tokenizer.from_str(spec), tokenizers.Tokenizer.from_str(spec)
    off.encode_special_tokens = True
    with open(HERE + "/smollm_ids.txt", "w") as o:
        o.write("# hex of the text | ids, special tokens parsed | ids, special tokens as plain text (= when equal)\n")
        for t in TEXTS:
            a, b = (" ".join(map(str, x.encode(t, add_special_tokens=False).ids)) for x in (on, off))
            o.write(f"{t.encode().hex()}|{a}|{'=' if a == b else b}\n")


SYSTEM = dict(role="system", content="You are a careful assistant. Answer in <b>one</b> line & don't guess.")
USER = dict(role="user", content="What's the weather in \"Zürich\"? 天气 \U0001F600\n  Second line.  ")
ANSWER = dict(role="assistant", content="Sunny, 23 °C.\n")
AGAIN = dict(role="user", content="And tomorrow?")
CALL = dict(role="assistant", content="", tool_calls=[dict(id="call00001", type="function", function=dict(
    name="get_weather", arguments=dict(city="Zürich", days=2, ratio=0.5, deep=dict(a=[1, 2.0, None, True], b="x<y"))))])
RESULT = dict(role="tool", name="get_weather", tool_call_id="call00001", content='{"temp": 23, "sky": "sunny & <clear>"}')
TOOLS = [dict(type="function", function=dict(
    name="get_weather", description="Weather of a city: it's 'current' or \"forecast\".",
    parameters=dict(type="object", properties=dict(
        city=dict(type="string", description="Name, e.g. Zürich"), days=dict(type="integer", minimum=1, default=1),
        unit=dict(type="string", enum=["c", "f"])), required=["city"])))]
CASES = {
    "plain": dict(messages=[USER]),
    "no_prompt": dict(messages=[USER, ANSWER], add_generation_prompt=False),
    "system": dict(messages=[SYSTEM, USER]),
    "multi": dict(messages=[SYSTEM, USER, ANSWER, AGAIN]),
    "no_think": dict(messages=[USER], enable_thinking=False),
    "tools": dict(messages=[SYSTEM, USER], tools=TOOLS),
    "tool_call": dict(messages=[USER, CALL, RESULT], tools=TOOLS),
}


def fnv(b):
    h = 0xcbf29ce484222325
    for c in b:
        h = (h ^ c) * 0x100000001b3 & (1 << 64) - 1
    return h


def variables(case):
    return dict(dict(add_generation_prompt=True, bos_token="<s>", eos_token="</s>"), **case)


def render(source, case):
    t = _compile_jinja_template(source)
    t.globals["strftime_now"] = lambda f: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(f)
    return t.render(**dict(dict(tools=None, documents=None), **variables(case)))


def write_templates():
    folder = SHARED + "/data/chat-templates"
    with open(HERE + "/template_cases.txt", "w") as o:
        for name, case in CASES.items():
            o.write(name + "\t" + json.dumps(variables(case), ensure_ascii=False) + "\n")
    with open(HERE + "/templates.txt", "w") as o:
        o.write("# file (@: beside this one) | for each case: bytes:FNV-1a of the rendered text, or ! where rendering fails\n")
        own = field(GGUFReader(MODEL), "tokenizer.chat_template")
        open(HERE + "/smollm2.jinja", "w", encoding="utf-8").write(own)
        for f in ["@smollm2.jinja"] + sorted(f for f in os.listdir(folder) if f.endswith(".jinja")):
            source, cells = own if f[0] == "@" else open(f"{folder}/{f}", encoding="utf-8").read(), []
            for name, case in CASES.items():
                try:
                    b = render(source, case).encode()
                    cells.append(f"{name}={len(b)}:{fnv(b):016x}")
                except Exception as e:
                    b = f"ERROR {e}".encode()
                    cells.append(f"{name}=!")
                if FULL:
                    open(f"{FULL}/{f}.{name}", "wb").write(b)
            o.write(f + "|" + " ".join(cells) + "\n")


write_ids()
write_templates()
