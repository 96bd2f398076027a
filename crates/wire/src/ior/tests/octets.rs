use super::*;
use crate::{SystemKind, ior};

fn octets(most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..most)
}

/// A list of these within a message.
fn list<R>(items: &[Tagged<'_>], read: impl FnOnce(TaggedList<'_>) -> R) -> R {
    let mut to = Encoder::new(ByteOrder::Little);
    items.encode(&mut to).unwrap();
    read(TaggedList::decode(&mut Decoder::new(to.bytes(), ByteOrder::Little)).unwrap())
}

proptest! {
    #[test]
    fn references_come_back_octet_for_octet(
        type_id in "[ -~]{0,20}", profiles in prop::collection::vec((any::<u32>(), octets(30)), 0..4), big: bool,
    ) {
        let profiles = profiles.into_iter().map(|(tag, data)| Profile { tag, data }).collect();
        let ior = Ior { type_id, profiles };
        prop_assert_eq!(&ior.to_string().parse::<Ior>().unwrap(), &ior);
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut to = Encoder::new(order);
        ior.encode(&mut to).unwrap();
        let mut from = Decoder::new(to.bytes(), order);
        prop_assert_eq!(&Ior::decode(&mut from).unwrap(), &ior);
        prop_assert_eq!(from.left(), 0);
    }

    #[test]
    fn iiop_profiles_come_back(
        minor in 0..3u8, host in "[a-z0-9.:-]{0,20}", port: u16, key in octets(20),
        components in prop::collection::vec((any::<u32>(), octets(20)), 0..4),
    ) {
        let version = Version::from_octets(1, minor).unwrap();
        let components: Vec<_> = components.iter().map(|(tag, data)| Tagged { tag: *tag, data }).collect();
        let made = Profile::iiop(version, &host, port, &key, &components);
        if minor == 0 && !components.is_empty() {
            prop_assert!(made.is_err());
            return Ok(());
        }
        let profile = made.unwrap();
        let read = IiopProfile::decode(&profile).unwrap();
        prop_assert_eq!((read.version(), read.host, read.port, read.key), (version, &host[..], port, &key[..]));
        prop_assert_eq!(read.components.collect::<Vec<_>>(), components);
    }

    #[test]
    fn no_octets_make_a_reference_panic(octets in octets(200), tag in prop::sample::select(&[
        0, 1, 2, 3, 20, TAG_TAO_ENDPOINTS, TAG_OMNIORB_UNIX_TRANS, TAG_OMNIORB_BIDIR,
    ][..])) {
        drop(Component::decode(Tagged { tag, data: &octets }));
        for tag in [TAG_INTERNET_IOP, TAG_MULTIPLE_COMPONENTS] {
            let profile = Profile { tag, data: octets.clone() };
            if let Ok(iiop) = IiopProfile::decode(&profile) {
                iiop.endpoints();
            }
            drop(multiple_components(&profile));
        }
        drop(Ior::decode(&mut Decoder::new(&octets, ByteOrder::Big)));
    }

    #[test]
    fn a_cut_reference_is_refused_where_it_ends(cut in 5..OMNI.len()) {
        let error = OMNI[..cut].parse::<Ior>().unwrap_err();
        prop_assert!(error.at <= cut, "{}", error);
    }
}

#[test]
fn omniorbs_reference_is_read() {
    let ior: Ior = OMNI.parse().unwrap();
    assert_eq!(ior.type_id, "IDL:omg.org/CosNaming/NamingContextExt:1.0");
    let profile = ior.iiop().next().unwrap().unwrap();
    assert_eq!((profile.minor, profile.host, profile.port, profile.key), (2, "127.0.0.1", 12809, &b"NameService"[..]));
    let components: Vec<_> = profile.components.clone().map(|c| Component::decode(c).unwrap()).collect();
    let narrow = Offer { native: CodeSet::LATIN1, conversions: [CodeSet::UTF8].into() };
    let wide = Offer { native: CodeSet::UTF16, conversions: [CodeSet::UTF16].into() };
    let sets = CodeSets { narrow, wide };
    assert_eq!(
        components,
        [
            Component::OrbType(ORB_OMNIORB),
            Component::CodeSets(sets.clone()),
            Component::OmniUnix { host: "vm", path: "/run/naming/socket" },
            Component::Other(Tagged { tag: TAG_OMNIORB_PERSISTENT_ID, data: b"\xd7\x1a\x02\x6b\x01\0\x30\xa5" }),
        ]
    );
    let chosen = Transmission::choose(&sets).unwrap();
    assert_eq!(chosen, Transmission { narrow: CodeSet::UTF8, wide: CodeSet::UTF16 });
    let endpoints = profile.endpoints();
    assert_eq!(endpoints[0], IorEndpoint::Tcp { host: "127.0.0.1".into(), port: 12809, priority: None });
    assert_eq!(endpoints[1], IorEndpoint::Unix { host: "vm".into(), path: "/run/naming/socket".into() });
}

