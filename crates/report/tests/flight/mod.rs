//! A small system and what became of its jobs, made by hand: a bit of everything that a report shows.

#![allow(dead_code, reason = "shared by several tests")]

use hyoshi_model::*;
use hyoshi_replay::Figures;
use hyoshi_replay::blame::{BreakdownBasis, Culprit, Overrun, Rank, ResponseBreakdown as Blamed, ResponsePart};
use hyoshi_replay::causes::{CauseReport, history};
use hyoshi_replay::timeline::{JobLine, OtherInterval, OtherUse, TimelineWindow, WindowReason};
use hyoshi_report::{Analysis, NoteLevel, ReportInput, ReportNote};
use hyoshi_sched::{Plan, Report, Strategies, analyse};
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{JobEnd, JobOutcome, Stats, TimeSplit};

pub const TEXT: &str = r#"
name     = "<flight> & \"more\""
duration = "4s"

[processor.mission]
strategy = "RMS+MLF"
cancel   = true

[operation.nav]
every    = "10ms"
wcet     = "2ms"
critical = true

[operation.fuse]
after    = { all = ["nav"] }
wcet     = "1ms"
critical = true

[operation.map]
every   = "20ms"
count   = 3
stagger = "even"
wcet    = "3ms"

[operation.route]
every  = "50ms"
repeat = { legs = 3, critical = 1 }
wcet   = "4ms"

[chain.see]
path     = ["nav", "fuse"]
deadline = "8ms"
max_reaction = "15ms"

[[epoch]]
name = "calm"
at   = "0s"

[[epoch]]
name = "<b>busy</b>"
at   = "2s"
set  = { "operation.map.wcet" = "6ms" }
"#;

pub struct Flight {
    pub system: System,
    pub plan: Plan,
    pub stats: Stats,
    pub report: Report,
    pub queueing: Queueing,
    pub seen: CauseReport,
}

impl Flight {
    pub fn account(&self) -> ReportInput<'_> {
        ReportInput {
            verb: "run",
            command: "hyoshi run <flight>.toml --seed 1".into(),
            file: "<flight>.toml",
            source: TEXT,
            system: &self.system,
            host: None,
            plan: &self.plan,
            figures: Figures {
                stats: &self.stats,
                time: vec![TimeSplit { stolen: Span::from_micros(300), ..TimeSplit::default() }],
                strategies: Vec::new(),
                contracts: Vec::new(),
                feedback: &[],
                causes: Some(&self.seen),
                ends: &[],
            },
            analysis: Analysis::Done(&self.report),
            queueing: vec![self.queueing.clone()],
            groups: Vec::new(),
            machine_ppm: Some(431_000),
            duration: Span::from_millis(3_900),
            asked: self.system.duration,
            interrupted: false,
            took: Span::from_millis(3_901),
            started_unix_ns: None,
            threads: &[],
            lost_events: 0,
            programs: Vec::new(),
            notes: vec![
                ReportNote {
                    level: NoteLevel::Refused,
                    topic: "real-time priority".into(),
                    text: "neither CAP_SYS_NICE nor RLIMIT_RTPRIO: operations ran at normal priority".into(),
                    remedy: Some("run as root, or raise the limit".into()),
                },
                ReportNote {
                    level: NoteLevel::Info,
                    topic: "stop".into(),
                    text: "stopped by SIGINT".into(),
                    remedy: None,
                },
            ],
        }
    }
}

fn micros(micros: u64) -> Span {
    Span::from_micros(micros)
}

