//! Who has the CPU: the replayed dispatcher says which jobs hold their lanes' tokens, a model of the kernel which of them
//! runs. Where the recording has switches, they replace the model.
//!
//! Beyond a gap in the recording there is no dispatcher to ask. From there on who has the CPU is known from switches only,
//! and what a lane runs from the decisions since; see [`Cpu::is_plain`] for where that is enough to rank two jobs.

use foldhash::{HashMap, HashMapExt};
use hyoshi_dispatch::kernel::{BACKGROUND, Kernel, level};
use hyoshi_dispatch::{Job, JobState, LaneMask, cap::OPEN, lanes_of};
use hyoshi_model::{Guard, Instant, JobId, Preemption, ResourceId, System};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::{Decision, Event, Input, JobEnd, Seen, Slot, Wait, Who};

use super::arrival::{Arrival, Arrivals};
use super::marks::{Holder, Mark, Runner, Turn};
use super::past::Past;
use crate::replay::Replay;

/// More live jobs than any file's queues can hold; an edited recording ends here.
const MOST_LIVE: usize = 1 << 20;

/// What is known of a live job beside its state in the dispatcher.
#[derive(Clone, Debug, Default)]
pub(super) struct Live {
    pub arrival: Arrival,
    /// What the account of it needs, kept by the law above.
    pub file: Option<Box<super::fold::File>>,
    lane: u8,
    /// Its place in the dispatcher's table, once it has started.
    slot: Option<Slot>,
    /// It has entered its lane's queue.
    released: bool,
    /// Critical sections that it has left.
    sections: usize,
    blocked: bool,
    /// A thread of its lane came to the CPU since the dispatcher chose it.
    came: bool,
    /// Its thread blocked, to wait for this, and has not come back.
    asleep: Option<Option<Wait>>,
}

/// How urgent a job is that enters its lane's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// Its level while the first and while the second strategy rules.
    pub levels: [u8; 2],
    /// Whether the second rules now.
    pub second: bool,
    pub critical: bool,
}

/// Tracks who has one processor's CPU.
#[derive(Debug)]
pub struct Cpu<'a> {
    system: &'a System,
    /// `None` once events were lost.
    replay: Option<Replay<'a>>,
    kernel: Kernel,
    /// A simulation: what is modelled is what was.
    exact: bool,
    pub(super) jobs: HashMap<JobId, Live>,
    /// Started jobs that use resources.
    users: Vec<JobId>,
    /// What the lanes are known to run since events were lost.
    lanes: Vec<Option<JobId>>,
    is_plain: bool,
    /// Lanes that can hold critical jobs, whether one lane holds all levels, and whether jobs of a lane preempt each other.
    pub(super) critical_lanes: LaneMask,
    pub(super) one_lane: bool,
    pub(super) preempts_within: bool,
    /// The caps' last recorded state: the first gated lane, and whether all lanes pause.
    pub(super) gate: u8,
    pub(super) pause: bool,
    now: Instant,
    /// Who has the CPU, where the recording says so.
    switched: Option<Who>,
    /// What that thread will wait for, once it gives the CPU up.
    waits: Option<Wait>,
    pub(super) arrivals: Arrivals,
    /// Who had it lately: it explains late releases.
    pub(super) past: Past,
}

impl<'a> Cpu<'a> {
    /// The CPU of one processor at the start of a recording; `exact` if it is of a simulation.
    pub fn new(system: &'a System, plan: &ProcessorPlan, exact: bool) -> Self {
        let replay = Replay::new(system, plan);
        let all = replay.dispatcher().lanes();
        Cpu {
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
            past: Past::default(),
        }
    }

