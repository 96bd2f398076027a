//! The processes of a task with their threads and children, and their CPU time.

use std::collections::BTreeSet;

use hyoshi_model::{Instant, Span};
use hyoshi_os::meter::{Meter, MeterSource};
use hyoshi_os::process::{Children, NoProcess, Process, ProcessIdentity, is_same, start_of_now};
use hyoshi_os::{Clock, MonotonicClock};

/// The processes of one task. New threads and children join; ended ones leave.
///
/// Children are found by their parents, so a child whose parent ended before a sample (a daemon that forks twice at
/// once) stays outside; the task clock still counts its CPU time.
#[derive(Debug)]
pub struct TaskProcesses {
    processes: Vec<Process>,
    /// Processes that were added by themselves, not as children or with a control group.
    named: BTreeSet<ProcessIdentity>,
    /// Processes whose first thread has ended while others run.
    headless: Vec<ProcessIdentity>,
    threads: Vec<TaskThread>,
    meter: Meter,
    /// The last reading at a known instant.
    read: Option<(Instant, Span)>,
    /// The meter when processes were last listed: a task that consumed nothing since has started nothing.
    looked: Option<Span>,
    /// The earliest next list.
    next: Instant,
    /// Until then lists may follow at once: new processes often start others.
    young: Instant,
    /// When threads were last listed, and their number.
    listed: Instant,
    counted: usize,
    clock: MonotonicClock,
    scratch: Vec<u32>,
    /// When control groups were last scanned, in process start times.
    gathered: u64,
    /// The last scanned number.
    cursor: u32,
    /// Processes that were seen in the task's control groups.
    grouped: BTreeSet<ProcessIdentity>,
    /// Of those, processes in none at the last scan: one that moves to a group below can be missed once.
    missing: BTreeSet<ProcessIdentity>,
    /// Children of members that are not members: they have left, belong to another task, or may not join.
    outside: BTreeSet<ProcessIdentity>,
}

/// A thread of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskThread {
    /// Its thread number.
    pub tid: u32,
    /// Its process.
    pub process: ProcessIdentity,
}

/// New processes that one scan handles in any case, some 40 us each.
const LEAST_AT_ONCE: usize = 32;

/// Listing processes uses at most this part of the time.
const FAMILY_SHARE: u64 = 50;

/// The shortest time between lists, except soon after processes joined.
const FAMILY: Span = Span::from_millis(100);
const YOUNG: Span = Span::from_secs(1);

/// How often threads are listed if their number stays the same.
const THREADS: Span = Span::from_millis(100);

/// Most processes of a task; further children stay outside.
pub const MOST_PROCESSES: usize = 4096;

impl TaskProcesses {
    /// Without processes, with the most precise meter that the kernel grants.
    pub fn new() -> Self {
        let (processes, headless, threads, scratch) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (named, outside) = (BTreeSet::new(), BTreeSet::new());
        let (grouped, missing) = (BTreeSet::new(), BTreeSet::new());
        let meter = Meter::new();
        TaskProcesses {
            processes,
            named,
            headless,
            threads,
            meter,
            read: None,
            looked: None,
            next: Instant::ZERO,
            young: Instant::ZERO,
            listed: Instant::ZERO,
            counted: 0,
            clock: MonotonicClock::start(),
            scratch,
            gathered: 0,
            cursor: 0,
            grouped,
            missing,
            outside,
        }
    }

