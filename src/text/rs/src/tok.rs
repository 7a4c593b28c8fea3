//! What the two kinds of tokenizer share: the tables that C reads, and the choice between them.

use crate::hf::Hf;
use crate::native::Native;
use crate::vocab::{Index, Table};

pub const ADD_SPECIAL: u32 = 1;
pub const PARSE_SPECIAL: u32 = 2;

/// Bits of `Tables::flags`.
pub const FLAG_SPECIAL: u8 = 1;

/// A failure as C will report it: a code of enum qr_status and one line.
pub struct Fault {
    pub code: i32,
    pub text: String,
}

pub const EINVAL: i32 = -1;
pub const ENOMEM: i32 = -2;
pub const EFORMAT: i32 = -4;
pub const ENOTSUP: i32 = -5;

pub fn fault<T>(code: i32, text: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { code, text: text.into() })
}

/// Names and bytes of every id. C keeps pointers into these, so they never change once made.
pub struct Tables {
    pub pieces: Table,
    pub bytes: Table,
    pub flags: Vec<u8>,
    pub index: Index, // over pieces
    pub strip_space: bool,
}

pub enum Kind {
    Native(Native),
    Hf(Box<Hf>),
}

pub struct Tok {
    pub tables: Tables,
    pub kind: Kind,
}

impl Tok {
    pub fn encode(&self, text: &str, flags: u32) -> Result<Vec<u32>, Fault> {
        match &self.kind {
            Kind::Native(n) => Ok(n.encode(&self.tables, text, flags)),
            Kind::Hf(h) => h.encode(text, flags),
        }
    }
}

/// GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and on. None: not in it.
pub fn byte_of_char(c: char) -> Option<u8> {
    let c = c as u32;
    match c {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(c as u8),
        0x100..=0x120 => Some((c - 0x100) as u8),
        0x121..=0x142 => Some((c - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

pub fn char_of_byte(b: u8) -> char {
    let c = match b {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => b as u32,
        0x00..=0x20 => 0x100 + b as u32,
        0x7f..=0xa0 => 0x121 + (b as u32 - 0x7f),
        0xad => 0x143,
    };
    char::from_u32(c).unwrap_or('\u{fffd}')
}

/// The bytes that a name in GPT-2's alphabet stands for; characters outside of it stand for themselves.
pub fn unmap(piece: &[u8], out: &mut Vec<u8>) {
    out.clear();
    match std::str::from_utf8(piece) {
        Err(_) => out.extend_from_slice(piece),
        Ok(s) => {
            for c in s.chars() {
                match byte_of_char(c) {
                    Some(b) => out.push(b),
                    None => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
            }
        }
    }
}

/// The bytes of a SentencePiece name: U+2581 is a space.
pub fn unescape(piece: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let mut i = 0;
    while i < piece.len() {
        if piece[i..].starts_with(b"\xe2\x96\x81") {
            out.push(b' ');
            i += 3;
        } else {
            out.push(piece[i]);
            i += 1;
        }
    }
}

/// "<0x0A>" as 0x0A.
pub fn byte_token(piece: &[u8]) -> Option<u8> {
    let hex = piece.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    if hex.len() != 2 {
        return None;
    }
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}
