//! An object whose requests are jobs, and jobs that call it. The deadline of a job travels with its calls.
//!
//!     cargo run --release --example rt-objects -- run examples/rt-objects.toml
//!
//! Shown here: a servant for an object of the file (`Bodies::object`), a stub for it (`hyoshi::object`), and calls that
//! end at the job's deadline (`within`).

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hyoshi::orb::SystemException;
use hyoshi::{Bodies, Span, Strategies, System};

#[path = "../../orb/examples/tracking/tracking.rs"]
mod generated;
use generated::tracking::{CallbackStub, LocateError, Position, Tracker, UnknownTarget};

/// The base's map. Its lock is held only briefly: a request that waits for another request's lock would break the
/// order.
#[derive(Default)]
struct Map {
    targets: Mutex<HashMap<u32, Position>>,
}

impl Tracker for Map {
    fn locate(&self, id: u32) -> Result<Position, LocateError> {
        work(300);
        let targets = self.targets.lock().expect("no servant panics with it");
        targets.get(&id).copied().ok_or_else(|| UnknownTarget { id }.into())
    }

    fn place(&self, id: u32, to: &Position) -> Result<(), SystemException> {
        work(3_000);
        self.targets.lock().expect("no servant panics with it").insert(id, *to);
        Ok(())
    }

    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }

    fn targets(&self) -> Result<u32, SystemException> {
        Ok(self.targets.lock().expect("no servant panics with it").len() as u32)
    }
}

fn main() -> ExitCode {
    hyoshi::cli(Bodies::for_system(bodies), Strategies::built_in())
}

fn bodies(system: &System) -> Result<Bodies, Box<dyn Error>> {
    let asked = hyoshi::object::<dyn Tracker>(system, "map")?;
    let told = asked.clone();
    let unknown = AtomicU32::new(0);
    Ok(Bodies::new()
        .object::<dyn Tracker>("map", Arc::new(Map::default()))
        .body("steer", move |job| {
            // If the answer is late, steering continues without it.
            match asked.as_ref().within(job.time_left().max(Span::from_micros(1))).locate(7) {
                Ok(_) => {}
                Err(_) => drop(unknown.fetch_add(1, Ordering::Relaxed)),
            }
        })
        .body("explore", move |job| {
            let step = job.job().number as f64;
            let to = Position { x: step.cos(), y: step.sin() };
            let _ = told.as_ref().within(job.time_left().max(Span::from_micros(1))).place(7, &to);
        }))
}

/// Computes for about this many microseconds.
fn work(micros: u64) {
    let until = std::time::Instant::now() + std::time::Duration::from_micros(micros);
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
}
