//! A control group for each task: created, configured by [`Terms`], filled with the task's processes, and removed. The
//! state file records each step first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hyoshi_control::TaskId;
use hyoshi_control::group::Terms;
use hyoshi_model::{Instant, Span};
use hyoshi_os::cgroup::own::remove;
use hyoshi_os::cgroup::{CgroupVersion, CpuGroup, OwnGroup, Subtree};
use hyoshi_os::process::{Process, ProcessIdentity, is_same};

use super::ProxyContext;
use super::moves::{MovePreparer, Moves, Readiness, SOON};
use crate::platform::NotReserved;
use crate::state_file::StateFile;

/// The tasks' groups.
#[derive(Debug)]
pub struct Groups {
    subtree: Subtree,
    held: BTreeMap<TaskId, (OwnGroup, Terms)>,
    outside: BTreeMap<TaskId, UnmovedProcesses>,
    next: Instant,
    preparer: MovePreparer,
    /// Processes that this tick may still move, and whether more remain.
    room: usize,
    more: bool,
    /// This broker enabled the controller for child groups. It was alone in the subtree itself and is in this group
    /// now.
    passed_on: bool,
    own_group: Option<OwnGroup>,
}

/// How often new processes are moved. Children of members start in the group; this is for processes that joined
/// otherwise.
const LOOK: Span = Span::from_millis(500);

/// Processes of a task that could not be moved to its group.
#[derive(Debug)]
struct UnmovedProcesses {
    /// One of them, and why.
    first: (ProcessIdentity, String),
    /// They are not tried at each tick.
    all: BTreeSet<ProcessIdentity>,
    /// When all of them are tried again.
    again: Instant,
}

/// How long a refused process is not tried again.
const LEFT_ALONE: Span = Span::from_secs(10);
/// Refused moves of one tick, some 50 us each.
const MOST_REFUSED: usize = 64;
/// Moves of one tick, because windows wait meanwhile.
const MOST_MOVED: usize = 64;

impl Groups {
    /// Without groups.
    pub fn in_subtree(subtree: Subtree) -> Self {
        let (held, outside) = (BTreeMap::new(), BTreeMap::new());
        let preparer = MovePreparer::default();
        Groups {
            subtree,
            held,
            outside,
            next: Instant::ZERO,
            preparer,
            room: 0,
            more: false,
            passed_on: false,
            own_group: None,
        }
    }

    /// The directory in which they are made.
    pub fn folder(&self) -> &Path {
        self.subtree.folder()
    }

    /// The preparation of moves.
    pub fn moves(&self) -> Arc<Moves> {
        self.preparer.moves().clone()
    }

    /// The terms of a task.
    pub fn terms(&self, task: TaskId) -> Option<Terms> {
        self.held.get(&task).map(|(_, terms)| *terms)
    }

    /// Whether a task may have a group: in version 2 its processes leave their present group with all controllers.
    ///
    /// # Errors
    ///
    /// The reason.
    pub fn may_hold(&self, task: TaskId, context: &ProxyContext) -> Result<(), String> {
        if self.subtree.version() == CgroupVersion::One || !context.confined.contains(&task) {
            return Ok(());
        }
        let reason = "a new control group would remove the processes from their present group and its limits, such as \
                      memory.max; only tasks of root and operators may have one";
        Err(reason.into())
    }

    /// Sets the terms of a task, in a group of its own. [`Groups::enforcement`] reports processes that cannot be moved.
    ///
    /// # Errors
    ///
    /// The kernel's error, or that no process can be moved; the previous terms then apply again.
    pub fn hold(&mut self, task: TaskId, terms: Terms, context: &mut ProxyContext) -> Result<(), NotReserved> {
        self.may_hold(task, context).map_err(|reason| NotReserved { most: None, reason })?;
        let Some(home) = context
            .tasks
            .get(&task)
            .and_then(|members| members.processes().next())
            .map(|process| CpuGroup::of_process(process.identity().number).folder)
        else {
            return Err(NotReserved { most: None, reason: "the task has no processes".into() });
        };
        self.settle(&mut context.state_file)?;
        let before = self.terms(task);
        if before.is_none() {
            let group = OwnGroup::below(self.folder(), &name(), self.subtree.version());
            let made = context.state_file.group(group.folder(), &home).and_then(|()| group.make());
            made.map_err(|error| refused(group.folder(), &error))?;
            self.held.insert(task, (group, terms));
            self.preparer.moves().note(self.held.len());
        }
        let Some((group, held)) = self.held.get_mut(&task) else { return Ok(()) };
        *held = terms;
        let done = set(group, before, terms).map_err(|reason| NotReserved { most: None, reason });
        self.room = MOST_MOVED;
        let done = done.and_then(|()| self.gather(task, context));
        if done.is_err() {
            match before {
                None => self.release(task, context),
                Some(before) => {
                    if let Some((group, held)) = self.held.get_mut(&task) {
                        let _ = set(group, None, before);
                        *held = before;
                    }
                }
            }
        }
        // Move processes that started meanwhile.
        self.next = Instant::ZERO;
        done
    }

