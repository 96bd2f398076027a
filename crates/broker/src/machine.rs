//! The machine as the broker has it: tasks with their members, the state file, and the one scheduler proxy that is
//! used, with the reason why of each that is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyoshi_control::{Finder, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::cgroup::{Group, Look, Subtree};
use hyoshi_os::priority;
use hyoshi_os::process::{NoProcess, Process, ProcessIdentity};
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy, Wake, allowed_cpus, fifo_limit, raise_file_limit};

use crate::kernel::{Kernel, Lanes, NotReserved, Stranger, Watching, Way};
use crate::members::{MOST_PROCESSES, Members};
use crate::owners::{self, Rounds};
use crate::proxy::deadline::DeadlineProxy;
use crate::proxy::grouped::GroupedProxy;
use crate::proxy::groups::Groups;
use crate::proxy::moves::Moves;
use crate::proxy::none::NoneProxy;
use crate::proxy::simulated::SimulatedProxy;
use crate::proxy::weights::WeightsProxy;
use crate::proxy::window::WindowProxy;
use crate::proxy::{Ground, SchedulerProxy};
use crate::touched::{PutBack, StateError, Touched};
use crate::watch::{MOST_WATCHED, Watches};

/// See the module.
pub struct Machine {
    ground: Ground,
    proxy: Box<dyn SchedulerProxy>,
    ways: Vec<Way>,
    /// Tasks whose wake-ups are watched.
    watches: Watches,
    /// Tasks that have control groups.
    gatherings: BTreeMap<TaskId, Gathering>,
    /// When the users of processes are checked.
    rounds: Rounds,
    /// For how long something takes.
    clock: MonotonicClock,
}

/// A task's control groups.
#[derive(Debug, Default)]
struct Gathering {
    groups: Vec<Group>,
    /// How many of them have been looked at, who is in those, and what is being looked at.
    seen: usize,
    there: Vec<u32>,
    look: Option<Look>,
    /// Not everybody can be known.
    lacks: bool,
    /// Not looked at before.
    next: Instant,
}

/// Looking who is in control groups takes at most one part in so many of the time, which tasks that have groups share equally.
const GATHERING_SHARE: u64 = 50;
/// And so long at once: windows wait meanwhile.
const GATHERING: Span = Span::from_millis(1);

impl Gathering {
    /// A look at `now` took so long, of one of so many tasks. All of them together keep to the share, and none waits for
    /// another's large tree.
    fn took(&mut self, now: Instant, spent: Span, tasks: usize) {
        self.next = now.saturating_add(spent * GATHERING_SHARE * tasks.max(1) as u64);
    }

    /// Goes on looking while there is time. Who is in all groups, sorted, once that is known; and whether these are all.
    fn go_on(&mut self, time: &mut dyn FnMut() -> bool) -> Option<(Vec<u32>, bool)> {
        while let Some(group) = self.groups.get(self.seen) {
            // One that is gone, as of a unit that is started anew, may be there again.
            match self.look.take().map_or_else(|| Look::begin(group), Ok) {
                Ok(mut look) => {
                    if !look.go_on(MOST_PROCESSES, time) {
                        self.look = Some(look);
                        return None;
                    }
                    self.lacks |= !look.is_whole(MOST_PROCESSES);
                    self.there.extend(look.processes());
                }
                Err(error) => self.lacks |= error.kind() != ErrorKind::NotFound,
            }
            self.seen += 1;
        }
        self.seen = 0;
        self.there.sort_unstable();
        self.there.dedup();
        Some((std::mem::take(&mut self.there), !std::mem::take(&mut self.lacks)))
    }
}

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
        asked.map_or(Ok(()), known)?;
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
                let (watches, gatherings) = (Watches::new(MOST_WATCHED), BTreeMap::new());
                let clock = MonotonicClock::start();
                let rounds = Rounds::default();
                Ok((Machine { ground, proxy, ways, watches, gatherings, rounds, clock }, report))
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

