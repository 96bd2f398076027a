//! A recording for Perfetto's viewer (<https://ui.perfetto.dev>): native tracks in its protobuf
//! format, written as the events come; memory holds live jobs only.
//!
//! A processor is a process. Each of its lanes is a thread with what runs in it; each operation a
//! track with its jobs from queue to end and, within, when they run. Arrows join a job to those it
//! triggers, on whatever processor. Counters tell the queue's length and the share of time used.

mod wire;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use hyoshi_model::{HostId, Instant, JobId, OperationId, ProcessorId, Span, System};
use hyoshi_sched::{Plan, ProcessorPlan};

use crate::blame::{Blame, Holder, Interest, Mark, Turn};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome, Seen};
use wire::{Message, event, interned, packet, trace, track};

/// Everything is one sequence of packets.
const SEQUENCE: u64 = 1;

/// Utilisation is averaged over windows of this length.
const WINDOW: Span = Span::from_millis(100);

/// Bytes that are collected before they are written.
const CHUNK: usize = 256 << 10;

/// Names that come with every export, by their interned numbers.
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
    "region begins",
    "completes",
    "recording ends early",
];
const RUNS: u64 = 1;
const DEADLINE: u64 = 6;
const HELD: u64 = 7;
const CLOSES: u64 = 8;
const OPENS: u64 = 9;
const REGION: u64 = 10;
const COMPLETES: u64 = 11;
const EARLY: u64 = 12;

/// Categories and annotations, by their interned numbers.
const CATEGORIES: [&str; 4] = ["job", "run", "lane", "mark"];
const JOB: u64 = 1;
const RUN: u64 = 2;
const LANE: u64 = 3;
const MARK: u64 = 4;
const ANNOTATIONS: [&str; 5] = ["number", "leg", "deadline_ns", "lateness_ns", "lane"];

/// How much was exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Jobs, each a slice of its operation's track.
    pub jobs: u64,
    /// Stretches in which they ran.
    pub runs: u64,
    /// Arrows between jobs.
    pub flows: u64,
    /// Packets in all.
    pub packets: u64,
}

/// Writes an export. See the [module](self).
#[derive(Debug)]
pub struct Export<'a, W: Write> {
    to: W,
    buffer: Vec<u8>,
    system: &'a System,
    processors: Vec<Track<'a>>,
    /// Operations that something is triggered by.
    triggers: Vec<bool>,
    marks: Vec<Mark>,
    last: Instant,
    done: Exported,
    /// Whose clock all times are by.
    reference: Option<HostId>,
    /// How far that clock is ahead of the one of the processor whose event is written.
    ahead: i64,
}

/// One processor's part.
#[derive(Debug)]
struct Track<'a> {
    law: Blame<'a>,
    /// Open jobs, and the row of their operation's track that they are on.
    open: HashMap<JobId, u32>,
    /// Rows in use, by operation.
    rows: BTreeMap<OperationId, Vec<bool>>,
    running: Option<(JobId, u8)>,
    /// Waiting jobs, as last written.
    shown: usize,
    window: Instant,
    busy: Span,
    /// How far the clock of all times is ahead of its own.
    ahead: i64,
}

impl<'a, W: Write> Export<'a, W> {
    /// Begins an export: what tracks there are. `lanes` are the names of each processor's lanes; `exact` is said of a
    /// simulation.
    pub fn new(to: W, system: &'a System, plan: &Plan, lanes: &[Vec<String>], exact: bool) -> io::Result<Self> {
        let law = |plan: &ProcessorPlan| Track {
            law: Blame::new(system, plan, exact, Interest::Jobs(Default::default())),
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
        let processors: Vec<Track<'a>> = plan.processors.iter().map(law).collect();
        let (marks, last, done) = (Vec::new(), Instant::ZERO, Exported::default());
        let (reference, ahead) = (None, 0);
        let mut export =
            Export { to, buffer: Vec::new(), system, processors, triggers, marks, last, done, reference, ahead };
        export.preamble(lanes);
        export.flush(false)?;
        Ok(export)
    }

    /// All times are by this host's clock, as far as the events tell of it.
    pub fn by_clock_of(self, host: HostId) -> Self {
        Export { reference: Some(host), ..self }
    }

    /// The next event of a processor, whose events come in their order.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) -> io::Result<()> {
        let Some(place) = self.processors.get_mut(processor.index()) else { return Ok(()) };
        if let Event::Seen(Seen::Clock { host, offset, .. }) = event
            && Some(*host) == self.reference
        {
            place.ahead = *offset;
        }
        self.ahead = place.ahead;
        self.last = self.last.max(now);
        let mut marks = std::mem::take(&mut self.marks);
        place.law.event_watched(now, event, |mark| marks.push(*mark));
        for mark in marks.drain(..) {
            self.mark(processor, now, &mark);
        }
        self.marks = marks;
        if let Event::Decision(decision) = event {
            self.decision(processor, now, decision);
        }
        self.count(processor, now);
        self.flush(false)
    }

