//! Chat templates: Jinja as `transformers` renders it.
//!
//! A template comes with a model file and is hostile until proven: the engine's fuel bounds its steps and the
//! bytes it makes, its parser and its calls bound their own depth, and nothing it can name reaches outside.

use crate::pyjson;
use crate::tok::{fault, Fault, EFORMAT, EINVAL};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{escape_formatter, AutoEscape, Environment, Error, ErrorKind, Output, State, Value};
use std::cell::Cell;
use std::ffi::CString;

/// One unit is an instruction or 64 bytes made. Five million are under a second; the largest published template
/// with a hundred messages needs about 50 thousand.
const FUEL: u64 = 5_000_000;
pub const SOURCE_BYTES_MAX: usize = 4 << 20;
const OUTPUT_BYTES_MAX: usize = 64 << 20;

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

pub fn build(source: &str) -> Result<Template, Fault> {
    if source.len() > SOURCE_BYTES_MAX {
        return fault(EFORMAT, format!("chat template: expected at most {SOURCE_BYTES_MAX} bytes, got {}", source.len()));
    }
    let mut env = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    match syntax {
        Ok(s) => env.set_syntax(s),
        Err(e) => return fault(EFORMAT, explain(&e)),
    }
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(100);
    env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    env.set_formatter(format_value);
    env.add_filter("tojson", tojson);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    match env.add_template_owned(NAME, without_generation(source)) {
        Ok(()) => Ok(Template { env }),
        Err(e) => fault(EFORMAT, explain(&e)),
    }
}

impl Template {
    pub fn render(&self, vars: &[u8], now: i64) -> Result<String, Fault> {
        let failed = |text: String| Fault { code: EINVAL, text };
        let vars: Value = match serde_json::from_slice(vars) {
            Ok(v) => v,
            Err(e) => return fault(EINVAL, format!("chat template: variables: {e}")),
        };
        NOW.with(|n| n.set(now));
        let t = self.env.get_template(NAME).map_err(|e| failed(explain(&e)))?;
        let out = t.render(vars).map_err(|e| failed(explain(&e)))?;
        if out.len() > OUTPUT_BYTES_MAX {
            return fault(EINVAL, format!("chat template: expected at most {OUTPUT_BYTES_MAX} bytes, got {}", out.len()));
        }
        Ok(out)
    }
}