/// Whether there is a way of that name, on whatever machine: nothing is looked at.
///
/// # Errors
///
/// If there is none.
pub fn known(asked: &str) -> Result<(), NoMachine> {
    if PROBES.iter().any(|(name, ..)| *name == asked) {
        return Ok(());
    }
    let ways = PROBES.iter().map(|(name, ..)| Way { name, usable: false, used: false, why: String::new() });
    Err(NoMachine::NoSuchWay { asked: asked.into(), ways: ways.collect() })
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

impl Machine {
    /// Processes of the task's control groups join it, but for those of other tasks and this one.
    fn take_in(
        &mut self,
        task: TaskId,
        there: &[u32],
        may: &mut dyn FnMut(&Process) -> bool,
        time: &mut dyn FnMut() -> bool,
    ) {
        // Taken out, so that the others can be asked.
        let Some(mut members) = self.ground.tasks.remove(&task) else { return };
        let others = &self.ground.tasks;
        let mut may = |process: &Process| {
            let theirs = others.values().any(|other| other.has(process.identity()));
            !theirs && process.identity().number != std::process::id() && may(process)
        };
        members.gather(there, &mut may, time);
        self.ground.tasks.insert(task, members);
    }

    /// Those that have left the task's control groups leave the task.
    fn dismiss(&mut self, task: TaskId, there: &[u32]) {
        let Some(members) = self.ground.tasks.get_mut(&task) else { return };
        // Whom the broker has moved to a group of its own has left nothing by itself.
        let touched = &self.ground.touched;
        if members.processes().any(|process| touched.came_from(process.identity()).is_some()) {
            return;
        }
        let left = members.dismiss(there);
        if !left.is_empty() {
            self.proxy.dismiss(task, &left, &mut self.ground);
        }
    }
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
        let parent = process.parent();
        let others = self.ground.tasks.iter_mut().filter(|(other, _)| **other != task);
        let left: Vec<_> = others.map(|(other, members)| (*other, members.give_up(&process, parent))).collect();
        for (other, left) in left.into_iter().filter(|(_, left)| !left.is_empty()) {
            self.proxy.dismiss(other, &left, &mut self.ground);
        }
        // Taken out, so that the others can be asked.
        let mut members = self.ground.tasks.remove(&task).unwrap_or_default();
        let others = &self.ground.tasks;
        let done = members.add_but(process, &|child| others.values().any(|other| other.has(child)));
        self.ground.tasks.insert(task, members);
        done
    }

    fn add_group(&mut self, task: TaskId, group: Group, there: &[u32], may: &mut dyn FnMut(&Process) -> bool) {
        self.ground.tasks.entry(task).or_default();
        let mut groups = self.gatherings.remove(&task).unwrap_or_default().groups;
        groups.push(group);
        self.gatherings.insert(task, Gathering { groups, ..Gathering::default() });
        let (clock, began) = (self.clock, self.clock.now());
        self.take_in(task, there, may, &mut || clock.now().since(began) < GATHERING);
    }

    fn drop_group(&mut self, task: TaskId, folder: &Path) {
        let mut groups = self.gatherings.remove(&task).unwrap_or_default().groups;
        groups.retain(|group| group.folder() != folder);
        if !groups.is_empty() {
            self.gatherings.insert(task, Gathering { groups, ..Gathering::default() });
        }
    }

    fn groups(&self, task: TaskId) -> Vec<PathBuf> {
        let groups = self.gatherings.get(&task).map_or(&[][..], |gathering| &gathering.groups);
        groups.iter().map(|group| group.folder().to_owned()).collect()
    }

    fn gather(&mut self, task: TaskId, may: &mut dyn FnMut(&Process) -> bool, now: Instant) {
        let tasks = self.gatherings.len();
        let Some(gathering) = self.gatherings.get_mut(&task).filter(|gathering| gathering.next <= now) else { return };
        let (clock, began) = (self.clock, self.clock.now());
        let mut time = || clock.now().since(began) < GATHERING;
        if let Some((there, all)) = gathering.go_on(&mut time) {
            self.take_in(task, &there, may, &mut time);
            if all {
                self.dismiss(task, &there);
            }
        }
        if let Some(gathering) = self.gatherings.get_mut(&task) {
            gathering.took(now, clock.now().since(began), tasks);
        }
    }

    fn check_owners(
        &mut self,
        tasks: &[TaskId],
        may: &mut dyn FnMut(TaskId, &Process) -> bool,
        now: Instant,
    ) -> (Vec<(TaskId, Stranger)>, Instant) {
        let Machine { ground, rounds, clock, .. } = self;
        if now < rounds.next() {
            return (Vec::new(), rounds.next());
        }
        let (began, mut strangers) = (clock.now(), Vec::new());
        let whole = loop {
            let Some((task, left)) = rounds.place(now, tasks.iter().copied()) else { break true };
            let members = ground.tasks.get(&task);
            let there = members.map_or(0, Members::count);
            let left = left.unwrap_or(there).min(there);
            let process = left.checked_sub(1).and_then(|at| members?.process(at));
            rounds.left(task, left.saturating_sub(1));
            if let Some(process) = process.filter(|process| !may(task, process)) {
                // Its name now: it was another program's when it joined.
                let name = process.name_now().unwrap_or_default();
                strangers.push((task, Stranger { process: process.identity(), name }));
            }
            if clock.now().since(began) >= owners::SLICE {
                break false;
            }
        };
        rounds.took(now, clock.now().since(began), whole, !strangers.is_empty());
        (strangers, rounds.next())
    }

    fn expel(&mut self, task: TaskId, processes: &[ProcessIdentity]) {
        if let Some(members) = self.ground.tasks.get_mut(&task) {
            members.expel(processes);
            self.proxy.dismiss(task, processes, &mut self.ground);
        }
    }

    fn members(&self, task: TaskId) -> Vec<ProcessIdentity> {
        let members = self.ground.tasks.get(&task);
        members.map_or(Vec::new(), |members| members.processes().map(Process::identity).collect())
    }

    fn count_threads(&self, task: TaskId, most: usize) -> usize {
        let Some(members) = self.ground.tasks.get(&task) else { return 0 };
        let mut all = 0;
        for process in members.processes() {
            if all > most {
                break;
            }
            all += process.thread_count();
        }
        all
    }

    fn whose(&self, process: &Process) -> Option<(TaskId, bool)> {
        let identity = process.identity();
        let itself = self.ground.tasks.iter().find(|(_, members)| members.has(identity));
        if let Some((task, members)) = itself {
            return Some((*task, members.was_named(identity)));
        }
        self.one_of(&[process.parent()?]).map(|(_, task)| (task, false))
    }

    fn one_of(&self, numbers: &[u32]) -> Option<(u32, TaskId)> {
        let has = |members: &Members| {
            let mut processes = members.processes().map(|process| process.identity().number);
            processes.find(|number| numbers.binary_search(number).is_ok())
        };
        self.ground.tasks.iter().find_map(|(task, members)| Some((has(members)?, *task)))
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

    fn moves(&self) -> Option<Arc<Moves>> {
        self.proxy.moves()
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
        self.watches.unwatch(task);
        self.gatherings.remove(&task);
    }

    fn consumed(&mut self, task: TaskId) -> Option<Span> {
        let members = self.ground.tasks.get_mut(&task)?;
        let consumed = members.consumed();
        // Also where nothing is reserved, so that nobody else looks: a child goes on when the program that was added has ended.
        members.look_at_family(consumed);
        (!members.all_ended()).then_some(consumed)
    }

    fn reading(&mut self, task: TaskId, now: Instant) -> Option<Span> {
        Some(self.ground.tasks.get_mut(&task)?.consumed_at(now))
    }

    fn awaits(&self, task: TaskId) -> bool {
        self.proxy.awaits(task)
    }

    fn news(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.proxy.news()
    }

    fn room(&mut self) -> Option<TaskId> {
        self.proxy.room()
    }

    fn promise(&mut self, cpu: u32, lanes: Lanes, first: &[TaskId]) -> bool {
        self.proxy.promise(cpu, lanes, first, &mut self.ground)
    }

    fn watch(&mut self, task: TaskId, owner: Option<u32>) {
        match owner {
            Some(owner) => self.watches.watch(task, owner),
            None => self.watches.unwatch(task),
        }
    }

    fn wakeups(&mut self, task: TaskId, finder: &mut Finder) -> Watching {
        self.watches.hear(task, self.ground.tasks.get(&task), finder)
    }

    fn attend(&mut self, wake: &Wake) {
        self.proxy.attend(wake);
    }

    fn threads(&self, task: TaskId) -> usize {
        self.ground.tasks.get(&task).map_or(0, Members::count_threads)
    }

    fn sleeps(&self, task: TaskId) -> bool {
        self.proxy.sleeps(task)
    }

    fn woke(&mut self) -> Option<TaskId> {
        self.proxy.woke()
    }

    fn tick(&mut self, now: Instant) -> Instant {
        self.proxy.tick(now, &mut self.ground)
    }

    fn due(&self) -> Instant {
        self.proxy.due()
    }

    fn end(&mut self) {
        let tasks: Vec<TaskId> = self.ground.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.forget(task));
        self.proxy.finish();
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
    let tried =
        Spawn::new("probe").policy(ThreadPolicy::Fifo(highest)).spawn(|| {}).map_err(|error| error.to_string())?;
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
    let proxy = DeadlineProxy::probe(Subtree::find().map(Groups::in_subtree))?;
    Ok((Box::new(proxy), "SCHED_DEADLINE for each thread, hard; used when it is asked for"))
}

fn weights(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let proxy = WeightsProxy::new(Groups::in_subtree(Subtree::find()?));
    Ok((Box::new(proxy), "weights of control groups: shares under contention, without a word on when"))
}

fn none(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let why = "nothing that reserves time is granted here: `hyoshi broker show` tells why, and what to do";
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_the_groups_of_all_tasks_take_a_fiftieth_of_the_time_together_and_each_has_its_turn() {
        for tasks in [1, 2, 7, 50] {
            // Looks of some take a long time, of others a short one; each task asks once a period of its own.
            let cost = |at: usize| Span::from_micros(1 + 997 * (at as u64 % 2) + at as u64);
            let period = |at: usize| Span::from_micros(1_000 * (at as u64 % 5 + 1));
            let all = Span::from_secs(20);
            let (mut total, mut longest) = (Span::ZERO, Span::ZERO);
            for at in 0..tasks {
                let mut gathering = Gathering::default();
                let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
                while now.since(Instant::ZERO) < all {
                    if gathering.next <= now {
                        total += cost(at);
                        longest = longest.max(now.since(last));
                        last = now;
                        gathering.took(now, cost(at), tasks);
                    }
                    now = now.saturating_add(period(at));
                }
            }
            let first: Span = (0..tasks).map(cost).sum();
            assert!(total * GATHERING_SHARE <= all + first * GATHERING_SHARE, "{tasks} tasks: {total} of {all}");
            let most = Span::from_millis(2) * GATHERING_SHARE * tasks as u64 + Span::from_millis(5);
            assert!(longest <= most, "{tasks} tasks: one waited {longest}");
        }
    }
}
