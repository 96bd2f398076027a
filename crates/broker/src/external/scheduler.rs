//! A scheduler proxy in another process, and the machine's own proxy that replaces it while it does not answer.
//!
//! ```text
//!           late, or failed: the own proxy reserves for all tasks
//!   Remote ───────────────────────────────────────────────────────► Own
//!     ▲                                                               │
//!     └───────────────────────────────────────────────────────────────┘
//!     `describe` succeeds: all reservations are sent again; each own one ends when the remote one is confirmed
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation};
use hyoshi_os::process::ProcessIdentity;

use crate::platform::{CpuLanes, NotReserved};
use crate::proxy::moves::Moves;
use crate::proxy::{Abilities, ProxyContext, SchedulerProxy};

/// The number of processes in one command.
const PROCESSES: usize = 1_024;

/// A command for a scheduler in another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyCommand {
    /// The reservation and its processes; `None` releases the task.
    pub reservation: Option<(Reservation, Vec<u32>)>,
    /// Counts the commands for all tasks.
    pub number: u64,
}

/// A result of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyReport {
    /// The reservation of a task was made or refused.
    Done(TaskId, Reservation, Result<(), NotReserved>),
    /// The task was released by the command of this number.
    Released(TaskId, u64),
    /// The scheduler is bypassed, with the reason.
    Failed(String),
    /// It answers again.
    Again,
}

/// The connection to the scheduler.
pub trait RemoteScheduler: Send {
    /// Queues a command, in place of a queued command for the same task. Does not block.
    fn order(&mut self, task: TaskId, order: ProxyCommand);

    /// The results since the last call, in order.
    fn reports(&mut self) -> Vec<ProxyReport>;

    /// The scheduler's description.
    fn description(&self) -> Option<String>;
}

/// See the module.
pub struct ExternalScheduler {
    own: Box<dyn SchedulerProxy>,
    remote: Box<dyn RemoteScheduler>,
    /// The granted reservations.
    wanted: BTreeMap<TaskId, Reservation>,
    /// Tasks that the machine's own proxy reserves for.
    own_tasks: BTreeSet<TaskId>,
    /// Tasks that may hold a remote reservation, with their last command, until a release is confirmed.
    remote_tasks: BTreeMap<TaskId, u64>,
    orders: u64,
    /// Tasks with an unconfirmed reservation.
    pending: BTreeSet<TaskId>,
    failed: Option<String>,
    outcomes: VecDeque<(TaskId, Reservation, Result<(), NotReserved>)>,
}

impl ExternalScheduler {
    /// Without tasks.
    pub fn new(own: Box<dyn SchedulerProxy>, remote: impl RemoteScheduler + 'static) -> Self {
        ExternalScheduler {
            own,
            remote: Box::new(remote),
            wanted: BTreeMap::new(),
            own_tasks: BTreeSet::new(),
            remote_tasks: BTreeMap::new(),
            orders: 0,
            pending: BTreeSet::new(),
            failed: None,
            outcomes: VecDeque::new(),
        }
    }

    fn order(&mut self, task: TaskId, reservation: Reservation, context: &ProxyContext) {
        let members = context.tasks.get(&task);
        let numbers = members.map_or(Vec::new(), |members| {
            members.processes().map(|process| process.identity().number).take(PROCESSES).collect()
        });
        self.pending.insert(task);
        self.send(task, Some((reservation, numbers)));
    }

    fn send(&mut self, task: TaskId, what: Option<(Reservation, Vec<u32>)>) {
        self.orders += 1;
        self.remote_tasks.insert(task, self.orders);
        self.remote.order(task, ProxyCommand { reservation: what, number: self.orders });
    }

    fn apply_report(&mut self, report: ProxyReport, now: Instant, context: &mut ProxyContext) {
        match report {
            // A newer command replaced this one.
            ProxyReport::Done(task, what, _)
                if self.wanted.get(&task) != Some(&what) || !self.pending.contains(&task) => {}
            ProxyReport::Done(task, what, done) => {
                self.pending.remove(&task);
                match done {
                    Ok(()) => {
                        if self.own_tasks.remove(&task) {
                            self.own.release(task, context);
                        }
                        self.outcomes.push_back((task, what, Ok(())));
                    }
                    Err(refused) => {
                        self.wanted.remove(&task);
                        self.outcomes.push_back((task, what, Err(refused)));
                    }
                }
            }
            // A newer command may have replaced the release.
            ProxyReport::Released(task, number) => {
                if self.remote_tasks.get(&task) == Some(&number) {
                    self.remote_tasks.remove(&task);
                }
            }
            ProxyReport::Failed(reason) => {
                self.failed = Some(reason);
                self.pending.clear();
                for (task, what) in self.wanted.clone() {
                    let done = self.own.reserve(task, what, now, context);
                    match done.is_ok() {
                        true => self.own_tasks.insert(task),
                        false => self.wanted.remove(&task).is_some(),
                    };
                    self.outcomes.push_back((task, what, done));
                }
            }
            ProxyReport::Again => {
                self.failed = None;
                let departed = self.remote_tasks.keys().filter(|task| !self.wanted.contains_key(task));
                for task in departed.copied().collect::<Vec<_>>() {
                    self.send(task, None);
                }
                for (task, what) in self.wanted.clone() {
                    self.order(task, what, context);
                }
            }
        }
    }
}

