//! Where servants come from when an object is asked for that is not active.

use hyoshi_wire::SystemException;
use hyoshi_wire::ior::Ior;

use super::servant::Servant;

/// Why there is no servant.
#[derive(Clone, Debug)]
pub enum Elsewhere {
    /// The caller is told this.
    Raise(SystemException),
    /// The caller is sent there.
    Forward(Box<Ior>),
}

impl From<SystemException> for Elsewhere {
    fn from(exception: SystemException) -> Self {
        Elsewhere::Raise(exception)
    }
}

/// Makes servants for objects when they are first asked for; they stay active until they are deactivated.
/// (A servant manager under the policy RETAIN, CORBA 3.3 part 1, 15.3.6.)
///
/// For one object, incarnate and etherealize are called one at a time and in turns; for different objects, side by side.
/// Requests that come meanwhile wait, a bounded number of them ([`hold_at_most`](crate::AdapterBuilder::hold_at_most)) for a
/// bounded time ([`made_within`](crate::AdapterBuilder::made_within)); then they get TRANSIENT. An activator may call
/// other objects, also such as have to be made. A call to the object that it is just making or ending raises
/// BAD_INV_ORDER at once; if it comes back to that object by way of others, TRANSIENT after that time.
pub trait Activator: Send + Sync {
    /// A servant for the object.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn incarnate(&self, id: &[u8]) -> Result<Servant, Elsewhere>;

    /// The object was deactivated, and no call of it runs. Called by the thread that deactivates it or by that of the
    /// last call.
    fn etherealize(&self, id: &[u8], servant: Servant) {
        let _ = (id, servant);
    }
}

/// Finds a servant for each request anew. (A servant manager under the policy NON_RETAIN, 15.3.7.)
pub trait Locator: Send + Sync {
    /// The servant for one request.
    ///
    /// # Errors
    ///
    /// Why there is none.
    fn before(&self, id: &[u8], operation: &str) -> Result<Servant, Elsewhere>;

    /// The request has been carried out.
    fn after(&self, id: &[u8], operation: &str, servant: Servant) {
        let _ = (id, operation, servant);
    }
}
