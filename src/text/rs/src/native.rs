//! The tokenizer that GGUF metadata describes: byte-level BPE ("gpt2") or SentencePiece BPE ("llama").

use crate::bpe::Merges;
use crate::pre;
use crate::tok::*;
use crate::vocab::{Index, Table};
use aho_corasick::{AhoCorasick, MatchKind};

/// Borrowed view of struct qr_vocab, checked for nulls by the entry.
pub struct Vocab<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a [u8]>,
    pub scores: Option<&'a [f32]>,
    pub types: Option<&'a [i32]>,
    pub merges: Vec<&'a [u8]>,
    pub bos: i32,
    pub eos: i32,
    pub unk: i32,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_space_prefix: bool,
}

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const BYTE: i32 = 6;
const NONE: u32 = u32::MAX;
const SPACE: char = '\u{2581}'; // SentencePiece's

/// Tokens that are found in the text before it is cut into words. The longest at the leftmost place wins.
struct Finder {
    ac: AhoCorasick,
    ids: Vec<u32>,
}

enum Model {
    Bpe {
        steps: Vec<pre::Splitter>,
        ignore_merges: bool,
    },
    /// words: no token has a space after another character, so that no merge crosses the start of a run of spaces.
    Spm {
        add_space_prefix: bool,
        unk: u32,
        words: bool,
    },
}

pub struct Native {
    model: Model,
    merges: Merges,
    byte_ids: [u32; 256], // NONE where the vocabulary lacks the byte
    user: Option<Finder>, // user-defined tokens only
    all: Option<Finder>,  // and control tokens
    normal: Vec<u64>,     // bit set: ids that plain text may become as a whole word
    bos: Option<u32>,
    eos: Option<u32>,
}

fn finder(v: &Vocab, wanted: impl Fn(i32) -> bool) -> Result<Option<Finder>, Fault> {
    let types = match v.types {
        Some(t) => t,
        None => return Ok(None),
    };
    let ids: Vec<u32> = (0..v.tokens.len())
        .filter(|&i| wanted(types[i]) && !v.tokens[i].is_empty() && std::str::from_utf8(v.tokens[i]).is_ok())
        .map(|i| i as u32)
        .collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let ac = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(ids.iter().map(|&i| v.tokens[i as usize]));
    match ac {
        Ok(ac) => Ok(Some(Finder { ac, ids })),
        Err(e) => fault(EFORMAT, format!("special tokens: {e}")),
    }
}

fn special(kind: i32) -> bool {
    kind == CONTROL || kind == UNKNOWN
}

fn tables(v: &Vocab, spm: bool) -> Tables {
    let total = v.tokens.iter().map(|t| t.len()).sum();
    let mut pieces = Table::with_capacity(v.tokens.len(), total);
    let mut bytes = Table::with_capacity(v.tokens.len(), total);
    let mut flags = vec![0u8; v.tokens.len()];
    let mut buf = Vec::new();
    for (i, &t) in v.tokens.iter().enumerate() {
        let kind = v.types.map_or(NORMAL, |k| k[i]);
        pieces.push(t);
        flags[i] = if special(kind) { FLAG_SPECIAL } else { 0 };
        match (kind, byte_token(t)) {
            (BYTE, Some(b)) => bytes.push(&[b]),
            (CONTROL | UNKNOWN | USER, _) => bytes.push(t),
            _ => {
                if spm {
                    unescape(t, &mut buf);
                } else {
                    unmap(t, &mut buf);
                }
                bytes.push(&buf);
            }
        }
    }
    bytes.shrink();
    let index = Index::new(&pieces);
    Tables { pieces, bytes, flags, index, strip_space: spm && v.add_space_prefix }
}

/// GGUF writes a merge as "left right". A space inside a name is written in GPT-2's alphabet, so the first plain
/// space after the first byte is the border.
fn bpe_merges(v: &Vocab, t: &Tables) -> Result<Merges, Fault> {
    let mut m = Merges::with_room_for(v.merges.len());
    let mut joined = Vec::new();
    for (rank, text) in v.merges.iter().enumerate() {
        let at = match text.iter().skip(1).position(|&b| b == b' ') {
            Some(p) if p + 2 < text.len() => p + 1,
            _ => return fault(EFORMAT, format!("merge {rank}: expected two names, got \"{}\"", show(text))),
        };
        let (left, right) = (&text[..at], &text[at + 1..]);
        joined.clear();
        joined.extend_from_slice(left);
        joined.extend_from_slice(right);
        let id = |s: &[u8]| match t.index.find(&t.pieces, s) {
            Some(id) => Ok(id),
            None => {
                fault(EFORMAT, format!("merge {rank} (\"{}\"): \"{}\" is not a token", show(text), show(s)))
            }
        };
        let (l, r, new) = (id(left)?, id(right)?, id(&joined)?);
        if t.flags[new as usize] & FLAG_SPECIAL == 0 {
            m.insert(l, r, rank as u32, new);
        }
    }
    Ok(m)
}

