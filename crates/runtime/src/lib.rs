//! The dispatcher on real threads: one file's system, carried out by the kernel.
#![forbid(unsafe_code)]

mod body;
mod common;
mod context;
mod crew;
mod ended;
mod inbox;
mod link;
mod node;
mod payload;
mod place;
mod posts;
mod processor;
mod running;
mod shared;
mod watchdog;
mod work;

pub use body::Body;
pub use context::JobContext;
pub use ended::{EndedBy, Finished, Lost, Note};
pub use node::{Node, StartError};
pub use payload::EmitError;
pub use running::{Running, Sink};
pub use shared::{Shared, SharedError};
