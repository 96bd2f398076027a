//! Code that `hyoshi idl` has written: it compiles, its values come back whole, its objects are called.

use crate::names_idl;
use crate::tracker_idl;
use crate::types_idl;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hyoshi_orb::{
    Any, Around, ByteOrder, Decode, Decoder, Encode, EncodeError, Encoder, Fixed, Interface, Invoked, LongDouble, Orb,
    Raises, SystemException, SystemKind, TypeCode, Typed, UserException, WChar, WString,
};
use names_idl::names;
use tracker_idl::tracking::{self, *};
use types_idl::types::{self, *};

/// Through octets in both byte orders, and through an any on its way.
fn comes_back<T: Encode + for<'a> Decode<'a> + Typed + PartialEq + Debug>(value: &T) {
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let mut to = Encoder::new(order);
        // Off its alignment.
        1u8.encode(&mut to).unwrap();
        value.encode(&mut to).unwrap();
        let mut from = Decoder::new(to.bytes(), order);
        u8::decode(&mut from).unwrap();
        assert_eq!(T::decode(&mut from).as_ref(), Ok(value), "{order:?}");
        assert_eq!(from.left(), 0);
        assert!(T::LEAST < to.len(), "{} octets at least, {} there are", T::LEAST, to.len() - 1);
        for cut in 1..to.len() {
            drop(T::decode(&mut Decoder::new(&to.bytes()[1..cut], order)));
        }

        let any = Any::of(value).unwrap();
        let mut to = Encoder::new(order);
        any.encode(&mut to).unwrap();
        let again = Any::decode(&mut Decoder::new(to.bytes(), order)).unwrap();
        assert_eq!(again.get::<T>().as_ref(), Ok(value));
        assert_eq!(again.type_code(), &T::type_code());
        assert_eq!(Any::new(T::type_code(), &again.value().unwrap()).unwrap(), any, "as a tree");
    }
}

fn everything() -> Everything {
    Everything {
        a_short: -2,
        an_unsigned_short: 3,
        a_long: -4,
        an_unsigned_long: 5,
        a_long_long: i64::MIN,
        an_unsigned_long_long: u64::MAX,
        a_float: 0.5,
        a_double: -1e300,
        a_long_double: LongDouble::from(2.5),
        a_boolean: true,
        a_char: 'c',
        a_wchar: WChar('ö'),
        an_octet: 0xfe,
        an_int8: -7,
        an_uint8: 200,
        a_string: "grün".to_owned(),
        a_wstring: WString::from("weit €"),
        a_label: "sixteen letters!".to_owned(),
        a_wide_label: WString::from("achtmal!"),
        a_few: vec![1, 2, 3, 4],
        some_labels: vec!["a".to_owned(), String::new(), "c".to_owned()],
        a_matrix: [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]],
        four_corners: [["nw".to_owned(), "ne".to_owned()], ["sw".to_owned(), "se".to_owned()]],
        some_money: Fixed::of_unscaled(-123_456_789),
        some_octets: vec![0, 1, 255],
        a_colour: Colour::Blue,
        anything: Any::of(&tree()).unwrap(),
        nested: vec![vec!["five!".to_owned()], vec![], vec![String::new(), "x".to_owned()]],
    }
}

fn tree() -> Tree {
    let leaf = |label: &str| Tree { label: label.to_owned(), branches: vec![] };
    Tree { label: "root".to_owned(), branches: vec![leaf("a"), Tree { branches: vec![leaf("c")], ..leaf("b") }] }
}

