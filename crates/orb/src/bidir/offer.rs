//! What an ORB that offers bidirectional GIOP opens connections with.

use std::sync::Arc;

use crate::server::Lane;

/// See the module.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Whose threads carry out what comes.
    pub(crate) lane: Arc<Lane>,
    /// The listen points, as the context that tells them.
    pub(crate) context: Arc<[u8]>,
}
