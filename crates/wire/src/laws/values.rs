//! Types of every kind, and values of them.

use alloc::{boxed::Box, format, string::String, vec, vec::Vec};
use proptest::collection::vec as many;
use proptest::prelude::*;

use crate::any::ObjectValue;
use crate::{Any, FixedDecimal, LongDouble, TypeCode, TypeIndex, TypeKind, Types, Value, WChar, WString};

#[derive(Clone, Debug)]
enum ArbitraryType {
    Simple(TypeKind),
    String(u32),
    WString(u32),
    Fixed(u16, i16),
    Object,
    Enum(u32),
    Sequence(Box<ArbitraryType>, u32),
    Array(Box<ArbitraryType>, u32),
    Alias(Box<ArbitraryType>),
    Struct(Vec<ArbitraryType>),
    Exception(Vec<ArbitraryType>),
    /// Cases in order; the last of them is the default if so.
    Union(TypeKind, Vec<ArbitraryType>, bool),
    /// A struct that contains a sequence of itself.
    Tree,
}

const SIMPLE: [TypeKind; 17] = [
    TypeKind::Null,
    TypeKind::Short,
    TypeKind::Long,
    TypeKind::UShort,
    TypeKind::ULong,
    TypeKind::LongLong,
    TypeKind::ULongLong,
    TypeKind::Float,
    TypeKind::Double,
    TypeKind::LongDouble,
    TypeKind::Boolean,
    TypeKind::Char,
    TypeKind::WChar,
    TypeKind::Octet,
    TypeKind::TypeCode,
    TypeKind::Any,
    TypeKind::Void,
];

const DISCRIMINATORS: [TypeKind; 11] = [
    TypeKind::Short,
    TypeKind::Long,
    TypeKind::UShort,
    TypeKind::ULong,
    TypeKind::LongLong,
    TypeKind::ULongLong,
    TypeKind::Boolean,
    TypeKind::Char,
    TypeKind::WChar,
    TypeKind::Octet,
    TypeKind::Enum,
];

fn kind() -> impl Strategy<Value = ArbitraryType> {
    let leaf = prop_oneof![
        6 => proptest::sample::select(&SIMPLE[..]).prop_map(ArbitraryType::Simple),
        1 => (0u32..6).prop_map(ArbitraryType::String),
        1 => (0u32..6).prop_map(ArbitraryType::WString),
        1 => (1u16..32).prop_flat_map(|digits| (Just(digits), 0..=digits as i16)).prop_map(|(d, s)| ArbitraryType::Fixed(d, s)),
        1 => Just(ArbitraryType::Object),
        1 => (1u32..4).prop_map(ArbitraryType::Enum),
        1 => Just(ArbitraryType::Tree),
    ];
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop_oneof![
            (inner.clone(), 0u32..5).prop_map(|(of, most)| ArbitraryType::Sequence(of.into(), most)),
            (inner.clone(), 0u32..5).prop_map(|(of, length)| ArbitraryType::Array(of.into(), length)),
            inner.clone().prop_map(|of| ArbitraryType::Alias(of.into())),
            many(inner.clone(), 0..5).prop_map(ArbitraryType::Struct),
            (proptest::sample::select(&DISCRIMINATORS[..]), many(inner, 1..3), any::<bool>())
                .prop_map(|(of, cases, default)| ArbitraryType::Union(of, cases, default)),
        ]
    })
}

