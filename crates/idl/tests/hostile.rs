//! Any text produces a tree or errors: no panic, no deep stack, no long run, no large memory.

use std::fs;
use std::path::Path;

use hyoshi_idl::{Diagnostics, ReadOptions, Specification, read, read_text};
use proptest::prelude::*;

fn text(text: &str) -> Result<Specification, Diagnostics> {
    read_text(text, "hostile.idl", &ReadOptions::default())
}

/// The properties of each result.
fn check(source: &str) {
    match text(source) {
        Ok(specification) => {
            for id in &specification.root {
                let _ = &specification[*id];
            }
            assert!(specification.definitions.iter().all(|each| each.repository_id.contains(':')));
        }
        Err(errors) => {
            assert!(!errors.errors.is_empty() && errors.errors.len() <= 100);
            assert!(errors.to_string().contains("error"));
        }
    }
}

/// Words of IDL and its preprocessor, common ones several times.
const WORDS: &[&str] = &[
    "module",
    "interface",
    "struct",
    "union",
    "switch",
    "case",
    "default",
    "enum",
    "typedef",
    "const",
    "exception",
    "raises",
    "attribute",
    "readonly",
    "oneway",
    "void",
    "in",
    "out",
    "inout",
    "long",
    "short",
    "unsigned",
    "string",
    "sequence",
    "fixed",
    "any",
    "Object",
    "boolean",
    "octet",
    "local",
    "abstract",
    "getraises",
    "setraises",
    "context",
    "typeid",
    "typeprefix",
    "native",
    "valuetype",
    "import",
    "A",
    "B",
    "C",
    "A",
    "B",
    "a",
    "b",
    "_in",
    "1",
    "2",
    "0",
    "1.5",
    "2d",
    "'x'",
    "\"s\"",
    "L\"w\"",
    "TRUE",
    "{",
    "}",
    "{",
    "}",
    "(",
    ")",
    "<",
    ">",
    ">>",
    "[",
    "]",
    ";",
    ";",
    ";",
    ",",
    ":",
    "::",
    "=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "~",
    "|",
    "&",
    "^",
    "<<",
    "@",
    "#",
    "\n",
    "\n#if 1\n",
    "\n#else\n",
    "\n#endif\n",
    "\n#define A B\n",
    "\n#define B(a) a A\n",
    "\n#ifdef A\n",
    "\n#pragma prefix \"p\"\n",
    "\n#pragma ID A \"IDL:x:1.0\"\n",
    "\n#pragma version A 1.1\n",
    "// c\n",
    "/* c */",
    "\\\n",
    "é",
    "$",
    "\"",
    "'",
];

fn good_files() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/good");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_answered(source in any::<String>()) {
        check(&source);
    }

    #[test]
    fn any_words_are_answered(words in prop::collection::vec(prop::sample::select(WORDS), 0..200)) {
        check(&words.join(" "));
    }

    #[test]
    fn good_files_with_a_wound_are_answered(
        file in prop::sample::select(good_files()),
        at in any::<prop::sample::Index>(),
        length in 0..20_usize,
        put in prop::collection::vec(prop::sample::select(WORDS), 0..4),
    ) {
        let start = at.index(file.len());
        let start = (0..=start).rev().find(|at| file.is_char_boundary(*at)).unwrap();
        let end = (start + length).min(file.len());
        let end = (end..=file.len()).find(|at| file.is_char_boundary(*at)).unwrap();
        check(&format!("{} {} {}", &file[..start], put.join(" "), &file[end..]));
    }
}

