//! A program's own changes of priorities on their way (Real-time CORBA 1.2, section 5.6).

use std::fmt;

use super::Priority;

/// Changes the priorities of requests as they arrive and leave (`RTCORBA::PriorityTransform`). A priority that it
/// refuses with `None` raises DATA_CONVERSION.
pub trait PriorityTransform: fmt::Debug + Send + Sync {
    /// The priority at which a request to an object runs. `priority` is that of the client or the object.
    fn inbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority> {
        let _ = object_id;
        Some(priority)
    }

    /// The priority of a request that a servant sends. `priority` is that of the servant's thread, and `object_id` that
    /// of its object.
    fn outbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority> {
        let _ = object_id;
        Some(priority)
    }
}
