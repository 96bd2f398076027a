//! `hyoshi sim`: the system in virtual time.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant as WallClock};

use clap::Args;
use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_os::signals::Interrupt;
use hyoshi_os::wake::Wake;
use hyoshi_report::{Account, Level};
use hyoshi_sched::Strategies;
use hyoshi_sim::simulate;
use hyoshi_trace::{Decision, Event, Probe, Stats};

use super::jobs::Jobs;
use super::load::{Changes, load};
use super::output::{RecordTo, Recorder, ReportTo, command_line, note, publish, warning};
use super::{Failure, Format, Held, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    report: ReportTo,
    /// Write every job's release, start, end, deadline and outcome to a CSV file, in nanoseconds
    #[arg(long, value_name = "FILE")]
    jobs: Option<PathBuf>,
    /// Record every input and decision
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// What the probes of all processors write to. A simulation has one thread.
struct Sink {
    stats: Stats,
    jobs: Option<Jobs<BufWriter<File>>>,
    recorder: Option<Recorder>,
    /// The first thing that could not be written; the simulation ends there.
    failed: Option<Failure>,
}

struct SinkProbe<'a> {
    processor: ProcessorId,
    sink: &'a RefCell<Sink>,
    /// Statistics want job ends only; files want everything.
    everything: bool,
}

impl Probe for SinkProbe<'_> {
    #[inline]
    fn event(&mut self, now: Instant, event: Event) {
        if let Event::Decision(Decision::End(end)) = &event {
            self.sink.borrow_mut().stats.record(end);
        }
        if self.everything {
            self.sink.borrow_mut().write(self.processor, now, &event);
        }
    }
}

impl Sink {
    fn write(&mut self, processor: ProcessorId, now: Instant, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        let jobs = self.jobs.as_mut().map_or(Ok(()), |jobs| jobs.event(event));
        let recorded = self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.event(processor, now, event));
        self.failed = jobs.and(recorded).err();
    }
}

pub(super) fn sim(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<Held, Failure> {
    let ready = load(&arguments.file, &arguments.changes, strategies, format)?;
    let system = &*ready.system;
    arguments.report.try_out(&ready.file)?;
    let recorder = arguments.record.as_deref().map(|path| RecordTo::open(path, &ready)).transpose()?;
    let jobs = arguments.jobs.as_deref().map(|path| Jobs::create(path, &ready)).transpose()?;
    let recorder = recorder.map(|file| file.begin(&ready, "sim", Vec::new())).transpose()?;
    let sink = RefCell::new(Sink { stats: Stats::new(system), jobs, recorder, failed: None });
    let interrupt = Interrupt::on_signals(std::sync::Arc::new(Wake::new()))
        .map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
    let everything = arguments.jobs.is_some() || arguments.record.is_some();
    let until = Instant::ZERO + system.duration;
    let mut progress = Progress::new(until, format);
    let started = WallClock::now();
    let mut end = until;
    simulate(
        system,
        &ready.plan,
        until,
        |processor| SinkProbe { processor, sink: &sink, everything },
        |now| {
            progress.show(now);
            let go_on = !interrupt.requested() && sink.borrow().failed.is_none();
            if !go_on {
                end = now;
            }
            go_on
        },
    );
    progress.clear();
    let mut sink = sink.into_inner();
    if let Some(failed) = sink.failed.take() {
        return Err(failed);
    }
    if let Some(jobs) = sink.jobs {
        jobs.finish()?;
    }
    if let Some(recorder) = sink.recorder {
        recorder.finish()?;
    }
    let mut notes: Vec<_> = ready.warnings.iter().map(warning).collect();
    if end < until {
        notes.push(note(Level::Info, "end", "interrupted: the figures are of the time until then"));
    }
    let account = Account {
        verb: "sim",
        command: command_line(),
        file: &ready.file,
        source: &ready.source,
        system,
        plan: &ready.plan,
        stats: &sink.stats,
        duration: end.since(Instant::ZERO),
        asked: system.duration,
        took: Span::from_nanos(started.elapsed().as_nanos() as u64),
        started_unix_ns: None,
        lost_events: 0,
        notes,
    };
    publish(&account, arguments.report.report.as_deref(), format, Vec::new())
}

/// A line on the terminal that says how far it is, for simulations that take more than a moment.
struct Progress {
    until: Instant,
    shown: WallClock,
    visible: bool,
    wanted: bool,
}

impl Progress {
    fn new(until: Instant, format: Format) -> Self {
        let wanted = format == Format::Text && std::io::stderr().is_terminal();
        Progress { until, shown: WallClock::now(), visible: false, wanted }
    }

    fn show(&mut self, now: Instant) {
        if self.wanted && self.shown.elapsed() > Duration::from_millis(300) {
            let share = now.as_nanos() as f64 / self.until.as_nanos().max(1) as f64 * 100.0;
            let seconds = |instant: Instant| instant.as_nanos() as f64 / 1e9;
            let (done, all) = (seconds(now), seconds(self.until));
            streams::err(format_args!("\r\x1b[Ksimulated {done:.1} s of {all:.1} s ({share:.0} %)"));
            (self.shown, self.visible) = (WallClock::now(), true);
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.visible) {
            streams::err("\r\x1b[K");
        }
    }
}
