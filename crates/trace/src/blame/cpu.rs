//! Who has the CPU: a model of the kernel, fed with a recording. Of all started jobs that hold
//! their lane's token the most urgent runs; what was paused or demoted runs when nothing else
//! does. Where the recording tells of switches they replace the model.

use std::collections::{HashMap, HashSet, VecDeque};

use hyoshi_model::{Instant, JobId, OperationId, Preemption, ResourceId, System};

use super::arrival::{Arrival, Arrivals};
use super::marks::{Holder, Mark, Runner, Turn};
use super::past::Past;
use super::places::Places;
use crate::event::{Decision, Event, Input, JobEnd, Seen, Slot, Wait, Who};

/// Below every lane.
pub(super) const BACKGROUND: u8 = u8::MAX;

/// More live jobs than any file's queues can hold; an edited recording ends here.
const MOST_LIVE: usize = 1 << 20;

/// Where a live job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Ready,
    Running,
    Suspended,
    Demoted,
}

/// What is known of a live job.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub job: JobId,
    pub deadline: Instant,
    pub level: u8,
    /// Its level while the other strategy rules.
    pub other: u8,
    pub lane: u8,
    pub critical: bool,
    /// The epoch in force when it was first told of.
    epoch: usize,
    pub arrival: Arrival,
    /// What the account of it needs, kept by the law above.
    pub file: Option<Box<super::fold::File>>,
    state: State,
    slot: Option<Slot>,
    /// The level it runs at.
    runs_at: u8,
    held: Vec<ResourceId>,
    section: usize,
    in_section: bool,
    blocked: bool,
    /// A thread of its lane came to the CPU since the dispatcher chose it.
    came: bool,
    /// Its thread blocked, to wait for this, and has not come back.
    pub asleep: Option<Option<Wait>>,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// Who has its token.
    running: Option<u32>,
    /// Waiting critical and other jobs.
    waiting: [u32; 2],
}

