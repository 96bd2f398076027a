//! Real-time CORBA: priorities and timing of requests, from the client's thread to the thread that runs the servant.

mod bands;
mod priority;
mod timing;

pub use bands::{PriorityBandError, PriorityBands};
pub use hyoshi_wire::giop::OperationCall;
pub use priority::{
    DirectMapping, LinearMapping, MappingRange, NativeMapping, Priority, PriorityMapping, PriorityRangeError,
};
pub use timing::{CallTiming, KokyuTiming, RequestTiming, machine_clock, on_machine_clock, timing_source, with_timing};
pub(crate) use timing::{TimingContext, carried, operation_call, serve};
pub use timing::{call_source, timing};
