//! Values in an any, in every form that a peer may send.

use alloc::{string::String, vec, vec::Vec};

use super::{Any, Value};
use crate::typecode::{TypeCode, TypeIndex, Typed, Types};
use crate::{ByteOrder, CharSet, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, Version, WString};

const FORMS: [(Version, CharSet, ByteOrder); 6] = [
    (Version::V1_0, CharSet::Latin1, ByteOrder::Big),
    (Version::V1_0, CharSet::Latin1, ByteOrder::Little),
    (Version::V1_1, CharSet::Latin1, ByteOrder::Big),
    (Version::V1_1, CharSet::Utf8, ByteOrder::Little),
    (Version::V1_2, CharSet::Latin1, ByteOrder::Little),
    (Version::V1_2, CharSet::Utf8, ByteOrder::Big),
];

#[derive(Clone, Debug, PartialEq)]
struct Tree {
    label: String,
    weight: f64,
    branches: Vec<Tree>,
}

impl Typed for Tree {
    fn describe(types: &mut Types) -> TypeIndex {
        types.structure("IDL:Tree:1.0", "Tree", |types| {
            [
                ("label", String::describe(types)),
                ("weight", f64::describe(types)),
                ("branches", <Vec<Tree>>::describe(types)),
            ]
        })
    }
}

impl Encode for Tree {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.label.encode(to)?;
        self.weight.encode(to)?;
        self.branches.encode(to)
    }
}

impl Decode<'_> for Tree {
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Tree { label: String::decode(from)?, weight: f64::decode(from)?, branches: Vec::decode(from)? })
    }
}

/// Over the wire and back, at each offset.
fn there_and_back<T: Encode + for<'a> Decode<'a> + PartialEq + core::fmt::Debug>(value: &T) {
    for (version, chars, order) in FORMS {
        for offset in 0..8 {
            let mut to = Encoder::new(order);
            to.speak(version, chars);
            to.raw(&[0xee; 8][..offset]);
            value.encode(&mut to).unwrap();
            let octets = to.into_bytes();
            let mut from = Decoder::new(&octets, order);
            from.speak(version, chars);
            from.raw(offset).unwrap();
            assert_eq!(T::decode(&mut from).as_ref(), Ok(value), "{version:?} {order:?} at {offset}");
            assert_eq!(from.left(), 0);
        }
    }
}

#[test]
fn a_recursive_struct_is_decoded_as_encoded() {
    let leaf = |label: &str| Tree { label: label.into(), weight: 0.5, branches: vec![] };
    let tree = Tree { branches: vec![leaf("é"), leaf("b")], ..leaf("a") };
    there_and_back(&Tree::type_code());
    let any = Any::of(&tree).unwrap();
    there_and_back(&any);
    there_and_back(&Any::of(&any).unwrap());
    assert_eq!(any.get::<Tree>(), Ok(tree));
    assert_eq!(Any::new(Tree::type_code(), &any.value().unwrap()), Ok(any.clone()));
    assert!(any.get::<f64>().is_err());
}

#[test]
fn a_type_code_has_the_octets_of_the_standard() {
    let mut to = Encoder::new(ByteOrder::Big);
    Tree::type_code().encode(&mut to).unwrap();
    let mut expected: Vec<u8> = vec![0, 0, 0, 15, 0, 0, 0, 116, 0, 0, 0, 0];
    expected.extend(b"\0\0\0\x0dIDL:Tree:1.0\0\0\0\0\0\0\0\x05Tree\0\0\0\0");
    expected.extend(b"\0\0\0\x03\0\0\0\x06label\0\0\0\0\0\0\x12\0\0\0\0");
    expected.extend(b"\0\0\0\x07weight\0\0\0\0\0\x07\0\0\0\x09branches\0\0\0\0");
    // A sequence of an element that begins 116 octets before the offset.
    expected.extend(b"\0\0\0\x13\0\0\0\x10\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\x8c\0\0\0\0");
    assert_eq!(to.bytes(), expected);
}

#[test]
fn a_char_is_an_octet() {
    let any = Any::of(&'é').unwrap();
    there_and_back(&any);
    let mut to = Encoder::new(ByteOrder::Big);
    any.encode(&mut to).unwrap();
    assert_eq!(to.bytes(), [0, 0, 0, 9, 0xe9]);
    assert_eq!(Any::of(&'€'), Err(EncodeError::NotInCharSet('€')));
}

#[test]
fn unions_find_their_case() {
    let code = TypeCode::build(|types| {
        types.union(
            "IDL:U:1.0",
            "U",
            |types| types.enumeration("IDL:E:1.0", "E", &["A", "B", "C"]),
            |types| [(Some(2), "c", String::describe(types)), (None, "d", i16::describe(types))],
        )
    });
    assert_eq!(code.default_index(), Some(1));
    there_and_back(&code);
    for (label, value) in [(2, Value::String("x".into())), (0, Value::Short(-7))] {
        let value = Value::Union { label: label.into(), value: Some(value.into()) };
        let any = Any::new(code.clone(), &value).unwrap();
        there_and_back(&any);
        assert_eq!(any.value(), Ok(value));
    }
    let wrong = Value::Union { label: 3.into(), value: None };
    assert!(Any::new(code, &wrong).is_err());
}

#[test]
fn an_exception_is_taken_with_its_id_and_without() {
    let code = TypeCode::build(|types| types.exception("IDL:Lost:1.0", "Lost", |types| [("at", u32::describe(types))]));
    let any = Any::new(code.clone(), &Value::Struct(vec![Value::ULong(7)])).unwrap();
    there_and_back(&any);
    let mut to = Encoder::new(ByteOrder::Big);
    code.encode(&mut to).unwrap();
    let start = to.len();
    any.encode(&mut to).unwrap();
    assert_eq!(to.bytes()[2 * start..], *b"\0\0\0\x0dIDL:Lost:1.0\0\0\0\0\0\0\0\x07");
    // As omniORB writes it.
    to.clear();
    code.encode(&mut to).unwrap();
    7u32.encode(&mut to).unwrap();
    assert_eq!(Any::decode(&mut Decoder::new(to.bytes(), ByteOrder::Big)), Ok(any));
}

#[test]
fn wide_strings_change_form_with_the_version() {
    let any = Any::of(&WString::from("h€")).unwrap();
    let mut to = Encoder::new(ByteOrder::Little);
    to.speak(Version::V1_1, CharSet::Latin1);
    any.encode(&mut to).unwrap();
    assert_eq!(to.bytes()[8..], [3, 0, 0, 0, b'h', 0, 0xac, 0x20, 0, 0]);
    let mut from = Decoder::new(to.bytes(), ByteOrder::Little);
    from.speak(Version::V1_1, CharSet::Latin1);
    assert_eq!(Any::decode(&mut from), Ok(any));
}
