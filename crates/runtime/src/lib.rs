//! Runs a system on real threads: the Linux kernel schedules them at SCHED_FIFO priorities, and the dispatcher makes
//! the same decisions as in the simulator.
//!
//! A [`Node`] receives a system and its plan, gets bodies for operations, and starts. Operations without a body have
//! built-in work, which uses the CPU for the time in `takes`. The starting thread polls the [`RunningNode`] for events
//! and stops it. This crate prints nothing.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use hyoshi_model::{Span, read};
//! use hyoshi_runtime::{Node, SharedValue};
//! use hyoshi_sched::{Plan, Strategies};
//! use hyoshi_trace::{DispatchDecision, TraceEvent, Stats};
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
//! let map = SharedValue::new(&system, "map", 0.0)?;
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
//!     if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
//!         stats.record(&end);
//!     }
//! };
//! let finished = running.wait(&mut count);
//! assert_eq!(finished.elapsed, Span::from_millis(300));
//! for note in &finished.notes {
//!     println!("{note}"); // for example what the kernel refused
//! }
//! assert!(map.peek(|map| *map) > 0.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! Each processor is one CPU. Its pure [`Dispatcher`](hyoshi_dispatch::Dispatcher) is behind one lock with priority
//! inheritance. A *release thread* above all lanes handles timers. The threads of each *lane* (one lane for each level,
//! at its priority) request jobs and report completions. A thread reads the clock while it holds the lock, so the
//! dispatcher's inputs are in the order of time, and a replay of the recorded inputs repeats its decisions. A lane
//! decides only when it has the CPU: the job that is first at that time starts.
//!
//! | what | how |
//! |---|---|
//! | preemption between levels | the kernel's: a lane is a priority |
//! | none | one lane of all levels |
//! | full | a thread for each operation; the thread that makes a better job first lowers the other one's thread |
//! | a body that waits ([`JobContext::blocking`]) | releases its lane's run token, and continues as a new segment |
//! | a job while an earlier job still runs the same body | waits without a thread until that job ends |
//! | `on_overrun = "demote"` | built-in work continues below the lanes; a body keeps its thread; its lane has a spare |
//! | `on_overrun = "stop"` | built-in work ends; a body is demoted and asked to return, and its lane continues |
//! | `on_miss = "stop"` | the same at the deadline; a job that has not started by then does not start |
//! | the cap | gated lanes run at normal priority until the next window |
//! | a body that never returns | the watchdog ends the run with the operation's name and abandons the thread |
//! | no privileges | all threads at normal priority, with a note; with [`Node::strict`] an error |
//!
//! From release to completion, the code allocates nothing and uses no lock without priority inheritance. Statistics and
//! recordings are written below the lanes, from a ring; events that find it full are counted.
//!
//! At its end a run treats unfinished jobs as a simulation does: jobs past their deadline are missed, others do not
//! count.

#![forbid(unsafe_code)]

mod adapted_rates;
mod admissions;
mod body;
mod built_in_work;
mod calibrate;
mod chain_threads;
mod choice;
mod claim;
mod client_meter;
mod client_rates;
mod common;
mod condition_sampler;
mod context;
mod contract_control;
mod contract_updates;
mod coordination;
mod cpu_choice;
mod cpu_watch;
mod crew;
mod ended;
mod events;
mod link;
mod link_monitor;
#[doc(hidden)]
mod load_monitor;
mod machine_load;
pub mod measure;
mod meters;
mod moves;
mod node;
mod payload;
mod policy_control;
mod processor;
mod region_actions;
mod remote;
mod remote_rates;
mod remote_samples;
mod replica;
mod requests;
mod run_handles;
mod running;
mod shared;
mod start_error;
mod threads;
mod wakeups;
mod watchdog;

pub use admissions::{AdmissionControl, AdmissionError, AdmittedOperation};
pub use body::Body;
pub use calibrate::{CalibrateError, Calibration, CostFigures};
pub use chain_threads::{CancelOutcome, ChainThread, ChainThreads, LaneSender, SegmentState, ThreadSegment};
pub use choice::ChooseError;
pub use claim::OccupiedCpu;
pub use client_meter::ClientMeter;
pub use client_rates::{ClientRateControl, JoinLoopError, JoinedClient};
pub use common::{fingerprint, last_part};
pub use context::{JobContext, JobTiming, OutgoingCall, begin_call, job_timing, waiting};
pub use contract_control::{ContractControl, ContractError, ContractState};
pub use cpu_watch::ThreadNames;
pub use ended::{EndedBy, Finished, LostRecords, RunNote};
pub use events::{EventFeed, EventInput, FeedControl, SuppliedEvent, SupplierCounts};
pub use link_monitor::{LinkAccess, LinkAccessSlot, LinkReading};
pub use machine_load::MachineLoad;
pub use node::{Node, Prepared};
pub use payload::EmitError;
pub use region_actions::{
    ActionOutcome, BrokerAccess, BrokerLoad, COMMAND_LIMIT, DelegateAccess, ProgramLoad, RegionCallback, RegionEvent,
    SettingRefusal,
};
pub use remote::{
    ArrivedOutput, Departure, IncomingCompletions, LaneSenders, OutgoingCompletion, OutgoingCompletions,
    OutgoingOutput, Rejected,
};
pub use remote_samples::GroupSample;
pub use requests::{ArrivedRequest, Refuse, RequestReader};
pub use run_handles::RunHandles;
pub use running::{EventSink, RunningNode};
pub use shared::{SharedError, SharedValue};
pub use start_error::StartError;
