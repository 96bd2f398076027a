//! Tracks the user of a CPU. The replayed dispatcher knows which jobs hold their lanes' tokens; a model of the kernel
//! chooses among them, unless the recording has switches.
//!
//! After a gap in the recording the dispatcher's state is unknown. Then only switches show the user of the CPU, and
//! only later decisions show the job of a lane. [`CpuTracker::is_plain`] is true if that suffices to rank two jobs.

use foldhash::{HashMap, HashMapExt};
use hyoshi_dispatch::kernel::{BACKGROUND, Kernel, level};
use hyoshi_dispatch::{Job, JobState, LaneMask, cap::OPEN, lanes_of};
use hyoshi_model::{Guard, Instant, JobId, Preemption, ResourceId, System};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{CpuEvent, CpuUser, DispatchDecision, Input, JobEnd, Slot, TraceEvent, Wait};

use super::arrival::{Arrival, Arrivals, LatestMove};
use super::cpu_changes::{CpuChange, CpuOccupant, JobTransition, RunningJob};
use super::recent_cpu::RecentCpu;
use crate::replay::Replay;

/// More live jobs than the queues of any file hold: the limit for edited recordings.
const MOST_LIVE: usize = 1 << 20;

/// Information about a live job that the dispatcher does not have.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveJob {
    pub arrival: Arrival,
    /// Its open breakdown.
    pub breakdown: Option<Box<super::breakdown::OpenBreakdown>>,
    lane: u8,
    /// Its position in the dispatcher's table, after its start.
    slot: Option<Slot>,
    /// It has entered its lane's queue.
    released: bool,
    /// The number of critical sections that it has left.
    sections: usize,
    blocked: bool,
    /// A thread of its lane had the CPU since the dispatcher chose it.
    ran: bool,
    /// Its thread is blocked, for this reason if known.
    asleep: Option<Option<Wait>>,
}

/// The urgency of a job that enters its lane's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobUrgency {
    /// Its levels under the first and the second strategy.
    pub levels: [u8; 2],
    /// Whether the second strategy is in force.
    pub second: bool,
    pub critical: bool,
}

/// Tracks the user of one processor's CPU.
#[derive(Debug)]
pub struct CpuTracker<'a> {
    system: &'a System,
    /// `None` after lost events.
    replay: Option<Replay<'a>>,
    kernel: Kernel,
    /// A simulation: the model is exact.
    exact: bool,
    pub(super) jobs: HashMap<JobId, LiveJob>,
    /// Started jobs that use resources.
    users: Vec<JobId>,
    /// The jobs of the lanes, as known since events were lost.
    lanes: Vec<Option<JobId>>,
    is_plain: bool,
    /// Lanes that can hold critical jobs, whether one lane holds all levels, and whether jobs of a lane preempt each
    /// other.
    pub(super) critical_lanes: LaneMask,
    pub(super) one_lane: bool,
    pub(super) preempts_within: bool,
    /// The caps' last recorded state: the first gated lane, and whether all lanes pause.
    pub(super) gate: u8,
    pub(super) pause: bool,
    now: Instant,
    /// The user of the CPU, if the recording has switches.
    switched: Option<CpuUser>,
    /// The reason for which that thread will block.
    waits: Option<Wait>,
    pub(super) arrivals: Arrivals,
    /// The recent users of the CPU: they explain late releases.
    pub(super) recent: RecentCpu,
}

impl<'a> CpuTracker<'a> {
    /// Starts at the beginning of a recording; `exact` for a simulation.
    pub fn new(system: &'a System, plan: &ProcessorPlan, exact: bool) -> Self {
        let replay = Replay::new(system, plan);
        let all = replay.dispatcher().lanes();
        CpuTracker {
            critical_lanes: (0u8..).zip(all).filter(|(_, lane)| lane.critical).map(|(index, _)| index).collect(),
            lanes: vec![None; all.len()],
            is_plain: Self::is_plain(plan),
            one_lane: all.len() == 1,
            preempts_within: plan.preemption == Preemption::Full,
            arrivals: Arrivals::default(),
            system,
            replay: Some(replay),
            kernel: Kernel::default(),
            exact,
            jobs: HashMap::new(),
            users: Vec::new(),
            gate: OPEN,
            pause: false,
            now: Instant::ZERO,
            switched: None,
            waits: None,
            recent: RecentCpu::default(),
        }
    }

