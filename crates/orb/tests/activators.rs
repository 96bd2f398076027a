//! Activators: one thing at a time for each object, and what happens when they call objects themselves.

use crate::tracking;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use hyoshi_model::Span;
use hyoshi_orb::{
    Activator, Adapter, AdapterError, Elsewhere, Orb, OrbBuilder, Servant, SystemException, SystemKind, current, minor,
};
use hyoshi_os::Wake;
use tracking::*;

fn listening() -> OrbBuilder {
    Orb::builder().collocation(false).listen("iiop://127.0.0.1:0").unwrap()
}

/// Tells whom it stands for.
struct Who;

impl Named for Who {
    fn name(&self) -> Result<String, SystemException> {
        Ok(String::from_utf8(current::object_id().unwrap()).unwrap())
    }
}

/// Notes what it is told, and that it is told one thing at a time.
#[derive(Clone, Default)]
struct Notes {
    at_work: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
    overlaps: Arc<AtomicUsize>,
}

impl Notes {
    fn alone<R>(&self, run: impl FnOnce() -> R) -> R {
        if self.at_work.swap(true, Ordering::SeqCst) {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        thread::yield_now();
        let done = run();
        self.at_work.store(false, Ordering::SeqCst);
        done
    }
}

impl Activator for Notes {
    fn incarnate(&self, _: &[u8]) -> Result<Servant, Elsewhere> {
        self.alone(|| {
            let made = self.made.fetch_add(1, Ordering::SeqCst);
            assert_eq!(made, self.ended.load(Ordering::SeqCst), "the last one was taken back");
            Ok(Servant::new::<dyn Named>(Arc::new(Who)))
        })
    }
    fn etherealize(&self, _: &[u8], _: Servant) {
        self.alone(|| {
            thread::yield_now();
            self.ended.fetch_add(1, Ordering::SeqCst);
        });
    }
}

#[test]
fn an_object_is_made_and_ended_in_turns_whatever_comes_at_once() {
    let orb = listening().build().unwrap();
    orb.ready();
    let notes = Notes::default();
    let adapter = orb.adapter("a").activator(notes.clone()).build().unwrap();
    let stub = adapter.reference::<dyn Named>("x").unwrap();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    // Until the others had a turn, too, however busy the machine is.
                    let more = |done: &u32| *done < 150 || notes.made.load(Ordering::SeqCst) < 2;
                    (0..1_000_000).take_while(more).for_each(|_| assert_eq!(stub.name().as_deref(), Ok("x")));
                })
            })
            .collect();
        while !calls.iter().all(|call| call.is_finished()) {
            let _ = adapter.deactivate("x");
        }
        calls.into_iter().for_each(|call| call.join().unwrap());
    });
    assert_eq!(notes.overlaps.load(Ordering::SeqCst), 0);
    assert!(notes.made.load(Ordering::SeqCst) > 1);
}

/// Calls other objects while it makes one.
struct Calls {
    others: fn(&[u8]) -> &'static [&'static str],
    adapter: Arc<Mutex<Option<Adapter>>>,
}

impl Activator for Calls {
    fn incarnate(&self, id: &[u8]) -> Result<Servant, Elsewhere> {
        let adapter = self.adapter.lock().unwrap().clone().unwrap();
        for other in (self.others)(id) {
            adapter.reference::<dyn Named>(other).unwrap().name()?;
        }
        Ok(Servant::new::<dyn Named>(Arc::new(Who)))
    }
}

fn calling(orb: &Orb, others: fn(&[u8]) -> &'static [&'static str]) -> Adapter {
    let own = Arc::new(Mutex::new(None));
    let builder = orb.adapter("a").made_within(Span::from_millis(200));
    let adapter = builder.activator(Calls { others, adapter: own.clone() }).build().unwrap();
    *own.lock().unwrap() = Some(adapter.clone());
    adapter
}

#[test]
fn an_activator_can_call_objects_that_have_to_be_made() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = calling(&orb, |id| match id {
        b"outer" => &["middle", "inner"],
        b"middle" => &["inner"],
        _ => &[],
    });
    let outer = adapter.reference::<dyn Named>("outer").unwrap();
    assert_eq!(outer.within(Span::from_secs(10)).name().as_deref(), Ok("outer"));
    assert_eq!(adapter.active(), 3);
}

#[test]
fn an_activator_that_calls_the_object_it_makes_is_told_so() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = calling(&orb, |_| &["x"]);
    let own = adapter.reference::<dyn Named>("x").unwrap();
    let told = SystemKind::BadInvOrder.not_done(minor::OWN_OBJECT);
    assert_eq!(own.within(Span::from_secs(10)).name(), Err(told));
    assert_eq!(adapter.active(), 0);
}

