//! Every Linux call of Hyoshi: threads, clocks, locks and wake-ups, the privileges that they need, and the remedies if
//! the kernel refuses.
//!
//! The only crate with `unsafe`. Its interface is safe and small. A request that the kernel refuses is returned as data
//! ([`Refused`]), never as a silent fallback. Mechanisms that upper crates drive have a trait with a [`fake`], so they
//! are tested unprivileged. Kernel facts cite the manual page or were measured (kernel 6.18 and 6.1); nothing tests a
//! kernel *version*, features are probed.
//!
//! A thread above ordinary ones, woken through a [`Wake`], that shares a value through a [`PiMutex`]:
//!
//! ```
//! use std::sync::Arc;
//! use hyoshi_os::{PiMutex, ThreadPolicy, Spawn, Wake, priority::lane_priority};
//!
//! let (go, count) = (Arc::new(Wake::new()), Arc::new(PiMutex::new(0)));
//! let lane = Spawn::new("lane-0").policy(ThreadPolicy::Fifo(lane_priority(0))).spawn({
//!     let (go, count) = (go.clone(), count.clone());
//!     move || {
//!         go.wait();
//!         *count.lock() += 1;
//!     }
//! })?;
//! for refused in &lane.granted.refused {
//!     println!("{refused}"); // without privileges it runs all the same, at normal priority
//! }
//! go.post();
//! lane.join().expect("the body does not panic");
//! assert_eq!(*count.lock(), 1);
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(unsafe_op_in_unsafe_fn)]

pub mod alarm;
pub mod busy;
pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod doctor;
pub mod environment;
pub mod fake;
pub mod file;
pub mod idle;
pub mod input;
pub mod kick;
pub mod lock;
pub mod machine;
pub mod machine_load;
pub mod memory;
pub mod meter;
pub mod namespace_lock;
pub mod net;
pub mod notify;
pub mod plugin;
pub mod poller;
pub mod priority;
mod proc;
pub mod process;
pub mod progress;
pub mod realtime;
pub mod refusal;
pub mod scheduling;
pub mod secret;
pub mod sensors;
pub mod signals;
pub mod slot;
pub mod steal;
pub mod switches;
mod tcp_counts;
pub mod thread;
pub mod throttle;
pub mod trusted;
pub mod users;
pub mod waits;
pub mod wake;
pub mod wakeups;

pub use alarm::{Alarm, AlarmReport, Alarms};
pub use busy::BusyReader;
pub use clock::{Clock, MonotonicClock};
pub use cpu::allowed_cpus;
pub use doctor::{DoctorFinding, DoctorVerdict, probe};
pub use environment::{secure_var, secure_var_os};
pub use hyoshi_model::Dscp;
pub use input::wait_for_input;
pub use kick::{allow_kicks, handle_signals};
pub use lock::{PiGuard, PiMutex};
pub use machine_load::MachineReader;
pub use memory::{lock_memory, prefault};
pub use namespace_lock::NamespaceLock;
pub use net::{
    Credentials, Listener, May, MissingResource, SocketAddress, SocketStream, TcpProperties, WeakSocketStream,
    host_name, raise_file_limit,
};
pub use notify::Notifier;
pub use poller::{Poller, Ready};
pub use refusal::{KernelRequest, RefusalReason, Refused};
pub use signals::{Hangup, Interrupt};
pub use slot::AtomicSlot;
pub use steal::StealReader;
pub use switches::{CpuSwitches, SwitchSource, SwitchVisibility, Switched, thread_name};
pub use tcp_counts::TcpCounts;
pub use thread::{
    Granted, Scheduled, Spawn, SpawnedThread, ThreadHandle, ThreadPolicy, may_leave_idle, own_cpu, own_cpu_time,
    own_thread, own_threads, pin_to, set_own_policy,
};
pub use throttle::{FifoLimit, LimitedBy, fifo_limit};
pub use waits::BlockedOn;
pub use wake::{WaitOutcome, Wake};

#[cfg(test)]
#[path = "../tests/common/privileges.rs"]
mod privileges;
