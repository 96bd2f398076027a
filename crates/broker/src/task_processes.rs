//! Who belongs to a task: its processes with all their threads, the children they start, and what all of them consume.

use std::collections::BTreeSet;

use hyoshi_model::{Instant, Span};
use hyoshi_os::meter::{Meter, Source};
use hyoshi_os::process::{Children, Identity, NoProcess, Process, is_same, start_of_now};
use hyoshi_os::{Clock, MonotonicClock};

/// The processes of one task. Threads and children that are born join; those that end leave.
///
/// Children are found by their parents, so one whose parent ended before it was seen (a daemon that forks twice within
/// a moment) stays outside; what it consumes is counted all the same where the task clock is.
#[derive(Debug)]
pub struct TaskProcesses {
    processes: Vec<Process>,
    /// Those that were added by themselves: neither as children of others nor with a control group.
    named: BTreeSet<Identity>,
    /// Those of which the first thread has ended while others go on.
    headless: Vec<Identity>,
    threads: Vec<TaskThread>,
    meter: Meter,
    /// The instant of the last reading that has one, and what it was.
    read: Option<(Instant, Span)>,
    /// The meter's reading when processes were looked at last: a task that consumed nothing since has started nobody.
    looked: Option<Span>,
    /// When they may be again.
    next: Instant,
    /// Until when it may be looked at again at once: new processes often start others.
    young: Instant,
    /// When threads were last listed, and their number.
    listed: Instant,
    counted: usize,
    clock: MonotonicClock,
    scratch: Vec<u32>,
    /// When processes of control groups were looked for last, as starts of processes have it.
    gathered: u64,
    /// The number up to which they were looked at last.
    cursor: u32,
    /// Those that were seen in control groups of the task.
    grouped: BTreeSet<Identity>,
    /// Of those, who was in none at the last look: one that goes from a group to one below it can be seen in neither.
    missing: BTreeSet<Identity>,
    /// Those that are no members, though their parents are: they have left, belong to another task, or may not join.
    outside: BTreeSet<Identity>,
}

/// A thread of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskThread {
    /// The kernel's number of it.
    pub tid: u32,
    /// Its process.
    pub process: Identity,
}

/// Processes of control groups that one look takes in, or sees that they may not come, however long that takes: some 40 us each.
const LEAST_AT_ONCE: usize = 32;

/// Looking for new processes takes at most one part in so many of the time.
const FAMILY_SHARE: u64 = 50;

/// Listing happens once in this time, except for a while after processes joined.
const FAMILY: Span = Span::from_millis(100);
const YOUNG: Span = Span::from_secs(1);

/// If the number of threads stays the same, they are listed this often.
const THREADS: Span = Span::from_millis(100);

/// No task has more processes than this; further children stay outside.
pub const MOST_PROCESSES: usize = 4096;

impl TaskProcesses {
    /// Nobody, metered as freshly as the kernel lets us.
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

    /// A process joins, with the children it has.
    ///
    /// # Errors
    ///
    /// If it has ended meanwhile.
    pub fn add(&mut self, process: Process) -> Result<(), NoProcess> {
        self.add_but(process, &|_| false)
    }