impl SchedulerProxy for ExternalScheduler {
    fn name(&self) -> &'static str {
        if self.failed.is_some() { self.own.name() } else { "external" }
    }

    fn abilities(&self) -> Abilities {
        self.own.abilities()
    }

    fn may_cap(&self, _: TaskId, _: &ProxyContext) -> Result<(), String> {
        Err("external schedulers do not support hard tasks".into())
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        if self.failed.is_some() {
            self.own.reserve(task, reservation, now, context)?;
            self.own_tasks.insert(task);
            self.wanted.insert(task, reservation);
            return Ok(());
        }
        self.wanted.insert(task, reservation);
        self.order(task, reservation, context);
        Ok(())
    }

    fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        self.wanted.remove(&task);
        self.pending.remove(&task);
        if self.own_tasks.remove(&task) {
            self.own.release(task, context);
        }
        // While it does not answer, the command waits for the next [`ProxyReport::Again`].
        if self.failed.is_none() && self.remote_tasks.contains_key(&task) {
            self.send(task, None);
        }
    }

    fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        if self.own_tasks.contains(&task) {
            self.own.remove_processes(task, left, context);
        }
        // Send the remaining processes.
        if self.failed.is_none()
            && let Some(reservation) = self.wanted.get(&task)
        {
            self.order(task, *reservation, context);
        }
    }

    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant {
        for report in self.remote.reports() {
            self.apply_report(report, now, context);
        }
        self.own.tick(now, context)
    }

    fn is_pending(&self, task: TaskId) -> bool {
        self.pending.contains(&task)
    }

    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.outcomes.pop_front().or_else(|| {
            let (task, what, done) = self.own.next_outcome()?;
            if done.is_err() && self.wanted.get(&task) == Some(&what) {
                self.wanted.remove(&task);
            }
            Some((task, what, done))
        })
    }

    fn next_retry(&mut self) -> Option<TaskId> {
        self.own.next_retry()
    }

    /// Remote schedulers do not know lanes.
    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId], context: &mut ProxyContext) -> bool {
        self.own.promise_lanes(cpu, lanes, first, context) && self.failed.is_some()
    }

    fn moves(&self) -> Option<Arc<Moves>> {
        self.own.moves()
    }

    fn status(&self) -> Option<String> {
        Some(match &self.failed {
            Some(reason) => format!("bypassed: {reason}; {} reserves instead", self.own.name()),
            None => self.remote.description().unwrap_or_else(|| "reserves in another process".to_owned()),
        })
    }
}