#[test]
fn activators_that_wait_for_each_other_end() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = calling(&orb, |id| if id == b"one" { &["two"] } else { &["one"] });
    let one = adapter.reference::<dyn Named>("one").unwrap();
    let late = SystemKind::Transient.not_done(minor::NOT_MADE);
    assert_eq!(one.within(Span::from_secs(10)).name(), Err(late));
}

/// Deactivates its own object.
struct Leaves(Adapter, Arc<Mutex<Vec<&'static str>>>);

impl Named for Leaves {
    fn name(&self) -> Result<String, SystemException> {
        self.0.deactivate(current::object_id().unwrap()).unwrap();
        self.1.lock().unwrap().push("called");
        Ok("left".into())
    }
}

#[test]
fn a_servant_that_deactivates_its_object_is_taken_back_behind_its_call() {
    struct Makes(Arc<Mutex<Option<Adapter>>>, Arc<Mutex<Vec<&'static str>>>, Arc<Wake>);
    impl Activator for Makes {
        fn incarnate(&self, _: &[u8]) -> Result<Servant, Elsewhere> {
            let adapter = self.0.lock().unwrap().clone().unwrap();
            Ok(Servant::new::<dyn Named>(Arc::new(Leaves(adapter, self.1.clone()))))
        }
        fn etherealize(&self, _: &[u8], _: Servant) {
            self.1.lock().unwrap().push("taken back");
            self.2.post();
        }
    }
    let orb = listening().build().unwrap();
    orb.ready();
    let (own, seen, ended) = (Arc::new(Mutex::new(None)), Arc::default(), Arc::new(Wake::new()));
    let activator = Makes(own.clone(), Arc::clone(&seen), ended.clone());
    let adapter = orb.adapter("a").activator(activator).build().unwrap();
    *own.lock().unwrap() = Some(adapter.clone());
    let stub = adapter.reference::<dyn Named>("x").unwrap();
    for _ in 0..2 {
        assert_eq!(stub.name().as_deref(), Ok("left"));
        ended.wait();
    }
    assert_eq!(*seen.lock().unwrap(), ["called", "taken back", "called", "taken back"]);
}

#[test]
fn nothing_is_activated_in_an_adapter_that_was_destroyed() {
    let orb = listening().build().unwrap();
    orb.ready();
    let adapter = orb.adapter("a").build().unwrap();
    adapter.activate_as::<dyn Named>("x", Arc::new(Who)).unwrap();
    adapter.clone().destroy();
    assert_eq!(adapter.activate_as::<dyn Named>("y", Arc::new(Who)).unwrap_err(), AdapterError::Gone);
    assert_eq!(adapter.activate::<dyn Named>(Arc::new(Who)).unwrap_err(), AdapterError::Gone);
    assert_eq!(adapter.reference::<dyn Named>("x").unwrap_err(), AdapterError::Gone);
    assert_eq!(adapter.active(), 0);
    // Its name is free again, and another's end is not this one's.
    let next = orb.adapter("a").build().unwrap();
    next.activate_as::<dyn Named>("x", Arc::new(Who)).unwrap();
    orb.shutdown();
    assert_eq!(next.activate::<dyn Named>(Arc::new(Who)).unwrap_err(), AdapterError::Gone);
}

#[test]
fn what_an_adapter_holds_leaves_its_lane_a_thread_for_others() {
    let lane = hyoshi_orb::LaneOptions { threads: 3, ..Default::default() };
    let builder = Orb::builder().collocation(false).lane(lane);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let held = orb.adapter("held").holding().build().unwrap().activate::<dyn Named>(Arc::new(Who)).unwrap();
    let adapter = orb.adapter("open").build().unwrap();
    let open = adapter.activate_as::<dyn Named>("open", Arc::new(Who)).unwrap();
    let (refused, full) = (AtomicUsize::new(0), Wake::new());
    thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let answer = held.name();
                    if answer.is_err() && refused.fetch_add(1, Ordering::SeqCst) == 3 {
                        full.post();
                    }
                    answer
                })
            })
            .collect();
        // Two of three threads wait.
        full.wait();
        for _ in 0..10 {
            assert_eq!(open.within(Span::from_secs(10)).name().as_deref(), Ok("open"));
        }
        orb.shutdown();
        let discarded = SystemKind::Transient.not_done(minor::DISCARDED);
        calls.into_iter().for_each(|call| assert_eq!(call.join().unwrap(), Err(discarded)));
    });
}
