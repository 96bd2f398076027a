//! Real-time CORBA: priorities of requests, from the client's thread to the thread that runs the servant.

mod bands;
mod priority;

pub use bands::{PriorityBandError, PriorityBands};
pub use priority::{
    DirectMapping, LinearMapping, MappingRange, NativeMapping, Priority, PriorityMapping, PriorityRangeError,
};
