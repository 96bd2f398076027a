//! External requests as jobs, read by a lane's threads from a socket pair.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System};
use hyoshi_os::MonotonicClock;
use hyoshi_runtime::{ArrivedRequest, JobContext, Node, Prepared, Refuse, RequestReader, RunningNode};
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};

use crate::common::{plan, system, undisturbed::undisturbed};

const SERVER: &str = r#"
    duration = "60s"
    [processor.main]
    strategy = "EDF"
    pool = 2
    [operation.answer]
    called = true
    deadline = "20ms"
    wcet = "1ms"
    queue = { limit = 4 }
    [operation.idle]
    every = "20ms"
    wcet = "0.1ms"
"#;

/// The sending end of a test.
#[derive(Clone)]
struct Caller {
    waiting: Arc<Mutex<VecDeque<ArrivedRequest>>>,
    bell: Arc<UnixStream>,
}

impl Caller {
    fn call(&self, all: &[ArrivedRequest]) {
        self.waiting.lock().unwrap().extend(all);
        (&*self.bell).write_all(&[1]).unwrap();
    }
}

struct FromCaller {
    waiting: Arc<Mutex<VecDeque<ArrivedRequest>>>,
    bell: UnixStream,
}

impl RequestReader for FromCaller {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn turn(&mut self, _: &MonotonicClock, arrived: &mut Vec<ArrivedRequest>) {
        let mut octets = [0; 16];
        let _ = self.bell.read(&mut octets);
        let mut waiting = self.waiting.lock().unwrap();
        let room = (arrived.capacity() - arrived.len()).min(waiting.len());
        arrived.extend(waiting.drain(..room));
    }
}

