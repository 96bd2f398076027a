//! The machine as the broker has it: tasks with their members, the state file, and the one scheduler proxy that is
//! used, with the reason why of each that is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::cgroup::Subtree;
use hyoshi_os::groups::Group;
use hyoshi_os::priority;
use hyoshi_os::process::{Identity, NoProcess, Process};
use hyoshi_os::wakeups::Seen;
use hyoshi_os::{Clock, MonotonicClock, Policy, Spawn, allowed_cpus, fifo_limit, raise_file_limit};

use crate::kernel::{Kernel, NotReserved, Way};
use crate::members::{MOST_PROCESSES, Members};
use crate::proxy::deadline::DeadlineProxy;
use crate::proxy::grouped::GroupedProxy;
use crate::proxy::groups::Groups;
use crate::proxy::none::NoneProxy;
use crate::proxy::simulated::SimulatedProxy;
use crate::proxy::weights::WeightsProxy;
use crate::proxy::window::WindowProxy;
use crate::proxy::{Ground, SchedulerProxy};
use crate::touched::{PutBack, StateError, Touched};
use crate::watch::Watch;

/// See the module.
pub struct Machine {
    ground: Ground,
    proxy: Box<dyn SchedulerProxy>,
    ways: Vec<Way>,
    /// Tasks whose wake-ups are watched.
    watches: BTreeMap<TaskId, Watch>,
    /// Tasks that have control groups.
    gatherings: BTreeMap<TaskId, Gathering>,
    /// For how long something takes.
    clock: MonotonicClock,
}

/// A task's control groups.
#[derive(Debug, Default)]
struct Gathering {
    groups: Vec<Group>,
    /// Not looked at before.
    next: Instant,
}

/// Looking who is in control groups takes at most one part in so many of the time.
const GATHERING_SHARE: u64 = 50;

/// Why a machine cannot be worked with.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoMachine {
    /// The state file.
    State(StateError),
    /// A floor of weights was asked for, and there can be none, for this reason.
    NoFloor(String),
    /// The proxy that was asked for by name cannot be used; the reason is the way's.
    NoSuchWay {
        /// Which.
        asked: String,
        /// All that there are.
        ways: Vec<Way>,
    },
}

