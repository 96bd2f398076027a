//! `corbaname:` addresses, which the ORB resolves without this crate's stubs.

use hyoshi_naming::{Naming, NamingContext, NamingLimits, NamingService};
use hyoshi_orb::{IorEndpoint, Orb, SystemKind, minor};

#[test]
fn an_orb_resolves_names_and_reports_why_it_cannot() {
    let server = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let _service = NamingService::start(&server, None, NamingLimits::default()).unwrap();
    server.ready();
    let Some(IorEndpoint::Tcp { port, .. }) = server.endpoints().first() else { panic!("it listens") };
    let at = format!("iiop:1.2@127.0.0.1:{port}");
    let client = Orb::builder().initial("NameService", &format!("corbaloc:{at}/NameService")).build().unwrap();
    let names = Naming::initial(&client).unwrap();
    let made = names.new_context("a.b").unwrap().new_context("ç").unwrap();
    // Nothing listens there.
    let gone = Naming::at(&client, "corbaloc:iiop:1.2@127.0.0.1:1/NameService").unwrap();
    names.bind_context("gone", &gone).unwrap();
    for address in [format!("corbaname:{at}#a.b/%c3%a7"), "corbaname:rir:#a.b/%c3%a7".to_owned()] {
        let found = client.resolve::<dyn NamingContext>(&address).unwrap();
        assert_eq!(&found, made.context(), "{address}");
    }
    for (address, why) in [
        ("corbaname:rir:#a.b/x", minor::NAME_UNBOUND),
        ("corbaname:rir:#gone/x", minor::NAME_WAY),
        ("corbaname:rir:#a.b..", minor::NOT_RESOLVED),
    ] {
        let raised = client.resolve_unchecked::<dyn NamingContext>(address).unwrap_err();
        assert_eq!((raised.kind, raised.minor), (SystemKind::InvObjref, why), "{address}: {raised}");
    }
}