    /// Returns the task's processes to their previous groups and removes its group.
    pub fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        let Some((group, _)) = self.held.remove(&task) else { return };
        self.preparer.moves().note(self.held.len());
        self.outside.remove(&task);
        for process in context.tasks.get(&task).into_iter().flat_map(|members| members.processes()) {
            let identity = process.identity();
            if let Some(from) = context.state_file.came_from(identity) {
                // The number may belong to another process by now; moving an ended process costs as much as another.
                if !process.has_ended() && is_same(identity) {
                    let _ = hyoshi_os::cgroup::own::move_back(identity.number, from);
                }
                context.state_file.done(identity);
            }
        }
        // Children that started here go where their parents go. A group that cannot be removed yet stays in the state
        // file.
        let home = context.state_file.home_of(group.folder()).map(Path::to_owned);
        if remove(group.folder(), home.as_deref()).is_ok() {
            context.state_file.group_done(group.folder());
        }
        if self.held.is_empty() {
            self.unsettle(&mut context.state_file);
        }
    }

    /// Returns these processes of the task to their previous groups.
    pub fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        let Some((group, _)) = self.held.get(&task) else { return };
        let there = group.processes();
        for process in left {
            // A process that started here goes where its parent goes.
            let state_file = &context.state_file;
            let home = state_file.came_from(*process).or_else(|| state_file.home_of(group.folder()));
            if there.contains(&process.number)
                && is_same(*process)
                && let Some(home) = home
            {
                let _ = hyoshi_os::cgroup::own::move_back(process.number, home);
            }
            context.state_file.done(*process);
        }
    }

    /// Moves new processes to the groups. Returns when to call again.
    pub fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant {
        if now >= self.next {
            let readiness = self.preparer.readiness(now);
            if readiness == Readiness::Soon {
                self.next = now.saturating_add(SOON);
                return self.next;
            }
            let tasks: Vec<TaskId> = self.held.keys().copied().collect();
            for task in &tasks {
                if let Some(members) = context.tasks.get_mut(task) {
                    members.list_processes();
                }
                if self.outside.get(task).is_some_and(|outside| outside.again <= now) {
                    self.outside.remove(task);
                }
            }
            // Find the processes first; then the kernel must be prepared for moves.
            (self.room, self.more) = (if readiness == Readiness::Ready { MOST_MOVED } else { 0 }, false);
            for task in &tasks {
                let _ = self.gather(*task, context);
                if let Some(outside) = self.outside.get_mut(task) {
                    // In this tick.
                    if outside.again == Instant::ZERO {
                        outside.again = now.saturating_add(LEFT_ALONE);
                    }
                }
            }
            if self.more {
                self.preparer.ask(now);
            }
            let until = if self.more { SOON } else { LOOK };
            self.next = if tasks.is_empty() { Instant::NEVER } else { now.saturating_add(until) };
        }
        self.next
    }

    /// When the next tick is due.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// The terms of a task as text.
    pub fn enforcement(&self, task: TaskId) -> Option<String> {
        let (group, terms) = self.held.get(&task)?;
        let many = if terms.weight == 1 { "program" } else { "programs" };
        let mut text = format!("weighs as much as {} ordinary {many}", terms.weight);
        if let Some(quota) = terms.quota {
            // Writing to a string cannot fail.
            let _ =
                write!(text, ", capped at {quota}{}", if terms.raised.is_some() { " beside its windows" } else { "" });
        }
        let _ = write!(text, ", in control group {}", group.folder().display());
        if let Some(UnmovedProcesses { first: (_, reason), all, .. }) = self.outside.get(&task) {
            let _ = write!(text, "; {} of its processes stay outside: {reason}", all.len());
        }
        Some(text)
    }

    /// Moves the task's processes to its group, except those that were refused recently and those beyond `room`.
    fn gather(&mut self, task: TaskId, context: &mut ProxyContext) -> Result<(), NotReserved> {
        let (Some((group, _)), Some(members)) = (self.held.get(&task), context.tasks.get(&task)) else { return Ok(()) };
        let (there, confined) = (group.processes(), context.confined.contains(&task));
        // After the process with the reported reason has ended, all are tried again.
        let stays = |who: ProcessIdentity| members.has(who) && !there.contains(&who.number);
        let before = self.outside.remove(&task).filter(|outside| stays(outside.first.0));
        let (mut inside, mut refused, mut all) = (false, 0, BTreeSet::new());
        let (mut first, again) = before.as_ref().map_or((None, Instant::ZERO), |it| (Some(it.first.clone()), it.again));
        for process in members.processes() {
            let identity = process.identity();
            if there.contains(&identity.number) {
                inside = true;
            } else if before.as_ref().is_some_and(|outside| outside.all.contains(&identity)) {
                all.insert(identity);
            } else if self.room == 0 {
                self.more = true;
            } else if refused < MOST_REFUSED {
                match take_in(group, process, confined, &mut context.state_file) {
                    Ok(taken) => {
                        inside |= taken;
                        self.room -= usize::from(taken);
                    }
                    Err(reason) => {
                        refused += 1;
                        all.insert(identity);
                        first.get_or_insert((identity, reason));
                    }
                }
            }
        }
        let Some(first) = first else { return Ok(()) };
        let reason = first.1.clone();
        self.outside.insert(task, UnmovedProcesses { first, all, again });
        if inside { Ok(()) } else { Err(NotReserved { most: None, reason }) }
    }

    /// Before the first group: enables the controller for child groups.
    fn settle(&mut self, state_file: &mut StateFile) -> Result<(), NotReserved> {
        let refused = |error: io::Error| refused(self.subtree.folder(), &error);
        if self.own_group.is_none()
            && let Some(own_group) = self.subtree.refuge(&name())
        {
            state_file.group(own_group.folder(), self.subtree.folder()).map_err(refused)?;
            let _own = self.preparer.moves().stay();
            own_group.make().and_then(|()| own_group.take(std::process::id())).map_err(refused)?;
            self.own_group = Some(own_group);
        }
        self.passed_on |= self.subtree.delegate_cpu().map_err(refused)?;
        Ok(())
    }

    /// After the last group: undoes [`Groups::settle`].
    fn unsettle(&mut self, state_file: &mut StateFile) {
        if std::mem::take(&mut self.passed_on) {
            let _ = self.subtree.keep();
        }
        if let Some(own_group) = self.own_group.take() {
            let own = self.preparer.moves().stay();
            let _ = self.subtree.move_back();
            drop(own);
            if remove(own_group.folder(), None).is_ok() {
                state_file.group_done(own_group.folder());
            }
        }
    }
}