impl ArbitraryType {
    /// Every second named type lacks its id, which peers may omit.
    fn describe(&self, types: &mut Types, count: &mut u32) -> TypeIndex {
        *count += 1;
        let id = if count.is_multiple_of(2) { format!("IDL:T{count}:1.0") } else { String::new() };
        let name = format!("T{count}");
        let members =
            |members: &[ArbitraryType], types: &mut Types, count: &mut u32| -> Vec<(&'static str, TypeIndex)> {
                members.iter().map(|member| ("member", member.describe(types, count))).collect()
            };
        match self {
            ArbitraryType::Simple(kind) => types.simple(*kind),
            ArbitraryType::String(most) => types.string(*most),
            ArbitraryType::WString(most) => types.wstring(*most),
            ArbitraryType::Fixed(digits, scale) => types.fixed(*digits, *scale),
            ArbitraryType::Object => types.interface(&id, &name),
            ArbitraryType::Enum(names) => types.enumeration(&id, &name, &["A", "B", "C"][..*names as usize]),
            ArbitraryType::Sequence(of, most) => {
                let of = of.describe(types, count);
                types.sequence(of, *most)
            }
            ArbitraryType::Array(of, length) => {
                let of = of.describe(types, count);
                types.array(of, *length)
            }
            ArbitraryType::Alias(of) => types.alias(&id, &name, |types| of.describe(types, count)),
            ArbitraryType::Struct(of) => types.structure(&id, &name, |types| members(of, types, count)),
            ArbitraryType::Exception(of) => types.exception("IDL:X:1.0", &name, |types| members(of, types, count)),
            ArbitraryType::Union(of, cases, default) => {
                let count = core::cell::RefCell::new(count);
                types.union(
                    &id,
                    &name,
                    |types| match of {
                        TypeKind::Enum => ArbitraryType::Enum(3).describe(types, &mut count.borrow_mut()),
                        of => types.simple(*of),
                    },
                    |types| {
                        let last = cases.len() - 1;
                        let case = |(place, case): (usize, &ArbitraryType)| {
                            let label = (!*default || place != last).then_some(place as i128);
                            (label, "case", case.describe(types, &mut count.borrow_mut()))
                        };
                        cases.iter().enumerate().map(case).collect::<Vec<_>>()
                    },
                )
            }
            ArbitraryType::Tree => tree(types),
        }
    }

    fn value(&self) -> BoxedStrategy<Value> {
        match self {
            ArbitraryType::Simple(kind) => simple(*kind),
            ArbitraryType::String(most) => {
                let most = if *most == 0 { 20 } else { *most as usize };
                many(proptest::char::range('\x01', '\u{ff}'), 0..=most)
                    .prop_map(|text| Value::String(text.into_iter().collect()))
                    .boxed()
            }
            ArbitraryType::WString(most) => {
                let most = if *most == 0 { 20 } else { *most as usize };
                many(proptest::char::range('\x01', '\u{ffff}'), 0..=most)
                    .prop_map(|text| Value::WString(WString(text.into_iter().collect())))
                    .boxed()
            }
            ArbitraryType::Fixed(digits, scale) => {
                let (scale, most) = (*scale, 10i128.pow((*digits).into()) - 1);
                (-most..=most).prop_map(move |unscaled| Value::Fixed(FixedDecimal { unscaled, scale }.into())).boxed()
            }
            ArbitraryType::Object => (latin(), many((any::<u32>(), many(any::<u8>(), 0..9)), 0..3))
                .prop_map(|(id, profiles)| Value::Object(ObjectValue { id, profiles }.into()))
                .boxed(),
            ArbitraryType::Enum(names) => (0..*names).prop_map(Value::Enum).boxed(),
            ArbitraryType::Sequence(of, most) => {
                let most = if *most == 0 { 6 } else { *most as usize };
                let octet = of.is_octet();
                many(of.value(), 0..=most).prop_map(move |items| elements(items, octet)).boxed()
            }
            ArbitraryType::Array(of, length) => {
                let octet = of.is_octet();
                many(of.value(), *length as usize).prop_map(move |items| elements(items, octet)).boxed()
            }
            ArbitraryType::Alias(of) => of.value(),
            ArbitraryType::Struct(of) | ArbitraryType::Exception(of) => {
                of.iter().map(ArbitraryType::value).collect::<Vec<_>>().prop_map(Value::Struct).boxed()
            }
            ArbitraryType::Union(of, cases, default) => {
                // Booleans have two labels, enumerations three here, the others more than the cases.
                let labels = if *of == TypeKind::Boolean { 2usize } else { 3 };
                let (cases, default) = (cases.clone(), *default);
                (0..labels)
                    .prop_flat_map(move |label| {
                        let case = cases.get(label).or_else(|| default.then(|| &cases[cases.len() - 1]));
                        let case = case.map_or(Just(None).boxed(), |case| case.value().prop_map(Some).boxed());
                        case.prop_map(move |value| Value::Union {
                            label: Box::new(label as i128),
                            value: value.map(Box::new),
                        })
                    })
                    .boxed()
            }
            ArbitraryType::Tree => {
                let leaf = any::<u8>().prop_map(|n| Value::Struct(vec![Value::Octet(n), Value::Sequence(vec![])]));
                leaf.prop_recursive(4, 10, 3, |inner| {
                    (any::<u8>(), many(inner, 0..3))
                        .prop_map(|(n, inner)| Value::Struct(vec![Value::Octet(n), Value::Sequence(inner)]))
                })
                .boxed()
            }
        }
    }

