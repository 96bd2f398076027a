//! The conditions of `#if` and `#elif`.

use super::diagnostic::IdlDiagnostic;
use super::lexeme::Lexeme;
use super::macros::Macros;
use super::preprocess::Token;
use super::source::{SourceSpan, Sources};

/// The deepest nesting of parentheses and signs.
const DEEPEST: usize = 100;

/// True if the condition is true; `at` is the directive.
pub(crate) fn holds(
    at: SourceSpan,
    words: &[Token],
    macros: &mut Macros,
    sources: &Sources,
) -> Result<bool, IdlDiagnostic> {
    let mut plain = Vec::new();
    let mut rest = words;
    // `defined` uses names before they are expanded.
    while let Some((word, behind)) = rest.split_first() {
        if sources.text(word.text) != "defined" {
            let stretch = 1 + behind.iter().take_while(|next| sources.text(next.text) != "defined").count();
            let from = words.len() - behind.len() - 1;
            macros.expand(&words[from..from + stretch], sources, &mut |token| plain.push(Word::Token(token)))?;
            rest = &words[from + stretch..];
            continue;
        }
        let is_name = |token: &&Token| token.kind == Lexeme::Word;
        let (name, taken) = match behind {
            [left, name, right, ..] if left.kind == Lexeme::Left && right.kind == Lexeme::Right => (Some(name), 3),
            [name, ..] => (Some(name), 1),
            [] => (None, 0),
        };
        let Some(name) = name.filter(is_name) else {
            return Err(IdlDiagnostic::at(word.at, "`defined` needs a name").help("write `defined(NAME)`"));
        };
        plain.push(Word::Known(macros.defined(sources.text(name.text))));
        rest = &behind[taken..];
    }
    let mut reader = ConditionParser { words: &plain, next: 0, at, sources, depth: 0 };
    let value = reader.choice()?;
    match reader.peek() {
        None => Ok(value != 0),
        Some(_) => Err(reader.unexpected("an operator or the line's end")),
    }
}

#[derive(Clone, Copy)]
enum Word {
    Token(Token),
    /// The result of `defined`.
    Known(bool),
}

struct ConditionParser<'a> {
    words: &'a [Word],
    next: usize,
    at: SourceSpan,
    sources: &'a Sources,
    depth: usize,
}

/// Binary operators, lowest precedence first.
const LEVELS: [&[Lexeme]; 10] = [
    &[Lexeme::OrOr],
    &[Lexeme::AndAnd],
    &[Lexeme::Or],
    &[Lexeme::Xor],
    &[Lexeme::And],
    &[Lexeme::EqualTo, Lexeme::NotEqualTo],
    &[Lexeme::Less, Lexeme::Greater, Lexeme::AtMost, Lexeme::AtLeast],
    &[Lexeme::ShiftLeft, Lexeme::ShiftRight],
    &[Lexeme::Plus, Lexeme::Minus],
    &[Lexeme::Star, Lexeme::Slash, Lexeme::Percent],
];

