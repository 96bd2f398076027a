//! Adapters: which objects there are, from when to when, and who carries out their requests.

use crate::tracking;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use hyoshi_orb::{
    Activator, AdapterError, Elsewhere, Interface, IorEndpoint, Locator, Orb, OrbBuilder, Passage, Servant,
    SystemException, SystemKind, current, minor,
};
use hyoshi_os::Wake;
use tracking::*;

fn listening() -> OrbBuilder {
    // Calls go over the wire, although both ends are in this process.
    Orb::builder().collocation(false).listen("iiop://127.0.0.1:0").unwrap()
}

fn gone(minor: u32) -> LocateError {
    LocateError::System(SystemKind::ObjectNotExist.not_done(minor))
}

#[test]
fn what_was_deactivated_does_not_exist_any_more() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let tracker = adapter.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).unwrap();
    assert_eq!(
        adapter.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).unwrap_err(),
        AdapterError::ObjectActive(b"x".to_vec())
    );
    tracker.locate(1).unwrap();
    adapter.deactivate("x").unwrap();
    assert_eq!(tracker.locate(1), Err(gone(minor::NO_OBJECT)));
    assert_eq!(tracker.non_existent(), Ok(true));
    assert_eq!(adapter.deactivate("x"), Err(AdapterError::NotActive(b"x".to_vec())));
    adapter.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).unwrap();
    tracker.locate(1).unwrap();
    adapter.destroy();
    assert_eq!(tracker.locate(1), Err(gone(minor::NO_ADAPTER)));
    orb.adapter("a").build().unwrap();
    assert!(matches!(orb.adapter("a").build(), Err(AdapterError::NameTaken(_))));
}

#[test]
fn references_to_transient_objects_end_with_the_server_and_to_persistent_ones_do_not() {
    let serve = |at: &str| {
        let orb = Orb::builder().listen(at).unwrap().build().unwrap();
        orb.ready();
        let (short, long) = (orb.adapter("short").build().unwrap(), orb.adapter("long").persistent().build().unwrap());
        let short = short.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).unwrap();
        let long = long.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).unwrap();
        (orb, short, long)
    };
    let (first, short, long) = serve("iiop://127.0.0.1:0");
    let Some(IorEndpoint::Tcp { port, .. }) = first.endpoints().first().cloned() else { panic!("no TCP") };
    let client = Orb::client().unwrap();
    let short = client.resolve::<dyn Tracker>(&short.ior().to_string()).unwrap();
    let long = client.resolve::<dyn Tracker>(&long.ior().to_string()).unwrap();
    short.locate(1).unwrap();
    long.locate(1).unwrap();
    first.shutdown();
    drop(first);
    let down = long.locate(1).unwrap_err();
    assert_eq!(down, LocateError::System(SystemKind::Transient.not_done(minor::REFUSED)));
    let (_second, ..) = serve(&format!("iiop://127.0.0.1:{port}"));
    assert_eq!(short.locate(1), Err(gone(minor::OLD_INCARNATION)));
    assert_eq!(long.locate(1).unwrap().x, 1.0);
}

/// Says that it has begun, and ends when it may.
#[derive(Default)]
struct Gated {
    begun: Wake,
    may_end: Wake,
    ends: AtomicBool,
}

impl Named for Gated {
    fn name(&self) -> Result<String, SystemException> {
        self.begun.post();
        self.may_end.wait();
        Ok("gated".to_owned())
    }
}

#[test]
fn deactivation_waits_for_calls_that_run_but_not_for_its_own() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let gated = Arc::new(Gated::default());
    let named = adapter.activate_as::<dyn Named>("x", gated.clone()).unwrap();
    thread::scope(|scope| {
        let call = scope.spawn(|| named.name());
        gated.begun.wait();
        let deactivating = scope.spawn(|| {
            adapter.deactivate("x").unwrap();
            assert!(gated.ends.load(Ordering::Acquire), "it has waited");
        });
        while adapter.active() > 0 {
            thread::yield_now();
        }
        // No call reaches it any more, and still the one that runs does.
        assert_eq!(named.non_existent(), Ok(true));
        assert!(!deactivating.is_finished());
        gated.ends.store(true, Ordering::Release);
        gated.may_end.post();
        assert_eq!(call.join().unwrap().as_deref(), Ok("gated"));
        deactivating.join().unwrap();
    });

    struct Leaves(hyoshi_orb::Adapter);
    impl Named for Leaves {
        fn name(&self) -> Result<String, SystemException> {
            self.0.deactivate(current::object_id().unwrap()).unwrap();
            Ok("left".into())
        }
    }
    let named = adapter.activate::<dyn Named>(Arc::new(Leaves(adapter.clone()))).unwrap();
    assert_eq!(named.name().unwrap(), "left");
    assert_eq!(named.name().unwrap_err().kind, SystemKind::ObjectNotExist);
}

