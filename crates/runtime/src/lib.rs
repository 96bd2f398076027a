//! The dispatcher on real threads: a system carried out by the Linux kernel, at SCHED_FIFO
//! priorities, with the very decisions that the simulator takes.
//!
//! A [`Node`] takes a system and its plan, gives operations their bodies (or leaves them to built-in
//! work that uses the CPU for as long as `takes` says), and starts. The thread that started it polls
//! the [`Running`] system for what happens, and stops it. Nothing here prints.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use hyoshi_model::{Span, read};
//! use hyoshi_runtime::{Node, Shared};
//! use hyoshi_sched::{Plan, Strategies};
//! use hyoshi_trace::{Decision, Event, Stats};
//!
//! let text = r#"
//!     name     = "rover"
//!     duration = "300ms"
//!
//!     [operation.sense]
//!     every    = "10ms"
//!     wcet     = "1ms"
//!     critical = true
//!     payload  = "8B"
//!
//!     [operation.steer]
//!     after    = { all = ["sense"] }
//!     uses     = { map = "0.1ms" }
//!     wcet     = "1ms"
//!
//!     [operation.log]               # no body: built-in work
//!     every    = "50ms"
//!     wcet     = "5ms"
//!
//!     [resource.map]
//! "#;
//! let system = Arc::new(read(text, "rover.toml", None)?.system);
//! let plan = Arc::new(Plan::new(&system, &Strategies::built_in())?);
//!
//! let map = Shared::new(&system, "map", 0.0)?;
//! let theirs = map.clone();
//! let mut running = Node::new(system.clone(), plan)
//!     .body("sense", |job| {
//!         let distance = 0.5 * job.job().number as f64;
//!         job.emit_value(&distance).expect("eight bytes, as the file allows");
//!     })
//!     .body("steer", move |job| {
//!         let distance: f64 = job.read().expect("every sensing emits");
//!         theirs.lock(job, |map| *map = distance).expect("declared under `uses`");
//!     })
//!     .start()?;
//!
//! let mut stats = Stats::new(&system);
//! let mut count = |_, _, event| {
//!     if let Event::Decision(Decision::End(end)) = event {
//!         stats.record(&end);
//!     }
//! };
//! let finished = running.wait(&mut count);
//! assert_eq!(finished.elapsed, Span::from_millis(300));
//! for note in &finished.notes {
//!     println!("{note}"); // what the kernel refused, for one
//! }
//! assert!(map.peek(|map| *map) > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! Each processor is one CPU with a pure [`Dispatcher`](hyoshi_dispatch::Dispatcher) behind one lock
//! with priority inheritance. A *release thread* above everything tells it that time has come; the
//! threads of each *lane* (one for each level, at its priority) ask it for work and tell it of
//! completions. Who holds the lock reads the clock inside it, so the dispatcher's inputs are in the
//! order of time, and a recording of them makes a fresh dispatcher decide the same again. A lane
//! decides only when it has the CPU: what is first in it when it starts, starts.
//!
//! | what | how |
//! |---|---|
//! | preemption between levels | the kernel's: a lane is a priority |
//! | none | one lane of all levels |
//! | full | a thread for each operation; whoever puts a better job first lowers the thread of the other |
//! | a body that waits ([`JobContext::blocking`]) | gives its lane's run token up; its turn comes as a new segment |
//! | a job of a body that an earlier one is still in | is set aside, without a thread, until that is out |
//! | `on_overrun = "demote"` | built-in work goes on in a thread below the lanes; a body takes its thread there, and its lane has a spare one |
//! | `on_overrun = "stop"` | built-in work ends; a body is demoted, asked to return, and its lane goes on |
//! | the cap | gated lanes run at normal priority until the next window |
//! | a body that never returns | the watchdog, above all, ends the run by the operation's name and leaves the thread behind |
//! | no privileges | everything at normal priority, noted; with [`Node::strict`] an error |
//!
//! From release to completion nothing is allocated and no lock without inheritance is taken.
//! Statistics and recordings are written below the lanes, from a ring; what finds it full is counted.
//!
//! At the end, and when it is stopped, a run accounts for what is unfinished as a simulation does:
//! jobs past their deadline are missed, others were never there.

#![forbid(unsafe_code)]

mod body;
mod calibrate;
mod claim;
mod common;
mod context;
mod crew;
mod ended;
mod link;
mod lookout;
#[doc(hidden)]
pub mod measure;
mod meters;
mod node;
mod payload;
mod place;
mod posts;
mod processor;
mod refusal;
mod remote;
mod requests;
mod running;
mod seat;
mod shared;
mod threads;
mod watchdog;
mod work;

pub use body::Body;
pub use calibrate::{CalibrateError, Calibration, Figures};
pub use claim::Occupied;
pub use context::{JobContext, waiting};
pub use ended::{EndedBy, Finished, Lost, Note};
pub use lookout::Names;
pub use node::{Node, Prepared};
pub use payload::EmitError;
pub use refusal::StartError;
pub use remote::{Arrivals, Departure, Departures, Rejected};
pub use requests::{Arrived, Reader, Refuse};
pub use running::{Running, Sink};
pub use shared::{Shared, SharedError};
