//! The machine: tasks with their processes, the state file, and the used scheduler proxy.

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

use crate::owners::{self, OwnerChecks};
use crate::platform::{CpuLanes, ForeignProcess, NotReserved, Platform, ProxyInfo, WakeupWatch};
use crate::proxy::deadline::DeadlineProxy;
use crate::proxy::grouped::GroupedProxy;
use crate::proxy::groups::Groups;
use crate::proxy::moves::Moves;
use crate::proxy::none::NoneProxy;
use crate::proxy::simulated::SimulatedProxy;
use crate::proxy::weights::WeightsProxy;
use crate::proxy::window::WindowProxy;
use crate::proxy::{ProxyContext, SchedulerProxy};
use crate::state_file::{RestoreReport, StateError, StateFile};
use crate::task_processes::{MOST_PROCESSES, TaskProcesses};
use crate::wakeups::{MOST_WATCHED, WakeupWatches};

/// See the module.
pub struct Machine {
    context: ProxyContext,
    proxy: Box<dyn SchedulerProxy>,
    proxies: Vec<ProxyInfo>,
    /// Tasks whose wake-ups are observed.
    watches: WakeupWatches,
    /// Tasks with control groups.
    group_scans: BTreeMap<TaskId, GroupScan>,
    /// The schedule of checks of process owners.
    rounds: OwnerChecks,
    /// Measures elapsed time.
    clock: MonotonicClock,
}

/// The control groups of a task.
#[derive(Debug, Default)]
struct GroupScan {
    groups: Vec<Group>,
    /// Number of scanned groups, their processes, and the scan in progress.
    scanned: usize,
    there: Vec<u32>,
    look: Option<Look>,
    /// Some processes could not be listed.
    lacks: bool,
    /// The earliest next scan.
    next: Instant,
}

/// Scans of control groups use at most this part of the time; tasks with groups share it equally.
const SCAN_SHARE: u64 = 50;
/// Longest single scan, because windows wait meanwhile.
const LONGEST_SCAN: Span = Span::from_millis(1);

impl GroupScan {
    /// A scan for one of `tasks` tasks took `spent`. All tasks together keep to the share, and none waits for another
    /// task's large tree.
    fn took(&mut self, now: Instant, spent: Span, tasks: usize) {
        self.next = now.saturating_add(spent * SCAN_SHARE * tasks.max(1) as u64);
    }

    /// Continues the scan while there is time. At its end, returns the sorted processes of all groups and whether the
    /// list is complete.
    fn go_on(&mut self, time: &mut dyn FnMut() -> bool) -> Option<(Vec<u32>, bool)> {
        while let Some(group) = self.groups.get(self.scanned) {
            // A removed group, such as that of a restarted unit, may exist again later.
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
            self.scanned += 1;
        }
        self.scanned = 0;
        self.there.sort_unstable();
        self.there.dedup();
        Some((std::mem::take(&mut self.there), !std::mem::take(&mut self.lacks)))
    }
}

/// Why a machine cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum MachineError {
    /// The state file cannot be used.
    State(StateError),
    /// A floor of weights is not possible, with the reason.
    NoFloor(String),
    /// The named proxy is unknown or cannot be used.
    NoSuchWay {
        /// Its name.
        asked: String,
        /// All proxies.
        proxies: Vec<ProxyInfo>,
    },
}

