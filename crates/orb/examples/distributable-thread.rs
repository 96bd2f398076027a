//! A distributable thread searches in a server until its client cancels it:
//! `cargo run -p hyoshi-orb --example distributable-thread`.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_orb::rt::{self, CallTiming, threads};
use hyoshi_orb::{Orb, SystemException};

#[path = "tracking/tracking.rs"]
mod generated;
use generated::tracking::{CallbackStub, LocateError, Position, Tracker};

struct Searcher;

impl Tracker for Searcher {
    fn locate(&self, _: u32) -> Result<Position, LocateError> {
        let _segment = threads::segment("search", None)?;
        let importance = rt::timing().map_or(0, |timing| timing.importance);
        println!("servant: importance {importance}, segments {:?}", threads::current_scheduling_segment_names());
        loop {
            std::thread::sleep(Duration::from_millis(1)); // a step of the search
            threads::check().inspect_err(|cancelled| println!("servant: {}", cancelled.kind.name()))?;
        }
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
    eprintln!("distributable-thread: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let server = Orb::builder().listen("iiop://127.0.0.1:0")?.build()?;
    let tracker = server.adapter("trackers").build()?.activate::<dyn Tracker>(Arc::new(Searcher))?;
    server.ready();
    let client = Orb::client()?;
    let tracker = client.resolve_unchecked::<dyn Tracker>(&tracker.ior().to_string())?;

    let parameters = CallTiming { within: Some(Span::from_millis(500)), importance: 7, ..CallTiming::default() };
    let segment = threads::segment("track", Some(parameters))?;
    let thread = threads::current().ok_or("no thread runs")?;
    let watchdog = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        println!("watchdog: {:?}", thread.state());
        thread.cancel()
    });
    if let Err(error) = tracker.locate(7) {
        println!("client: {error}");
    }
    println!("client: the segment ended {}", if segment.end().is_ok() { "well" } else { "with the exception" });
    watchdog.join().map_err(|_| "the watchdog panicked")??;
    Ok(())
}
