//! A control group for each task: made, set to what [`Terms`] says, filled with the task's processes, and dissolved.
//! All of it is noted in the state file before it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hyoshi_control::TaskId;
use hyoshi_control::group::Terms;
use hyoshi_model::{Instant, Span};
use hyoshi_os::cgroup::own::dissolve;
use hyoshi_os::cgroup::{CpuGroup, OwnGroup, Subtree, Version};
use hyoshi_os::process::{Identity, Process, is_same};

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
    /// Processes that may still be moved at this look, and whether there are others.
    room: usize,
    more: bool,
    /// The controller was passed on by this broker, which was in the subtree itself, alone, and is in this group now.
    passed_on: bool,
    own_group: Option<OwnGroup>,
}

/// Processes that were started since join this often: whoever a member starts is in the group from its birth, this is
/// for those that joined the task otherwise.
const LOOK: Span = Span::from_millis(500);

/// Processes of a task that could not be moved to its group.
#[derive(Debug)]
struct UnmovedProcesses {
    /// One of them, and why.
    first: (Identity, String),
    /// They are not tried at each look.
    all: BTreeSet<Identity>,
    /// All are again then.
    again: Instant,
}

/// How long who cannot be moved is left alone.
const LEFT_ALONE: Span = Span::from_secs(10);
/// A look ends after so many who cannot be moved, some 50 us each.
const MOST_REFUSED: usize = 64;
/// And so many who are: windows wait meanwhile. The others are at the next.
const MOST_MOVED: usize = 64;

impl Groups {
    /// None as yet.
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

    /// Where they are made.
    pub fn folder(&self) -> &Path {
        self.subtree.folder()
    }

    /// What is about to move processes can be told so.
    pub fn moves(&self) -> Arc<Moves> {
        self.preparer.moves().clone()
    }

    /// What a task is held to.
    pub fn terms(&self, task: TaskId) -> Option<Terms> {
        self.held.get(&task).map(|(_, terms)| *terms)
    }

    /// Whether a task may have a group: in version 2 its processes leave their own, with all controllers.
    ///
    /// # Errors
    ///
    /// The reason why not, in words.
    pub fn may_hold(&self, task: TaskId, context: &ProxyContext) -> Result<(), String> {
        if self.subtree.version() == Version::One || !context.confined.contains(&task) {
            return Ok(());
        }
        let reason = "a new control group would remove the processes from their present group and its limits, such as \
                      memory.max; only tasks of root and operators may have one";
        Err(reason.into())
    }

    /// Holds a task to these terms, in a group of its own. Processes that cannot be moved there are [told](Groups::told).
    ///
    /// # Errors
    ///
    /// What the kernel says, and if no process can be moved; it is held to what it was before then, in no group if that was nothing.
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
        // At once: who was started meanwhile is taken in.
        self.next = Instant::ZERO;
        done
    }

    /// The task's processes are where they came from, and its group is no more.
    pub fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        let Some((group, _)) = self.held.remove(&task) else { return };
        self.preparer.moves().note(self.held.len());
        self.outside.remove(&task);
        for process in context.tasks.get(&task).into_iter().flat_map(|members| members.processes()) {
            let identity = process.identity();
            if let Some(from) = context.state_file.came_from(identity) {
                // Somebody else may have the number by now; and to move one that has ended takes as long as another.
                if !process.has_ended() && is_same(identity) {
                    let _ = hyoshi_os::cgroup::own::send_home(identity.number, from);
                }
                context.state_file.done(identity);
            }
        }
        // Children that were born here have no other home than their parents'. A group that cannot be removed yet is in
        // the state file.
        let home = context.state_file.home_of(group.folder()).map(Path::to_owned);
        if dissolve(group.folder(), home.as_deref()).is_ok() {
            context.state_file.group_done(group.folder());
        }
        if self.held.is_empty() {
            self.unsettle(&mut context.state_file);
        }
    }

    /// These are the task's no more: those that are in its group go where they came from.
    pub fn remove_processes(&mut self, task: TaskId, left: &[Identity], context: &mut ProxyContext) {
        let Some((group, _)) = self.held.get(&task) else { return };
        let there = group.processes();
        for process in left {
            // Who was born here has no other home than its parents'.
            let state_file = &context.state_file;
            let home = state_file.came_from(*process).or_else(|| state_file.home_of(group.folder()));
            if there.contains(&process.number)
                && is_same(*process)
                && let Some(home) = home
            {
                let _ = hyoshi_os::cgroup::own::send_home(process.number, home);
            }
            context.state_file.done(*process);
        }
    }

    /// Processes that joined since are taken in. Returns when to come again.
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
            // Who is to be moved is seen first, and then the kernel has to be ready for it.
            (self.room, self.more) = (if readiness == Readiness::Ready { MOST_MOVED } else { 0 }, false);
            for task in &tasks {
                let _ = self.gather(*task, context);
                if let Some(outside) = self.outside.get_mut(task) {
                    // Since this look.
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

    /// When that will be.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// In words, what a task is held to.
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

    /// Moves every process of the task into its group that there is room for, but for those that could not be a short while ago.
    fn gather(&mut self, task: TaskId, context: &mut ProxyContext) -> Result<(), NotReserved> {
        let (Some((group, _)), Some(members)) = (self.held.get(&task), context.tasks.get(&task)) else { return Ok(()) };
        let (there, confined) = (group.processes(), context.confined.contains(&task));
        // Without the one whose reason is told, all are tried again.
        let stays = |who: Identity| members.has(who) && !there.contains(&who.number);
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

    /// Before the first group: what is made here shall have the controller.
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
        self.passed_on |= self.subtree.pass_on().map_err(refused)?;
        Ok(())
    }

    /// After the last one.
    fn unsettle(&mut self, state_file: &mut StateFile) {
        if std::mem::take(&mut self.passed_on) {
            let _ = self.subtree.keep();
        }
        if let Some(own_group) = self.own_group.take() {
            let own = self.preparer.moves().stay();
            let _ = self.subtree.come_back();
            drop(own);
            if dissolve(own_group.folder(), None).is_ok() {
                state_file.group_done(own_group.folder());
            }
        }
    }
}

/// Whether it is in the group now; one that has ended is not.
///
/// # Errors
///
/// Why it stays where it is.
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
    // Somebody else may have the number by now.
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

/// No other group's of this process, and no other process's.
fn name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("hyoshi-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// Writes what differs: a quota that is written begins its period anew.
fn set(group: &OwnGroup, before: Option<Terms>, terms: Terms) -> Result<(), String> {
    let failed = |what: &str| {
        let what = format!("cannot set {what} of control group {}", group.folder().display());
        move |error: io::Error| format!("{what}: {error}")
    };
    // First: what raised threads need must be there before they are.
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
