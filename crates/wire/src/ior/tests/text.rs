use super::*;

fn address() -> impl Strategy<Value = CorbalocAddress> {
    let version = prop::sample::select(&[Version::V1_0, Version::V1_1, Version::V1_2][..]);
    let ipv6 = any::<core::net::Ipv6Addr>().prop_map(|address| address.to_string());
    let host = prop_oneof!["[a-z0-9][a-z0-9.-]{0,12}", ipv6, Just("fe80::1%eth0".to_string())];
    let tcp = (version, host, 1..=u16::MAX, any::<bool>()).prop_map(|(version, host, port, tls)| {
        if tls {
            CorbalocAddress::Ssliop { version, host, port }
        } else {
            CorbalocAddress::Iiop { version, host, port }
        }
    });
    prop_oneof![4 => tcp, 1 => "[^\0\n]{1,20}".prop_map(|path| CorbalocAddress::Unix { path })]
}

fn corbaloc() -> impl Strategy<Value = Corbaloc> {
    let addresses = prop_oneof![
        5 => prop::collection::vec(address(), 1..4),
        1 => Just(Vec::from([CorbalocAddress::Rir])),
    ];
    (addresses, prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(addresses, key)| Corbaloc { addresses, key })
}

fn name() -> impl Strategy<Value = Vec<NameComponent>> {
    prop::collection::vec(("[^\0\n]{0,6}", "[a-z./\\\\]{0,3}"), 0..4)
        .prop_map(|parts| parts.into_iter().map(|(id, kind)| NameComponent { id, kind }).collect())
}