#[test]
fn a_call_within_the_process_knows_its_object_and_can_deactivate_it() {
    struct Nested(hyoshi_orb::Adapter, Option<NamedStub>);
    impl Named for Nested {
        fn name(&self) -> Result<String, SystemException> {
            let own = || String::from_utf8(current::object_id().unwrap()).unwrap();
            let inner = self.1.as_ref().map_or(Ok(String::new()), |inner| inner.name())?;
            // It waits for no call of its own.
            self.0.deactivate(own()).unwrap();
            Ok(inner + &own())
        }
    }
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let inner = adapter.activate_as::<dyn Named>("inner ", Arc::new(Nested(adapter.clone(), None))).unwrap();
    let outer = adapter.activate_as::<dyn Named>("outer", Arc::new(Nested(adapter.clone(), Some(inner)))).unwrap();
    assert!(outer.collocated().is_some());
    assert_eq!(outer.name().unwrap(), "inner outer");
    assert_eq!(adapter.active(), 0);
    assert_eq!(current::object_id(), None);
}

/// Tells whom it stands for.
struct Who;

impl Named for Who {
    fn name(&self) -> Result<String, SystemException> {
        Ok(String::from_utf8(current::object_id().unwrap()).unwrap())
    }
}

#[test]
fn a_default_servant_stands_for_every_object_that_is_not_active() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").default_servant::<dyn Named>(Arc::new(Who)).build().unwrap();
    for id in ["one", "two"] {
        assert_eq!(adapter.reference::<dyn Named>(id).unwrap().name().unwrap(), id);
    }
    adapter.activate_as::<dyn Named>("three", Arc::new(Yard::default())).unwrap();
    assert_eq!(adapter.reference::<dyn Named>("three").unwrap().name().unwrap(), "yard ä");
}

#[derive(Clone, Default)]
struct Makes(Arc<Mutex<Vec<String>>>);

impl Activator for Makes {
    fn incarnate(&self, id: &[u8]) -> Result<Servant, Elsewhere> {
        self.0.lock().unwrap().push(format!("made {}", id.escape_ascii()));
        match id {
            b"none" => Err(SystemKind::NoPermission.not_done(5).into()),
            _ => Ok(Servant::new::<dyn Named>(Arc::new(Who))),
        }
    }
    fn etherealize(&self, id: &[u8], _: Servant) {
        self.0.lock().unwrap().push(format!("ended {}", id.escape_ascii()));
    }
}

#[test]
fn an_activator_makes_servants_once_and_takes_them_back() {
    let orb = listening().build().unwrap();
    orb.ready();
    let made = Makes::default();
    let adapter = orb.adapter("a").activator(made.clone()).build().unwrap();
    let stub = adapter.reference::<dyn Named>("x").unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(stub.name().unwrap(), "x"));
        }
    });
    let none = adapter.reference::<dyn Named>("none").unwrap();
    assert_eq!(none.name(), Err(SystemKind::NoPermission.not_done(5)));
    adapter.deactivate("x").unwrap();
    assert_eq!(*made.0.lock().unwrap(), ["made x", "made none", "ended x"]);
}

#[test]
fn a_panic_of_an_activator_is_the_end_of_the_request_and_not_of_the_thread() {
    struct Panics;
    impl Activator for Panics {
        fn incarnate(&self, _: &[u8]) -> Result<Servant, Elsewhere> {
            panic!("a panic that the test expects")
        }
    }
    let lane = hyoshi_orb::LaneOptions { threads: 2, ..Default::default() };
    let builder = Orb::builder().collocation(false).lane(lane);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").activator(Panics).build().unwrap();
    let stub = adapter.reference::<dyn Named>("x").unwrap();
    for _ in 0..5 {
        assert_eq!(stub.name(), Err(SystemKind::Unknown.maybe_done(minor::PANICKED)));
    }
    adapter.activate_as::<dyn Named>("y", Arc::new(Who)).unwrap();
    assert_eq!(adapter.reference::<dyn Named>("y").unwrap().name().unwrap(), "y");
}

