//! Constants, bounds and labels: expressions with the names in them looked up.

use super::scope::Entity;
use super::{Resolver, What};
use crate::read::constant::{Constant, Target, Width, digits_of, evaluate};
use crate::read::diagnostic::Diagnostic;
use crate::read::syntax::{Expression, Front, Name, ScopedName, TypeSyntax, TypeWhat};
use crate::tree::{DefinitionId, Kind, Type, Value};

/// All string constants together may have this many octets.
const MOST_TEXT: usize = 16 << 20;

impl Resolver<'_> {
    pub fn constant(&mut self, front: Front, name: Name, of: TypeSyntax, value: Expression) -> DefinitionId {
        let of_type = match &of.what {
            // Digits and scale are those of the value.
            TypeWhat::Fixed(None) => Some(Type::Fixed { digits: 1, scale: 0 }),
            TypeWhat::Fixed(Some(_)) => {
                let error = Diagnostic::at(of.at, "the type of a fixed-point constant is `fixed` alone");
                self.findings
                    .error(error.help("write `fixed`: the constant has the digits and the scale of its value"));
                None
            }
            _ => self.type_in_use(&of, "a constant"),
        };
        let mut kind = None;
        if let Some(of_type) = of_type {
            match self.target(&of_type) {
                Some(target) => {
                    let place = value.at;
                    let value = self.value(&value, &target);
                    if let Some(Value::String(text)) = &value {
                        self.text += text.len();
                        if self.text > MOST_TEXT {
                            let error = Diagnostic::at(place, "the string constants together are too long");
                            self.findings.error(error.help(format!("at most {MOST_TEXT} octets are allowed")));
                            return self.declare(&name, What::Constant, front);
                        }
                    }
                    kind = value.map(|value| match (&of.what, &value) {
                        (TypeWhat::Fixed(None), Value::Fixed { digits, scale }) => {
                            let digits = digits_of(*digits, *scale) as u16;
                            (Type::Fixed { digits, scale: *scale }, value)
                        }
                        _ => (of_type, value),
                    });
                }
                None => {
                    let error = Diagnostic::at(of.at, "a constant cannot be of this type");
                    let help = "constants are numbers, characters, strings, booleans, octets or enumerators";
                    self.findings.error(error.help(help));
                }
            }
        }
        // After its value: a constant is not known in itself.
        let id = self.declare(&name, What::Constant, front);
        let draft = &mut self.drafts[id.0 as usize];
        draft.complete = true;
        draft.kind = kind.map(|(of, value)| Kind::Constant(of, value));
        id
    }

    /// What a constant or label of a type must be; `None` if there is none of that type.
    pub fn target(&self, of: &Type) -> Option<Target> {
        Some(match self.plain(of) {
            Type::Short => Target::signed("short", 16),
            Type::UShort => Target::unsigned("unsigned short", 16),
            Type::Long => Target::signed("long", 32),
            Type::ULong => Target::unsigned("unsigned long", 32),
            Type::LongLong => Target::signed("long long", 64),
            Type::ULongLong => Target::unsigned("unsigned long long", 64),
            Type::Int8 => Target::signed("int8", 8),
            Type::UInt8 => Target::unsigned("uint8", 8),
            Type::Octet => Target::unsigned("octet", 8),
            Type::Float => Target::Floating { name: "float", single: true },
            Type::Double => Target::Floating { name: "double", single: false },
            Type::LongDouble => Target::Floating { name: "long double", single: false },
            Type::Fixed { .. } => Target::Fixed,
            Type::Boolean => Target::Boolean,
            Type::Char => Target::Char(Width::Narrow),
            Type::WChar => Target::Char(Width::Wide),
            Type::String(bound) => Target::Text(Width::Narrow, bound),
            Type::WString(bound) => Target::Text(Width::Wide, bound),
            Type::Named(id) if self.of(id).what == What::Enum => Target::Enumeration(id, self.of(id).name.clone()),
            _ => return None,
        })
    }

    /// A type without the names that typedefs gave it, on the outside.
    pub fn plain(&self, of: &Type) -> Type {
        let mut of = of.clone();
        while let Type::Named(id) = of {
            match &self.of(id).kind {
                Some(Kind::Alias(inner)) => of = inner.clone(),
                _ => break,
            }
        }
        of
    }

    pub fn value(&mut self, expression: &Expression, target: &Target) -> Option<Value> {
        let sources = self.sources;
        match evaluate(expression, target, sources, &mut |name| self.constant_named(name)) {
            Ok(value) => value,
            Err(error) => {
                self.findings.error(error);
                None
            }
        }
    }

    /// A bound or dimension: positive, and no more than 32 bits hold.
    pub fn bound(&mut self, expression: &Expression, of: &str) -> Option<u32> {
        match self.value(expression, &Target::unsigned("unsigned long", 32))? {
            Value::Integer(value) if value > 0 => u32::try_from(value).ok(),
            _ => {
                let error = Diagnostic::at(expression.at, format!("{of} cannot be 0"));
                self.findings.error(error.help("use a number from 1"));
                None
            }
        }
    }

    /// What a name in an expression is.
    fn constant_named(&mut self, name: &ScopedName) -> Option<Constant> {
        let entity = self.scopes.look_up(self.here, name, self.findings)?;
        let id = match entity {
            Entity::Enumerator(of, place) => return Some(Constant::Enumerator(of, place)),
            Entity::Definition(id) => id,
            _ => {
                self.findings.error(Diagnostic::at(name.at, format!("`{}` is not a constant", name.text())));
                return None;
            }
        };
        let draft = self.of(id);
        let (of, value) = match &draft.kind {
            Some(Kind::Constant(of, value)) => (of, value),
            // It has an error of its own.
            None if draft.what == What::Constant => return None,
            _ => {
                let error =
                    Diagnostic::at(name.at, format!("`{}` is {}, not a constant", name.text(), draft.what.noun()));
                let error = error.other(draft.at, "declared here");
                self.findings.error(error);
                return None;
            }
        };
        let wide = matches!(self.plain(of), Type::WChar | Type::WString(_));
        let width = if wide { Width::Wide } else { Width::Narrow };
        Some(match value {
            Value::Integer(value) => Constant::Integer(*value),
            Value::Floating(value) => Constant::Floating(*value),
            Value::Fixed { digits, scale } => Constant::Fixed(*digits, *scale),
            Value::Boolean(value) => Constant::Boolean(*value),
            Value::Char(value) => Constant::Char(*value, width),
            Value::String(value) => Constant::Text(value.clone(), width),
            Value::Enumerator(of, place) => Constant::Enumerator(*of, *place),
        })
    }
}