/// Follows one processor, as told above.
#[derive(Debug)]
pub struct Cpu<'a> {
    system: &'a System,
    places: Places,
    /// A simulation: what is modelled is what was.
    exact: bool,
    pub(super) jobs: Vec<Option<Live>>,
    free: Vec<u32>,
    by_job: HashMap<JobId, u32>,
    by_slot: HashMap<Slot, u32>,
    lanes: Vec<Lane>,
    demoted: VecDeque<u32>,
    /// Running jobs that use resources.
    users: Vec<u32>,
    epoch: usize,
    gate: u8,
    /// Lanes that go on while the hard cap pauses all others, if it does.
    pause: Option<u64>,
    /// Operations whose later jobs are not critical: overload lasted.
    relegated: HashSet<OperationId>,
    /// Whether the second strategy rules.
    second: bool,
    now: Instant,
    current: Option<u32>,
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
    pub fn new(system: &'a System, places: Places, exact: bool) -> Self {
        Cpu {
            lanes: vec![Lane::default(); usize::from(places.lanes)],
            arrivals: Arrivals::new(system),
            system,
            places,
            exact,
            jobs: Vec::new(),
            free: Vec::new(),
            by_job: HashMap::new(),
            by_slot: HashMap::new(),
            demoted: VecDeque::new(),
            users: Vec::new(),
            epoch: 0,
            gate: u8::MAX,
            pause: None,
            relegated: HashSet::new(),
            second: false,
            now: Instant::ZERO,
            current: None,
            switched: None,
            waits: None,
            past: Past::default(),
        }
    }

    /// The next event. `mark` is told what follows from it, beginning with who had the CPU until now.
    pub fn event(&mut self, now: Instant, event: &Event, mut mark: impl FnMut(&mut Self, Mark)) {
        self.advance(now, event, &mut mark);
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
            Event::Seen(Seen::Overhead { .. } | Seen::Used { .. }) => {}
        }
    }

    /// The epoch in force.
    pub fn epoch(&self) -> usize {
        self.epoch
    }

    /// True while the hard cap pauses lanes.
    pub fn pauses(&self) -> bool {
        self.pause.is_some()
    }

    /// The lanes whose running jobs hold a resource.
    fn holding(&self) -> u64 {
        let running = self.lanes.iter().filter_map(|lane| self.jobs[lane.running? as usize].as_ref());
        running.filter(|live| !live.held.is_empty()).fold(0, |lanes, live| lanes | bit(live.lane))
    }

    /// True if the hard cap has a lane below ordinary threads.
    fn is_paused(&self, lane: u8) -> bool {
        self.pause.is_some_and(|spared| spared & bit(lane) == 0)
    }

    /// The first lane that the cap gates; 255 if none.
    pub fn gate(&self) -> u8 {
        self.gate
    }

    /// The places of this processor's jobs.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Jobs that wait in queues now.
    pub fn waiting(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.waiting[0] + lane.waiting[1]).sum()
    }

    /// Started jobs that wait for a resource while they keep their lane's token: the lane, the job, the resource.
    pub(super) fn blocked(&self) -> impl Iterator<Item = (u8, JobId, ResourceId)> + '_ {
        self.users.iter().filter_map(|index| self.jobs[*index as usize].as_ref()).filter_map(|live| {
            let resource = live.blocked.then(|| self.next_resource(live)).flatten()?;
            Some((live.lane, live.job, resource))
        })
    }

    /// The started job in a place of the dispatcher's table, and the epoch in which it came.
    pub(super) fn at(&mut self, slot: Slot) -> Option<(JobId, usize)> {
        self.at_slot(slot).map(|live| (live.job, live.epoch))
    }

    pub(super) fn live(&mut self, job: JobId) -> Option<&mut Live> {
        let index = *self.by_job.get(&job)?;
        self.jobs[index as usize].as_mut()
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
        let holder = if let Event::Seen(Seen::Gap) = event { self.nobody(Holder::Unknown) } else { self.holder() };
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

    /// Built-in work takes its resources at once, or waits for them: a simulation tells nothing of the wait itself.
    fn note_blocked(&mut self, at: Instant, mark: &mut impl FnMut(&mut Self, Mark)) {
        for position in 0..self.users.len() {
            let index = self.users[position] as usize;
            let Some(live) = &self.jobs[index] else { continue };
            let wants = if live.in_section { None } else { self.next_resource(live) };
            let (job, lane, before) = (live.job, live.lane, live.blocked);
            if wants.is_some() != before {
                if let Some(live) = &mut self.jobs[index] {
                    live.blocked = wants.is_some();
                }
                let turn = wants.map_or(Turn::Unblocked, Turn::Blocked);
                mark(self, Mark::Turn { at, job, lane, turn });
            }
        }
    }

    fn next_resource(&self, live: &Live) -> Option<ResourceId> {
        self.system.operation(live.job.operation).uses.get(live.section).map(|(resource, _)| *resource)
    }

    /// Who has the CPU, as things are.
    fn holder(&mut self) -> Holder {
        match self.switched {
            Some(Who::Idle) => return self.nobody(Holder::Idle),
            Some(Who::Other(name)) => return self.nobody(Holder::Other(name)),
            Some(Who::Unknown) => return self.nobody(Holder::Unknown),
            Some(who @ (Who::Release | Who::Watchdog)) => return self.nobody(Holder::Overhead(who)),
            Some(Who::Lane(lane)) => {
                let running = self.lanes.get(usize::from(lane)).and_then(|lane| lane.running);
                let paused =
                    running.and_then(|index| self.jobs[index as usize].as_ref()).is_some_and(|live| self.paused(live));
                return self.runs(running, paused);
            }
            Some(Who::Below) => return self.runs(self.demoted.front().copied(), true),
            None => {}
        }
        let (best, level) = self.best_started();
        let pending = self.lanes.iter().enumerate().find(|(lane, state)| {
            let open = (*lane as u8) < self.gate;
            self.pause.is_none() && state.running.is_none() && (state.waiting[0] > 0 || (open && state.waiting[1] > 0))
        });
        if pending.is_some_and(|(lane, _)| (lane as u8) < level) {
            return self.nobody(Holder::Dispatch);
        }
        match best {
            Some(_) => self.runs(best, level == BACKGROUND),
            None => self.nobody(Holder::Idle),
        }
    }

    fn nobody(&mut self, holder: Holder) -> Holder {
        self.current = None;
        holder
    }

    fn runs(&mut self, index: Option<u32>, below: bool) -> Holder {
        self.current = index;
        let Some(live) = index.and_then(|index| self.jobs[index as usize].as_ref()) else { return Holder::Dispatch };
        let ceiling = |resource: &&ResourceId| self.places.ceiling(**resource);
        Holder::Job(Runner {
            job: live.job,
            level: live.level,
            lane: live.lane,
            deadline: live.deadline,
            holds: live.held.iter().min_by_key(ceiling).copied(),
            raised: live.runs_at < live.lane,
            below,
        })
    }

    /// The started job that the kernel would run, and its level; as `sim` models it.
    fn best_started(&self) -> (Option<u32>, u8) {
        let mut best = (None, BACKGROUND, false);
        for index in self.lanes.iter().filter_map(|lane| lane.running) {
            let Some(live) = self.jobs[index as usize].as_ref().filter(|live| !live.blocked) else { continue };
            let level = if self.paused(live) { BACKGROUND } else { live.runs_at };
            // Of equal priorities the one that runs goes on.
            let runs = self.current == Some(index);
            if best.0.is_none() || level < best.1 || (level == best.1 && runs && !best.2) {
                best = (Some(index), level, runs);
            }
        }
        (best.0.or(self.demoted.front().copied()), best.1)
    }

    /// A cap has it below the lanes; the soft one not while it holds a resource that a more urgent one may need.
    fn paused(&self, live: &Live) -> bool {
        let gated = live.lane >= self.gate && !self.places.is_critical_lane(live.lane);
        self.is_paused(live.lane) || (gated && live.runs_at >= live.lane)
    }

    // ---- what the kernel's switches tell of started jobs ----

    /// The started job whose thread `who` is.
    fn started(&self, who: Who) -> Option<u32> {
        match who {
            Who::Lane(lane) => self.lanes.get(usize::from(lane))?.running,
            Who::Below => self.demoted.front().copied(),
            _ => None,
        }
    }

    /// The thread that has the CPU gives it up by its own will: a started job blocks.
    ///
    /// The kernel marks switches away from threads that could have gone on (PERF_RECORD_MISC_SWITCH_OUT_PREEMPT,
    /// perf_event_open(2)). A thread that hands its lane's token to another one of the lane blocks as well, once the lane
    /// was given the next job: that is not the next job's doing. The other thread is ready and has the CPU at once.
    fn blocks(&mut self, now: Instant, to: Who, waits: Option<Wait>, mark: &mut impl FnMut(&mut Self, Mark)) {
        let Some(index) = self.switched.and_then(|who| self.started(who)) else { return };
        let Some(live) = &mut self.jobs[index as usize] else { return };
        let hands_over = self.switched == Some(to) && !live.came;
        if !hands_over {
            live.asleep = Some(waits);
            self.tell(now, index, Turn::Slept(waits), mark);
        }
    }

    /// `who` has the CPU from now on.
    fn comes(&mut self, now: Instant, who: Who, preempted: bool, mark: &mut impl FnMut(&mut Self, Mark)) {
        let Some(index) = self.started(who) else { return };
        let Some(live) = &mut self.jobs[index as usize] else { return };
        live.came = true;
        if live.asleep.take().is_some() {
            self.tell(now, index, Turn::Woke { preempted }, mark);
        }
    }

    /// Started jobs whose threads blocked: the lane, the job, what it waits for.
    pub(super) fn asleep(&self) -> impl Iterator<Item = (u8, JobId, Option<Wait>)> + '_ {
        let running = self.lanes.iter().filter_map(|lane| self.jobs[lane.running? as usize].as_ref());
        running.filter_map(|live| live.asleep.map(|waits| (live.lane, live.job, waits)))
    }

    // ---- what the dispatcher was told ----

    fn input(&mut self, now: Instant, input: &Input, mark: &mut impl FnMut(&mut Self, Mark)) {
        match input {
            Input::Signal(signal) => self.arrivals.signal(self.system, now, signal),
            Input::Tick => self.arrivals.tick(now),
            Input::Suspend { slot } => self.turn(now, *slot, State::Suspended, Turn::Suspended, mark),
            Input::Resume { slot, .. } => self.turn(now, *slot, State::Ready, Turn::Resumed, mark),
            Input::Acquire { slot, resource } => {
                let unblocked = self.at_slot(*slot).map(|live| {
                    live.in_section = true;
                    if live.held.len() < 64 {
                        live.held.push(*resource);
                    }
                    (live.job, live.lane, std::mem::take(&mut live.blocked))
                });
                self.level_anew(*slot);
                if let Some((job, lane, true)) = unblocked {
                    mark(self, Mark::Turn { at: now, job, lane, turn: Turn::Unblocked });
                }
            }
            Input::Release { slot, resource } => {
                let lane = self.at_slot(*slot).map_or(u8::MAX, |live| live.lane);
                let by_slot = self.by_slot.get(slot).copied();
                if let Some(live) = by_slot.and_then(|index| self.jobs.get_mut(index as usize)?.as_mut()) {
                    (live.in_section, live.section) = (false, live.section.saturating_add(1));
                    if let Some(position) = live.held.iter().rposition(|held| held == resource) {
                        live.held.remove(position);
                    }
                    if let (true, Some(spared)) = (live.held.is_empty(), &mut self.pause) {
                        *spared &= !bit(lane);
                    }
                }
                self.level_anew(*slot);
            }
            Input::LaneRuns { .. } | Input::Complete { .. } | Input::Observe { .. } | Input::Close => {}
        }
    }

    fn at_slot(&mut self, slot: Slot) -> Option<&mut Live> {
        let index = *self.by_slot.get(&slot)?;
        self.jobs[index as usize].as_mut()
    }

    fn level_anew(&mut self, slot: Slot) {
        let Some(index) = self.by_slot.get(&slot).copied() else { return };
        let Some(live) = &self.jobs[index as usize] else { return };
        let ceilings = live.held.iter().filter_map(|resource| self.places.ceiling(*resource));
        let level = ceilings.fold(live.level, u8::min);
        if let Some(live) = &mut self.jobs[index as usize] {
            live.runs_at = level;
        }
    }

    fn turn(&mut self, now: Instant, slot: Slot, to: State, turn: Turn, mark: &mut impl FnMut(&mut Self, Mark)) {
        let Some(index) = self.by_slot.get(&slot).copied() else { return };
        self.enter(index, to);
        self.tell(now, index, turn, mark);
    }

    // ---- what it decided ----

    fn decision(&mut self, now: Instant, decision: &Decision, mark: &mut impl FnMut(&mut Self, Mark)) {
        match decision {
            Decision::Epoch { index } => {
                self.epoch = usize::from(*index).min(self.system.epochs.len().saturating_sub(1));
            }
            Decision::Hold { job, until } => {
                let known = self.by_job.get(job).copied();
                let Some(index) = known.or_else(|| self.begin(now, *job)) else { return };
                if let Some(live) = &mut self.jobs[index as usize] {
                    live.arrival.held_until = Some(*until);
                }
            }
            Decision::Ready { job, deadline, lane, .. } => {
                let known = self.by_job.get(job).copied();
                let Some(index) = known.or_else(|| self.begin(now, *job)) else { return };
                let lane = (*lane).min(self.places.lanes.saturating_sub(1));
                if let Some(live) = &mut self.jobs[index as usize] {
                    (live.deadline, live.lane, live.runs_at) = (*deadline, lane, lane);
                    // Where each level has its lane, the lane tells whichever strategy rules.
                    if self.places.lanes > 1 {
                        (live.level, live.other) = (lane, lane);
                    }
                }
                self.enter(index, State::Ready);
                self.hold_others(now, *job);
                self.tell(now, index, Turn::Ready, mark);
            }
            Decision::Run { job, lane, slot, resumed } => {
                let Some(index) = self.by_job.get(job).copied() else { return };
                let uses = !self.system.operation(job.operation).uses.is_empty();
                // A strategy's switch may have moved it to another lane while it waited.
                self.enter(index, State::Held);
                let mut before = None;
                if let Some(live) = &mut self.jobs[index as usize] {
                    live.lane = (*lane).min(self.places.lanes.saturating_sub(1));
                    live.came = false;
                    if !resumed {
                        before = live.slot.replace(*slot);
                        live.runs_at = live.lane;
                    }
                }
                if !resumed {
                    match before {
                        // Nothing runs for the first time twice, but in an edited recording.
                        Some(before) => drop(self.by_slot.remove(&before)),
                        None if uses => self.users.push(index),
                        None => {}
                    }
                    self.by_slot.insert(*slot, index);
                }
                self.enter(index, State::Running);
                self.tell(now, index, Turn::Runs, mark);
            }
            Decision::Yield { job } => {
                let Some(index) = self.by_job.get(job).copied() else { return };
                // One that blocks gives its token up too, and enters no queue.
                if self.jobs[index as usize].as_ref().is_some_and(|live| live.state == State::Running) {
                    self.enter(index, State::Ready);
                    self.tell(now, index, Turn::Yields, mark);
                }
            }
            Decision::Demote { job } => {
                let Some(index) = self.by_job.get(job).copied() else { return };
                self.enter(index, State::Demoted);
                self.demoted.push_back(index);
                self.tell(now, index, Turn::Demoted, mark);
            }
            Decision::Gate { lane } => {
                self.gate = *lane;
                mark(self, Mark::Gate { lane: *lane });
            }
            Decision::Overload => {}
            Decision::Relegate { operation } => drop(self.relegated.insert(*operation)),
            Decision::Pause { on } => {
                self.pause = on.then(|| self.holding());
                mark(self, Mark::Pause { on: *on });
            }
            Decision::Move { job, lane } => {
                let Some(index) = self.by_job.get(job).copied() else { return };
                let lane = (*lane).min(self.places.lanes.saturating_sub(1));
                self.enter(index, State::Held);
                if let Some(live) = &mut self.jobs[index as usize] {
                    (live.lane, live.runs_at) = (lane, lane);
                    if self.places.lanes > 1 {
                        (live.level, live.other) = (lane, lane);
                    }
                }
                self.enter(index, State::Ready);
            }
            // What it moves to other lanes is told job by job; in one lane for all nothing is.
            Decision::Switch { second } if *second != self.second => {
                self.second = *second;
                for live in self.jobs.iter_mut().flatten().filter(|live| live.slot.is_none()) {
                    core::mem::swap(&mut live.level, &mut live.other);
                }
                mark(self, Mark::Switch);
            }
            Decision::Switch { .. } => {}
            // The law above takes what is known of a job that ends, and lets it be forgotten.
            Decision::Send(_) | Decision::End(_) => {}
        }
    }

    /// The guard that let `job` go keeps those behind it for another period.
    fn hold_others(&mut self, now: Instant, job: JobId) {
        if self.system.operation(job.operation).guard == hyoshi_model::Guard::Off {
            return;
        }
        let until = now.saturating_add(self.system.setting(self.epoch, job.operation).period);
        let behind = |live: &&mut Live| live.state == State::Held && live.job.operation == job.operation;
        for live in self.jobs.iter_mut().flatten().filter(behind) {
            live.arrival.held_until = live.arrival.held_until.map(|held| held.max(until));
        }
    }

    fn tell(&mut self, at: Instant, index: u32, turn: Turn, mark: &mut impl FnMut(&mut Self, Mark)) {
        if let Some((job, lane)) = self.jobs[index as usize].as_ref().map(|live| (live.job, live.lane)) {
            mark(self, Mark::Turn { at, job, lane, turn });
        }
    }

    /// A job that the recording tells of for the first time.
    fn begin(&mut self, now: Instant, job: JobId) -> Option<u32> {
        let full = self.free.is_empty() && self.jobs.len() >= MOST_LIVE;
        if full || job.operation.index() >= self.system.operations.len() {
            return None;
        }
        let (critical, first) = self.places.of(self.system, self.epoch, job);
        let critical = critical && !self.relegated.contains(&job.operation);
        let second = self.places.second_of(self.system, self.epoch, job);
        let (level, other) = if self.second { (second, first) } else { (first, second) };
        let live = Live {
            job,
            deadline: Instant::NEVER,
            level,
            other,
            lane: self.places.lane_of(level),
            critical,
            epoch: self.epoch,
            arrival: self.arrivals.of(self.system, now, job),
            file: None,
            state: State::Held,
            slot: None,
            runs_at: level,
            held: Vec::new(),
            section: 0,
            in_section: false,
            blocked: false,
            came: false,
            asleep: None,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.jobs[index as usize] = Some(live);
                index
            }
            None => {
                self.jobs.push(Some(live));
                self.jobs.len() as u32 - 1
            }
        };
        self.by_job.insert(job, index);
        Some(index)
    }

    /// Forgets a job that has ended.
    pub(super) fn forget(&mut self, end: &JobEnd) -> Option<Live> {
        let index = self.by_job.remove(&end.job)?;
        self.leave(index);
        if self.current == Some(index) {
            self.current = None;
        }
        let live = self.jobs[index as usize].take()?;
        if let Some(slot) = live.slot.filter(|slot| self.by_slot.get(slot) == Some(&index)) {
            self.by_slot.remove(&slot);
        }
        self.users.retain(|user| *user != index);
        self.free.push(index);
        Some(live)
    }

    /// Takes a job out of where it is.
    fn leave(&mut self, index: u32) {
        let Some(live) = &self.jobs[index as usize] else { return };
        let lane = &mut self.lanes[usize::from(live.lane)];
        match live.state {
            State::Ready => {
                let waiting = &mut lane.waiting[usize::from(!live.critical)];
                *waiting = waiting.saturating_sub(1);
            }
            State::Running if lane.running == Some(index) => lane.running = None,
            State::Demoted => self.demoted.retain(|demoted| *demoted != index),
            State::Held | State::Suspended | State::Running => {}
        }
    }

    fn enter(&mut self, index: u32, state: State) {
        self.leave(index);
        let Some(live) = &mut self.jobs[index as usize] else { return };
        (live.state, live.asleep) = (state, None);
        let lane = &mut self.lanes[usize::from(live.lane)];
        match state {
            State::Ready => lane.waiting[usize::from(!live.critical)] += 1,
            State::Running => lane.running = Some(index),
            State::Held | State::Suspended | State::Demoted => {}
        }
    }
}

