//! Settings for connections of an ORB that offers bidirectional GIOP.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::mux::Mux;
use super::outlet::Outlet;
use crate::link::Link;

/// See the module.
#[derive(Debug)]
pub(crate) struct Offer {
    /// The lane whose threads run incoming requests.
    pub(crate) lane: Box<dyn TakeIn>,
    /// The context with the listen points.
    pub(crate) context: Arc<[u8]>,
}

/// Reads connections that this side opened, and runs incoming requests.
pub(crate) trait TakeIn: fmt::Debug + Send + Sync {
    /// `calls` makes the calls over it. Octets of a reply are at most `most`.
    fn take_in(&self, stream: Link, most: usize, calls: &dyn Fn(Outlet) -> Mux) -> io::Result<Arc<Mux>>;
}
