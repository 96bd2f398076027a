//! The state of the broker. Each event checks rights, lets the arbiter decide, applies the decision to the machine, and
//! writes the audit log.

mod allow;
#[cfg(test)]
mod bounds;
mod change;
mod groups;
mod join;
mod own_time;
mod owners;
mod period;
mod quota;
mod rejoin;
mod runs;
mod status;
mod tick;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use hyoshi_control::service_budget::ServiceDemand;
use hyoshi_control::{
    AccountId, Advocate, AdvocateChain, Arbiter, Backlog, ChangeResult, Confirmation, ServiceBudget, TaskId,
};
use hyoshi_model::{Instant, Reservation, Span, printable};
use hyoshi_os::Wake;

use crate::access::{Access, Caller};
use crate::audit::Audit;
use crate::component::{self, ComponentSpec};
use crate::external::Externals;
use crate::library;
use crate::limits::Rules;
use crate::log_writer::LogWriter;
use crate::platform::Platform;
use crate::proxy::moves::Moves;
use crate::request_error::{RequestError, shown};
use crate::task_store::TaskStore;

pub use groups::GroupProcesses;
pub use join::TaskSpec;
pub use period::DetectedPeriod;
pub use period::PROVISIONAL;
use period::PeriodDetector;
pub(crate) use period::percent;
pub use runs::RunSnapshot;
pub use status::{GrantSnapshot, TaskSnapshot};
pub use tick::ReportedCycle;

/// How long a task may exist without processes after it joined.
pub const PATIENCE: Span = Span::from_secs(10);

/// See the module. It reads no clock: the caller passes the present instant.
pub struct BrokerState {
    arbiter: Arbiter,
    platform: Box<dyn Platform>,
    tasks: BTreeMap<TaskId, TaskEntry>,
    names: BTreeMap<String, TaskId>,
    /// The next report of each task, at the end of its period.
    due: BTreeSet<(Instant, TaskId)>,
    last: u32,
    access: Access,
    /// The limits of users.
    rules: Arc<Rules>,
    /// Number of threads in tasks, by user, at the last count.
    threads: BTreeMap<u32, usize>,
    audit: Audit,
    /// External components; `None` disables them.
    externals: Option<Arc<Externals>>,
    /// The log of advocates.
    log: Option<LogWriter>,
    /// The stored tasks for the next broker; `None` stores nothing.
    task_store: Option<TaskStore>,
    /// Do not restore the stored tasks.
    starts_new: bool,
    /// Storing failed, and that was reported.
    store_failed: bool,
    /// Tasks with automatic periods.
    detectors: BTreeMap<TaskId, PeriodDetector>,
    /// Runs with lanes above all windows, by process, and when their processes are checked.
    runs: BTreeMap<u32, runs::LaneRun>,
    runs_checked: Instant,
    lanes_count: bool,
    /// When to check process owners again; [`Instant::NEVER`] without tasks to check.
    owners_checked: Instant,
    backlog: Backlog,
    /// The broker's own CPU time, and the tasks to exclude or admit.
    service_budget: ServiceBudget,
    unsettled: VecDeque<TaskId>,
    /// Notices for the operator, at most [`NOTICES`].
    notices: VecDeque<String>,
    /// When it must run next.
    pub(crate) next: Instant,
}

/// Notices in the queue; later ones are dropped.
const NOTICES: usize = 64;

struct TaskEntry {
    name: String,
    owner: u32,
    importance: u32,
    weight: u32,
    /// By name: each policy numbers its groups anew.
    group: String,
    advocates: Vec<ComponentSpec>,
    /// When it joined; `None` once it has a process.
    waiting_since: Option<Instant>,
    /// When its next report is due.
    due: Instant,
    /// When a live process was last seen.
    seen_alive: Instant,
    /// The last report, and the consumption by then.
    last: Instant,
    total: Span,
    consumed: Span,
    reports: u64,
    /// The program itself reports.
    own: bool,
    /// Its control groups may add processes of all users, because an operator added the groups.
    any_user: bool,
    /// Processes of other users that operators added.
    added_by_operator: owners::AddedByOperator,
    /// The reservation is also a limit.
    hard: bool,
    /// An operator started it.
    by_operator: bool,
    /// The limits that apply; `None` for none.
    account: Option<AccountId>,
    /// Its number of threads, and when they were counted.
    threads: usize,
    counted: Instant,
    /// Its user has too many threads: nothing is reserved.
    too_many_threads: bool,
    /// It sleeps: missed reports are generated when it wakes.
    asleep: bool,
    /// It was hard before a restart and cannot be capped now.
    hard_before: bool,
    /// Why the machine refused the last reservation.
    reason: Option<String>,
    /// When it was last stored.
    stored: Instant,
}