    /// Adds a process with its children.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn add(&mut self, process: Process) -> Result<(), NoProcess> {
        self.add_but(process, &|_| false)
    }

    /// The same without those children that are in another task, and without theirs.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn add_but(&mut self, process: Process, others: &dyn Fn(ProcessIdentity) -> bool) -> Result<(), NoProcess> {
        let identity = process.identity();
        let there = self.has(identity);
        self.take(process, others, &Children::default())?;
        if !there && self.has(identity) {
            self.named.insert(identity);
        }
        self.list_threads();
        Ok(())
    }

    fn take(
        &mut self,
        process: Process,
        others: &dyn Fn(ProcessIdentity) -> bool,
        children: &Children,
    ) -> Result<(), NoProcess> {
        if process.has_ended() {
            return Err(NoProcess::Gone(process.identity().number));
        }
        if self.has(process.identity()) || self.processes.len() >= MOST_PROCESSES {
            return Ok(());
        }
        let born = children.of(&process);
        self.outside.remove(&process.identity());
        self.meter.add(&process, false);
        if process.first_thread_has_ended() {
            self.headless.push(process.identity());
        }
        self.processes.push(process);
        self.young = self.clock.now().saturating_add(YOUNG);
        for child in born {
            let Ok(child) = Process::open(child) else { continue };
            if others(child.identity()) {
                self.exclude(child.identity());
                continue;
            }
            // Started before its parent was metered, so it needs its own counter.
            let _ = self.take(child, others, children);
        }
        Ok(())
    }

    /// Removes a process that joins another task, with its children. It must be a member, or the child of a member:
    /// `parent`. Returns the removed processes: none if it was added by itself or is not in this task.
    pub fn remove_subtree(&mut self, process: &Process, parent: Option<u32>) -> Vec<ProcessIdentity> {
        let identity = process.identity();
        let inside = |one: &Process| one.identity() == identity || Some(one.identity().number) == parent;
        if self.named.contains(&identity) || !self.processes.iter().any(inside) {
            return Vec::new();
        }
        let children = Children::default();
        let (mut left, mut next) = (vec![identity], children.of(process));
        while let Some(child) = next.pop() {
            let of_it = self.processes.iter().find(|one| one.identity().number == child);
            let Some(of_it) = of_it.filter(|one| !self.named.contains(&one.identity())) else { continue };
            left.push(of_it.identity());
            next.extend(children.of(of_it));
        }
        self.remove_all(&left);
        left
    }

    /// Excludes a process of another task, whatever its parent is.
    pub fn exclude(&mut self, process: ProcessIdentity) {
        self.outside.insert(process);
    }

    /// Number of threads without listing them. 0.5 us a process.
    pub fn count_threads(&self) -> usize {
        self.processes.iter().map(Process::count_threads).sum()
    }

    /// Lists the threads if their number has changed or the last list is `THREADS` old.
    pub fn update_threads(&mut self) {
        if self.count_threads() != self.counted || self.clock.now() >= self.listed.saturating_add(THREADS) {
            self.list_threads();
        }
    }

    /// Lists the threads. 1 us a process and 0.3 us a thread.
    pub fn list_threads(&mut self) {
        (self.listed, self.counted) = (self.clock.now(), self.count_threads());
        self.threads.clear();
        for process in &self.processes {
            process.threads(&mut self.scratch);
            let process = process.identity();
            let ended = self.headless.contains(&process).then_some(process.number);
            let live = self.scratch.iter().filter(|tid| Some(**tid) != ended);
            self.threads.extend(live.map(|tid| TaskThread { tid: *tid, process }));
        }
        self.threads.sort_unstable();
    }

    /// Lists the processes if they may have changed; `reading` is their present consumption. Limited in rate.
    pub fn update_processes(&mut self, reading: Span) {
        let now = self.clock.now();
        if self.looked == Some(reading) || now < self.next {
            return;
        }
        self.looked = Some(reading);
        self.list_processes();
        let took = self.clock.now().since(now);
        let least = if now < self.young { Span::ZERO } else { FAMILY };
        self.next = now.saturating_add((took * FAMILY_SHARE).max(least));
    }

    /// Removes ended processes and adds new children. 3 us a thread, so not at each sample. A process whose first
    /// thread has ended is alive while its other threads run.
    pub fn list_processes(&mut self) {
        let before = self.processes.len();
        self.processes.retain(|process| !process.has_ended());
        if self.processes.len() < before {
            self.meter.forget_ended();
            self.named.retain(|process| self.processes.iter().any(|one| one.identity() == *process));
        }
        self.outside.retain(|process| is_same(*process));
        let headless = self.processes.iter().filter(|process| process.first_thread_has_ended());
        self.headless = headless.map(Process::identity).collect();
        let (children, mut at) = (Children::default(), 0);
        // New children are appended, so theirs join in the same pass.
        while at < self.processes.len() {
            for child in children.of(&self.processes[at]) {
                if self.processes.len() >= MOST_PROCESSES {
                    return;
                }
                if self.processes.iter().any(|process| process.identity().number == child) {
                    continue;
                }
                if let Ok(child) = Process::open(child)
                    && !self.outside.contains(&child.identity())
                {
                    self.meter.add(&child, true);
                    self.processes.push(child);
                    self.young = self.clock.now().saturating_add(YOUNG);
                }
            }
            at += 1;
        }
    }

    /// Adds the processes of a control group that are not members yet and may join. A process that a member has started
    /// since the last scan shares its meter, also if its parent has ended: it is in the same session, unlike a process
    /// that moved into the group. `numbers` are sorted; of very many, more than a few join while there is `time`, and
    /// the others at the next scans.
    pub fn gather(&mut self, numbers: &[u32], may: &mut dyn FnMut(&Process) -> bool, time: &mut dyn FnMut() -> bool) {
        self.take_in(numbers, may, time);
        // Also for the scan that adds a group, so that a process that leaves before the next one is noticed.
        let seen = self.processes.iter().map(Process::identity);
        self.grouped.extend(seen.filter(|process| numbers.binary_search(&process.number).is_ok()));
    }

    fn take_in(&mut self, numbers: &[u32], may: &mut dyn FnMut(&Process) -> bool, time: &mut dyn FnMut() -> bool) {
        let sessions: Vec<u32> = self.processes.iter().map(Process::session).collect();
        let before = std::mem::replace(&mut self.gathered, start_of_now());
        self.list_processes();
        let here: BTreeSet<u32> = self.processes.iter().map(|process| process.identity().number).collect();
        let (last, first) = numbers.split_at(numbers.partition_point(|number| *number <= self.cursor));
        let strangers = first.iter().chain(last).filter(|number| !here.contains(number));
        for (at, number) in strangers.enumerate() {
            if self.processes.len() >= MOST_PROCESSES || (at >= LEAST_AT_ONCE && !time()) {
                return;
            }
            self.cursor = *number;
            let Ok(process) = Process::open(*number) else { continue };
            if may(&process) {
                self.outside.remove(&process.identity());
                let born = process.identity().start >= before && sessions.contains(&process.session());
                self.meter.add(&process, born);
                self.processes.push(process);
            } else {
                self.exclude(process.identity());
            }
        }
    }

    /// Removes processes that have left all control groups of the task, at this and the previous scan; `numbers` are
    /// the sorted processes of its groups. Returns them.
    pub fn remove_departed(&mut self, numbers: &[u32]) -> Vec<ProcessIdentity> {
        let all: BTreeSet<ProcessIdentity> = self.processes.iter().map(Process::identity).collect();
        self.grouped.retain(|process| all.contains(process));
        let is_away = |process: &&ProcessIdentity| numbers.binary_search(&process.number).is_err();
        let away: BTreeSet<ProcessIdentity> = self.grouped.iter().filter(is_away).copied().collect();
        let left: Vec<ProcessIdentity> = away.intersection(&self.missing).copied().collect();
        self.missing = away;
        if !left.is_empty() {
            self.remove_all(&left);
        }
        left
    }

    fn remove_all(&mut self, left: &[ProcessIdentity]) {
        self.processes.retain(|process| !left.contains(&process.identity()));
        self.named.retain(|process| !left.contains(process));
        self.outside.extend(left);
        self.meter.set_processes(&self.processes);
        self.list_threads();
    }

    /// Removes processes, which do not join again as children.
    pub fn expel(&mut self, processes: &[ProcessIdentity]) {
        let here: Vec<ProcessIdentity> = processes.iter().copied().filter(|process| self.has(*process)).collect();
        if !here.is_empty() {
            self.grouped.retain(|process| !here.contains(process));
            self.remove_all(&here);
        }
    }

    /// Number of processes.
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    /// A process, in the order of joining.
    pub fn process(&self, at: usize) -> Option<&Process> {
        self.processes.get(at)
    }

    /// The threads of the last list, sorted.
    pub fn threads(&self) -> &[TaskThread] {
        &self.threads
    }

    /// The processes of the last list.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// True once all processes have ended.
    pub fn all_ended(&self) -> bool {
        self.processes.iter().all(Process::has_ended)
    }

    /// CPU time of all processes since they joined, ended ones included.
    pub fn consumed(&mut self) -> Span {
        self.meter.read()
    }

    /// The same at this instant: read only once for each instant.
    pub fn consumed_at(&mut self, now: Instant) -> Span {
        match self.read {
            Some((at, consumed)) if at == now => consumed,
            _ => self.read.insert((now, self.meter.read())).1,
        }
    }

    /// How the CPU time is measured.
    pub fn source(&self) -> MeterSource {
        self.meter.source()
    }

    /// Whether it was added by itself, not as a child or with a control group.
    pub fn was_named(&self, identity: ProcessIdentity) -> bool {
        self.named.contains(&identity)
    }

    /// Whether it is a member.
    pub fn has(&self, identity: ProcessIdentity) -> bool {
        self.processes.iter().any(|process| process.identity() == identity)
    }
}

impl Default for TaskProcesses {
    fn default() -> Self {
        TaskProcesses::new()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn number(&self) -> u32 {
            self.0.id()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_leaves_a_group_before_the_look_after_the_first_has_left_it() {
        let (stays, leaves, never) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
        let mut members = TaskProcesses::new();
        members.add(Process::open(never.number()).unwrap()).unwrap();
        let mut group = [stays.number(), leaves.number()];
        group.sort_unstable();
        members.gather(&group, &mut |_| true, &mut || true);
        let rest = [stays.number()];
        let mut look = || {
            members.gather(&rest, &mut |_| true, &mut || true);
            members.remove_departed(&rest).into_iter().map(|left| left.number).collect::<Vec<_>>()
        };
        // A process that moves to a group below can be missed once.
        assert_eq!([look(), look(), look()], [vec![], vec![leaves.number()], vec![]]);
        let mut here: Vec<u32> = members.processes().map(|process| process.identity().number).collect();
        here.sort_unstable();
        let mut all = [stays.number(), never.number()];
        all.sort_unstable();
        assert_eq!(here, all);
    }
}
