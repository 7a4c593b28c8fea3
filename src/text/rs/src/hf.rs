//! A Hugging Face tokenizer.json, through the `tokenizers` crate.
//!
//! Its own `encode` decides about special tokens by a switch in the tokenizer; here a call decides, so the steps
//! are run one by one: added tokens, normaliser, pre-tokenizer, model. What the post-processor puts around a
//! text is found once, at load, from the encoding of nothing.

use crate::tok::*;
use crate::vocab::{Index, Table};
use serde_json::Value;
use tokenizers::tokenizer::{AddedVocabulary, OffsetReferential, OffsetType};
use tokenizers::{
    DecoderWrapper, Encoding, Model, ModelWrapper, NormalizerWrapper, PostProcessor, PostProcessorWrapper,
    PreTokenizer, PreTokenizerWrapper, Tokenizer, TokenizerImpl,
};

type Impl =
    TokenizerImpl<ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

pub struct Hf {
    tok: Impl,
    plain: AddedVocabulary, // the same added tokens, special ones off
    before: Vec<u32>,
    after: Vec<u32>,
}

/// How names become bytes, read off the decoder.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    ByteLevel,
    Spm,
    WordPiece,
    Plain,
}

fn names(json: &Value) -> (Names, bool) {
    let decoder = json.get("decoder").cloned().unwrap_or(Value::Null);
    let has = |kind: &str| {
        let this = |d: &Value| d.get("type").and_then(Value::as_str) == Some(kind);
        this(&decoder)
            || decoder.get("decoders").and_then(Value::as_array).is_some_and(|a| a.iter().any(this))
    };
    if has("ByteLevel") {
        (Names::ByteLevel, false)
    } else if has("WordPiece") {
        (Names::WordPiece, true)
    } else if has("Metaspace") {
        (Names::Spm, true)
    } else if has("ByteFallback") || has("Replace") {
        (Names::Spm, has("Strip"))
    } else {
        (Names::Plain, false)
    }
}

fn bytes_of(piece: &str, names: Names, buf: &mut Vec<u8>) {
    match (names, byte_token(piece.as_bytes())) {
        (Names::ByteLevel, _) => unmap(piece.as_bytes(), buf),
        (Names::Spm, Some(b)) => {
            buf.clear();
            buf.push(b);
        }
        (Names::Spm, None) => unescape(piece.as_bytes(), buf),
        (Names::WordPiece, _) => {
            buf.clear();
            match piece.strip_prefix("##") {
                Some(rest) => buf.extend_from_slice(rest.as_bytes()),
                None => {
                    buf.push(b' ');
                    buf.extend_from_slice(piece.as_bytes());
                }
            }
        }
        (Names::Plain, _) => {
            buf.clear();
            buf.extend_from_slice(piece.as_bytes());
        }
    }
}

const IDS_MAX: usize = 1 << 24;

fn tables(tok: &Impl, json: &Value) -> Result<Tables, Fault> {
    let (names, strip_space) = names(json);
    let mut by_id: Vec<(u32, String)> = tok.get_vocab(true).into_iter().map(|(s, id)| (id, s)).collect();
    by_id.sort_unstable();
    let n = by_id.last().map_or(0, |e| e.0 as usize + 1);
    if n == 0 || n > IDS_MAX {
        return fault(EFORMAT, format!("tokenizer.json: expected ids below {IDS_MAX}, got {n} of them"));
    }
    let added = tok.get_added_vocabulary().get_added_tokens_decoder();
    let total = by_id.iter().map(|e| e.1.len()).sum();
    let mut pieces = Table::with_capacity(n, total);
    let mut bytes = Table::with_capacity(n, total);
    let mut flags = vec![0u8; n];
    let mut buf = Vec::new();
    let mut next = by_id.iter().peekable();
    for id in 0..n {
        let mut piece = "";
        while let Some(e) = next.next_if(|e| e.0 as usize == id) {
            piece = &e.1;
        }
        pieces.push(piece.as_bytes());
        match added.get(&(id as u32)) {
            Some(a) => {
                flags[id] = if a.special { FLAG_SPECIAL } else { 0 };
                bytes.push(piece.as_bytes());
            }
            None => {
                bytes_of(piece, names, &mut buf);
                bytes.push(&buf);
            }
        }
    }
    bytes.shrink();
    let index = Index::new(&pieces);
    Ok(Tables { pieces, bytes, flags, index, strip_space })
}

/// The ids that the post-processor puts before and after a text.
fn around(tok: &Impl) -> Result<(Vec<u32>, Vec<u32>), Fault> {
    let p = match tok.get_post_processor() {
        Some(p) => p,
        None => return Ok((vec![], vec![])),
    };
    const MARK: u32 = u32::MAX; // an id that no vocabulary has
    let mark = Encoding::new(
        vec![MARK],
        vec![0],
        vec!["x".into()],
        vec![None],
        vec![(0, 1)],
        vec![0],
        vec![1],
        vec![],
        Default::default(),
    );
    match p.process(mark, None, true) {
        Err(e) => fault(EFORMAT, format!("tokenizer.json: post_processor: {e}")),
        Ok(e) => match e.get_ids().iter().position(|&id| id == MARK) {
            Some(at) => Ok((e.get_ids()[..at].to_vec(), e.get_ids()[at + 1..].to_vec())),
            None => fault(EFORMAT, "tokenizer.json: post_processor drops the text"),
        },
    }
}

pub fn build(text: &[u8]) -> Result<Tok, Fault> {
    let json: Value = match serde_json::from_slice(text) {
        Ok(v) => v,
        Err(e) => return fault(EFORMAT, format!("tokenizer.json: {e}")),
    };
    let tok = match Tokenizer::from_bytes(text) {
        Ok(t) => t.into_inner(),
        Err(e) => return fault(EFORMAT, format!("tokenizer.json: {e}")),
    };
    let tables = tables(&tok, &json)?;
    drop(json);
    let mut plain = tok.get_added_vocabulary().clone();
    plain.set_encode_special_tokens(true);
    let (before, after) = around(&tok)?;
    Ok(Tok { tables, kind: Kind::Hf(Box::new(Hf { tok, plain, before, after })) })
}

impl Hf {
    pub fn encode(&self, text: &str, flags: u32) -> Result<Vec<u32>, Fault> {
        let failed = |e: tokenizers::Error| Fault { code: EINVAL, text: format!("tokenizing: {e}") };
        let added = if flags & PARSE_SPECIAL != 0 { self.tok.get_added_vocabulary() } else { &self.plain };
        let mut p = added.extract_and_normalize(self.tok.get_normalizer(), text);
        if let Some(pre) = self.tok.get_pre_tokenizer() {
            pre.pre_tokenize(&mut p).map_err(failed)?;
        }
        p.tokenize(|s| self.tok.get_model().tokenize(s.get())).map_err(failed)?;
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if flags & ADD_SPECIAL != 0 {
            out.extend_from_slice(&self.before);
        }
        for (_, _, tokens) in p.get_splits(OffsetReferential::Normalized, OffsetType::None) {
            out.extend(tokens.iter().flatten().map(|t| t.id));
        }
        if flags & ADD_SPECIAL != 0 {
            out.extend_from_slice(&self.after);
        }
        Ok(out)
    }
}
