//! Deadlines, importance and criticality travel with requests, from thread to servant and on.

use std::io::Write;
use std::sync::{Arc, Mutex};

use hyoshi_model::Span;
use hyoshi_orb::rt::{self, CallTiming, RequestTiming, with_timing};
use hyoshi_orb::{ByteOrder, Encoder, Orb, OrbBuilder, Reference, SyncScope, SystemException};
use hyoshi_wire::giop::{
    CONTEXT_RT_SCHEDULING, KokyuTiming, ReplyStatus, RequestHeader, Response, ServiceContext, Target,
};

use crate::peer;
use crate::tracking::*;

/// Records the timing of its requests; passes `nothing` on to the next server.
#[derive(Default)]
struct Recorder {
    seen: Mutex<Vec<Option<RequestTiming>>>,
    next: Option<TrackerStub>,
}

impl Recorder {
    fn record(&self) {
        self.seen.lock().unwrap().push(rt::timing());
    }

    fn take(&self) -> Vec<Option<RequestTiming>> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl Named for Recorder {
    fn name(&self) -> Result<String, SystemException> {
        Ok(String::new())
    }
}

impl Tracker for Recorder {
    fn locate(&self, _: u32) -> Result<Position, LocateError> {
        self.record();
        Ok(Position::default())
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        self.record();
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        self.record();
        self.next.as_ref().map_or(Ok(()), |next| next.nothing())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Server {
    orb: Orb,
    recorder: Arc<Recorder>,
    tracker: TrackerStub,
}

fn server(next: Option<TrackerStub>) -> Server {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    let recorder = Arc::new(Recorder { next, ..Recorder::default() });
    let tracker = orb.adapter("a").build().unwrap().activate_as::<dyn Tracker>("x", recorder.clone()).unwrap();
    orb.ready();
    Server { orb, recorder, tracker }
}

fn client(builder: OrbBuilder, server: &Server) -> (Orb, TrackerStub) {
    let orb = builder.build().unwrap();
    let stub = orb.resolve_unchecked::<dyn Tracker>(&server.tracker.ior().to_string()).unwrap();
    (orb, stub)
}

fn asked() -> CallTiming {
    CallTiming { within: Some(Span::from_secs(60)), execution: Span::from_millis(2), importance: 5, critical: true }
}

#[test]
fn calls_of_each_kind_carry_the_timing_of_their_thread_and_other_calls_none() {
    let server = server(None);
    let (_orb, tracker) = client(Orb::builder(), &server);
    tracker.locate(1).unwrap();
    let chosen = with_timing(asked(), || {
        tracker.locate(1).unwrap();
        tracker.oneways(SyncScope::Target).hint("", &[]).unwrap();
        tracker.oneways(SyncScope::Server).hint("", &[]).unwrap();
        tracker.locate_async(1).wait().unwrap();
        rt::timing().unwrap()
    });
    tracker.locate(1).unwrap();
    let seen = server.recorder.take();
    assert_eq!((seen.len(), seen[0], seen[5]), (6, None, None));
    for timing in seen[1..5].iter().map(|timing| timing.unwrap()) {
        // The same machine: the deadline is exact.
        assert_eq!((timing.clock, timing.deadline), (rt::machine_clock(), chosen.deadline));
        assert_eq!((timing.execution, timing.importance, timing.critical), (2_000_000, 5, true));
        assert!(timing.origin == chosen.origin && timing.sent >= timing.origin);
    }
}

#[test]
fn a_servants_own_calls_go_on_with_the_timing_of_the_request() {
    let last = server(None);
    let (_between, stub) = client(Orb::builder(), &last);
    let first = server(Some(stub));
    let (_orb, tracker) = client(Orb::builder(), &first);
    with_timing(asked(), || tracker.nothing()).unwrap();
    let (first, last) = (first.recorder.take()[0].unwrap(), last.recorder.take()[0].unwrap());
    assert_eq!((first.deadline, first.origin, first.importance), (last.deadline, last.origin, last.importance));
    assert!(last.sent >= first.sent);
}

#[test]
fn timing_in_taos_form_is_sent_when_asked_and_read() {
    let server = server(None);
    let (_orb, tracker) = client(Orb::builder().kokyu_timing(), &server);
    let chosen = with_timing(asked(), || {
        tracker.locate(1).unwrap();
        rt::timing().unwrap()
    });
    let seen = server.recorder.take()[0].unwrap();
    assert!(seen.deadline.abs_diff(chosen.deadline) < 10_000_000_000, "{seen:?} from {chosen:?}");
    assert_eq!((seen.execution, seen.importance, seen.critical), (2_000_000, 5, true));
}

#[test]
fn contexts_of_other_schedulers_damaged_ones_and_second_ones_do_not_stop_a_request() {
    let server = server(None);
    let mut stream = peer::connect(&server.orb);
    let ior = AsRef::<Reference<dyn Tracker>>::as_ref(&server.tracker).ior().clone();
    let key = ior.iiop().next().unwrap().unwrap().key;
    let mut call = |contexts: &[&[u8]]| {
        let contexts: Vec<_> =
            contexts.iter().map(|data| ServiceContext { tag: CONTEXT_RT_SCHEDULING, data }).collect();
        let mut to = Encoder::new(ByteOrder::Big);
        let (target, response) = (Target::Key(key), Response::Target);
        let header = RequestHeader { id: 2, response, target, operation: "nothing", contexts: &contexts };
        header.begin(&mut to).unwrap().end(&mut to).unwrap();
        stream.write_all(to.bytes()).unwrap();
        let reply = peer::message(&mut stream).unwrap();
        let status = u32::from_ne_bytes(reply[16..20].try_into().unwrap());
        assert_eq!(status, ReplyStatus::NoException as u32);
        server.recorder.take()[0]
    };
    let foreign = RequestTiming {
        clock: 99,
        sent: 1_000,
        origin: 1_000,
        deadline: 5_000_001_000,
        importance: 2,
        ..RequestTiming::default()
    };
    let good = foreign.octets();
    assert_eq!(call(&[&[0x10, 0x27, 0, 0, 0, 0, 0, 0]]), None);
    assert_eq!(call(&[&good[..20]]), None);
    let mut later = good;
    later[3] = 9;
    assert_eq!(call(&[&later]), None);
    let other = RequestTiming { importance: 3, ..foreign }.octets();
    let first = call(&[&good, &other]).unwrap();
    // Of an unknown clock, the time that is left counts from the arrival.
    assert_eq!((first.importance, first.clock, first.deadline - first.origin), (2, rt::machine_clock(), 5_000_000_000));
    let kokyu = KokyuTiming { guid: vec![1], importance: -4, ..KokyuTiming::default() }.data().unwrap();
    assert_eq!(call(&[&kokyu]).unwrap().importance, 0);
    assert_eq!(call(&[&kokyu[..200]]), None);
}