/// Whether the process is in the group now; an ended one is not.
///
/// # Errors
///
/// Why it stays in its group.
fn take_in(group: &OwnGroup, process: &Process, confined: bool, state_file: &mut StateFile) -> Result<bool, String> {
    let (identity, from) = (process.identity(), CpuGroup::of_process(process.identity().number));
    if let Some(above) = from.capped_by().filter(|_| confined) {
        return Err(format!(
            "process {} would leave the cap of control group {}; only tasks of root and operators may",
            identity.number,
            above.display()
        ));
    }
    let from = from.folder;
    state_file.moved(identity, &from).map_err(|error| refused(group.folder(), &error).reason)?;
    // The number may belong to another process by now.
    let there = !process.has_ended() && is_same(identity);
    match there.then(|| group.take(identity.number)) {
        Some(Ok(())) => return Ok(true),
        Some(Err(error)) if !process.has_ended() => {
            state_file.done(identity);
            let below = group.folder().parent().unwrap_or(group.folder());
            return Err(not_moved(identity.number, &from, below, &error));
        }
        _ => state_file.done(identity),
    }
    Ok(false)
}

/// A name that no other group and no other process uses.
fn name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("hyoshi-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// Writes changed values only: writing a quota restarts its period.
fn set(group: &OwnGroup, before: Option<Terms>, terms: Terms) -> Result<(), String> {
    let failed = |what: &str| {
        let what = format!("cannot set {what} of control group {}", group.folder().display());
        move |error: io::Error| format!("{what}: {error}")
    };
    // The real-time budget must exist before threads are raised.
    if let Some(raised) = terms.raised.filter(|raised| before.and_then(|before| before.raised) != Some(*raised)) {
        group.allow_real_time(raised.budget(), raised.period()).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => format!(
                "the kernel limits real-time threads of all control groups together to the limit of one CPU \
                 (cpu.rt_runtime_us); less than {raised} is left"
            ),
            _ => failed("the real-time budget")(error),
        })?;
    }
    if before.map(|before| before.weight) != Some(terms.weight) {
        group.weigh(terms.weight).map_err(failed("the weight"))?;
    }
    if before.map_or(terms.quota.is_some(), |before| before.quota != terms.quota) {
        group.cap(terms.quota.map(|quota| (quota.budget(), quota.period()))).map_err(failed("the cap"))?;
    }
    Ok(())
}

fn refused(what: &Path, error: &io::Error) -> NotReserved {
    NotReserved { most: None, reason: format!("cannot use control group {}: {error}", what.display()) }
}

fn not_moved(pid: u32, from: &Path, to: &Path, error: &io::Error) -> String {
    let reason = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "it is outside the subtree that is delegated to the broker's user; start programs with \
             `systemd-run --user --scope`, or from the broker's terminal"
        }
        io::ErrorKind::InvalidInput => "it has a real-time thread, and the new group has no real-time budget",
        _ => {
            return format!(
                "cannot move process {pid} from {} to a group below {}: {error}",
                from.display(),
                to.display()
            );
        }
    };
    format!("cannot move process {pid} from {} to a group below {}: {reason}", from.display(), to.display())
}