/// SentencePiece merges any two neighbours whose concatenation is a token, best score first. Equal scores share a
/// rank, so that the leftmost pair wins among them.
fn spm_merges(v: &Vocab, t: &Tables) -> Result<Merges, Fault> {
    let scores = match v.scores {
        Some(s) => s,
        None => return fault(EFORMAT, "vocabulary \"llama\": expected tokenizer.ggml.scores, got none"),
    };
    let normal = |id: u32| v.types.map_or(NORMAL, |k| k[id as usize]) == NORMAL;
    let mut order: Vec<u32> = (0..v.tokens.len() as u32).filter(|&i| normal(i)).collect();
    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]));
    let mut found = Vec::new();
    let mut rank = 0;
    for (n, &id) in order.iter().enumerate() {
        if n > 0 && scores[id as usize] != scores[order[n - 1] as usize] {
            rank = n as u32;
        }
        let text = v.tokens[id as usize];
        for cut in 1..text.len() {
            if text[cut] & 0xc0 == 0x80 {
                continue;
            }
            let pair = (t.index.find(&t.pieces, &text[..cut]), t.index.find(&t.pieces, &text[cut..]));
            if let (Some(l), Some(r)) = pair {
                if normal(l) && normal(r) && t.index.find(&t.pieces, text) == Some(id) {
                    found.push((l, r, rank, id));
                }
            }
        }
    }
    let mut m = Merges::with_room_for(found.len());
    for (l, r, rank, id) in found {
        m.insert(l, r, rank, id);
    }
    Ok(m)
}

fn has_inner_space(piece: &[u8]) -> bool {
    match std::str::from_utf8(piece) {
        Ok(s) => s.trim_start_matches('\u{2581}').contains('\u{2581}'),
        Err(_) => true,
    }
}

fn show(s: &[u8]) -> String {
    String::from_utf8_lossy(&s[..s.len().min(40)]).into_owned()
}

/// Piece lengths are bounded so that the cuts of `spm_merges` (each hashes both halves) stay linear in the file.
const PIECE_BYTES_MAX: usize = 4096;

fn check(v: &Vocab) -> Result<(), Fault> {
    let n = v.tokens.len();
    if n == 0 || n > (1 << 24) {
        return fault(EFORMAT, format!("vocabulary: expected 1 to {} tokens, got {n}", 1 << 24));
    }
    if let Some(i) = v.tokens.iter().position(|t| t.len() > PIECE_BYTES_MAX) {
        return fault(
            EFORMAT,
            format!("token {i}: expected at most {PIECE_BYTES_MAX} bytes, got {}", v.tokens[i].len()),
        );
    }
    if v.merges.len() > (1 << 25) {
        return fault(
            EFORMAT,
            format!("vocabulary: expected at most {} merges, got {}", 1 << 25, v.merges.len()),
        );
    }
    for (name, id) in [("bos", v.bos), ("eos", v.eos), ("unk", v.unk)] {
        if id < -1 || id >= n as i32 {
            return fault(EFORMAT, format!("{name} token: expected an id below {n}, got {id}"));
        }
    }
    Ok(())
}