    /// The replayed dispatcher, until events are lost.
    pub(super) fn replay(&mut self) -> Option<&mut Replay<'a>> {
        self.replay.as_mut()
    }

    /// Whether a job's lane alone says how urgent it is: each level has its lane, and neither resources nor a second
    /// strategy move jobs between them.
    fn is_plain(plan: &ProcessorPlan) -> bool {
        lanes_of(plan).len() > 1 && plan.ceilings.iter().all(Option::is_none) && plan.overload.is_none()
    }

    /// The next event. `mark` gets what follows from it, beginning with who had the CPU until now.
    pub fn event(&mut self, now: Instant, event: &Event, mut mark: impl FnMut(&mut Self, Mark)) {
        self.advance(now, event, &mut mark);
        if self.replay.as_mut().is_some_and(|replay| replay.event(now, *event).is_err()) {
            self.lose(now, &mut mark);
        }
        match event {
            Event::Input(input) => self.input(now, input, &mut mark),
            Event::Decision(decision) => self.decision(now, decision, &mut mark),
            Event::Seen(Seen::Switch { to, preempted }) => {
                let waits = self.waits.take();
                if !preempted {
                    self.blocks(now, *to, waits, &mut mark);
                }
                self.switched = Some(*to);
                self.comes(now, *to, *preempted, &mut mark);
                self.past.ended_by_preemption(*preempted);
            }
            Event::Seen(Seen::Waits(wait)) => self.waits = Some(*wait),
            Event::Seen(Seen::Gap) => (self.switched, self.waits) = (None, None),
            Event::Seen(Seen::Stolen { span }) => self.past.stolen(*span),
            Event::Seen(Seen::Overhead { .. } | Seen::Used { .. } | Seen::Clock { .. }) => {}
        }
    }

    /// The replay diverged: events were lost, or the recording was edited.
    #[cold]
    fn lose(&mut self, now: Instant, mark: &mut impl FnMut(&mut Self, Mark)) {
        (self.replay, self.kernel) = (None, Kernel::default());
        self.users.clear();
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        jobs.into_iter().for_each(|job| self.tell(now, job, Turn::Lost, mark));
    }

    /// True once events were lost.
    pub(super) fn is_lost(&self) -> bool {
        self.replay.is_none()
    }

    pub(super) fn live(&mut self, job: JobId) -> Option<&mut Live> {
        self.jobs.get_mut(&job)
    }

    /// The job in a place of the dispatcher's table, and the epoch of its release.
    pub(super) fn at(&self, slot: Slot) -> Option<(JobId, usize)> {
        self.job(slot).map(|job| (job.id, usize::from(job.epoch)))
    }

    fn job(&self, slot: Slot) -> Option<&Job> {
        self.replay.as_ref()?.dispatcher().live_job(slot)
    }

    /// How urgent a job is that has entered the queue of `lane`, if that is known.
    pub(super) fn standing(&self, id: JobId, lane: u8) -> Option<Standing> {
        let Some(replay) = &self.replay else {
            let setting = self.system.setting(self.system.epoch_at(self.now), id.operation);
            let critical = self.system.operation(id.operation).critical || id.leg < setting.critical_legs;
            return self.is_plain.then_some(Standing { levels: [lane; 2], second: false, critical });
        };
        let dispatcher = replay.dispatcher();
        let second = dispatcher.strategy_in_force() == 1;
        dispatcher.waiting_job(id, lane).map(|Job { level, other, critical, .. }| {
            let levels = if second { [other.level, *level] } else { [*level, other.level] };
            Standing { levels, second, critical: *critical }
        })
    }

    /// Jobs that wait in queues now, if that is known.
    pub(super) fn waiting(&self) -> Option<usize> {
        Some(self.replay.as_ref()?.dispatcher().waiting())
    }

    /// Started jobs that wait for a resource while they keep their lane's token: the lane, the job, the resource.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (u8, JobId, ResourceId)> + '_ {
        self.users.iter().filter_map(|job| {
            let live = self.jobs.get(job).filter(|live| live.blocked)?;
            Some((live.lane, *job, self.next_resource(*job, live)?))
        })
    }

    // ---- time ----

    fn advance(&mut self, now: Instant, event: &Event, mark: &mut impl FnMut(&mut Self, Mark)) {
        // A simulation's overhead ends now. Switches may come a moment late: time never runs backwards here.
        if now <= self.now {
            return;
        }
        let from = std::mem::replace(&mut self.now, now);
        if self.exact && !self.users.is_empty() {
            self.note_blocked(from, mark);
        }
        let gap = matches!(event, Event::Seen(Seen::Gap));
        let (holder, slot) = if gap { (Holder::Unknown, None) } else { self.holder() };
        self.kernel.holder = slot;
        let overhead = match event {
            Event::Seen(Seen::Overhead { who, span }) if self.exact => {
                Some((*who, now.saturating_sub(*span).max(from)))
            }
            _ => None,
        };
        let until = overhead.map_or(now, |(_, since)| since);
        if !self.exact {
            self.past.slice(from, now, holder);
        }
        if until > from {
            mark(self, Mark::Slice { from, to: until, holder });
        }
        if let Some((who, since)) = overhead.filter(|(_, since)| *since < now) {
            mark(self, Mark::Slice { from: since, to: now, holder: Holder::Overhead(who) });
        }
    }

    /// Built-in work takes its resources at once, or waits for them: a simulation does not record the wait.
    fn note_blocked(&mut self, at: Instant, mark: &mut impl FnMut(&mut Self, Mark)) {
        for position in 0..self.users.len() {
            let job = self.users[position];
            let (Some(live), Some(replay)) = (self.jobs.get(&job), &self.replay) else { continue };
            let next = self.next_resource(job, live).zip(live.slot);
            let wants = next.filter(|(resource, slot)| !replay.dispatcher().holds(*slot, *resource));
            if wants.is_some() != live.blocked {
                let turn = wants.map_or(Turn::Unblocked, |(resource, _)| Turn::Blocked(resource));
                self.jobs.entry(job).and_modify(|live| live.blocked = !live.blocked);
                self.tell(at, job, turn, mark);
            }
        }
    }

    fn next_resource(&self, job: JobId, live: &Live) -> Option<ResourceId> {
        self.system.operation(job.operation).uses.get(live.sections).map(|(resource, _)| *resource)
    }

    /// Who has the CPU, as things are, and the place of the job that has it.
    fn holder(&self) -> (Holder, Option<Slot>) {
        let holder = match (self.switched, &self.replay) {
            (Some(Who::Idle), _) => Holder::Idle,
            (Some(Who::Other(name)), _) => Holder::Other(name),
            (Some(who @ (Who::Release | Who::Watchdog)), _) => Holder::Overhead(who),
            (Some(Who::Unknown), _) => Holder::Unknown,
            (switched, None) => self.inferred(switched),
            (Some(who @ (Who::Lane(_) | Who::Below)), Some(replay)) => return runs(replay, self.started(who)),
            (None, Some(replay)) => {
                let is_blocked = |job: JobId| self.jobs.get(&job).is_some_and(|live| live.blocked);
                let blocks = |slot| !self.users.is_empty() && is_blocked(replay.dispatcher().job(slot).id);
                let effects = replay.effects();
                let (best, level) = self.kernel.best_started(replay.dispatcher(), effects, blocks);
                match effects.startable.first().is_some_and(|lane| lane < level) {
                    true => Holder::Dispatch,
                    false if best.is_none() => Holder::Idle,
                    false => return runs(replay, best),
                }
            }
        };
        (holder, None)
    }

    /// Who has the CPU by the switches and the decisions since events were lost. A cap that gates or pauses may have let
    /// lanes go meanwhile.
    fn inferred(&self, switched: Option<Who>) -> Holder {
        let certain = self.is_plain && self.gate == OPEN && !self.pause;
        let job = switched.filter(|_| certain).and_then(|who| Some((self.started_job(who)?, who)));
        let Some((job, Who::Lane(lane))) = job else { return Holder::Unknown };
        let deadline = Instant::NEVER;
        Holder::Job(Runner { job, level: lane, lane, deadline, holds: None, raised: false, below: false })
    }

    // ---- started jobs, by the kernel's switches ----

    /// The started job whose thread `who` is, where the dispatcher is known.
    fn started(&self, who: Who) -> Option<Slot> {
        match who {
            Who::Lane(lane) => self.replay.as_ref()?.dispatcher().lanes().get(usize::from(lane))?.running,
            Who::Below => self.kernel.demoted.front().copied(),
            _ => None,
        }
    }

    fn started_job(&self, who: Who) -> Option<JobId> {
        match (&self.replay, who) {
            (None, Who::Lane(lane)) => self.lanes.get(usize::from(lane)).copied().flatten(),
            _ => self.started(who).and_then(|slot| self.job(slot)).map(|job| job.id),
        }
    }

    /// The thread that has the CPU gives it up by its own will: a started job blocks.
    ///
    /// The kernel marks switches away from threads that could have gone on (PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
    /// perf_event_open(2)). A thread that hands its lane's token to another one of the lane blocks as well, once the lane
    /// was given the next job: that is not the next job's doing. The other thread is ready and has the CPU at once.
    fn blocks(&mut self, now: Instant, to: Who, waits: Option<Wait>, mark: &mut impl FnMut(&mut Self, Mark)) {
        let Some(job) = self.switched.and_then(|who| self.started_job(who)) else { return };
        let Some(live) = self.jobs.get_mut(&job) else { return };
        let hands_over = self.switched == Some(to) && !live.came;
        if !hands_over {
            self.tell(now, job, Turn::Slept(waits), mark);
        }
    }

    /// `who` has the CPU from now on.
    fn comes(&mut self, now: Instant, who: Who, preempted: bool, mark: &mut impl FnMut(&mut Self, Mark)) {
        let Some(job) = self.started_job(who) else { return };
        let Some(live) = self.jobs.get_mut(&job) else { return };
        live.came = true;
        if live.asleep.is_some() {
            self.tell(now, job, Turn::Woke { preempted }, mark);
        }
    }

    /// Started jobs whose threads blocked: the lane, the job, what it waits for.
    pub(super) fn asleep(&self) -> impl Iterator<Item = (u8, JobId, Option<Wait>)> + '_ {
        let lanes = if self.switched.is_some() { self.lanes.len() as u8 } else { 0 };
        let running = (0..lanes).filter_map(|lane| self.started_job(Who::Lane(lane)));
        running.filter_map(|job| self.jobs.get(&job).and_then(|live| Some((live.lane, job, live.asleep?))))
    }

    // ---- the dispatcher's inputs ----

    fn input(&mut self, now: Instant, input: &Input, mark: &mut impl FnMut(&mut Self, Mark)) {
        match input {
            Input::Signal(signal) => self.arrivals.signal(signal),
            Input::Tick => self.arrivals.tick(),
            Input::Suspend { slot } => self.turn(now, *slot, Turn::Suspended, mark),
            Input::Resume { slot, .. } => self.turn(now, *slot, Turn::Resumed, mark),
            Input::Acquire { slot, .. }
                if self.live_at(*slot).is_some_and(|live| std::mem::take(&mut live.blocked)) =>
            {
                self.turn(now, *slot, Turn::Unblocked, mark);
            }
            Input::Release { slot, .. } => {
                if let Some(live) = self.live_at(*slot) {
                    live.sections = live.sections.saturating_add(1);
                }
            }
            // What follows from the others is in decisions.
            _ => {}
        }
    }

    fn live_at(&mut self, slot: Slot) -> Option<&mut Live> {
        let job = self.job(slot)?.id;
        self.jobs.get_mut(&job)
    }

    fn turn(&mut self, now: Instant, slot: Slot, turn: Turn, mark: &mut impl FnMut(&mut Self, Mark)) {
        if let Some(job) = self.job(slot).map(|job| job.id) {
            self.tell(now, job, turn, mark);
        }
    }

    // ---- what it decided ----

    fn decision(&mut self, now: Instant, decision: &Decision, mark: &mut impl FnMut(&mut Self, Mark)) {
        match decision {
            Decision::Hold { job, until } => {
                if let Some(live) = self.begin(now, *job) {
                    live.arrival.held_until = Some(*until);
                }
            }
            Decision::Ready { job, lane, .. } => {
                let lane = (*lane).min(self.lanes.len() as u8 - 1);
                let Some(live) = self.begin(now, *job) else { return };
                (live.lane, live.released) = (lane, true);
                self.hold_others(now, *job);
                self.tell(now, *job, Turn::Ready, mark);
            }
            Decision::Run { job, lane, slot, .. } => {
                if let (None, Some(known)) = (&self.replay, self.lanes.get_mut(usize::from(*lane))) {
                    *known = self.jobs.contains_key(job).then_some(*job);
                }
                let Some(live) = self.jobs.get_mut(job) else { return };
                (live.lane, live.came) = (*lane, false);
                let before = live.slot.replace(*slot);
                if before.is_none() && !self.system.operation(job.operation).uses.is_empty() {
                    self.users.push(*job);
                }
                self.tell(now, *job, Turn::Runs, mark);
            }
            Decision::Yield { job } => {
                let slot = self.jobs.get(job).and_then(|live| live.slot);
                let state = slot.and_then(|slot| self.job(slot)).map(|job| job.state);
                self.gives_token_up(*job);
                match state {
                    Some(JobState::Ready) => self.tell(now, *job, Turn::Yields, mark),
                    // One that blocks gives its token up too, and enters no queue.
                    Some(_) => {}
                    None => self.tell(now, *job, Turn::Lost, mark),
                }
            }
            Decision::Demote { job } => {
                let slot = self.jobs.get(job).and_then(|live| live.slot);
                self.kernel.demoted.extend(slot.filter(|_| self.replay.is_some()));
                self.gives_token_up(*job);
                self.tell(now, *job, Turn::Demoted, mark);
            }
            Decision::Gate { lane } => {
                self.gate = *lane;
                mark(self, Mark::Gate { lane: *lane });
            }
            Decision::Pause { on } => {
                self.pause = *on;
                mark(self, Mark::Pause { on: *on });
            }
            Decision::Switch { second } => mark(self, Mark::Switch { second: *second }),
            Decision::Epoch { .. } | Decision::Move { .. } | Decision::Overload | Decision::Relegate { .. } => {}
            // The law above takes what is known of a job that ends, and lets it be forgotten.
            Decision::Send(_) | Decision::End(_) => {}
        }
    }

    fn gives_token_up(&mut self, job: JobId) {
        self.lanes.iter_mut().filter(|known| **known == Some(job)).for_each(|known| *known = None);
    }

    /// The guard that let `job` go keeps those behind it for another period.
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

    fn tell(&mut self, at: Instant, job: JobId, turn: Turn, mark: &mut impl FnMut(&mut Self, Mark)) {
        let Some(live) = self.jobs.get_mut(&job) else { return };
        live.asleep = match turn {
            Turn::Slept(waits) => Some(waits),
            Turn::Blocked(_) | Turn::Unblocked => live.asleep,
            _ => None,
        };
        let lane = live.lane;
        mark(self, Mark::Turn { at, job, lane, turn });
    }

    /// A job in the recording, perhaps for the first time.
    fn begin(&mut self, now: Instant, job: JobId) -> Option<&mut Live> {
        let known = self.jobs.contains_key(&job);
        if !known && (self.jobs.len() >= MOST_LIVE || job.operation.index() >= self.system.operations.len()) {
            return None;
        }
        let arrival = if known { Arrival::default() } else { self.arrivals.of(self.system, now, job) };
        Some(self.jobs.entry(job).or_insert_with(|| Live { arrival, ..Live::default() }))
    }

    /// Forgets a job that has ended.
    pub(super) fn forget(&mut self, end: &JobEnd) -> Option<Live> {
        let live = self.jobs.remove(&end.job)?;
        if live.slot.is_some() {
            self.kernel.demoted.retain(|demoted| Some(*demoted) != live.slot);
            self.kernel.holder = self.kernel.holder.filter(|holder| Some(*holder) != live.slot);
            self.users.retain(|user| *user != end.job);
            self.gives_token_up(end.job);
        }
        Some(live)
    }
}

