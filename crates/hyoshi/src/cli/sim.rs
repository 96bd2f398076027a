//! `hyoshi sim`: simulates a system in virtual time.

use std::cell::RefCell;
use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::time::Instant as WallClock;

use clap::Args;
use hyoshi_model::{HostId, Instant, JobId, ProcessorId, Span, System};
use hyoshi_os::signals::Interrupt;
use hyoshi_os::wake::Wake;
use hyoshi_replay::Observer;
use hyoshi_report::{LATE_RELEASES, NoteLevel, ReportInput};
use hyoshi_runtime::RunNote;
use hyoshi_sched::Strategies;
use hyoshi_sim::programs::Programs;
use hyoshi_sim::{Journeys, KnownJobs, LinkCounts, Simulated, simulate_known};
use hyoshi_trace::{Probe, RecordingHeader, Signal, TraceEvent};

use super::costs::CostsFrom;
use super::from::{Incident, Links};
use super::jobs::Jobs;
use super::load::{Changes, load};
use super::notes::{Verbose, late_outputs, note, unknown_calls, warning};
use super::output::{RecordTo, Recorder, ReportTo, apart, cause_analysis, command_line, publish_with};
use super::progress::ProgressLine;
use super::proved::Analysing;
use super::{CliError, Format, VerbOutcome};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    #[arg(required_unless_present = "from", conflicts_with = "from")]
    file: Option<PathBuf>,
    /// Simulate a recording: its system, execution times and releases, unchanged or with changes
    #[arg(long, value_name = "RECORDING", conflicts_with_all = ["seed", "record"])]
    from: Option<PathBuf>,
    /// With --from: the source of delays and losses of signals between processors [default: declared]
    #[arg(long, value_enum)]
    links: Option<Links>,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: CostsFrom,
    #[command(flatten)]
    report: ReportTo,
    /// Write every job's release, start, end, deadline and outcome to a CSV file, in nanoseconds
    #[arg(long, value_name = "FILE")]
    jobs: Option<PathBuf>,
    /// Record every input and decision
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    verbose: Verbose,
}

/// The outputs that the probes of all processors share. A simulation has one thread.
struct SimulationOutputs<'a> {
    observer: Observer<'a>,
    jobs: Option<Jobs<BufWriter<File>>>,
    recorder: Option<Recorder>,
    processors: usize,
    /// The first error of writing, which ends the simulation.
    failed: Option<CliError>,
}

struct OutputProbe<'a, 's> {
    processor: ProcessorId,
    sink: &'a RefCell<SimulationOutputs<'s>>,
    /// Files need all events, not only those that are counted.
    everything: bool,
}

impl Probe for OutputProbe<'_, '_> {
    #[inline]
    fn event(&mut self, now: Instant, event: TraceEvent) {
        if self.everything || Observer::counts(&event) {
            let sink = &mut *self.sink.borrow_mut();
            sink.observer.event(self.processor, now, &event);
            if self.everything {
                sink.write(self.processor, now, &event);
            }
        }
    }
}

impl SimulationOutputs<'_> {
    fn write(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) {
        if self.failed.is_some() {
            return;
        }
        let jobs = self.jobs.as_mut().map_or(Ok(()), |jobs| jobs.event(event));
        let processors = self.processors;
        let recorded = self.recorder.as_mut().map_or(Ok(()), |recorder| {
            recorder.keep_up(processors, now)?;
            recorder.event(processor, now, event)
        });
        self.failed = jobs.and(recorded).err();
    }
}

