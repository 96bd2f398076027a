//! Comments of the IDL as documentation.

use proc_macro2::TokenStream;
use quote::quote;

use crate::tree::{Annotation, Member};

/// A comment, one string for each line, and the relevant annotations.
pub(super) fn docs(comment: &[String], annotations: &[Annotation]) -> TokenStream {
    let mut all: Vec<String> = comment.to_vec();
    all.extend(annotations.iter().filter_map(annotation_text));
    lines(&all)
}

/// Of a member.
pub(super) fn of_member(member: &Member) -> TokenStream {
    docs(&member.docs, &member.annotations)
}

/// Lines as they are.
pub(super) fn lines(lines: &[String]) -> TokenStream {
    let lines = lines.iter().map(|line| {
        let line = if line.is_empty() { String::new() } else { format!(" {}", line.trim_end()) };
        quote!(#[doc = #line])
    });
    quote!(#(#lines)*)
}

/// An annotation's statement about values, in words; the rest concerns DDS or the IDL itself.
fn annotation_text(annotation: &Annotation) -> Option<String> {
    let argument = |key: &str| {
        let found = annotation.arguments.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.trim_matches('"').to_owned())
    };
    let sole = argument("").or_else(|| argument("value")).or_else(|| argument("note"));
    Some(match annotation.name.as_str() {
        "unit" => format!("In {}.", sole?),
        "min" => format!("At least {}.", sole?),
        "max" => format!("At most {}.", sole?),
        "range" => format!("From {} to {}.", argument("min")?, argument("max")?),
        "default" => format!("Default: {}.", sole?),
        "deprecated" => match sole {
            Some(note) => format!("Deprecated: {note}"),
            None => "Deprecated.".to_owned(),
        },
        _ => return None,
    })
}