    /// The same, without those children that are `others`, and without theirs.
    ///
    /// # Errors
    ///
    /// If it has ended meanwhile.
    pub fn add_but(&mut self, process: Process, others: &dyn Fn(Identity) -> bool) -> Result<(), NoProcess> {
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
        others: &dyn Fn(Identity) -> bool,
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
            // Started before its parent was metered, so it has a counter of its own.
            let _ = self.take(child, others, children);
        }
        Ok(())
    }

    /// A process goes to a task of its own, though one that is here is its `parent`, or it is here itself; with it go those
    /// that it has started. Returns who leaves: nobody where it was added by itself, or is none of this task's.
    pub fn remove_subtree(&mut self, process: &Process, parent: Option<u32>) -> Vec<Identity> {
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

    /// Somebody else's, whoever has started it.
    pub fn exclude(&mut self, process: Identity) {
        self.outside.insert(process);
    }

    /// Number of threads, without listing them. 0.5 us a process.
    pub fn count_threads(&self) -> usize {
        self.processes.iter().map(Process::count_threads).sum()
    }

    /// Lists the threads if they may have changed since the last look: their number is different, or the last list is
    /// `THREADS` old.
    pub fn update_threads(&mut self) {
        if self.count_threads() != self.counted || self.clock.now() >= self.listed.saturating_add(THREADS) {
            self.list_threads();
        }
    }

    /// Sees which threads there are now. 1 us a process and 0.3 us a thread.
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

    /// Sees which processes there are, where there may be others than at the last look; `reading` is what they have consumed.
    /// Of many, not at once again.
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

    /// Sees which processes have ended and which were started since. 3 us a thread, so not at every look. A process
    /// whose first thread has ended lives as long as another: it is that thread alone which is not there any more.
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
        // Children of children come in the same round: they are appended.
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

    /// The processes of a control group join, those that are not here yet and may. A process that was started since the
    /// last time by one that is here is metered with that, also where it has lost its parent since: it is in the same
    /// session, which a process that was moved into the group or started there from elsewhere is not. `numbers` are
    /// sorted; of very many, more than a few come while there is `time`, and the others at the next looks.
    pub fn gather(&mut self, numbers: &[u32], may: &mut dyn FnMut(&Process) -> bool, time: &mut dyn FnMut() -> bool) {
        self.take_in(numbers, may, time);
        // Also at the look that adds a group: who goes before the next one, on a busy machine a while later, has left it.
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

    /// Those that were in a control group of the task and are in none any more, now and at the look before, are no members
    /// any longer; `numbers`, sorted, are all that are in its groups, as they were gathered. Returns who has left.
    pub fn remove_departed(&mut self, numbers: &[u32]) -> Vec<Identity> {
        let all: BTreeSet<Identity> = self.processes.iter().map(Process::identity).collect();
        self.grouped.retain(|process| all.contains(process));
        let is_away = |process: &&Identity| numbers.binary_search(&process.number).is_err();
        let away: BTreeSet<Identity> = self.grouped.iter().filter(is_away).copied().collect();
        let left: Vec<Identity> = away.intersection(&self.missing).copied().collect();
        self.missing = away;
        if !left.is_empty() {
            self.remove_all(&left);
        }
        left
    }

    fn remove_all(&mut self, left: &[Identity]) {
        self.processes.retain(|process| !left.contains(&process.identity()));
        self.named.retain(|process| !left.contains(process));
        self.outside.extend(left);
        self.meter.turn_to(&self.processes);
        self.list_threads();
    }

    /// These are no longer members, and do not join again as children of other members.
    pub fn expel(&mut self, processes: &[Identity]) {
        let here: Vec<Identity> = processes.iter().copied().filter(|process| self.has(*process)).collect();
        if !here.is_empty() {
            self.grouped.retain(|process| !here.contains(process));
            self.remove_all(&here);
        }
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    /// One of them, in the order in which they joined.
    pub fn process(&self, at: usize) -> Option<&Process> {
        self.processes.get(at)
    }

    /// The threads of the last look, in the order of their numbers.
    pub fn threads(&self) -> &[TaskThread] {
        &self.threads
    }

    /// The processes of the last look.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter()
    }

    /// True once all processes have ended.
    pub fn all_ended(&self) -> bool {
        self.processes.iter().all(Process::has_ended)
    }

    /// What all of them have consumed since they joined, those that have ended too.
    pub fn consumed(&mut self) -> Span {
        self.meter.read()
    }

    /// The same at this instant: read once, however often it is asked for.
    pub fn consumed_at(&mut self, now: Instant) -> Span {
        match self.read {
            Some((at, consumed)) if at == now => consumed,
            _ => self.read.insert((now, self.meter.read())).1,
        }
    }

    /// How it is known what they consume.
    pub fn source(&self) -> Source {
        self.meter.source()
    }

    /// Whether it was added by itself: neither as the child of another nor with a control group.
    pub fn was_named(&self, identity: Identity) -> bool {
        self.named.contains(&identity)
    }

    /// Whether it is a member.
    pub fn has(&self, identity: Identity) -> bool {
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
        // One that goes to a group below can be seen in neither, once.
        assert_eq!([look(), look(), look()], [vec![], vec![leaves.number()], vec![]]);
        let mut here: Vec<u32> = members.processes().map(|process| process.identity().number).collect();
        here.sort_unstable();
        let mut all = [stays.number(), never.number()];
        all.sort_unstable();
        assert_eq!(here, all);
    }
}
