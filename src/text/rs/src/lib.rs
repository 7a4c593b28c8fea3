//! The heavy half of src/text, behind src/text/rs_internal.h.
//!
//! Rules of the border: every entry catches panics; a result is an enum qr_status and, when it is not 0, one line
//! in `msg`; outputs are written only on success; text goes out through a sink that copies, so no memory
//! changes hands but the two opaque handles.

mod bpe;
mod hf;
mod native;
mod pre;
mod pyjson;
mod template;
mod tok;
mod vocab;

use std::ffi::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::slice;
use tok::{fault, Fault, Tok, EFORMAT, EINVAL};

/// struct qr_text_span
#[repr(C)]
pub struct Span {
    data: *const u8,
    bytes: usize,
}

/// struct qr_vocab
#[repr(C)]
pub struct RawVocab {
    model: *const c_char,
    pre: *const c_char,
    n_tokens: usize,
    tokens: *const Span,
    scores: *const f32,
    types: *const i32,
    n_merges: usize,
    merges: *const Span,
    bos: i32,
    eos: i32,
    unk: i32,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
}

/// struct text_rs_view
#[repr(C)]
pub struct View {
    n: usize,
    pieces: *const u8,
    piece_offs: *const u32,
    bytes: *const u8,
    byte_offs: *const u32,
    flags: *const u8,
    strip_space: bool,
}

/// Any number of threads use one handle: the compiler checks that they may.
const fn shared<T: Send + Sync>() {}
const _: () = shared::<Tok>();
const _: () = shared::<template::Template>();

type Sink = unsafe extern "C" fn(ctx: *mut c_void, data: *const c_void, n: usize) -> c_int;

/// Where an error's line goes.
#[repr(C)]
pub struct Message {
    text: *mut c_char,
    cap: usize,
}

/// One line of at most cap - 1 bytes, cut between characters.
unsafe fn say(m: Message, text: &str) {
    if m.text.is_null() || m.cap == 0 {
        return;
    }
    let mut n = 0;
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        let mut buf = [0; 4];
        let s = c.encode_utf8(&mut buf);
        if n + s.len() + 1 > m.cap {
            break;
        }
        std::ptr::copy_nonoverlapping(s.as_ptr(), m.text.cast::<u8>().add(n), s.len());
        n += s.len();
    }
    *m.text.add(n) = 0;
}

/// Runs f; a fault or a panic becomes a status and a message.
unsafe fn guarded(m: Message, f: impl FnOnce() -> Result<(), Fault>) -> c_int {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => {
            say(m, &e.text);
            e.code
        }
        Err(p) => {
            let what = p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
            say(m, &format!("text library: internal fault: {}", what.unwrap_or("unknown")));
            EINVAL
        }
    }
}

unsafe fn bytes<'a>(p: *const u8, n: usize) -> &'a [u8] {
    if n == 0 {
        &[]
    } else {
        slice::from_raw_parts(p, n)
    }
}

unsafe fn utf8<'a>(what: &str, p: *const u8, n: usize) -> Result<&'a str, Fault> {
    match std::str::from_utf8(bytes(p, n)) {
        Ok(s) => Ok(s),
        Err(e) => fault(EFORMAT, format!("{what}: not UTF-8 at byte {}", e.valid_up_to())),
    }
}

unsafe fn c_str<'a>(p: *const c_char, default: &'a str) -> &'a str {
    if p.is_null() {
        return default;
    }
    std::ffi::CStr::from_ptr(p).to_str().unwrap_or("?")
}

unsafe fn spans<'a>(p: *const Span, n: usize) -> Vec<&'a [u8]> {
    if n == 0 {
        return Vec::new();
    }
    slice::from_raw_parts(p, n).iter().map(|s| bytes(s.data, s.bytes)).collect()
}

