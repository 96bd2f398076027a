//! Real-time CORBA: priorities and timing of requests, from the client's thread to the thread that runs the servant.
//! `docs/real-time-orb.md` is a tour.

mod adapter;
mod arguments;
mod bands;
mod ceilings;
mod client;
pub mod current;
mod network;
mod priority;
mod scheduling;
mod settings;
pub mod threads;
mod timing;
mod transform;

pub(crate) use adapter::AdapterRt;
pub use adapter::{PriorityModel, RtPolicyError};
pub use arguments::{PriorityArgumentError, take_priority_range};
pub use bands::{PriorityBandError, PriorityBands};
pub use ceilings::{AboveCeiling, PriorityCeilings};
pub use client::{ClientPolicies, EffectivePolicies, OnewayOverflow, PolicyKind};
pub(crate) use client::{conflict, outgoing};
pub use current::SetPriorityError;
pub use hyoshi_os::{Dscp, PiGuard as MutexGuard, PiMutex as Mutex, TcpProperties};
pub use hyoshi_wire::giop::OperationCall;
pub use network::{DscpTable, NetworkPriorityMapping};
pub use priority::{
    DirectMapping, LinearMapping, MappingRange, NativeMapping, Priority, PriorityMapping, PriorityRangeError,
};
pub use scheduling::{ClientScheduler, ScheduleError, ServerScheduler};
pub use settings::ThreadpoolId;
pub(crate) use settings::{LanePlace, PoolLane, PoolPlaces, RtSettings};
pub use timing::{
    CallTiming, KokyuTiming, RequestTiming, ThreadId, machine_clock, on_machine_clock, timing_source, with_timing,
};
pub(crate) use timing::{TimingContext, carried, operation_call};
pub use timing::{call_source, carrying, timing};
pub use transform::PriorityTransform;

pub use crate::orb::{RtOrb, ThreadpoolError, ThreadpoolLane, ThreadpoolOptions};
pub use crate::server::RequestBuffer;
