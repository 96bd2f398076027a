//! The model of a distributed real-time system: time, operations and their triggers, chains, shared resources and
//! operating regions, and the file that describes them.
//!
//! The file's reader turns text into a [`System`] in which an unknown name, a trigger cycle or a period of zero cannot
//! exist. Every other crate uses a `System` without checking again.
//!
//! - [`time`]: instants and spans in whole nanoseconds; [`quantity`]: `"2.5ms"`, `"40Hz"`, `"75%"`.
//! - [`system`]: the system itself. Releases are periodic, or triggered by completions; a chain is an end-to-end
//!   requirement; an epoch is an operating region (Kokyu, section III-B).
//! - [`event`]: events by name, which operations supply and follow.
//! - [`contract`]: operating regions over measured conditions.
//! - [`feedback`]: loops that adapt rates; [`control_group`]: those that several processors share.
//! - [`standby`]: operations that loops admit during a run.
//! - [`program`]: programs beside the operations, under the CPU broker.
//! - [`network`]: network devices whose traffic is divided by DSCP.
//! - [`reservation`]: an amount of CPU time in each period, and shares of a CPU.
//! - [`predicate`]: truth values over the conditions of a contract.
//! - [`execution_time`]: the actual execution times of jobs, drawn repeatably.
//! - `file` (feature `toml`, on by default): the reader, its diagnostics, and the table of all keys.
//!   Without the feature the crate needs no `std`.
//!
//! ```
//! # #[cfg(feature = "toml")] {
//! use hyoshi_model::{Deadline, Span};
//!
//! let text = r#"
//!     name = "uav"
//!
//!     [operation.sense]
//!     rate = "40Hz"
//!     wcet = "2ms"
//!
//!     [operation.steer]
//!     after = { all = ["sense"] }
//!     wcet  = "1ms"
//! "#;
//! let loaded = hyoshi_model::read(text, "uav.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
//! let steer = &loaded.system.epochs[0].settings[1];
//! assert_eq!(steer.period, Span::from_millis(25));
//! assert_eq!(steer.deadline, Deadline::Origin(Span::from_millis(25)));
//!
//! let errors = hyoshi_model::read(&text.replace("2ms", "2"), "uav.toml", None).unwrap_err();
//! assert_eq!((errors.errors[0].line, errors.errors[0].message.as_str()), (6, "`wcet` has no unit"));
//! # }
//! ```

#![cfg_attr(not(any(feature = "toml", test)), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod checked;
pub mod contract;
pub mod control_group;
pub mod costs;
pub mod delegate;
pub mod endpoint;
pub mod event;
pub mod execution_time;
pub mod feedback;
#[cfg(feature = "toml")]
pub mod file;
pub mod gateway;
pub mod hard_cap;
pub mod ids;
pub mod network;
pub mod object;
pub mod outside;
pub mod predicate;
pub mod program;
pub mod quantity;
pub mod reservation;
pub mod standby;
pub mod system;
mod text;
pub mod time;
pub mod write;

pub use checked::System;
pub use contract::{
    Condition, ConditionSource, Contract, ContractAction, ContractRegion, ContractRoute, ContractSetting,
    ExternalAction, JobScope, RegionRules, RouteContent, Stay, WindowSummary,
};
pub use control_group::{
    ControlGroup, ControlNode, GroupTask, MOST_CONTROLLED_PROCESSORS, MOST_CONTROLLED_TASKS, PLANNING_ROUNDS, STEP_PART,
};
pub use costs::Costs;
pub use delegate::{
    ALL_OPERATIONS, DeclaredBehaviour, DeclaredDelegate, DeclaredProxy, DelegateException, DelegatePlace,
    DelegateTotals, LONGEST_DELAY, Thinning,
};
pub use endpoint::{Address, Endpoint, EndpointError};
pub use event::Event;
pub use execution_time::ExecutionTime;
pub use feedback::{
    ALGORITHMS, AdaptedOperations, DesignGains, FeedbackAlgorithm, FeedbackLoop, GROUP_ALGORITHMS, LatencyScope,
    LatencySetPoint, LoadMeasure, MOST_SERVICE_LEVELS, RateDivision, ServiceLevel, StartRates, at_level,
};
#[cfg(feature = "toml")]
pub use file::{
    Diagnostic, FileErrors, LawResult, Laws, Loaded, MeasuredCosts, QosketParameter, ReadContext, SetPointAnalysis,
    Severity, ShippedQosket, read, read_costs, read_costs_file, read_file, read_file_with, read_with, schema,
    shipped_qoskets,
};
pub use gateway::{Gateway, GatewayMode};
pub use hard_cap::{HardCap, OnOverload};
pub use ids::*;
pub use network::{Dscp, NetworkDevice, TrafficClass};
pub use object::{ClientCeiling, ClientName, ClientRates, ServedObject};
pub use outside::{
    DelegateMeasure, DelegateQuantity, HostMeasure, HostQuantity, LinkMeasure, LinkQuantity, OutsideCondition,
    OutsideMeasure, ReservationMeasure, ReservationQuantity,
};
pub use program::{AdvocateWords, Broker, Brokered, Program, ReservationSetting};
pub use reservation::{Reservation, ReservationError, Share};
pub use standby::Admissions;
pub use system::*;
pub use text::{printable, printable_lines, steers_terminal};
pub use time::{Instant, Lateness, Span};
pub use write::{contract_text, write};
