//! The objects of a file: bodies call them as the file's `calls`, other programs as requests with ceilings.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};

use hyoshi_model::{Deadline, Instant, ProcessorId, Span, System, read};
use hyoshi_node::{Objects, ServantError, ServingObjects, object};
use hyoshi_orb::rt::{self, CallTiming, OperationCall, with_timing};
use hyoshi_orb::{ByteOrder, Encode, Encoder, Orb, Reference, SystemException, SystemKind, minor};
use hyoshi_os::own_cpu_time;
use hyoshi_replay::blame::{Blame, Interest, Rank, ResponsePart};
use hyoshi_runtime::{JobContext, Node, RunNote, RunningNode};
use hyoshi_sched::{Plan, Strategies, analyse};
use hyoshi_trace::{DispatchDecision, Input, JobOutcome, Signal, TraceEvent};
use hyoshi_wire::giop::{CONTEXT_HYOSHI_CALL, RequestHeader, Response, ServiceContext, Target};

use crate::common::{folder, unused_address};
use crate::peer;
use crate::privileges::missing;
use crate::tracking::{CallbackStub, LocateError, Named, Position, Tracker, TrackerStub};
use crate::undisturbed::undisturbed;

/// Host `a` steers, and calls the map of host `b`, which looks with the eye of host `a`.
fn text(map: &str, eye: &str) -> String {
    format!(
        "name = 'map'
        duration = '60s'
        [host.a]
        [host.b]
        [processor.steering]
        host = 'a'
        cancel = true
        [processor.mapping]
        host = 'b'
        strategy = 'EDF'
        [processor.seeing]
        host = 'a'
        [operation.steer]
        on = 'steering'
        every = '10ms'
        wcet = '0.4ms'
        critical = true
        calls = {{ method = 'locate', after = '0.2ms' }}
        [operation.explore]
        on = 'steering'
        every = '20ms'
        wcet = '0.4ms'
        calls = {{ method = 'place', after = '0.2ms' }}
        [operation.locate]
        on = 'mapping'
        called = true
        wcet = '0.4ms'
        calls = {{ method = 'look', after = '0.2ms' }}
        [operation.place]
        on = 'mapping'
        called = true
        wcet = '0.4ms'
        [operation.look]
        on = 'seeing'
        called = true
        wcet = '0.2ms'
        [operation.query]
        on = 'mapping'
        called = true
        deadline = '5s'
        wcet = '0.1ms'
        importance = 7
        [object.map]
        operation = 'query'
        methods = {{ locate = 'locate', nothing = 'place' }}
        endpoints = ['tcp/{map}']
        clients = [{{ address = '10.0.0.0/8' }}]
        [object.eye]
        operation = 'look'
        endpoints = ['tcp/{eye}']"
    )
}

/// A servant of both objects: the map asks the eye.
#[derive(Default)]
pub struct Servant {
    eye: Option<TrackerStub>,
    located: AtomicU32,
    /// `nothing` takes longer.
    pub slow: AtomicBool,
    /// `nothing` fails.
    pub failing: AtomicBool,
    timings: Mutex<Vec<Option<rt::RequestTiming>>>,
}

impl Named for Servant {
    fn name(&self) -> Result<String, SystemException> {
        Ok("map".to_owned())
    }
}

impl Tracker for Servant {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        self.located.fetch_add(1, Ordering::Relaxed);
        self.eye.as_ref().map_or(Ok(Position { x: f64::from(id), y: 1.0 }), |eye| eye.locate(id))
    }
    /// Uses the CPU for a microsecond for each octet.
    fn hint(&self, _: &str, raw: &[u8]) -> Result<(), SystemException> {
        let until = own_cpu_time() + Span::from_micros(raw.len() as u64);
        while own_cpu_time() < until {}
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        self.timings.lock().unwrap().push(rt::timing());
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(SystemKind::Internal.not_done(0));
        }
        if self.slow.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(60));
        }
        Ok(())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Run {
    system: Arc<System>,
    plan: Arc<Plan>,
    map: Arc<Servant>,
    serving: ServingObjects,
    running: RunningNode,
    text: String,
    _cpus: RwLockReadGuard<'static, ()>,
}

