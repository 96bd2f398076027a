//! Runs with lanes above all windows: what they may use of each CPU while they live.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_control::TaskId;
use hyoshi_control::window::placement::CpuPromise;
use hyoshi_model::{Instant, Share, Span, printable};
use hyoshi_os::Credentials;
use hyoshi_os::process::Process;

use super::BrokerState;
use crate::access::Caller;
use crate::audit;
use crate::platform::CpuLanes;
use crate::request_error::RequestError;

/// Runs with promised lanes.
const MOST_RUNS: usize = 64;
/// Promises of one run.
const MOST_PROMISES: usize = 4_096;
/// How often their processes are checked.
const LIFE: Span = Span::from_secs(1);
/// Longest period and budget.
const LONGEST: Span = Span::from_secs(3_600);

/// A run with lanes.
pub(super) struct LaneRun {
    name: String,
    owner: u32,
    process: Process,
    lanes: BTreeMap<u32, Vec<CpuPromise>>,
}

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSnapshot {
    /// The system's name.
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Its user.
    pub owner: u32,
    /// What its lanes may use of each CPU.
    pub shares: Vec<(u32, Share)>,
}

impl BrokerState {
    /// Replaces the promised lanes of the calling process.
    ///
    /// # Errors
    ///
    /// If the caller may not change all tasks or its process is unknown, or a promise is invalid.
    pub fn promise_lanes(
        &mut self,
        who: &Caller,
        name: &str,
        promises: &[(u32, CpuPromise)],
        now: Instant,
    ) -> Result<(), RequestError> {
        let caller = match self.may_promise(who, name, promises) {
            Ok(caller) => caller,
            Err(error) => return self.audited(who, "lanes", None, name, Err(error)),
        };
        let mut lanes: BTreeMap<u32, Vec<CpuPromise>> = BTreeMap::new();
        promises.iter().for_each(|(cpu, promise)| lanes.entry(*cpu).or_default().push(*promise));
        if self.runs.get(&caller.pid).is_some_and(|run| run.lanes == lanes && !run.process.has_ended()) {
            return Ok(());
        }
        let text = lanes.iter().map(|(cpu, lanes)| format!("{} of CPU {cpu}", share(lanes)));
        let text = format!("{name}: {}", audit::join_items(text));
        let done = self.try_promise(caller, name, lanes, now);
        self.audited(who, "lanes", None, &text, done)
    }

    /// The caller's process, if it may promise these lanes.
    fn may_promise<'a>(
        &self,
        who: &'a Caller,
        name: &str,
        promises: &[(u32, CpuPromise)],
    ) -> Result<&'a Credentials, RequestError> {
        let Caller::Known(caller) = who else {
            let message = "unknown calling process".to_owned();
            let remedy = "use the Unix socket of the broker on the same machine";
            return Err(RequestError::NotAllowed { message, remedy: remedy.to_owned() });
        };
        if !self.access.is_operator(who) {
            let message = "only operators may report lanes, which reduce the time of all tasks".to_owned();
            return Err(RequestError::NotAllowed { message, remedy: self.who_may() });
        }
        if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
            let message = format!("invalid run name {:?}", name.chars().take(80).collect::<String>());
            return Err(RequestError::refused(message, "use 1 to 64 characters without control characters"));
        }
        let good = |one: &CpuPromise| {
            let period = (Span::from_micros(1)..=LONGEST).contains(&one.period);
            period && one.budget <= LONGEST && one.jitter <= LONGEST * 2
        };
        if promises.len() > MOST_PROMISES || !promises.iter().all(|(_, one)| good(one)) {
            let message = "invalid promises of lanes";
            let remedy =
                format!("send at most {MOST_PROMISES}, each with a period of 1us to 1h and a budget of at most 1h");
            return Err(RequestError::refused(message, remedy));
        }
        Ok(caller)
    }

    fn try_promise(
        &mut self,
        caller: &Credentials,
        name: &str,
        lanes: BTreeMap<u32, Vec<CpuPromise>>,
        now: Instant,
    ) -> Result<(), RequestError> {
        if lanes.is_empty() {
            if let Some(run) = self.runs.remove(&caller.pid) {
                self.settle_lanes(run.lanes.into_keys().collect(), now);
            }
            return Ok(());
        }
        if self.runs.len() >= MOST_RUNS && !self.runs.contains_key(&caller.pid) {
            return Err(RequestError::refused(
                format!("there are already {MOST_RUNS} runs"),
                "wait until one has ended",
            ));
        }
        let process = Process::open(caller.pid)?;
        let mut cpus: BTreeSet<u32> = lanes.keys().copied().collect();
        let run = LaneRun { name: name.to_owned(), owner: caller.uid, process, lanes };
        if let Some(before) = self.runs.insert(caller.pid, run) {
            cpus.extend(before.lanes.into_keys());
        }
        self.settle_lanes(cpus, now);
        Ok(())
    }

    /// Removes ended runs. Returns when to check again.
    pub(super) fn check_runs(&mut self, now: Instant) -> Instant {
        if self.runs.is_empty() {
            return Instant::NEVER;
        }
        if now >= self.runs_checked {
            self.runs_checked = now.saturating_add(LIFE);
            let ended: Vec<u32> =
                self.runs.iter().filter(|(_, run)| run.process.has_ended()).map(|(pid, _)| *pid).collect();
            for run in ended.iter().filter_map(|pid| self.runs.remove(pid)).collect::<Vec<_>>() {
                self.settle_lanes(run.lanes.into_keys().collect(), now);
                let text = format!("{}: its process has ended", printable(&run.name));
                let _: Result<(), RequestError> = self.audited(&Caller::Broker, "lanes", None, &text, Ok(()));
            }
        }
        self.runs_checked
    }

    /// Applies changed lanes: on each of these CPUs, windows that no longer fit shrink or move, the least important
    /// first; then refused tasks retry.
    fn settle_lanes(&mut self, cpus: BTreeSet<u32>, now: Instant) {
        let mut first: Vec<(u32, TaskId)> =
            self.arbiter.tasks().map(|(id, joining)| (joining.importance, id)).collect();
        first.sort_by_key(|(importance, id)| (std::cmp::Reverse(*importance), *id));
        let first: Vec<TaskId> = first.into_iter().map(|(_, id)| id).collect();
        for cpu in cpus {
            let here = self.runs.iter().filter_map(|(pid, run)| Some((pid, run, run.lanes.get(&cpu)?)));
            let (mut promises, mut words) = (Vec::new(), Vec::new());
            for (pid, run, lanes) in here {
                promises.extend(lanes);
                let name = printable(&run.name);
                words.push(format!("lanes of run `{name}` (process {pid}) use {} of CPU {cpu}", share(lanes)));
            }
            self.lanes_count = self.platform.promise_lanes(cpu, CpuLanes { promises, text: words.join(", ") }, &first);
        }
        self.process_outcomes(now);
        self.backlog.add(self.arbiter.reconsider(|_| ()));
        self.apply(now);
    }

    /// All runs, and whether the scheduler counts their lanes, as windows do.
    pub fn runs(&self) -> (Vec<RunSnapshot>, bool) {
        let shares = |run: &LaneRun| run.lanes.iter().map(|(cpu, lanes)| (*cpu, share(lanes))).collect();
        let runs = self.runs.iter().map(|(process, run)| RunSnapshot {
            name: run.name.clone(),
            process: *process,
            owner: run.owner,
            shares: shares(run),
        });
        (runs.collect(), self.lanes_count)
    }
}