/// A proxy with its description, or why it cannot be used.
type Probe = fn(floor: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String>;

/// All proxies, the preferred ones first; the last column: used without being named.
const PROBES: &[(&str, Probe, bool)] = &[
    ("window", window, true),
    ("deadline", deadline, false),
    ("weights", weights, true),
    ("none", none, true),
    ("simulated", simulated, false),
];

impl Machine {
    /// Opens this machine with the named proxy, or the best one. First restores what another broker left changed.
    ///
    /// # Errors
    ///
    /// If the state directory or the named proxy cannot be used.
    pub fn open(state: &Path, asked: Option<&str>) -> Result<(Machine, RestoreReport), MachineError> {
        Machine::with_floor(state, asked, false)
    }

    /// The same; with a floor, tasks with windows also have the weight of a control group.
    ///
    /// # Errors
    ///
    /// The same, and if a floor needs control groups that cannot be made.
    pub fn with_floor(
        state: &Path,
        asked: Option<&str>,
        floor: bool,
    ) -> Result<(Machine, RestoreReport), MachineError> {
        asked.map_or(Ok(()), check_name)?;
        if floor {
            Subtree::find().map_err(MachineError::NoFloor)?;
        }
        let (state_file, report) = StateFile::open(state).map_err(MachineError::State)?;
        // A process needs two descriptors, and at first one for each thread.
        raise_file_limit();
        let (chosen, proxies) = choose(asked, floor);
        match (chosen, asked) {
            (Some(proxy), _) => {
                let context = ProxyContext {
                    tasks: BTreeMap::new(),
                    hard: BTreeSet::new(),
                    confined: BTreeSet::new(),
                    state_file,
                };
                let (watches, group_scans) = (WakeupWatches::new(MOST_WATCHED), BTreeMap::new());
                let clock = MonotonicClock::start();
                let rounds = OwnerChecks::default();
                Ok((Machine { context, proxy, proxies, watches, group_scans, rounds, clock }, report))
            }
            (None, asked) => Err(MachineError::NoSuchWay { asked: asked.unwrap_or_default().into(), proxies }),
        }
    }
}

impl Machine {
    /// Replaces the proxy by one that receives it as its fallback.
    ///
    /// # Errors
    ///
    /// The error of `behind`.
    pub fn put_behind<E>(
        mut self,
        behind: impl FnOnce(Box<dyn SchedulerProxy>) -> Result<Box<dyn SchedulerProxy>, E>,
    ) -> Result<Machine, E> {
        let own = std::mem::replace(&mut self.proxy, Box::new(NoneProxy::new("another scheduler reserves")));
        self.proxy = behind(own)?;
        for way in self.proxies.iter_mut().filter(|way| way.used) {
            way.used = false;
            way.reason = format!("used while the external scheduler is bypassed: {}", way.reason);
        }
        let reason = self.proxy.status().unwrap_or_default();
        self.proxies.insert(0, ProxyInfo { name: self.proxy.name(), usable: true, used: true, reason });
        Ok(self)
    }
}

/// All scheduler proxies of this machine, and the default one. Makes and removes control groups and starts a thread, to
/// test what the kernel grants.
pub fn proxies() -> Vec<ProxyInfo> {
    choose(None, false).1
}

/// Checks the name of a scheduler proxy.
///
/// # Errors
///
/// If there is no proxy of that name.
pub fn check_name(asked: &str) -> Result<(), MachineError> {
    if PROBES.iter().any(|(name, ..)| *name == asked) {
        return Ok(());
    }
    let proxies = PROBES.iter().map(|(name, ..)| ProxyInfo { name, usable: false, used: false, reason: String::new() });
    Err(MachineError::NoSuchWay { asked: asked.into(), proxies: proxies.collect() })
}

fn choose(asked: Option<&str>, floor: bool) -> (Option<Box<dyn SchedulerProxy>>, Vec<ProxyInfo>) {
    let mut proxies = Vec::new();
    let mut chosen: Option<Box<dyn SchedulerProxy>> = None;
    for (name, probe, unasked) in PROBES {
        let wanted = asked.map_or(*unasked, |asked| asked == *name);
        let (usable, used, reason) = match probe(floor) {
            Ok((proxy, what)) => {
                let used = wanted && chosen.is_none();
                if used {
                    chosen = Some(proxy);
                }
                (true, used, what.to_owned())
            }
            Err(reason) => (false, false, reason),
        };
        proxies.push(ProxyInfo { name, usable, used, reason });
    }
    (chosen, proxies)
}

impl Machine {
    /// Adds the processes of the task's control groups, except those of other tasks and the broker.
    fn take_in(
        &mut self,
        task: TaskId,
        there: &[u32],
        may: &mut dyn FnMut(&Process) -> bool,
        time: &mut dyn FnMut() -> bool,
    ) {
        // Removed temporarily to access the other tasks.
        let Some(mut members) = self.context.tasks.remove(&task) else { return };
        let others = &self.context.tasks;
        let mut may = |process: &Process| {
            let theirs = others.values().any(|other| other.has(process.identity()));
            !theirs && process.identity().number != std::process::id() && may(process)
        };
        members.gather(there, &mut may, time);
        self.context.tasks.insert(task, members);
    }

    /// Removes processes that left the task's control groups.
    fn remove_departed(&mut self, task: TaskId, there: &[u32]) {
        let Some(members) = self.context.tasks.get_mut(&task) else { return };
        // Processes that the broker moved to its own group have not left.
        let state_file = &self.context.state_file;
        if members.processes().any(|process| state_file.came_from(process.identity()).is_some()) {
            return;
        }
        let left = members.remove_departed(there);
        if !left.is_empty() {
            self.proxy.remove_processes(task, &left, &mut self.context);
        }
    }
}

impl Platform for Machine {
    fn proxies(&self) -> Vec<ProxyInfo> {
        let mut proxies = self.proxies.clone();
        if let (Some(way), Some(status)) = (proxies.iter_mut().find(|way| way.used), self.proxy.status()) {
            way.reason = status;
        }
        proxies
    }

    fn name(&self) -> &'static str {
        self.proxy.name()
    }

    fn add(&mut self, task: TaskId, process: Process) -> Result<(), NoProcess> {
        let parent = process.parent();
        let others = self.context.tasks.iter_mut().filter(|(other, _)| **other != task);
        let left: Vec<_> = others.map(|(other, members)| (*other, members.remove_subtree(&process, parent))).collect();
        for (other, left) in left.into_iter().filter(|(_, left)| !left.is_empty()) {
            self.proxy.remove_processes(other, &left, &mut self.context);
        }
        // Removed temporarily to access the other tasks.
        let mut members = self.context.tasks.remove(&task).unwrap_or_default();
        let others = &self.context.tasks;
        let done = members.add_but(process, &|child| others.values().any(|other| other.has(child)));
        self.context.tasks.insert(task, members);
        done
    }

    fn add_group(&mut self, task: TaskId, group: Group, there: &[u32], may: &mut dyn FnMut(&Process) -> bool) {
        self.context.tasks.entry(task).or_default();
        let mut groups = self.group_scans.remove(&task).unwrap_or_default().groups;
        groups.push(group);
        self.group_scans.insert(task, GroupScan { groups, ..GroupScan::default() });
        let (clock, began) = (self.clock, self.clock.now());
        self.take_in(task, there, may, &mut || clock.now().since(began) < LONGEST_SCAN);
    }

    fn drop_group(&mut self, task: TaskId, folder: &Path) {
        let mut groups = self.group_scans.remove(&task).unwrap_or_default().groups;
        groups.retain(|group| group.folder() != folder);
        if !groups.is_empty() {
            self.group_scans.insert(task, GroupScan { groups, ..GroupScan::default() });
        }
    }

    fn groups(&self, task: TaskId) -> Vec<PathBuf> {
        let groups = self.group_scans.get(&task).map_or(&[][..], |scan| &scan.groups);
        groups.iter().map(|group| group.folder().to_owned()).collect()
    }

    fn gather(&mut self, task: TaskId, may: &mut dyn FnMut(&Process) -> bool, now: Instant) {
        let tasks = self.group_scans.len();
        let Some(scan) = self.group_scans.get_mut(&task).filter(|scan| scan.next <= now) else { return };
        let (clock, began) = (self.clock, self.clock.now());
        let mut time = || clock.now().since(began) < LONGEST_SCAN;
        if let Some((there, all)) = scan.go_on(&mut time) {
            self.take_in(task, &there, may, &mut time);
            if all {
                self.remove_departed(task, &there);
            }
        }
        if let Some(scan) = self.group_scans.get_mut(&task) {
            scan.took(now, clock.now().since(began), tasks);
        }
    }

    fn check_owners(
        &mut self,
        tasks: &[TaskId],
        may: &mut dyn FnMut(TaskId, &Process) -> bool,
        now: Instant,
    ) -> (Vec<(TaskId, ForeignProcess)>, Instant) {
        let Machine { context, rounds, clock, .. } = self;
        if now < rounds.next() {
            return (Vec::new(), rounds.next());
        }
        let (began, mut strangers) = (clock.now(), Vec::new());
        let whole = loop {
            let Some((task, left)) = rounds.place(now, tasks.iter().copied()) else { break true };
            let members = context.tasks.get(&task);
            let there = members.map_or(0, TaskProcesses::count);
            let left = left.unwrap_or(there).min(there);
            let process = left.checked_sub(1).and_then(|at| members?.process(at));
            rounds.left(task, left.saturating_sub(1));
            if let Some(process) = process.filter(|process| !may(task, process)) {
                // The present name: the process joined with another program.
                let name = process.name_now().unwrap_or_default();
                strangers.push((task, ForeignProcess { process: process.identity(), name }));
            }
            if clock.now().since(began) >= owners::SLICE {
                break false;
            }
        };
        rounds.took(now, clock.now().since(began), whole, !strangers.is_empty());
        (strangers, rounds.next())
    }

    fn expel(&mut self, task: TaskId, processes: &[ProcessIdentity]) {
        if let Some(members) = self.context.tasks.get_mut(&task) {
            members.expel(processes);
            self.proxy.remove_processes(task, processes, &mut self.context);
        }
    }

    fn members(&self, task: TaskId) -> Vec<ProcessIdentity> {
        let members = self.context.tasks.get(&task);
        members.map_or(Vec::new(), |members| members.processes().map(Process::identity).collect())
    }

    fn count_threads(&self, task: TaskId, most: usize) -> usize {
        let Some(members) = self.context.tasks.get(&task) else { return 0 };
        let mut all = 0;
        for process in members.processes() {
            if all > most {
                break;
            }
            all += process.thread_count();
        }
        all
    }

    fn task_of(&self, process: &Process) -> Option<(TaskId, bool)> {
        let identity = process.identity();
        let itself = self.context.tasks.iter().find(|(_, members)| members.has(identity));
        if let Some((task, members)) = itself {
            return Some((*task, members.was_named(identity)));
        }
        self.find_member(&[process.parent()?]).map(|(_, task)| (task, false))
    }

    fn find_member(&self, numbers: &[u32]) -> Option<(u32, TaskId)> {
        let has = |members: &TaskProcesses| {
            let mut processes = members.processes().map(|process| process.identity().number);
            processes.find(|number| numbers.binary_search(number).is_ok())
        };
        self.context.tasks.iter().find_map(|(task, members)| Some((has(members)?, *task)))
    }

    fn reserve(&mut self, task: TaskId, reservation: Reservation, now: Instant) -> Result<(), NotReserved> {
        self.proxy.reserve(task, reservation, now, &mut self.context)
    }

    fn confine(&mut self, task: TaskId, confined: bool) {
        match confined {
            true => self.context.confined.insert(task),
            false => self.context.confined.remove(&task),
        };
    }

    fn harden(&mut self, task: TaskId, hard: bool) -> Result<(), String> {
        if !hard {
            self.context.hard.remove(&task);
            return Ok(());
        }
        self.proxy.may_cap(task, &self.context)?;
        self.context.hard.insert(task);
        Ok(())
    }

    fn moves(&self) -> Option<Arc<Moves>> {
        self.proxy.moves()
    }

    fn enforcement(&self, task: TaskId) -> Option<String> {
        self.proxy.enforcement(task)
    }

    fn release(&mut self, task: TaskId) {
        self.proxy.release(task, &mut self.context);
    }

    fn forget(&mut self, task: TaskId) {
        self.context.hard.remove(&task);
        self.proxy.release(task, &mut self.context);
        self.context.tasks.remove(&task);
        self.context.confined.remove(&task);
        self.watches.unwatch(task);
        self.group_scans.remove(&task);
    }

    fn consumed(&mut self, task: TaskId) -> Option<Span> {
        let members = self.context.tasks.get_mut(&task)?;
        let consumed = members.consumed();
        // Also for tasks without a reservation: a child may outlive the added process.
        members.update_processes(consumed);
        (!members.all_ended()).then_some(consumed)
    }

    fn consumed_at(&mut self, task: TaskId, now: Instant) -> Option<Span> {
        Some(self.context.tasks.get_mut(&task)?.consumed_at(now))
    }

    fn is_pending(&self, task: TaskId) -> bool {
        self.proxy.is_pending(task)
    }

    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.proxy.next_outcome()
    }

    fn next_retry(&mut self) -> Option<TaskId> {
        self.proxy.next_retry()
    }

    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId]) -> bool {
        self.proxy.promise_lanes(cpu, lanes, first, &mut self.context)
    }

    fn watch(&mut self, task: TaskId, owner: Option<u32>) {
        match owner {
            Some(owner) => self.watches.watch(task, owner),
            None => self.watches.unwatch(task),
        }
    }

    fn wakeups(&mut self, task: TaskId, finder: &mut Finder) -> WakeupWatch {
        self.watches.collect_into(task, self.context.tasks.get(&task), finder)
    }

    fn wake_on_events(&mut self, wake: &Wake) {
        self.proxy.wake_on_events(wake);
    }

    fn threads(&self, task: TaskId) -> usize {
        self.context.tasks.get(&task).map_or(0, TaskProcesses::count_threads)
    }

    fn is_asleep(&self, task: TaskId) -> bool {
        self.proxy.is_asleep(task)
    }

    fn next_woken(&mut self) -> Option<TaskId> {
        self.proxy.next_woken()
    }

    fn tick(&mut self, now: Instant) -> Instant {
        self.proxy.tick(now, &mut self.context)
    }

    fn due(&self) -> Instant {
        self.proxy.due()
    }

    fn end(&mut self) {
        let tasks: Vec<TaskId> = self.context.tasks.keys().copied().collect();
        tasks.into_iter().for_each(|task| self.forget(task));
        self.proxy.finish();
        self.context.state_file.restore_all();
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
    Ok((Box::new(proxy), "SCHED_DEADLINE for each thread, hard; used only with --scheduler deadline"))
}