/// A file with one processor, and its node with these objects.
fn serving(text: &str, names: &[&str]) -> (Arc<System>, Arc<Plan>, ServingObjects, RunningNode) {
    let system = Arc::new(read(text, "map.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut objects = Objects::new();
    names.iter().for_each(|name| objects.add::<dyn Tracker>(name, Arc::new(Servant::default())));
    let (node, installed) = objects.install(&system, None, Node::new(system.clone(), plan.clone())).unwrap();
    let mut node = node.prepare().unwrap();
    let serving = installed.serve(&mut node, None).unwrap();
    (system, plan, serving, node.start())
}

/// Runs share the CPUs; a test that floods them has them alone.
static CPUS: RwLock<()> = RwLock::new(());

type Body = Box<dyn FnMut(&mut JobContext<'_>, &TrackerStub) + Send>;

/// All hosts in one process, with these bodies for `steer` and `explore`.
fn run(steer: Option<Body>, explore: Option<Body>, with_map: bool) -> Run {
    run_of(text(&unused_address().to_string(), &unused_address().to_string()), steer, explore, with_map)
}

fn run_of(text: String, steer: Option<Body>, explore: Option<Body>, with_map: bool) -> Run {
    let cpus = CPUS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let system = Arc::new(read(&text, "map.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let eye = object::<dyn Tracker>(&system, "eye").unwrap();
    let map = Arc::new(Servant { eye: Some(eye), ..Servant::default() });
    let mut objects = Objects::new();
    objects.add::<dyn Tracker>("eye", Arc::new(Servant::default()));
    if with_map {
        objects.add::<dyn Tracker>("map", map.clone());
    }
    let (mut node, installed) = objects.install(&system, None, Node::new(system.clone(), plan.clone())).unwrap();
    for (name, body) in [("steer", steer), ("explore", explore)] {
        let stub = object::<dyn Tracker>(&system, "map").unwrap();
        let mut body = body.unwrap_or_else(|| Box::new(|_, _| ()));
        node = node.body(name, move |job| body(job, &stub));
    }
    let mut node = node.prepare().unwrap();
    let serving = installed.serve(&mut node, None).unwrap();
    Run { system, plan, map, serving, running: node.start(), text, _cpus: cpus }
}

/// How many jobs of each operation ended in each way.
type Ends = BTreeMap<(String, JobOutcome), usize>;

impl Run {
    /// Runs until `enough`, and ends.
    fn until(mut self, enough: impl Fn(&Servant) -> bool) -> (Ends, Vec<(ProcessorId, Instant, TraceEvent)>, EndedRun) {
        let (mut events, began) = (Vec::new(), std::time::Instant::now());
        while !enough(&self.map) {
            assert!(began.elapsed().as_secs() < 40, "it takes too long");
            self.running.poll(&mut |processor, at, event| events.push((processor, at, event)));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        self.running.stop(&mut |processor, at, event| events.push((processor, at, event)));
        drop(self.serving);
        let mut ends = Ends::new();
        for (_, _, event) in &events {
            if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
                let name = self.system.operation(end.job.operation).name.clone();
                *ends.entry((name, end.outcome)).or_default() += 1;
            }
        }
        (ends, events, EndedRun { system: self.system, plan: self.plan })
    }
}

struct EndedRun {
    system: Arc<System>,
    plan: Arc<Plan>,
}

impl EndedRun {
    /// Each dispatcher decides the same again from its inputs.
    fn replays(&self, events: &[(ProcessorId, Instant, TraceEvent)]) {
        for plan in &self.plan.processors {
            let own = events.iter().filter(|(processor, _, _)| *processor == plan.processor);
            let own: Vec<_> = own.map(|(_, at, event)| (*at, *event)).collect();
            hyoshi_replay::replay(&self.system, plan, own).unwrap_or_else(|parted| panic!("{parted}"));
        }
    }
}

/// A privilege that the kernel refused to a run: lanes need theirs to precede others.
fn refused(notes: &[RunNote]) -> Option<&RunNote> {
    notes.iter().find(|note| matches!(note, RunNote::Refused { .. }))
}

/// Jobs that ran, in time or late.
fn ran(ends: &Ends, operation: &str) -> usize {
    let of = |outcome| ends.get(&(operation.to_owned(), outcome)).copied().unwrap_or(0);
    of(JobOutcome::Made) + of(JobOutcome::Missed)
}

#[test]
fn a_body_that_calls_an_object_runs_both_parts_of_its_operation_and_nested_calls_do_too() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let theirs = answers.clone();
    let steer: Body = Box::new(move |job, map| {
        let before = job.operation().to_owned();
        // A timing of its own does not move the origin of the method's job.
        let answer = with_timing(CallTiming::default(), || map.locate(7)).map(|found| found.y);
        theirs.lock().unwrap().push((before, job.operation().to_owned(), answer.ok()));
    });
    let (ends, events, run) = run(Some(steer), None, true).until(|map| map.located.load(Ordering::Relaxed) >= 40);
    let answers = answers.lock().unwrap();
    let first = &answers[..answers.len() - 1];
    let expected = ("steer:call".to_owned(), "steer".to_owned(), Some(1.0));
    assert!(first.iter().all(|answer| *answer == expected), "{first:?}");
    // Each part once for each release, but for the last, which the end may have cut.
    let parts = ["steer:call", "locate@steer:call", "look@locate@steer", "locate@steer", "steer"];
    let ran = parts.map(|part| ran(&ends, part));
    assert!(ran.windows(2).all(|pair| pair[0] >= pair[1] && pair[0] <= pair[1] + 2), "{ran:?}");
    assert!(ran[4] >= 35, "{ran:?}");
    let period = |signal: &Signal| run.system.setting(0, signal.to).period.as_nanos();
    let is_late = |signal: &&Signal| !signal.origin.as_nanos().is_multiple_of(period(signal));
    let mut signals = events.iter().filter_map(|(_, _, event)| match event {
        TraceEvent::Input(Input::Signal(signal)) => Some(signal),
        _ => None,
    });
    assert_eq!(signals.find(is_late), None, "the origins are releases of `steer`");
    // No job waits with its token, or releases it: each ends with its call.
    assert!(!events.iter().any(|(_, _, event)| matches!(event, TraceEvent::Input(Input::Suspend { .. }))));
    run.replays(&events);
}

#[test]
fn the_rests_of_calls_run_once_each_also_where_a_lane_has_one_thread() {
    let steer: Body = Box::new(|_, map| drop(map.locate(7)));
    let text = text(&unused_address().to_string(), &unused_address().to_string());
    let text = text.replace("strategy = 'EDF'", "strategy = 'EDF'\n        pool = 1");
    let (ends, events, run) =
        run_of(text, Some(steer), None, true).until(|map| map.located.load(Ordering::Relaxed) >= 40);
    let parts = ["steer:call", "locate@steer:call", "look@locate@steer", "locate@steer", "steer"];
    let ran = parts.map(|part| ran(&ends, part));
    assert!(ran.windows(2).all(|pair| pair[0] >= pair[1] && pair[0] <= pair[1] + 2), "{ran:?}");
    let mut rests: Vec<u64> = Vec::new();
    for (_, _, event) in &events {
        if let TraceEvent::Input(Input::Signal(signal)) = event
            && run.system.operation(signal.to).name == "steer"
        {
            rests.push(signal.number);
        }
    }
    assert!(rests.len() >= 35 && rests.windows(2).all(|pair| pair[0] < pair[1]), "{rests:?}");
    run.replays(&events);
}

#[test]
fn a_body_that_does_not_call_leads_to_the_method_all_the_same() {
    let (ends, events, run) = run(None, None, true).until({
        let began = std::time::Instant::now();
        move |_| began.elapsed().as_millis() > 300
    });
    // Without a request the method's jobs have nothing to do.
    assert!(ran(&ends, "locate@steer") >= 15 && ran(&ends, "steer") >= 15, "{ends:?}");
    run.replays(&events);
}

#[test]
fn nested_calls_of_a_hundred_callers_through_lanes_of_one_thread_end_within_their_bounds() {
    undisturbed(nested_calls);
}

fn nested_calls() {
    const CALLERS: usize = 100;
    // A processor has at most 16 threads in a lane: each of 7 has the threads for its callers and one more.
    const TOGETHER: usize = 15;
    let _alone = CPUS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    // All calls at once exceed a cap.
    let uncapped = "cap = '100%'\nhard_cap = '100%'";
    let mut text = "name = 'nested'\nduration = '60s'\n".to_owned();
    for callers in 0..CALLERS.div_ceil(TOGETHER) {
        text += &format!("[processor.callers{callers}]\npool = {}\n{uncapped}\n", TOGETHER + 1);
    }
    let servers = ["front", "middle", "back"];
    for (server, next) in servers.iter().zip([Some("middle"), Some("back"), None]) {
        let calls = next.map_or(String::new(), |next| format!("calls = {{ method = '{next}', after = '0.5ms' }}"));
        text += &format!(
            "[processor.on_{server}]
            pool = 1
            {uncapped}
            [operation.{server}]
            on = 'on_{server}'
            called = true
            wcet = '1ms'
            {calls}
            [object.{server}]
            operation = '{server}'
            endpoints = ['tcp/{}']
            requests = {CALLERS}\n",
            unused_address()
        );
    }
    for caller in 0..CALLERS {
        text += &format!(
            "[operation.c{caller}]
            on = 'callers{}'
            every = '2s'
            wcet = '1ms'
            calls = {{ method = 'front', after = '0.5ms' }}\n",
            caller / TOGETHER
        );
    }
    let system = Arc::new(read(&text, "nested.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let stub = |name: &str| object::<dyn Tracker>(&system, name).unwrap();
    let served = servers.map(|name| {
        let next = servers.iter().skip_while(|one| **one != name).nth(1);
        Arc::new(Servant { eye: next.map(|next| stub(next)), ..Servant::default() })
    });
    let mut objects = Objects::new();
    servers.iter().zip(&served).for_each(|(name, servant)| objects.add::<dyn Tracker>(name, servant.clone()));
    let (mut node, installed) = objects.install(&system, None, Node::new(system.clone(), plan.clone())).unwrap();
    let answered: Arc<Vec<AtomicU32>> = Arc::new((0..CALLERS).map(|_| AtomicU32::new(0)).collect());
    let failed = Arc::new(AtomicU32::new(0));
    for caller in 0..CALLERS {
        let (front, answered, failed) = (stub("front"), answered.clone(), failed.clone());
        node = node.body(format!("c{caller}"), move |_| match front.locate(caller as u32) {
            Ok(found) if found.x == caller as f64 => drop(answered[caller].fetch_add(1, Ordering::Relaxed)),
            _ => drop(failed.fetch_add(1, Ordering::Relaxed)),
        });
    }
    let mut node = node.prepare().unwrap();
    let serving = installed.serve(&mut node, None).unwrap();
    let mut running = node.start();
    let (mut events, began) = (Vec::new(), std::time::Instant::now());
    // Each call has seven parts.
    let (jobs, mut finished) = (2 * 7 * CALLERS, 0);
    while finished < jobs || answered.iter().any(|one| one.load(Ordering::Relaxed) < 2) {
        assert_eq!(failed.load(Ordering::Relaxed), 0, "no call fails");
        assert!(began.elapsed().as_secs() < 40, "it takes too long: {answered:?}");
        running.poll(&mut |processor, at, event| {
            if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
                finished += usize::from(end.outcome.finished());
            }
            events.push((processor, at, event));
        });
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let ended = running.stop(&mut |processor, at, event| events.push((processor, at, event)));
    drop(serving);
    assert_eq!(ended.lost.events, 0);
    assert!(!ended.notes.iter().any(|note| matches!(note, RunNote::PoolExhausted { .. })), "{:?}", ended.notes);
    for servant in &served {
        assert!(servant.located.load(Ordering::Relaxed) >= 2 * CALLERS as u32);
    }
    if let Some(refused) = refused(&ended.notes) {
        return missing(refused);
    }
    let report = analyse(&system, &plan);
    let bounds: BTreeMap<_, _> =
        report.operations().filter_map(|(.., one)| Some((one.operation, Span::from_nanos(one.bound_ns?)))).collect();
    let (mut within, mut beyond) = (0, Vec::new());
    for (_, _, event) in &events {
        let TraceEvent::Decision(DispatchDecision::End(end)) = event else { continue };
        let Some(bound) = bounds.get(&end.job.operation).filter(|_| end.outcome.finished()) else { continue };
        let from = match system.setting(usize::from(end.epoch), end.job.operation).deadline {
            Deadline::Own(_) => end.release,
            Deadline::Origin(_) => end.origin,
        };
        let response = end.end.since(from);
        if response <= *bound {
            within += 1;
        } else {
            beyond.push((&system.operation(end.job.operation).name, response, *bound));
        }
    }
    assert!(beyond.is_empty(), "{beyond:?}");
    assert!(within >= jobs, "only {within} of {jobs} jobs have bounds");
    EndedRun { system, plan }.replays(&events);
}

#[test]
fn without_a_server_the_call_fails_and_the_rest_of_the_job_runs() {
    let failed = Arc::new(AtomicU32::new(0));
    let theirs = failed.clone();
    let steer: Body = Box::new(move |job, map| {
        let raised = map.nothing().unwrap_err();
        assert_eq!(raised.kind, SystemKind::Transient);
        // `nothing` is not the method that `steer` calls in the file: no call of the file is under way.
        assert_eq!(job.operation(), "steer:call");
        match map.locate(1) {
            Err(LocateError::System(raised)) => assert_eq!(raised.kind, SystemKind::Transient),
            other => panic!("{other:?}"),
        }
        assert_eq!(job.operation(), "steer");
        theirs.fetch_add(1, Ordering::Relaxed);
    });
    let enough = failed.clone();
    let (ends, events, run) = run(Some(steer), None, false).until(move |_| enough.load(Ordering::Relaxed) >= 20);
    assert!(ran(&ends, "steer") >= 18 && ran(&ends, "locate@steer") == 0, "{ends:?}");
    run.replays(&events);
}

#[test]
fn the_rest_of_a_job_that_is_cancelled_leaves_its_body_which_is_asked_to_stop() {
    let stopped = Arc::new(AtomicU32::new(0));
    let theirs = stopped.clone();
    // Not critical, due after 20 ms; the answer takes 60 ms.
    let explore: Body = Box::new(move |job, map| {
        let _ = map.nothing();
        theirs.fetch_add(u32::from(job.stop_asked()), Ordering::Relaxed);
    });
    let run = run(None, Some(explore), true);
    run.map.slow.store(true, Ordering::Relaxed);
    let enough = stopped.clone();
    let (ends, events, run) = run.until(move |_| enough.load(Ordering::Relaxed) >= 4);
    assert!(ends.keys().any(|(name, outcome)| name == "explore" && *outcome == JobOutcome::Cancelled), "{ends:?}");
    run.replays(&events);
}

fn client(run: &Run) -> (Orb, TrackerStub) {
    let orb = Orb::client().unwrap();
    let at = run.text.split("endpoints = ['tcp/").nth(1).unwrap().split('\'').next().unwrap();
    let stub = orb.resolve_unchecked::<dyn Tracker>(&format!("corbaloc:iiop:1.2@{at}/map")).unwrap();
    (orb, stub)
}

#[test]
fn other_programs_reach_what_requests_release_and_not_the_methods_of_callers() {
    let run = run(None, None, true);
    let (_orb, map) = client(&run);
    assert_eq!(map.echo(&[1, 2]).unwrap(), [1, 2]);
    let raised = map.nothing().unwrap_err();
    assert_eq!((raised.kind, raised.minor), (SystemKind::NoPermission, minor::CALLERS_ONLY));
    // A client without an entry has the lowest importance, and is not critical.
    let asked = CallTiming { importance: 5, critical: true, ..CallTiming::default() };
    with_timing(asked, || map.echo(&[3])).unwrap();
    assert_eq!(run.serving.counts().clamped, 1);
    let (_, events, run) = run.until(|_| true);
    let importance = |(_, _, event): &(ProcessorId, Instant, TraceEvent)| match event {
        TraceEvent::Input(Input::Invoke(request)) => Some((request.importance, request.critical)),
        _ => None,
    };
    let invoked: Vec<_> = events.iter().filter_map(importance).collect();
    assert_eq!(invoked, [(0, false), (0, false)]);
    run.replays(&events);
}

#[test]
fn forged_calls_are_refused_if_implausible_or_repeated_and_a_flood_of_them_does_not_exceed_the_queue() {
    use std::io::Write;
    let run = run(None, None, true);
    let started = std::time::Instant::now();
    let at = run.text.split("endpoints = ['tcp/").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    let source = run.system.operation_ids().find(|id| run.system.operation(*id).name == "explore:call").unwrap();
    let system = hyoshi_runtime::fingerprint(&run.system);
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    let request_to = |operation, system, number: u64, period: u64| {
        let data = OperationCall { system, source: source.0, number, period }.octets();
        let contexts = [ServiceContext { tag: CONTEXT_HYOSHI_CALL, data: &data }];
        let mut to = Encoder::new(ByteOrder::Big);
        let (target, response, id) = (Target::Key(b"map"), Response::Target, (number as u32).wrapping_mul(2));
        let header = RequestHeader { id, response, target, operation, contexts: &contexts };
        header.begin(&mut to).unwrap().end(&mut to).unwrap();
        to.into_bytes()
    };
    let request_with = |system, number, period| request_to("nothing", system, number, period);
    let request = |system, number: u64| request_with(system, number, 20_000_000);
    let mut refusals = |requests: Vec<Vec<u8>>| {
        stream.write_all(&requests.concat()).unwrap();
        let status = |_: &Vec<u8>| {
            let reply = peer::message(&mut stream).unwrap();
            u32::from_ne_bytes(reply[16..20].try_into().unwrap())
        };
        requests.iter().map(status).filter(|status| *status == 2).count()
    };
    // Ahead of the run's own numbers, by at most a second.
    let ahead = started.elapsed().as_millis() as u64 / 20 + 60;
    for implausible in [1_000_000, 1 << 63, u64::MAX] {
        assert_eq!(refusals(vec![request(system, implausible)]), 1, "number {implausible}");
        assert_eq!(refusals(vec![request_with(system, ahead, implausible)]), 1, "period {implausible}");
    }
    assert_eq!(refusals(vec![request_with(system, ahead, 0)]), 1);
    assert_eq!(refusals(vec![request(system, ahead)]), 0);
    assert_eq!(refusals(vec![request(system, ahead)]), 1, "the same number again");
    assert_eq!(refusals(vec![request(system ^ 1, ahead + 1)]), 1, "another system");
    let of_another = request_to("_get_name", system ^ 1, ahead + 1, 20_000_000);
    assert_eq!(refusals(vec![of_another]), 1, "it holds no place of the file's calls");
    let refused = refusals((0..100).map(|number| request(system, ahead + 2 + number)).collect());
    assert!(refused > 80, "{refused} of 100 were refused");
    let (_, events, run) = run.until(|_| true);
    run.replays(&events);
}

#[test]
fn a_client_gets_no_more_than_its_ceiling_and_rate() {
    let folder = folder();
    let socket = folder.join("map.sock");
    let uid = hyoshi_os::Credentials::own().uid;
    let text = format!(
        "name = 'map'
        [operation.query]
        called = true
        deadline = '5s'
        wcet = '0.1ms'
        importance = 7
        critical = true
        [object.refusing]
        operation = 'query'
        endpoints = ['unix/{socket}']
        clients = [{{ user = '{uid}', importance = 3, critical = false, min_interval = '1h', excess = 'refuse' }}]
        [object.clamping]
        operation = 'query'
        endpoints = ['unix/{socket}']
        clients = [{{ user = '{uid}', importance = 3, critical = false }}]",
        socket = socket.display()
    );
    let (system, _, serving, running) = serving(&text, &["refusing", "clamping"]);
    let refusing = object::<dyn Tracker>(&system, "refusing").unwrap();
    let clamping = object::<dyn Tracker>(&system, "clamping").unwrap();
    let asked = |importance, critical| CallTiming { importance, critical, ..CallTiming::default() };
    let refused = |raised: SystemException| (raised.kind, raised.minor);
    let beyond = (SystemKind::NoPermission, minor::CEILING);
    assert_eq!(refused(with_timing(asked(4, false), || refusing.echo(&[])).unwrap_err()), beyond);
    assert_eq!(refused(with_timing(asked(3, true), || refusing.echo(&[])).unwrap_err()), beyond);
    with_timing(asked(9, true), || clamping.echo(&[])).unwrap();
    with_timing(asked(2, false), || clamping.echo(&[])).unwrap();
    clamping.echo(&[]).unwrap();
    // Eight at once, two counted above; then one an hour.
    let often = (0..20).filter_map(|_| refusing.echo(&[]).err()).map(refused).collect::<Vec<_>>();
    assert!(
        often.len() >= 10 && often.iter().all(|why| *why == (SystemKind::Transient, minor::TOO_OFTEN)),
        "{often:?}"
    );
    let counts = serving.counts();
    assert_eq!((counts.clamped, counts.refused), (1, 2 + often.len() as u64));
    let mut events = Vec::new();
    running.stop(&mut |_, at, event| events.push((at, event)));
    let invoked = events.iter().filter_map(|(_, event)| match event {
        TraceEvent::Input(Input::Invoke(request)) => Some((request.importance, request.critical)),
        _ => None,
    });
    assert_eq!(invoked.take(3).collect::<Vec<_>>(), [(3, false), (2, false), (3, false)]);
    drop(serving);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn objects_of_a_processor_are_reached_only_at_their_own_endpoints() {
    let folder = folder();
    let mut open = unused_address();
    // `localhost` is another address, with the same port.
    open.set_ip("127.0.0.2".parse().unwrap());
    let socket = folder.join("map.sock");
    let text = format!(
        "name = 'map'
        [operation.query]
        called = true
        deadline = '5s'
        wcet = '0.1ms'
        [object.open]
        operation = 'query'
        endpoints = ['tcp/{open}']
        [object.closed]
        operation = 'query'
        endpoints = ['unix/{socket}']
        [object.named]
        operation = 'query'
        endpoints = ['tcp/localhost:{port}']",
        socket = socket.display(),
        port = open.port()
    );
    let (system, _, serving, running) = serving(&text, &["open", "closed", "named"]);
    for name in ["open", "closed", "named"] {
        object::<dyn Tracker>(&system, name).unwrap().echo(&[]).unwrap();
    }
    let orb = Orb::client().unwrap();
    let through = |endpoint: &str, name: &str| {
        orb.resolve_unchecked::<dyn Tracker>(&format!("corbaloc:{endpoint}/{name}")).unwrap().echo(&[])
    };
    let tcp = format!("iiop:1.2@{open}");
    through(&tcp, "open").unwrap();
    for elsewhere in ["closed", "named"] {
        let raised = through(&tcp, elsewhere).unwrap_err();
        assert_eq!((raised.kind, raised.minor), (SystemKind::ObjectNotExist, minor::NO_OBJECT), "{elsewhere}");
    }
    running.stop(&mut |_, _, _| {});
    drop(serving);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_flood_of_refused_requests_leaves_time_for_less_urgent_lanes() {
    use std::io::Write;
    let _alone = CPUS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let address = unused_address();
    let text = format!(
        "name = 'map'
        [operation.query]
        called = true
        deadline = '1ms'
        wcet = '0.1ms'
        [operation.draw]
        every = '20ms'
        wcet = '5ms'
        [object.map]
        operation = 'query'
        endpoints = ['tcp/{address}']
        clients = [{{ address = '127.0.0.1', min_interval = '1h', excess = 'refuse' }}]"
    );
    let (system, _, serving, mut running) = serving(&text, &["map"]);
    let mut request = Encoder::new(ByteOrder::Big);
    let (target, response) = (Target::Key(b"map"), Response::None);
    let header = RequestHeader { id: 0, response, target, operation: "nothing", contexts: &[] };
    header.begin(&mut request).unwrap().end(&mut request).unwrap();
    let flood = request.into_bytes().repeat(200);
    let ends = AtomicBool::new(false);
    let (draw, mut made, mut all) = (system.operation_ids().nth(1).unwrap(), 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            while !ends.load(Ordering::Relaxed) {
                if stream.write_all(&flood).is_err() {
                    break;
                }
            }
        });
        let began = std::time::Instant::now();
        while all < 100 && began.elapsed().as_secs() < 40 {
            running.poll(&mut |_, _, event| match event {
                TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == draw => {
                    made += usize::from(end.outcome == JobOutcome::Made);
                    all += 1;
                }
                _ => {}
            });
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        ends.store(true, Ordering::Relaxed);
        running.stop(&mut |_, _, _| {});
        // A thread may be within a write that no reader takes.
        drop(serving);
    });
    assert!(all >= 100 && made * 4 >= all * 3, "{made} of {all} were in time");
}

#[test]
fn requests_of_an_urgent_lane_do_not_wait_for_clients_of_a_less_urgent_one() {
    use std::io::Write;
    type Timed = (Instant, TraceEvent);
    const URGENT: usize = 100;
    let _alone = CPUS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    let address = unused_address();
    let text = format!(
        "name = 'map'
        [processor.main]
        strategy = 'DM'
        [operation.draw]
        called = true
        deadline = '5s'
        wcet = '2ms'
        [operation.copy]
        called = true
        deadline = '5s'
        wcet = '2ms'
        [operation.locate]
        called = true
        deadline = '100ms'
        wcet = '1ms'
        critical = true
        [object.map]
        operation = 'draw'
        methods = {{ locate = 'locate', echo = 'copy' }}
        endpoints = ['tcp/{address}']"
    );
    let (system, plan, serving, mut running) = serving(&text, &["map"]);
    let message = |operation: &str, response, write: &dyn Fn(&mut Encoder)| {
        let mut to = Encoder::new(ByteOrder::Big);
        let header = RequestHeader { id: 0, response, target: Target::Key(b"map"), operation, contexts: &[] };
        let begun = header.begin(&mut to).unwrap();
        write(&mut to);
        begun.end(&mut to).unwrap();
        to.into_bytes()
    };
    let draw = message("hint", Response::None, &|to| {
        "".encode(to).unwrap();
        vec![0u8; 2_000].encode(to).unwrap();
    });
    let copy = message("echo", Response::Target, &|to| vec![0u8; 64 << 10].encode(to).unwrap());
    // A low client that does not finish its message.
    let mut half = std::net::TcpStream::connect(address).unwrap();
    half.write_all(&draw[..draw.len() / 2]).unwrap();
    let (ends, named) =
        (AtomicBool::new(false), |name| system.operation_ids().find(|id| system.operation(*id).name == name));
    let [low, copies, high] = ["draw", "copy", "locate"].map(|name| named(name).unwrap());
    let (mut events, mut lacks) = (Vec::new(), None);
    std::thread::scope(|scope| {
        // One that floods the operation, and one that does not read its replies.
        for messages in [draw.repeat(50), copy] {
            let ends = &ends;
            scope.spawn(move || {
                let mut stream = std::net::TcpStream::connect(address).unwrap();
                while !ends.load(Ordering::Relaxed) && stream.write_all(&messages).is_ok() {}
            });
        }
        let count = |events: &[Timed], operation| {
            let finished = |event: &&Timed| matches!(event.1, TraceEvent::Decision(DispatchDecision::End(end)) if end.job.operation == operation && end.outcome.finished());
            events.iter().filter(finished).count()
        };
        let began = std::time::Instant::now();
        let mut until = |events: &mut Vec<Timed>, enough: &dyn Fn(&[Timed]) -> bool| {
            while !enough(events) && began.elapsed().as_secs() < 40 {
                running.poll(&mut |_, at, event| events.push((at, event)));
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        };
        until(&mut events, &|events| count(events, low) >= 10 && count(events, copies) >= 1);
        let urgent = scope.spawn(|| {
            let map = object::<dyn Tracker>(&system, "map").unwrap();
            (0..URGENT).filter(|_| map.as_ref().within(Span::from_secs(20)).locate(7).is_ok()).count()
        });
        until(&mut events, &|events| count(events, high) >= URGENT && count(events, low) >= 50);
        ends.store(true, Ordering::Relaxed);
        let answered = urgent.join().unwrap();
        let ended = running.stop(&mut |_, at, event| events.push((at, event)));
        lacks = refused(&ended.notes).cloned();
        // A thread may be within a write that no reader takes.
        drop(serving);
        assert_eq!(answered, URGENT);
        assert!(count(&events, low) >= 50 && count(&events, copies) >= 1, "the low clients had their share");
    });
    drop(half);
    if let Some(refused) = lacks {
        return missing(refused);
    }
    let mut blame = Blame::new(&system, &plan.processors[0], false, Interest::All);
    let accounts: Vec<_> = events.iter().filter_map(|(at, event)| blame.event(*at, event)).collect();
    let urgent: Vec<_> = accounts.iter().filter(|account| account.end.job.operation == high).collect();
    assert_eq!(urgent.len(), URGENT);
    assert!(urgent.iter().all(|account| account.end.outcome == JobOutcome::Made), "{urgent:?}");
    // It asked while jobs of the low lane ran.
    let by_urgent = |part: ResponsePart| part.culprit().is_some_and(|who| who.operation == high);
    assert!(accounts.iter().any(|account| account.end.job.operation != high && !account.total(by_urgent).is_zero()));
    let less_urgent = |part| {
        let (ResponsePart::Waited { rank, .. } | ResponsePart::Preempted { rank, .. }) = part else { return false };
        rank == Rank::LessUrgent
    };
    let waited: Vec<_> = urgent.iter().filter(|account| !account.total(less_urgent).is_zero()).collect();
    assert!(waited.is_empty(), "{waited:?}");
    hyoshi_replay::replay(&system, &plan.processors[0], events).unwrap_or_else(|parted| panic!("{parted}"));
}

#[test]
fn a_servant_without_an_object_is_an_error_with_the_file_s_objects() {
    let text = text("127.0.0.1:7001", "127.0.0.1:7002");
    let system = Arc::new(read(&text, "map.toml", None).unwrap().system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let install = |names: &[&str]| {
        let mut objects = Objects::new();
        names.iter().for_each(|name| objects.add::<dyn Tracker>(name, Arc::new(Servant::default())));
        objects.install(&system, None, Node::new(system.clone(), plan.clone())).map(drop).unwrap_err()
    };
    let mut objects = Objects::new();
    objects.add::<dyn Tracker>("map", Arc::new(Servant::default()));
    assert_eq!(
        ["query", "locate@steer", "steer"].map(|one| objects.serving(&system, one)),
        [Some("map"), Some("map"), None]
    );
    let known = vec!["map".to_owned(), "eye".to_owned()];
    assert_eq!(install(&["moon"]), ServantError::Unknown { object: "moon".into(), known });
    assert_eq!(install(&["map", "map"]), ServantError::Twice { object: "map".into() });
    let none = object::<dyn Tracker>(&system, "moon")
        .map(|stub: TrackerStub| AsRef::<Reference<dyn Tracker>>::as_ref(&stub).clone());
    assert_eq!(none.unwrap_err().kind, SystemKind::BadParam);
}
