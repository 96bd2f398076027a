//! Serves a tracker: `cargo run --example tracker-server [ENDPOINT]`, `iiop://127.0.0.1:2809` unless said. Then, in
//! another terminal, `cargo run --example tracker-client`.

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use hyoshi_orb::{Orb, SyncScope, SystemException};

#[path = "tracking/tracking.rs"]
mod generated;
use generated::tracking::{Callback, CallbackStub, LocateError, Position, Tracker, UnknownTarget};

#[derive(Default)]
struct Yard {
    targets: Mutex<HashMap<u32, Position>>,
    subscribers: Mutex<Vec<CallbackStub>>,
}

impl Tracker for Yard {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        let targets = self.targets.lock().expect("no servant panics with it");
        targets.get(&id).copied().ok_or_else(|| UnknownTarget { id }.into())
    }

    fn place(&self, id: u32, to: &Position) -> Result<(), SystemException> {
        self.targets.lock().expect("no servant panics with it").insert(id, *to);
        // Those that do not answer are told no more. Nobody is called under the lock.
        let told = self.subscribers.lock().expect("no servant panics with it").clone();
        let (_, gone): (Vec<_>, Vec<_>) = told.into_iter().partition(|who| who.moved(id, to).is_ok());
        self.subscribers.lock().expect("no servant panics with it").retain(|who| !gone.contains(who));
        Ok(())
    }

    fn subscribe(&self, who: Option<&CallbackStub>) -> Result<(), SystemException> {
        // The server waits until a message has arrived, not until it was carried out.
        let who = who.map(|who| who.oneways(SyncScope::Server));
        self.subscribers.lock().expect("no servant panics with it").extend(who);
        Ok(())
    }

    fn targets(&self) -> Result<u32, SystemException> {
        Ok(self.targets.lock().expect("no servant panics with it").len() as u32)
    }
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprintln!("tracker-server: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let endpoint = std::env::args().nth(1).unwrap_or_else(|| "iiop://127.0.0.1:2809".to_owned());
    let orb = Orb::builder().listen(&endpoint)?.build()?;
    let adapter = orb.adapter("trackers").persistent().build()?;
    let tracker = adapter.activate_as::<dyn Tracker>("yard", Arc::new(Yard::default()))?;
    tracker.place(7, &Position { x: 3.0, y: 4.0 })?; // a call within the process
    orb.publish("Tracker", &tracker)?;
    println!("{}", tracker.ior());
    orb.run();
    Ok(())
}