impl fmt::Debug for ExternalScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalScheduler").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use hyoshi_model::{Share, Span};
    use hyoshi_os::PiMutex;

    use super::*;
    use crate::proxy::simulated::SimulatedProxy;
    use crate::state_file::StateFile;

    /// A scheduler that the test controls.
    #[derive(Clone, Default)]
    struct Fake(Arc<PiMutex<FakeLog>>);

    /// Commands and results; budgets in ms.
    #[derive(Default)]
    struct FakeLog {
        orders: Vec<(u32, Option<u64>)>,
        reports: Vec<ProxyReport>,
        last: u64,
    }

    impl Fake {
        fn orders(&self) -> Vec<(u32, Option<u64>)> {
            std::mem::take(&mut self.0.lock().orders)
        }

        fn reports(&self, report: ProxyReport) {
            self.0.lock().reports.push(report);
        }
    }

    impl RemoteScheduler for Fake {
        fn order(&mut self, task: TaskId, order: ProxyCommand) {
            let millis = order.reservation.map(|(what, _)| what.budget().as_nanos() / 1_000_000);
            let mut log = self.0.lock();
            log.orders.push((task.0, millis));
            log.last = order.number;
        }

        fn reports(&mut self) -> Vec<ProxyReport> {
            std::mem::take(&mut self.0.lock().reports)
        }

        fn description(&self) -> Option<String> {
            None
        }
    }

    fn millis(budget: u64) -> Reservation {
        Reservation::new(Span::from_millis(budget), Span::from_millis(100)).unwrap()
    }

    struct Fixture {
        proxy: ExternalScheduler,
        fake: Fake,
        context: ProxyContext,
        place: PathBuf,
    }

    impl Fixture {
        fn new(name: &str) -> Fixture {
            let place = std::env::temp_dir().join(format!("hyoshi-elsewhere-{name}-{}", std::process::id()));
            let (state_file, _) = StateFile::open(&place).unwrap_or_else(|error| panic!("{error}"));
            let own = Box::new(SimulatedProxy::new(vec![0], Share::from_percent(95)));
            let fake = Fake::default();
            let context =
                ProxyContext { tasks: BTreeMap::new(), hard: BTreeSet::new(), confined: BTreeSet::new(), state_file };
            Fixture { proxy: ExternalScheduler::new(own, fake.clone()), fake, context, place }
        }

        fn reserve(&mut self, task: u32, budget: u64) {
            self.proxy.reserve(TaskId(task), millis(budget), Instant::ZERO, &mut self.context).unwrap();
        }

        fn receives(&mut self, report: ProxyReport) -> Vec<(u32, bool)> {
            self.fake.reports(report);
            self.proxy.tick(Instant::ZERO, &mut self.context);
            std::iter::from_fn(|| self.proxy.next_outcome()).map(|(task, _, done)| (task.0, done.is_ok())).collect()
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }

    #[test]
    fn nothing_is_confirmed_too_early_and_a_refusal_is_reported() {
        let mut stage = Fixture::new("confirmed");
        stage.reserve(1, 20);
        stage.reserve(2, 30);
        assert_eq!(stage.fake.orders(), [(1, Some(20)), (2, Some(30))]);
        assert!(stage.proxy.is_pending(TaskId(1)));
        assert_eq!(stage.receives(ProxyReport::Done(TaskId(1), millis(20), Ok(()))), [(1, true)]);
        assert!(!stage.proxy.is_pending(TaskId(1)));
        let refused = NotReserved { most: Some(millis(10)), reason: "full".into() };
        assert_eq!(stage.receives(ProxyReport::Done(TaskId(2), millis(30), Err(refused))), [(2, false)]);
        // A result of an older command confirms nothing.
        stage.reserve(2, 10);
        assert_eq!(stage.receives(ProxyReport::Done(TaskId(2), millis(30), Ok(()))), []);
        assert!(stage.proxy.is_pending(TaskId(2)));
    }

    #[test]
    fn while_it_does_not_answer_the_machine_reserves_and_afterwards_it_gets_all_reservations() {
        let mut stage = Fixture::new("passed-over");
        stage.reserve(1, 60);
        stage.reserve(2, 60);
        stage.reserve(3, 10);
        stage.fake.orders();
        let outcomes = stage.receives(ProxyReport::Failed("late".into()));
        assert_eq!(outcomes, [(1, true), (2, false), (3, true)], "one CPU has no room for the second");
        assert_eq!(stage.proxy.name(), "simulated");
        assert!(stage.proxy.status().unwrap().contains("bypassed: late; simulated reserves instead"));
        stage.proxy.release(TaskId(3), &mut stage.context);
        stage.reserve(4, 10);
        assert_eq!(stage.fake.orders(), [], "it gets no calls meanwhile");
        assert_eq!(stage.receives(ProxyReport::Again), []);
        assert_eq!(stage.fake.orders(), [(2, None), (3, None), (1, Some(60)), (4, Some(10))]);
        assert_eq!(stage.proxy.name(), "external");
        assert_eq!(stage.proxy.own_tasks.len(), 2, "here until it is confirmed there");
        assert_eq!(stage.receives(ProxyReport::Done(TaskId(1), millis(60), Ok(()))), [(1, true)]);
        assert_eq!(stage.proxy.own_tasks.len(), 1);
    }

    #[test]
    fn a_lost_release_is_sent_again_until_it_is_confirmed() {
        let mut stage = Fixture::new("release-lost");
        stage.reserve(1, 20);
        stage.receives(ProxyReport::Done(TaskId(1), millis(20), Ok(())));
        stage.proxy.release(TaskId(1), &mut stage.context);
        assert_eq!(stage.fake.orders(), [(1, Some(20)), (1, None)]);
        for _ in 0..2 {
            stage.receives(ProxyReport::Failed("late".into()));
            stage.receives(ProxyReport::Again);
            assert_eq!(stage.fake.orders(), [(1, None)]);
        }
        let released = stage.fake.0.lock().last;
        stage.receives(ProxyReport::Released(TaskId(1), released));
        stage.receives(ProxyReport::Failed("late".into()));
        stage.receives(ProxyReport::Again);
        assert_eq!(stage.fake.orders(), [], "nothing is there any more");
    }

    #[test]
    fn the_confirmation_of_an_earlier_release_confirms_no_later_call() {
        let mut stage = Fixture::new("release-before");
        stage.reserve(1, 20);
        stage.proxy.release(TaskId(1), &mut stage.context);
        let before = stage.fake.0.lock().last;
        stage.reserve(1, 30);
        stage.proxy.release(TaskId(1), &mut stage.context);
        stage.receives(ProxyReport::Released(TaskId(1), before));
        stage.receives(ProxyReport::Failed("late".into()));
        stage.fake.orders();
        stage.receives(ProxyReport::Again);
        assert_eq!(stage.fake.orders(), [(1, None)]);
    }
}
