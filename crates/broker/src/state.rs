//! The broker's state, and what becomes of each event: who asks is looked at, the arbiter decides, the machine carries
//! it out, the log is told.

mod allow;
mod auto;
#[cfg(test)]
mod bounds;
mod change;
mod groups;
mod join;
mod own_time;
mod owners;
mod quota;
mod rejoin;
mod runs;
mod tell;
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
use crate::external::Externals;
use crate::kernel::Kernel;
use crate::library;
use crate::limits::Rules;
use crate::lines::Lines;
use crate::proxy::moves::Moves;
use crate::roster::Roster;
use crate::setting::{self, Setting};
use crate::trouble::{Trouble, shown};

use auto::Auto;
pub use auto::Found;
pub use auto::PROVISIONAL;
pub(crate) use auto::percent;
pub use groups::Inhabited;
pub use join::Joining;
pub use runs::RunStanding;
pub use tell::{Outcome, Standing};
pub use tick::Cycle;

/// How long a task may be without any process after it joined.
pub const PATIENCE: Span = Span::from_secs(10);

/// See the module. It reads no clock: whoever drives it says what time it is.
pub struct State {
    arbiter: Arbiter,
    kernel: Box<dyn Kernel>,
    tasks: BTreeMap<TaskId, Task>,
    names: BTreeMap<String, TaskId>,
    /// When tasks are looked at: at the end of each of their periods.
    due: BTreeSet<(Instant, TaskId)>,
    last: u32,
    access: Access,
    /// The limits of users.
    rules: Arc<Rules>,
    /// Number of threads in tasks, by user, at the last count.
    threads: BTreeMap<u32, usize>,
    audit: Audit,
    /// What comes from elsewhere; nothing can without it.
    externals: Option<Arc<Externals>>,
    /// What advocates log.
    log: Option<Lines>,
    /// For the next broker; nobody finds the tasks again without it.
    roster: Option<Roster>,
    /// What it has of the broker before is not to be found again.
    forgets: bool,
    /// It could not be written to, and that was said.
    unnoted: bool,
    /// Tasks whose periods are found from their wake-ups.
    autos: BTreeMap<TaskId, Auto>,
    /// Runs whose lanes are above all windows, by their processes, and when it is seen whether they live.
    runs: BTreeMap<u32, runs::Run>,
    runs_seen: Instant,
    lanes_count: bool,
    /// When to check the users of processes again; `Some` once there is a task to check.
    owners_checked: Instant,
    backlog: Backlog,
    /// The broker's own CPU time, and tasks to be kept out or let in.
    service_budget: ServiceBudget,
    unsettled: VecDeque<TaskId>,
    /// What the broker's operator should know; at most [`NOTICES`].
    notices: VecDeque<String>,
    /// When it must be driven next.
    pub(crate) next: Instant,
}

/// Notices that wait to be printed; later ones are dropped.
const NOTICES: usize = 64;

struct Task {
    name: String,
    owner: u32,
    importance: u32,
    weight: u32,
    /// By name: policies number their groups anew.
    group: String,
    settings: Vec<Setting>,
    /// When it joined, until it has a process.
    waits: Option<Instant>,
    /// When it is looked at next.
    due: Instant,
    /// When it was last seen that one of its processes lives.
    lived: Instant,
    /// When it reported last, and what it had consumed by then.
    last: Instant,
    total: Span,
    consumed: Span,
    reports: u64,
    /// Reports come from the program itself.
    own: bool,
    /// Processes of all users may come with its control groups: who added these may manage them all.
    anybody: bool,
    /// Processes of other users that operators added.
    vouched: owners::Vouched,
    /// No more than what is reserved.
    hard: bool,
    /// It was begun by somebody who may change all tasks.
    directed: bool,
    /// The limits that apply to it; `None` for tasks without limits.
    account: Option<AccountId>,
    /// Its number of threads, and when they were counted.
    threads: usize,
    counted: Instant,
    /// Its user has too many threads: nothing is reserved for it.
    crowded: bool,
    /// It sleeps: its missed reports are generated when it wakes.
    rests: bool,
    /// It was hard under the broker before, and cannot be had so now.
    hard_before: bool,
    /// Why the machine refused what it refused last.
    why: Option<String>,
    /// When it was noted for the next broker.
    noted: Instant,
}