impl ConditionParser<'_> {
    fn peek(&self) -> Option<Lexeme> {
        self.words.get(self.next).map(|word| match word {
            Word::Token(token) => token.kind,
            Word::Known(_) => Lexeme::Integer,
        })
    }

    fn place(&self) -> SourceSpan {
        match self.words.get(self.next) {
            Some(Word::Token(token)) => token.at,
            _ => self.at,
        }
    }

    fn unexpected(&self, wanted: &str) -> IdlDiagnostic {
        IdlDiagnostic::at(self.place(), format!("expected {wanted} in this condition"))
    }

    fn deeper(&mut self) -> Result<(), IdlDiagnostic> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(IdlDiagnostic::at(self.place(), format!("this condition is nested more than {DEEPEST} deep")));
        }
        Ok(())
    }

    fn choice(&mut self) -> Result<i64, IdlDiagnostic> {
        self.deeper()?;
        let mut value = self.sides(0)?;
        if self.peek() == Some(Lexeme::Question) {
            self.next += 1;
            let yes = self.choice()?;
            if self.peek() != Some(Lexeme::Colon) {
                return Err(self.unexpected("`:`"));
            }
            self.next += 1;
            let no = self.choice()?;
            value = if value != 0 { yes } else { no };
        }
        self.depth -= 1;
        Ok(value)
    }

    fn sides(&mut self, level: usize) -> Result<i64, IdlDiagnostic> {
        let Some(operators) = LEVELS.get(level) else { return self.sign() };
        let mut left = self.sides(level + 1)?;
        while let Some(operator) = self.peek().filter(|next| operators.contains(next)) {
            let at = self.place();
            self.next += 1;
            let right = self.sides(level + 1)?;
            let value = match operator {
                Lexeme::OrOr => Some(i64::from(left != 0 || right != 0)),
                Lexeme::AndAnd => Some(i64::from(left != 0 && right != 0)),
                Lexeme::Or => Some(left | right),
                Lexeme::Xor => Some(left ^ right),
                Lexeme::And => Some(left & right),
                Lexeme::EqualTo => Some(i64::from(left == right)),
                Lexeme::NotEqualTo => Some(i64::from(left != right)),
                Lexeme::Less => Some(i64::from(left < right)),
                Lexeme::Greater => Some(i64::from(left > right)),
                Lexeme::AtMost => Some(i64::from(left <= right)),
                Lexeme::AtLeast => Some(i64::from(left >= right)),
                Lexeme::ShiftLeft => u32::try_from(right).ok().and_then(|by| left.checked_shl(by)),
                Lexeme::ShiftRight => u32::try_from(right).ok().and_then(|by| left.checked_shr(by)),
                Lexeme::Plus => left.checked_add(right),
                Lexeme::Minus => left.checked_sub(right),
                Lexeme::Star => left.checked_mul(right),
                Lexeme::Slash => left.checked_div(right),
                _ => left.checked_rem(right),
            };
            left = value.ok_or_else(|| IdlDiagnostic::at(at, "this has no value: it overflows or divides by zero"))?;
        }
        Ok(left)
    }

    fn sign(&mut self) -> Result<i64, IdlDiagnostic> {
        let Some(word) = self.words.get(self.next).copied() else { return Err(self.unexpected("a value")) };
        let at = self.place();
        self.next += 1;
        let token = match word {
            Word::Known(known) => return Ok(i64::from(known)),
            Word::Token(token) => token,
        };
        let text = self.sources.text(token.text);
        let sign = |reader: &mut Self| {
            reader.deeper()?;
            let value = reader.sign()?;
            reader.depth -= 1;
            Ok(value)
        };
        match token.kind {
            Lexeme::Not => Ok(i64::from(sign(self)? == 0)),
            Lexeme::Tilde => Ok(!sign(self)?),
            Lexeme::Plus => sign(self),
            Lexeme::Minus => Ok(sign(self)?.wrapping_neg()),
            Lexeme::Left => {
                let value = self.choice()?;
                if self.peek() != Some(Lexeme::Right) {
                    return Err(self.unexpected("`)`"));
                }
                self.next += 1;
                Ok(value)
            }
            // A name that is not a macro is 0, as in C.
            Lexeme::Word => Ok(i64::from(text == "true")),
            Lexeme::Integer => {
                // `10L` and `1u` of C.
                if let Some(Word::Token(suffix)) = self.words.get(self.next)
                    && suffix.text.start == token.text.end
                    && self.sources.text(suffix.text).chars().all(|letter| "uUlL".contains(letter))
                {
                    self.next += 1;
                }
                let value = super::constant::integer(text).and_then(|value| i64::try_from(value).ok());
                value.ok_or_else(|| IdlDiagnostic::at(at, format!("`{text}` is not a number that a condition can use")))
            }
            _ => {
                self.next -= 1;
                Err(self.unexpected("a value"))
            }
        }
    }
}
