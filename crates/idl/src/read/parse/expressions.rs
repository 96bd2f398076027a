//! Constant expressions (7.4.1.4.3), turned into postfix order.

use crate::read::lexeme::Lexeme;
use crate::read::source::SourceSpan;
use crate::read::syntax::{Expression, Step, StepKind};

use super::cursor::{Cursor, ParseResult};

/// Binary operators, lowest precedence first.
const LEVELS: [&[Lexeme]; 6] = [
    &[Lexeme::Or],
    &[Lexeme::Xor],
    &[Lexeme::And],
    &[Lexeme::ShiftRight, Lexeme::ShiftLeft],
    &[Lexeme::Plus, Lexeme::Minus],
    &[Lexeme::Star, Lexeme::Slash, Lexeme::Percent],
];

impl Cursor<'_> {
    pub fn expression(&mut self) -> ParseResult<Expression> {
        let (start, mut steps) = (self.at(), Vec::new());
        self.sides(0, &mut steps)?;
        Ok(Expression { steps, at: start.to(self.last()) })
    }

    /// A bound between `<` and `>`: `>>` closes two brackets there, unless it is within parentheses.
    pub fn expression_in_angles(&mut self) -> ParseResult<Expression> {
        let around = std::mem::replace(&mut self.angles, true);
        let read = self.expression();
        self.angles = around;
        read
    }

    fn sides(&mut self, level: usize, steps: &mut Vec<Step>) -> ParseResult<()> {
        let Some(operators) = LEVELS.get(level) else { return self.unary(steps) };
        self.sides(level + 1, steps)?;
        while operators.contains(&self.kind()) && !(self.angles && self.kind() == Lexeme::ShiftRight) {
            let operator = self.bump();
            self.sides(level + 1, steps)?;
            steps.push(Step { what: StepKind::Binary(operator.kind), at: operator.at });
        }
        Ok(())
    }

    fn unary(&mut self, steps: &mut Vec<Step>) -> ParseResult<()> {
        let sign = matches!(self.kind(), Lexeme::Plus | Lexeme::Minus | Lexeme::Tilde).then(|| self.bump());
        self.primary(steps)?;
        if let Some(sign) = sign {
            steps.push(Step { what: StepKind::Unary(sign.kind), at: sign.at });
        }
        Ok(())
    }

    fn primary(&mut self, steps: &mut Vec<Step>) -> ParseResult<()> {
        let at = self.at();
        let what = match self.kind() {
            Lexeme::Left => {
                self.bump();
                let around = std::mem::replace(&mut self.angles, false);
                let read = self.deeper(|cursor| cursor.sides(0, steps));
                self.angles = around;
                read?;
                self.expect(Lexeme::Right, "`)`")?;
                return Ok(());
            }
            Lexeme::Text => {
                let mut texts: Vec<SourceSpan> = Vec::new();
                while self.kind() == Lexeme::Text {
                    texts.push(self.bump().text);
                }
                StepKind::Literal(Lexeme::Text, texts)
            }
            kind @ (Lexeme::Integer | Lexeme::Floating | Lexeme::Fixed | Lexeme::Char) => {
                StepKind::Literal(kind, vec![self.bump().text])
            }
            Lexeme::Word if self.is("TRUE") || self.is("FALSE") => {
                StepKind::Boolean(self.sources.text(self.bump().text) == "TRUE")
            }
            _ => StepKind::Name(self.scoped_name("a value")?),
        };
        steps.push(Step { what, at: at.to(self.last()) });
        Ok(())
    }
}
