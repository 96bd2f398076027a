//! Messages: GIOP 1.0, 1.1 and 1.2 (CORBA 3.3 part 2, 9.4).
//!
//! A [`Reassembler`] turns the octets of a connection into whole messages ([`Received`]); their contents are read in
//! place. Messages to send are written into a reusable [`Encoder`](crate::Encoder).
//!
//! ```
//! use hyoshi_wire::giop::{Message, Reassembler, ReplyHeader, ReplyStatus, RequestHeader, Response, Target};
//! use hyoshi_wire::{ByteOrder, Decode, Encode, Encoder, Limits};
//!
//! // The client.
//! let mut to = Encoder::new(ByteOrder::Little);
//! let target = Target::Key(b"Tracker");
//! let header = RequestHeader { id: 2, response: Response::Target, target, operation: "locate", contexts: &[] };
//! let begun = header.begin(&mut to)?;
//! 7u32.encode(&mut to)?;
//! begun.end(&mut to)?;
//!
//! // The server: the octets of a `read`, in any pieces.
//! let mut messages = Reassembler::new(Limits::default());
//! let mut octets = to.bytes();
//! while let Some(received) = messages.next(&mut octets)? {
//!     let Message::Request(mut request) = received.decode()? else { panic!() };
//!     assert_eq!((request.target.key()?, request.operation), (&b"Tracker"[..], "locate"));
//!     assert_eq!(u32::decode(&mut request.arguments)?, 7);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod begun;
mod codeset;
mod context;
mod fault;
mod header;
mod locate;
mod message;
mod reassembler;
mod reply;
mod request;
mod split;
mod target;
#[cfg(test)]
mod tests;
mod timing;

pub use begun::Begun;
pub use codeset::{CodeSet, CodeSets, Offer, Transmission};
pub use context::{
    CONTEXT_BI_DIR_IIOP, CONTEXT_CODE_SETS, CONTEXT_EXCEPTION_DETAIL, CONTEXT_HYOSHI_CALL, CONTEXT_RT_PRIORITY,
    CONTEXT_RT_SCHEDULING, Context, ListenPoint,
};
pub use fault::{Answer, Fault, close_connection, message_error};
pub use header::{Header, MessageKind};
pub use locate::{LocateReply, LocateReplyHeader, LocateRequest, LocateStatus};
pub use message::{Kept, Message, Received};
pub use reassembler::Reassembler;
pub use reply::{Reply, ReplyHeader, ReplyStatus};
pub use request::{Request, RequestHeader, Response, cancel_request};
pub use split::{MessageFragment, split};
pub use target::{Addressing, Target};
pub use timing::{KokyuTiming, OperationCall, RequestTiming, SchedulingContext, ThreadId};

pub use crate::tagged::{Tagged as ServiceContext, TaggedList as ServiceContexts};
