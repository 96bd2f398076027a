//! A body that calls an object over the ORB gives its run token up meanwhile.

use crate::tracker_idl;

use std::sync::{Arc, Mutex};

use hyoshi::orb::{Orb, SystemException, SystemKind};
use hyoshi::{Instant, Node, Plan, Span, Strategies, read};
use hyoshi_os::{Clock, MonotonicClock, WaitOutcome, Wake};
use tracker_idl::tracking::{Named, NamedStub};

/// Answers when another job of the caller's lane has run since it was asked.
struct Waits(Arc<Wake>);

impl Named for Waits {
    fn name(&self) -> Result<String, SystemException> {
        self.0.try_wait();
        let clock = MonotonicClock::start();
        match self.0.wait_until(&clock, clock.now() + Span::from_secs(30)) {
            WaitOutcome::Posted => Ok("another job ran".to_owned()),
            WaitOutcome::TimedOut => Err(SystemKind::NoResources.not_done(0)),
        }
    }
}

const SYSTEM: &str = "
    name = 'calls'
    duration = '500ms'
    [processor.main]
    strategy = 'EDF'
    pool = 2
    [operation.asks]
    every = '100ms'
    wcet = '1ms'
    [operation.works]
    every = '20ms'
    wcet = '1ms'
";

#[test]
fn a_job_that_calls_an_object_within_blocking_lets_others_of_its_lane_run() {
    let ran = Arc::new(Wake::new());
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let waits = orb.adapter("a").build().unwrap().activate::<dyn Named>(Arc::new(Waits(ran.clone()))).unwrap();
    let client = Orb::client().unwrap();
    let named: NamedStub = client.resolve_unchecked::<dyn Named>(&waits.ior().to_string()).unwrap();
    let system = Arc::new(read(SYSTEM, "calls.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let answers = Arc::new(Mutex::new(Vec::new()));
    let heard = answers.clone();
    let node = Node::new(system, plan)
        .body("asks", move |job| {
            let answer = job.blocking(|| named.name());
            heard.lock().unwrap().push(answer);
        })
        .body("works", move |_| ran.post());
    node.start().unwrap().wait(&mut |_, _: Instant, _| {});
    let answers = answers.lock().unwrap();
    assert!(!answers.is_empty());
    assert!(answers.iter().all(|answer| answer.as_deref() == Ok("another job ran")), "{answers:?}");
}
