//! The end-to-end time of a chain by stage. A stage is an operation of the path, with the hop to it from the stage
//! before.
//!
//! ```text
//! input                                                                                                  output
//!   │ release │ queue, execution │ network │ release │ guard │ queue, execution │ release ... │ execution │
//!   └────── first stage ─────────┴────────────── second stage ──────────────────┴───────── third ─────────┘
//! ```
//!
//! - **network**: from the end of the stage before to the arrival of its signal on this processor. Only stages on
//!   another processor than that of the stage before have it.
//! - **release**: from there to the lane's queue, without the guard: jitter and late timers, the file's offset, the
//!   other predecessors of a join. For an operation that reads, it is the wait for the flush to its replica and for its
//!   next release.
//! - **guard**: the time that the release guard holds the job back.
//! - **queue**: the time in the lane's queue before the start, and preempted or blocked after it.
//! - **execution**: CPU time.
//!
//! The sum of an output's parts is exactly its latency. If clocks of hosts disagree, a part that would be negative is
//! zero, and the next part is shorter.
//!
//! Ends of different processors may arrive in any order, up to a tenth of a second apart, because a run reads the
//! events of one processor after those of another. An output with a missing event is left out.
//!
//! All memory is allocated before the first event, and it is bounded: if the stages of a chain do not fit, they are not
//! recorded.

use hyoshi_model::{Chain, Guard, Instant, JobId, OperationId, Span, System, Trigger};

use super::chain::StageInput;
use super::distribution::Distribution;
use crate::event::{JobEnd, Signal};

/// A part of the time of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StagePart {
    /// From the end of the stage before to the arrival of its signal.
    Network,
    /// From there to the queue, without the guard.
    Release,
    /// The time that the release guard holds the job back.
    Guard,
    /// From the queue to the end, without the execution.
    Queue,
    /// CPU time.
    Execution,
}

impl StagePart {
    /// All parts, in the order of time.
    pub const ALL: [StagePart; 5] =
        [StagePart::Network, StagePart::Release, StagePart::Guard, StagePart::Queue, StagePart::Execution];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            StagePart::Network => "network",
            StagePart::Release => "release",
            StagePart::Guard => "guard",
            StagePart::Queue => "queue",
            StagePart::Execution => "execution",
        }
    }
}

/// The time that the outputs of a chain spent in one stage.
#[derive(Clone, Debug)]
pub struct StageStats {
    /// By part; `None` if the stage cannot have the part: without another processor, or without a guard.
    parts: [Option<Distribution<Span>>; 5],
    /// From the chain's input to the end of the stage.
    pub by: Distribution<Span>,
    /// Its parts in the slowest output.
    slowest: [Span; 5],
}

impl StageStats {
    /// The distribution of a part over all outputs; `None` if the stage cannot have it.
    pub fn part(&self, part: StagePart) -> Option<&Distribution<Span>> {
        self.parts[part as usize].as_ref()
    }

    /// The part in the slowest output; if several are equally slow, in the first.
    pub fn slowest(&self, part: StagePart) -> Span {
        self.slowest[part as usize]
    }
}

/// How many instances may wait for their last event, in addition to those of a tenth of a second.
const WAITING: u64 = 64;

/// The maximum number of waiting instances.
const MOST_WAITING: u64 = 1_024;

/// The events of one processor may follow those of another by up to this time.
const APART: Span = Span::from_millis(100);

/// How many stages of all chains have statistics; for many stages each needs about 12 kB.
const MOST_STAGES: usize = 5_000;

/// Bytes of the waiting instances of all chains.
const MOST_BYTES: usize = 64 << 20;

/// The memory for the stages of further chains.
#[derive(Debug)]
pub(super) struct StageRoom {
    stages: usize,
    bytes: usize,
}

impl Default for StageRoom {
    fn default() -> Self {
        StageRoom { stages: MOST_STAGES, bytes: MOST_BYTES }
    }
}

/// The stages of one chain, and the instances that are not complete.
#[derive(Clone, Debug)]
pub(super) struct ChainTimes {
    stages: Vec<StagePlace>,
    segments: Vec<ChainSegment>,
    /// The instance of each segment that led to an output; a buffer.
    walked: Vec<usize>,
}

/// A stage in its path.
#[derive(Clone, Copy, Debug)]
struct StagePlace {
    segment: usize,
    /// The operation before it, if its signal arrives from another processor.
    from: Option<OperationId>,
}

/// Stages that trigger each other: their jobs have the same number.
#[derive(Clone, Debug)]
struct ChainSegment {
    /// Its first stage.
    first: usize,
    instances: Vec<ChainInstance>,
    /// By instance, then by stage.
    times: Vec<StageTimes>,
    stages: usize,
}

#[derive(Clone, Copy, Debug)]
struct ChainInstance {
    number: u64,
    /// The begin of the chain's time.
    input: Instant,
    /// The number of the instance of the segment before that it reads.
    before: Option<u64>,
}

/// The events of one job of an instance.
#[derive(Clone, Copy, Debug)]
struct StageTimes {
    arrived: Instant,
    held: Instant,
    offset: Span,
    ready: Instant,
    executed: Span,
    end: Instant,
}