impl Task {
    /// Nobody's, without processes.
    fn new(now: Instant) -> Task {
        Task {
            name: String::new(),
            owner: 0,
            importance: 1,
            weight: 1,
            group: String::new(),
            settings: Vec::new(),
            waits: Some(now),
            due: now + PATIENCE,
            lived: Instant::ZERO,
            last: now,
            total: Span::ZERO,
            consumed: Span::ZERO,
            reports: 0,
            own: false,
            anybody: false,
            vouched: owners::Vouched::default(),
            hard: false,
            directed: false,
            account: None,
            threads: 0,
            counted: Instant::ZERO,
            crowded: false,
            rests: false,
            hard_before: false,
            why: None,
            noted: now,
        }
    }
}

impl State {
    /// Without tasks, and with the default limits.
    pub fn new(mut arbiter: Arbiter, kernel: Box<dyn Kernel>, access: Access, audit: Audit) -> State {
        let rules = Arc::new(Rules::default());
        arbiter.set_accounts(rules.accounts());
        let mut audit = audit;
        audit.trust(access);
        State {
            arbiter,
            kernel,
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
            roster: None,
            forgets: false,
            unnoted: false,
            autos: BTreeMap::new(),
            runs: BTreeMap::new(),
            runs_seen: Instant::ZERO,
            lanes_count: false,
            owners_checked: Instant::NEVER,
            backlog: Backlog::default(),
            service_budget: ServiceBudget::new(ServiceBudget::BUDGET),
            unsettled: VecDeque::new(),
            notices: VecDeque::new(),
            next: Instant::ZERO,
        }
    }

    /// Advocates of kind `log` write there from now on.
    pub fn log_to(&mut self, lines: Lines) {
        self.log = Some(lines);
    }

    /// Other processes can be asked from now on.
    pub fn ask_others(&mut self, externals: Arc<Externals>) {
        self.externals = Some(externals);
    }

    pub(crate) fn externals(&self) -> Option<&Arc<Externals>> {
        self.externals.as_ref()
    }

    /// One advocate of a task.
    fn advocate(&self, setting: &Setting, id: TaskId, name: &str) -> Result<Box<dyn Advocate>, Trouble> {
        match (&self.externals, setting.kind.as_str()) {
            (Some(externals), "external") => externals.advocate(setting, id, name),
            (Some(externals), "library") => library::advocate(setting, name, externals.bulletin()),
            (_, "log") if self.log.is_none() => Err(Trouble::refused(
                "the broker has no file for what advocates log",
                "start it with `hyoshi broker --log FILE`",
            )),
            _ => setting::advocate(setting),
        }
    }

    fn chain(&self, settings: &[Setting], id: TaskId, name: &str) -> Result<AdvocateChain, Trouble> {
        let mut chain = AdvocateChain::default();
        for setting in settings {
            let advocate = self.advocate(setting, id, name)?;
            chain.insert(advocate, None).map_err(|error| Trouble::refused(error, "leave some of the advocates out"))?;
        }
        Ok(chain)
    }

    /// What has to be prepared, without the state, before processes are moved.
    pub(crate) fn moves(&self) -> Option<Arc<Moves>> {
        self.kernel.moves()
    }