/// # Safety
/// v points to a struct qr_vocab whose arrays hold what its counts say.
#[no_mangle]
pub unsafe extern "C" fn text_rs_from_vocab(v: *const RawVocab, out: *mut *mut Tok, m: Message) -> c_int {
    guarded(m, || {
        let v = &*v;
        let array = |n: usize| n > 0;
        let vocab = native::Vocab {
            model: c_str(v.model, ""),
            pre: c_str(v.pre, "default"),
            tokens: spans(v.tokens, v.n_tokens),
            scores: (!v.scores.is_null() && array(v.n_tokens))
                .then(|| slice::from_raw_parts(v.scores, v.n_tokens)),
            types: (!v.types.is_null() && array(v.n_tokens))
                .then(|| slice::from_raw_parts(v.types, v.n_tokens)),
            merges: spans(v.merges, v.n_merges),
            bos: v.bos,
            eos: v.eos,
            unk: v.unk,
            add_bos: v.add_bos,
            add_eos: v.add_eos,
            add_space_prefix: v.add_space_prefix,
        };
        *out = Box::into_raw(Box::new(native::build(&vocab)?));
        Ok(())
    })
}

/// # Safety
/// p points to n bytes.
#[no_mangle]
pub unsafe extern "C" fn text_rs_from_json(p: *const u8, n: usize, out: *mut *mut Tok, m: Message) -> c_int {
    guarded(m, || {
        *out = Box::into_raw(Box::new(hf::build(bytes(p, n))?));
        Ok(())
    })
}

/// # Safety
/// t came from text_rs_from_* and is not used again; NULL is fine.
#[no_mangle]
pub unsafe extern "C" fn text_rs_tokenizer_free(t: *mut Tok) {
    if !t.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(t))));
    }
}

/// # Safety
/// out is writable; what it points to lives as long as t.
#[no_mangle]
pub unsafe extern "C" fn text_rs_view(t: *const Tok, out: *mut View) {
    let t = &(*t).tables;
    let ((pieces, piece_offs), (bytes, byte_offs)) = (t.pieces.raw(), t.bytes.raw());
    let n = t.pieces.len();
    *out =
        View { n, pieces, piece_offs, bytes, byte_offs, flags: t.flags.as_ptr(), strip_space: t.strip_space };
}

/// # Safety
/// p points to n bytes.
#[no_mangle]
pub unsafe extern "C" fn text_rs_find(t: *const Tok, p: *const u8, n: usize) -> i32 {
    let t = &(*t).tables;
    t.index.find(&t.pieces, bytes(p, n)).map_or(-1, |id| id as i32)
}

/// Calls sink once with the ids. A sink that answers other than 0 makes that the result.
///
/// # Safety
/// p points to n bytes; sink does not unwind.
#[no_mangle]
pub unsafe extern "C" fn text_rs_encode(
    t: *const Tok,
    p: *const u8,
    n: usize,
    flags: u32,
    sink: Sink,
    ctx: *mut c_void,
    m: Message,
) -> c_int {
    guarded(m, || {
        let text = utf8("text", p, n)?;
        let ids = (*t).encode(text, flags)?;
        match sink(ctx, ids.as_ptr().cast(), ids.len()) {
            0 => Ok(()),
            code => fault(code, "no memory for token ids"),
        }
    })
}

/// # Safety
/// p points to n bytes.
#[no_mangle]
pub unsafe extern "C" fn text_rs_template_new(
    p: *const u8,
    n: usize,
    out: *mut *mut template::Template,
    m: Message,
) -> c_int {
    guarded(m, || {
        *out = Box::into_raw(Box::new(template::build(utf8("chat template", p, n)?)?));
        Ok(())
    })
}

/// # Safety
/// t came from text_rs_template_new and is not used again; NULL is fine.
#[no_mangle]
pub unsafe extern "C" fn text_rs_template_free(t: *mut template::Template) {
    if !t.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(Box::from_raw(t))));
    }
}

/// Calls sink once with the rendered text. now: what strftime_now tells, in seconds since the epoch.
///
/// # Safety
/// p points to n bytes; sink does not unwind.
#[no_mangle]
pub unsafe extern "C" fn text_rs_template_render(
    t: *const template::Template,
    p: *const u8,
    n: usize,
    now: i64,
    sink: Sink,
    ctx: *mut c_void,
    m: Message,
) -> c_int {
    guarded(m, || {
        let text = (*t).render(bytes(p, n), now)?;
        match sink(ctx, text.as_ptr().cast(), text.len()) {
            0 => Ok(()),
            code => fault(code, "no memory for the rendered text"),
        }
    })
}