fn weights(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let proxy = WeightsProxy::new(Groups::in_subtree(Subtree::find()?));
    Ok((Box::new(proxy), "weights of control groups: shares under contention, without a promise of when"))
}

fn none(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let reason = "this machine grants no scheduler; `hyoshi broker show` lists reasons and remedies";
    Ok((Box::new(NoneProxy::new(reason)), "reserves nothing, only measures consumption"))
}

fn simulated(_: bool) -> Result<(Box<dyn SchedulerProxy>, &'static str), String> {
    let limit = Share::from_millionths(u64::from(fifo_limit().ppm));
    let proxy = SimulatedProxy::new(allowed_cpus(), limit);
    Ok((Box::new(proxy), "admits tasks as windows do, changes nothing; used only with --scheduler simulated"))
}

impl MachineError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            MachineError::State(error) => error.remedy(),
            MachineError::NoFloor(_) => "start the broker without --floor".into(),
            MachineError::NoSuchWay { proxies, .. } => {
                let names: Vec<&str> = proxies.iter().map(|way| way.name).collect();
                format!("use one of {}, or omit --scheduler", names.join(", "))
            }
        }
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::State(error) => error.fmt(f),
            MachineError::NoFloor(reason) => write!(f, "cannot use weights as a floor: {reason}"),
            MachineError::NoSuchWay { asked, proxies } => match proxies.iter().find(|way| way.name == asked) {
                Some(way) => write!(f, "cannot use scheduler `{asked}`: {}", way.reason),
                None => write!(f, "unknown scheduler `{asked}`"),
            },
        }
    }
}

impl std::error::Error for MachineError {}

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
            // Scans of some tasks are slow, those of others fast; each task scans once in its period.
            let cost = |at: usize| Span::from_micros(1 + 997 * (at as u64 % 2) + at as u64);
            let period = |at: usize| Span::from_micros(1_000 * (at as u64 % 5 + 1));
            let all = Span::from_secs(20);
            let (mut total, mut longest) = (Span::ZERO, Span::ZERO);
            for at in 0..tasks {
                let mut scan = GroupScan::default();
                let (mut now, mut last) = (Instant::ZERO, Instant::ZERO);
                while now.since(Instant::ZERO) < all {
                    if scan.next <= now {
                        total += cost(at);
                        longest = longest.max(now.since(last));
                        last = now;
                        scan.took(now, cost(at), tasks);
                    }
                    now = now.saturating_add(period(at));
                }
            }
            let first: Span = (0..tasks).map(cost).sum();
            assert!(total * SCAN_SHARE <= all + first * SCAN_SHARE, "{tasks} tasks: {total} of {all}");
            let most = Span::from_millis(2) * SCAN_SHARE * tasks as u64 + Span::from_millis(5);
            assert!(longest <= most, "{tasks} tasks: one waited {longest}");
        }
    }
}
