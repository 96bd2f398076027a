//! Runs a system file with built-in work and prints its job counts: `cargo run --release -p hyoshi-runtime --example
//! run -- FILE [STRATEGY]`.

use std::error::Error;
use std::sync::Arc;

use hyoshi_model::{Contents, read_file};
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, JobOutcome, Stats, TraceEvent};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut system = read_file(arguments.next().ok_or("usage: run FILE [STRATEGY]")?)?.system;
    if let Some(strategy) = arguments.next() {
        let change =
            |system: &mut Contents| system.processors.iter_mut().for_each(|one| one.strategy = strategy.clone());
        system = system.with(change);
    }
    let system = Arc::new(system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in())?);
    let running = Node::new(system.clone(), plan).start()?;
    let mut stats = Stats::new(&system);
    let mut count = |_, _, event| {
        if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
            stats.record(&end);
        }
    };
    let finished = running.wait(&mut count);
    for (epoch, region) in system.epochs.iter().enumerate() {
        let [critical, other] =
            [true, false].map(|critical| stats.counts(Some(epoch), |row| row.critical() == critical));
        print!("{:12}", region.name);
        for (what, counts) in [("critical", critical), ("other", other)] {
            let [made, missed, cancelled] =
                [JobOutcome::Made, JobOutcome::Missed, JobOutcome::Cancelled].map(|o| counts.of(o));
            print!("  {what}: made {made:5} missed {missed:5} cancelled {cancelled:5}");
        }
        println!();
    }
    println!(
        "{} after {}; lost {:?}; stolen {:?}",
        finished.ended_by, finished.elapsed, finished.lost, finished.stolen
    );
    finished.notes.iter().for_each(|note| println!("{note}"));
    Ok(())
}
