//! Sources of servants for objects that are not active.

use hyoshi_wire::SystemException;
use hyoshi_wire::ior::Ior;

use super::servant::Servant;

/// The reason why there is no servant.
#[derive(Clone, Debug)]
pub enum Elsewhere {
    /// The caller gets this exception.
    Raise(SystemException),
    /// The caller is forwarded to this object.
    Forward(Box<Ior>),
}

impl From<SystemException> for Elsewhere {
    fn from(exception: SystemException) -> Self {
        Elsewhere::Raise(exception)
    }
}

/// Makes servants for objects at their first request; they stay active until they are deactivated. (A servant manager
/// under the policy RETAIN, CORBA 3.3 part 1, 15.3.6.)
///
/// For one object, incarnate and etherealize are called one at a time and in turns; for different objects, in parallel.
/// Meanwhile a bounded number of requests ([`hold_at_most`](crate::AdapterBuilder::hold_at_most)) waits for a bounded time
/// ([`made_within`](crate::AdapterBuilder::made_within)); others get TRANSIENT. An activator may call other objects, also
/// inactive ones. A call to the object that it is making or ending raises BAD_INV_ORDER at once, or TRANSIENT after that
/// time if it arrives through other objects.
pub trait Activator: Send + Sync {
    /// A servant for the object, or the reason why there is none.
    fn incarnate(&self, id: &[u8]) -> Result<Servant, Elsewhere>;

    /// The object was deactivated, and none of its calls runs. Called by the thread that deactivates it or that of the last
    /// call.
    fn etherealize(&self, id: &[u8], servant: Servant) {
        let _ = (id, servant);
    }
}

/// Finds a servant for each request. (A servant manager under the policy NON_RETAIN, 15.3.7.)
pub trait Locator: Send + Sync {
    /// The servant for one request, or the reason why there is none.
    fn before(&self, id: &[u8], operation: &str) -> Result<Servant, Elsewhere>;

    /// The request has ended.
    fn after(&self, id: &[u8], operation: &str, servant: Servant) {
        let _ = (id, operation, servant);
    }
}
