//! Clients' requests are bounded. No time passes in these tests.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use hyoshi_control::{Arbiter, TaskId};
use hyoshi_model::{Instant, Share, Span};
use hyoshi_os::Credentials;

use super::{BrokerState, GroupProcesses, ReportedCycle, TaskSpec};
use crate::access::{Access, Caller};
use crate::audit::{self, Audit};
use crate::component::ComponentSpec;
use crate::limits::{LimitScope, Rules, UserLimits};
use crate::machine::Machine;
use crate::policy;
use crate::request_error::RequestError;

/// A state with a simulated machine, in a temporary directory.
struct TestBroker(BrokerState, PathBuf);

impl TestBroker {
    fn new(name: &str) -> TestBroker {
        let place = std::env::temp_dir().join(format!("hyoshi-bounds-{name}-{}", std::process::id()));
        let (machine, _) = Machine::open(&place, Some("simulated")).unwrap();
        let arbiter = Arbiter::new(policy::named("strict").unwrap(), Share::from_percent(100));
        let access = Access { broker: 0, group: None };
        let audit = Audit::to(&place.join("audit")).unwrap();
        let mut state = BrokerState::new(arbiter, Box::new(machine), access, audit);
        state.set_rules(Arc::new(Rules::new([limits()], "limits.toml")));
        TestBroker(state, place)
    }

    fn join(&mut self, who: &Caller, number: usize) -> Result<TaskId, RequestError> {
        self.0.join(who, &TaskSpec::new(&format!("t{number}"), Span::from_millis(100)), Instant::ZERO)
    }
}