/// Calls in the order in which they were served or rejected.
type Outcomes = Arc<Mutex<Vec<(u32, &'static str)>>>;

#[derive(Debug)]
struct Refused(Outcomes);

impl Refuse for Refused {
    fn refuse(&self, call: u32) {
        self.0.lock().unwrap().push((call, "refused"));
    }
}

fn serving(
    system: &Arc<System>,
    body: impl FnMut(&mut JobContext<'_>, u32) + Send + 'static,
) -> (Prepared, Caller, Outcomes) {
    let (outcomes, mut body) = (Outcomes::default(), body);
    let served = outcomes.clone();
    let node = Node::new(system.clone(), plan(system)).body("answer", move |job| {
        let call = job.call().expect("only requests release it");
        body(job, call);
        served.lock().unwrap().push((call, "served"));
    });
    let mut node = node.prepare().unwrap();
    let (bell, hears) = UnixStream::pair().unwrap();
    hears.set_nonblocking(true).unwrap();
    let caller = Caller { waiting: Arc::default(), bell: Arc::new(bell) };
    let reader = FromCaller { waiting: caller.waiting.clone(), bell: hears };
    node.read_requests(ProcessorId(0), Box::new(reader), Arc::new(Refused(outcomes.clone()))).unwrap();
    (node, caller, outcomes)
}

fn request(call: u32, deadline: Option<Span>) -> ArrivedRequest {
    let deadline = deadline.map(|span| Instant::ZERO + span);
    ArrivedRequest { deadline, ..ArrivedRequest::new(OperationId(0), call) }
}

fn wait(outcomes: &Outcomes, count: usize) -> Vec<(u32, &'static str)> {
    let began = WallClock::now();
    while outcomes.lock().unwrap().len() < count {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", outcomes.lock().unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
    outcomes.lock().unwrap().clone()
}

fn end(running: RunningNode) -> Vec<(Instant, TraceEvent)> {
    let mut events = Vec::new();
    running.stop(&mut |_, at, event| events.push((at, event)));
    events
}

#[test]
fn a_request_becomes_a_job_of_its_operation_and_a_replay_decides_the_same() {
    let system = system(SERVER);
    let (node, caller, outcomes) = serving(&system, |_, _| ());
    let running = node.start();
    for call in 0..50 {
        caller.call(&[request(call, None)]);
        wait(&outcomes, call as usize + 1);
    }
    assert_eq!(wait(&outcomes, 50), (0..50).map(|call| (call, "served")).collect::<Vec<_>>());
    let events = end(running);
    let requests = events.iter().filter(|(_, event)| matches!(event, TraceEvent::Input(Input::Invoke(_))));
    assert_eq!(requests.count(), 50);
    let plan = plan(&system);
    hyoshi_replay::replay(&system, &plan.processors[0], events).unwrap_or_else(|parted| panic!("{parted}"));
}

#[test]
fn what_is_read_together_runs_in_the_order_of_deadlines_and_beyond_the_queue_is_refused() {
    undisturbed(|| {
        let system = system(SERVER);
        let (node, caller, outcomes) = serving(&system, |_, _| ());
        let running = node.start();
        let by = |call, millis| request(call, Some(Span::from_millis(millis)));
        let far = 50_000;
        caller.call(&[by(1, far + 3), by(2, far + 1), by(3, far + 2), by(4, far), by(5, far + 9), by(6, far + 8)]);
        let outcomes = wait(&outcomes, 6);
        let of = |what| outcomes.iter().filter(|(_, how)| *how == what).map(|(call, _)| *call).collect::<Vec<_>>();
        assert_eq!((of("served"), of("refused")), (vec![4, 2, 3, 1], vec![5, 6]));
        drop(end(running));
    });
}

#[test]
fn requests_are_read_while_a_job_runs_and_while_it_waits() {
    let system = system(SERVER);
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let theirs = gate.clone();
    let text = SERVER.replace(
        "[operation.idle]",
        "[operation.other]\n    called = true\n    deadline = \"20ms\"\n    wcet = \"1ms\"\n    [operation.idle]",
    );
    let both = crate::common::system(&text);
    let (outcomes, served) = (Outcomes::default(), Outcomes::default());
    let (one, other) = (served.clone(), served.clone());
    let node = Node::new(both.clone(), plan(&both)).body("answer", move |job| {
        job.blocking(|| {
            let mut open = theirs.0.lock().unwrap();
            while !*open {
                open = theirs.1.wait(open).unwrap();
            }
        });
        one.lock().unwrap().push((job.call().unwrap(), "served"));
    });
    let node = node.body("other", move |job| other.lock().unwrap().push((job.call().unwrap(), "served")));
    let mut node = node.prepare().unwrap();
    let (bell, hears) = UnixStream::pair().unwrap();
    hears.set_nonblocking(true).unwrap();
    let caller = Caller { waiting: Arc::default(), bell: Arc::new(bell) };
    let reader = FromCaller { waiting: caller.waiting.clone(), bell: hears };
    node.read_requests(ProcessorId(0), Box::new(reader), Arc::new(Refused(outcomes))).unwrap();
    let running = node.start();
    caller.call(&[request(1, None)]);
    let to_other = |call| ArrivedRequest { operation: OperationId(1), ..request(call, None) };
    for call in 2..20 {
        caller.call(&[to_other(call)]);
        wait(&served, call as usize - 1);
    }
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    assert_eq!(wait(&served, 19).last(), Some(&(1, "served")));
    drop((end(running), system));
}

#[test]
fn a_request_that_waits_when_the_run_ends_is_refused() {
    let system = system(SERVER);
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap();
    let theirs = gate.clone();
    let (node, caller, outcomes) = serving(&system, move |_, _| drop(theirs.lock().unwrap()));
    let mut running = node.start();
    caller.call(&[request(1, None), request(2, None)]);
    let mut begun = false;
    while !begun {
        running.poll(&mut |_, _, event| {
            begun |= matches!(event, TraceEvent::Decision(DispatchDecision::Run { job, .. }) if job.operation == OperationId(0));
        });
    }
    let ended = std::thread::spawn(move || end(running));
    assert_eq!(wait(&outcomes, 1), [(2, "refused")]);
    drop(closed);
    drop(ended.join().unwrap());
}

#[test]
fn requests_need_an_operation_that_serves_them() {
    let system = system("duration = \"1s\"\n[operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\n");
    let mut node = Node::new(system.clone(), plan(&system)).prepare().unwrap();
    let (_bell, hears) = UnixStream::pair().unwrap();
    let reader = FromCaller { waiting: Arc::default(), bell: hears };
    assert!(node.read_requests(ProcessorId(0), Box::new(reader), Arc::new(Refused(Outcomes::default()))).is_err());
    node.abandon();
}
