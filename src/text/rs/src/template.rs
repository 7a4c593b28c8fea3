//! Chat templates: Jinja as `transformers` renders it.
//!
//! A template comes with a model file and is hostile until proven: the engine's fuel bounds its steps and the
//! bytes it makes, its parser and its calls bound their own depth, and nothing it can name reaches outside.

use crate::pyjson;
use crate::tok::{fault, Fault, EFORMAT, EINVAL, ENOMEM};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{escape_formatter, AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use std::cell::Cell;
use std::ffi::CString;

/// Steps of a render: an instruction or 64 bytes made is one unit. The published templates take up to 8 thousand for
/// a short chat and up to 1.7 a byte of variables for a thousand short messages with fifty tools.
const FUEL_BASE: u64 = 100_000;
const FUEL_PER_BYTE: u64 = 8;
const FUEL_MAX: u64 = 2_000_000;
/// The largest published template has 20 kB.
const SOURCE_BYTES_MAX: usize = 256 << 10;
/// Compiling costs the square of an expression's length; published templates stay below 200.
const TAG_TOKENS_MAX: usize = 4096;
/// The engine recurses along chains of operators and `elif`, and along values nested in values; none is bounded
/// but by the source's size and by fuel. A level takes up to 600 bytes (measured), so this suffices for the worst
/// of both. It is address space: an ordinary template touches a few pages.
const STACK_BYTES: usize = 1 << 30;

pub struct Template {
    env: Environment<'static>,
}

thread_local! {
    /// Seconds since the epoch that `strftime_now` tells during this thread's render.
    static NOW: Cell<i64> = const { Cell::new(0) };
}

/// Marks a message that the template itself raised, to report it without the engine's words around it.
const RAISED: char = '\u{1}';

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, format!("{RAISED}{message}")))
}

fn strftime_now(format: &str) -> Result<Value, Error> {
    let bad = || Error::new(ErrorKind::InvalidOperation, "strftime_now: format is too long or holds NUL");
    if format.is_empty() {
        return Ok(Value::from(""));
    }
    let format = CString::new(format).map_err(|_| bad())?;
    let now = NOW.with(Cell::get) as libc::time_t;
    let mut buf = [0u8; 512];
    // SAFETY: tm is filled by localtime_r before strftime reads it; buf bounds what strftime writes.
    let n = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut tm).is_null() {
            return Err(bad());
        }
        libc::strftime(buf.as_mut_ptr().cast(), buf.len(), format.as_ptr(), &tm)
    };
    if n == 0 {
        return Err(bad());
    }
    Ok(Value::from(String::from_utf8_lossy(&buf[..n]).into_owned()))
}

fn tojson(value: &Value, args: Kwargs) -> Result<Value, Error> {
    let style = pyjson::Style::from_kwargs(&args)?;
    args.assert_all_used()?;
    Ok(Value::from(pyjson::to_json(value, &style)?))
}

/// Lists, maps and floats as Python's str() writes them.
fn format_value(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map => Ok(out.write_str(&pyjson::to_repr(value)?)?),
        ValueKind::Number if !value.is_integer() => Ok(out.write_str(&pyjson::to_repr(value)?)?),
        _ => escape_formatter(out, state, value),
    }
}