pub fn build(v: &Vocab) -> Result<Tok, Fault> {
    check(v)?;
    let spm = match v.model {
        "gpt2" => false,
        "llama" => true,
        other => {
            return fault(
                ENOTSUP,
                format!("tokenizer model \"{other}\" is not supported; known: gpt2, llama"),
            )
        }
    };
    let model = if spm {
        let unk = if v.unk < 0 { NONE } else { v.unk as u32 };
        Model::Spm {
            add_space_prefix: v.add_space_prefix,
            unk,
            words: !v.tokens.iter().any(|t| has_inner_space(t)),
        }
    } else {
        match pre::lookup(v.pre) {
            Some((steps, ignore_merges)) => Model::Bpe { steps, ignore_merges },
            None => {
                return fault(
                    ENOTSUP,
                    format!("pre-tokenizer \"{}\" is not supported; known: {}", v.pre, pre::known()),
                )
            }
        }
    };
    let t = tables(v, spm);
    let merges = if spm { spm_merges(v, &t)? } else { bpe_merges(v, &t)? };
    let mut byte_ids = [NONE; 256];
    for b in 0..=255u8 {
        let name = if spm { format!("<0x{b:02X}>") } else { char_of_byte(b).to_string() };
        if let Some(id) = t.index.find(&t.pieces, name.as_bytes()) {
            byte_ids[b as usize] = id;
        }
    }
    let mut normal = vec![0u64; v.tokens.len() / 64 + 1];
    for i in 0..v.tokens.len() {
        if matches!(v.types.map_or(NORMAL, |k| k[i]), NORMAL | USER) {
            normal[i / 64] |= 1 << (i % 64);
        }
    }
    let id = |on: bool, id: i32| (on && id >= 0).then_some(id as u32);
    let native = Native {
        model,
        merges,
        byte_ids,
        user: finder(v, |k| k == USER)?,
        all: finder(v, |k| k == USER || special(k))?,
        normal,
        bos: id(v.add_bos, v.bos),
        eos: id(v.add_eos, v.eos),
    };
    Ok(Tok { tables: t, kind: Kind::Native(native) })
}

impl Native {
    pub fn encode(&self, t: &Tables, text: &str, flags: u32) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if flags & ADD_SPECIAL != 0 {
            out.extend(self.bos);
        }
        let finder = if flags & PARSE_SPECIAL != 0 { &self.all } else { &self.user };
        let mut word = Vec::new();
        let mut done = 0;
        if let Some(f) = finder {
            for m in f.ac.find_iter(text) {
                self.plain(t, &text[done..m.start()], &mut word, &mut out);
                out.push(f.ids[m.pattern().as_usize()]);
                done = m.end();
            }
        }
        self.plain(t, &text[done..], &mut word, &mut out);
        if flags & ADD_SPECIAL != 0 {
            out.extend(self.eos);
        }
        out
    }

    fn is_normal(&self, id: u32) -> bool {
        self.normal[id as usize / 64] >> (id % 64) & 1 != 0
    }

    /// Text without special tokens in it.
    fn plain(&self, t: &Tables, text: &str, word: &mut Vec<u32>, out: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        match &self.model {
            Model::Bpe { steps, ignore_merges } => {
                let mut name = String::new();
                pre::split(steps, text, &mut |piece| {
                    if *ignore_merges && piece.len() <= PIECE_BYTES_MAX {
                        name.clear();
                        name.extend(piece.bytes().map(char_of_byte));
                        match t.index.find(&t.pieces, name.as_bytes()) {
                            Some(id) if self.is_normal(id) => return out.push(id),
                            _ => {}
                        }
                    }
                    word.clear();
                    word.extend(piece.bytes().map(|b| self.byte_ids[b as usize]).filter(|&id| id != NONE));
                    self.merges.apply(word);
                    out.extend_from_slice(word);
                });
            }
            Model::Spm { add_space_prefix, unk, words } => {
                word.clear();
                if *add_space_prefix {
                    self.spm_char(t, SPACE, *unk, word);
                }
                let mut last = SPACE;
                for c in text.chars() {
                    let c = if c == ' ' { SPACE } else { c };
                    if *words && c == SPACE && last != SPACE {
                        self.merges.apply(word);
                        out.extend_from_slice(word);
                        word.clear();
                    }
                    self.spm_char(t, c, *unk, word);
                    last = c;
                }
                self.merges.apply(word);
                out.extend_from_slice(word);
            }
        }
    }

    /// One character as its token, or as its bytes, or as "unknown".
    fn spm_char(&self, t: &Tables, c: char, unk: u32, word: &mut Vec<u32>) {
        let mut buf = [0; 4];
        let s = c.encode_utf8(&mut buf);
        match t.index.find(&t.pieces, s.as_bytes()) {
            Some(id) if self.is_normal(id) => word.push(id),
            _ => {
                for b in s.bytes() {
                    let id = self.byte_ids[b as usize];
                    let id = if id == NONE { unk } else { id };
                    if id != NONE {
                        word.push(id);
                    }
                }
            }
        }
    }
}
