//! Interceptors see every request on both sides, and what rides along with it.

use crate::tracking;

use std::sync::{Arc, Mutex};

use hyoshi_model::Span;
use hyoshi_orb::behaviour::{Behaviour, OperationDelegate};
use hyoshi_orb::{
    Around, Call, CallDelegateError, CallDelegates, ClientInterceptor, Invoked, Orb, Outgoing, Replied,
    ServerInterceptor, ServiceContexts, StubOperation, SystemException, SystemKind, minor,
};
use tracking::*;

/// A service context of our own.
const SENT: u32 = 0x4859_0001;
const BACK: u32 = 0x4859_0002;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl ServerInterceptor for Log {
    fn before(&self, call: &mut Call<'_>) -> Result<(), SystemException> {
        self.note(format!("in {} {:?}", call.operation(), call.contexts().get(SENT)));
        call.send_context(BACK, b"before".to_vec());
        if call.operation() == "swap" { Err(SystemKind::NoPermission.not_done(7)) } else { Ok(()) }
    }
    fn after(&self, call: &mut Call<'_>) {
        let how = format!("{:?}", call.replied());
        call.send_context(BACK + 1, b"after".to_vec());
        self.note(format!("out {how}"));
    }
}

impl ClientInterceptor for Log {
    fn before(&self, call: &mut Outgoing<'_>) -> Result<(), SystemException> {
        assert!(!call.key().is_empty());
        call.send_context(SENT, vec![1, 2, 3]);
        if call.operation() == "echo" { Err(SystemKind::NoPermission.not_done(8)) } else { Ok(()) }
    }
    fn after(&self, call: &Outgoing<'_>, replied: &Replied, contexts: &ServiceContexts<'_>) {
        let text = |id| contexts.get(id).map(|data| String::from_utf8_lossy(data).into_owned());
        self.note(format!("{} {replied:?} {:?} {:?}", call.operation(), text(BACK), text(BACK + 1)));
    }
    fn failed(&self, call: &Outgoing<'_>, exception: &SystemException) {
        self.note(format!("{} failed: {}", call.operation(), exception.kind.name()));
    }
}

