//! The lexemes of IDL and of its preprocessor.

use logos::{Lexer, Logos};

/// The kind of a lexeme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Logos)]
#[logos(skip r"[ \t\r\f\x0b\u{feff}]+")]
pub(crate) enum Lexeme {
    #[token("\n")]
    Newline,
    #[regex(r"//[^\n]*", allow_greedy = true)]
    #[token("/*", block_comment)]
    Comment,
    /// An identifier or a keyword.
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*")]
    Word,
    #[regex(r"[0-9]+|0[xX][0-9a-fA-F]+")]
    Integer,
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")]
    Floating,
    #[regex(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)[dD]")]
    Fixed,
    #[regex(r"L?'([^'\\\n]|\\[^\n])*'")]
    Char,
    #[regex(r#"L?"([^"\\\n]|\\[^\n])*""#)]
    Text,
    #[token("{")]
    Open,
    #[token("}")]
    Close,
    #[token("(")]
    Left,
    #[token(")")]
    Right,
    #[token("[")]
    LeftSquare,
    #[token("]")]
    RightSquare,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("<<")]
    ShiftLeft,
    #[token(">>")]
    ShiftRight,
    #[token(":")]
    Colon,
    #[token("::")]
    Scope,
    #[token(";")]
    Semicolon,
    #[token(",")]
    Comma,
    #[token("=")]
    Equals,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("/")]
    Slash,
    #[token("%")]
    Percent,
    #[token("~")]
    Tilde,
    #[token("|")]
    Or,
    #[token("^")]
    Xor,
    #[token("&")]
    And,
    #[token("@")]
    At,
    /// Lexemes of the preprocessor only.
    #[token("#")]
    Hash,
    #[token("##")]
    Paste,
    #[token("&&")]
    AndAnd,
    #[token("||")]
    OrOr,
    #[token("!")]
    Not,
    #[token("==")]
    EqualTo,
    #[token("!=")]
    NotEqualTo,
    #[token("<=")]
    AtMost,
    #[token(">=")]
    AtLeast,
    #[token("?")]
    Question,
    #[token("...")]
    Dots,
    /// A character that begins no lexeme.
    Unknown,
    /// After the last lexeme.
    End,
}

/// True once the end of a comment was found.
fn block_comment(lexer: &mut Lexer<'_, Lexeme>) -> bool {
    match lexer.remainder().find("*/") {
        Some(at) => lexer.bump(at + 2),
        None => {
            lexer.bump(lexer.remainder().len());
            return false;
        }
    }
    true
}

/// The lexemes of a text from `start`, with their places.
pub(crate) fn lexemes(text: &str) -> impl Iterator<Item = (Lexeme, std::ops::Range<usize>)> + '_ {
    Lexeme::lexer(text).spanned().map(|(lexeme, at)| (lexeme.unwrap_or(Lexeme::Unknown), at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Lexeme> {
        lexemes(text).map(|(lexeme, _)| lexeme).collect()
    }

    #[test]
    fn kinds_of_numbers_are_distinguished() {
        use Lexeme::*;
        assert_eq!(
            kinds("0 017 0xFf 1. .5 1e9 1.5E-3"),
            [Integer, Integer, Integer, Floating, Floating, Floating, Floating]
        );
        assert_eq!(kinds("1d 1.5D .5d 1.d"), [Fixed; 4]);
    }

    #[test]
    fn literals_hold_escaped_quotes() {
        use Lexeme::*;
        assert_eq!(kinds(r#"'\'' L'"' "a\"b" L"\\""#), [Char, Char, Text, Text]);
        assert_eq!(kinds("\"open\n"), [Unknown, Newline]);
    }

    #[test]
    fn comments_end_where_they_should() {
        use Lexeme::*;
        assert_eq!(kinds("/* a * / */ x // y\n/**/"), [Comment, Word, Comment, Newline, Comment]);
        assert_eq!(kinds("/* open"), [Unknown]);
    }
}
