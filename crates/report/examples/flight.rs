//! Checks and simulates a system and shows every form of report: `flight INTO [FILE [STRATEGY]]`
//! writes `flight.json` and `flight.html` into the folder INTO.

use std::cell::RefCell;
use std::path::Path;

use hyoshi_model::{Contents, Instant, Span, read};
use hyoshi_replay::causes::CauseAnalysis;
use hyoshi_replay::{Feed, Observer};
use hyoshi_report::{Analysis, Checked, Detail, NoteLevel, ReportInput, ReportNote, TerminalStyle, save};
use hyoshi_sched::{Plan, Strategies, analyse};
use hyoshi_sim::simulate;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let into = arguments.next().ok_or("name the folder to write into: flight INTO [FILE [STRATEGY]]")?;
    let file = arguments.next().unwrap_or_else(|| "examples/flight-program.toml".into());
    let text = std::fs::read_to_string(&file)?;
    let mut system = read(&text, &file, Path::new(&file).parent())?.system;
    if let Some(strategy) = arguments.next() {
        let change =
            |system: &mut Contents| system.processors.iter_mut().for_each(|one| one.strategy.clone_from(&strategy));
        system = system.with(change);
    }
    let plan = Plan::new(&system, &Strategies::default())?;
    let report = analyse(&system, &plan);
    let checked = Checked::new("hyoshi check", &system, &report);
    println!("{}", checked.terminal(TerminalStyle::of_stdout()));
    let causes = CauseAnalysis::new(&system, &plan, true, true, Span::ZERO);
    let observer = RefCell::new(Observer::new(&system).with_causes(Some(causes)));
    let until = Instant::ZERO + system.duration;
    let begun = std::time::Instant::now();
    simulate(&system, &plan, until, |processor| Feed::new(processor, &observer), |_| true);
    let took = Span::from_nanos(begun.elapsed().as_nanos() as u64);
    let mut observer = observer.into_inner();
    observer.close(until);
    let account = ReportInput {
        verb: "sim",
        command: format!("hyoshi sim {file}"),
        file: &file,
        source: &text,
        system: &system,
        host: None,
        plan: &plan,
        figures: observer.figures(until),
        analysis: Analysis::Done(&report),
        queueing: Vec::new(),
        groups: Vec::new(),
        machine_ppm: None,
        duration: system.duration,
        asked: system.duration,
        interrupted: false,
        took,
        started_unix_ns: None,
        threads: &[],
        lost_events: 0,
        programs: Vec::new(),
        notes: vec![ReportNote {
            level: NoteLevel::Degraded,
            topic: "real-time priority".into(),
            text: "this process may not use SCHED_FIFO: operations run at normal priority".into(),
            remedy: Some("run with CAP_SYS_NICE, or raise RLIMIT_RTPRIO".into()),
        }],
    };
    let summary = account.summary();
    print!("{}", summary.terminal(TerminalStyle::of_stdout(), Detail::Brief));
    save(&Path::new(&into).join("flight.json"), &summary.json())?;
    save(&Path::new(&into).join("flight.html"), &account.html())?;
    Ok(())
}
