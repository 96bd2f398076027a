//! Types of an IDL file as type codes.

use hyoshi_idl::tree::{ConstantValue as Label, DefinitionKind, Member};
use hyoshi_idl::{DefinitionId, Specification, Type};
use hyoshi_orb::{TypeCode, TypeIndex, TypeKind, Types};

/// The type code of a type in use.
pub(super) fn type_code(specification: &Specification, of: &Type) -> TypeCode {
    TypeCode::build(|types| describe(specification, of, types))
}

/// The type code of a definition, such as an exception.
pub(super) fn of_definition(specification: &Specification, id: DefinitionId) -> TypeCode {
    type_code(specification, &Type::Named(id))
}

fn describe(all: &Specification, of: &Type, types: &mut Types) -> TypeIndex {
    let simple = match of {
        Type::Short => TypeKind::Short,
        Type::UShort => TypeKind::UShort,
        Type::Long => TypeKind::Long,
        Type::ULong => TypeKind::ULong,
        Type::LongLong => TypeKind::LongLong,
        Type::ULongLong => TypeKind::ULongLong,
        Type::Int8 | Type::UInt8 | Type::Octet => TypeKind::Octet,
        Type::Float => TypeKind::Float,
        Type::Double => TypeKind::Double,
        Type::LongDouble => TypeKind::LongDouble,
        Type::Boolean => TypeKind::Boolean,
        Type::Char => TypeKind::Char,
        Type::WChar => TypeKind::WChar,
        Type::Any => TypeKind::Any,
        Type::TypeCode => TypeKind::TypeCode,
        Type::String(most) => return types.string(most.unwrap_or(0)),
        Type::WString(most) => return types.wstring(most.unwrap_or(0)),
        Type::Fixed { digits, scale } => return types.fixed(*digits, *scale),
        Type::Sequence(of, most) => {
            let of = describe(all, of, types);
            return types.sequence(of, most.unwrap_or(0));
        }
        Type::Array(of, dimensions) => {
            let of = describe(all, of, types);
            return dimensions.iter().rev().fold(of, |of, length| types.array(of, *length));
        }
        Type::Object => return types.interface("IDL:omg.org/CORBA/Object:1.0", "Object"),
        Type::Named(id) => return named(all, *id, types),
    };
    types.simple(simple)
}

fn named(all: &Specification, id: DefinitionId, types: &mut Types) -> TypeIndex {
    let definition = &all[id];
    let (id, name) = (definition.repository_id.as_str(), definition.name.as_str());
    match &definition.kind {
        DefinitionKind::Alias(of) => types.alias(id, name, |types| describe(all, of, types)),
        DefinitionKind::Struct(members) => types.structure(id, name, |types| described(all, members, types)),
        DefinitionKind::Exception(members) => types.exception(id, name, |types| described(all, members, types)),
        DefinitionKind::Enum(names) => {
            let names: Vec<_> = names.iter().map(|one| one.name.as_str()).collect();
            types.enumeration(id, name, &names)
        }
        DefinitionKind::Union(union) => types.union(
            id,
            name,
            |types| describe(all, &union.discriminator, types),
            |types| {
                let mut cases = Vec::new();
                for case in &union.cases {
                    let of = describe(all, &case.member.of, types);
                    let labels = case.labels.iter().map(|label| Some(number(label)));
                    for label in labels.chain(case.default.then_some(None)) {
                        cases.push((label, case.member.name.as_str(), of));
                    }
                }
                cases
            },
        ),
        DefinitionKind::Interface(_) => types.interface(id, name),
        // No type is a module or a constant: the reader has made sure.
        DefinitionKind::Module(_) | DefinitionKind::Constant(..) => types.simple(TypeKind::Void),
    }
}

fn described<'a>(all: &Specification, members: &'a [Member], types: &mut Types) -> Vec<(&'a str, TypeIndex)> {
    members.iter().map(|member| (member.name.as_str(), describe(all, &member.of, types))).collect()
}

/// As type codes number labels.
fn number(label: &Label) -> i128 {
    match label {
        Label::Integer(value) => *value,
        Label::Boolean(value) => i128::from(*value),
        Label::Char(value) => i128::from(u32::from(*value)),
        Label::Enumerator(_, place) => i128::from(*place),
        Label::Floating(_) | Label::Fixed { .. } | Label::String(_) => 0,
    }
}