/// Runs on a stack smaller than any thread's default; slow inputs are printed.
fn quickly(sources: Vec<String>) {
    let run = move || {
        for source in &sources {
            let begin = std::time::Instant::now();
            check(source);
            let head: String = source.chars().take(60).collect();
            println!("{:?} for {head:?}", begin.elapsed());
        }
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn deep_nesting_needs_no_deep_stack() {
    let deep =
        |open: &str, inside: &str, close: &str| format!("{}{inside}{}", open.repeat(100_000), close.repeat(100_000));
    quickly(vec![
        deep("module M { ", "typedef long T;", "};"),
        deep("module M { ", "", ""),
        deep("typedef sequence<", "long", ">"),
        format!("typedef {} T;", deep("sequence<", "long", ">")),
        deep("struct S { ", "long x;", "} y;"),
        deep("union U switch (long) { case 1: ", "long x;", "} y;"),
        format!("const long x = {};", deep("(", "1", ")")),
        format!("const long x = {}1;", "-".repeat(100_000)),
        format!("const long x = 1{};", " + 1".repeat(100_000)),
        format!("const string x = {};", "\"a\"".repeat(100_000)),
        format!("typedef long T{};", "[2]".repeat(100_000)),
        format!("typedef A{} T;", "::A".repeat(100_000)),
        deep("@a(", "1", ")"),
        deep("#if 1\n", "typedef long T;\n", "#endif\n"),
        format!("#if {}\n#endif\n", deep("(", "1", ")")),
        format!("#if {}1\n#endif\n", "!".repeat(100_000)),
        format!("#if {}1\n#endif\n", "1 ? 1 : ".repeat(100_000)),
        format!("#define F(a) a\ntypedef {} T;", deep("F(", "long", ")")),
        deep("interface I { ", "", "};"),
        deep("{", "", "}"),
    ]);
}

#[test]
fn chains_and_floods_end() {
    let many = |count: usize, each: &dyn Fn(usize) -> String| (0..count).map(each).collect::<String>();
    quickly(vec![
        format!("typedef long T0; {}", many(50_000, &|n| format!("typedef T{n} T{};", n + 1))),
        format!("struct T0 {{ long x; }}; {}", many(50_000, &|n| format!("struct T{} {{ T{n} x; }};", n + 1))),
        format!("typedef long T0; {}", many(50_000, &|n| format!("typedef T{n} T{}[4000];", n + 1))),
        format!("const long c0 = 1; {}", many(50_000, &|n| format!("const long c{} = c{n} + 1;", n + 1))),
        format!("interface I0 {{}}; {}", many(20_000, &|n| format!("interface I{} : I{n} {{ void f{n}(); }};", n + 1))),
        format!(
            "{} interface I : A0 {} {{}};",
            many(5_000, &|n| format!("interface A{n} {{}};")),
            many(5_000, &|n| format!(", A{n}"))
        ),
        format!(
            "interface A {{ {} }}; interface B {{}}; {}",
            many(20_000, &|n| format!("void f{n}();")),
            many(20_000, &|n| format!("interface I{n} : A, B {{}};"))
        ),
        many(100_000, &|n| format!("typedef long T{n};")),
        many(30_000, &|n| format!("typedef unknown{n} T{n};")),
        format!("{} typedef wrong T;", many(60_000, &|n| format!("typedef long T{n};"))),
        format!("struct S {{ long {} x; }};", many(100_000, &|n| format!("x{n}, "))),
        format!("/// {}\nstruct S {{ long {} x; }};", "docs ".repeat(100_000), many(50_000, &|n| format!("x{n}, "))),
        format!("{}struct S {{ long x; }};", "// docs\n".repeat(200_000)),
        format!("enum E {{ {} x }};", many(100_000, &|n| format!("x{n}, "))),
        format!("union U switch (long) {{ {} }};", many(50_000, &|n| format!("case {n}: long x{n};"))),
        format!("interface I {{ void f({} in long x); }};", many(50_000, &|n| format!("in long x{n}, "))),
        format!(
            "const string s0 = \"{}\"; {}",
            "s".repeat(1 << 20),
            many(1_000, &|n| format!("const string s{} = s{n};", n + 1))
        ),
        format!("typedef long T; typedef {} U; struct S {{ T {}; }};", "t".repeat(1 << 20), "u".repeat(1 << 20)),
        format!(
            "{} x;\n#{}\n@{} struct S {{ long x; }};",
            "i".repeat(1 << 20),
            "d".repeat(1 << 20),
            "a".repeat(1 << 20)
        ),
        format!("module {} {{ {} }};", "m".repeat(1 << 20), many(1_000, &|n| format!("typedef long T{n};"))),
        format!("module M {{ typedef long T; }}; {}", "#pragma version M 1.0\n".repeat(20_000)),
        format!("{}typedef long T;", "#if 1\n#endif\n".repeat(100_000)),
        format!("{}typedef long T;", "#define A 1\n#undef A\n".repeat(100_000)),
        ";".repeat(3_000_000),
        "\"".repeat(1_000_000),
        "/*".repeat(1_000_000),
        "a ".repeat(1_000_000),
    ]);
}

#[test]
fn macros_cannot_explode() {
    let doubling =
        |count: usize| -> String { (1..=count).map(|n| format!("#define M{n} M{} M{}\n", n - 1, n - 1)).collect() };
    let calling: String = (1..=60).map(|n| format!("#define F{n}(a) F{}(a a)\n", n - 1)).collect();
    quickly(vec![
        format!("#define M0 long\n{}typedef M60 T;", doubling(60)),
        format!("#define M0\n{}typedef M60 T;", doubling(60)),
        format!("#define M0 1 +\n{}\n#if M60 1\n#endif\n", doubling(60)),
        format!("#define F0(a) a\n{calling}typedef F60(long) T;"),
        "#define X X X\ntypedef X T;".to_string(),
        "#define F(a) F(a) F(a)\ntypedef F(F(F(long))) T;".to_string(),
    ]);
}

#[test]
fn files_that_are_none_are_refused() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    fs::create_dir_all(&dir).unwrap();
    let refused = |path: &Path| read(path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(refused(&dir.join("missing.idl")).contains("cannot be read"));
    assert!(refused(&dir).contains("cannot be read"));
    let zeros = dir.join("zeros.idl");
    fs::write(&zeros, [0; 100]).unwrap();
    assert!(refused(&zeros).contains("is not text"));
    let large = dir.join("large.idl");
    fs::File::create(&large).unwrap().set_len(100_000_000).unwrap();
    assert!(refused(&large).contains("is larger than 16 MiB"));
    fs::remove_file(large).unwrap();
}

#[test]
fn a_large_file_included_again_and_again_ends() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("again");
    fs::create_dir_all(&dir).unwrap();
    let guarded = format!("#ifndef G\n#define G\n/* {} */\ntypedef long T;\n#endif\n", "long ".repeat(200_000));
    fs::write(dir.join("large.idl"), guarded).unwrap();
    let main = dir.join("main.idl");
    fs::write(&main, "#include \"large.idl\"\n".repeat(10_000)).unwrap();
    let errors = read(&main, &ReadOptions::default()).unwrap_err().to_string();
    assert!(errors.contains("counts as often as it is included"), "{errors}");
}