proptest! {
    #[test]
    fn corbalocs_come_back_as_they_were(corbaloc in corbaloc()) {
        let text = corbaloc.to_string();
        prop_assert_eq!(text.parse::<ObjectUrl>().map_err(|e| e.to_string()), Ok(ObjectUrl::Corbaloc(corbaloc)), "{}", text);
    }

    #[test]
    fn corbanames_come_back_as_they_were(mut context in corbaloc(), name in name()) {
        if context.key.is_empty() {
            context.key = b"NameService".into();
        }
        let corbaname = Corbaname { context, name };
        let text = corbaname.to_string();
        prop_assert_eq!(text.parse::<ObjectUrl>().map_err(|e| e.to_string()), Ok(ObjectUrl::Corbaname(corbaname)), "{}", text);
    }

    #[test]
    fn names_come_back_as_they_were(name in name()) {
        let text = print_name(&name);
        prop_assert_eq!(parse_name(&text), Ok(name), "{}", text);
    }

    #[test]
    fn no_text_makes_a_reference_panic(
        scheme in "|IOR:|corbaloc:|corbaname:|corbaloc:(iiop|ssliop|omniunix)?:", rest in "([a-f0-9:/@%#,.\\[\\]\\\\]|%[0-9][0-9]){0,30}|.{0,20}",
    ) {
        let text = [scheme, rest].concat();
        match text.parse::<ObjectUrl>() {
            Ok(ObjectUrl::Corbaloc(corbaloc)) => prop_assert!(corbaloc.ior("IDL:T:1.0").is_ok()),
            Ok(_) => {}
            Err(error) => {
                prop_assert!(error.at <= text.len());
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}

#[test]
fn corbalocs_are_read_as_the_standard_writes_them() {
    let iiop = |version, host: &str, port| CorbalocAddress::Iiop { version, host: host.into(), port };
    let ssliop = |version, host: &str, port| CorbalocAddress::Ssliop { version, host: host.into(), port };
    let unix = |path: &str| CorbalocAddress::Unix { path: path.into() };
    let (v0, v1, v2) = (Version::V1_0, Version::V1_1, Version::V1_2);
    let table: &[(&str, &[CorbalocAddress], &[u8])] = &[
        ("corbaloc::555xyz.com/Prod/TradingService", &[iiop(v0, "555xyz.com", 2809)], b"Prod/TradingService"),
        ("corbaloc:iiop:1.1@555xyz.com/Prod", &[iiop(v1, "555xyz.com", 2809)], b"Prod"),
        (
            "corbaloc::1.1@555xyz.com:80,:1.2@555ABC.com/Dev",
            &[iiop(v1, "555xyz.com", 80), iiop(v2, "555ABC.com", 2809)],
            b"Dev",
        ),
        ("corbaloc:rir:/NameService", &[CorbalocAddress::Rir], b"NameService"),
        ("corbaloc:rir:", &[CorbalocAddress::Rir], b""),
        ("CORBALOC:IIOP:host", &[iiop(v0, "host", 2809)], b""),
        ("corbaloc:iiop:1.2@[2001:db8::1]:9999/a%00%fFb", &[iiop(v2, "2001:db8::1", 9999)], b"a\0\xffb"),
        ("corbaloc:iiop:[::1]/k", &[iiop(v0, "::1", 2809)], b"k"),
        ("corbaloc:::9/k", &[iiop(v0, "", 9)], b"k"),
        ("corbaloc:ssliop:1.2@h:2810/k@h", &[ssliop(v2, "h", 2810)], b"k@h"),
        ("corbaloc:omniunix:/run/a%20b:/Key", &[unix("/run/a b")], b"Key"),
        ("corbaloc:omniunix:/run/x:,iiop:h:1/Key", &[unix("/run/x"), iiop(v0, "h", 1)], b"Key"),
        ("  corbaloc:rir:/X\n", &[CorbalocAddress::Rir], b"X"),
    ];
    for (text, addresses, key) in table {
        let Ok(ObjectUrl::Corbaloc(got)) = text.parse() else { panic!("{text}") };
        assert_eq!((&got.addresses[..], &got.key[..]), (*addresses, *key), "{text}");
    }
}

#[test]
fn corbanames_are_read_as_the_standard_writes_them() {
    let part = |id: &str, kind: &str| NameComponent { id: id.into(), kind: kind.into() };
    let table = [
        (
            "corbaname::foo.bar:2050/Personal/schedule#a/str%5c%2fing.x/.",
            &b"Personal/schedule"[..],
            Vec::from([part("a", ""), part("str/ing", "x"), part("", "")]),
        ),
        ("corbaname:rir:#a.b/c", b"NameService", Vec::from([part("a", "b"), part("c", "")])),
        ("corbaname::host", b"NameService", Vec::new()),
        ("corbaname::host/#.kind", b"NameService", Vec::from([part("", "kind")])),
    ];
    for (text, key, name) in table {
        let got: Corbaname = text.parse().unwrap();
        assert_eq!((&got.context.key[..], got.name), (key, name), "{text}");
    }
}

#[test]
fn corbalocs_become_references() {
    let text = "corbaloc:iiop:1.1@a:1,ssliop:1.0@b:2,omniunix:/run/x:,iiop::3/key";
    let ior = text.parse::<Corbaloc>().unwrap().ior("IDL:T:1.0").unwrap().unwrap();
    let profiles: Vec<_> = ior.iiop().map(|profile| profile.unwrap()).collect();
    assert!(profiles.iter().all(|profile| profile.key == b"key"));
    let endpoints: Vec<_> = profiles.iter().flat_map(IiopProfile::endpoints).collect();
    let tcp = |host: &str, port| IorEndpoint::Tcp { host: host.into(), port, priority: None };
    assert_eq!(
        endpoints,
        [
            tcp("a", 1),
            IorEndpoint::Tls { host: "b".into(), port: 2, requires: 0 },
            IorEndpoint::Unix { host: String::new(), path: "/run/x".into() },
            tcp("localhost", 3),
        ]
    );
    assert_eq!("corbaloc:rir:/X".parse::<Corbaloc>().unwrap().ior(""), Ok(None));
}

#[test]
fn errors_tell_where_and_what_to_do() {
    let table = [
        ("", "a reference begins with IOR:, corbaloc: or corbaname:, at character 0"),
        ("iiop://h:1/k", "a reference begins with IOR:, corbaloc: or corbaname:, at character 0"),
        ("IOR:00g0", "'g' is not a hexadecimal digit, at character 6"),
        ("  IOR:00 00", "' ' is not a hexadecimal digit, at character 8"),
        ("IOR:000", "an odd number of digits: the reference is incomplete, at character 6"),
        (
            "IOR:0000000000000004494400",
            "the octets are not a reference: 4 octets needed, 3 left, at octet 8 (character 20); it may be incomplete",
        ),
        (
            "IOR:",
            "the octets are not a reference: 1 octets needed, 0 left, at octet 0 (character 4); it may be incomplete",
        ),
        ("corbaloc:host:2809/k", "unknown protocol; known: iiop:, ssliop:, omniunix:/path: and rir:, at character 9"),
        ("corbaloc:iiop:2.0@h/k", "unsupported version; supported: 1.0@, 1.1@ and 1.2@, at character 14"),
        ("corbaloc::::1/k", "an IPv6 address needs brackets, [::1]:2809, at character 11"),
        ("corbaloc::[::1/k", "an IPv6 address needs brackets, [::1]:2809, at character 10"),
        ("corbaloc::[c\0]/k", "an IPv6 address needs brackets, [::1]:2809, at character 10"),
        ("corbaloc::[::1%]/k", "an IPv6 address needs brackets, [::1]:2809, at character 10"),
        ("corbaloc::h:0/k", "a port is a number from 1 to 65535, at character 12"),
        ("corbaloc::h:70000/k", "a port is a number from 1 to 65535, at character 12"),
        ("corbaloc::h:+1/k", "a port is a number from 1 to 65535, at character 12"),
        ("corbaloc:rir:,:h/k", "rir: cannot be combined with other addresses, at character 9"),
        (
            "corbaloc:omniunix:/run/x/k",
            "the path of a Unix socket ends in a colon, omniunix:/path:/key, at character 18",
        ),
        ("corbaloc:omniunix:/run%00/x:/k", "paths and names cannot contain a NUL: remove it, at character 22"),
        ("corbaname::h#a%00b", "paths and names cannot contain a NUL: remove it, at character 14"),
        ("corbaloc::h/a%2", "% is followed by two hexadecimal digits, at character 13"),
        ("corbaloc::h/aäb", "write 'ä' as %c3%a4, at character 13"),
        ("corbaname::h#%ff", "the name is not UTF-8, at character 13"),
        (
            "corbaname::h#a.b.c",
            "a component of a name is id, id.kind or .kind; write other dots as \\., at character 16",
        ),
        (
            "corbaname::h#a//b",
            "a component of a name is empty; write one without id and kind as a dot, at character 15",
        ),
        ("corbaname::h#a%5cb", "\\ is only allowed before a dot, a slash or another \\, at character 14"),
    ];
    for (text, expected) in table {
        assert_eq!(text.parse::<ObjectUrl>().unwrap_err().to_string(), expected, "{text}");
    }
}
