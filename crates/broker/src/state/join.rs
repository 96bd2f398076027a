//! Tasks join, get processes, and end.

use hyoshi_control::{GroupId, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};
use hyoshi_os::process::{Process, ProcessIdentity};

use super::{BrokerState, PATIENCE, PROVISIONAL, TaskEntry};
use crate::access::Caller;
use crate::component::{self, ComponentSpec};
use crate::request_error::{RequestError, shown};

/// Octets of a task's name.
pub(super) const LONGEST_NAME: usize = 64;

/// What a client declares of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSpec {
    /// Letters, digits and `-_.`, at most 64.
    pub name: String,
    /// Its period; `None` detects it from the task's wake-ups.
    pub period: Option<Span>,
    /// Within the period; `None` for the period.
    pub deadline: Option<Span>,
    /// The requested budget until the first reports; `None` for nearly none.
    pub initial_budget: Option<Span>,
    /// The smallest useful budget in a period.
    pub min_budget: Option<Span>,
    /// The reservation is also a limit.
    pub hard: bool,
    /// For policies fair and strict.
    pub importance: u32,
    /// For policy weighted.
    pub weight: u32,
    /// For policy partition; empty for the first group.
    pub group: String,
    /// Its advocates; empty for the default.
    pub advocates: Vec<ComponentSpec>,
}

impl TaskSpec {
    /// With importance and weight 1, and the default advocates.
    pub fn new(name: &str, period: impl Into<Option<Span>>) -> TaskSpec {
        let (name, advocates) = (name.to_owned(), Vec::new());
        let (group, period) = (String::new(), period.into());
        TaskSpec {
            name,
            period,
            deadline: None,
            initial_budget: None,
            min_budget: None,
            hard: false,
            importance: 1,
            weight: 1,
            group,
            advocates,
        }
    }

    fn declared(&self) -> Result<Reservation, RequestError> {
        // Reservations start near zero, as in the paper, unless a budget is declared.
        let period = self.period.unwrap_or(PROVISIONAL);
        let named = [("deadline", self.deadline), ("budget", self.initial_budget), ("minimum budget", self.min_budget)];
        if let (None, Some((message, _))) = (self.period, named.iter().find(|(_, span)| span.is_some())) {
            return Err(RequestError::refused(
                format!("a {message} needs a known period"),
                "omit it, or set the period",
            ));
        }
        let first = self.initial_budget.unwrap_or(Span::from_nanos((period.as_nanos() / 1_000).max(1)));
        let declared = Reservation::new(first, period)
            .and_then(|declared| self.deadline.map_or(Ok(declared), |deadline| declared.within(deadline)));
        declared.map_err(|error| RequestError::refused(error, error.remedy()))
    }

    /// The smallest useful share, rounded up.
    fn min_share(&self) -> Result<Share, RequestError> {
        let Some(least) = self.min_budget else { return Ok(Share::ZERO) };
        let least = Reservation::new(least, self.period.unwrap_or(PROVISIONAL))
            .map_err(|error| RequestError::refused(error, error.remedy()))?;
        Ok(least.share())
    }
}

impl BrokerState {
    /// Starts a task without processes.
    ///
    /// # Errors
    ///
    /// If the name is invalid or in use, or the request exceeds the caller's rights or limits.
    pub fn join(&mut self, caller: &Caller, joining: &TaskSpec, now: Instant) -> Result<TaskId, RequestError> {
        let done = self.try_join(caller, joining, now);
        let period = joining.period.map_or("auto".to_owned(), |period| period.to_string());
        let text = format!("period {period}, importance {}", joining.importance);
        self.audited(caller, "join", Some(&joining.name), &text, done)
    }

