//! Pre-tokenizers: how a byte-level vocabulary wants text cut into words before merging.
//!
//! Published patterns end in `\s+(?!\S)|\s+`: a run of white space leaves its last character to the word after
//! it. Looking ahead needs a backtracking engine, which gives up on long input; here the patterns say `\s+` and
//! the cut is made by hand afterwards, so a linear-time engine serves.

use regex::Regex;

/// Which matches of a pattern came from its `\s+(?!\S)|\s+` tail.
#[derive(Clone, Copy, PartialEq)]
enum Tail {
    None,
    /// Every match that is white space only.
    Space,
    /// As Space, but a match that ends in a line break came from an earlier `\s*[\r\n]+`.
    SpaceNoBreak,
}

pub struct Splitter {
    re: Regex,
    tail: Tail,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const SEED: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+"##;
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+";

struct Family {
    names: &'static [&'static str],
    steps: &'static [(&'static str, Tail)],
    ignore_merges: bool,
}

/// The names that converters write to `tokenizer.ggml.pre`, by the pattern they stand for. Those with published
/// vectors are tested: llama-bpe, qwen2, gpt-2, smollm, falcon, starcoder, deepseek-coder.
const FAMILIES: &[Family] = &[
    Family {
        names: &[
            "gpt-2",
            "default",
            "phi-2",
            "jina-es",
            "jina-de",
            "mpt",
            "olmo",
            "jais",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "trillion",
            "granite-docling",
            "gigachat",
            "roberta-bpe",
        ],
        steps: &[(GPT2, Tail::Space)],
        ignore_merges: false,
    },
    Family {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        steps: &[(r"\p{N}", Tail::None), (GPT2, Tail::Space)],
        ignore_merges: false,
    },
    Family {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "midm-2.0", "lfm2", "pixtral"],
        steps: &[(LLAMA3, Tail::SpaceNoBreak)],
        ignore_merges: true,
    },
    Family {
        names: &["dbrx", "smaug-bpe", "glm4", "chatglm-bpe"],
        steps: &[(LLAMA3, Tail::SpaceNoBreak)],
        ignore_merges: false,
    },
    Family {
        names: &["qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo", "hunyuan", "grok-2"],
        steps: &[(QWEN2, Tail::SpaceNoBreak)],
        ignore_merges: false,
    },
    Family { names: &["seed-coder"], steps: &[(SEED, Tail::SpaceNoBreak)], ignore_merges: false },
    Family { names: &["qwen35"], steps: &[(QWEN35, Tail::SpaceNoBreak)], ignore_merges: false },
    Family {
        names: &["deepseek-coder"],
        steps: &[
            (r"[\r\n]", Tail::None),
            (r"\s?\p{L}+", Tail::None),
            (r"\s?\p{P}+", Tail::None),
            ("[\u{4e00}-\u{9fa5}\u{0800}-\u{4e00}\u{ac00}-\u{d7ff}]+", Tail::None),
            (r"\p{N}", Tail::None),
        ],
        ignore_merges: false,
    },
    Family {
        names: &["deepseek-v3", "hunyuan-dense"],
        steps: &[
            (r"\p{N}{1,3}", Tail::None),
            ("[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+", Tail::None),
            (DEEPSEEK3, Tail::SpaceNoBreak),
        ],
        ignore_merges: false,
    },
    Family {
        names: &["falcon"],
        steps: &[
            (r"[\p{P}\$\+<=>\^~\|`]+", Tail::None),
            (GPT2, Tail::Space),
            (r"[0-9][0-9][0-9]", Tail::None),
        ],
        ignore_merges: false,
    },
    Family {
        names: &["gpt-4o", "llama4", "minimax-m2"],
        steps: &[(O200K, Tail::SpaceNoBreak)],
        ignore_merges: false,
    },
    Family { names: &["tekken"], steps: &[(TEKKEN, Tail::SpaceNoBreak)], ignore_merges: true },
];

/// The steps of the named pre-tokenizer and whether a word that is itself a token skips merging; None: unknown.
pub fn lookup(name: &str) -> Option<(Vec<Splitter>, bool)> {
    let f = FAMILIES.iter().find(|f| f.names.contains(&name))?;
    let steps =
        f.steps.iter().map(|&(p, tail)| Splitter { re: Regex::new(p).expect("a constant pattern"), tail });
    Some((steps.collect(), f.ignore_merges))
}

impl Splitter {
    /// Calls f for the matches and for what lies between them, in order. Nothing is dropped, nothing is empty.
    fn each(&self, text: &str, f: &mut dyn FnMut(&str)) {
        let mut done = 0; // text[..done] has been handed out
        let mut at = 0;
        while let Some(m) = self.re.find_at(text, at) {
            let mut end = m.end();
            if self.tail != Tail::None && end < text.len() {
                end = self.cut(text, m.start(), end);
            }
            if done < m.start() {
                f(&text[done..m.start()]);
            }
            f(&text[m.start()..end]);
            done = end;
            at = end;
        }
        if done < text.len() {
            f(&text[done..]);
        }
    }

    /// White space before a word leaves that word its last character, unless it has only one.
    fn cut(&self, text: &str, start: usize, end: usize) -> usize {
        let run = &text[start..end];
        let last = run.chars().next_back().unwrap_or('x');
        let from_break = self.tail == Tail::SpaceNoBreak && (last == '\n' || last == '\r');
        if last.is_whitespace()
            && !from_break
            && last.len_utf8() < run.len()
            && run.chars().all(char::is_whitespace)
        {
            end - last.len_utf8()
        } else {
            end
        }
    }
}

/// Runs all steps, each on the pieces of the one before.
pub fn split(steps: &[Splitter], text: &str, f: &mut dyn FnMut(&str)) {
    match steps.split_first() {
        None => f(text),
        Some((s, rest)) => s.each(text, &mut |piece| split(rest, piece, f)),
    }
}

/// All known names, for an error that lists them.
pub fn known() -> String {
    FAMILIES.iter().flat_map(|f| f.names.iter().copied()).collect::<Vec<_>>().join(", ")
}
