//! A small system and what became of its jobs, made by hand: a bit of everything that a report shows.

#![allow(dead_code, reason = "shared by several tests")]

use hyoshi_model::*;
use hyoshi_report::{Account, Level, Note};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{JobEnd, Outcome, Stats};

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
}

impl Flight {
    pub fn account(&self) -> Account<'_> {
        Account {
            verb: "run",
            command: "hyoshi run <flight>.toml --seed 1".into(),
            file: "<flight>.toml",
            source: TEXT,
            system: &self.system,
            plan: &self.plan,
            stats: &self.stats,
            duration: Span::from_millis(3_900),
            asked: self.system.duration,
            took: Span::from_millis(3_901),
            started_unix_ns: None,
            lost_events: 0,
            notes: vec![
                Note {
                    level: Level::Refused,
                    topic: "real-time priority".into(),
                    text: "neither CAP_SYS_NICE nor RLIMIT_RTPRIO: operations ran at normal priority".into(),
                    remedy: Some("run as root, or raise the limit".into()),
                },
                Note { level: Level::Info, topic: "stop".into(), text: "stopped by SIGINT".into(), remedy: None },
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
                outcome: Outcome::Made,
                critical: system.operation(operation).critical || leg < setting.critical_legs,
                overran: ran > setting.wcet,
                demoted: false,
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
            if end.outcome == Outcome::Made && end.end > end.deadline {
                end.outcome = Outcome::Missed;
            }
            stats.record(&end);
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
                            end.outcome = Outcome::Cancelled;
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
                        end.outcome = Outcome::DroppedFull;
                        (end.ready, end.start, end.consumed) = (Instant::NEVER, Instant::NEVER, Span::ZERO);
                    }
                });
            }
        }
    }
    Flight { system, plan, stats }
}
