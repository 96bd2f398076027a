//! `hyoshi ior decode` tells all that a reference says, and where one is broken.
//!
//! `tests/golden/ior.txt` holds the answers word by word. After a change of wording: `BLESS=1 cargo test -p hyoshi
//! --test ior`, then read the diff by eye.

use crate::common;

use std::fmt::Write;
use std::fs;

use common::Place;
use hyoshi_wire::giop::{CodeSet, CodeSets, Offer};
use hyoshi_wire::ior::{
    Component, Ior, ORB_JACORB, ORB_TAO, POLICY_PRIORITY_BANDS, POLICY_PRIORITY_MODEL, Profile, SslTransport,
    TAG_MULTIPLE_COMPONENTS, TAG_POLICIES, TAG_SSL_SEC_TRANS, TaoEndpoint,
};
use hyoshi_wire::tagged::{Tagged, encapsulation};
use hyoshi_wire::{ByteOrder, Encode, Version};

/// The root context of omniNames 4.2.5 that listens on TCP and on a Unix socket.
const OMNI: &str = "IOR:010000002b00000049444c3a6f6d672e6f72672f436f734e616d696e672f4e616d696e67436f6e746578744578743a312e\
                    300000010000000000000098000000010102000a0000003132372e302e302e310009320b0000004e616d65536572766963\
                    65000400000000000000080000000100000000545441010000001c00000001000000010001000100000001000105090101\
                    00010000000901010002545441230000000100000003000000766d0000130000002f72756e2f6e616d696e672f736f636b\
                    657400000354544108000000d71a026b010030a5";