    fn try_join(&mut self, caller: &Caller, joining: &TaskSpec, now: Instant) -> Result<TaskId, RequestError> {
        let Some(owner) = caller.uid(&self.access) else {
            let message = match caller {
                Caller::Certified(who) => format!("certificate \"{}\" belongs to no user of this machine", who.name),
                _ => "unknown caller".to_owned(),
            };
            let remedy = "use the broker's Unix socket, or map the certificate to a user with \
                          `hyoshi broker --tls-user NAME=USER`";
            return Err(RequestError::NotAllowed { message, remedy: remedy.to_owned() });
        };
        named(&joining.name)?;
        self.allow_importance(caller, joining.importance)?;
        // A program that restarts at once need not wait for the end of its period, where its end is detected.
        if let Some(other) = self.names.get(&joining.name).copied()
            && self.tasks.get(&other).is_some_and(|task| task.waiting_since.is_none())
            && self.platform.consumed(other).is_none()
        {
            self.all_ended(other, now);
        }
        if let Some(other) = self.names.get(&joining.name) {
            let processes = self.platform.processes(*other);
            let process = match processes.first() {
                Some(pid) => format!(", with process {pid}"),
                None => String::new(),
            };
            let message = format!("task `{}` already exists{process}", joining.name);
            return Err(RequestError::refused(
                message,
                "choose another name with --name; `hyoshi broker list` shows all tasks",
            ));
        }
        let directs = self.access.is_operator(caller);
        let account = self.account_of(caller);
        account.map_or(Ok(()), |account| self.allow_task(owner, account))?;
        let settings = match joining.advocates.as_slice() {
            [] => component::default_chain(),
            some => some.to_vec(),
        };
        self.allow_settings(caller, &settings)?;
        account.map_or(Ok(()), |account| self.allow_octets(owner, account, &settings, None))?;
        self.last = self
            .last
            .checked_add(1)
            .ok_or_else(|| RequestError::refused("all task numbers are used", "restart the broker"))?;
        let id = TaskId(self.last);
        let entry = hyoshi_control::Joining {
            importance: joining.importance,
            weight: joining.weight,
            account,
            group: self.group(&joining.group)?,
            least: joining.min_share()?,
            ..hyoshi_control::Joining::new(
                &joining.name,
                joining.declared()?,
                self.chain(&settings, id, &joining.name)?,
            )
        };
        let task = TaskEntry {
            name: joining.name.clone(),
            owner,
            importance: joining.importance,
            weight: joining.weight,
            group: joining.group.clone(),
            advocates: settings,
            hard: joining.hard,
            by_operator: directs,
            account,
            ..TaskEntry::new(now)
        };
        self.insert_task(id, task, entry, now)?;
        if joining.period.is_none() {
            self.find_period(id, true);
        }
        Ok(id)
    }

    /// Inserts a task without processes.
    pub(super) fn insert_task(
        &mut self,
        id: TaskId,
        task: TaskEntry,
        entry: hyoshi_control::Joining,
        now: Instant,
    ) -> Result<(), RequestError> {
        // First, because it determines what may enforce the reservation.
        self.platform.confine(id, !task.by_operator);
        if !task.by_operator {
            self.owners_checked = Instant::ZERO;
        }
        let hardened = if task.hard { self.harden(id, true) } else { Ok(()) };
        let joined = hardened.and_then(|()| {
            self.arbiter
                .join(id, entry, now)
                .map_err(|refusal| RequestError::refused(refusal, "`hyoshi broker list` shows all tasks"))
        });
        let decision = joined.inspect_err(|_| {
            // Softening always succeeds.
            let _ = self.platform.harden(id, false);
            self.platform.confine(id, false);
        })?;
        self.backlog.add(decision);
        if let Some(externals) = &self.externals {
            externals.events().add_task(id, &task.name);
        }
        self.due.insert((task.due, id));
        self.names.insert(task.name.clone(), id);
        let owner = task.owner;
        self.tasks.insert(id, task);
        self.share_own_time(owner);
        self.apply(now);
        Ok(())
    }

    /// Adds a process to a task, with its threads and future children, and removes it from a task that it joined as a
    /// child. `started` is its start time in kernel ticks, or 0.
    ///
    /// # Errors
    ///
    /// If the process has ended, is a kernel thread, or belongs to another user.
    pub fn add_process(
        &mut self,
        caller: &Caller,
        id: TaskId,
        pid: u32,
        started: u64,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done = self.try_add_process(caller, id, pid, started, now);
        let name = self.name(id).map(str::to_owned).unwrap_or_default();
        self.audited(caller, "add-process", Some(&name), &pid.to_string(), done)
    }

    fn try_add_process(
        &mut self,
        caller: &Caller,
        id: TaskId,
        pid: u32,
        started: u64,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.allow(caller, id)?;
        let process = match started {
            0 => Process::open(pid),
            start => Process::open_same(ProcessIdentity { number: pid, start }),
        }?;
        // The first process of a container may join by itself.
        if pid == 1 && caller.pid() != Some(1) {
            let message = "process 1 is the parent of all processes: the task would be the whole machine";
            return Err(RequestError::refused(
                message,
                "name the process of a program, or its control group with --cgroup",
            ));
        }
        self.allow_process(caller, &process)?;
        self.allow_threads(id, &process)?;
        // A process of another user that an operator added. The owner's processes must remain the owner's.
        let owner = self.task(id)?.owner;
        let foreign = process.owner().is_none_or(|user| !user.is_only(owner));
        let (identity, directs) = (process.identity(), self.access.is_operator(caller) && foreign);
        self.platform.add(id, process)?;
        if directs {
            let members = self.platform.members(id);
            self.task(id)?.added_by_operator.add(identity, &members);
        }
        self.recount(id);
        self.start(id, now);
        Ok(())
    }

