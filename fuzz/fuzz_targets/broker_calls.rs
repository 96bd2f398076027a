//! Any bytes as a sequence of calls by users of every kind, on a simulated platform: each call succeeds or returns an error
//! with a remedy, never a panic; grants stay within the cap, and callers without rights change nothing.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hyoshi_broker::access::{Access, Caller, Certified, Right};
use hyoshi_broker::audit::Audit;
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::platform::{CpuLanes, ForeignProcess, NotReserved, Platform, ProxyInfo, WakeupWatch};
use hyoshi_broker::{BrokerState, ReportedCycle, RequestError, TaskSpec};
use hyoshi_control::policy::PolicySpec;
use hyoshi_control::window::placement::{Cpu, CpuPromise, WindowPlacement};
use hyoshi_control::{Arbiter, Finder, TaskId, Values};
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::Credentials;
use hyoshi_os::cgroup::Group;
use hyoshi_os::process::{NoProcess, Process, ProcessIdentity};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;

/// A model with two CPUs for windows. Nothing on the machine changes.
struct MadeUp {
    placement: WindowPlacement,
    members: BTreeMap<TaskId, Vec<ProcessIdentity>>,
    hard: BTreeSet<TaskId>,
    consumed: u64,
    outcomes: Vec<(TaskId, Reservation, NotReserved)>,
}

impl Platform for MadeUp {
    fn proxies(&self) -> Vec<ProxyInfo> {
        vec![ProxyInfo { name: "made-up", usable: true, used: true, reason: String::new() }]
    }

    fn name(&self) -> &'static str {
        "made-up"
    }

    fn add(&mut self, task: TaskId, process: Process) -> std::result::Result<(), NoProcess> {
        self.members.values_mut().for_each(|members| members.retain(|one| *one != process.identity()));
        self.members.entry(task).or_default().push(process.identity());
        Ok(())
    }

    fn add_group(&mut self, _: TaskId, _: Group, _: &[u32], _: &mut dyn FnMut(&Process) -> bool) {}

    fn count_threads(&self, task: TaskId, most: usize) -> usize {
        self.members.get(&task).map_or(0, Vec::len).min(most.saturating_add(1))
    }

    fn drop_group(&mut self, _: TaskId, _: &Path) {}

    fn groups(&self, _: TaskId) -> Vec<PathBuf> {
        Vec::new()
    }

    fn gather(&mut self, _: TaskId, _: &mut dyn FnMut(&Process) -> bool, _: Instant) {}

    fn check_owners(
        &mut self,
        tasks: &[TaskId],
        may: &mut dyn FnMut(TaskId, &Process) -> bool,
        now: Instant,
    ) -> (Vec<(TaskId, ForeignProcess)>, Instant) {
        let mut strangers = Vec::new();
        for task in tasks {
            for process in self.members.get(task).into_iter().flatten() {
                let Ok(open) = Process::open_same(*process) else { continue };
                if !may(*task, &open) {
                    strangers.push((*task, ForeignProcess { process: *process, name: open.name().to_owned() }));
                }
            }
        }
        (strangers, now + Span::from_millis(400))
    }

    fn expel(&mut self, task: TaskId, processes: &[ProcessIdentity]) {
        if let Some(members) = self.members.get_mut(&task) {
            members.retain(|one| !processes.contains(one));
        }
    }

    fn members(&self, task: TaskId) -> Vec<ProcessIdentity> {
        self.members.get(&task).cloned().unwrap_or_default()
    }

    fn task_of(&self, process: &Process) -> Option<(TaskId, bool)> {
        let of = |members: &Vec<ProcessIdentity>| members.contains(&process.identity());
        self.members.iter().find(|(_, members)| of(members)).map(|(task, _)| (*task, true))
    }

    fn find_member(&self, numbers: &[u32]) -> Option<(u32, TaskId)> {
        let mut all = self.members.iter().flat_map(|(task, members)| members.iter().map(|one| (one.number, *task)));
        all.find(|(number, _)| numbers.contains(number))
    }

    fn reserve(&mut self, task: TaskId, what: Reservation, _: Instant) -> std::result::Result<(), NotReserved> {
        let refused = |most| NotReserved { most, reason: "there is no room".to_owned() };
        self.placement.admit(task, what, &[]).map(drop).map_err(|no| refused(no.most))
    }

    fn confine(&mut self, _: TaskId, _: bool) {}

    fn harden(&mut self, task: TaskId, hard: bool) -> std::result::Result<(), String> {
        match hard {
            true => self.hard.insert(task),
            false => self.hard.remove(&task),
        };
        Ok(())
    }

    fn enforcement(&self, _: TaskId) -> Option<String> {
        None
    }

    fn release(&mut self, task: TaskId) {
        self.placement.release(task);
    }

    fn forget(&mut self, task: TaskId) {
        self.placement.release(task);
        self.members.remove(&task);
        self.hard.remove(&task);
    }

    fn consumed(&mut self, task: TaskId) -> Option<Span> {
        self.consumed += 1_000_000;
        self.members.get(&task).filter(|members| !members.is_empty()).map(|_| Span::from_nanos(self.consumed))
    }

    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, std::result::Result<(), NotReserved>)> {
        self.outcomes.pop().map(|(task, what, refused)| (task, what, Err(refused)))
    }

    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId]) -> bool {
        for (task, no) in self.placement.promise(cpu, &lanes.promises, first) {
            self.outcomes.push((task, no.asked, NotReserved { most: no.most, reason: "lanes".to_owned() }));
        }
        true
    }

    fn watch(&mut self, _: TaskId, _: Option<u32>) {}

    fn wakeups(&mut self, _: TaskId, _: &mut Finder) -> WakeupWatch {
        WakeupWatch::Waiting
    }

    fn tick(&mut self, _: Instant) -> Instant {
        Instant::NEVER
    }

    fn end(&mut self) {}
}

