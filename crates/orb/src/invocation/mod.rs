//! Calls of remote objects: the routes to an object by its policies, the [`Itinerary`](itinerary::Itinerary) of a request, its reply.

mod binding;
mod buffers;
mod invoke;
mod itinerary;
mod pending;
mod remote;
mod route;

pub(crate) use invoke::{CallerPriority, Invocation, connect, invoke};
pub use pending::Pending;
pub(crate) use remote::RemoteObject;