    /// Reserves what was granted, once the task has its first process.
    pub(super) fn start(&mut self, id: TaskId, now: Instant) {
        let total = self.platform.consumed(id).unwrap_or_default();
        let held = self.arbiter.held(id);
        let period = self.period(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if task.waiting_since.take().is_none() {
            return;
        }
        (task.last, task.total) = (now, total);
        let hard = task.hard;
        self.schedule_report(id, next_multiple(now, period));
        if held.is_some() || hard {
            self.backlog.push(hyoshi_control::ReservationChange { task: id, from: None, to: held });
            self.apply(now);
        }
        self.next = Instant::ZERO;
    }

    /// The task of the calling process: the one that it is in, else the one of that name, which it joins, else a new
    /// one.
    ///
    /// # Errors
    ///
    /// If the caller's process is unknown, and as [`BrokerState::join`] and [`BrokerState::add_process`].
    pub fn own_task(&mut self, caller: &Caller, joining: &TaskSpec, now: Instant) -> Result<TaskId, RequestError> {
        let Caller::Known(who) = caller else {
            let message = "unknown calling process".to_owned();
            let remedy = "use the broker's Unix socket; elsewhere call `join`, then `add_process`";
            return Err(RequestError::NotAllowed { message, remedy: remedy.to_owned() });
        };
        let process = Process::open(who.pid)?;
        if let Some((id, _)) = self.platform.task_of(&process) {
            self.allow(caller, id)?;
            return Ok(id);
        }
        let known = self.names.get(&joining.name).copied();
        let id = known.map_or_else(|| self.join(caller, joining, now), Ok)?;
        let added = self.add_process(caller, id, who.pid, 0, now);
        if added.is_err() && known.is_none() {
            self.remove(id, now);
        }
        added.map(|()| id)
    }

    /// Ends a task; its processes continue.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's.
    pub fn leave(&mut self, caller: &Caller, id: TaskId, now: Instant) -> Result<(), RequestError> {
        let name = self.name(id)?.to_owned();
        let done = self.allow(caller, id);
        if done.is_ok() {
            self.remove(id, now);
        }
        self.audited(caller, "leave", Some(&name), "", done)
    }

    /// Removes a task whose processes have all ended, or that never had one.
    pub(super) fn end_task(&mut self, id: TaskId, now: Instant) {
        let Ok(name) = self.name(id).map(str::to_owned) else { return };
        let reason = match self.tasks.get(&id) {
            Some(task) if task.waiting_since.is_some() => "no process joined",
            _ => "its processes have ended",
        };
        self.remove(id, now);
        let _: Result<(), RequestError> = self.audited(&Caller::Broker, "leave", Some(&name), reason, Ok(()));
    }

    pub(super) fn remove(&mut self, id: TaskId, now: Instant) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.forget_threads(&task);
        self.due.remove(&(task.due, id));
        self.names.remove(&task.name);
        if let Some(externals) = &self.externals {
            externals.events().remove_task(id);
        }
        self.detectors.remove(&id);
        self.unsettled.extend(self.service_budget.remove(id));
        if !self.tasks.values().any(|other| other.owner == task.owner) {
            self.share_own_time(task.owner);
        }
        // First, so that other tasks can use the room.
        self.platform.forget(id);
        self.forget_stored(id);
        if let Ok(decision) = self.arbiter.leave(id) {
            self.backlog.add(decision);
        }
        self.apply(now);
    }

    /// The policy's number of a group.
    pub(super) fn group(&self, name: &str) -> Result<GroupId, RequestError> {
        if name.is_empty() {
            return Ok(GroupId::default());
        }
        let policy = self.arbiter.policy();
        policy.group(name).ok_or_else(|| {
            let groups: Vec<_> = (0..policy.group_count()).filter_map(|at| policy.group_name(GroupId(at))).collect();
            let remedy = match groups.as_slice() {
                [] => format!("policy {} has no groups; `hyoshi broker policy set` changes it", policy.name()),
                groups => format!("use a group of the policy: {}", groups.join(", ")),
            };
            RequestError::refused(format!("unknown group `{}`", shown(name)), remedy)
        })
    }

    pub(super) fn harden(&mut self, id: TaskId, hard: bool) -> Result<(), RequestError> {
        self.platform.harden(id, hard).map_err(|reason| {
            let remedy = "use a soft reservation; `hyoshi broker show` lists the schedulers of this machine";
            RequestError::refused(format!("cannot cap the CPU time of the task: {reason}"), remedy)
        })
    }

    pub(super) fn period(&self, id: TaskId) -> Span {
        self.arbiter.asked(id).map_or(PATIENCE, Reservation::period)
    }

    pub(super) fn schedule_report(&mut self, id: TaskId, due: Instant) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.due.remove(&(task.due, id));
        task.due = due;
        self.due.insert((due, id));
    }
}

/// The end of the present period: all periods start at whole multiples, as those of windows do.
pub(super) fn next_multiple(now: Instant, period: Span) -> Instant {
    let period = period.as_nanos().max(1);
    Instant::from_nanos((now.as_nanos() / period + 1).saturating_mul(period))
}

fn named(name: &str) -> Result<(), RequestError> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(good) {
        return Ok(());
    }
    Err(RequestError::refused(
        format!("invalid task name \"{}\"", shown(name)),
        "use 1 to 64 letters, digits, `-`, `_` and `.`",
    ))
}