#[test]
fn values_of_every_type_come_back_whole() {
    comes_back(&everything());
    comes_back(&Everything::default());
    comes_back(&tree());
    comes_back(&Colour::Green);
    for number in [
        Number::Whole(-1),
        Number::Real { label: 2, value: 0.5 },
        Number::Real { label: -3, value: 1.5 },
        Number::Default(17),
    ] {
        comes_back(&number);
    }
    let more = Choice::More { label: Colour::Blue, value: vec![Choice::Text("t".to_owned())] };
    for choice in [Choice::Text("any length".repeat(9)), Choice::ShortText("short".to_owned()), more.clone()] {
        comes_back(&choice);
    }
    comes_back(&Flag::Yes(9));
    comes_back(&Flag::No(tree()));
    comes_back(&ByLetter::AMatrix { label: 'b', value: [[0.25; 3]; 3] });
    comes_back(&ByLetter::Anything { label: 'z', value: Any::of(&7i16).unwrap() });
    comes_back(&Maybe::SomeMoney(Fixed::of_unscaled(1)));
    comes_back(&Maybe::Default(false));
    comes_back(&Refused { reason: "no".to_owned(), instead: more });
    comes_back(&Path::from([Position { x: 1.0, y: -0.0 }]));
    comes_back(&names::Option { r#type: 1, self_: "s".to_owned(), foo_bar: true, foo_bar_: false });
    comes_back(&names::from::Inner::default());
}

#[test]
#[allow(clippy::approx_constant)] // It is what the IDL says.
fn constants_have_their_values() {
    assert_eq!((types::LEAST, types::FAR, types::MASK), (-32768, 9_007_199_254_740_993, 0xf0));
    assert_eq!((types::HALF, types::RATIO.to_string().as_str(), types::YES), (0.5, "3.14159", true));
    assert_eq!((types::LETTER, types::WIDE_LETTER, types::FAVOURITE), ('x', WChar('y'), Colour::Green));
    assert_eq!((types::GREETING, types::WIDE_GREETING), ("say \"hello\"", "hello"));
    assert_eq!(types::PRICE.to_string(), "12.5");
    assert_eq!((tracking::MAX_TARGETS, names::from::MATCH), (1 << 20, 7));
}

#[test]
fn bounds_hold_in_both_directions() {
    let too_long: [fn(&mut Everything); 6] = [
        |all| all.a_label.push('x'),
        |all| all.a_wide_label = WString::from("neunmal!!"),
        |all| all.a_few.push(5),
        |all| all.some_labels.push(String::new()),
        |all| all.four_corners[1][0] = "seventeen letters".to_owned(),
        |all| all.nested[2].push(String::new()),
    ];
    for change in too_long {
        let mut all = everything();
        change(&mut all);
        let outcome = all.encode(&mut Encoder::new(ByteOrder::Big));
        assert!(matches!(outcome, Err(EncodeError::Bound { .. })), "{outcome:?}");
    }
    // A peer that does not keep to them.
    let mut to = Encoder::new(ByteOrder::Big);
    Colour::Green.encode(&mut to).unwrap();
    "seventeen letters".encode(&mut to).unwrap();
    assert!(Choice::decode(&mut Decoder::new(to.bytes(), ByteOrder::Big)).is_err());
}

#[test]
fn a_label_of_another_variant_is_refused() {
    let refused = |value: &dyn Fn(&mut Encoder) -> Result<(), EncodeError>| {
        assert!(matches!(value(&mut Encoder::new(ByteOrder::Big)), Err(EncodeError::Value(_))));
    };
    refused(&|to| Number::Real { label: 1, value: 0.0 }.encode(to));
    refused(&|to| Number::Default(-3).encode(to));
    refused(&|to| Choice::More { label: Colour::Red, value: vec![] }.encode(to));
    refused(&|to| Maybe::Default(true).encode(to));
    assert!(Colour::decode(&mut Decoder::new(&[0, 0, 0, 3], ByteOrder::Big)).is_err());
}

#[test]
fn a_peer_cannot_nest_without_end() {
    let mut deep = Tree::default();
    for _ in 0..1000 {
        deep = Tree { label: String::new(), branches: vec![deep] };
    }
    let mut to = Encoder::new(ByteOrder::Big);
    deep.encode(&mut to).unwrap();
    assert!(Tree::decode(&mut Decoder::new(to.bytes(), ByteOrder::Big)).is_err());
}

#[test]
fn type_codes_tell_what_the_idl_says() {
    let code = Everything::type_code();
    assert_eq!((code.id(), code.name()), ("IDL:Types/Everything:1.0", "Everything"));
    let hyoshi_wire::typecode::TypeShape::Struct(members) = code.shape() else { panic!("{code:?}") };
    let members: Vec<(&str, TypeCode)> = members.collect();
    let told = |name: &str| members.iter().find(|(own, _)| *own == name).unwrap().1.clone();
    assert_eq!(told("a_label").unaliased().to_string(), "string<16>");
    assert_eq!(told("some_labels").to_string(), "Labels");
    assert_eq!(told("nested").to_string(), "sequence<sequence<string<5>, 2>>");
    assert_eq!(told("some_money").unaliased().to_string(), "fixed<9, 2>");
    let links = types::Links::type_code();
    let hyoshi_wire::typecode::TypeShape::Struct(mut members) = links.shape() else { panic!("{links:?}") };
    assert_eq!(members.next().unwrap().1.id(), "IDL:Types/Node:1.0");
}

/// Knows one target.
struct Yard;

impl Named for Yard {
    fn name(&self) -> Result<String, SystemException> {
        Ok("yard".to_owned())
    }
}

impl tracking::Tracker for Yard {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        match id {
            7 => Ok(Position { x: 1.0, y: 2.0 }),
            8 => Err(Lost.into()),
            9 => Err(SystemKind::NoPermission.not_done(5).into()),
            _ => Err(UnknownTarget { id }.into()),
        }
    }

    fn follow(&self, id: u32) -> Result<(Path, Quality), FollowError> {
        if id == 7 { Ok((vec![Position::default(); 3], Quality::Locked)) } else { Err(UnknownTarget { id }.into()) }
    }

    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }

    fn correct(&self, place: &mut Position) -> Result<(f64, String), SystemException> {
        place.x += 1.0;
        Ok((1.0, "uphill".to_owned()))
    }

    fn subscribe(&self, who: Option<&CallbackStub>) -> Result<(), SystemException> {
        who.map_or(Ok(()), |who| who.moved(7, &Position::default()))
    }

    fn patience(&self) -> Result<u16, SystemException> {
        Ok(30)
    }

    fn set_patience(&self, value: u16) -> Result<(), SystemException> {
        if value == 0 { Err(SystemKind::BadParam.not_done(1)) } else { Ok(()) }
    }
}

