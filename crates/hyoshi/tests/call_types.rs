//! `hyoshi call`: unions, anys, fixed-point numbers and structs, there and back.

use crate::common;

use std::any::{Any, TypeId};
use std::sync::Arc;

use common::{Ended, Place};
use hyoshi_orb::{Call, Interface, Orb, Reference, SystemException};

const IDL: &str = "
module Types {
  enum Colour { RED, GREEN };
  union Shape switch (long) { case 1: case 2: double radius; case 3: string name; default: boolean flag; };
  union Paint switch (Colour) { case RED: long depth; };
  typedef fixed<5,2> Price;
  union Sign switch (boolean) { case TRUE: Price cost; case FALSE: Colour hue; };
  typedef fixed<9,2> Money;
  typedef sequence<Colour> Colours;
  struct Zoo { long zebra; string ape; Shape monkey; any bear; Colours ants; };
  interface Echo {
    Shape back_shape(in Shape it);
    Paint back_paint(in Paint it);
    Sign back_sign(in Sign it);
    Money back_money(in Money it);
    any back_any(in any it);
    Zoo back_zoo(in Zoo it);
  };
};
";

/// Answers each operation with the octets of its argument: aligned as they came, whatever their type.
trait Echo: Send + Sync {}

struct Octets;

impl Echo for Octets {}

struct Stub(Reference<dyn Echo>);

impl From<Reference<dyn Echo>> for Stub {
    fn from(reference: Reference<dyn Echo>) -> Self {
        Stub(reference)
    }
}

impl AsRef<Reference<dyn Echo>> for Stub {
    fn as_ref(&self) -> &Reference<dyn Echo> {
        &self.0
    }
}

impl Interface for dyn Echo {
    type Stub = Stub;
    const ID: &'static str = "IDL:Types/Echo:1.0";
    const BASES: &'static [&'static str] = &[];
    const OPERATIONS: &'static [&'static str] =
        &["back_any", "back_money", "back_paint", "back_shape", "back_sign", "back_zoo"];

    fn dispatch(&self, _: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
        let octets = call.arguments().rest().to_vec();
        call.reply::<_, SystemException>(Ok(octets), |octets, to| {
            to.raw(octets);
            Ok(())
        })
    }

    fn upcast(_: Arc<Self>, _: TypeId) -> Option<Box<dyn Any>> {
        None
    }
}

struct Server {
    place: Place,
    _orb: Orb,
}

impl Server {
    fn start() -> Server {
        let place = Place::new();
        let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
        orb.ready();
        let echo = orb.adapter("echoes").build().unwrap().activate::<dyn Echo>(Arc::new(Octets)).unwrap();
        place.write("echo.ior", echo.0.ior().to_string());
        place.write("types.idl", IDL);
        Server { place, _orb: orb }
    }

    fn call(&self, words: &[&str]) -> Ended {
        let mut command = self.place.command("call file:echo.ior --idl types.idl");
        command.args(words);
        Ended::of(&words.join(" "), &command.output().unwrap())
    }

