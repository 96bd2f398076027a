//! Naming services that lead into each other, and into themselves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_naming::{
    NameComponent, NamingContext, NamingContextExt, NamingContextExtStub, NamingContextStub, NamingLimits,
    NamingService, ResolveError,
};
use hyoshi_orb::{IorEndpoint, Orb};

struct Served {
    orb: Orb,
    _naming: NamingService,
    root: NamingContextExtStub,
    port: u16,
}

fn serve(client: &Orb) -> Served {
    let orb = Orb::builder().collocation(false).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let naming = NamingService::start(&orb, None, NamingLimits::default()).unwrap();
    orb.ready();
    let Some(IorEndpoint::Tcp { port, .. }) = orb.endpoints().first() else { panic!("it listens") };
    let port = *port;
    let root = client.resolve_unchecked::<dyn NamingContextExt>(&at("127.0.0.1", port)).unwrap();
    Served { orb, _naming: naming, root, port }
}

fn at(host: &str, port: u16) -> String {
    format!("corbaloc:iiop:1.2@{host}:{port}/NameService")
}

fn name(steps: impl IntoIterator<Item = &'static str>) -> Vec<NameComponent> {
    steps.into_iter().map(|id| NameComponent { id: id.to_owned(), kind: String::new() }).collect()
}

/// The longest request of another client meanwhile.
fn beside<R>(client: &Orb, port: u16, goes_on: impl FnOnce() -> R) -> (R, Duration) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let root = client.resolve_unchecked::<dyn NamingContextExt>(&at("127.0.0.1", port)).unwrap();
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                root.to_name("a").unwrap();
                longest = longest.max(begun.elapsed());
            }
            longest
        });
        let result = goes_on();
        over.store(true, Ordering::Relaxed);
        (result, other.join().unwrap())
    })
}

#[test]
fn a_context_that_is_bound_under_another_name_of_the_host_is_the_services_own() {
    let client = Orb::client().unwrap();
    let served = serve(&client);
    let own = client.resolve_unchecked::<dyn NamingContext>(&at("localhost", served.port)).unwrap();
    served.root.bind_context(&name(["here"]), Some(&own)).unwrap();
    let deep = name(std::iter::repeat_n("here", 40).chain(["nothing"]));
    let (begun, counted) = (Instant::now(), served.orb.endpoints().len());
    assert_eq!(counted, 1);
    let raised = served.root.resolve(&deep).unwrap_err();
    let ResolveError::NotFound(found) = raised else { panic!("{raised}") };
    assert_eq!(found.rest_of_name, name(["nothing"]));
    assert!(begun.elapsed() < Duration::from_secs(5), "it asked itself: {:?}", begun.elapsed());
}

#[test]
fn services_that_lead_into_each_other_for_ever_keep_a_thread_for_other_requests() {
    let client = Orb::client().unwrap();
    let (one, other) = (serve(&client), serve(&client));
    let context = |of: &Served| client.resolve_unchecked::<dyn NamingContext>(&at("127.0.0.1", of.port)).unwrap();
    let (to_other, to_one): (NamingContextStub, NamingContextStub) = (context(&other), context(&one));
    one.root.bind_context(&name(["far"]), Some(&to_other)).unwrap();
    other.root.bind_context(&name(["far"]), Some(&to_one)).unwrap();
    let deep = name(std::iter::repeat_n("far", 60).chain(["nothing"]));
    let begun = Instant::now();
    let (raised, longest) = beside(&Orb::client().unwrap(), one.port, || one.root.resolve(&deep).unwrap_err());
    println!("{raised} after {:?}; another client waited {longest:?}", begun.elapsed());
    // The client gets the context from which it can continue.
    let ResolveError::CannotProceed(rest) = raised else { panic!("{raised}") };
    assert!(rest.rest_of_name.len() > 1 && rest.cxt.is_some());
    assert!(begun.elapsed() < Duration::from_secs(5) && longest < Duration::from_secs(5));
}