const ACCESS: Access = Access { broker: 0, group: Some(27) };

fn caller(u: &mut Unstructured<'_>) -> Result<Caller> {
    let user =
        |uid, gid| Caller::Known(Credentials { pid: std::os::unix::process::parent_id(), uid, gid, groups: vec![] });
    Ok(match u.int_in_range(0..=6)? {
        0 => user(0, 0),
        1 => user(1_000, 1_000),
        2 => user(1_001, 1_001),
        3 => user(1_002, 27),
        4 => Caller::Certified(Certified { name: "plant".into(), right: Right::See, user: Some(1_000) }),
        5 => Caller::Broker,
        _ => Caller::Unknown,
    })
}

fn name(u: &mut Unstructured<'_>) -> Result<String> {
    // Few names, so that calls collide; and any text sometimes.
    Ok(match u.int_in_range(0..=9)? {
        9 => u.arbitrary::<&str>()?.to_owned(),
        number => format!("t{number}"),
    })
}

fn span(u: &mut Unstructured<'_>) -> Result<Span> {
    Ok(match u.int_in_range(0..=3)? {
        0 => Span::from_millis(u.int_in_range(1..=1_000)?),
        1 => Span::from_micros(u.int_in_range(0..=10_000)?),
        2 => Span::from_nanos(u.arbitrary()?),
        _ => Span::from_nanos(0),
    })
}

fn setting(u: &mut Unstructured<'_>) -> Result<ComponentSpec> {
    const KINDS: [&str; 8] =
        ["max-decay", "rate", "cap", "floor", "percentile", "proactive", "watchdog", "external --object IOR:00"];
    let text = match u.ratio(1, 4)? {
        true => u.arbitrary::<&str>()?.to_owned(),
        false => format!("{} {}", u.choose(&KINDS)?, u.int_in_range(0..=200)?),
    };
    Ok(ComponentSpec::from_text(&text).unwrap_or_else(|_| ComponentSpec::of("max-decay")))
}

fn joining(u: &mut Unstructured<'_>) -> Result<TaskSpec> {
    let period = if u.ratio(1, 8)? { None } else { Some(span(u)?) };
    let mut joining = TaskSpec::new(&name(u)?, period);
    let some = |u: &mut Unstructured<'_>| Ok(if u.ratio(1, 4)? { Some(span(u)?) } else { None });
    (joining.deadline, joining.initial_budget, joining.min_budget) = (some(u)?, some(u)?, some(u)?);
    (joining.importance, joining.weight) = (u.int_in_range(0..=12)?, u.int_in_range(0..=3)?);
    joining.hard = u.ratio(1, 4)?;
    if u.ratio(1, 4)? {
        joining.group = ["a", "b", "no"][u.int_in_range(0..=2)?].to_owned();
    }
    for _ in 0..u.int_in_range(0..=3)? {
        joining.advocates.push(setting(u)?);
    }
    Ok(joining)
}

fn policy(u: &mut Unstructured<'_>) -> Result<String> {
    const POLICIES: [&str; 5] = ["", "fair", "strict", "weighted", "partition(a 30% fair, b 40% strict)"];
    Ok(if u.ratio(1, 8)? { u.arbitrary::<&str>()?.to_owned() } else { (*u.choose(&POLICIES)?).to_owned() })
}

/// A refusal has a message and a remedy.
fn said<T>(done: std::result::Result<T, RequestError>) -> Option<T> {
    done.map_err(|error| assert!(!error.to_string().is_empty() && !error.remedy().is_empty())).ok()
}