    /// The replayed dispatcher; `None` after lost events.
    pub(super) fn replay(&mut self) -> Option<&mut Replay<'a>> {
        self.replay.as_mut()
    }

    /// Whether a job's lane determines its urgency: each level has its lane, and neither resources nor a second
    /// strategy move jobs between lanes.
    fn is_plain(plan: &ProcessorPlan) -> bool {
        lanes_of(plan).len() > 1 && plan.ceilings.iter().all(Option::is_none) && plan.overload.is_none()
    }

    /// The next event. `emit` receives the resulting changes, first the use of the CPU until now.
    pub fn event(&mut self, now: Instant, event: &TraceEvent, mut emit: impl FnMut(&mut Self, CpuChange)) {
        self.advance(now, event, &mut emit);
        if self.replay.as_mut().is_some_and(|replay| replay.event(now, *event).is_err()) {
            self.lose(now, &mut emit);
        }
        match event {
            TraceEvent::Input(input) => self.input(now, input, &mut emit),
            TraceEvent::Decision(decision) => self.decision(now, decision, &mut emit),
            TraceEvent::Cpu(CpuEvent::Switch { to, preempted }) => {
                let waits = self.waits.take();
                if !preempted {
                    self.thread_blocked(now, *to, waits, &mut emit);
                }
                self.switched = Some(*to);
                self.thread_ran(now, *to, *preempted, &mut emit);
                self.recent.ended_by_preemption(*preempted);
            }
            TraceEvent::Cpu(CpuEvent::Waits(wait)) => self.waits = Some(*wait),
            TraceEvent::Cpu(CpuEvent::Gap) => (self.switched, self.waits) = (None, None),
            TraceEvent::Cpu(CpuEvent::Stolen { span }) => self.recent.stolen(*span),
            TraceEvent::Cpu(CpuEvent::Overhead { .. } | CpuEvent::Used { .. } | CpuEvent::Clock { .. }) => {}
        }
    }

    /// The replay diverged: events were lost, or the recording was edited.
    #[cold]
    fn lose(&mut self, now: Instant, emit: &mut impl FnMut(&mut Self, CpuChange)) {
        (self.replay, self.kernel) = (None, Kernel::default());
        self.users.clear();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.job_transition(now, job, JobTransition::Lost, emit));
    }

    /// True after lost events.
    pub(super) fn is_lost(&self) -> bool {
        self.replay.is_none()
    }

    pub(super) fn live(&mut self, job: JobId) -> Option<&mut LiveJob> {
        self.jobs.get_mut(&job)
    }

    /// The job at a position of the dispatcher's table, if known.
    pub(super) fn job(&self, slot: Slot) -> Option<&Job> {
        self.replay.as_ref()?.dispatcher().live_job(slot)
    }

    /// The urgency of a job in the queue of `lane`, if known.
    pub(super) fn standing(&self, id: JobId, lane: u8) -> Option<JobUrgency> {
        let Some(replay) = &self.replay else {
            let setting = self.system.setting(self.system.epoch_at(self.now), id.operation);
            let critical = self.system.operation(id.operation).critical || id.leg < setting.critical_legs;
            return self.is_plain.then_some(JobUrgency { levels: [lane; 2], second: false, critical });
        };
        let dispatcher = replay.dispatcher();
        let second = dispatcher.strategy_in_force() == 1;
        dispatcher.waiting_job(id, lane).map(|Job { level, other, critical, .. }| {
            let levels = if second { [other.level, *level] } else { [*level, other.level] };
            JobUrgency { levels, second, critical: *critical }
        })
    }

    /// The number of waiting jobs, if known.
    pub(super) fn waiting(&self) -> Option<usize> {
        Some(self.replay.as_ref()?.dispatcher().waiting())
    }

    /// Started jobs that wait for a resource while they hold their lane's token: lane, job, resource.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (u8, JobId, ResourceId)> + '_ {
        self.users.iter().filter_map(|job| {
            let live = self.jobs.get(job).filter(|live| live.blocked)?;
            Some((live.lane, *job, self.next_resource(*job, live)?))
        })
    }

    // ---- time ----

    fn advance(&mut self, now: Instant, event: &TraceEvent, emit: &mut impl FnMut(&mut Self, CpuChange)) {
        // A simulation's overhead ends now. Switches may arrive late: time does not decrease here.
        if now <= self.now {
            return;
        }
        let from = std::mem::replace(&mut self.now, now);
        if self.exact && !self.users.is_empty() {
            self.note_blocked(from, emit);
        }
        let gap = matches!(event, TraceEvent::Cpu(CpuEvent::Gap));
        let (occupant, slot) = if gap { (CpuOccupant::Unknown, None) } else { self.occupant() };
        self.kernel.holder = slot;
        let overhead = match event {
            TraceEvent::Cpu(CpuEvent::Overhead { who, span }) if self.exact => {
                Some((*who, now.saturating_sub(*span).max(from)))
            }
            _ => None,
        };
        let until = overhead.map_or(now, |(_, since)| since);
        if !self.exact {
            self.recent.slice(from, now, occupant);
        }
        if until > from {
            emit(self, CpuChange::Slice { from, to: until, occupant });
        }
        if let Some((who, since)) = overhead.filter(|(_, since)| *since < now) {
            emit(self, CpuChange::Slice { from: since, to: now, occupant: CpuOccupant::Overhead(who) });
        }
    }

    /// Built-in work requests its resources in order. A simulation does not record when it waits.
    fn note_blocked(&mut self, at: Instant, emit: &mut impl FnMut(&mut Self, CpuChange)) {
        for position in 0..self.users.len() {
            let job = self.users[position];
            let (Some(live), Some(replay)) = (self.jobs.get(&job), &self.replay) else { continue };
            let next = self.next_resource(job, live).zip(live.slot);
            let wants = next.filter(|(resource, slot)| !replay.dispatcher().holds(*slot, *resource));
            if wants.is_some() != live.blocked {
                let transition =
                    wants.map_or(JobTransition::Unblocked, |(resource, _)| JobTransition::Blocked(resource));
                self.jobs.entry(job).and_modify(|live| live.blocked = !live.blocked);
                self.job_transition(at, job, transition, emit);
            }
        }
    }

    fn next_resource(&self, job: JobId, live: &LiveJob) -> Option<ResourceId> {
        self.system.operation(job.operation).uses.get(live.sections).map(|(resource, _)| *resource)
    }

    /// The user of the CPU, and the position of its job.
    fn occupant(&self) -> (CpuOccupant, Option<Slot>) {
        let occupant = match (self.switched, &self.replay) {
            (Some(CpuUser::Idle), _) => CpuOccupant::Idle,
            (Some(CpuUser::Other(name)), _) => CpuOccupant::Other(name),
            (Some(who @ (CpuUser::Release | CpuUser::Watchdog)), _) => CpuOccupant::Overhead(who),
            (Some(CpuUser::Unknown), _) => CpuOccupant::Unknown,
            (switched, None) => self.inferred(switched),
            (Some(who @ (CpuUser::Lane(_) | CpuUser::Below)), Some(replay)) => return runs(replay, self.started(who)),
            (None, Some(replay)) => {
                let is_blocked = |job: JobId| self.jobs.get(&job).is_some_and(|live| live.blocked);
                let thread_blocked = |slot| !self.users.is_empty() && is_blocked(replay.dispatcher().job(slot).id);
                let effects = replay.effects();
                let (best, level) = self.kernel.best_started(replay.dispatcher(), effects, thread_blocked);
                match effects.startable.first().is_some_and(|lane| lane < level) {
                    true => CpuOccupant::Dispatch,
                    false if best.is_none() => CpuOccupant::Idle,
                    false => return runs(replay, best),
                }
            }
        };
        (occupant, None)
    }

    /// The user of the CPU by switches and decisions since events were lost. Under a cap that gates or pauses the job
    /// is unknown.
    fn inferred(&self, switched: Option<CpuUser>) -> CpuOccupant {
        let certain = self.is_plain && self.gate == OPEN && !self.pause;
        let job = switched.filter(|_| certain).and_then(|who| Some((self.started_job(who)?, who)));
        let Some((job, CpuUser::Lane(lane))) = job else { return CpuOccupant::Unknown };
        let deadline = Instant::NEVER;
        CpuOccupant::Job(RunningJob { job, level: lane, lane, deadline, holds: None, raised: false, below: false })
    }

    // ---- started jobs, by the kernel's switches ----

    /// The started job of the thread `who`, if the dispatcher's state is known.
    fn started(&self, who: CpuUser) -> Option<Slot> {
        match who {
            CpuUser::Lane(lane) => self.replay.as_ref()?.dispatcher().lanes().get(usize::from(lane))?.running,
            CpuUser::Below => self.kernel.demoted.front().copied(),
            _ => None,
        }
    }

    fn started_job(&self, who: CpuUser) -> Option<JobId> {
        match (&self.replay, who) {
            (None, CpuUser::Lane(lane)) => self.lanes.get(usize::from(lane)).copied().flatten(),
            _ => self.started(who).and_then(|slot| self.job(slot)).map(|job| job.id),
        }
    }

    /// The current thread blocks: its started job is suspended.
    ///
    /// The kernel marks switches away from threads that could continue (PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
    /// perf_event_open(2)). A thread that hands its lane's token to another thread of the lane also blocks, after the
    /// lane has received its next job. That does not concern the next job: the other thread is ready and has the CPU at
    /// once.
    fn thread_blocked(
        &mut self,
        now: Instant,
        to: CpuUser,
        waits: Option<Wait>,
        emit: &mut impl FnMut(&mut Self, CpuChange),
    ) {
        let Some(job) = self.switched.and_then(|who| self.started_job(who)) else { return };
        let Some(live) = self.jobs.get_mut(&job) else { return };
        let hands_over = self.switched == Some(to) && !live.ran;
        if !hands_over {
            self.job_transition(now, job, JobTransition::Slept(waits), emit);
        }
    }

    /// `who` now has the CPU.
    fn thread_ran(&mut self, now: Instant, who: CpuUser, preempted: bool, emit: &mut impl FnMut(&mut Self, CpuChange)) {
        let Some(job) = self.started_job(who) else { return };
        let Some(live) = self.jobs.get_mut(&job) else { return };
        live.ran = true;
        if live.asleep.is_some() {
            self.job_transition(now, job, JobTransition::Woke { preempted }, emit);
        }
    }

    /// Started jobs with blocked threads: lane, job, reason.
    pub(super) fn asleep(&self) -> impl Iterator<Item = (u8, JobId, Option<Wait>)> + '_ {
        let lanes = if self.switched.is_some() { self.lanes.len() as u8 } else { 0 };
        let running = (0..lanes).filter_map(|lane| self.started_job(CpuUser::Lane(lane)));
        running.filter_map(|job| self.jobs.get(&job).and_then(|live| Some((live.lane, job, live.asleep?))))
    }

    // ---- the dispatcher's inputs ----

    fn input(&mut self, now: Instant, input: &Input, emit: &mut impl FnMut(&mut Self, CpuChange)) {
        match input {
            Input::Signal(signal) | Input::DropHop(signal) => self.arrivals.signal(signal),
            Input::Tick => self.arrivals.tick(),
            Input::Arrive { operation, from, .. } => {
                self.arrivals.moved(*operation, LatestMove { at: now, from: *from });
            }
            Input::Stay { operation } => {
                self.arrivals.moved(*operation, LatestMove { at: now, from: *operation });
            }
            Input::Suspend { slot } => self.slot_transition(now, *slot, JobTransition::Suspended, emit),
            Input::Resume { slot, .. } => self.slot_transition(now, *slot, JobTransition::Resumed, emit),
            Input::Acquire { slot, .. }
                if self.live_at(*slot).is_some_and(|live| std::mem::take(&mut live.blocked)) =>
            {
                self.slot_transition(now, *slot, JobTransition::Unblocked, emit);
            }
            Input::Release { slot, .. } => {
                if let Some(live) = self.live_at(*slot) {
                    live.sections = live.sections.saturating_add(1);
                }
            }
            // The other inputs show in decisions.
            _ => {}
        }
    }

    fn live_at(&mut self, slot: Slot) -> Option<&mut LiveJob> {
        let job = self.job(slot)?.id;
        self.jobs.get_mut(&job)
    }

    fn slot_transition(
        &mut self,
        now: Instant,
        slot: Slot,
        transition: JobTransition,
        emit: &mut impl FnMut(&mut Self, CpuChange),
    ) {
        if let Some(job) = self.job(slot).map(|job| job.id) {
            self.job_transition(now, job, transition, emit);
        }
    }

    // ---- decisions ----

    fn decision(&mut self, now: Instant, decision: &DispatchDecision, emit: &mut impl FnMut(&mut Self, CpuChange)) {
        match decision {
            DispatchDecision::Hold { job, until } => {
                if let Some(live) = self.begin(now, *job) {
                    live.arrival.held_until = Some(*until);
                }
            }
            DispatchDecision::Ready { job, lane, .. } => {
                let lane = (*lane).min(self.lanes.len() as u8 - 1);
                let Some(live) = self.begin(now, *job) else { return };
                (live.lane, live.released) = (lane, true);
                self.hold_others(now, *job);
                self.job_transition(now, *job, JobTransition::Ready, emit);
            }
            DispatchDecision::Run { job, lane, slot, .. } => {
                if let (None, Some(known)) = (&self.replay, self.lanes.get_mut(usize::from(*lane))) {
                    *known = self.jobs.contains_key(job).then_some(*job);
                }
                let Some(live) = self.jobs.get_mut(job) else { return };
                (live.lane, live.ran) = (*lane, false);
                let before = live.slot.replace(*slot);
                if before.is_none() && !self.system.operation(job.operation).uses.is_empty() {
                    self.users.push(*job);
                }
                self.job_transition(now, *job, JobTransition::Runs, emit);
            }
            DispatchDecision::Yield { job } => {
                let slot = self.jobs.get(job).and_then(|live| live.slot);
                let state = slot.and_then(|slot| self.job(slot)).map(|job| job.state);
                self.release_token(*job);
                match state {
                    Some(JobState::Ready) => self.job_transition(now, *job, JobTransition::Yields, emit),
                    // A blocking job also releases its token, but enters no queue.
                    Some(_) => {}
                    None => self.job_transition(now, *job, JobTransition::Lost, emit),
                }
            }
            DispatchDecision::Demote { job } => {
                let slot = self.jobs.get(job).and_then(|live| live.slot);
                self.kernel.demoted.extend(slot.filter(|_| self.replay.is_some()));
                self.release_token(*job);
                self.job_transition(now, *job, JobTransition::Demoted, emit);
            }
            DispatchDecision::Gate { lane } => {
                self.gate = *lane;
                emit(self, CpuChange::Gate { lane: *lane });
            }
            DispatchDecision::Pause { on } => {
                self.pause = *on;
                emit(self, CpuChange::Pause { on: *on });
            }
            DispatchDecision::Switch { second } => emit(self, CpuChange::Switch { second: *second }),
            DispatchDecision::Epoch { .. }
            | DispatchDecision::Move { .. }
            | DispatchDecision::Overload
            | DispatchDecision::Relegate { .. }
            | DispatchDecision::Sample { .. }
            | DispatchDecision::Latency { .. }
            | DispatchDecision::Condition { .. }
            | DispatchDecision::Region { .. }
            | DispatchDecision::Retime { .. }
            | DispatchDecision::Level { .. }
            | DispatchDecision::Admission { .. }
            | DispatchDecision::Pace { .. }
            | DispatchDecision::Discard { .. } => {}
            DispatchDecision::TimeOut { operation } => self.arrivals.timed_out(*operation),
            // The caller reads the data of an ended job, then removes it.
            DispatchDecision::Send(_) | DispatchDecision::End(_) => {}
        }
    }

    fn release_token(&mut self, job: JobId) {
        self.lanes.iter_mut().filter(|known| **known == Some(job)).for_each(|known| *known = None);
    }

    /// The guard that released `job` delays the following jobs by another period.
    fn hold_others(&mut self, now: Instant, job: JobId) {
        if self.system.operation(job.operation).guard == Guard::Off {
            return;
        }
        let until = now.saturating_add(self.system.setting(self.system.epoch_at(now), job.operation).period);
        for (other, live) in &mut self.jobs {
            if !live.released && other.operation == job.operation {
                live.arrival.held_until = live.arrival.held_until.map(|held| held.max(until));
            }
        }
    }

    fn job_transition(
        &mut self,
        at: Instant,
        job: JobId,
        transition: JobTransition,
        emit: &mut impl FnMut(&mut Self, CpuChange),
    ) {
        let Some(live) = self.jobs.get_mut(&job) else { return };
        live.asleep = match transition {
            JobTransition::Slept(waits) => Some(waits),
            JobTransition::Blocked(_) | JobTransition::Unblocked => live.asleep,
            _ => None,
        };
        let lane = live.lane;
        emit(self, CpuChange::Job { at, job, lane, transition });
    }

    /// The live job; created at its first appearance.
    fn begin(&mut self, now: Instant, job: JobId) -> Option<&mut LiveJob> {
        let known = self.jobs.contains_key(&job);
        if !known && (self.jobs.len() >= MOST_LIVE || job.operation.index() >= self.system.operations.len()) {
            return None;
        }
        let arrival = if known { Arrival::default() } else { self.arrivals.of(self.system, now, job) };
        Some(self.jobs.entry(job).or_insert_with(|| LiveJob { arrival, ..LiveJob::default() }))
    }

    /// Removes a job that has ended.
    pub(super) fn forget(&mut self, end: &JobEnd) -> Option<LiveJob> {
        let live = self.jobs.remove(&end.job)?;
        if live.slot.is_some() {
            self.kernel.demoted.retain(|demoted| Some(*demoted) != live.slot);
            self.kernel.holder = self.kernel.holder.filter(|occupant| Some(*occupant) != live.slot);
            self.users.retain(|user| *user != end.job);
            self.release_token(end.job);
        }
        Some(live)
    }
}

