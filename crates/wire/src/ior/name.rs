//! Names in a naming service as text (CosNaming 1.3, 2.4).

use alloc::string::String;
use alloc::vec::Vec;

use super::{ReferenceError, ReferenceErrorKind};

/// One step of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameComponent {
    /// Its id.
    pub id: String,
    /// Its kind; usually empty.
    pub kind: String,
}

/// Reads `id.kind/id/.kind`; a `\` precedes a dot, slash or backslash that is part of an id or kind, and a lone dot is
/// a component without both.
///
/// # Errors
///
/// For a component that is empty, has two dots, ends in one, or contains a NUL.
pub fn parse_name(text: &str) -> Result<Vec<NameComponent>, ReferenceError> {
    let fail = |at, kind| Err(ReferenceError { at, kind });
    let mut name = Vec::new();
    if text.is_empty() {
        return Ok(name);
    }
    let mut chars = text.char_indices();
    loop {
        let start = chars.offset();
        let mut component = NameComponent::default();
        let mut dot = None;
        let more = loop {
            let Some((at, c)) = chars.next() else { break false };
            let c = match c {
                '/' => break true,
                '.' if dot.is_some() => return fail(at, ReferenceErrorKind::NameDots),
                '.' => {
                    dot = Some(at);
                    continue;
                }
                '\\' => match chars.next() {
                    Some((_, c @ ('.' | '/' | '\\'))) => c,
                    _ => return fail(at, ReferenceErrorKind::NameEscape),
                },
                '\0' => return fail(at, ReferenceErrorKind::Nul),
                c => c,
            };
            if dot.is_some() { &mut component.kind } else { &mut component.id }.push(c);
        };
        match dot {
            Some(at) if component.kind.is_empty() && !component.id.is_empty() => {
                return fail(at, ReferenceErrorKind::NameDots);
            }
            None if component.id.is_empty() => return fail(start, ReferenceErrorKind::NameEmpty),
            _ => {}
        }
        name.push(component);
        if !more {
            return Ok(name);
        }
    }
}

/// The name as text, as [`parse_name`] reads it.
pub fn print_name(name: &[NameComponent]) -> String {
    let mut text = String::new();
    for (at, component) in name.iter().enumerate() {
        if at > 0 {
            text.push('/');
        }
        print_part(&component.id, &mut text);
        if !component.kind.is_empty() || component.id.is_empty() {
            text.push('.');
            print_part(&component.kind, &mut text);
        }
    }
    text
}

fn print_part(part: &str, text: &mut String) {
    for c in part.chars() {
        if matches!(c, '.' | '/' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
}
