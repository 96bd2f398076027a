//! Delegates around the servants of a file's objects: they decide about requests, contracts set and watch them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{System, read};
use hyoshi_node::{Objects, ServantError, ServingObjects, object};
use hyoshi_orb::{SystemException, SystemKind, minor};
use hyoshi_runtime::{ContractControl, Node, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{Input, TraceEvent};

use crate::common::folder;
use crate::objects::Servant;
use crate::tracking::{LocateError, Tracker, TrackerStub};

const PATIENCE: Duration = Duration::from_secs(60);

/// An object `map` at a socket, with this delegate and contract.
fn text(socket: &std::path::Path, rest: &str) -> String {
    format!(
        "name = 'map'
        duration = '10min'
        [operation.query]
        called = true
        deadline = '5s'
        wcet = '0.1ms'
        [object.map]
        operation = 'query'
        endpoints = ['unix/{}']
        {rest}",
        socket.display()
    )
}

struct Run {
    servant: Arc<Servant>,
    serving: ServingObjects,
    running: RunningNode,
    contracts: ContractControl,
    map: TrackerStub,
}

fn install(
    text: &str,
    servant: &Arc<Servant>,
) -> Result<(Arc<System>, Node, hyoshi_node::InstalledObjects), ServantError> {
    let system = Arc::new(read(text, "map.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut objects = Objects::new();
    objects.add::<dyn Tracker>("map", servant.clone());
    if system.objects.len() > 1 {
        objects.add::<dyn Tracker>("spare", Arc::new(Servant::default()));
    }
    let (node, installed) = objects.install(&system, None, Node::new(system.clone(), plan))?;
    Ok((system, node, installed))
}

fn run(text: &str) -> Run {
    let servant = Arc::new(Servant::default());
    let (system, node, installed) = install(text, &servant).unwrap();
    let mut node = node.prepare().unwrap();
    let serving = installed.serve(&mut node, None).unwrap();
    let contracts = node.handles().contracts;
    let map = object::<dyn Tracker>(&system, "map").unwrap();
    Run { servant, serving, running: node.start(), contracts, map }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn refused(result: Result<(), SystemException>) -> Option<(SystemKind, u32)> {
    result.err().map(|raised| (raised.kind, raised.minor))
}

/// Whether `locate` was refused by the delegate.
fn is_closed(map: &TrackerStub) -> bool {
    match map.locate(1) {
        Ok(_) => false,
        Err(LocateError::System(raised)) => {
            assert_eq!((raised.kind, raised.minor), (SystemKind::Transient, minor::DELEGATE));
            true
        }
        Err(raised) => panic!("{raised:?}"),
    }
}

#[test]
fn a_delegate_refuses_and_thins_out_requests_before_they_are_jobs_and_a_region_sets_its_behaviour() {
    let folder = folder();
    let rest = "[delegate.front]
        object = 'map'
        behaviour = { '*' = 'pass', echo = 'thin:1/2', nothing = 'refuse:NO_RESOURCES' }
        [condition.mode]
        value = 0
        [contract.door]
        period = '10ms'
        watch = { mode = { of = 'condition.mode' } }
        [[contract.door.region]]
        name = 'closed'
        enter = 'mode > 0'
        do = [{ set = 'delegate.front.*', to = 'refuse' }, { set = 'delegate.front.nothing', to = 'pass' }]
        [[contract.door.region]]
        name = 'open'";
    let Run { serving, running, contracts, map, .. } = run(&text(&folder.join("map.sock"), rest));
    let thinned = (SystemKind::Transient, minor::DELEGATE);
    let echoes: Vec<_> = (0..4).map(|_| refused(map.echo(&[1]).map(drop))).collect();
    assert_eq!(echoes, [None, Some(thinned), None, Some(thinned)]);
    assert_eq!(refused(map.nothing()), Some((SystemKind::NoResources, minor::DELEGATE)));
    assert!(!is_closed(&map));
    contracts.set("mode", 1.0).unwrap();
    until("the region refuses", || is_closed(&map));
    // Operations with a behaviour of their own keep it, unless the region sets it.
    assert_eq!(refused(map.echo(&[1]).map(drop)), None);
    until("the region lets it pass", || refused(map.nothing()).is_none());
    contracts.set("mode", 0.0).unwrap();
    until("the file's behaviour applies again", || !is_closed(&map));
    until("the file's behaviour applies again", || refused(map.nothing()).is_some());
    let outcomes: Vec<_> = contracts.actions().iter().map(|one| (one.action.clone(), one.done, one.failed)).collect();
    let expected = [("delegate.front.* = refuse:TRANSIENT", 1, 0), ("delegate.front.nothing = pass", 1, 0)];
    assert_eq!(outcomes, expected.map(|(action, done, failed)| (action.to_owned(), done, failed)));
    let measured = serving.delegates();
    let count = |name: &str| {
        let found = measured[0].1.iter().find(|one| one.name() == name).unwrap().measured();
        (found.passed, found.refused, found.passed + found.refused == found.requests)
    };
    assert_eq!(count("echo"), (3, 2, true));
    let (located, closed, _) = count("locate");
    assert!(located >= 2 && closed >= 1);
    let passed: u64 = measured[0].1.iter().map(|one| one.measured().passed).sum();
    let mut jobs = 0;
    running.stop(&mut |_, _, event| jobs += u64::from(matches!(event, TraceEvent::Input(Input::Invoke(_)))));
    assert_eq!(jobs, passed, "only requests that pass are jobs");
    drop(serving);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn contracts_watch_the_latency_failures_and_rate_of_a_delegate() {
    let folder = folder();
    let rest = "[delegate.front]
        object = 'map'
        [contract.health]
        period = '10ms'
        watch = { failing = { of = 'delegate.front.failure_ratio', max_age = '400ms' }, slow = { of = 'delegate.front.latency', max_age = '400ms' }, calls = { of = 'delegate.front.rate' } }
        [[contract.health.region]]
        name = 'ill'
        enter = 'failing > 0.9 && calls > 0'
        [[contract.health.region]]
        name = 'slow'
        enter = 'slow > 0.05'
        [[contract.health.region]]
        name = 'well'";
    let Run { servant, serving, running, contracts, map } = run(&text(&folder.join("map.sock"), rest));
    let is_in = |region: &str| contracts.states()[0].regions == [region];
    until("it is well", || is_in("well"));
    servant.failing.store(true, Ordering::Relaxed);
    until("requests fail", || {
        let _ = map.nothing();
        is_in("ill")
    });
    servant.failing.store(false, Ordering::Relaxed);
    servant.slow.store(true, Ordering::Relaxed);
    until("requests are slow", || map.nothing().is_ok() && is_in("slow"));
    until("nothing is requested", || {
        let states = contracts.states();
        let readings: Vec<_> = states[0].conditions.iter().map(|(_, reading)| *reading).collect();
        readings == [ConditionReading::Stale, ConditionReading::Stale, ConditionReading::Fresh(0.0)]
    });
    assert!(is_in("well"));
    running.stop(&mut |_, _, _| ());
    drop(serving);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_region_redirects_the_clients_of_a_failing_object_and_they_return_after_it() {
    let folder = folder();
    let spare = folder.join("spare.sock");
    let rest = format!(
        "[operation.spare]
        called = true
        deadline = '5s'
        wcet = '0.1ms'
        [object.spare]
        operation = 'spare'
        endpoints = ['unix/{spare}']
        [delegate.front]
        object = 'map'
        redirect = 'corbaloc:omniunix:{spare}:/spare'
        [condition.mode]
        value = 0
        [contract.door]
        period = '10ms'
        watch = {{ mode = {{ of = 'condition.mode' }} }}
        [[contract.door.region]]
        name = 'away'
        enter = 'mode > 0'
        do = [{{ set = 'delegate.front.*', to = 'redirect' }}]
        [[contract.door.region]]
        name = 'here'",
        spare = spare.display()
    );
    let text = text(&folder.join("map.sock"), &rest);
    let wrong = text.replace("corbaloc:omniunix:", "corbalock:");
    let error = install(&wrong, &Arc::default()).err().unwrap().to_string();
    assert!(error.contains("`redirect` of delegate `front`") && error.contains("corbaloc::HOST:PORT/KEY"), "{error}");
    let Run { servant, serving, running, contracts, map } = run(&text);
    servant.failing.store(true, Ordering::Relaxed);
    assert!(map.nothing().is_err());
    contracts.set("mode", 1.0).unwrap();
    until("the other object answers", || map.nothing().is_ok());
    let system = read(&text, "map.toml", None).unwrap().system;
    contracts.set("mode", 0.0).unwrap();
    // Clients that were forwarded stay with the other object; others call this one.
    until("the file's behaviour applies again", || {
        object::<dyn Tracker>(&system, "map").unwrap().nothing().is_err() && map.nothing().is_ok()
    });
    running.stop(&mut |_, _, _| ());
    drop(serving);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_behaviour_for_an_operation_that_the_interface_lacks_is_refused_at_the_start() {
    let folder = folder();
    let rest = "[delegate.front]\nobject = 'map'\nbehaviour = { locat = 'refuse' }";
    let error = install(&text(&folder.join("map.sock"), rest), &Arc::default()).err().unwrap().to_string();
    assert!(error.contains("`locat`") && error.contains("locate"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
