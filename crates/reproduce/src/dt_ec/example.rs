//! The example of section 3.4: three tasks on two processors under non-preemptive EDF. With greedy releases T3 misses a
//! deadline and loses its next job (figure 4); with release guards it does not (figure 5).
//!
//! In seconds of the paper: T1 = (2, 4, 0) on P1, T2 = (2, 6, 0) on P1 and then P2,
//! T3 = (1.8, 3, 5.1) on P2, each as (execution, period, phase).

use std::sync::Arc;
use std::time::Duration;

use hyoshi_model::{Guard, Instant, ProcessorId, Span, System, read};
use hyoshi_runtime::{Node, StartError};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, TraceEvent};
use serde::Serialize;

use crate::control::{ExperimentControl, Stopped};

/// How subtasks behind another processor are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseProtocol {
    /// As soon as their predecessor completes.
    Greedy,
    /// Rules 1 and 2 of the release guard, as in the paper's experiments.
    Guarded,
    /// Rule 3, too: an idle point opens the guard. The paper leaves it to future work for event channels.
    Idle,
}

impl ReleaseProtocol {
    /// All of them, in the order of tables.
    pub const ALL: [ReleaseProtocol; 3] = [ReleaseProtocol::Greedy, ReleaseProtocol::Guarded, ReleaseProtocol::Idle];

    /// The guard of the subtasks behind another processor.
    pub const fn guard(self) -> Guard {
        match self {
            ReleaseProtocol::Greedy => Guard::Off,
            ReleaseProtocol::Guarded => Guard::On,
            ReleaseProtocol::Idle => Guard::Idle,
        }
    }

    /// Its name in tables.
    pub const fn words(self) -> &'static str {
        match self {
            ReleaseProtocol::Greedy => "greedy",
            ReleaseProtocol::Guarded => "release guard",
            ReleaseProtocol::Idle => "guard with rule 3",
        }
    }
}

/// A job of the example, in nanoseconds of the paper's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExampleJob {
    /// Its subtask.
    pub task: String,
    /// When it started.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// Whether it met its deadline.
    pub made: bool,
}

/// The schedule under one protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExampleSchedule {
    /// The protocol.
    pub protocol: ReleaseProtocol,
    /// Length of the run in the paper's time.
    pub length_ns: u64,
    /// All jobs that ran, by their start.
    pub jobs: Vec<ExampleJob>,
    /// Deadlines missed.
    pub missed: u64,
    /// Jobs dropped because the previous job of the task had not finished.
    pub dropped: u64,
    /// The shortest and the longest response time of T2, end to end.
    pub response_ns: (u64, u64),
    /// On the kernel: the largest difference of a start from that in a simulation with the same execution times. `None` if
    /// the simulation has other jobs or outcomes.
    pub deviation_ns: Option<u64>,
}

const FILE: &str = include_str!("example.toml");

/// The names of the subtasks.
pub const SUBTASKS: [&str; 4] = ["T1", "T2-1", "T2-2", "T3"];

/// A schedule of the paper: by subtask, the start and the end of each job.
pub type PaperSchedule = [(&'static str, &'static [(u64, u64)]); 4];

/// Figure 4: starts and ends in tenths of the paper's seconds, up to 16 s.
pub const FIGURE_4: PaperSchedule = [
    ("T1", &[(0, 20), (40, 60), (80, 100), (120, 140)]),
    ("T2-1", &[(20, 40), (60, 80), (140, 160)]),
    ("T2-2", &[(40, 60), (80, 100)]),
    ("T3", &[(60, 78), (100, 118), (141, 159)]),
];

/// Figure 5.
pub const FIGURE_5: PaperSchedule = [
    ("T1", &[(0, 20), (40, 60), (80, 100), (120, 140)]),
    ("T2-1", &[(20, 40), (60, 80), (140, 160)]),
    ("T2-2", &[(40, 60), (100, 120)]),
    ("T3", &[(60, 78), (81, 99), (120, 138), (141, 159)]),
];

/// The end of the schedules above, in tenths of the paper's seconds.
const FIGURES_END: u64 = 160;
const TENTH: u64 = 100_000_000;
/// The length of a second of the paper on the kernel.
pub const KERNEL_SECOND: Span = Span::from_millis(20);
/// The share of the worst case that jobs use on the kernel, in percent: T2's deadline leaves no time for scheduling.
const KERNEL_WORK: u64 = 97;
const PAPER_SECOND: Span = Span::from_secs(1);

