//! Interceptors see every request on both sides, and what rides along with it.

use crate::tracking;

use std::sync::{Arc, Mutex};

use hyoshi_orb::{
    Around, Call, ClientInterceptor, Invoked, Orb, Outgoing, Replied, ServerInterceptor, ServiceContexts,
    StubOperation, SystemException, SystemKind,
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