/// The job at this position has the CPU; without a job, a thread of the lane is about to run.
fn runs(replay: &Replay<'_>, slot: Option<Slot>) -> (CpuOccupant, Option<Slot>) {
    let Some(slot) = slot else { return (CpuOccupant::Dispatch, None) };
    let (dispatcher, effects) = (replay.dispatcher(), replay.effects());
    let job = dispatcher.job(slot);
    let runner = RunningJob {
        job: job.id,
        level: job.level,
        lane: job.lane,
        deadline: job.deadline,
        holds: dispatcher.highest_held(slot),
        raised: dispatcher.effective_level(slot) < job.lane,
        below: job.state == JobState::Demoted || level(dispatcher, effects, slot) == BACKGROUND,
    };
    (CpuOccupant::Job(runner), Some(slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_sched::{Plan, Strategies};

    #[test]
    fn a_job_that_is_held_and_resumed_often_needs_one_place() {
        let breakdown = "name = \"x\"\n[processor.main]\n[resource.bus]\n[operation.one]\nevery = \"1ms\"\nwcet = \"0.1ms\"\n\
                    uses = { bus = \"0.05ms\" }\n";
        let system = hyoshi_model::read(breakdown, "x.toml", None).unwrap().system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let mut cpu = CpuTracker::new(&system, &plan.processors[0], false);
        let job = JobId { operation: hyoshi_model::OperationId(0), number: 0, leg: 0 };
        for number in 0..100_000 {
            let now = Instant::from_nanos(number);
            let slot = Slot(number as u32 % 4);
            let hold = DispatchDecision::Hold { job, until: Instant::NEVER };
            let run = DispatchDecision::Run { job, lane: 0, slot, resumed: false };
            cpu.event(now, &TraceEvent::Decision(hold), |_, _| ());
            cpu.event(now, &TraceEvent::Decision(run), |_, _| ());
        }
        assert_eq!((cpu.jobs.len(), cpu.users.len()), (1, 1));
    }
}