/// True if a started job of a lane gives way to a better one there.
pub(super) fn preempts_within(places: &Places) -> bool {
    places.preemption == Preemption::Full
}

/// A lane in a set of lanes; one that no processor has is in none.
fn bit(lane: u8) -> u64 {
    1u64.checked_shl(u32::from(lane)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_is_held_and_run_again_and_again_takes_the_place_of_one() {
        let file = "name = \"x\"\n[processor.main]\n[resource.bus]\n[operation.one]\nevery = \"1ms\"\nwcet = \"0.1ms\"\n\
                    uses = { bus = \"0.05ms\" }\n";
        let system = hyoshi_model::read(file, "x.toml", None).unwrap().system;
        let places = Places {
            preemption: Preemption::Levels,
            lanes: 1,
            critical: vec![false],
            levels: vec![vec![Some((0, 0))]],
            second: vec![],
            ceilings: vec![Some(0)],
        };
        let mut cpu = Cpu::new(&system, places, false);
        let job = JobId { operation: hyoshi_model::OperationId(0), number: 0, leg: 0 };
        for number in 0..100_000 {
            let now = Instant::from_nanos(number);
            let slot = Slot(number as u32 % 4);
            let hold = Decision::Hold { job, until: Instant::NEVER };
            let run = Decision::Run { job, lane: 0, slot, resumed: false };
            cpu.event(now, &Event::Decision(hold), |_, _| ());
            cpu.event(now, &Event::Decision(run), |_, _| ());
        }
        assert_eq!((cpu.jobs.len(), cpu.by_job.len(), cpu.by_slot.len(), cpu.users.len()), (1, 1, 1, 1));
    }
}