/// The job in this place has the CPU; without one a lane's thread is on its way to it.
fn runs(replay: &Replay<'_>, slot: Option<Slot>) -> (Holder, Option<Slot>) {
    let Some(slot) = slot else { return (Holder::Dispatch, None) };
    let (dispatcher, effects) = (replay.dispatcher(), replay.effects());
    let job = dispatcher.job(slot);
    let runner = Runner {
        job: job.id,
        level: job.level,
        lane: job.lane,
        deadline: job.deadline,
        holds: dispatcher.highest_held(slot),
        raised: dispatcher.effective_level(slot) < job.lane,
        below: job.state == JobState::Demoted || level(dispatcher, effects, slot) == BACKGROUND,
    };
    (Holder::Job(runner), Some(slot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_sched::{Plan, Strategies};

    #[test]
    fn a_job_that_is_held_and_run_again_and_again_takes_the_place_of_one() {
        let file = "name = \"x\"\n[processor.main]\n[resource.bus]\n[operation.one]\nevery = \"1ms\"\nwcet = \"0.1ms\"\n\
                    uses = { bus = \"0.05ms\" }\n";
        let system = hyoshi_model::read(file, "x.toml", None).unwrap().system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let mut cpu = Cpu::new(&system, &plan.processors[0], false);
        let job = JobId { operation: hyoshi_model::OperationId(0), number: 0, leg: 0 };
        for number in 0..100_000 {
            let now = Instant::from_nanos(number);
            let slot = Slot(number as u32 % 4);
            let hold = Decision::Hold { job, until: Instant::NEVER };
            let run = Decision::Run { job, lane: 0, slot, resumed: false };
            cpu.event(now, &Event::Decision(hold), |_, _| ());
            cpu.event(now, &Event::Decision(run), |_, _| ());
        }
        assert_eq!((cpu.jobs.len(), cpu.users.len()), (1, 1));
    }
}
