//! Exports a recording for Perfetto's viewer (<https://ui.perfetto.dev>) as native tracks in its protobuf format. It
//! writes packets as events arrive; memory holds live jobs only.
//!
//! A processor is a process, and each lane is a thread that shows its running jobs. Each operation is a track that
//! shows its jobs from queue to end, and within them their execution. Arrows connect a job with the jobs that it
//! triggers, across processors. Counters show the queue's length and the CPU use of jobs. Each contract is a track that
//! shows its regions.

mod regions;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use hyoshi_model::{HostId, Instant, JobId, OperationId, ProcessorId, Span, System};
use hyoshi_sched::{Plan, ProcessorPlan};

use crate::blame::{Blame, CpuChange, CpuOccupant, Interest, JobTransition};
use hyoshi_trace::{CpuEvent, DispatchDecision, JobEnd, JobOutcome, TraceEvent};
use wire::{ProtoMessage, event, interned, packet, trace, track};

/// All packets belong to one sequence.
const SEQUENCE: u64 = 1;

/// The length of the windows over which CPU use is averaged.
const WINDOW: Span = Span::from_millis(100);

/// The size at which the buffer is written.
const CHUNK: usize = 256 << 10;

/// The interned names of every export; the constants below are their numbers.
const NAMES: [&str; 12] = [
    "runs",
    "missed",
    "cancelled",
    "stopped",
    "dropped",
    "deadline",
    "held by its guard",
    "cap closes lanes",
    "cap opens",
    "epoch begins",
    "completes",
    "recording ends early",
];
const RUNS: u64 = 1;
const DEADLINE: u64 = 6;
const HELD: u64 = 7;
const CLOSES: u64 = 8;
const OPENS: u64 = 9;
const EPOCH: u64 = 10;
const COMPLETES: u64 = 11;
const EARLY: u64 = 12;

/// Interned categories and annotations; the constants are their numbers.
const CATEGORIES: [&str; 5] = ["job", "run", "lane", "mark", "region"];
const JOB: u64 = 1;
const RUN: u64 = 2;
const LANE: u64 = 3;
const MARK: u64 = 4;
const REGION: u64 = 5;
const ANNOTATIONS: [&str; 5] = ["number", "leg", "deadline_ns", "lateness_ns", "lane"];

/// The size of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Jobs, each a slice of its operation's track.
    pub jobs: u64,
    /// Intervals of execution.
    pub runs: u64,
    /// Arrows between jobs.
    pub flows: u64,
    /// All packets.
    pub packets: u64,
}

/// Writes an export. See the [module](self).
#[derive(Debug)]
pub struct Export<'a, W: Write> {
    to: W,
    buffer: Vec<u8>,
    system: &'a System,
    processors: Vec<ProcessorTrack<'a>>,
    /// Operations that trigger others.
    triggers: Vec<bool>,
    changes: Vec<CpuChange>,
    /// Active regions, by contract and position, each with the processor that evaluates it.
    regions: BTreeMap<(u16, u16), ProcessorId>,
    last: Instant,
    done: ExportCounts,
    /// The host of the reference clock.
    reference: Option<HostId>,
    /// The lead of that clock over the one of the current processor.
    ahead: i64,
}

/// The export of one processor.
#[derive(Debug)]
struct ProcessorTrack<'a> {
    blame: Blame<'a>,
    /// Open jobs, and their rows in the track of their operation.
    open: HashMap<JobId, u32>,
    /// Rows in use, by operation.
    rows: BTreeMap<OperationId, Vec<bool>>,
    running: Option<(JobId, u8)>,
    /// The last written number of waiting jobs.
    shown: usize,
    window: Instant,
    busy: Span,
    /// The lead of the reference clock over its clock.
    ahead: i64,
}

