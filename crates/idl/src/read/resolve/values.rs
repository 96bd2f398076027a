//! Constants, bounds and labels: expressions with their names resolved.

use super::scope::Entity;
use super::{DefinitionSort, Resolver};
use crate::read::constant::{Constant, ConstantType, Width, digits_of, evaluate};
use crate::read::diagnostic::IdlDiagnostic;
use crate::read::syntax::{Expression, Front, Name, ScopedName, TypeForm, TypeSyntax};
use crate::tree::{ConstantValue, DefinitionId, DefinitionKind, Type};

/// The most octets of all string constants together.
const MOST_TEXT: usize = 16 << 20;

impl Resolver<'_> {
    pub fn constant(&mut self, front: Front, name: Name, of: TypeSyntax, value: Expression) -> DefinitionId {
        let of_type = match &of.what {
            // Digits and scale are those of the value.
            TypeForm::Fixed(None) => Some(Type::Fixed { digits: 1, scale: 0 }),
            TypeForm::Fixed(Some(_)) => {
                let error = IdlDiagnostic::at(of.at, "the type of a fixed-point constant is `fixed` alone");
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
                    if let Some(ConstantValue::String(text)) = &value {
                        self.text += text.len();
                        if self.text > MOST_TEXT {
                            let error = IdlDiagnostic::at(place, "the string constants together are too long");
                            self.findings.error(error.help(format!("at most {MOST_TEXT} octets are allowed")));
                            return self.declare(&name, DefinitionSort::Constant, front);
                        }
                    }
                    kind = value.map(|value| match (&of.what, &value) {
                        (TypeForm::Fixed(None), ConstantValue::Fixed { digits, scale }) => {
                            let digits = digits_of(*digits, *scale) as u16;
                            (Type::Fixed { digits, scale: *scale }, value)
                        }
                        _ => (of_type, value),
                    });
                }
                None => {
                    let error = IdlDiagnostic::at(of.at, "a constant cannot be of this type");
                    let help = "constants are numbers, characters, strings, booleans, octets or enumerators";
                    self.findings.error(error.help(help));
                }
            }
        }
        // After its value: a constant is not visible in itself.
        let id = self.declare(&name, DefinitionSort::Constant, front);
        let draft = &mut self.drafts[id.0 as usize];
        draft.complete = true;
        draft.kind = kind.map(|(of, value)| DefinitionKind::Constant(of, value));
        id
    }

    /// The required type of a constant or label; `None` if there is none.
    pub fn target(&self, of: &Type) -> Option<ConstantType> {
        Some(match self.plain(of) {
            Type::Short => ConstantType::signed("short", 16),
            Type::UShort => ConstantType::unsigned("unsigned short", 16),
            Type::Long => ConstantType::signed("long", 32),
            Type::ULong => ConstantType::unsigned("unsigned long", 32),
            Type::LongLong => ConstantType::signed("long long", 64),
            Type::ULongLong => ConstantType::unsigned("unsigned long long", 64),
            Type::Int8 => ConstantType::signed("int8", 8),
            Type::UInt8 => ConstantType::unsigned("uint8", 8),
            Type::Octet => ConstantType::unsigned("octet", 8),
            Type::Float => ConstantType::Floating { name: "float", single: true },
            Type::Double => ConstantType::Floating { name: "double", single: false },
            Type::LongDouble => ConstantType::Floating { name: "long double", single: false },
            Type::Fixed { .. } => ConstantType::Fixed,
            Type::Boolean => ConstantType::Boolean,
            Type::Char => ConstantType::Char(Width::Narrow),
            Type::WChar => ConstantType::Char(Width::Wide),
            Type::String(bound) => ConstantType::Text(Width::Narrow, bound),
            Type::WString(bound) => ConstantType::Text(Width::Wide, bound),
            Type::Named(id) if self.of(id).what == DefinitionSort::Enum => {
                ConstantType::Enumeration(id, self.of(id).name.clone())
            }
            _ => return None,
        })
    }

    /// The type behind typedefs, on the outside.
    pub fn plain(&self, of: &Type) -> Type {
        let mut of = of.clone();
        while let Type::Named(id) = of {
            match &self.of(id).kind {
                Some(DefinitionKind::Alias(inner)) => of = inner.clone(),
                _ => break,
            }
        }
        of
    }

    pub fn value(&mut self, expression: &Expression, target: &ConstantType) -> Option<ConstantValue> {
        let sources = self.sources;
        match evaluate(expression, target, sources, &mut |name| self.constant_named(name)) {
            Ok(value) => value,
            Err(error) => {
                self.findings.error(error);
                None
            }
        }
    }

    /// A bound or dimension: positive, within 32 bits.
    pub fn bound(&mut self, expression: &Expression, of: &str) -> Option<u32> {
        match self.value(expression, &ConstantType::unsigned("unsigned long", 32))? {
            ConstantValue::Integer(value) if value > 0 => u32::try_from(value).ok(),
            _ => {
                let error = IdlDiagnostic::at(expression.at, format!("{of} cannot be 0"));
                self.findings.error(error.help("use a number from 1"));
                None
            }
        }
    }

    /// The constant of a name in an expression.
    fn constant_named(&mut self, name: &ScopedName) -> Option<Constant> {
        let entity = self.scopes.look_up(self.here, name, self.findings)?;
        let id = match entity {
            Entity::Enumerator(of, place) => return Some(Constant::Enumerator(of, place)),
            Entity::Definition(id) => id,
            _ => {
                self.findings.error(IdlDiagnostic::at(name.at, format!("`{}` is not a constant", name.text())));
                return None;
            }
        };
        let draft = self.of(id);
        let (of, value) = match &draft.kind {
            Some(DefinitionKind::Constant(of, value)) => (of, value),
            // It has its own error.
            None if draft.what == DefinitionSort::Constant => return None,
            _ => {
                let error =
                    IdlDiagnostic::at(name.at, format!("`{}` is {}, not a constant", name.text(), draft.what.noun()));
                let error = error.other(draft.at, "declared here");
                self.findings.error(error);
                return None;
            }
        };
        let wide = matches!(self.plain(of), Type::WChar | Type::WString(_));
        let width = if wide { Width::Wide } else { Width::Narrow };
        Some(match value {
            ConstantValue::Integer(value) => Constant::Integer(*value),
            ConstantValue::Floating(value) => Constant::Floating(*value),
            ConstantValue::Fixed { digits, scale } => Constant::Fixed(*digits, *scale),
            ConstantValue::Boolean(value) => Constant::Boolean(*value),
            ConstantValue::Char(value) => Constant::Char(*value, width),
            ConstantValue::String(value) => Constant::Text(value.clone(), width),
            ConstantValue::Enumerator(of, place) => Constant::Enumerator(*of, *place),
        })
    }
}
