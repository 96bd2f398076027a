//! Hyoshi keeps critical work on time under overload, on one or several Linux machines.
//!
//! A file describes a system: processors, operations and their triggers, deadlines, chains, regions. `check` proves
//! deadlines, `sim` simulates in virtual time, `run` executes on the kernel. With [`cli`] a program has all verbs with
//! its own [`Bodies`] and strategies; the other items are the parts of these verbs.
//!
//! | feature | adds |
//! |---|---|
//! | `broker` | programs under the CPU broker: `broker`, `exec`, `attach`, `top`, `run` of files with reservations |
//! | `orb` | CORBA: the modules `orb` and `naming`, and `ior`, `call`, `idl`, `naming` |
//! | `zenoh` | completions between hosts over Zenoh, for files with `zenoh`; programs of Zenoh, for files with `gateway` |
//! | `eucon` | files with feedback loops under EUCON or DEUCON |
//! | `reproduce` | the papers' experiments: `reproduce` |
//!
//! All but `zenoh` are on by default, for the `hyoshi` command. Your own program compiles much faster without
//! the features that it does not use.
//!
//! ```
//! use hyoshi::{Instant, Plan, Strategies, Stats, read, simulate};
//!
//! let text = "name = 'two'
//! [operation.nav]
//! rate = '100Hz'
//! wcet = '2ms'
//! critical = true
//! [operation.map]
//! after = { all = ['nav'] }
//! wcet = '3ms'";
//! let system = read(text, "two.toml", None)?.system;
//! let plan = Plan::new(&system, &Strategies::built_in())?;
//! let until = Instant::ZERO + system.duration;
//! let simulated = simulate(&system, &plan, until, |_| Vec::new(), |_| true);
//! let mut stats = Stats::new(&system);
//! for (_, event) in &simulated.processors[0].probe {
//!     if let hyoshi::TraceEvent::Decision(hyoshi::DispatchDecision::End(end)) = event {
//!         stats.record(end);
//!     }
//! }
//! assert_eq!(stats.counts(None, |_| true).missed(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod bodies;
mod cli;

pub use bodies::Bodies;
pub use cli::cli;
pub use hyoshi_events::{
    EventChannel, Publisher, ReceivedEvent, RegisterError, Registration, Subscriber, Subscription,
};
pub use hyoshi_model::{
    Instant, JobId, Lateness, Loaded, OperationId, ProcessorId, Span, System, read, read_file, schema,
};
#[cfg(feature = "orb")]
pub use hyoshi_naming as naming;
#[cfg(feature = "orb")]
pub use hyoshi_node::corba_events::{any_of_payload, payload_of_any};
#[cfg(feature = "orb")]
pub use hyoshi_node::{IdlPayload, object};
#[cfg(feature = "orb")]
pub use hyoshi_orb as orb;
pub use hyoshi_runtime::{
    ActionOutcome, AdmissionControl, AdmissionError, AdmittedOperation, Body, ChooseError, ContractControl,
    ContractError, ContractState, EmitError, JobContext, Node, RegionEvent, RunHandles, RunningNode, SharedError,
    SharedValue,
};
pub use hyoshi_sched::{Discipline, Plan, Strategies, Strategy, Traits, Urgency, analyse};
pub use hyoshi_sim::simulate;
pub use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, JobService, NoProbe, Probe, Stats, TraceEvent};
