//! Blank lines between items, which the pretty-printer omits.

/// Adds an empty line before each item that does not belong to the one before it.
pub(super) fn spaced(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len() + text.len() / 20);
    let mut before = "";
    for line in text.lines() {
        if begins_anew(before, line) {
            spaced.push('\n');
        }
        spaced += line;
        spaced.push('\n');
        before = line;
    }
    spaced
}

fn begins_anew(before: &str, line: &str) -> bool {
    let (indent, trimmed) = (indent(line), line.trim_start());
    // Documentation and attributes belong to the next item; nothing precedes the first in its block.
    let first = before.is_empty() || before.ends_with('{') && self::indent(before) < indent;
    if first || is_prefix(before.trim_start()) || self::indent(before) != indent {
        return false;
    }
    let item = ["pub ", "impl", "fn ", "use ", "mod ", "const ", "type "].iter().any(|head| trimmed.starts_with(head));
    if !item && !is_prefix(trimmed) {
        return false;
    }
    // An item that ends with a brace has several lines; a row of one-liners stays together.
    let ended = before.trim_start();
    let row = |line: &str| ["use ", "const ", "type "].iter().find(|head| line.starts_with(**head)).copied();
    match (row(ended), row(trimmed)) {
        (Some(before), Some(now)) if before == now => false,
        _ => ended == "}" || ended.ends_with(';') || (ended.ends_with('}') && !ended.starts_with("} else")),
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn is_prefix(line: &str) -> bool {
    line.starts_with("///") || line.starts_with("#[")
}
