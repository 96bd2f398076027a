//! Real-time CORBA: priorities and timing of requests, from the client's thread to the thread that runs the servant.

mod bands;
mod priority;
mod timing;

pub use bands::{PriorityBandError, PriorityBands};
pub use priority::{
    DirectMapping, LinearMapping, MappingRange, NativeMapping, Priority, PriorityMapping, PriorityRangeError,
};
pub use timing::timing;
pub use timing::{CallTiming, KokyuTiming, RequestTiming, machine_clock, on_machine_clock, timing_source, with_timing};
pub(crate) use timing::{TimingContext, carried, serve};