/// A proxy, or why there is none.
type Probe = fn(floor: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String>;

/// In the order in which they are preferred. A further one is a line here; whether it is used without being asked for
/// is the last column.
const PROBES: &[(&str, Probe, bool)] = &[
    ("window", window, true),
    ("deadline", deadline, false),
    ("weights", weights, true),
    ("none", none, true),
    ("simulated", simulated, false),
];

impl Machine {
    /// This machine, with the best way that it grants or the one that is asked for. What another broker left changed
    /// is put back first.
    ///
    /// # Errors
    ///
    /// If what is changed cannot be noted in the directory, or if the way that was asked for cannot be used.
    pub fn open(state: &Path, asked: Option<&str>) -> Result<(Machine, PutBack), NoMachine> {
        Machine::with_floor(state, asked, false)
    }

    /// The same; with a floor, tasks that have windows also have a control group's weight.
    ///
    /// # Errors
    ///
    /// The same, and if there is to be a floor and no control groups can be made.
    pub fn with_floor(state: &Path, asked: Option<&str>, floor: bool) -> Result<(Machine, PutBack), NoMachine> {
        if floor {
            Subtree::find().map_err(NoMachine::NoFloor)?;
        }
        let (touched, report) = Touched::open(state).map_err(NoMachine::State)?;
        // A process takes two descriptors, and each of its threads at the start one.
        raise_file_limit();
        let (chosen, ways) = choose(asked, floor);
        match (chosen, asked) {
            (Some(proxy), _) => {
                let ground =
                    Ground { tasks: BTreeMap::new(), hard: BTreeSet::new(), confined: BTreeSet::new(), touched };
                let (watches, gatherings) = (BTreeMap::new(), BTreeMap::new());
                let clock = MonotonicClock::start();
                Ok((Machine { ground, proxy, ways, watches, gatherings, clock }, report))
            }
            (None, asked) => Err(NoMachine::NoSuchWay { asked: asked.unwrap_or_default().into(), ways }),
        }
    }
}

impl Machine {
    /// Has somebody else reserve, who is given the proxy that would have been used.
    ///
    /// # Errors
    ///
    /// Those of `behind`.
    pub fn put_behind<E>(
        mut self,
        behind: impl FnOnce(Box<dyn SchedulerProxy>) -> Result<Box<dyn SchedulerProxy>, E>,
    ) -> Result<Machine, E> {
        let own = std::mem::replace(&mut self.proxy, Box::new(NoneProxy::new("another reserves")));
        self.proxy = behind(own)?;
        for way in self.ways.iter_mut().filter(|way| way.used) {
            way.used = false;
            way.why = format!("while the external scheduler is passed over: {}", way.why);
        }
        let why = self.proxy.standing().unwrap_or_default();
        self.ways.insert(0, Way { name: self.proxy.name(), usable: true, used: true, why });
        Ok(self)
    }
}

/// The ways to reserve time here, and of which a broker would make use unasked. To see what the kernel grants, control groups
/// are made and removed, and a thread is started.
pub fn ways() -> Vec<Way> {
    choose(None, false).1
}

fn choose(asked: Option<&str>, floor: bool) -> (Option<Box<dyn SchedulerProxy>>, Vec<Way>) {
    let mut ways = Vec::new();
    let mut chosen: Option<Box<dyn SchedulerProxy>> = None;
    for (name, probe, unasked) in PROBES {
        let wanted = asked.map_or(*unasked, |asked| asked == *name);
        let (usable, used, why) = match probe(floor) {
            Ok((proxy, what)) => {
                let used = wanted && chosen.is_none();
                if used {
                    chosen = Some(proxy);
                }
                (true, used, what.to_owned())
            }
            Err(why) => (false, false, why),
        };
        ways.push(Way { name, usable, used, why });
    }
    (chosen, ways)
}

impl Kernel for Machine {
    fn ways(&self) -> Vec<Way> {
        let mut ways = self.ways.clone();
        if let (Some(way), Some(standing)) = (ways.iter_mut().find(|way| way.used), self.proxy.standing()) {
            way.why = standing;
        }
        ways
    }

    fn name(&self) -> &'static str {
        self.proxy.name()
    }

    fn add(&mut self, task: TaskId, process: Process) -> Result<(), NoProcess> {
        self.ground.tasks.entry(task).or_default().add(process)
    }

    fn add_group(&mut self, task: TaskId, group: Group) {
        self.ground.tasks.entry(task).or_default();
        let gathering = self.gatherings.entry(task).or_default();
        gathering.groups.push(group);
        gathering.next = Instant::ZERO;
    }

    fn groups(&self, task: TaskId) -> Vec<PathBuf> {
        let groups = self.gatherings.get(&task).map_or(&[][..], |gathering| &gathering.groups);
        groups.iter().map(|group| group.folder().to_owned()).collect()
    }

    fn gather(&mut self, task: TaskId, may: &mut dyn FnMut(&Process) -> bool, now: Instant) {
        let Some(gathering) = self.gatherings.get_mut(&task).filter(|gathering| gathering.next <= now) else { return };
        let began = self.clock.now();
        // One that is gone, as of a unit that is started anew, may be there again.
        let there = gathering.groups.iter().filter_map(|group| group.processes(MOST_PROCESSES).ok());
        let there: Vec<u32> = there.flatten().collect();
        // Taken out, so that the others can be asked.
        let Some(mut members) = self.ground.tasks.remove(&task) else { return };
        let others = &self.ground.tasks;
        members.gather(&there, &mut |process| {
            let theirs = others.values().any(|other| other.processes().any(|one| one.identity() == process.identity()));
            !theirs && process.identity().number != std::process::id() && may(process)
        });
        self.ground.tasks.insert(task, members);
        gathering.next = now.saturating_add(self.clock.now().since(began) * GATHERING_SHARE);
    }

    fn members(&self, task: TaskId) -> Vec<Identity> {
        let members = self.ground.tasks.get(&task);
        members.map_or(Vec::new(), |members| members.processes().map(Process::identity).collect())
    }

    fn task_of(&self, pid: u32) -> Option<TaskId> {
        let has = |members: &Members| members.processes().any(|process| process.identity().number == pid);
        self.ground.tasks.iter().find_map(|(task, members)| has(members).then_some(*task))
    }

    fn reserve(&mut self, task: TaskId, reservation: Reservation, now: Instant) -> Result<(), NotReserved> {
        self.proxy.reserve(task, reservation, now, &mut self.ground)
    }

    fn confine(&mut self, task: TaskId, confined: bool) {
        match confined {
            true => self.ground.confined.insert(task),
            false => self.ground.confined.remove(&task),
        };
    }

    fn harden(&mut self, task: TaskId, hard: bool) -> Result<(), String> {
        if !hard {
            self.ground.hard.remove(&task);
            return Ok(());
        }
        self.proxy.may_cap(task, &self.ground)?;
        self.ground.hard.insert(task);
        Ok(())
    }

    fn told(&self, task: TaskId) -> Option<String> {
        self.proxy.told(task)
    }

    fn release(&mut self, task: TaskId) {
        self.proxy.release(task, &mut self.ground);
    }

    fn forget(&mut self, task: TaskId) {
        self.ground.hard.remove(&task);
        self.proxy.release(task, &mut self.ground);
        self.ground.tasks.remove(&task);
        self.ground.confined.remove(&task);
        self.watches.remove(&task);
        self.gatherings.remove(&task);
    }

    fn consumed(&mut self, task: TaskId) -> Option<Span> {
        let members = self.ground.tasks.get_mut(&task)?;
        (!members.all_ended()).then(|| members.consumed())
    }

    fn awaits(&self, task: TaskId) -> bool {
        self.proxy.awaits(task)
    }

    fn news(&mut self) -> Option<(TaskId, Result<Reservation, NotReserved>)> {
        self.proxy.news()
    }

    fn watch(&mut self, task: TaskId, on: bool) {
        if on {
            self.watches.entry(task).or_default();
        } else {
            self.watches.remove(&task);
        }
    }

    fn wakeups(&mut self, task: TaskId, now: Instant, finder: &mut Finder) -> Option<Seen> {
        let watch = self.watches.get_mut(&task)?;
        if let Some(members) = self.ground.tasks.get_mut(&task) {
            watch.collect(members, now, finder);
        }
        Some(watch.seen())
    }

    fn tick(&mut self, now: Instant) -> Instant {
        self.proxy.tick(now, &mut self.ground)
    }

    fn end(&mut self) {
        let tasks: Vec<TaskId> = self.ground.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.forget(task));
        self.ground.touched.put_all_back();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

fn window(floor: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let highest = *priority::WINDOWS.end();
    let tried = Spawn::new("probe").policy(Policy::Fifo(highest)).spawn(|| {}).map_err(|error| error.to_string())?;
    match tried.granted.refused.first() {
        None => {
            let groups = Subtree::find().map(Groups::in_subtree);
            let what = match floor {
                false => "raises a task's threads in each period until its budget is consumed",
                true => {
                    "raises a task's threads in each period until its budget is consumed, above the floor of a control \
                     group's weight"
                }
            };
            Ok((Box::new(GroupedProxy::new(WindowProxy::of_this_machine(), groups, floor)), what))
        }
        Some(refused) => {
            let reason = refused.reason();
            Err(format!("{refused}: {reason}{}", reason.remedy().map_or(String::new(), |remedy| format!("; {remedy}"))))
        }
    }
}

fn deadline(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let proxy = DeadlineProxy::probe()?;
    Ok((Box::new(proxy), "SCHED_DEADLINE for each thread, hard; used when it is asked for"))
}

fn weights(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let proxy = WeightsProxy::new(Groups::in_subtree(Subtree::find()?));
    Ok((Box::new(proxy), "weights of control groups: shares under contention, without a word on when"))
}

fn none(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let why = "nothing that reserves time is granted here: `hyoshi broker` says why at its start, and what to do";
    Ok((Box::new(NoneProxy::new(why)), "reserves nothing, counts what is consumed"))
}

fn simulated(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let limit = Share::from_millionths(u64::from(fifo_limit().ppm));
    let proxy = SimulatedProxy::new(allowed_cpus(), limit);
    Ok((Box::new(proxy), "admits as windows do and changes nothing; used when it is asked for"))
}

impl NoMachine {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            NoMachine::State(error) => error.remedy(),
            NoMachine::NoFloor(_) => "start it so, or without --floor".into(),
            NoMachine::NoSuchWay { ways, .. } => {
                let names: Vec<&str> = ways.iter().map(|way| way.name).collect();
                format!("ask for another of {}, or for none in particular", names.join(", "))
            }
        }
    }
}

impl fmt::Display for NoMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoMachine::State(error) => error.fmt(f),
            NoMachine::NoFloor(why) => write!(f, "there can be no floor of weights: {why}"),
            NoMachine::NoSuchWay { asked, ways } => match ways.iter().find(|way| way.name == asked) {
                Some(way) => write!(f, "time cannot be reserved by `{asked}` here: {}", way.why),
                None => write!(f, "there is no way `{asked}` to reserve time"),
            },
        }
    }
}

impl std::error::Error for NoMachine {}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("proxy", &self.proxy.name()).finish_non_exhaustive()
    }
}
