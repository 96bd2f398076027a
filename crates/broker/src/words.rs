//! Splits a text into words like a shell: at blanks, except within '...' or "...".

use std::borrow::Cow;

use crate::request_error::RequestError;

/// The words of a text.
///
/// # Errors
///
/// If a quote is not closed.
pub fn split(text: &str) -> Result<Vec<String>, RequestError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next() {
                        Some(end) if end == c => break,
                        Some(inner) => word.push(inner),
                        None => {
                            let text = text.replace(char::is_control, "?");
                            let what = format!("unclosed quote: {text}");
                            return Err(RequestError::refused(what, format!("close it with {c}")));
                        }
                    }
                }
            }
            blank if blank.is_whitespace() => words.extend(word.take()),
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Quotes a word for [`split`].
pub fn quoted(word: &str) -> Cow<'_, str> {
    let plain = |c: char| !c.is_whitespace() && !matches!(c, '\'' | '"');
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    let parts: Vec<&str> = word.split('"').collect();
    let parts: Vec<String> = parts.iter().map(|part| format!("\"{part}\"")).collect();
    Cow::Owned(parts.join("'\"'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_quotes_is_one_word() {
        let read = |text: &str| split(text).unwrap().join("|");
        assert_eq!(read("library  --path '/a b/c.so'"), "library|--path|/a b/c.so");
        assert_eq!(read("--path=\"/a b\"/c.so ''"), "--path=/a b/c.so|");
        assert_eq!(read("\"it's\" 'say \"x\"'"), "it's|say \"x\"");
        assert_eq!(read(" \t"), "");
        let refused = split("--path '/a b").unwrap_err();
        assert_eq!(refused.to_string(), "unclosed quote: --path '/a b");
    }

    #[test]
    fn words_are_read_as_they_were_quoted() {
        let words = ["a", "", "a b", "it's", "say \"x\"", "'\"", "\"", "a\tb\nc", "--path=/x"];
        let text: Vec<_> = words.iter().map(|word| quoted(word)).collect();
        assert_eq!(split(&text.join(" ")).unwrap(), words);
        assert_eq!(quoted("/plain/path.so"), "/plain/path.so");
        assert_eq!(quoted("/a b"), "\"/a b\"");
    }
}
