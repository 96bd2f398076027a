//! Text from other programs, users and machines, made safe to print.

use alloc::string::String;
use core::fmt::Write;

/// The text with every character escaped that could control a terminal or forge a line: control characters (newlines
/// and terminal escapes among them, C0 and C1), and Unicode's invisible and direction-changing format characters
/// (Unicode Standard, section 23.2; "Trojan Source", CVE-2021-42574). A newline becomes `\n`, an escape `\u{1b}`.
///
/// Use it to print names of processes, tasks, threads and hosts. Ordinary text stays unchanged.
///
/// ```
/// assert_eq!(hyoshi_model::printable("top\x1b[2J\nroot"), r"top\u{1b}[2J\nroot");
/// assert_eq!(hyoshi_model::printable("Prüfstand 'A'"), "Prüfstand 'A'");
/// ```
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' | '\r' | '\t' => shown.extend(char.escape_default()),
            // Writing to a string cannot fail.
            _ if steers_terminal(char) => drop(write!(shown, "\\u{{{:x}}}", u32::from(char))),
            _ => shown.push(char),
        }
    }
    shown
}

/// The same for text of several lines; line ends remain.
pub fn printable_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        shown.push_str(&printable(line));
        shown.push_str(end);
    }
    shown
}

/// Whether a character is one that [`printable`] escapes.
pub fn steers_terminal(char: char) -> bool {
    char.is_control()
        || matches!(char,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(printable("a\x1b[31mb\x07\r\n\t\x7f"), r"a\u{1b}[31mb\u{7}\r\n\t\u{7f}");
        assert_eq!(printable("\u{9b}2J\u{202e}gpj.exe\u{2066}"), r"\u{9b}2J\u{202e}gpj.exe\u{2066}");
        assert_eq!(printable("日本 e\u{301} \\ \"quoted\" it's"), "日本 e\u{301} \\ \"quoted\" it's");
        assert_eq!(printable_lines("one\x1b\ntwo\n"), "one\\u{1b}\ntwo\n");
    }

    proptest! {
        #[test]
        fn no_control_character_is_left(text in any::<String>()) {
            prop_assert!(!printable(&text).chars().any(steers_terminal));
            prop_assert!(!printable_lines(&text).chars().any(|char| char != '\n' && steers_terminal(char)));
            prop_assert_eq!(printable_lines(&text).matches('\n').count(), text.matches('\n').count());
        }
    }
}