impl<'a, W: Write> Export<'a, W> {
    /// Begins an export with the list of tracks. `lanes` are the names of each processor's lanes; `exact` for a
    /// simulation.
    pub fn new(to: W, system: &'a System, plan: &Plan, lanes: &[Vec<String>], exact: bool) -> io::Result<Self> {
        let blame = |plan: &ProcessorPlan| ProcessorTrack {
            blame: Blame::new(system, plan, exact, Interest::Jobs(Default::default())),
            open: HashMap::new(),
            rows: BTreeMap::new(),
            running: None,
            shown: usize::MAX,
            window: Instant::ZERO + WINDOW,
            busy: Span::ZERO,
            ahead: 0,
        };
        let mut triggers = vec![false; system.operations.len()];
        for operation in &system.operations {
            operation.trigger.predecessors().iter().for_each(|from| triggers[from.index()] = true);
        }
        let processors: Vec<ProcessorTrack<'a>> = plan.processors.iter().map(blame).collect();
        let mut export = Export {
            to,
            buffer: Vec::new(),
            system,
            processors,
            triggers,
            changes: Vec::new(),
            regions: BTreeMap::new(),
            last: Instant::ZERO,
            done: ExportCounts::default(),
            reference: None,
            ahead: 0,
        };
        export.preamble(lanes);
        export.flush(false)?;
        Ok(export)
    }

    /// All times use this host's clock, as far as the events contain its offset.
    pub fn by_clock_of(self, host: HostId) -> Self {
        Export { reference: Some(host), ..self }
    }

