//! Values as Python writes them: `json.dumps` for the tojson filter and `repr` for printing.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

/// Arguments of `json.dumps`, with the defaults that transformers gives to tojson.
pub struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_sep: String,
    key_sep: String,
    sort_keys: bool,
}

/// Values nest no deeper than this, or the writer would use up a thread's stack.
const DEPTH_MAX: usize = 200;

fn wrong(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

impl Style {
    pub fn from_kwargs(args: &Kwargs) -> Result<Style, Error> {
        let indent: Option<Value> = args.get("indent")?;
        let indent = match indent {
            None => None,
            Some(v) if v.is_none() || v.is_undefined() => None,
            Some(v) => match v.as_str() {
                Some(s) => Some(s.to_string()),
                None => Some(" ".repeat(usize::try_from(v).unwrap_or(0).min(64))),
            },
        };
        let separators: Option<Vec<String>> = args.get("separators")?;
        let (item_sep, key_sep) = match separators {
            Some(s) if s.len() == 2 => (s[0].clone(), s[1].clone()),
            Some(s) => return Err(wrong(format!("tojson: separators: expected 2 strings, got {}", s.len()))),
            None if indent.is_some() => (",".into(), ": ".into()),
            None => (", ".into(), ": ".into()),
        };
        Ok(Style {
            ensure_ascii: args.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
            indent,
            item_sep,
            key_sep,
            sort_keys: args.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        })
    }
}

pub fn to_json(v: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    json(v, style, 0, &mut out)?;
    Ok(out)
}

fn json_string(s: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || (ascii && c as u32 > 0x7e) => {
                for u in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{u:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// A line break and the indentation of `depth`, where the style indents.
fn line(style: &Style, depth: usize, out: &mut String) {
    if let Some(step) = &style.indent {
        out.push('\n');
        for _ in 0..depth {
            out.push_str(step);
        }
    }
}

fn json_key(k: &Value, style: &Style, out: &mut String) -> Result<(), Error> {
    match k.kind() {
        ValueKind::String => json_string(k.as_str().unwrap_or(""), style.ensure_ascii, out),
        ValueKind::Bool | ValueKind::None | ValueKind::Number => {
            out.push('"');
            scalar(k, out);
            out.push('"');
        }
        other => return Err(wrong(format!("tojson: a key is a {other}"))),
    }
    Ok(())
}

fn scalar(v: &Value, out: &mut String) {
    match v.kind() {
        ValueKind::Bool => out.push_str(if v.is_true() { "true" } else { "false" }),
        ValueKind::None => out.push_str("null"),
        _ => number(v, out, ["NaN", "Infinity", "-Infinity"]),
    }
}

fn json(v: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(wrong("tojson: nested too deeply"));
    }
    match v.kind() {
        ValueKind::Bool | ValueKind::None | ValueKind::Number => scalar(v, out),
        ValueKind::String => json_string(v.as_str().unwrap_or(""), style.ensure_ascii, out),
        ValueKind::Seq => {
            out.push('[');
            let mut n = 0;
            for item in v.try_iter()? {
                if n > 0 {
                    out.push_str(&style.item_sep);
                }
                line(style, depth + 1, out);
                json(&item, style, depth + 1, out)?;
                n += 1;
            }
            if n > 0 {
                line(style, depth, out);
            }
            out.push(']');
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = v.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            out.push('{');
            for (i, k) in keys.iter().enumerate() {
                if i > 0 {
                    out.push_str(&style.item_sep);
                }
                line(style, depth + 1, out);
                json_key(k, style, out)?;
                out.push_str(&style.key_sep);
                json(&v.get_item(k)?, style, depth + 1, out)?;
            }
            if !keys.is_empty() {
                line(style, depth, out);
            }
            out.push('}');
        }
        other => return Err(wrong(format!("tojson: a value of type {other} is not JSON serializable"))),
    }
    Ok(())
}

/// The shortest digits that read back as the same double, laid out as Python's repr does it.
fn number(v: &Value, out: &mut String, odd: [&str; 3]) {
    if v.is_integer() {
        return out.push_str(&v.to_string());
    }
    let f = f64::try_from(v.clone()).unwrap_or(f64::NAN);
    if f.is_nan() {
        return out.push_str(odd[0]);
    }
    if f.is_infinite() {
        return out.push_str(if f > 0.0 { odd[1] } else { odd[2] });
    }
    let sci = format!("{f:e}"); // d.ddde-7
    let (digits, exp) = sci.split_once('e').unwrap_or((&sci, "0"));
    let exp: i32 = exp.parse().unwrap_or(0);
    if (-4..16).contains(&exp) {
        let plain = format!("{f}");
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
    } else {
        out.push_str(&format!("{digits}e{}{:02}", if exp < 0 { '-' } else { '+' }, exp.abs()));
    }
}

pub fn to_repr(v: &Value) -> Result<String, Error> {
    let mut out = String::new();
    repr(v, 0, &mut out)?;
    Ok(out)
}

fn repr_string(s: &str, out: &mut String) {
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in s.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 || (0x7f..0xa1).contains(&(c as u32)) || c == '\u{ad}' => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn repr(v: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(wrong("printing: nested too deeply"));
    }
    match v.kind() {
        ValueKind::String => repr_string(v.as_str().unwrap_or(""), out),
        ValueKind::Number => number(v, out, ["nan", "inf", "-inf"]),
        ValueKind::Seq => {
            let (open, close) = if v.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut n = 0;
            for item in v.try_iter()? {
                if n > 0 {
                    out.push_str(", ");
                }
                repr(&item, depth + 1, out)?;
                n += 1;
            }
            if n == 1 && v.is_tuple() {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (i, k) in v.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&k, depth + 1, out)?;
                out.push_str(": ");
                repr(&v.get_item(&k)?, depth + 1, out)?;
            }
            out.push('}');
        }
        ValueKind::Undefined => out.push_str("Undefined"),
        _ => out.push_str(&v.to_string()),
    }
    Ok(())
}