const NO_TIMES: StageTimes = StageTimes {
    arrived: Instant::NEVER,
    held: Instant::NEVER,
    offset: Span::ZERO,
    ready: Instant::NEVER,
    executed: Span::ZERO,
    end: Instant::NEVER,
};

const NO_INSTANCE: ChainInstance = ChainInstance { number: 0, input: Instant::NEVER, before: None };

impl ChainTimes {
    /// Without instances: [`allocate`](Self::allocate) adds them. `None` if the chain has one stage only, or if numbers
    /// do not identify the jobs of an instance, because a join numbers its jobs independently, or the first of several
    /// copies leads on.
    pub fn new(system: &System, chain: &Chain, sources: &[StageInput]) -> Option<ChainTimes> {
        if chain.path.len() < 2 {
            return None;
        }
        let (mut stages, mut segments) = (Vec::new(), Vec::<ChainSegment>::new());
        for (position, (id, source)) in chain.path.iter().zip(sources).enumerate() {
            let triggered = position > 0 && !matches!(source, StageInput::Latest | StageInput::Replica(_));
            if !triggered {
                segments.push(ChainSegment { first: position, instances: Vec::new(), times: Vec::new(), stages: 0 });
            }
            // Another copy may end before the one on the path.
            if triggered && matches!(system.operation(*id).trigger, Trigger::First(_)) {
                return None;
            }
            if let (true, Trigger::All(all)) = (triggered, &system.operation(*id).trigger)
                && all.len() > 1
                && !system.numbered_by_root(*id)
            {
                return None;
            }
            let from = triggered.then(|| chain.path[position - 1]);
            let crosses = |from: &OperationId| system.operation(*from).on != system.operation(*id).on;
            stages.push(StagePlace { segment: segments.len() - 1, from: from.filter(crosses) });
            segments.last_mut()?.stages += 1;
        }
        let walked = Vec::with_capacity(segments.len());
        Some(ChainTimes { stages, segments, walked })
    }

    /// Allocates its instances; false if there is no room for the chain.
    pub fn allocate(&mut self, system: &System, chain: &Chain, room: &mut StageRoom) -> bool {
        if self.stages.len() > room.stages {
            return false;
        }
        let waiting = |segment: &ChainSegment| {
            let operation = chain.path[segment.first].index();
            let periods = system.epochs.iter().map(|epoch| epoch.settings[operation].period.as_nanos());
            let meanwhile = APART.as_nanos() / periods.min().unwrap_or(u64::MAX).max(1);
            (WAITING + meanwhile).min(MOST_WAITING) as usize
        };
        let counts: Vec<usize> = self.segments.iter().map(waiting).collect();
        let of_one = |segment: &ChainSegment| {
            size_of::<ChainInstance>() + segment.stages.saturating_mul(size_of::<StageTimes>())
        };
        let bytes = self.segments.iter().zip(&counts).map(|(segment, count)| of_one(segment).saturating_mul(*count));
        let Some(rest) = room.bytes.checked_sub(bytes.fold(0, usize::saturating_add)) else { return false };
        (room.stages, room.bytes) = (room.stages - self.stages.len(), rest);
        for (segment, count) in self.segments.iter_mut().zip(counts) {
            segment.instances = vec![NO_INSTANCE; count];
            segment.times = vec![NO_TIMES; count * segment.stages];
        }
        true
    }

    /// Empty statistics of its stages, for latencies up to `longest`.
    pub fn stats(&self, system: &System, chain: &Chain, longest: Span, digits: u8) -> Vec<StageStats> {
        let empty = || Distribution::new(FINEST, longest, Span::ZERO, digits);
        let stage = |(id, place): (&OperationId, &StagePlace)| StageStats {
            parts: StagePart::ALL.map(|part| match part {
                StagePart::Network => place.from.is_some().then(empty),
                StagePart::Guard => (system.operation(*id).guard != Guard::Off).then(empty),
                StagePart::Release | StagePart::Queue | StagePart::Execution => Some(empty()),
            }),
            by: empty(),
            slowest: [Span::ZERO; 5],
        };
        chain.path.iter().zip(&self.stages).map(stage).collect()
    }

    /// Records the arrival of the signal from the stage before.
    pub fn arrived(&mut self, position: usize, signal: &Signal, at: Instant) {
        if self.stages[position].from == Some(signal.from)
            && let Some(times) = self.times(position, signal.number)
        {
            times.arrived = at;
        }
    }

    /// Records that a guard or an offset holds the job back from now on.
    pub fn held(&mut self, position: usize, job: JobId, at: Instant) {
        if let Some(times) = self.times(position, job.number) {
            times.held = at;
        }
    }