fn share(lanes: &[CpuPromise]) -> Share {
    lanes.iter().map(|promise| promise.share()).sum()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Child, Command};

    use hyoshi_control::{Arbiter, Backlog};
    use hyoshi_os::allowed_cpus;

    use super::*;
    use crate::access::{Access, Certified, Right};
    use crate::audit::Audit;
    use crate::component::ComponentSpec;
    use crate::machine::Machine;
    use crate::{TaskSpec, policy};

    /// A state with a simulated machine, and a task for each budget, in ms of 100 ms.
    struct RunFixture(BrokerState, Vec<Child>, PathBuf);

    impl RunFixture {
        fn new(name: &str, budgets: &[(u32, u64)]) -> RunFixture {
            let place = std::env::temp_dir().join(format!("hyoshi-runs-{name}-{}", std::process::id()));
            let (machine, _) = Machine::open(&place, Some("simulated")).unwrap();
            let arbiter = Arbiter::new(policy::named("strict").unwrap(), Share::from_percent(100_000));
            let access = Access { broker: 0, group: None };
            let mut state = BrokerState::new(arbiter, Box::new(machine), access, Audit::none());
            let mut programs = Vec::new();
            for (importance, budget) in budgets {
                let rate = [format!("rate {budget}%").split(' ').map(str::to_owned).collect::<Vec<_>>()];
                let joining = TaskSpec {
                    importance: *importance,
                    advocates: rate.iter().map(|words| ComponentSpec::from_words(words).unwrap()).collect(),
                    ..TaskSpec::new(&format!("t{importance}"), Span::from_millis(100))
                };
                let id = state.join(&Caller::Broker, &joining, Instant::ZERO).unwrap();
                let program = Command::new("sleep").arg("1000").spawn().unwrap();
                state.add_process(&Caller::Broker, id, program.id(), 0, Instant::ZERO).unwrap();
                programs.push(program);
            }
            RunFixture(state, programs, place)
        }

        fn held(&mut self, importance: u32) -> u64 {
            let id = self.0.find(&format!("t{importance}")).unwrap();
            let snapshot = self.0.snapshot(id).unwrap();
            snapshot.reserved.map_or(0, |held| held.budget().as_nanos() / 1_000_000)
        }
    }

    impl Drop for RunFixture {
        fn drop(&mut self) {
            for program in &mut self.1 {
                let _ = program.kill();
                let _ = program.wait();
            }
            let _ = std::fs::remove_dir_all(&self.2);
        }
    }

    fn user(uid: u32, pid: u32) -> Caller {
        Caller::Known(Credentials { pid, uid, gid: uid, groups: vec![] })
    }

    /// A budget in ms of each 10 ms, on each CPU.
    fn lanes(budget: u64) -> Vec<(u32, CpuPromise)> {
        let (budget, period) = (Span::from_millis(budget), Span::from_millis(10));
        let promise = CpuPromise { budget, period, jitter: period - budget };
        allowed_cpus().into_iter().map(|cpu| (cpu, promise)).collect()
    }

    #[test]
    fn windows_give_way_to_lanes_the_less_important_first_until_these_are_taken_back_or_their_process_ends() {
        let cpus = allowed_cpus().len() as u32;
        // On each CPU an important task that leaves room for another, and an unimportant one.
        let budgets: Vec<(u32, u64)> =
            (0..2 * cpus).rev().map(|at| (at + 1, if at < cpus { 30 } else { 50 })).collect();
        let mut stage = RunFixture::new("give-way", &budgets);
        let all = |stage: &mut RunFixture| {
            budgets.iter().map(|(importance, _)| stage.held(*importance)).collect::<Vec<u64>>()
        };
        let whole: Vec<u64> = budgets.iter().map(|(_, budget)| *budget).collect();
        assert_eq!(all(&mut stage), whole);
        let root = user(0, std::process::id());
        stage.0.promise_lanes(&root, "flight", &lanes(3), Instant::ZERO).unwrap();
        let (more, less) = (1..=cpus).map(|at| (stage.held(at + cpus), stage.held(at))).next().unwrap();
        assert_eq!(more, 50, "the important ones keep what they have");
        assert!(less < 30, "{less}");
        let reason = stage.0.explain("t1", Instant::ZERO).unwrap();
        assert!(
            reason.contains(&format!("lanes of run `flight` (process {}) use 30% of CPU", std::process::id())),
            "{reason}"
        );
        let (runs, counted) = stage.0.runs();
        assert!(counted && runs.len() == 1 && runs[0].shares.len() == cpus as usize, "{runs:?}");
        stage.0.promise_lanes(&root, "flight", &[], Instant::ZERO).unwrap();
        assert_eq!((all(&mut stage), stage.0.runs().0.len()), (whole.clone(), 0));
        // Another process, which ends.
        let mut run = Command::new("sleep").arg("1000").spawn().unwrap();
        stage.0.promise_lanes(&user(0, run.id()), "gone", &lanes(9), Instant::ZERO).unwrap();
        assert!(all(&mut stage).iter().all(|held| *held < 6), "{:?}", all(&mut stage));
        run.kill().unwrap();
        run.wait().unwrap();
        stage.0.tick(Instant::ZERO + LIFE * 2);
        assert_eq!((all(&mut stage), stage.0.runs().0.len()), (whole, 0));
    }

    #[test]
    fn of_more_windows_that_give_way_at_once_than_are_settled_anew_none_is_kept_that_is_not_there() {
        let many = Backlog::MOST_REFUSALS as u32 + 6;
        let mut stage = RunFixture::new("many", &(1..=many).map(|importance| (importance, 1)).collect::<Vec<_>>());
        let mut all = |lanes: &[(u32, CpuPromise)], held: u64| {
            stage.0.promise_lanes(&user(0, std::process::id()), "flight", lanes, Instant::ZERO).unwrap();
            (1..=many).for_each(|importance| assert_eq!(stage.held(importance), held, "t{importance}"));
        };
        all(&[], 1);
        all(&lanes(10), 0);
        all(&[], 1);
    }

    #[test]
    fn who_may_not_change_all_tasks_and_what_is_no_promise_is_refused_and_nothing_is_changed() {
        let mut stage = RunFixture::new("refused", &[(1, 80)]);
        let (root, pid) = (user(0, std::process::id()), std::process::id());
        let certified = Certified { name: "chief".to_owned(), right: Right::Change, user: None };
        for who in [user(1_000, pid), Caller::Certified(certified), Caller::Unknown] {
            let refused = stage.0.promise_lanes(&who, "flight", &lanes(3), Instant::ZERO).unwrap_err();
            assert!(matches!(refused, RequestError::NotAllowed { .. }), "{refused}");
        }
        let promise = |budget, period| {
            let [budget, period] = [budget, period].map(Span::from_nanos);
            [(0, CpuPromise { budget, period, jitter: Span::ZERO })]
        };
        for bad in [promise(1, 0), promise(1, 999), promise(1, u64::MAX), promise(u64::MAX, 1_000_000)] {
            assert!(stage.0.promise_lanes(&root, "flight", &bad, Instant::ZERO).is_err(), "{bad:?}");
        }
        for name in ["", "a\nb", &"x".repeat(65)] {
            assert!(stage.0.promise_lanes(&root, name, &lanes(3), Instant::ZERO).is_err(), "{name:?}");
        }
        assert!(stage.0.promise_lanes(&root, "flight", &vec![lanes(3)[0]; 4_097], Instant::ZERO).is_err());
        assert!(stage.0.promise_lanes(&user(0, u32::MAX), "flight", &lanes(3), Instant::ZERO).is_err());
        assert_eq!((stage.held(1), stage.0.runs().0.len()), (80, 0));
    }
}