pub(super) fn sim(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<VerbOutcome, CliError> {
    let (changes, costs) = (&arguments.changes, &arguments.costs);
    let (incident, ready) = match (&arguments.from, &arguments.file) {
        (Some(from), _) => {
            let (incident, ready) =
                Incident::read(from, arguments.links.unwrap_or_default(), changes, costs, strategies)?;
            (Some(incident), ready)
        }
        (None, Some(_)) if arguments.links.is_some() => {
            return Err(
                CliError::new("--links without --from").help("name a recording: sim --from RUN --links recorded")
            );
        }
        (None, Some(file)) => (None, load(file, changes, costs, strategies, format)?),
        (None, None) => return Err(CliError::new("there is nothing to simulate").help("name a system's file")),
    };
    let system = &*ready.system;
    let (report, record) = (arguments.report.report.as_deref(), arguments.record.as_deref());
    apart(&[("--record", record), ("--jobs", arguments.jobs.as_deref()), ("--report", report)])?;
    arguments.report.try_out(&ready.file)?;
    let recorder = arguments.record.as_deref().map(|path| RecordTo::open(path, &ready)).transpose()?;
    let jobs = arguments.jobs.as_deref().map(|path| Jobs::create(path, &ready)).transpose()?;
    let recorder = recorder
        .map(|file| file.begin(&ready, "sim", None, RecordingHeader::run_of_seed(system.seed), Vec::new()))
        .transpose()?;
    let mut causes = cause_analysis(system, &ready.plan, true, format, arguments.report.report.is_some());
    if let (Some(causes), Some(incident)) = (&mut causes, &incident) {
        causes.release_late(&incident.late);
    }
    let everything = jobs.is_some() || recorder.is_some() || causes.is_some();
    let compares = incident.as_ref().is_some_and(Incident::compares);
    let observer = Observer::new(system).with_causes(causes).keeping_ends(compares);
    let sink =
        RefCell::new(SimulationOutputs { observer, jobs, recorder, processors: system.processors.len(), failed: None });
    let interrupt = Interrupt::on_signals(std::sync::Arc::new(Wake::new()))
        .map_err(|error| CliError::new(format!("cannot listen for signals: {error}")))?;
    let until = incident.as_ref().map_or(Instant::ZERO + system.duration, Incident::until);
    let mut progress = ProgressLine::new(format);
    let analysing = Analysing::begin(&ready.system, &ready.plan);
    let started = WallClock::now();
    let mut end = until;
    let takes = incident.as_ref().map(|incident| |job, drawn| incident.takes(job, drawn));
    let journeys = incident
        .as_ref()
        .map(|incident| |signal: &Signal| incident.journeys.as_ref().and_then(|journeys| journeys.of(signal)));
    let hops = incident.as_ref().map(|incident| |job: JobId| incident.hops.get(&job).copied());
    let given = incident.as_ref().zip(takes.as_ref()).map(|(incident, takes)| KnownJobs {
        execution_time: takes,
        late: Some(&incident.late),
        crowded: false,
        inputs: &incident.inputs,
        requests: false,
        samples: !incident.compares(),
        links: journeys.as_ref().filter(|_| incident.journeys.is_some()).map(|journey| journey as Journeys<'_>),
        hops: hops.as_ref().map(|hops| hops as &dyn Fn(JobId) -> Option<u64>),
    });
    let mut programs = Programs::new(system);
    let simulated = simulate_known(
        system,
        &ready.plan,
        until,
        given,
        programs.as_mut(),
        |processor| OutputProbe { processor, sink: &sink, everything },
        |now| {
            progress.show(|| simulated_until(now, until));
            let go_on = !interrupt.requested() && sink.borrow().failed.is_none();
            if !go_on {
                end = now;
            }
            go_on
        },
    );
    let (losses, carried) = (losses(system, &simulated), simulated.links.clone());
    let (groups, proposals) = (simulated.groups, simulated.proposals);
    let processors = simulated.processors.into_iter();
    let capped: Vec<_> = processors.map(|processor| (processor.pauses, processor.relegated)).collect();
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
    notes.extend(ready.notes);
    if let Some(late) = incident.as_ref().map(|incident| incident.late.len()).filter(|late| *late > 0) {
        let releases = if late == 1 { "release" } else { "releases" };
        notes.push(note(NoteLevel::Info, LATE_RELEASES, format!("{late} {releases} later than declared")));
    }
    if end < until {
        notes.push(note(NoteLevel::Info, "end", "interrupted: the figures cover the time before"));
    }
    notes.extend(losses.into_iter().map(|(name, text)| note(NoteLevel::Degraded, &name, text)));
    for (id, ((times, paused), relegated)) in system.processor_ids().zip(capped) {
        if times > 0 {
            let demoted = relegated.iter().map(|id| system.operation(*id).name.clone()).collect();
            let processor = system.processor(id).name.clone();
            let capped = RunNote::HardCapped { processor, times, paused, demoted };
            notes.push(note(NoteLevel::Degraded, "hard cap", capped));
        }
    }
    let of_groups = groups.iter().flat_map(RunNote::of_group);
    let of_moves = proposals.iter().map(|proposed| RunNote::of_proposal(system, proposed));
    notes.extend(of_groups.chain(of_moves).map(|degraded| note(NoteLevel::Degraded, "feedback", degraded)));
    let programs = programs.map_or_else(Vec::new, Programs::close);
    notes.extend(super::programs::notes(system));
    let took = Span::from_nanos(started.elapsed().as_nanos() as u64);
    let proved = analysing.end();
    sink.observer.close(end);
    let figures = sink.observer.figures(end);
    notes.extend(late_outputs(system, figures.stats));
    notes.extend(unknown_calls(system));
    let account = ReportInput {
        verb: "sim",
        command: command_line(),
        file: &ready.file,
        source: &ready.source,
        system,
        host: None,
        plan: &ready.plan,
        figures,
        analysis: proved.analysis(),
        queueing: Vec::new(),
        groups,
        machine_ppm: None,
        duration: end.since(Instant::ZERO),
        asked: system.duration,
        interrupted: end < until,
        took,
        started_unix_ns: None,
        threads: &[],
        lost_events: 0,
        notes,
        programs: programs.iter().map(|one| super::programs::played(system, one)).collect(),
    };
    let again = incident.map(|incident| incident.outcome(system, &account.figures, &carried));
    publish_with(&account, again, arguments.report.report.as_deref(), format, arguments.verbose.detail(), Vec::new())
}

/// Losses on links and on hosts that were switched off.
fn losses<P>(system: &System, simulated: &Simulated<P>) -> Vec<(String, String)> {
    let mut losses = Vec::new();
    let signals = |count: u64| if count == 1 { "1 signal".to_string() } else { format!("{count} signals") };
    for (position, carried) in simulated.links.iter().enumerate() {
        let LinkCounts { sent, received, lost, refused, in_flight, .. } = *carried;
        if lost + refused == 0 {
            continue;
        }
        let host = |id: HostId| system.hosts[id.index()].name.as_str();
        let name = system
            .links
            .get(position)
            .map_or("signals".to_string(), |link| format!("link {}-{}", host(link.between.0), host(link.between.1)));
        let mut text = format!("{} sent: {received} received, {lost} lost", signals(sent));
        if refused > 0 {
            text += &format!(", {refused} sent to a host that was off");
        }
        if in_flight > 0 {
            text += &format!(", {in_flight} in transit at the end");
        }
        losses.push((name, text));
    }
    for (position, host) in (0u32..).zip(&system.hosts) {
        let here = system.processors.iter().zip(&simulated.processors).filter(|(one, _)| one.host == HostId(position));
        let lost: u64 = here.map(|(_, simulated)| simulated.lost_jobs).sum();
        if lost > 0 {
            let jobs = if lost == 1 { "1 job was" } else { &format!("{lost} jobs were") };
            losses.push((
                format!("host {}", host.name),
                format!("{jobs} lost when it was switched off (counted as cancelled)"),
            ));
        }
    }
    losses
}

/// How far a simulation is.
fn simulated_until(now: Instant, until: Instant) -> String {
    let seconds = |instant: Instant| instant.as_nanos() as f64 / 1e9;
    let (done, all) = (seconds(now), seconds(until));
    format!("simulated {done:.1} s of {all:.1} s ({:.0} %)", done / all.max(1e-9) * 100.0)
}