    /// Ends the export; `early` if the recording does not tell everything.
    pub fn finish(mut self, early: bool) -> io::Result<Exported> {
        for index in 0..self.processors.len() {
            let processor = ProcessorId(index as u32);
            self.ahead = self.processors[index].ahead;
            self.runs(processor, self.last, None);
            let open: Vec<JobId> = self.processors[index].open.keys().copied().collect();
            for job in open {
                self.close(processor, self.last, job);
            }
            if early {
                self.instant(self.last, process(processor), EARLY, |_| ());
            }
        }
        self.flush(true)?;
        self.to.flush()?;
        Ok(self.done)
    }

    fn mark(&mut self, processor: ProcessorId, now: Instant, mark: &Mark) {
        match mark {
            Mark::Slice { from, to, holder } => {
                let next = match holder {
                    Holder::Job(runner) => Some((runner.job, runner.lane)),
                    _ => None,
                };
                self.runs(processor, *from, next);
                let place = &mut self.processors[processor.index()];
                if next.is_some() {
                    place.busy = place.busy.checked_add(to.since(*from)).unwrap_or(place.busy);
                }
                if *to >= place.window {
                    let ppm = u128::from(place.busy.as_nanos()) * 100 / u128::from(WINDOW.as_nanos());
                    let missed = to.since(place.window).as_nanos() / WINDOW.as_nanos();
                    place.window = place.window.saturating_add(WINDOW * (missed + 1));
                    place.busy = Span::ZERO;
                    self.counter(*to, utilisation(processor), ppm.min(1 << 20) as u64);
                }
            }
            Mark::Turn { job, turn: Turn::Ready, .. } => self.open(processor, now, *job),
            Mark::Turn { .. } | Mark::Switch { .. } => {}
            Mark::Pause { on } => {
                let name = if *on { CLOSES } else { OPENS };
                self.instant(now, process(processor), name, |event| {
                    annotate(event, 5, u64::from(u8::MAX) * u64::from(!*on))
                });
            }
            Mark::Gate { lane } => {
                let name = if *lane == u8::MAX { OPENS } else { CLOSES };
                self.instant(now, process(processor), name, |event| annotate(event, 5, u64::from(*lane)));
            }
        }
    }

    fn decision(&mut self, processor: ProcessorId, now: Instant, decision: &Decision) {
        match decision {
            Decision::Epoch { index } => {
                self.instant(now, process(processor), REGION, |event| annotate(event, 1, u64::from(*index)));
            }
            Decision::Hold { job, .. } => {
                let on = row(job.operation, 0);
                self.instant(now, on, HELD, |event| annotate(event, 1, job.number));
            }
            Decision::End(end) => self.end(processor, now, end),
            _ => {}
        }
    }

    fn end(&mut self, processor: ProcessorId, now: Instant, end: &JobEnd) {
        if end.job.operation.index() >= self.system.operations.len() {
            return;
        }
        let place = &mut self.processors[processor.index()];
        let on = row(end.job.operation, place.open.get(&end.job).copied().unwrap_or(0));
        if place.running.is_some_and(|(job, _)| job == end.job) {
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
            Outcome::Made => None,
            Outcome::Missed => Some(2),
            Outcome::Cancelled => Some(3),
            Outcome::Stopped => Some(4),
            Outcome::DroppedBusy | Outcome::DroppedFull => Some(5),
        };
        if let Some(name) = name {
            self.instant(now, on, name, |event| {
                annotate(event, 1, end.job.number);
                annotate_signed(event, 4, end.end.lateness(end.deadline).as_nanos());
            });
            if end.outcome == Outcome::Missed {
                self.instant(end.deadline.min(now), on, DEADLINE, |event| annotate(event, 1, end.job.number));
            }
        }
        self.close(processor, now, end.job);
    }