#[derive(Clone, Default)]
struct Lends(Arc<AtomicUsize>, Option<hyoshi_orb::Ior>);

impl Locator for Lends {
    fn before(&self, id: &[u8], operation: &str) -> Result<Servant, Elsewhere> {
        assert_eq!(operation, "_get_name");
        match (&self.1, id) {
            (Some(there), b"moved") => Err(Elsewhere::Forward(Box::new(there.clone()))),
            _ => Ok(Servant::new::<dyn Named>(Arc::new(Who))),
        }
    }
    fn after(&self, _: &[u8], _: &str, _: Servant) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_locator_is_asked_for_each_request_and_can_send_it_on() {
    let orb = listening().build().unwrap();
    orb.ready();
    let there = orb.adapter("there").build().unwrap().activate::<dyn Named>(Arc::new(Yard::default())).unwrap();
    let lends = Lends(Default::default(), Some(there.ior().clone()));
    let adapter = orb.adapter("a").locator(lends.clone()).build().unwrap();
    let stub = adapter.reference::<dyn Named>("x").unwrap();
    for _ in 0..3 {
        assert_eq!(stub.name().unwrap(), "x");
    }
    assert_eq!(lends.0.load(Ordering::Relaxed), 3);
    let moved = adapter.reference::<dyn Named>("moved").unwrap();
    assert_eq!(moved.name().unwrap(), "yard ä");
    assert_eq!(moved.name().unwrap(), "yard ä");
}

#[test]
fn an_adapter_holds_requests_discards_them_and_lets_them_pass_again() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").hold_at_most(2).holding().build().unwrap();
    let tracker = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let (over, refused) = (AtomicUsize::new(0), Wake::new());
    let passed = AtomicBool::new(false);
    thread::scope(|scope| {
        let calls: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    let answer = tracker.locate(1);
                    if answer.is_err() && over.fetch_add(1, Ordering::AcqRel) == 2 {
                        refused.post();
                    }
                    (answer, passed.load(Ordering::Acquire))
                })
            })
            .collect();
        // Two wait, three are refused.
        refused.wait();
        passed.store(true, Ordering::Release);
        adapter.pass(Passage::Active);
        let answers: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        let discarded = Err(LocateError::System(SystemKind::Transient.not_done(minor::DISCARDED)));
        assert_eq!(answers.iter().filter(|(answer, _)| *answer == discarded).count(), 3);
        assert_eq!(answers.iter().filter(|(answer, after)| answer.is_ok() && *after).count(), 2);
    });
    adapter.pass(Passage::Discarding);
    assert_eq!(tracker.nothing(), Err(SystemKind::Transient.not_done(minor::DISCARDED)));
    adapter.pass(Passage::Active);
    tracker.nothing().unwrap();
}

#[test]
fn a_collocated_call_respects_the_state_of_object_and_adapter() {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let tracker = adapter.activate_as::<dyn Tracker>("x", Arc::new(Yard::default())).unwrap();
    assert!(tracker.collocated().is_some());
    adapter.pass(Passage::Discarding);
    assert_eq!(tracker.nothing(), Err(SystemKind::Transient.not_done(minor::DISCARDED)));
    adapter.pass(Passage::Active);
    adapter.deactivate("x").unwrap();
    assert!(tracker.collocated().is_none());
    assert_eq!(tracker.nothing(), Err(SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT)));
}

#[test]
fn many_objects_are_told_apart() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    let stubs: Vec<_> = (0..2_000).map(|_| adapter.activate::<dyn Named>(Arc::new(Who)).unwrap()).collect();
    assert_eq!(adapter.active(), 2_000);
    let ids: std::collections::HashSet<_> = stubs.iter().map(|stub| stub.ior().to_string()).collect();
    assert_eq!(ids.len(), 2_000);
    assert_eq!(<dyn Named as Interface>::ID, stubs[0].ior().type_id);
}