impl TaskEntry {
    /// A task without owner and processes.
    fn new(now: Instant) -> TaskEntry {
        TaskEntry {
            name: String::new(),
            owner: 0,
            importance: 1,
            weight: 1,
            group: String::new(),
            advocates: Vec::new(),
            waiting_since: Some(now),
            due: now + PATIENCE,
            seen_alive: Instant::ZERO,
            last: now,
            total: Span::ZERO,
            consumed: Span::ZERO,
            reports: 0,
            own: false,
            any_user: false,
            added_by_operator: owners::AddedByOperator::default(),
            hard: false,
            by_operator: false,
            account: None,
            threads: 0,
            counted: Instant::ZERO,
            too_many_threads: false,
            asleep: false,
            hard_before: false,
            reason: None,
            stored: now,
        }
    }
}

impl BrokerState {
    /// Without tasks, with the default limits.
    pub fn new(mut arbiter: Arbiter, platform: Box<dyn Platform>, access: Access, audit: Audit) -> BrokerState {
        let rules = Arc::new(Rules::default());
        arbiter.set_accounts(rules.accounts());
        let mut audit = audit;
        audit.trust(access);
        BrokerState {
            arbiter,
            platform,
            tasks: BTreeMap::new(),
            names: BTreeMap::new(),
            due: BTreeSet::new(),
            last: 0,
            access,
            rules,
            threads: BTreeMap::new(),
            audit,
            externals: None,
            log: None,
            task_store: None,
            starts_new: false,
            store_failed: false,
            detectors: BTreeMap::new(),
            runs: BTreeMap::new(),
            runs_checked: Instant::ZERO,
            lanes_count: false,
            owners_checked: Instant::NEVER,
            backlog: Backlog::default(),
            service_budget: ServiceBudget::new(ServiceBudget::BUDGET),
            unsettled: VecDeque::new(),
            notices: VecDeque::new(),
            next: Instant::ZERO,
        }
    }

    /// Sets the log of advocates of kind `log`.
    pub fn write_log_to(&mut self, lines: LogWriter) {
        self.log = Some(lines);
    }

    /// Enables external components.
    pub fn use_externals(&mut self, externals: Arc<Externals>) {
        self.externals = Some(externals);
    }

    pub(crate) fn externals(&self) -> Option<&Arc<Externals>> {
        self.externals.as_ref()
    }

    /// Builds an advocate of a task.
    fn advocate(&self, setting: &ComponentSpec, id: TaskId, name: &str) -> Result<Box<dyn Advocate>, RequestError> {
        match (&self.externals, setting.kind.as_str()) {
            (Some(externals), "external") => externals.advocate(setting, id, name),
            (Some(externals), "library") => library::advocate(setting, name, externals.events()),
            (_, "log") if self.log.is_none() => Err(RequestError::refused(
                "the broker has no log file for advocates",
                "start it with `hyoshi broker --log FILE`",
            )),
            _ => component::advocate(setting),
        }
    }

    fn chain(&self, settings: &[ComponentSpec], id: TaskId, name: &str) -> Result<AdvocateChain, RequestError> {
        let mut chain = AdvocateChain::default();
        for setting in settings {
            let advocate = self.advocate(setting, id, name)?;
            chain.insert(advocate, None).map_err(|error| RequestError::refused(error, "use fewer advocates"))?;
        }
        Ok(chain)
    }

    /// The preparation of moves, which runs without this state.
    pub(crate) fn moves(&self) -> Option<Arc<Moves>> {
        self.platform.moves()
    }

