//! Calls a tracker: `cargo run --example tracker-client [REFERENCE]`, `corbaloc:iiop:1.2@127.0.0.1:2809/Tracker` unless
//! said; `IOR:...` and `file:...` do as well.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use hyoshi_model::Span;
use hyoshi_orb::{Orb, SystemException, SystemKind};

#[path = "tracking/tracking.rs"]
mod generated;
use generated::tracking::{Callback, LocateError, Position, Tracker};

/// Hands on what it is told.
struct Listener(SyncSender<(u32, Position)>);

impl Callback for Listener {
    fn moved(&self, id: u32, to: &Position) -> Result<(), SystemException> {
        // A client that has ended does not mind.
        let _ = self.0.try_send((id, *to));
        Ok(())
    }
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprintln!("tracker-client: {error}");
    if error.downcast_ref::<SystemException>().is_some_and(|raised| raised.kind == SystemKind::Transient) {
        eprintln!("Does tracker-server run?");
    }
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "corbaloc:iiop:1.2@127.0.0.1:2809/Tracker".to_owned());
    // The server calls the client at the client's own port. (If it cannot: bidirectional GIOP, docs/orb.md.)
    let orb = Orb::builder().listen("iiop://127.0.0.1:0")?.build()?;
    let tracker = orb.resolve::<dyn Tracker>(&server)?;

    println!("7 is at {:?}", tracker.locate(7)?);
    match tracker.locate(99) {
        Err(LocateError::UnknownTarget(unknown)) => println!("{} is unknown", unknown.id),
        other => println!("unexpected: {other:?}"),
    }
    // A call that takes at most 100 ms, and one that nobody waits for yet.
    let within = tracker.within(Span::from_millis(100));
    let later = tracker.locate_async(7);
    println!("{} targets; 7 is still at {:?}", within.targets()?, later.wait()?);

    let (tell, told) = sync_channel(16);
    let callback = orb.adapter("callbacks").build()?.activate::<dyn Callback>(Arc::new(Listener(tell)))?;
    orb.ready();
    tracker.subscribe(Some(&callback))?;
    tracker.place(8, &Position { x: 1.0, y: 2.0 })?;
    let (id, to) = told.recv()?;
    println!("told that {id} moved to {to:?}");
    Ok(())
}
