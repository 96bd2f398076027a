//! Calls of remote objects: the routes to an object, the [`Itinerary`](itinerary::Itinerary) of a request, its reply.

mod buffers;
mod invoke;
mod itinerary;
mod pending;
mod remote;
mod route;

pub(crate) use invoke::{Invocation, invoke};
pub use pending::Pending;
pub(crate) use remote::RemoteObject;
