//! Serves two trackers at two priorities, each on a lane of its own, and calls them: `cargo run --example real-time`.
//! Real-time priorities need root or CAP_SYS_NICE; without them the threads run at normal priority.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hyoshi_orb::rt::{DirectMapping, Priority, PriorityModel, ThreadpoolLane, ThreadpoolOptions, current};
use hyoshi_orb::{Orb, SystemException};
use hyoshi_os::scheduling::Scheduling;

#[path = "tracking/tracking.rs"]
mod generated;
use generated::tracking::{CallbackStub, LocateError, Position, Tracker};

struct Yard(&'static str);

impl Tracker for Yard {
    fn locate(&self, _: u32) -> Result<Position, LocateError> {
        let priority = current::priority().map_or(0, Priority::number);
        let thread = std::thread::current();
        let class = Scheduling::of(hyoshi_os::own_thread()).map_or("gone".into(), |own| own.class.to_string());
        println!("{}: CORBA priority {priority}, {class}, thread {}", self.0, thread.name().unwrap_or_default());
        Ok(Position::default())
    }

    fn place(&self, _: u32, _: &Position) -> Result<(), SystemException> {
        Ok(())
    }

    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }

    fn targets(&self) -> Result<u32, SystemException> {
        Ok(0)
    }
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprintln!("real-time: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let [scan, brake] = [Priority::new(5), Priority::new(20)].map(Option::unwrap_or_default);
    let orb = Orb::builder().priority_mapping(DirectMapping::default()).listen("iiop://127.0.0.1:0")?.build()?;

    let lane = |priority| ThreadpoolLane { priority, static_threads: 2, ..ThreadpoolLane::default() };
    let pool = orb.rt().create_threadpool_with_lanes(&[lane(scan), lane(brake)], &ThreadpoolOptions::default())?;
    let model = PriorityModel::ServerDeclared { priority: scan };
    let adapter = orb.adapter("trackers").priority_model(model).threadpool(pool).build()?;
    let scanner = adapter.activate::<dyn Tracker>(Arc::new(Yard("scan")))?;
    let braker = adapter.activate_with_priority::<dyn Tracker>(Arc::new(Yard("brake")), brake)?;
    orb.ready();

    let client = Orb::client()?;
    for tracker in [scanner, braker] {
        client.resolve_unchecked::<dyn Tracker>(&tracker.ior().to_string())?.locate(7)?;
    }
    Ok(())
}
