//! Octets that other ORBs wrote, of
//!
//! ```idl
//! module T {
//!   enum E { EA, EB, EC };
//!   typedef long Pair[2];
//!   struct S { octet o; double d; string str; Pair a; sequence<short, 4> q; string<7> bs; E en; };
//!   typedef sequence<S> SS;
//!   union U switch (E) { case EA: long l; case EB: string s; default: octet o; };
//!   union V switch (char) { case 'a': case 'b': short x; default: double y; };
//!   union B switch (boolean) { case TRUE: long l; };
//!   struct Node; typedef sequence<Node> Nodes;
//!   struct Node { string label; Nodes inner; };
//!   struct Twice { S one; S two; Pair a; Pair b; };
//!   exception X { long n; string why; };
//!   struct Wide { wchar c; wstring w; wstring<5> b; long long ll; unsigned long long ul; float fl; char c8;
//!                 boolean t; any x; Object obj; };
//!   interface I {};
//! };
//! ```

use alloc::{boxed::Box, string::String, vec, vec::Vec};

use crate::{Any, ByteOrder, Decode, Decoder, Encode, Encoder, FixedDecimal, TypeKind, Value, WChar, WString};

fn text(text: &str) -> Value {
    Value::String(text.into())
}

fn s() -> Value {
    let (a, q) = (vec![Value::Long(1), Value::Long(-2)], vec![Value::Short(3), Value::Short(-4)]);
    let (octet, double) = (Value::Octet(7), Value::Double(1.5));
    Value::Struct(vec![octet, double, text("hey"), Value::Sequence(a), Value::Sequence(q), text("b"), Value::Enum(1)])
}

fn node(label: &str, inner: Vec<Value>) -> Value {
    Value::Struct(vec![text(label), Value::Sequence(inner)])
}

fn root() -> Value {
    node("root", vec![node("a", vec![]), node("b", vec![])])
}

fn union(label: i128, value: Option<Value>) -> Value {
    Value::Union { label: Box::new(label), value: value.map(Box::new) }
}

/// The contents of the any of this name.
fn expected(name: &str) -> Option<Value> {
    let ones = || Value::Sequence(vec![Value::Long(1), Value::Long(1)]);
    Some(match name {
        "short" => Value::Short(-5),
        "string" => text("str"),
        "S" => s(),
        "SS" => Value::Sequence(vec![s(), s()]),
        "U.l" => union(0, Some(Value::Long(9))),
        "U.s" => union(1, Some(text("x"))),
        "U.o" => union(2, Some(Value::Octet(3))),
        "V.x" => union(98, Some(Value::Short(3))),
        "B.l" => union(1, Some(Value::Long(1))),
        "B.none" => union(0, None),
        "Node" => root(),
        "Nodes" => Value::Sequence(vec![root()]),
        "Twice" => Value::Struct(vec![s(), s(), ones(), ones()]),
        "X" => Value::Struct(vec![Value::Long(4), text("why")]),
        "Wide" => Value::Struct(vec![
            Value::WChar(WChar('€')),
            Value::WString(WString::from("h€")),
            Value::WString(WString::default()),
            Value::LongLong(-1),
            Value::ULongLong(2),
            Value::Float(0.5),
            Value::Char('c'),
            Value::Boolean(true),
            Value::Any(Box::new(Any::of(&2.5f64).unwrap())),
            Value::Object(Box::default()),
        ]),
        "wstring" => Value::WString(WString::from("h€")),
        "wchar" => Value::WChar(WChar('€')),
        "fixed" => Value::Fixed(Box::new(FixedDecimal { unscaled: -1250, scale: 2 })),
        "I" | "nil" => Value::Object(Box::default()),
        // The discriminator is any value that is not a label: omniORB writes 0xff, JacORB was configured to write 'z'.
        "V.y" | "AnyAny" | "TC" | "TCWide" | "TCTwice" => return None,
        _ => panic!("{name}?"),
    })
}

fn check(file: &str, order: ByteOrder, leaves_out_ids: bool) {
    for line in file.lines().filter(|line| !line.starts_with('#')) {
        let (name, digits) = line.split_once(' ').unwrap();
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        let theirs: Vec<u8> = (0..digits.len()).step_by(2).map(pair).collect();
        let mut from = Decoder::new(&theirs, order);
        let any = Any::decode(&mut from).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(from.left(), 0, "{name}");
        if let Some(expected) = expected(name) {
            assert_eq!(any.value(), Ok(expected), "{name}");
        }
        let ours = |padding| {
            let mut to = Encoder::new(order);
            to.padding = padding;
            any.encode(&mut to).unwrap();
            to.into_bytes()
        };
        if leaves_out_ids && any.type_code().kind() == TypeKind::Exception {
            continue;
        }
        // The same octet for octet, including indirections, except for padding, and wide strings that omniORB marks.
        let (zeros, ones) = (ours(0), ours(0xff));
        if name == "Wide" && leaves_out_ids {
            assert_eq!(zeros.len() + 8, theirs.len());
            continue;
        }
        assert_eq!(zeros.len(), theirs.len(), "{name}");
        for (at, octet) in theirs.iter().enumerate() {
            assert!(zeros[at] != ones[at] || zeros[at] == *octet, "{name}, octet {at}");
        }
    }
}

#[test]
fn what_omniorb_writes_is_read_and_written() {
    check(include_str!("peers/omniorb.txt"), ByteOrder::Little, true);
}

#[test]
fn what_jacorb_writes_is_read_and_written() {
    check(include_str!("peers/jacorb.txt"), ByteOrder::Big, false);
}

/// A type described by [`crate::Typed`] has the same octets as in other ORBs.
#[test]
fn types_built_here_are_those_of_the_others() {
    let file = include_str!("peers/jacorb.txt");
    let digits = file.lines().find_map(|line| line.strip_prefix("Node ")).unwrap();
    let theirs: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    let theirs = Any::decode(&mut Decoder::new(&theirs, ByteOrder::Big)).unwrap();
    fn describe(types: &mut crate::Types) -> crate::TypeIndex {
        types.structure("IDL:T/Node:1.0", "Node", |types| {
            let nodes = types.alias("IDL:T/Nodes:1.0", "Nodes", |types| {
                let node = describe(types);
                types.sequence(node, 0)
            });
            [("label", <String as crate::Typed>::describe(types)), ("inner", nodes)]
        })
    }
    assert_eq!(*theirs.type_code(), crate::TypeCode::build(describe));
}