#[test]
fn interceptors_see_requests_contexts_and_outcomes_and_can_refuse() {
    let (inside, outside) = (Log::default(), Log::default());
    let builder = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().server_interceptor(inside.clone());
    let server = builder.build().unwrap();
    server.ready();
    let tracker = server.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let client = Orb::builder().client_interceptor(outside.clone()).build().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&tracker.ior().to_string()).unwrap();

    assert_eq!(tracker.locate(3).unwrap(), Position { x: 3.0, y: 0.5 }, "the body is whole behind the contexts");
    assert_eq!(inside.take(), ["in locate Some([1, 2, 3])", "out Some(Well)"]);
    assert_eq!(outside.take(), [r#"locate Well Some("before") Some("after")"#]);

    tracker.locate(100).unwrap_err();
    assert_eq!(inside.take()[1], r#"out Some(User("IDL:Tracking/UnknownTarget:1.0"))"#);
    assert!(outside.take()[0].starts_with(r#"locate User("IDL:Tracking/UnknownTarget:1.0")"#));

    let refused = tracker.swap(&mut Position::default()).unwrap_err();
    assert_eq!(refused, SystemKind::NoPermission.not_done(7));
    assert!(outside.take()[0].contains("NO_PERMISSION"));

    assert_eq!(tracker.echo(&[]), Err(SystemKind::NoPermission.not_done(8)));
    assert_eq!(outside.take(), [] as [&str; 0]);
    assert_eq!(inside.take().len(), 2, "nothing was sent since");
    server.shutdown();
    tracker.nothing().unwrap_err();
    assert!(outside.take()[0].starts_with("nothing failed: "));
}

/// What a delegate looks like that is written by hand.
struct Counted<T>(T, Mutex<Vec<String>>);

impl<T: Send + Sync> Around for Counted<T> {
    fn around<R>(&self, call: &Invoked<'_>, run: impl FnOnce() -> R) -> R {
        self.1.lock().unwrap().push(call.operation.name.to_owned());
        run()
    }
}

#[test]
fn what_stands_around_a_call_runs_with_it() {
    let around = Counted((), Mutex::default());
    let call = Invoked { interface: "IDL:X:1.0", operation: &StubOperation::new("x") };
    assert_eq!(around.around(&call, || 7), 7);
    assert_eq!(*around.1.lock().unwrap(), ["x"]);
    assert_eq!(().around(&call, || 1), 1);
}

/// Counts of an operation: passed, refused or dropped, failed, and the replies with a latency.
fn counts(all: &[OperationDelegate], name: &str) -> (u64, u64, u64, u64) {
    let one = all.iter().find(|one| one.name() == name).unwrap().measured();
    (one.passed, one.refused + one.dropped, one.failed, one.latency.extent().count())
}

#[test]
fn delegates_around_stubs_refuse_thin_out_delay_and_measure_calls() {
    let server = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    server.ready();
    let here = server.adapter("trackers").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let client = Orb::client().unwrap();
    let away = client.resolve::<dyn Tracker>(&here.as_ref().ior().to_string()).unwrap();
    for stub in [here, away] {
        let delegates = CallDelegates::of::<dyn Tracker>();
        let tracker = TrackerDelegate::new(stub, delegates.clone());
        let set = |operation: &str, behaviour: &str| delegates.set(operation, behaviour.parse().unwrap());
        let refused = |raised: SystemException| (raised.kind, raised.minor);
        tracker.nothing().unwrap();
        set("echo", "thin:1/2").unwrap();
        set("*", "refuse:NO_RESOURCES").unwrap();
        let echoes: Vec<_> = (0..3).map(|_| tracker.echo(&[1]).err().map(refused)).collect();
        assert_eq!(echoes, [None, Some((SystemKind::Transient, minor::DELEGATE)), None]);
        assert_eq!(refused(tracker.nothing().unwrap_err()), (SystemKind::NoResources, minor::DELEGATE));
        assert_eq!(refused(tracker.hint("no", &[]).unwrap_err()), (SystemKind::Transient, minor::DELEGATE));
        set("nothing", "delay:30ms").unwrap();
        let began = std::time::Instant::now();
        tracker.nothing().unwrap();
        assert!(began.elapsed().as_millis() >= 30);
        // A declared exception is an answer, a system exception a failure.
        set("*", "pass").unwrap();
        let raised = tracker.locate(200).unwrap_err();
        assert!(hyoshi_orb::Raises::system(&raised).is_none(), "{raised:?}");
        delegates.clear("nothing");
        let (all, totals) = (delegates.measured(), delegates.totals());
        assert_eq!([counts(&all, "echo"), counts(&all, "hint")], [(2, 1, 0, 2), (0, 1, 0, 0)]);
        assert_eq!([counts(&all, "nothing"), counts(&all, "locate")], [(2, 1, 0, 2), (1, 0, 0, 1)]);
        assert_eq!((totals.requests, totals.answered, totals.failed), (8, 5, 0));
        assert!(totals.waited >= Span::from_millis(30), "the delay is part of the latency");
        assert!(matches!(set("zoom", "pass"), Err(CallDelegateError::NoOperation { .. })));
        let mark = set("echo", "mark:EF").unwrap_err();
        assert!(mark.to_string().contains("`mark:EF`; use `hyoshi proxy`"), "{mark}");
    }
    server.shutdown();
}

#[test]
fn a_call_without_a_reply_has_failed_for_its_delegate() {
    let server = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    server.ready();
    let stub = server.adapter("trackers").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let client = Orb::client().unwrap();
    let delegates = CallDelegates::of::<dyn Tracker>();
    delegates.set("nothing", Behaviour::Pass).unwrap();
    let away = client.resolve::<dyn Tracker>(&stub.as_ref().ior().to_string()).unwrap();
    let away = TrackerDelegate::new(away, delegates.clone());
    away.nothing().unwrap();
    server.shutdown();
    away.nothing().unwrap_err();
    assert_eq!(counts(&delegates.measured(), "nothing"), (2, 0, 1, 1));
}
