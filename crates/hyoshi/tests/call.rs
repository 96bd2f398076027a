//! `hyoshi call`: operations of an object in another process, typed by its IDL.

use crate::common;
use crate::tracker_idl;

use std::path::Path;
use std::sync::Arc;

use common::{Ended, Place};
use hyoshi_orb::{IorEndpoint, Orb, SystemException, SystemKind};
use serde_json::json;
use tracker_idl::tracking::*;

struct Yard;

impl Named for Yard {
    fn name(&self) -> Result<String, SystemException> {
        Ok("yard ä".to_owned())
    }
}

impl Tracker for Yard {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        match id {
            7 => Ok(Position { x: 1.5, y: -2.0 }),
            8 => Err(Lost.into()),
            9 => Err(SystemKind::NoPermission.not_done(0).into()),
            _ => Err(UnknownTarget { id }.into()),
        }
    }

    fn follow(&self, _: u32) -> Result<(Path_, Quality), FollowError> {
        Ok((vec![Position { x: 1.0, y: 2.0 }], Quality::Seen))
    }

    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }

    fn correct(&self, place: &mut Position) -> Result<(f64, String), SystemException> {
        place.x += 1.0;
        Ok((0.5, "uphill".to_owned()))
    }

    fn subscribe(&self, who: Option<&CallbackStub>) -> Result<(), SystemException> {
        if who.is_some() { Ok(()) } else { Err(SystemKind::BadParam.not_done(0)) }
    }

    fn patience(&self) -> Result<u16, SystemException> {
        Ok(30)
    }

    fn set_patience(&self, _: u16) -> Result<(), SystemException> {
        Ok(())
    }
}

type Path_ = tracker_idl::tracking::Path;

/// A server, and its reference in `tracker.ior`.
fn server() -> (Place, Orb) {
    let place = Place::new();
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let tracker = orb.adapter("trackers").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard)).unwrap();
    place.write("tracker.ior", tracker.ior().to_string());
    let idl = Path::new(env!("CARGO_MANIFEST_DIR")).join("../idl/tests/golden/tracker.idl");
    place.write("tracker.idl", std::fs::read(idl).unwrap());
    (place, orb)
}

fn port(orb: &Orb) -> u16 {
    let Some(IorEndpoint::Tcp { port, .. }) = orb.endpoints().first() else { panic!("it listens on TCP") };
    *port
}

fn call(place: &Place, words: &[&str]) -> Ended {
    let mut command = place.command("call file:tracker.ior");
    command.args(words);
    Ended::of(&words.join(" "), &command.output().unwrap())
}

fn typed(place: &Place, words: &[&str]) -> Ended {
    call(place, &[words, &["--idl", "tracker.idl"]].concat())
}