/// `{% generation %}` only marks spans for training: it becomes `{% if true %}`, white-space marks kept.
fn without_generation(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let body = tag[2..].trim_start_matches(['-', '+']);
        let open = tag.len() - body.len();
        let word = body.trim_start();
        let known = [("endgeneration", "endif"), ("generation", "if true")];
        let hit = known.iter().find_map(|(w, new)| word.strip_prefix(w).map(|after| (after, *new)));
        match hit {
            Some((after, new)) if after.trim_start().trim_start_matches(['-', '+']).starts_with("%}") => {
                out.push_str(&tag[..open]);
                out.push(' ');
                out.push_str(new);
                out.push(' ');
                rest = after.trim_start();
            }
            _ => {
                out.push_str(&tag[..2]);
                rest = &tag[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Words, numbers, strings and operators of the longest tag of a source.
fn longest_tag(source: &str) -> usize {
    let (mut longest, mut rest) = (0, source);
    while let Some(at) = rest.find(['{']) {
        rest = &rest[at + 1..];
        let close = match rest.as_bytes().first() {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => {
                rest = rest.find("#}").map_or("", |end| &rest[end + 2..]);
                continue;
            }
            _ => continue,
        };
        rest = &rest[1..];
        let mut n = 0;
        while let Some(c) = rest.chars().next().filter(|_| !rest.starts_with(close)) {
            let token = match c {
                '"' | '\'' => string_bytes(rest, c),
                c if c.is_alphanumeric() || c == '_' => {
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
                }
                c => c.len_utf8(),
            };
            n += usize::from(!c.is_whitespace());
            rest = &rest[token..];
        }
        longest = longest.max(n);
    }
    longest
}

/// Bytes of the string literal that begins text, quotes included.
fn string_bytes(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return i + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

fn explain(e: &Error) -> String {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(err) = at {
        if let Some(m) = err.downcast_ref::<Error>() {
            if let Some(text) = m.detail().and_then(|d| d.strip_prefix(RAISED)) {
                return text.to_string();
            }
            if m.kind() == ErrorKind::OutOfFuel {
                return "chat template: takes too many steps or makes too much text".into();
            }
        }
        at = err.source();
    }
    let line = e.line().map_or(String::new(), |l| format!(" line {l}"));
    match e.detail() {
        Some(d) => format!("chat template{line}: {}: {d}", e.kind()),
        None => format!("chat template{line}: {}", e.kind()),
    }
}

const NAME: &str = "chat";

/// Runs f on a thread of its own with a stack that no template can exhaust. Costs about 0.1 ms.
fn on_deep_stack<T: Send>(f: impl FnOnce() -> Result<T, Fault> + Send) -> Result<T, Fault> {
    std::thread::scope(|s| match std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(s, f) {
        Ok(t) => t.join().unwrap_or_else(|_| fault(EINVAL, "chat template: internal fault")),
        Err(e) => fault(ENOMEM, format!("chat template: no thread to render on: {e}")),
    })
}

pub fn build(source: &str) -> Result<Template, Fault> {
    if source.len() > SOURCE_BYTES_MAX {
        return fault(
            EFORMAT,
            format!("chat template: expected at most {SOURCE_BYTES_MAX} bytes, got {}", source.len()),
        );
    }
    let longest = longest_tag(source);
    if longest > TAG_TOKENS_MAX {
        return fault(
            EFORMAT,
            format!("chat template: expected at most {TAG_TOKENS_MAX} tokens in a tag, got {longest}"),
        );
    }
    on_deep_stack(|| compile(source))
}

fn compile(source: &str) -> Result<Template, Fault> {
    let mut env = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    match syntax {
        Ok(s) => env.set_syntax(s),
        Err(e) => return fault(EFORMAT, explain(&e)),
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_recursion_limit(100);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(format_value);
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    // The engine iterates none as nothing and calls it iterable; Python does not, and templates ask.
    env.add_test("iterable", |v: &Value| !v.is_none() && v.try_iter().is_ok());
    // transformers always passes these two, so that a template may say `tools is none` without asking first.
    env.add_global("tools", Value::from(()));
    env.add_global("documents", Value::from(()));
    match env.add_template_owned(NAME, without_generation(source)) {
        Ok(()) => Ok(Template { env }),
        Err(e) => fault(EFORMAT, explain(&e)),
    }
}

impl Template {
    pub fn render(&self, vars: &[u8], now: i64) -> Result<String, Fault> {
        on_deep_stack(|| self.render_here(vars, now))
    }

    fn render_here(&self, vars: &[u8], now: i64) -> Result<String, Fault> {
        let failed = |e: Error| Fault { code: EINVAL, text: explain(&e) };
        let n_bytes = vars.len() as u64;
        let vars: Value = match serde_json::from_slice(vars) {
            Ok(v) => v,
            Err(e) => return fault(EINVAL, format!("chat template: variables: {e}")),
        };
        NOW.with(|n| n.set(now));
        let mut env = self.env.clone();
        env.set_fuel(Some((FUEL_BASE + FUEL_PER_BYTE * n_bytes).min(FUEL_MAX)));
        env.get_template(NAME).and_then(|t| t.render(vars)).map_err(failed)
    }
}
