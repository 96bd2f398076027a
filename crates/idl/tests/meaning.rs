//! The meaning of texts: values, types, names, docs, ids, and their order.

use hyoshi_idl::tree::{ConstantValue, Type};
use hyoshi_idl::{Definition, DefinitionKind, ReadOptions, Specification, read_text};

fn read(text: &str) -> Specification {
    read_text(text, "test.idl", &ReadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn find<'a>(specification: &'a Specification, name: &str) -> &'a Definition {
    specification.definitions.iter().find(|definition| definition.name == name).unwrap()
}

fn value(text: &str) -> ConstantValue {
    match &find(&read(text), "x").kind {
        DefinitionKind::Constant(_, value) => value.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn operators_bind_as_in_the_grammar() {
    let value_of = |expression: &str| value(&format!("const long long x = {expression};"));
    assert_eq!(value_of("1 + 2 * 3 - 8 / 4 % 3"), ConstantValue::Integer(5));
    assert_eq!(value_of("1 | 6 ^ 3 & 5 << 1"), ConstantValue::Integer(5));
    assert_eq!(value_of("-(1 + 2) * 2"), ConstantValue::Integer(-6));
    assert_eq!(value_of("10 - 3 - 2"), ConstantValue::Integer(5));
    assert_eq!(value_of("-7 / 2"), ConstantValue::Integer(-3));
    assert_eq!(value_of("0x10 + 010"), ConstantValue::Integer(24));
}

#[test]
fn the_complement_is_that_of_the_constants_type() {
    assert_eq!(value("const long x = ~0;"), ConstantValue::Integer(-1));
    assert_eq!(value("const unsigned long x = ~0;"), ConstantValue::Integer(0xFFFF_FFFF));
    assert_eq!(value("const unsigned long long x = ~0;"), ConstantValue::Integer(u64::MAX.into()));
    assert_eq!(value("const octet x = ~1 & 0xFF;"), ConstantValue::Integer(0xFE));
}

#[test]
fn fixed_point_values_are_exact() {
    assert_eq!(value("const fixed x = 19.990d + 0.02d;"), ConstantValue::Fixed { digits: 2001, scale: 2 });
    assert_eq!(value("const fixed x = 1.5d * 1.5d;"), ConstantValue::Fixed { digits: 225, scale: 2 });
    assert_eq!(value("const fixed x = 1d / 8d;"), ConstantValue::Fixed { digits: 125, scale: 3 });
    let DefinitionKind::Constant(of, _) = find(&read("const fixed x = 0.05d;"), "x").kind.clone() else { panic!() };
    assert_eq!(of, Type::Fixed { digits: 2, scale: 2 });
}

#[test]
fn text_is_joined_and_its_escapes_replaced() {
    assert_eq!(value(r#"const string x = "a\tb" "\x41\102\"";"#), ConstantValue::String("a\tbAB\"".into()));
    assert_eq!(value(r"const wchar x = L'\u03a9';"), ConstantValue::Char('Ω'));
    assert_eq!(value(r"const char x = '\'';"), ConstantValue::Char('\''));
}

#[test]
fn comments_before_and_beside_become_docs() {
    let text = "
        // A licence.

        /** What it is.
         *
         *  Indented. */
        struct S {
            /// Before.
            long a;
            long b; // Beside.
            long c, // First.
                 d; // Second.
        };
        enum E { e1, // One.
                 e2  // Two.
        };
        interface I { void f(); /// Not of the next.
                      void g(); };
    ";
    let read = read(text);
    assert_eq!(find(&read, "S").docs, ["What it is.", "", " Indented."]);
    let DefinitionKind::Struct(members) = &find(&read, "S").kind else { panic!() };
    let docs: Vec<_> = members.iter().map(|member| member.docs.join("|")).collect();
    assert_eq!(docs, ["Before.", "Beside.", "First.", "Second."]);
    let DefinitionKind::Enum(names) = &find(&read, "E").kind else { panic!() };
    assert_eq!((names[0].docs.join("|"), names[1].docs.join("|")), ("One.".into(), "Two.".into()));
    let DefinitionKind::Interface(interface) = &find(&read, "I").kind else { panic!() };
    assert_eq!(interface.operations[0].docs, ["Not of the next."]);
    assert!(interface.operations[1].docs.is_empty());
}

#[test]
fn annotations_are_kept_as_written() {
    let read = read("@final struct S { @key @range(min = -1, max = 2 + 3) long a; @default(\"x\") string b; };");
    assert_eq!(find(&read, "S").annotations[0].name, "final");
    let DefinitionKind::Struct(members) = &find(&read, "S").kind else { panic!() };
    let range = &members[0].annotations[1];
    assert_eq!(range.arguments, [("min".into(), "-1".into()), ("max".into(), "2 + 3".into())]);
    assert_eq!(members[1].annotations[0].arguments, [(String::new(), "\"x\"".into())]);
}

#[test]
fn what_is_declared_within_a_struct_stands_before_it() {
    let read = read("module M { struct S { struct T { long a; } t1; enum E { e1 } f; }; };");
    let DefinitionKind::Module(inside) = &read[read.root[0]].kind else { panic!() };
    let names: Vec<_> = inside.iter().map(|id| read[*id].name.as_str()).collect();
    assert_eq!(names, ["T", "E", "S"]);
    assert_eq!(read[inside[0]].scope, ["M", "S"]);
    assert_eq!(read[inside[0]].repository_id, "IDL:M/S/T:1.0");
}

#[test]
fn a_struct_has_the_members_of_the_one_that_it_extends() {
    let read = read("struct Base { long a; }; struct Derived : Base { long b; };");
    let DefinitionKind::Struct(members) = &find(&read, "Derived").kind else { panic!() };
    let names: Vec<_> = members.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn prefixes_hold_to_the_end_of_their_scope_and_replace_the_names_around() {
    let text = "
        #pragma prefix \"one.example\"
        module M {
            typedef long A;
        #pragma prefix \"two.example\"
            module N { typedef long B; };
        };
        typedef long C;
        #pragma version C 2.10
    ";
    let read = read(text);
    let id = |name| find(&read, name).repository_id.as_str();
    assert_eq!((id("M"), id("A")), ("IDL:one.example/M:1.0", "IDL:one.example/M/A:1.0"));
    assert_eq!((id("N"), id("B")), ("IDL:two.example/N:1.0", "IDL:two.example/N/B:1.0"));
    assert_eq!(id("C"), "IDL:one.example/C:2.10");
}

#[test]
fn definitions_of_the_command_line_are_macros() {
    let defines = vec![("SIZE".to_string(), "2 + 1".to_string()), ("FAST".to_string(), String::new())];
    let text = "#ifdef FAST\ntypedef long A[SIZE];\n#endif";
    let read = read_text(text, "test.idl", &ReadOptions { defines, ..ReadOptions::default() }).unwrap();
    assert_eq!(find(&read, "A").kind, DefinitionKind::Alias(Type::Array(Box::new(Type::Long), vec![3])));
}

#[test]
fn a_generators_error_points_at_the_definition() {
    let read = read("module M {\n  interface Odd {};\n};");
    let odd = read.definitions.iter().position(|definition| definition.name == "Odd").unwrap();
    let error = read.refuse(hyoshi_idl::DefinitionId(odd as u32), "`Odd` is odd", "make it even");
    assert_eq!(error.place(&error.errors[0]).map(|place| (place.line, place.column)), Some((2, 13)));
    assert!(error.to_string().contains("make it even"));
}