    /// The access rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The task of a name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn find(&self, name: &str) -> Result<TaskId, RequestError> {
        self.names.get(name).copied().ok_or_else(|| {
            if name.len() > join::LONGEST_NAME {
                return RequestError::NoSuchTask { name: shown(name), nearest: String::new() };
            }
            let near = |other: &&String| strsim::jaro_winkler(name, other);
            let nearest = self.names.keys().max_by(|a, b| near(a).total_cmp(&near(b)));
            let nearest = nearest.filter(|nearest| near(nearest) > 0.8).cloned().unwrap_or_default();
            RequestError::NoSuchTask { name: name.to_owned(), nearest }
        })
    }

    /// The task's name.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn name(&self, id: TaskId) -> Result<&str, RequestError> {
        self.tasks.get(&id).map(|task| task.name.as_str()).ok_or_else(|| gone(id))
    }

    fn task(&mut self, id: TaskId) -> Result<&mut TaskEntry, RequestError> {
        self.tasks.get_mut(&id).ok_or_else(|| gone(id))
    }

    /// Applies the arbiter's decisions, also those that follow refusals by the machine.
    fn apply(&mut self, now: Instant) {
        let BrokerState { arbiter, platform, tasks, backlog, rules, service_budget, unsettled, .. } = self;
        let all = backlog.carry_out(arbiter, |change| {
            let id = change.task;
            // An ended task is removed, not only released.
            let Some(task) = tasks.get_mut(&id) else { return ChangeResult::Pending };
            match change.to {
                None => platform.release(id),
                // The reservation follows with the first process.
                Some(_) if task.waiting_since.is_some() => return ChangeResult::Pending,
                Some(reservation) => {
                    if let Some(reason) = BrokerState::crowded(rules, task) {
                        task.reason = Some(reason);
                        return ChangeResult::Refused(None);
                    }
                    let demand = ServiceDemand { period: reservation.period(), threads: platform.threads(id) };
                    // Tasks of root and operators have no account.
                    unsettled.extend(service_budget.set(id, task.owner, demand, task.account.is_none()));
                    if let Some(refused) = service_budget.unserved(id) {
                        task.reason = Some(own_time::refused(&refused));
                        return ChangeResult::Refused(None);
                    }
                    if let Err(refused) = platform.reserve(id, reservation, now) {
                        task.reason = Some(refused.reason);
                        return ChangeResult::Refused(refused.most);
                    }
                }
            }
            if platform.is_pending(id) {
                task.reason = None;
                return ChangeResult::Pending;
            }
            ChangeResult::Held(Confirmation { at: now, proxy: platform.name(), held: change.to })
        });
        if !all {
            let most = Backlog::MOST_REFUSALS;
            self.notice(format!(
                "the kernel refused more than {most} reservations in a row; these tasks keep their previous \
                 reservations, or none, until there is room"
            ));
        }
        self.next = Instant::ZERO;
    }

    /// Applies results of pending reservations, and retries refused tasks.
    fn process_outcomes(&mut self, now: Instant) {
        while let Some(id) = self.platform.next_retry() {
            if let Ok(decision) = self.arbiter.retry(id) {
                self.backlog.add(decision);
                self.apply(now);
            }
        }
        let mut settled = false;
        // Settling may cause further refusals.
        while !std::mem::replace(&mut settled, true) {
            while let Some((id, what, done)) = self.platform.next_outcome() {
                let Some(task) = self.tasks.get_mut(&id) else { continue };
                if self.arbiter.held(id) == Some(what) {
                    task.reason = done.as_ref().err().map(|refused| refused.reason.clone());
                    if done.is_ok() {
                        self.confirm(id, Some(what), now);
                    }
                }
                if let Err(refused) = done {
                    self.backlog.refused(id, what, refused.most);
                    settled = false;
                }
            }
            settled &= !self.settle_served();
            if !settled {
                self.apply(now);
            }
        }
    }

    /// The policy has answered or failed.
    pub(crate) fn policy_answered(&mut self, now: Instant) {
        self.backlog.add(self.arbiter.answered());
        self.apply(now);
    }

    /// Copies notices about external components to the operator and the audit log.
    fn read_external_notices(&mut self) {
        let Some(externals) = &self.externals else { return };
        for note in externals.events().take_notices() {
            self.audit.record(&Caller::Broker, note.change, note.task.as_deref(), &note.reason, None);
            self.notice(note.text);
        }
    }

    fn confirm(&mut self, id: TaskId, held: Option<Reservation>, now: Instant) {
        self.arbiter.confirmed(id, Confirmation { at: now, proxy: self.platform.name(), held });
    }

    /// Queues a notice for the operator.
    pub(crate) fn notice(&mut self, text: String) {
        if self.notices.len() < NOTICES {
            self.notices.push_back(printable(&text));
        }
    }

    /// The queued notices.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.notices.drain(..).collect()
    }

    /// Writes the result of a change to the audit log.
    fn audited<T>(
        &mut self,
        caller: &Caller,
        change: &str,
        task: Option<&str>,
        to: &str,
        done: Result<T, RequestError>,
    ) -> Result<T, RequestError> {
        let refused = done.as_ref().err().map(RequestError::to_string);
        self.audit.record(caller, change, task, to, refused.as_deref());
        // Store the change for the next broker.
        if let (true, Some(id)) = (done.is_ok(), task.and_then(|name| self.names.get(name)).copied()) {
            self.store(id);
        }
        done
    }

    /// Events of the machine post to `wake` from now on, so that polling is unnecessary.
    pub(crate) fn wake_on_events(&mut self, wake: &Wake) {
        self.platform.wake_on_events(wake);
    }

    /// Ends all reservations and restores everything.
    pub fn end(&mut self) {
        self.platform.end();
        self.audit.end();
    }
}

fn gone(id: TaskId) -> RequestError {
    RequestError::NoSuchTask { name: format!("number {}", id.0), nearest: String::new() }
}

impl fmt::Debug for BrokerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("tasks", &self.names.len()).finish_non_exhaustive()
    }
}