    /// The next event of a processor. The events of each processor must be in order.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) -> io::Result<()> {
        let Some(track) = self.processors.get_mut(processor.index()) else { return Ok(()) };
        if let TraceEvent::Cpu(CpuEvent::Clock { host, offset, .. }) = event
            && Some(*host) == self.reference
        {
            track.ahead = *offset;
        }
        self.ahead = track.ahead;
        self.last = self.last.max(now);
        let mut changes = std::mem::take(&mut self.changes);
        track.blame.event_watched(now, event, |change| changes.push(*change));
        for change in changes.drain(..) {
            self.change(processor, now, &change);
        }
        self.changes = changes;
        if let TraceEvent::Decision(decision) = event {
            self.decision(processor, now, decision);
        }
        self.count(processor, now);
        self.flush(false)
    }

    /// Ends the export; `early` if the recording is incomplete.
    pub fn finish(mut self, early: bool) -> io::Result<ExportCounts> {
        for index in 0..self.processors.len() {
            let processor = ProcessorId(index as u32);
            self.ahead = self.processors[index].ahead;
            self.runs(processor, self.last, None);
            let mut open: Vec<JobId> = self.processors[index].open.keys().copied().collect();
            // The same recording has the same export.
            open.sort_unstable();
            for job in open {
                self.close(processor, self.last, job);
            }
            if early {
                self.instant(self.last, process(processor), EARLY, |_| ());
            }
        }
        self.close_regions();
        self.flush(true)?;
        self.to.flush()?;
        Ok(self.done)
    }

    fn change(&mut self, processor: ProcessorId, now: Instant, change: &CpuChange) {
        match change {
            CpuChange::Slice { from, to, occupant } => {
                let next = match occupant {
                    CpuOccupant::Job(runner) => Some((runner.job, runner.lane)),
                    _ => None,
                };
                self.runs(processor, *from, next);
                let track = &mut self.processors[processor.index()];
                if next.is_some() {
                    track.busy = track.busy.checked_add(to.since(*from)).unwrap_or(track.busy);
                }
                if *to >= track.window {
                    let ppm = u128::from(track.busy.as_nanos()) * 100 / u128::from(WINDOW.as_nanos());
                    let missed = to.since(track.window).as_nanos() / WINDOW.as_nanos();
                    track.window = track.window.saturating_add(WINDOW * (missed + 1));
                    track.busy = Span::ZERO;
                    self.counter(*to, utilisation(processor), ppm.min(1 << 20) as u64);
                }
            }
            CpuChange::Job { job, transition: JobTransition::Ready, .. } => self.open(processor, now, *job),
            CpuChange::Job { .. } | CpuChange::Switch { .. } => {}
            CpuChange::Pause { on } => {
                let name = if *on { CLOSES } else { OPENS };
                self.instant(now, process(processor), name, |event| {
                    annotate(event, 5, u64::from(u8::MAX) * u64::from(!*on))
                });
            }
            CpuChange::Gate { lane } => {
                let name = if *lane == u8::MAX { OPENS } else { CLOSES };
                self.instant(now, process(processor), name, |event| annotate(event, 5, u64::from(*lane)));
            }
        }
    }

    fn decision(&mut self, processor: ProcessorId, now: Instant, decision: &DispatchDecision) {
        match decision {
            DispatchDecision::Epoch { index } => {
                self.instant(now, process(processor), EPOCH, |event| annotate(event, 1, u64::from(*index)));
            }
            DispatchDecision::Hold { job, .. } => {
                let on = row(job.operation, 0);
                self.instant(now, on, HELD, |event| annotate(event, 1, job.number));
            }
            DispatchDecision::End(end) => self.end(processor, now, end),
            DispatchDecision::Region { contract, from, to } => self.region(processor, now, *contract, *from, *to),
            _ => {}
        }
    }

    fn end(&mut self, processor: ProcessorId, now: Instant, end: &JobEnd) {
        if end.job.operation.index() >= self.system.operations.len() {
            return;
        }
        let track = &mut self.processors[processor.index()];
        let on = row(end.job.operation, track.open.get(&end.job).copied().unwrap_or(0));
        if track.running.is_some_and(|(job, _)| job == end.job) {
            self.runs(processor, now, None);
        }
        if end.outcome.finished() && self.triggers[end.job.operation.index()] {
            let to: Vec<u64> = self.downstream(end.job.operation).map(|to| flow(end.job, to)).collect();
            self.instant(now, on, COMPLETES, |event| {
                to.iter().for_each(|flow| {
                    event.fixed(event::FLOW, *flow);
                });
            });
        }
        let name = match end.outcome {
            JobOutcome::Made => None,
            JobOutcome::Missed => Some(2),
            JobOutcome::Cancelled => Some(3),
            JobOutcome::Stopped => Some(4),
            JobOutcome::DroppedBusy | JobOutcome::DroppedFull | JobOutcome::Expired | JobOutcome::Skipped => Some(5),
        };
        if let Some(name) = name {
            self.instant(now, on, name, |event| {
                annotate(event, 1, end.job.number);
                annotate_signed(event, 4, end.end.lateness(end.deadline).as_nanos());
            });
            if end.outcome == JobOutcome::Missed {
                self.instant(end.deadline.min(now), on, DEADLINE, |event| annotate(event, 1, end.job.number));
            }
        }
        self.close(processor, now, end.job);
    }

    fn downstream(&self, from: OperationId) -> impl Iterator<Item = OperationId> + '_ {
        self.system.operation_ids().filter(move |id| self.system.operation(*id).trigger.predecessors().contains(&from))
    }

    /// A job enters its queue: its slice begins, with an arrow from the job that triggered it.
    fn open(&mut self, processor: ProcessorId, now: Instant, job: JobId) {
        let track = &mut self.processors[processor.index()];
        let rows = track.rows.entry(job.operation).or_default();
        let free = rows.iter().position(|used| !used).unwrap_or(rows.len());
        let fresh = free == rows.len();
        if fresh {
            rows.push(false);
        }
        rows[free] = true;
        if track.open.insert(job, free as u32).is_some() {
            return;
        }
        let before = track.blame.led_to(job).filter(|before| before.operation != job.operation);
        let on = row(job.operation, free as u32);
        if fresh && free > 0 {
            self.operation_track(processor, job.operation, free as u32);
        }
        self.done.jobs += 1;
        self.done.flows += u64::from(before.is_some());
        self.slice(now, on, event::BEGIN, |event| {
            event.number(event::NAME_IID, name_of(job.operation)).number(event::CATEGORY_IID, JOB);
            annotate(event, 1, job.number);
            if job.leg > 0 {
                annotate(event, 2, u64::from(job.leg));
            }
            if let Some(before) = before {
                event.fixed(event::LAST_FLOW, flow(before, job.operation));
            }
        });
    }

    fn close(&mut self, processor: ProcessorId, now: Instant, job: JobId) {
        let track = &mut self.processors[processor.index()];
        let Some(free) = track.open.remove(&job) else { return };
        if let Some(used) = track.rows.get_mut(&job.operation).and_then(|rows| rows.get_mut(free as usize)) {
            *used = false;
        }
        self.slice(now, row(job.operation, free), event::END, |_| ());
    }

    /// From `now` on, `next` runs in its lane.
    fn runs(&mut self, processor: ProcessorId, now: Instant, next: Option<(JobId, u8)>) {
        let track = &mut self.processors[processor.index()];
        let next = next.filter(|(job, _)| track.open.contains_key(job));
        if track.running == next {
            return;
        }
        let before = std::mem::replace(&mut track.running, next);
        let row_of =
            |track: &ProcessorTrack<'_>, job: JobId| track.open.get(&job).map(|free| row(job.operation, *free));
        let (ended, begun) = (
            before.and_then(|(job, lane)| Some((row_of(track, job)?, lane))),
            next.and_then(|(job, lane)| Some((row_of(track, job)?, lane, job))),
        );
        if let Some((row, on)) = ended {
            self.slice(now, row, event::END, |_| ());
            self.slice(now, lane(processor, on), event::END, |_| ());
        }
        if let Some((row, on, job)) = begun {
            self.done.runs += 1;
            self.slice(now, row, event::BEGIN, |event| {
                event.number(event::NAME_IID, RUNS).number(event::CATEGORY_IID, RUN);
            });
            self.slice(now, lane(processor, on), event::BEGIN, |event| {
                event.number(event::NAME_IID, name_of(job.operation)).number(event::CATEGORY_IID, LANE);
                annotate(event, 1, job.number);
            });
        }
    }

    fn count(&mut self, processor: ProcessorId, now: Instant) {
        let track = &mut self.processors[processor.index()];
        let waiting = track.blame.waiting().filter(|waiting| *waiting != track.shown);
        if let Some(waiting) = waiting {
            track.shown = waiting;
            self.counter(now, queue(processor), waiting as u64);
        }
    }

    // ---- packets ----

    fn packet(&mut self, write: impl FnOnce(&mut ProtoMessage)) {
        let mut message = ProtoMessage::default();
        write(&mut message);
        message.number(packet::SEQUENCE, SEQUENCE);
        let mut whole = ProtoMessage(std::mem::take(&mut self.buffer));
        whole.bytes(trace::PACKET, &message.0);
        self.buffer = whole.0;
        self.done.packets += 1;
    }

    fn slice(&mut self, at: Instant, on: u64, kind: u64, write: impl FnOnce(&mut ProtoMessage)) {
        let at = at.by_clock_ahead(self.ahead);
        self.packet(|packet| {
            packet.number(packet::TIMESTAMP, at.as_nanos()).number(packet::FLAGS, packet::NEEDS);
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, kind).number(event::TRACK, on);
                write(event);
            });
        });
    }

    fn instant(&mut self, at: Instant, on: u64, name: u64, write: impl FnOnce(&mut ProtoMessage)) {
        self.slice(at, on, event::INSTANT, |event| {
            event.number(event::NAME_IID, name).number(event::CATEGORY_IID, MARK);
            write(event);
        });
    }

    fn counter(&mut self, at: Instant, on: u64, value: u64) {
        self.slice(at, on, event::COUNTER, |event| {
            event.number(event::COUNTER_VALUE, value);
        });
    }

    fn track(&mut self, uuid: u64, name: &str, write: impl FnOnce(&mut ProtoMessage)) {
        self.packet(|packet| {
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.number(track::UUID, uuid).bytes(track::NAME, name.as_bytes());
                write(descriptor);
            });
        });
    }

    fn operation_track(&mut self, processor: ProcessorId, operation: OperationId, free: u32) {
        let system = self.system;
        self.track(row(operation, free), &system.operation(operation).name, |descriptor| {
            descriptor.number(track::PARENT, process(processor));
        });
    }

    fn preamble(&mut self, lanes: &[Vec<String>]) {
        let system = self.system;
        let operations = system.operations.iter().map(|operation| operation.name.as_str());
        let regions = system.contracts.iter().flat_map(|contract| &contract.regions).map(|region| region.name.as_str());
        let names: Vec<&str> = NAMES.into_iter().chain(operations).chain(regions).collect();
        self.packet(|packet| {
            packet.number(packet::FLAGS, packet::CLEARED);
            packet.message(packet::INTERNED, |data| {
                let all = [
                    (interned::CATEGORIES, &CATEGORIES[..]),
                    (interned::NAMES, &names),
                    (interned::ANNOTATIONS, &ANNOTATIONS),
                ];
                for (field, names) in all {
                    for (position, name) in names.iter().enumerate() {
                        data.message(field, |entry| {
                            entry.number(interned::IID, position as u64 + 1).bytes(interned::NAME, name.as_bytes());
                        });
                    }
                }
            });
        });
        for processor in system.processor_ids() {
            let named = system.processor(processor);
            let name = format!("{}/{}", system.hosts[named.host.index()].name, named.name);
            let pid = u64::from(processor.0) + 1;
            self.track(process(processor), &name, |descriptor| {
                descriptor.message(track::PROCESS, |process| {
                    process.number(track::PROCESS_PID, pid).bytes(track::PROCESS_NAME, name.as_bytes());
                });
            });
            for (index, label) in lanes.get(processor.index()).into_iter().flatten().enumerate() {
                let name = format!("lane {index}: {label}");
                self.track(lane(processor, index as u8), &name, |descriptor| {
                    descriptor.message(track::THREAD, |thread| {
                        thread.number(track::THREAD_PID, pid).number(track::THREAD_TID, pid * 1_000 + index as u64);
                        thread.bytes(track::THREAD_NAME, name.as_bytes());
                    });
                });
            }
            for (uuid, name, unit) in
                [(queue(processor), "jobs waiting", "jobs"), (utilisation(processor), "utilisation by jobs", "%")]
            {
                self.track(uuid, name, |descriptor| {
                    descriptor.number(track::PARENT, process(processor));
                    descriptor.message(track::COUNTER, |counter| {
                        counter.bytes(track::COUNTER_UNIT_NAME, unit.as_bytes());
                    });
                });
            }
            let own: Vec<OperationId> = system.operations_on(processor).collect();
            for operation in own {
                self.operation_track(processor, operation, 0);
            }
        }
        self.contract_tracks();
    }

    fn flush(&mut self, all: bool) -> io::Result<()> {
        if self.buffer.len() >= CHUNK || all {
            self.to.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

fn annotate(event: &mut ProtoMessage, name: u64, value: u64) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.number(event::ANNOTATION_NAME_IID, name).number(event::ANNOTATION_UINT, value);
    });
}

