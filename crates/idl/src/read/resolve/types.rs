//! Types in use: names that are types, bounds, nesting and completeness.

use super::scope::Entity;
use super::{DefinitionSort, Resolver};
use crate::read::constant::{ConstantType, DIGITS};
use crate::read::diagnostic::IdlDiagnostic;
use crate::read::source::SourceSpan;
use crate::read::syntax::{Declarator, ScopedName, TypeForm, TypeSyntax};
use crate::tree::{ConstantValue, DefinitionId, DefinitionKind, Type};

/// The deepest nesting of types, including named ones.
const DEEPEST: u16 = 128;
/// The longest value on the wire: a message counts its octets in 32 bits.
const LONGEST: u64 = 1 << 32;

impl Resolver<'_> {
    /// A type that is used by `of` ("a member"); `None`, with a report, if it is not a type.
    pub fn type_in_use(&mut self, syntax: &TypeSyntax, of: &str) -> Option<Type> {
        let found = match &syntax.what {
            TypeForm::Basic(basic) => basic.clone(),
            TypeForm::String { wide, bound } => {
                let bound = match bound {
                    Some(bound) => Some(self.bound(bound, "the bound of a string")?),
                    None => None,
                };
                if *wide { Type::WString(bound) } else { Type::String(bound) }
            }
            TypeForm::Fixed(None) => {
                let error = IdlDiagnostic::at(syntax.at, "`fixed` needs its digits and scale here");
                self.findings.error(error.help("write `fixed<9, 2>` for nine digits, two of them after the point"));
                return None;
            }
            TypeForm::Fixed(Some((digits, scale))) => {
                let (digits_at, scale_at) = (digits.at, scale.at);
                let digits = self.value(digits, &ConstantType::unsigned("unsigned long", 32));
                let scale = self.value(scale, &ConstantType::unsigned("unsigned long", 32));
                let (Some(ConstantValue::Integer(digits)), Some(ConstantValue::Integer(scale))) = (digits, scale)
                else {
                    return None;
                };
                if digits > DIGITS.into() {
                    let error =
                        IdlDiagnostic::at(digits_at, format!("a fixed-point number has at most {DIGITS} digits"));
                    self.findings.error(error);
                    return None;
                }
                if digits == 0 {
                    self.findings.error(IdlDiagnostic::at(digits_at, "a fixed-point number has at least one digit"));
                    return None;
                }
                if scale > digits {
                    let error = IdlDiagnostic::at(
                        scale_at,
                        format!("more digits are after the point ({scale}) than there are ({digits})"),
                    );
                    self.findings.error(error.help("the first number counts all digits"));
                    return None;
                }
                Type::Fixed { digits: digits as u16, scale: scale as i16 }
            }
            TypeForm::Sequence(element, bound) => {
                let inner = self.element(element)?;
                let bound = match bound {
                    Some(bound) => Some(self.bound(bound, "the bound of a sequence")?),
                    None => None,
                };
                Type::Sequence(Box::new(inner), bound)
            }
            TypeForm::Named(name) => self.named_type(name)?,
            // `constructed` handles those, where they are allowed.
            TypeForm::Constructed(_) => return None,
        };
        self.complete(&found, syntax.at, of)?;
        Some(found)
    }

    /// The element of a sequence: the only use of an incomplete type.
    fn element(&mut self, syntax: &TypeSyntax) -> Option<Type> {
        match &syntax.what {
            TypeForm::Named(name) => self.named_type(name),
            TypeForm::Sequence(element, bound) => {
                let inner = self.element(element)?;
                let bound = match bound {
                    Some(bound) => Some(self.bound(bound, "the bound of a sequence")?),
                    None => None,
                };
                Some(Type::Sequence(Box::new(inner), bound))
            }
            _ => self.type_in_use(syntax, "a sequence"),
        }
    }

    fn named_type(&mut self, name: &ScopedName) -> Option<Type> {
        let wrong = match self.scopes.look_up(self.here, name, self.findings)? {
            Entity::Unsupported(what) => {
                let error = IdlDiagnostic::at(name.at, format!("`{}` is {what}, which is not supported", name.text()));
                self.findings.error(error.label("used here").help("use a type that every CORBA program supports"));
                return None;
            }
            Entity::TypeCode => return Some(Type::TypeCode),
            Entity::Definition(id) => match self.of(id).what {
                DefinitionSort::Alias
                | DefinitionSort::Struct
                | DefinitionSort::Union
                | DefinitionSort::Enum
                | DefinitionSort::Interface => {
                    return Some(Type::Named(id));
                }
                what => (what.noun(), Some(self.of(id).at)),
            },
            Entity::Module(_) => ("a module", None),
            Entity::Enumerator(..) => ("a name of an enumeration", None),
            Entity::Member => ("a member", None),
            Entity::Parameter => ("a parameter", None),
            Entity::Operation => ("an operation", None),
            Entity::Attribute => ("an attribute", None),
        };
        let error = IdlDiagnostic::at(name.at, format!("`{}` is {}, not a type", name.text(), wrong.0));
        let error = error.label("expected a type");
        self.findings.error(match wrong.1 {
            Some(at) => error.other(at, "declared here"),
            None => error,
        });
        None
    }

    /// Reports a struct or union that is used directly before its definition.
    fn complete(&mut self, of: &Type, at: SourceSpan, user: &str) -> Option<()> {
        let Type::Named(id) = of else { return Some(()) };
        let draft = self.of(*id);
        if draft.complete || !matches!(draft.what, DefinitionSort::Struct | DefinitionSort::Union) {
            return Some(());
        }
        let (name, declared) = (draft.name.clone(), draft.at);
        let inside = self.scopes.of(*id).is_some_and(|scope| {
            std::iter::successors(Some(self.here), |scope| self.scopes.parent(*scope)).any(|around| around == scope)
        });
        let error = if inside {
            let error = IdlDiagnostic::at(at, format!("`{name}` contains itself"));
            error
                .label("would be infinite")
                .help(format!("use `sequence<{name}>`, or `sequence<{name}, 1>` for one or none"))
        } else {
            let error = IdlDiagnostic::at(at, format!("`{name}` is used by {user} before its definition"));
            error.label("incomplete here").help(format!("define it before, or use `sequence<{name}>`"))
        };
        self.findings.error(error.other(declared, "declared here"));
        None
    }

    /// An incomplete struct or union that a type contains within sequences.
    pub fn incomplete(&self, of: &Type) -> Option<DefinitionId> {
        match self.plain(of) {
            Type::Sequence(inner, _) | Type::Array(inner, _) => self.incomplete(&inner),
            Type::Named(id) => {
                let draft = self.of(id);
                (!draft.complete && matches!(draft.what, DefinitionSort::Struct | DefinitionSort::Union)).then_some(id)
            }
            _ => None,
        }
    }

    /// A type of values to send: it must be complete.
    pub fn whole_type(&mut self, syntax: &TypeSyntax, of: &str) -> Option<Type> {
        let found = self.type_in_use(syntax, of)?;
        if let Some(missing) = self.incomplete(&found) {
            let draft = self.of(missing);
            let error =
                IdlDiagnostic::at(syntax.at, format!("{of} contains `{}`, which is not defined yet", draft.name));
            let error = error.other(draft.at, "not defined yet").help("define it before");
            self.findings.error(error);
            return None;
        }
        Some(found)
    }

    /// The type with the dimensions of its declarator.
    pub fn with_dimensions(&mut self, of: &Type, declarator: &Declarator) -> Option<Type> {
        if declarator.dimensions.is_empty() {
            return Some(of.clone());
        }
        let mut dimensions = Vec::new();
        for dimension in &declarator.dimensions {
            dimensions.push(self.bound(dimension, "the number of elements of an array")?);
        }
        let array = Type::Array(Box::new(of.clone()), dimensions);
        self.measured(&array, declarator.name.at).map(|_| array)
    }

    /// Depth and least length of a type; `None`, with a report, if one is above the limit.
    pub fn measured(&mut self, of: &Type, at: SourceSpan) -> Option<(u16, u64)> {
        let (depth, least) = self.measure(of);
        if depth > DEEPEST {
            let error = IdlDiagnostic::at(at, format!("types are nested more than {DEEPEST} deep"));
            self.findings.error(error);
            return None;
        }
        if least >= LONGEST {
            let error = IdlDiagnostic::at(
                at,
                format!("a value of this type has at least {least} octets, and a message fewer than {LONGEST}"),
            );
            self.findings.error(error.help("use a sequence, or send it in parts"));
            return None;
        }
        Some((depth, least))
    }

    fn measure(&self, of: &Type) -> (u16, u64) {
        match of {
            Type::Int8 | Type::UInt8 | Type::Boolean | Type::Char | Type::WChar | Type::Octet => (0, 1),
            Type::Short | Type::UShort => (0, 2),
            Type::Long | Type::ULong | Type::Float | Type::Any | Type::TypeCode => (0, 4),
            Type::LongLong | Type::ULongLong | Type::Double => (0, 8),
            Type::LongDouble => (0, 16),
            Type::Object => (0, 12),
            Type::String(_) | Type::WString(_) => (0, 4),
            Type::Fixed { digits, .. } => (0, u64::from(*digits) / 2 + 1),
            Type::Sequence(inner, _) => (self.measure(inner).0.saturating_add(1), 4),
            Type::Array(inner, dimensions) => {
                let (depth, least) = self.measure(inner);
                let count = dimensions.iter().fold(1_u64, |product, by| product.saturating_mul((*by).into()));
                (depth.saturating_add(1), least.saturating_mul(count))
            }
            Type::Named(id) => {
                let draft = self.of(*id);
                match draft.what {
                    DefinitionSort::Interface => (0, 12),
                    DefinitionSort::Enum => (0, 4),
                    _ => (draft.depth.saturating_add(1), draft.least),
                }
            }
        }
    }

    /// True if a value of the type cannot leave its process: it is, or contains, a local interface.
    pub fn is_local(&self, of: &Type) -> bool {
        match of {
            Type::Sequence(inner, _) | Type::Array(inner, _) => self.is_local(inner),
            Type::Named(id) => match &self.of(*id).kind {
                Some(DefinitionKind::Alias(inner)) => self.is_local(inner),
                _ => self.of(*id).local,
            },
            _ => false,
        }
    }
}