/// The example, with a second of the paper of this length.
fn system(protocol: ReleaseProtocol, second: Span, length: u64, work_percent: u64) -> System {
    let at = |tenths: u64| Span::from_nanos(second.as_nanos() / 10 * tenths);
    let mut text = FILE.replace("{length}", &at(10 * length).to_string());
    for tenths in [18, 20, 30, 40, 51, 60] {
        let work = Span::from_nanos(at(tenths).as_nanos() * work_percent / 100);
        text = text.replace(&format!("{{{tenths}}}"), &at(tenths).to_string());
        text = text.replace(&format!("{{work {tenths}}}"), &work.to_string());
    }
    let system = match read(&text, "dt-ec-example.toml", None) {
        Ok(loaded) => loaded.system,
        Err(errors) => unreachable!("the built-in example is read by every test: {errors}"),
    };
    system.with(|system| {
        for operation in &mut system.operations {
            // "Cancelled because of the strict periodic restriction": the previous job has not finished.
            operation.on_busy = hyoshi_model::OnBusy::Skip;
            if operation.guard != Guard::Off {
                operation.guard = protocol.guard();
            }
        }
        system.processors.iter_mut().for_each(|processor| processor.hard_cap = hyoshi_model::HardCap::OFF);
    })
}

fn plan(system: &System) -> Plan {
    match Plan::new(system, &Strategies::built_in()) {
        Ok(plan) => plan,
        Err(unknown) => unreachable!("the example names a built-in strategy: {unknown}"),
    }
}

/// The schedules of `length` seconds in virtual time.
pub fn simulated(length: u64) -> Vec<ExampleSchedule> {
    ReleaseProtocol::ALL.map(|protocol| schedule(protocol, length, 100)).into()
}

fn schedule(protocol: ReleaseProtocol, length: u64, work_percent: u64) -> ExampleSchedule {
    let system = system(protocol, PAPER_SECOND, length, work_percent);
    let until = Instant::ZERO + system.duration;
    let processors = simulate(&system, &plan(&system), until, |_| Vec::new(), |_| true).processors;
    let events = processors.into_iter().flat_map(|processor| processor.probe);
    let ends = events.filter_map(|(_, event)| end(&event)).collect();
    gather(protocol, &system, ends, PAPER_SECOND, length)
}

/// The schedules of `length` seconds of the paper on the kernel, where they last [`KERNEL_SECOND`] each.
///
/// # Errors
///
/// If `control` stops it, or the kernel refuses a required resource.
pub fn on_kernel(
    length: u64,
    control: ExperimentControl<'_>,
) -> Result<Result<Vec<ExampleSchedule>, StartError>, Stopped> {
    let mut schedules = Vec::new();
    for protocol in ReleaseProtocol::ALL {
        (control.step)(&format!("section 3.4 on the kernel, {}", protocol.words()));
        let system = Arc::new(system(protocol, KERNEL_SECOND, length, KERNEL_WORK));
        let mut ends = Vec::new();
        let mut sink = |_: ProcessorId, _: Instant, event: TraceEvent| ends.extend(end(&event));
        let mut running = match Node::new(system.clone(), Arc::new(plan(&system))).start() {
            Ok(running) => running,
            Err(error) => return Ok(Err(error)),
        };
        while !running.finished() {
            std::thread::sleep(Duration::from_millis(20));
            running.poll(&mut sink);
            if (control.stop)() {
                running.stop(&mut sink);
                return Err(Stopped);
            }
        }
        running.stop(&mut sink);
        let mut measured = gather(protocol, &system, ends, KERNEL_SECOND, length);
        measured.deviation_ns = measured.deviation_from(&schedule(protocol, length, KERNEL_WORK));
        schedules.push(measured);
    }
    Ok(Ok(schedules))
}

fn end(event: &TraceEvent) -> Option<JobEnd> {
    match event {
        TraceEvent::Decision(DispatchDecision::End(end)) => Some(*end),
        _ => None,
    }
}