/// The limits of each user.
fn limits() -> UserLimits {
    UserLimits { tasks: 1_024, settings: 1 << 20, importance: 10, ..UserLimits::of(LimitScope::Default) }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

fn user(uid: u32) -> Caller {
    Caller::Known(Credentials { pid: std::process::id(), uid, gid: uid, groups: vec![] })
}

#[test]
fn one_user_has_a_part_of_the_tasks_and_one_more_than_there_can_be_is_refused_with_how_many_there_are() {
    let mut stage = TestBroker::new("tasks");
    let (ann, root) = (user(1_000), user(0));
    for number in 0..1_024 {
        stage.join(&ann, number).unwrap();
    }
    let refused = stage.join(&ann, 1_024).unwrap_err();
    assert!(refused.to_string().contains("user 1000 already has 1024 tasks, the limit"), "{refused}");
    for number in 1_024..4_096 {
        stage.join(&root, number).unwrap();
    }
    let refused = stage.join(&root, 4_096).unwrap_err();
    assert!(refused.to_string().contains("4096"), "{refused}");
    let seventh = stage.0.find("t7").unwrap();
    stage.0.leave(&ann, seventh, Instant::ZERO).unwrap();
    stage.join(&ann, 4_096).unwrap();
}

#[test]
fn users_set_the_least_budgets_and_advocates_of_their_own_tasks_only() {
    let mut stage = TestBroker::new("set");
    let (ann, bob, now) = (user(1_000), user(1_001), Instant::ZERO);
    let kinds = ["max-decay", "cap"];
    let cap =
        |share: &str| ComponentSpec { parameters: vec![(String::new(), share.into())], ..ComponentSpec::of("cap") };
    let advocates = vec![ComponentSpec::of(kinds[0]), cap("50%")];
    let period = Span::from_millis(100);
    let id = stage.0.join(&ann, &TaskSpec { advocates, ..TaskSpec::new("t", period) }, now).unwrap();
    let state = &mut stage.0;
    state.set_least(&ann, "t", Span::from_millis(20), now).unwrap();
    assert_eq!(state.arbiter.joining(id).unwrap().least, Share::from_percent(20));
    state.set_advocate(&ann, "t", &cap("30%"), now).unwrap();
    assert_eq!(state.snapshot(id).unwrap().advocates, [ComponentSpec::of(kinds[0]), cap("30%")]);
    let chain = |state: &BrokerState| -> Vec<String> {
        let explained = state.arbiter.explain(id, now).unwrap();
        explained.advocates.into_iter().map(|one| one.words).collect()
    };
    assert_eq!(chain(state)[1], "at most 30%");

    for (error, part) in [
        (state.set_least(&ann, "t", Span::from_millis(101), now).unwrap_err(), "101ms"),
        (state.set_least(&bob, "t", Span::ZERO, now).unwrap_err(), "t"),
        (state.set_advocate(&bob, "t", &cap("20%"), now).unwrap_err(), "t"),
        (state.set_advocate(&ann, "t", &cap("0%"), now).unwrap_err(), "0%"),
        (state.set_advocate(&ann, "t", &ComponentSpec::of("floor"), now).unwrap_err(), "has no advocate `floor`"),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(chain(state)[1], "at most 30%");
    assert_eq!(state.arbiter.joining(id).unwrap().least, Share::from_percent(20));
    state.set_least(&ann, "t", Span::ZERO, now).unwrap();
    assert_eq!(state.arbiter.joining(id).unwrap().least, Share::ZERO);
}

#[test]
fn too_long_texts_are_refused_and_neither_stored_nor_printed_in_full() {
    let mut stage = TestBroker::new("long");
    let (ann, now) = (user(1_000), Instant::ZERO);
    let id = stage.join(&ann, 0).unwrap();
    let long = "x".repeat(100_000);
    let value = ComponentSpec {
        kind: "max-decay".into(),
        parameters: vec![("reports".into(), format!("{}9", "0".repeat(9_000)))],
    };
    let state = &mut stage.0;
    let joining = |name: &str| TaskSpec::new(name, Span::from_millis(100));
    let mut errors = vec![
        state.join(&ann, &joining(&long), now).unwrap_err(),
        state.join(&ann, &TaskSpec { group: long.clone(), ..joining("a") }, now).unwrap_err(),
        state.join(&ann, &TaskSpec { advocates: vec![ComponentSpec::of(&long)], ..joining("b") }, now).unwrap_err(),
        state.own_task(&ann, &joining(&long), now).unwrap_err(),
        state.find(&long).unwrap_err(),
        state.set_group(&ann, "t0", &long, now).unwrap_err(),
        state.set_group(&ann, &long, "", now).unwrap_err(),
        state.set_chain(&ann, "t0", vec![ComponentSpec::of("max-decay"); 50_000], now).unwrap_err(),
        state.set_chain(&ann, "t0", vec![value.clone()], now).unwrap_err(),
        state.add_advocate(&ann, "t0", &value, 0, now).unwrap_err(),
        state.set_advocate(&ann, "t0", &value, now).unwrap_err(),
        state.set_advocate(&ann, "t0", &ComponentSpec::of(&long), now).unwrap_err(),
        state.promise_lanes(&ann, &long, &[], now).unwrap_err(),
        state.promise_lanes(&user(0), &long, &[], now).unwrap_err(),
    ];
    let found = GroupProcesses::list(&state.access(), &ann, &format!("/{long}"));
    errors.push(state.add_group(&ann, id, &long, found, now).unwrap_err());
    for error in &errors {
        assert!(error.to_string().len() + error.remedy().len() < 1_000, "{error}");
    }
    assert_eq!(state.snapshot(id).unwrap().advocates, [ComponentSpec::of("max-decay")]);
    stage.0.audit = Audit::none();
    let lines = std::fs::read_to_string(stage.1.join("audit")).unwrap();
    assert!(lines.lines().count() >= errors.len() - 1);
    assert!(lines.lines().all(|line| line.len() < 3 * audit::MOST + 200), "{lines}");
}

#[test]
fn a_problem_in_a_report_is_logged_at_once() {
    let mut stage = TestBroker::new("notice");
    let (ann, now) = (user(1_000), Instant::ZERO);
    let id = stage.join(&ann, 0).unwrap();
    let report = |state: &mut BrokerState| state.report_cycle(&ann, id, ReportedCycle::default(), now).unwrap();
    report(&mut stage.0);
    stage.0.tick(now);
    report(&mut stage.0);
    assert!(stage.0.next > now, "nothing is to be done");
    stage.0.notice("what cannot be noted".into());
    report(&mut stage.0);
    assert_eq!(stage.0.next, Instant::ZERO);
}

#[test]
fn a_child_leaves_the_task_that_it_came_to_for_its_own_but_not_somebody_elses() {
    if Credentials::own().uid != 0 {
        return eprintln!("skipped: only root may start a program of another user");
    }
    let mut stage = TestBroker::new("child");
    let (ann, root, now) = (user(1_000), user(0), Instant::ZERO);
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", "sleep 1000 >&- & echo $!; read end; kill $!"]).uid(1_000).current_dir("/");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut child).unwrap();
    let child: u32 = child.trim().parse().unwrap();

    let whole = stage.join(&root, 1).unwrap();
    let own = stage.join(&ann, 2).unwrap();
    let state = &mut stage.0;
    state.add_process(&root, whole, shell.id(), 0, now).unwrap();
    let refused = state.add_process(&ann, own, child, 0, now).unwrap_err().to_string();
    assert_eq!(refused, format!("process {child} is in a task; task `t1` belongs to user 0"));
    assert_eq!(state.platform.processes(whole), [shell.id(), child]);

    state.add_process(&root, own, child, 0, now).unwrap();
    assert_eq!((state.platform.processes(whole), state.platform.processes(own)), (vec![shell.id()], vec![child]));
    let refused = state.add_process(&root, whole, child, 0, now).unwrap_err().to_string();
    assert_eq!(refused, format!("process {child} already belongs to task `t2`"));
    drop(shell.stdin.take());
    shell.wait().unwrap();
}