fn call(u: &mut Unstructured<'_>, state: &mut BrokerState, known: &mut Vec<TaskId>, now: &mut Instant) -> Result<()> {
    let who = caller(u)?;
    let id =
        |u: &mut Unstructured<'_>, known: &[TaskId]| Ok(if known.is_empty() { TaskId(0) } else { *u.choose(known)? });
    match u.int_in_range(0..=18)? {
        0 | 1 => known.extend(said(state.join(&who, &joining(u)?, *now))),
        2 => {
            let id = id(u, known)?;
            let (parent, own) = (std::os::unix::process::parent_id(), std::process::id());
            let pid = *u.choose(&[parent, own, 1, 0, u32::MAX])?;
            let _ = said(state.add_process(&who, id, pid, 0, *now));
        }
        3 => drop(said(state.leave(&who, id(u, known)?, *now))),
        4 => {
            let values: Vec<i64> = (0..u.int_in_range(0..=8)?).map(|_| u.arbitrary()).collect::<Result<_>>()?;
            let values = Values::new(&values).unwrap_or_default();
            let mode = if u.arbitrary()? { Some(u.arbitrary()?) } else { None };
            let cycle = ReportedCycle { consumed: span(u)?, cycles: u.arbitrary()?, mode, values };
            let _ = said(state.report_cycle(&who, id(u, known)?, cycle, *now));
        }
        5 => drop(said(state.set_importance(&who, &name(u)?, u.arbitrary()?, *now))),
        6 => drop(said(state.set_weight(&who, &name(u)?, u.arbitrary()?, *now))),
        7 => drop(said(state.set_group(&who, &name(u)?, u.arbitrary()?, *now))),
        8 => drop(said(state.set_hard(&who, &name(u)?, u.arbitrary()?, *now))),
        9 => {
            let to = if u.arbitrary()? { Some(span(u)?) } else { None };
            let _ = said(state.set_period(&who, &name(u)?, to, *now));
        }
        10 => {
            let chain = (0..u.int_in_range(0..=4)?).map(|_| setting(u)).collect::<Result<_>>()?;
            let _ = said(state.set_chain(&who, &name(u)?, chain, *now));
        }
        11 => drop(said(state.add_advocate(&who, &name(u)?, &setting(u)?, u.int_in_range(0..=9)?, *now))),
        12 => drop(said(state.remove_advocate(&who, &name(u)?, u.int_in_range(0..=9)?, *now))),
        13 => {
            let (before, cap) = (state.policy().0, u.int_in_range(0..=2_000_000)?);
            let cap = (cap > 0).then(|| Share::from_millionths(cap));
            let done = said(state.set_policy(&who, &policy(u)?, cap, *now));
            assert!(ACCESS.is_operator(&who) || done.is_none() && state.policy().0 == before);
        }
        14 => {
            let promises = (0..u.int_in_range(0..=4)?).map(|_| {
                let promise = CpuPromise { budget: span(u)?, period: span(u)?, jitter: span(u)? };
                Ok((u.int_in_range(0..=2)?, promise))
            });
            let promises = promises.collect::<Result<Vec<_>>>()?;
            let _ = said(state.promise_lanes(&who, &name(u)?, &promises, *now));
        }
        16 => drop(said(state.set_advocate(&who, &name(u)?, &setting(u)?, *now))),
        17 => drop(said(state.set_least(&who, &name(u)?, span(u)?, *now))),
        15 => *now = now.saturating_add(Span::from_millis(u.int_in_range(0..=2_000)?)),
        _ => drop(said(state.own_task(&who, &joining(u)?, *now))),
    }
    state.tick(*now);
    Ok(())
}

fn check(state: &mut BrokerState, now: Instant) {
    let (_, cap, reserved) = state.policy();
    assert!(reserved <= cap, "{reserved} of {cap}");
    let (mut standings, mut more) = state.page("");
    while more {
        let after = standings.last().expect("a page").name.clone();
        let (next, others) = state.page(&after);
        standings.extend(next);
        more = others;
    }
    assert_eq!(standings.len(), state.count());
    for one in standings {
        assert!(one.reserved.is_none_or(|reserved| reserved.share() <= one.grant.asked.share()), "{}", one.name);
        assert!(!state.explain(&one.name, now).expect("it is there").is_empty());
    }
    for notice in state.take_notices() {
        assert!(!notice.chars().any(hyoshi_model::steers_terminal), "{notice:?}");
    }
}

fuzz_target!(|data: &[u8]| {
    let cpus = [0, 1].map(|number| Cpu { number, promises: Vec::new(), cap: WindowPlacement::KERNELS_LIMIT });
    let kernel = MadeUp {
        placement: WindowPlacement::new(cpus, WindowPlacement::SWITCHING),
        members: BTreeMap::new(),
        hard: BTreeSet::new(),
        consumed: 0,
        outcomes: Vec::new(),
    };
    let arbiter = Arbiter::new(PolicySpec::default().build(), Share::from_percent(150));
    let mut state = BrokerState::new(arbiter, Box::new(kernel), ACCESS, Audit::none());
    let (mut known, mut now) = (Vec::new(), Instant::ZERO);
    let mut u = Unstructured::new(data);
    while !u.is_empty() && call(&mut u, &mut state, &mut known, &mut now).is_ok() {
        check(&mut state, now);
    }
    state.end();
});