fn annotate_signed(event: &mut ProtoMessage, name: u64, value: i64) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.number(event::ANNOTATION_NAME_IID, name).number(event::ANNOTATION_INT, value as u64);
    });
}

// ---- numbers of tracks, names and arrows: the high bits are a kind, the low bits an index ----

fn process(processor: ProcessorId) -> u64 {
    1 << 56 | u64::from(processor.0)
}

fn lane(processor: ProcessorId, lane: u8) -> u64 {
    2 << 56 | u64::from(processor.0) << 8 | u64::from(lane)
}

fn queue(processor: ProcessorId) -> u64 {
    3 << 56 | u64::from(processor.0)
}

fn utilisation(processor: ProcessorId) -> u64 {
    4 << 56 | u64::from(processor.0)
}

/// Simultaneous jobs of one operation have separate rows.
fn row(operation: OperationId, free: u32) -> u64 {
    5 << 56 | u64::from(operation.0) << 24 | u64::from(free & 0xff_ffff)
}

fn name_of(operation: OperationId) -> u64 {
    (NAMES.len() as u64) + 1 + u64::from(operation.0)
}

/// The arrow from a job to the operation that it triggers.
fn flow(from: JobId, to: OperationId) -> u64 {
    let job = u64::from(from.operation.0) << 32 ^ u64::from(to.0);
    let mixed =
        hyoshi_model::execution_time::bits(job, JobId { leg: 0, ..from }, hyoshi_model::execution_time::Stream::Other);
    mixed.max(1)
}