/// Converts times to the paper's.
fn gather(protocol: ReleaseProtocol, system: &System, ends: Vec<JobEnd>, second: Span, length: u64) -> ExampleSchedule {
    let paper = |at: u64| (u128::from(at) * u128::from(PAPER_SECOND.as_nanos()) / u128::from(second.as_nanos())) as u64;
    let name = |end: &JobEnd| system.operation(end.job.operation).name.clone();
    // Jobs that the end of the run cut off are not part of the schedule.
    let finished = || ends.iter().filter(|end| end.outcome.finished() && end.end < Instant::ZERO + system.duration);
    let mut jobs: Vec<ExampleJob> = finished()
        .map(|end| ExampleJob {
            task: name(end),
            start_ns: paper(end.start.as_nanos()),
            end_ns: paper(end.end.as_nanos()),
            made: end.outcome == JobOutcome::Made,
        })
        .collect();
    jobs.sort_by_key(|job| (job.start_ns, job.task.clone()));
    let responses =
        || finished().filter(|end| name(end) == "T2-2").map(|end| paper(end.end.since(end.origin).as_nanos()));
    ExampleSchedule {
        protocol,
        length_ns: length * PAPER_SECOND.as_nanos(),
        missed: finished().filter(|end| end.outcome == JobOutcome::Missed).count() as u64,
        dropped: ends.iter().filter(|end| end.outcome == JobOutcome::DroppedBusy).count() as u64,
        response_ns: (responses().min().unwrap_or(0), responses().max().unwrap_or(0)),
        deviation_ns: None,
        jobs,
    }
}

impl ExampleSchedule {
    /// The jobs of a subtask.
    pub fn of<'a>(&'a self, task: &'a str) -> impl Iterator<Item = &'a ExampleJob> {
        self.jobs.iter().filter(move |job| job.task == task)
    }

    /// The paper's figure of this protocol; rule 3 has none.
    pub fn figure(&self) -> Option<&'static PaperSchedule> {
        match self.protocol {
            ReleaseProtocol::Greedy => Some(&FIGURE_4),
            ReleaseProtocol::Guarded => Some(&FIGURE_5),
            ReleaseProtocol::Idle => None,
        }
    }

    /// Whether it is the paper's figure, to the nanosecond.
    pub fn is_the_figure(&self) -> bool {
        let same = |task: &str, paper: &[(u64, u64)]| {
            let ran = self.of(task).map(|job| (job.start_ns, job.end_ns));
            let end = FIGURES_END * TENTH;
            ran.take_while(|(_, until)| *until <= end).eq(paper.iter().map(|(from, to)| (from * TENTH, to * TENTH)))
        };
        self.figure().is_some_and(|figure| figure.iter().all(|(task, paper)| same(task, paper)))
    }

    /// The largest difference of a job's start from that of the same job of another schedule; `None` if they have other
    /// jobs or outcomes.
    pub fn deviation_from(&self, other: &ExampleSchedule) -> Option<u64> {
        let mut most = 0;
        for task in SUBTASKS {
            let (own, others): (Vec<_>, Vec<_>) = (self.of(task).collect(), other.of(task).collect());
            // The last job may end just before or just after the end of the run.
            if own.len().abs_diff(others.len()) > 1 {
                return None;
            }
            for (one, other) in own.iter().zip(&others) {
                if one.made != other.made {
                    return None;
                }
                most = most.max(one.start_ns.abs_diff(other.start_ns));
            }
        }
        Some(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedules_in_virtual_time_are_the_papers() {
        let [greedy, guarded, idle] = &simulated(60)[..] else { panic!("three protocols") };
        assert!(greedy.is_the_figure(), "{greedy:#?}");
        assert!(guarded.is_the_figure(), "{guarded:#?}");
        assert!(greedy.missed > 0 && greedy.dropped > 0, "{} {}", greedy.missed, greedy.dropped);
        assert_eq!((guarded.missed, guarded.dropped), (0, 0));
        assert_eq!(greedy.response_ns, (4_000_000_000, 6_000_000_000));
        assert_eq!(guarded.response_ns, (6_000_000_000, 6_000_000_000));
        // With rule 3 the guarded schedule is the greedy one again.
        assert_eq!(idle.deviation_from(greedy), Some(0));
        assert_eq!(greedy.deviation_from(guarded), None);
    }
}
