//! The sample values of `peers.idl`, by the names of its echoes: every peer has the same two of each.

use hyoshi_orb::{Any, Fixed, TypeCode, Typed, WChar, WString};

use crate::peers::{
    Colour, Empty, Expression, Mixed, Money, Nested, OnBoolean, OnChar, OnColour, OnLong, OnLongLong, OnShort, OnULong,
    Point, Priced, Tree,
};

/// Name, type, the first and the second sample; conversions of the first to and from anys.
macro_rules! samples {
    ($($name:ident: $type:ty = $first:expr, $second:expr;)*) => {
        $(
            #[doc = concat!("What `echo_", stringify!($name), "` is called with: the first, or the second.")]
            pub fn $name(second: bool) -> $type {
                if second { $second } else { $first }
            }
        )*

        /// The first sample of that name in an any.
        pub fn sample(name: &str) -> Option<Any> {
            let plain = match name {
                $(stringify!($name) => any_of(&$name(false)),)*
                _ => return None,
            };
            // Rust's type lacks the bound of a typedef.
            Some(match bounded(name) {
                Some(code) => Any::new(code, &plain.value().expect("just made")).expect("within its bound"),
                None => plain,
            })
        }

        /// Whether the any has the first sample of that name; `None` for an unknown name.
        pub fn is_sample(name: &str, any: &Any) -> Option<bool> {
            if bounded(name).is_some() {
                // JacORB omits bounds in the type code.
                return Some(any.value().ok() == sample(name)?.value().ok());
            }
            Some(match name {
                $(stringify!($name) => any.get::<$type>().is_ok_and(|found| found == $name(false)),)*
                _ => return None,
            })
        }

        /// The names of all samples.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

samples! {
    short: i16 = i16::MIN, i16::MAX;
    ushort: u16 = u16::MAX, 1;
    long: i32 = i32::MIN, i32::MAX;
    ulong: u32 = u32::MAX, 7;
    longlong: i64 = i64::MIN, i64::MAX;
    ulonglong: u64 = u64::MAX, 1;
    float: f32 = 1.5, f32::MAX;
    double: f64 = std::f64::consts::PI, -1e308;
    colour: Colour = Colour::Blue, Colour::Green;
    boolean: bool = true, false;
    char: char = 'x', '~';
    wchar: WChar = WChar('\u{65e5}'), WChar('A');
    octet: u8 = 255, 0;
    string: String = "hello, world".into(), String::new();
    wstring: WString = wide("\u{65e5}\u{672c}\u{8a9e} \u{1c5}"), wide("");
    name: String = "12345678".into(), String::new();
    widename: WString = wide("wide\u{65e5}\u{672c}"), wide("");
    money: Money = cents(123_456_789), cents(-987_654_321);
    typecode: TypeCode = Mixed::type_code(), i32::type_code();
    any: Any = any_of(&42), any_of("other");
    point: Point = Point { x: 1.5, y: -2 }, Point { x: -1e-300, y: i32::MAX };
    mixed: Mixed = a_mixed(), Mixed { c: '0', l: WChar('0'), ..Mixed::default() };
    nested: Nested = Nested {
        head: point(false), inside: mixed(false), oak: tree(false), more: vec![mixed(false), mixed(true)],
        something: any_of(&tree(false)),
    }, Nested { head: point(true), inside: mixed(true), oak: tree(true), more: Vec::new(), something: Any::default() };
    tree: Tree = Tree { name: "root".into(), branches: vec![
        leaf("left"), Tree { name: "right".into(), branches: vec![leaf("leaf")] },
    ] }, leaf("");
    priced: Priced = Priced { count: 3, price: money(false), sold: true },
        Priced { count: 0, price: money(true), sold: false };
    empty: Empty = Empty { nothing: Vec::new() }, Empty { nothing: vec![1] };

    onboolean: OnBoolean = OnBoolean::Yes("yes".into()), OnBoolean::No(-5);
    onchar: OnChar = OnChar::Letters { label: 'b', value: 12 }, OnChar::Other { label: '\0', value: 9 };
    onshort: OnShort = OnShort::Seven(point(false)), OnShort::Default(0);
    onlong: OnLong = OnLong::Two { label: 3, value: Colour::Blue }, OnLong::Other { label: 0, value: mixed(false) };
    onulong: OnULong = OnULong::Other { label: 0, value: -3 }, OnULong::Most("max".into());
    onlonglong: OnLongLong = OnLongLong::Five(wstring(false)), OnLongLong::Default(0);
    oncolour: OnColour = OnColour::Three([1, -2, 3]), OnColour::Rest { label: Colour::Blue, value: tree(false) };
    expression: Expression = Expression::Sum(vec![
        Expression::Number(1.5),
        Expression::Sum(vec![Expression::Number(2.5), Expression::Sum(Vec::new())]),
        Expression::Number(-1.0),
    ]), Expression::Number(0.0);

    triple: [i32; 3] = [1, -2, 3], [0; 3];
    grid: [[Point; 3]; 2] = a_grid(), [[Point { x: 0.0, y: 0 }; 3]; 2];
    pair: [String; 2] = ["first".into(), String::new()], [String::new(), "second".into()];
    octets: Vec<u8> = (0..=255).collect(), Vec::new();
    booleans: Vec<bool> = vec![true, false, true], Vec::new();
    chars: Vec<char> = vec!['a', 'b', 'c'], Vec::new();
    widechars: Vec<WChar> = vec![WChar('\u{3a9}'), WChar('\u{65e5}'), WChar('z')], Vec::new();
    shorts: Vec<i16> = vec![-1, 0, 1, i16::MAX], Vec::new();
    longs: Vec<i32> = vec![i32::MIN, 0, i32::MAX], Vec::new();
    longlongs: Vec<i64> = vec![i64::MIN, 0, i64::MAX], Vec::new();
    floats: Vec<f32> = vec![1.5, -2.25, 0.0], Vec::new();
    doubles: Vec<f64> = vec![1.5, -2.5e300], Vec::new();
    strings: Vec<String> = vec![String::new(), "a".into(), "a longer one".into()], Vec::new();
    widestrings: Vec<WString> = vec![wide(""), wide("\u{3a9}"), wide("\u{65e5}\u{672c}")], Vec::new();
    anys: Vec<Any> = vec![any_of(&42), any_of("in any"), any_of(&point(false))], Vec::new();
    colours: Vec<Colour> = vec![Colour::Blue, Colour::Red], Vec::new();
    points: Vec<Point> = vec![point(false), point(true)], Vec::new();
    grids: Vec<[[Point; 3]; 2]> = vec![grid(false)], Vec::new();
    table: Vec<Vec<i32>> = vec![vec![1, 2], Vec::new(), vec![3]], Vec::new();
    few: Vec<i32> = vec![1, 2, 3, 4], Vec::new();
    fewnames: Vec<String> = vec!["one".into(), "12345678".into()], Vec::new();
    choices: Vec<OnColour> = vec![oncolour(false), oncolour(true)], Vec::new();
}

/// An any of a value of these samples.
pub fn any_of<T: hyoshi_orb::Encode + Typed + ?Sized>(value: &T) -> Any {
    Any::of(value).expect("the samples are what their types say")
}

/// The type of a sample that a typedef bounds.
fn bounded(name: &str) -> Option<TypeCode> {
    Some(TypeCode::build(|types| match name {
        "name" => types.alias("IDL:hyoshi/Peers/Name:1.0", "Name", |types| types.string(8)),
        "widename" => types.alias("IDL:hyoshi/Peers/WideName:1.0", "WideName", |types| types.wstring(8)),
        "few" => types.alias("IDL:hyoshi/Peers/Few:1.0", "Few", |types| {
            let long = i32::describe(types);
            types.sequence(long, 4)
        }),
        "fewnames" => types.alias("IDL:hyoshi/Peers/FewNames:1.0", "FewNames", |types| {
            let name = types.string(8);
            types.sequence(name, 2)
        }),
        _ => types.simple(hyoshi_orb::TypeKind::Null),
    }))
    .filter(|_| matches!(name, "name" | "widename" | "few" | "fewnames"))
}

fn wide(text: &str) -> WString {
    WString::from(text)
}

/// From cents.
pub fn cents(of: i128) -> Money {
    Fixed::from_unscaled(of).expect("nine digits at most")
}

fn leaf(name: &str) -> Tree {
    Tree { name: name.into(), branches: Vec::new() }
}

fn a_mixed() -> Mixed {
    Mixed {
        a: 1,
        b: 2.5,
        c: 'c',
        d: -4,
        e: true,
        f: -6,
        g: 7,
        h: -8_000_000_000,
        i: "nine".into(),
        j: 10,
        k: 11.25,
        l: WChar('\u{3a9}'),
        m: wide("\u{3a9}\u{3bc}\u{3ad}\u{3b3}\u{3b1}"),
        n: Colour::Green,
        o: u16::MAX,
        p: "sixteen".into(),
        q: 17,
        r: -18.75,
        s: 19,
        t: [20, 21, 22],
        u: vec![1, 2, 3, 4, 5],
        v: u64::MAX,
    }
}

fn a_grid() -> [[Point; 3]; 2] {
    std::array::from_fn(|i| {
        std::array::from_fn(|j| Point { x: i as f64 * 10.0 + j as f64 + 0.5, y: i as i32 * 10 + j as i32 })
    })
}