pub fn flight() -> Flight {
    let system = read(TEXT, "flight.toml", None).unwrap().system;
    let plan = Plan::new(&system, &Strategies::default()).unwrap();
    let mut stats = Stats::new(&system);
    let mut history = history(&system);
    let id =
        |name: &str| OperationId(system.operations.iter().position(|operation| operation.name == name).unwrap() as u32);
    let mut end =
        |name: &str, number: u64, leg: u16, release: Span, waited: Span, ran: Span, change: &dyn Fn(&mut JobEnd)| {
            let release = Instant::ZERO + release;
            let epoch = system.epoch_at(release);
            let operation = id(name);
            let setting = system.setting(epoch, operation);
            let start = release + waited;
            let mut end = JobEnd {
                job: JobId { operation, number, leg },
                outcome: JobOutcome::Made,
                critical: system.operation(operation).critical || leg < setting.critical_legs,
                overran: ran > setting.wcet,
                service: Default::default(),
                epoch: epoch as u16,
                origin: release,
                release,
                ready: release + micros(15),
                start,
                end: start + ran,
                deadline: release + setting.deadline.span(),
                consumed: ran,
            };
            change(&mut end);
            if end.outcome == JobOutcome::Made && end.end > end.deadline {
                end.outcome = JobOutcome::Missed;
            }
            stats.record(&end);
            history[operation.index()].record(&end);
        };
    let same = |_: &mut JobEnd| ();
    for number in 0..390u64 {
        let release = Span::from_millis(10 * number);
        let ran = micros(1_500 + number * 37 % 500);
        end("nav", number, 0, release, micros(30 + number * 13 % 200), ran, &same);
        // Every hundredth one finds the processor busy.
        let waited = micros(if number % 100 == 99 { 9_000 } else { 200 });
        end("fuse", number, 0, release + micros(2_100), waited, micros(800 + number % 7 * 30), &|end| {
            end.origin = Instant::ZERO + release;
            if number == 250 {
                (end.overran, end.consumed, end.end) = (true, micros(12_000), end.start + micros(12_000));
            }
        });
        if number % 2 == 0 {
            for (instance, offset) in [("map.1", 0), ("map.2", 6_667), ("map.3", 13_333)] {
                let busy = number >= 200;
                let waited = micros(3_000 + number * 91 % 5_000 + if busy { 7_000 } else { 0 });
                end(
                    instance,
                    number / 2,
                    0,
                    release + micros(offset),
                    waited,
                    micros(2_500 + number % 5 * 100),
                    &|end| {
                        if busy && number % 14 == 0 {
                            end.outcome = JobOutcome::Cancelled;
                            end.consumed = Span::ZERO;
                        }
                    },
                );
            }
        }
        if number % 5 == 0 {
            for leg in 0..3u16 {
                let waited = Span::from_millis(5 + u64::from(leg) * 8);
                end("route", number / 5, leg, release, waited, micros(3_600), &|end| {
                    end.ready = end.start.saturating_sub(micros(500));
                    if leg == 2 && number % 35 == 30 {
                        end.outcome = JobOutcome::DroppedFull;
                        (end.ready, end.start, end.consumed) = (Instant::NEVER, Instant::NEVER, Span::ZERO);
                    }
                });
            }
        }
    }
    let report = analyse(&system, &plan);
    let mut queueing = Queueing::default();
    for number in 0..500 {
        queueing.enqueued(1, Span::from_nanos(150 + number * 7 % 90));
        queueing.dequeued(Span::from_nanos(210 + number * 13 % 140));
    }
    let mut seen = seen(&system, &stats);
    seen.history = history;
    Flight { system, plan, stats, report, queueing, seen }
}

/// Accounts of the late jobs, as if `nav` had been in the way, and a window around the latest.
fn seen(system: &System, stats: &Stats) -> CauseReport {
    let mut seen = CauseReport::new(system);
    let nav = Culprit { operation: OperationId(0), job: Some((249, 0)) };
    let late = stats.worst(true, 20);
    for end in &late {
        let ran = end.consumed.min(Span::from_millis(1));
        let parts = [
            (ResponsePart::Upstream, end.release.since(end.origin)),
            (ResponsePart::Waited { who: nav, rank: Rank::MoreUrgent }, end.start.since(end.release)),
            (ResponsePart::Executed, ran),
            (ResponsePart::Overran, end.consumed.saturating_sub(ran)),
        ];
        seen.record(Blamed {
            end: *end,
            from: end.origin,
            parts: parts.into_iter().filter(|(_, span)| !span.is_zero()).collect(),
            timeline: Vec::new(),
            by: None,
            timed_out: false,
            crossing: None,
            ahead: 0,
            held_before: Span::ZERO,
            wcet: Span::from_millis(1),
            overruns: vec![Overrun {
                job: JobId { operation: OperationId(0), number: 249, leg: 0 },
                declared: Span::from_millis(2),
                used: Span::from_millis(9),
                ended: true,
            }],
            basis: BreakdownBasis::Switches,
        });
    }
    let end = late[0];
    let line = JobLine {
        processor: ProcessorId(0),
        lane: 0,
        job: end.job,
        critical: true,
        release: end.release,
        ready: end.ready,
        deadline: end.deadline,
        end: Some((end.outcome, end.end)),
        consumed: end.consumed,
        ran: vec![(end.start, end.end)],
        chief: Some((ResponsePart::Overran, Span::from_millis(11))),
    };
    let (from, until) =
        (end.release.saturating_sub(Span::from_millis(5)), end.end.saturating_add(Span::from_millis(5)));
    let other = OtherInterval { processor: ProcessorId(0), from, to: end.release, who: Some(OtherUse::Other(0)) };
    let lateness = end.end.lateness(end.deadline);
    let reason = WindowReason::Latest { critical: true, job: end.job, lateness };
    seen.windows.push(TimelineWindow {
        reason,
        from,
        until,
        jobs: vec![line],
        others: vec![other],
        second_strategy: Vec::new(),
    });
    seen
}