fn with(components: &[(u32, Vec<u8>)], profile: impl FnOnce(&[Tagged<'_>]) -> Profile) -> Profile {
    let components: Vec<_> = components.iter().map(|(tag, data)| Tagged { tag: *tag, data }).collect();
    profile(&components)
}

fn component(component: &Component<'_>) -> (u32, Vec<u8>) {
    (component.tag(), component.data().unwrap())
}

/// As TAO writes those of a server with lanes (priority model, bands, endpoints).
fn tao() -> Ior {
    let model = encapsulation(ByteOrder::Little, |to| {
        0u32.encode(to)?;
        10i16.encode(to)
    });
    let bands = encapsulation(ByteOrder::Little, |to| vec![[0i16, 9], [10, 99]].encode(to));
    let policies = [
        Tagged { tag: POLICY_PRIORITY_MODEL, data: &model.unwrap() },
        Tagged { tag: POLICY_PRIORITY_BANDS, data: &bands.unwrap() },
        Tagged { tag: 999, data: b"\x01?" },
    ];
    let policies = encapsulation(ByteOrder::Little, |to| policies.to_vec().encode(to)).unwrap();
    let endpoints = vec![
        TaoEndpoint { host: "10.0.0.1", port: 4001, priority: 5 },
        TaoEndpoint { host: "10.0.0.1", port: 4002, priority: 50 },
    ];
    let components = [
        component(&Component::OrbType(ORB_TAO)),
        (TAG_POLICIES, policies),
        component(&Component::TaoEndpoints(endpoints)),
    ];
    let profile = with(&components, |components| {
        Profile::iiop(Version::V1_2, "10.0.0.1", 4001, b"\x14\x01\x0f\x00RTPOA\x00", components).unwrap()
    });
    Ior { type_id: "IDL:Test:1.0".into(), profiles: vec![profile] }
}

/// TLS only, an alternate address, EBCDIC, and more that no server has at once.
fn odd() -> Ior {
    let narrow = Offer { native: CodeSet(0x1002_0025), conversions: vec![] };
    let components = [
        component(&Component::OrbType(ORB_JACORB)),
        component(&Component::Ssl(SslTransport { supports: 0x66, requires: 0x40, port: 2810 })),
        component(&Component::AlternateAddress { host: "2001:db8::1", port: 2811 }),
        component(&Component::CodeSets(CodeSets { narrow, wide: Offer::default() })),
        component(&Component::OmniBidir("10.0.0.9")),
        (77, b"left as it is".to_vec()),
        (78, vec![7; 100]),
        (5, vec![]),
    ];
    let profile = with(&components, |components| Profile::iiop(Version::V1_1, "host", 0, b"", components).unwrap());
    let multiple = encapsulation(ByteOrder::Big, |to| vec![Tagged { tag: 12, data: b"\x02" }].encode(to)).unwrap();
    let others = [
        Profile { tag: TAG_MULTIPLE_COMPONENTS, data: multiple },
        Profile { tag: 0x4d49_0001, data: b"what\x1b[2Jever".to_vec() },
        Profile::iiop(Version::V1_0, "", 0, b"k", &[]).unwrap(),
    ];
    Ior { type_id: String::new(), profiles: [profile].into_iter().chain(others).collect() }
}

fn broken() -> Ior {
    let components = [(TAG_SSL_SEC_TRANS, vec![0, 1, 2])];
    let first = with(&components, |components| Profile::iiop(Version::V1_2, "h", 1, b"k", components).unwrap());
    let second = Profile { tag: 0, data: vec![0, 1, 2, 0, 0, 0, 0, 99] };
    Ior { type_id: "IDL:T:1.0".into(), profiles: vec![first, second] }
}

#[test]
fn a_reference_is_told_in_words() {
    let place = Place::new();
    let cases = [
        ("omni.ior", format!("{OMNI}\n"), 0),
        ("tao.ior", tao().to_string(), 0),
        ("odd.ior", odd().to_string(), 0),
        ("broken.ior", broken().to_string(), 1),
        ("nil.ior", Ior::NIL.to_string(), 0),
        ("cut.ior", OMNI[..121].to_owned(), 2),
        ("typed.ior", "IOR:0l00".to_owned(), 2),
        ("empty.ior", "\n".to_owned(), 2),
    ];
    let mut said = String::new();
    let mut ask = |words: &str, exit: i32| {
        let ended = place.hyoshi(&format!("ior decode {words}")).exits(exit);
        writeln!(said, "$ hyoshi ior decode {words}\n{}{}", ended.out, ended.err).unwrap();
    };
    for (name, text, exit) in cases {
        fs::write(place.path().join(name), text).unwrap();
        ask(name, exit);
    }
    ask("corbaloc:iiop:1.2@host:2809,ssliop:1.3@host/Tracker", 2);
    ask("corbaloc:iiop:1.2@host:2809,ssliop:1.2@host:2810,omniunix:/run/tracker:/Tracker%00", 0);
    ask("corbaloc:rir:/NameService", 0);
    ask("corbaname::[::1]#plant/tracker.service", 0);
    ask("corbaloc:host:2809/Tracker", 2);
    ask("nowhere.ior", 2);
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/ior.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&golden, said).unwrap();
        return;
    }
    assert_eq!(said, fs::read_to_string(&golden).unwrap_or_default(), "BLESS=1 takes the new words");
}

#[test]
fn json_says_the_same() {
    let place = Place::new();
    let json = place.hyoshi(&format!("ior decode --format json {OMNI}")).exits(0).json();
    let reference = &json["reference"];
    assert_eq!((reference["kind"].as_str(), json["holds"].as_bool()), (Some("ior"), Some(true)));
    let profile = &reference["profiles"][0];
    assert_eq!(profile["endpoints"][1]["path"], "/run/naming/socket");
    assert_eq!(profile["key"]["text"], "NameService");
    assert_eq!(profile["components"][1]["code_sets"]["chosen"]["char"], "UTF-8");

    let doc = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let doc = fs::read_to_string(doc).unwrap();
    for ior in [tao(), odd(), broken()] {
        let json = place.hyoshi(&format!("ior decode --format json {ior}"));
        let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        names(&json["reference"], &mut |name| assert!(doc.contains(&format!("`{name}`")), "docs/json.md lacks {name}"));
    }
}

/// Each name of a field, at any depth.
fn names(value: &serde_json::Value, tell: &mut impl FnMut(&str)) {
    match value {
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            tell(name);
            names(value, tell);
        }),
        serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, tell)),
        _ => {}
    }
}