    /// Records the end of a job: of a leg, or of the last leg.
    pub fn ended(&mut self, position: usize, source: StageInput, end: &JobEnd, offset: Span, last_leg: bool) {
        let input = match source {
            StageInput::Origin => Some(end.origin),
            StageInput::Release => Some(end.release),
            StageInput::SameNumber | StageInput::Latest | StageInput::Replica(_) => None,
        };
        let Some(times) = self.times(position, end.job.number) else { return };
        if end.job.leg == 0 {
            times.ready = end.ready;
            // If the first operation is not a root, the chain's time begins after its offset.
            times.offset = if matches!(source, StageInput::Release) { Span::ZERO } else { offset };
        }
        times.executed = super::counts::plus(times.executed, end.consumed);
        if last_leg {
            times.end = end.end;
        }
        let segment = &mut self.segments[self.stages[position].segment];
        if let (Some(input), 0) = (input, segment.first) {
            let at = segment.place(end.job.number);
            segment.instances[at].input = input;
        }
    }

    /// Call this when the last leg of this job has ended and was recorded. `before` is the instance that the job reads.
    /// If an output is complete, its parts are recorded.
    pub fn completed(&mut self, position: usize, number: u64, before: Option<u64>, stats: &mut [StageStats]) {
        let last = self.segments.len() - 1;
        let at = self.stages[position].segment;
        let segment = &mut self.segments[at];
        let place = segment.place(number);
        if segment.instances[place].number != number {
            return;
        }
        if before.is_some() {
            segment.instances[place].before = before;
        }
        if at == last {
            self.output(number, stats);
        }
    }

    fn times(&mut self, position: usize, number: u64) -> Option<&mut StageTimes> {
        let segment = &mut self.segments[self.stages[position].segment];
        segment.times_of(number, position - segment.first)
    }

    /// Records the output that ends with this instance of the last segment, if all its events are known.
    fn output(&mut self, number: u64, stats: &mut [StageStats]) {
        self.walked.clear();
        let mut wanted = Some(number);
        for segment in self.segments.iter().rev() {
            let Some(number) = wanted else { return };
            let place = segment.place(number);
            let whole = segment.of(place).iter().zip(&self.stages[segment.first..]).all(|(times, stage)| {
                times.end != Instant::NEVER
                    && times.ready != Instant::NEVER
                    && (stage.from.is_none() || times.arrived != Instant::NEVER)
            });
            if segment.instances[place].number != number || !whole {
                return;
            }
            self.walked.push(place);
            wanted = segment.instances[place].before;
        }
        let places = || self.segments.iter().zip(self.walked.iter().rev());
        let input = places().next().map_or(Instant::NEVER, |(segment, place)| segment.instances[*place].input);
        let finish = places().next_back().and_then(|(segment, place)| segment.of(*place).last()).map(|times| times.end);
        let Some(finish) = finish.filter(|finish| input <= *finish) else { return };
        let slowest =
            stats.last().and_then(|stage| stage.by.extent().most()).is_none_or(|most| most < finish.since(input));
        let times = places().flat_map(|(segment, place)| segment.of(*place));
        let mut at = input;
        for ((times, place), stats) in times.zip(&self.stages).zip(stats) {
            let mut parts = [Span::ZERO; 5];
            times.divide(place.from.is_some(), finish, &mut at, &mut parts);
            for (distribution, part) in stats.parts.iter_mut().zip(parts) {
                if let Some(distribution) = distribution {
                    distribution.record(part);
                }
            }
            stats.by.record(at.since(input));
            if slowest {
                stats.slowest = parts;
            }
        }
    }
}

/// The resolution of the parts.
const FINEST: Span = Span::from_nanos(1);

impl ChainSegment {
    fn place(&self, number: u64) -> usize {
        (number % self.instances.len() as u64) as usize
    }

    fn of(&self, place: usize) -> &[StageTimes] {
        &self.times[place * self.stages..][..self.stages]
    }

    /// The events of a job. A newer instance replaces an old one; `None` for a replaced instance.
    fn times_of(&mut self, number: u64, stage: usize) -> Option<&mut StageTimes> {
        let place = self.place(number);
        let instance = &mut self.instances[place];
        if instance.number < number {
            *instance = ChainInstance { number, ..NO_INSTANCE };
            self.times[place * self.stages..][..self.stages].fill(NO_TIMES);
        }
        (instance.number == number).then(|| &mut self.times[place * self.stages + stage])
    }
}

impl StageTimes {
    /// Divides the time from `at` to the end of the job, and moves `at` there. Nothing is later than `finish`.
    fn divide(&self, crosses: bool, finish: Instant, at: &mut Instant, parts: &mut [Span; 5]) {
        let mut until = |part: StagePart, to: Instant| {
            let to = to.min(finish).max(*at);
            parts[part as usize] += to.since(*at);
            *at = to;
        };
        if crosses {
            until(StagePart::Network, self.arrived);
        }
        if self.held != Instant::NEVER {
            until(StagePart::Release, self.held.saturating_add(self.offset).min(self.ready));
            until(StagePart::Guard, self.ready);
        }
        until(StagePart::Release, self.ready);
        let whole = self.end.min(finish).max(*at).since(*at);
        let executed = self.executed.min(whole);
        parts[StagePart::Queue as usize] = whole - executed;
        parts[StagePart::Execution as usize] = executed;
        *at = at.saturating_add(whole);
    }
}