    fn downstream(&self, from: OperationId) -> impl Iterator<Item = OperationId> + '_ {
        self.system.operation_ids().filter(move |id| self.system.operation(*id).trigger.predecessors().contains(&from))
    }

    /// A job enters its queue: its slice begins, with an arrow from the one that led to it.
    fn open(&mut self, processor: ProcessorId, now: Instant, job: JobId) {
        let place = &mut self.processors[processor.index()];
        let rows = place.rows.entry(job.operation).or_default();
        let free = rows.iter().position(|used| !used).unwrap_or(rows.len());
        let fresh = free == rows.len();
        if fresh {
            rows.push(false);
        }
        rows[free] = true;
        if place.open.insert(job, free as u32).is_some() {
            return;
        }
        let before = place.law.led_to(job).filter(|before| before.operation != job.operation);
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
        let place = &mut self.processors[processor.index()];
        let Some(free) = place.open.remove(&job) else { return };
        if let Some(used) = place.rows.get_mut(&job.operation).and_then(|rows| rows.get_mut(free as usize)) {
            *used = false;
        }
        self.slice(now, row(job.operation, free), event::END, |_| ());
    }

    /// From `now` on `next` runs, in its lane.
    fn runs(&mut self, processor: ProcessorId, now: Instant, next: Option<(JobId, u8)>) {
        let place = &mut self.processors[processor.index()];
        let next = next.filter(|(job, _)| place.open.contains_key(job));
        if place.running == next {
            return;
        }
        let before = std::mem::replace(&mut place.running, next);
        let row_of = |place: &Track<'_>, job: JobId| place.open.get(&job).map(|free| row(job.operation, *free));
        let (ended, begun) = (
            before.and_then(|(job, lane)| Some((row_of(place, job)?, lane))),
            next.and_then(|(job, lane)| Some((row_of(place, job)?, lane, job))),
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
        let place = &mut self.processors[processor.index()];
        let waiting = place.law.waiting().filter(|waiting| *waiting != place.shown);
        if let Some(waiting) = waiting {
            place.shown = waiting;
            self.counter(now, queue(processor), waiting as u64);
        }
    }

    // ---- packets ----

    fn packet(&mut self, write: impl FnOnce(&mut Message)) {
        let mut message = Message::default();
        write(&mut message);
        message.number(packet::SEQUENCE, SEQUENCE);
        let mut whole = Message(std::mem::take(&mut self.buffer));
        whole.bytes(trace::PACKET, &message.0);
        self.buffer = whole.0;
        self.done.packets += 1;
    }

    fn slice(&mut self, at: Instant, on: u64, kind: u64, write: impl FnOnce(&mut Message)) {
        let at = at.by_clock_ahead(self.ahead);
        self.packet(|packet| {
            packet.number(packet::TIMESTAMP, at.as_nanos()).number(packet::FLAGS, packet::NEEDS);
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(event::TYPE, kind).number(event::TRACK, on);
                write(event);
            });
        });
    }

    fn instant(&mut self, at: Instant, on: u64, name: u64, write: impl FnOnce(&mut Message)) {
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

    fn track(&mut self, uuid: u64, name: &str, write: impl FnOnce(&mut Message)) {
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
        let names: Vec<&str> = NAMES.into_iter().chain(operations).collect();
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
    }

    fn flush(&mut self, all: bool) -> io::Result<()> {
        if self.buffer.len() >= CHUNK || all {
            self.to.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}

fn annotate(event: &mut Message, name: u64, value: u64) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.number(event::ANNOTATION_NAME_IID, name).number(event::ANNOTATION_UINT, value);
    });
}

fn annotate_signed(event: &mut Message, name: u64, value: i64) {
    event.message(event::ANNOTATION, |annotation| {
        annotation.number(event::ANNOTATION_NAME_IID, name).number(event::ANNOTATION_INT, value as u64);
    });
}

// ---- numbers of tracks, names and arrows: a kind above, what it is of below ----

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

/// Jobs of one operation that live at once are on rows of their own.
fn row(operation: OperationId, free: u32) -> u64 {
    5 << 56 | u64::from(operation.0) << 24 | u64::from(free & 0xff_ffff)
}

fn name_of(operation: OperationId) -> u64 {
    (NAMES.len() as u64) + 1 + u64::from(operation.0)
}

/// The arrow from a job to what it triggers.
fn flow(from: JobId, to: OperationId) -> u64 {
    let job = u64::from(from.operation.0) << 32 ^ u64::from(to.0);
    let mixed =
        hyoshi_model::execution_time::bits(job, JobId { leg: 0, ..from }, hyoshi_model::execution_time::Stream::Other);
    mixed.max(1)
}