#[test]
fn components_come_back_as_they_were() {
    let model = encapsulation(ByteOrder::Big, |to| {
        1u32.encode(to)?;
        7i16.encode(to)
    })
    .unwrap();
    let bands = encapsulation(ByteOrder::Little, |to| Vec::from([[1i16, 5], [6, 9]]).encode(to)).unwrap();
    let policies =
        [Tagged { tag: POLICY_PRIORITY_MODEL, data: &model }, Tagged { tag: POLICY_PRIORITY_BANDS, data: &bands }];
    list(&policies, |policies| {
        let model = PriorityModelPolicy { client_propagated: false, priority: 7 };
        assert_eq!(PriorityModelPolicy::read(policies.clone().next().unwrap()), Ok(Some(model)));
        assert_eq!(
            PriorityModelPolicy::read_bands(policies.clone().nth(1).unwrap()),
            Ok(Some(Vec::from([[1, 5], [6, 9]])))
        );
        let all = [
            Component::OrbType(ORB_TAO),
            Component::CodeSets(CodeSets::ours()),
            Component::Policies(policies),
            Component::AlternateAddress { host: "::1", port: 7 },
            Component::Ssl(SslTransport { supports: 0x66, requires: 0x60, port: 2810 }),
            Component::TaoEndpoints(Vec::from([TaoEndpoint { host: "a", port: 1, priority: -1 }])),
            Component::OmniUnix { host: "here", path: "/run/x" },
            Component::OmniBidir("from"),
            Component::Other(Tagged { tag: 77, data: b"\x07as it is" }),
        ];
        for component in all {
            let data = component.data().unwrap();
            assert_eq!(Component::decode(Tagged { tag: component.tag(), data: &data }).unwrap(), component);
        }
    });
}

#[test]
fn all_places_of_a_profile_are_listed_once() {
    let ssl = Component::Ssl(SslTransport { supports: 0x66, requires: 0x40, port: 2810 }).data().unwrap();
    let other = Component::AlternateAddress { host: "b", port: 2 }.data().unwrap();
    let lanes = Component::TaoEndpoints(Vec::from([
        TaoEndpoint { host: "a", port: 1, priority: 5 },
        TaoEndpoint { host: "a", port: 3, priority: 9 },
    ]));
    let lanes = lanes.data().unwrap();
    let components = [
        Tagged { tag: TAG_SSL_SEC_TRANS, data: &ssl },
        Tagged { tag: TAG_ALTERNATE_IIOP_ADDRESS, data: &other },
        Tagged { tag: TAG_TAO_ENDPOINTS, data: &lanes },
        Tagged { tag: TAG_ALTERNATE_IIOP_ADDRESS, data: b"broken" },
    ];
    let profile = Profile::iiop(Version::V1_2, "a", 1, b"k", &components).unwrap();
    let tcp = |host: &str, port, priority| IorEndpoint::Tcp { host: host.into(), port, priority };
    assert_eq!(
        IiopProfile::decode(&profile).unwrap().endpoints(),
        [
            tcp("a", 1, Some(5)),
            IorEndpoint::Tls { host: "a".into(), port: 2810, requires: 0x40 },
            tcp("b", 2, None),
            tcp("a", 3, Some(9)),
        ]
    );
}

#[test]
fn a_profile_of_components_only_is_read() {
    let data = encapsulation(ByteOrder::Little, |to| Vec::from([Tagged { tag: 5, data: b"key" }]).encode(to)).unwrap();
    let profile = Profile { tag: TAG_MULTIPLE_COMPONENTS, data };
    assert_eq!(multiple_components(&profile).unwrap().get(5), Some(&b"key"[..]));
    assert!(IiopProfile::decode(&profile).is_err());
    assert!(ior::multiple_components(&Profile { tag: 0, data: Vec::new() }).is_err());
}

#[test]
fn nil_is_the_reference_without_profiles() {
    assert_eq!(Ior::NIL.to_string(), "IOR:00000000000000010000000000000000");
    assert!("IOR:00000000000000010000000000000000".parse::<Ior>().unwrap().is_nil());
    // Some peers write it like this.
    assert!("IOR:01000000000000000000000000".parse::<Ior>().unwrap().is_nil());
}

#[test]
fn code_sets_are_agreed_upon() {
    let offer = |native: u32, conversions: &[u32]| Offer {
        native: CodeSet(native),
        conversions: conversions.iter().map(|set| CodeSet(*set)).collect(),
    };
    let utf16 = || offer(0x10109, &[0x10109]);
    let (utf8, latin1) = (CodeSet::UTF8, CodeSet::LATIN1);
    let incompatible = Err(SystemKind::CodesetIncompatible);
    let table = [
        ("omniORB", offer(0x10001, &[0x0501_0001]), utf16(), Ok((utf8, CodeSet::UTF16))),
        ("JacORB", offer(0x0501_0001, &[0x10001]), offer(0x10109, &[]), Ok((utf8, CodeSet::UTF16))),
        ("Latin-1 only", offer(0x10001, &[]), offer(0x10100, &[]), Ok((latin1, CodeSet::UTF16))),
        ("Greek: the fallback", offer(0x10007, &[]), utf16(), Ok((utf8, CodeSet::UTF16))),
        ("no wide characters", offer(0x10001, &[0x0501_0001]), Offer::default(), Ok((utf8, CodeSet::NONE))),
        ("EBCDIC", offer(0x1002_0025, &[]), utf16(), incompatible),
        ("EBCDIC that converts", offer(0x1002_0025, &[0x10001]), utf16(), Ok((latin1, CodeSet::UTF16))),
        ("an unrelated wide set", offer(0x10001, &[]), offer(0x0003_0010, &[]), incompatible),
    ];
    for (server, narrow, wide, expected) in table {
        let chosen = Transmission::choose(&CodeSets { narrow, wide });
        assert_eq!(chosen.map(|t| (t.narrow, t.wide)).map_err(|e| e.kind), expected, "{server}");
        if let Ok(chosen) = chosen {
            chosen.chars().unwrap();
        }
    }
    let odd = Transmission { narrow: CodeSet::UTF8, wide: CodeSet(0x10104) };
    assert_eq!(odd.chars().unwrap_err().kind, SystemKind::CodesetIncompatible);
}