    /// Who may do what.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The task of a name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn find(&self, name: &str) -> Result<TaskId, Trouble> {
        self.names.get(name).copied().ok_or_else(|| {
            if name.len() > join::LONGEST_NAME {
                return Trouble::NoSuchTask { name: shown(name), nearest: String::new() };
            }
            let near = |other: &&String| strsim::jaro_winkler(name, other);
            let nearest = self.names.keys().max_by(|a, b| near(a).total_cmp(&near(b)));
            let nearest = nearest.filter(|nearest| near(nearest) > 0.8).cloned().unwrap_or_default();
            Trouble::NoSuchTask { name: name.to_owned(), nearest }
        })
    }

    /// The task's name.
    ///
    /// # Errors
    ///
    /// If it has left.
    pub fn name(&self, id: TaskId) -> Result<&str, Trouble> {
        self.tasks.get(&id).map(|task| task.name.as_str()).ok_or_else(|| gone(id))
    }

    fn task(&mut self, id: TaskId) -> Result<&mut Task, Trouble> {
        self.tasks.get_mut(&id).ok_or_else(|| gone(id))
    }

    /// Carries out what the arbiter decided, and what it decides when the machine refuses some of it.
    fn apply(&mut self, now: Instant) {
        let State { arbiter, kernel, tasks, backlog, rules, service_budget, unsettled, .. } = self;
        let all = backlog.carry_out(arbiter, |change| {
            let id = change.task;
            // A task that has left is forgotten, not only released.
            let Some(task) = tasks.get_mut(&id) else { return ChangeResult::Pending };
            match change.to {
                None => kernel.release(id),
                // Nobody is there yet to reserve it for: it is done when the first process comes.
                Some(_) if task.waits.is_some() => return ChangeResult::Pending,
                Some(reservation) => {
                    if let Some(why) = State::crowded(rules, task) {
                        task.why = Some(why);
                        return ChangeResult::Refused(None);
                    }
                    let demand = ServiceDemand { period: reservation.period(), threads: kernel.threads(id) };
                    // Tasks of root's and operators' have no account.
                    unsettled.extend(service_budget.set(id, task.owner, demand, task.account.is_none()));
                    if let Some(refused) = service_budget.unserved(id) {
                        task.why = Some(own_time::refused(&refused));
                        return ChangeResult::Refused(None);
                    }
                    if let Err(refused) = kernel.reserve(id, reservation, now) {
                        task.why = Some(refused.why);
                        return ChangeResult::Refused(refused.most);
                    }
                }
            }
            if kernel.awaits(id) {
                task.why = None;
                return ChangeResult::Pending;
            }
            ChangeResult::Held(Confirmation { at: now, proxy: kernel.name(), held: change.to })
        });
        if !all {
            let most = Backlog::MOST_REFUSALS;
            self.notice(format!("the kernel refused more than {most} reservations in a row: those tasks keep what they had, or nothing where that was lost, until something makes room"));
        }
        self.next = Instant::ZERO;
    }

    /// What others have said on what was reserved, and who may be reserved more for.
    fn hear(&mut self, now: Instant) {
        while let Some(id) = self.kernel.room() {
            if let Ok(decision) = self.arbiter.retry(id) {
                self.backlog.add(decision);
                self.apply(now);
            }
        }
        let mut settled = false;
        // What is settled can lead to more that is refused.
        while !std::mem::replace(&mut settled, true) {
            while let Some((id, what, done)) = self.kernel.news() {
                let Some(task) = self.tasks.get_mut(&id) else { continue };
                if self.arbiter.held(id) == Some(what) {
                    task.why = done.as_ref().err().map(|refused| refused.why.clone());
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

    /// The policy has answered, or failed.
    pub(crate) fn policy_answered(&mut self, now: Instant) {
        self.backlog.add(self.arbiter.answered());
        self.apply(now);
    }

    /// What those from elsewhere have noted, for the operator and the log.
    fn read_notes(&mut self) {
        let Some(externals) = &self.externals else { return };
        for note in externals.bulletin().take_notes() {
            self.audit.tell(&Caller::Broker, note.change, note.task.as_deref(), &note.why, None);
            self.notice(note.text);
        }
    }

    fn confirm(&mut self, id: TaskId, held: Option<Reservation>, now: Instant) {
        self.arbiter.confirmed(id, Confirmation { at: now, proxy: self.kernel.name(), held });
    }

    /// The operator should know.
    pub(crate) fn notice(&mut self, text: String) {
        if self.notices.len() < NOTICES {
            self.notices.push_back(printable(&text));
        }
    }

    /// What the operator should know.
    pub fn take_notices(&mut self) -> Vec<String> {
        self.notices.drain(..).collect()
    }

    /// The log is told of a change, done or refused.
    fn audited<T>(
        &mut self,
        caller: &Caller,
        change: &str,
        task: Option<&str>,
        to: &str,
        done: Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let refused = done.as_ref().err().map(Trouble::to_string);
        self.audit.tell(caller, change, task, to, refused.as_deref());
        // What was changed is so for the next broker, too.
        if let (true, Some(id)) = (done.is_ok(), task.and_then(|name| self.names.get(name)).copied()) {
            self.note(id);
        }
        done
    }

    /// From now on, events of the machine post to `wake`, so it need not be polled.
    pub(crate) fn attend(&mut self, wake: &Wake) {
        self.kernel.attend(wake);
    }

    /// Reserves nothing for anybody any more, and puts all back as it was.
    pub fn end(&mut self) {
        self.kernel.end();
        self.audit.end();
    }
}

fn gone(id: TaskId) -> Trouble {
    Trouble::NoSuchTask { name: format!("number {}", id.0), nearest: String::new() }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("tasks", &self.names.len()).finish_non_exhaustive()
    }
}