    fn is_octet(&self) -> bool {
        match self {
            ArbitraryType::Simple(kind) => *kind == TypeKind::Octet,
            ArbitraryType::Alias(of) => of.is_octet(),
            _ => false,
        }
    }
}

fn elements(items: Vec<Value>, octets: bool) -> Value {
    if !octets {
        return Value::Sequence(items);
    }
    Value::Octets(items.iter().map(|item| if let Value::Octet(octet) = item { *octet } else { 0 }).collect())
}

fn tree(types: &mut Types) -> TypeIndex {
    types.structure("IDL:Tree:1.0", "Tree", |types| {
        let inner = tree(types);
        [("number", types.simple(TypeKind::Octet)), ("inner", types.sequence(inner, 0))]
    })
}

fn simple(kind: TypeKind) -> BoxedStrategy<Value> {
    match kind {
        TypeKind::Short => any::<i16>().prop_map(Value::Short).boxed(),
        TypeKind::Long => any::<i32>().prop_map(Value::Long).boxed(),
        TypeKind::UShort => any::<u16>().prop_map(Value::UShort).boxed(),
        TypeKind::ULong => any::<u32>().prop_map(Value::ULong).boxed(),
        TypeKind::LongLong => any::<i64>().prop_map(Value::LongLong).boxed(),
        TypeKind::ULongLong => any::<u64>().prop_map(Value::ULongLong).boxed(),
        TypeKind::Float => any::<f32>().prop_map(Value::Float).boxed(),
        TypeKind::Double => any::<f64>().prop_map(Value::Double).boxed(),
        TypeKind::LongDouble => any::<f64>().prop_map(|n| Value::LongDouble(LongDouble::from(n).into())).boxed(),
        TypeKind::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        TypeKind::Char => proptest::char::range('\0', '\u{ff}').prop_map(Value::Char).boxed(),
        TypeKind::WChar => proptest::char::range('\0', '\u{d7ff}').prop_map(|c| Value::WChar(WChar(c))).boxed(),
        TypeKind::Octet => any::<u8>().prop_map(Value::Octet).boxed(),
        TypeKind::TypeCode => {
            let leaf = proptest::sample::select(&SIMPLE[..]).prop_map(ArbitraryType::Simple);
            prop_oneof![leaf, Just(ArbitraryType::Tree)].prop_map(|kind| Value::TypeCode(code(&kind))).boxed()
        }
        TypeKind::Any => {
            let kind = prop_oneof![
                Just(ArbitraryType::Tree),
                Just(ArbitraryType::Enum(2)),
                Just(ArbitraryType::Simple(TypeKind::Double)),
                Just(ArbitraryType::String(0)),
            ];
            kind.prop_flat_map(|kind| kind.value().prop_map(move |value| Any::new(code(&kind), &value).unwrap()))
                .prop_map(|any| Value::Any(any.into()))
                .boxed()
        }
        _ => Just(Value::Null).boxed(),
    }
}

fn code(kind: &ArbitraryType) -> TypeCode {
    TypeCode::build(|types| kind.describe(types, &mut 0))
}

/// A type and a value of it.
pub(super) fn typed_value(exception: bool) -> impl Strategy<Value = (TypeCode, Value)> {
    let kind = kind().prop_map(move |kind| if exception { ArbitraryType::Exception(vec![kind]) } else { kind });
    kind.prop_flat_map(|kind| (Just(code(&kind)), kind.value()))
}

/// A text in every character set.
pub(super) fn latin() -> impl Strategy<Value = String> + Clone {
    many(proptest::char::range('\x01', '\u{ff}'), 0..12).prop_map(|text| text.into_iter().collect::<String>())
}