#[test]
fn replies_are_printed_by_type() {
    let (place, _orb) = server();
    let reply = typed(&place, &["locate", "7", "--format", "json"]).exits(0).json();
    assert_eq!(reply["reply"], json!({ "result": { "x": 1.5, "y": -2.0 } }));
    let reply = typed(&place, &["follow", "7", "--format", "json"]).exits(0).json();
    assert_eq!(reply["reply"], json!({ "result": [{ "x": 1.0, "y": 2.0 }], "how_sure": "SEEN" }));
    let reply = typed(&place, &["correct", r#"{"x": 1, "y": 2}"#, "--format", "json"]).exits(0).json();
    assert_eq!(reply["reply"], json!({ "result": 0.5, "place": { "x": 2.0, "y": 2.0 }, "why": "uphill" }));
    assert_eq!(typed(&place, &["name"]).exits(0).out, "yard ä\n");
    assert_eq!(typed(&place, &["_get_patience"]).exits(0).out, "30\n");
    assert_eq!(typed(&place, &["_set_patience", "5"]).exits(0).out, "");
    assert_eq!(typed(&place, &["hint", "over there", "0x01ff"]).exits(0).out, "");
    let reference = place.read("tracker.ior");
    assert_eq!(typed(&place, &["subscribe", &reference]).exits(0).out, "");
}

#[test]
fn without_idl_an_object_answers_what_every_object_does() {
    let (place, _orb) = server();
    assert_eq!(call(&place, &["_non_existent"]).exits(0).out, "false\n");
    assert_eq!(call(&place, &["_is_a", "IDL:Tracking/Named:1.0"]).exits(0).out, "true\n");
    let refused = call(&place, &["locate", "7"]).exits(2);
    assert!(refused.err.contains("unknown without its IDL"), "{}", refused.err);
}

#[test]
fn exceptions_are_told_in_words() {
    let (place, orb) = server();
    let raised = typed(&place, &["locate", "6"]).exits(1);
    assert_eq!(raised.err, "raised UnknownTarget (IDL:Tracking/UnknownTarget:1.0)\n  id: 6\n");
    let raised = typed(&place, &["locate", "6", "--format", "json"]).exits(1).json();
    assert_eq!(raised["raised"]["members"], json!({ "id": 6 }));
    let raised = typed(&place, &["locate", "8"]).exits(1);
    assert!(raised.err.starts_with("raised Lost"), "{}", raised.err);
    let raised = typed(&place, &["locate", "9"]).exits(1);
    assert!(raised.err.contains("NO_PERMISSION") && raised.err.contains("help: "), "{}", raised.err);
    let raised = typed(&place, &["subscribe", "nil", "--format", "json"]).exits(1).json();
    assert_eq!((&raised["raised"]["name"], &raised["raised"]["completed"]), (&json!("BAD_PARAM"), &json!("no")));
    let raised = call(&place, &["fly"]).exits(1);
    assert!(raised.err.contains("BAD_OPERATION"), "{}", raised.err);
    orb.shutdown();
    drop(orb);
    let raised = typed(&place, &["locate", "7", "--timeout", "5s"]).exits(1);
    assert!(
        raised.err.contains("TRANSIENT") && raised.err.contains("No server listens at the address"),
        "{}",
        raised.err
    );
}

#[test]
fn wrong_arguments_are_told_with_parameter_type_and_place() {
    let (place, _orb) = server();
    for (words, printed) in [
        (&["locate", "seven"][..], "argument 1, `id` (unsigned long): `seven` is not JSON"),
        (&["locate", "-1"], "argument 1, `id` (unsigned long): -1 does not fit into unsigned long"),
        (&["locate", "true"], "argument 1, `id` (unsigned long): expected a number (unsigned long), not true"),
        (&["locate"], "`locate` needs 1 argument, not 0"),
        (&["name", "new"], "`_get_name` needs 0 arguments, not 1\nhelp: it returns the attribute"),
        (&["correct", r#"{"x": 1, "z": 2}"#], "Position has no member `z`; it has `x`, `y`"),
        (&["correct", r#"{"x": 1}"#], "`y` (double) is missing"),
        (&["correct", r#"{"x": 1, "y": "2"}"#], "argument 1, `place` (Position) at `place.y`: expected a number"),
        (&["hint", "x", "0x1"], "argument 2, `raw` (Octets): expected octets"),
        (&["hint", "x", "[1, 256]"], "`raw[1]`: 256 does not fit into octet"),
        (&["subscribe", "IOR:xyz"], "expected a reference"),
        (&["locat", "7"], "did you mean `locate`?"),
        (&["locate", "7", "--interface", "Trackr"], "the file declares no interface `Trackr`"),
    ] {
        let refused = typed(&place, words).exits(2);
        assert!(refused.err.contains(printed), "{words:?}: {}", refused.err);
    }
    let refused = place.hyoshi("call nonsense locate").exits(2);
    assert!(refused.err.contains("cannot read nonsense") && refused.err.contains("write IOR:..."), "{}", refused.err);
    let reply = typed(&place, &["locate", "7", "--interface", "Tracking::Tracker"]).exits(0).out;
    assert!(reply.contains("\"x\": 1.5"), "{reply}");
}

#[test]
fn an_object_found_by_its_key_says_which_interface_of_the_file_it_has() {
    let (place, orb) = server();
    let tracker = orb.resolve::<dyn Tracker>(&place.read("tracker.ior")).unwrap();
    orb.publish("Tracker", &tracker).unwrap();
    let port = port(&orb);
    let key = format!("corbaloc:iiop:1.2@127.0.0.1:{port}/Tracker");
    let call = |words: &[&str]| {
        let mut command = place.command("call");
        command.arg(&key).args(words).args(["--idl", "several.idl"]);
        Ended::of(&words.join(" "), &command.output().unwrap())
    };
    // Another with an operation of that name, and declared first.
    let other = "interface Other { void locate(); void land(); };\ninterface More : Other {};\n";
    place.write("several.idl", format!("{other}{}", place.read("tracker.idl")));
    assert!(call(&["locate", "7"]).exits(0).out.contains("\"x\": 1.5"));
    assert_eq!(call(&["_non_existent"]).exits(0).out, "false\n");
    let refused = call(&["land"]).exits(2);
    assert!(
        refused.err.contains("none of the file's interfaces with an operation `land`: Other, More"),
        "{}",
        refused.err
    );
    let refused = call(&["fly"]).exits(2);
    assert!(refused.err.contains("no interface of the file has an operation `fly`"), "{}", refused.err);
}

#[test]
fn a_reference_is_taken_from_a_file_and_told_where_it_is_wrong() {
    let (place, orb) = server();
    let plain = place.hyoshi("call tracker.ior name --idl tracker.idl").exits(0);
    assert_eq!(plain.out, "yard \u{e4}\n");
    let refused = place.hyoshi("call corbaloc:iiop:host:99999/Key name").exits(2);
    assert!(
        refused.err.contains("a port is a number from 1 to 65535") && refused.err.contains("  ^"),
        "{}",
        refused.err
    );
    let refused = place.hyoshi("call gone.ior name").exits(2);
    assert!(refused.err.contains("cannot read gone.ior"), "{}", refused.err);
    let untyped = place.hyoshi("call tracker.ior _get_name").exits(0);
    assert!(untyped.err.contains("--idl FILE decodes them"), "{}", untyped.err);
    let port = port(&orb);
    let unknown = place.hyoshi(&format!("call corbaloc:iiop:1.2@127.0.0.1:{port}/Nothing fly")).exits(1);
    assert!(unknown.err.contains("compare the key with what the server publishes"), "{}", unknown.err);
    orb.shutdown();
    drop(orb);
    let dead = place.hyoshi("call tracker.ior fly").exits(1);
    assert!(dead.err.contains(&format!(" at 127.0.0.1:{port}: No server listens")), "{}", dead.err);
}