    /// What comes back, on one line.
    fn back(&self, words: &[&str]) -> String {
        self.call(words).exits(0).out.lines().map(str::trim).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn unions_are_told_with_the_label_that_chooses_the_member() {
    let server = Server::start();
    for (sent, back) in [
        (["back_shape", r#"{"radius": 1.5}"#], r#"{ "_d": 1, "radius": 1.5 }"#),
        (["back_shape", r#"{"radius": 1.5, "_d": 2}"#], r#"{ "_d": 2, "radius": 1.5 }"#),
        (["back_shape", r#"{"name": "x"}"#], r#"{ "_d": 3, "name": "x" }"#),
        (["back_shape", r#"{"flag": true}"#], r#"{ "_d": 0, "flag": true }"#),
        (["back_shape", r#"{"_d": -7, "flag": true}"#], r#"{ "_d": -7, "flag": true }"#),
        (["back_paint", r#"{"depth": 3}"#], r#"{ "_d": "RED", "depth": 3 }"#),
        (["back_paint", r#"{"_d": "GREEN"}"#], r#"{ "_d": "GREEN" }"#),
        (["back_sign", r#"{"cost": "12.5"}"#], r#"{ "_d": true, "cost": "12.50" }"#),
        (["back_sign", r#"{"hue": "GREEN"}"#], r#"{ "_d": false, "hue": "GREEN" }"#),
    ] {
        assert_eq!(server.back(&sent), back, "{sent:?}");
    }
    for (sent, printed) in [
        (["back_shape", r#"{"name": 7}"#], "at `it.name`: expected a string, not 7"),
        (["back_shape", r#"{"nothing": 1}"#], "one of `radius`, `name`, `flag`"),
        (["back_shape", r#"{"radius": 1, "_d": 3}"#], "at `it._d`: 3 is not a label of `radius`"),
        (["back_shape", r#"{"flag": true, "_d": 1}"#], "at `it._d`: 1 is not a label of `flag`"),
        (["back_paint", r#"{"_d": "BLUE"}"#], "at `it._d`: expected one of RED, GREEN"),
    ] {
        let refused = server.call(&sent).exits(2);
        assert!(refused.err.contains(printed), "{sent:?}: {}", refused.err);
    }
}

#[test]
fn fixed_point_numbers_are_exact_or_refused() {
    let server = Server::start();
    for (sent, back) in [("1234567.89", "1234567.89"), ("-0.5", "-0.50"), ("0", "0.00"), ("\"7.1\"", "7.10")] {
        assert_eq!(server.back(&["back_money", sent]), back);
    }
    for (sent, printed) in [("1.234", "1.234"), ("12345678.00", "12345678.00"), ("much", "much")] {
        let refused = server.call(&["back_money", sent]).exits(2);
        assert!(refused.err.contains("argument 1, `it`") && refused.err.contains(printed), "{}", refused.err);
    }
}

#[test]
fn anys_name_the_type_of_what_they_hold() {
    let server = Server::start();
    assert_eq!(
        server.back(&["back_any", r#"{"type": "unsigned long", "value": 7}"#]),
        r#"{ "type": "unsigned long", "value": 7 }"#
    );
    let shape = server.back(&["back_any", r#"{"type": "Types::Shape", "value": {"name": "x"}}"#]);
    assert!(shape.contains("Shape") && shape.ends_with(r#""value": { "_d": 3, "name": "x" } }"#), "{shape}");
    let deep = r#"{"type": "any", "value": {"type": "Types::Money", "value": "1.5"}}"#;
    assert!(server.back(&["back_any", deep]).contains(r#""value": "1.50""#));
    for (sent, printed) in [
        (r#"{"type": "Zebra", "value": 7}"#, "at `it.type`: unknown type `Zebra`"),
        (r#"{"type": "octet", "value": 256}"#, "at `it.value`: 256 does not fit into octet"),
        ("7", "expected an any, {\"type\": \"long\", \"value\": 7}, not 7"),
    ] {
        let refused = server.call(&["back_any", sent]).exits(2);
        assert!(refused.err.contains(printed), "{sent}: {}", refused.err);
    }
}

#[test]
fn members_are_told_in_the_order_in_which_they_are_declared() {
    let server = Server::start();
    let bear = r#"{"type": "Types::Colour", "value": "RED"}"#;
    let zoo = format!(r#"{{"ants": ["GREEN"], "bear": {bear}, "monkey": {{"name": "x"}}, "ape": "Kong", "zebra": 1}}"#);
    let order = |text: &str| {
        let places =
            ["\"zebra\"", "\"ape\"", "\"monkey\"", "\"bear\"", "\"ants\""].map(|name| text.find(name).unwrap());
        assert!(places.is_sorted(), "{text}");
    };
    order(&server.call(&["back_zoo", &zoo]).exits(0).out);
    let json = server.call(&["back_zoo", &zoo, "--format", "json"]).exits(0);
    order(&json.out);
    assert_eq!(json.json()["reply"]["result"]["ape"], "Kong");
}

#[test]
fn a_wrong_time_is_refused_with_the_right_form() {
    let server = Server::start();
    for (time, part) in [
        ("foo", "`foo` for `--timeout <TIME>`: it is not a"),
        ("10", "write \"10ms\" or \"10s\""),
        ("0s", "must not be zero"),
    ] {
        let refused = server.call(&["back_money", "1", "--timeout", time]).exits(2);
        assert!(refused.err.contains(part) && refused.err.contains("--timeout"), "{}", refused.err);
    }
}