/// Counts calls.
#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicU32>);

impl Around for Count {
    fn around<R>(&self, call: &Invoked<'_>, run: impl FnOnce() -> R) -> R {
        assert!(<dyn tracking::Tracker>::OPERATIONS.contains(&call.operation.name));
        assert_eq!(call.interface, "IDL:Tracking/Tracker:1.0");
        self.0.fetch_add(1, Ordering::Relaxed);
        run()
    }
}

fn uses(tracker: &impl tracking::Tracker) {
    assert_eq!(tracker.locate(7).unwrap(), Position { x: 1.0, y: 2.0 });
    assert_eq!(tracker.locate(8), Err(LocateError::Lost(Lost)));
    assert_eq!(tracker.locate(9).unwrap_err().system().map(|raised| raised.minor), Some(5));
    let unknown = tracker.locate(6).unwrap_err();
    assert_eq!((unknown.to_string().as_str(), unknown.id()), ("UnknownTarget (id: 6)", UnknownTarget::ID));
    assert_eq!(tracker.follow(7).unwrap(), (vec![Position::default(); 3], Quality::Locked));
    tracker.hint("there", &[1]).unwrap();
    let mut place = Position::default();
    assert_eq!(tracker.correct(&mut place).unwrap(), (1.0, "uphill".to_owned()));
    assert_eq!(place.x, 1.0);
    tracker.subscribe(None).unwrap();
    assert_eq!((tracker.name().unwrap().as_str(), tracker.patience()), ("yard", Ok(30)));
    tracker.set_patience(4).unwrap();
    assert_eq!(tracker.set_patience(0).unwrap_err().kind, SystemKind::BadParam);
}

#[test]
fn stubs_servants_and_delegates_are_one_trait() {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let count = Count::default();
    let servant = Arc::new(TrackerDelegate::new(Yard, count.clone()));
    let tracker = orb.adapter("trackers").build().unwrap().activate::<dyn tracking::Tracker>(servant).unwrap();
    uses(&tracker);
    let here = count.0.load(Ordering::Relaxed);
    let client = Orb::client().unwrap();
    let away = client.resolve::<dyn tracking::Tracker>(&tracker.ior().to_string()).unwrap();
    assert!(tracker.collocated().is_some() && away.collocated().is_none());
    uses(&away);
    assert_eq!(count.0.load(Ordering::Relaxed), 2 * here);
    uses(&TrackerDelegate::new(away.clone(), Count::default()));
    let named: NamedStub = away.clone().into();
    assert_eq!(named.name().unwrap(), "yard");
    assert_eq!(away.follow_async(7).wait().unwrap().1, Quality::Locked);
    assert_eq!(away.correct_async(&Position::default()).wait().unwrap().1, Position { x: 1.0, y: 0.0 });
    assert_eq!(away.locate_async(6).wait(), Err(UnknownTarget { id: 6 }.into()));
}
