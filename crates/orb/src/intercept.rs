//! Interceptors: code of the user around every request of an ORB, on both sides.

use std::any::Any;

use hyoshi_os::Credentials;
use hyoshi_wire::SystemException;
use hyoshi_wire::giop::ServiceContexts;

use crate::call::{Call, Replied};

/// Around requests that come. They run in the order in which they were given, and back in reverse.
pub trait ServerInterceptor: Send + Sync {
    /// A client has connected over a Unix socket. The returned value is dropped when the connection closes.
    ///
    /// # Errors
    ///
    /// The connection is closed before anything is read from it.
    fn connected(&self, who: &Credentials) -> Result<Option<Box<dyn Any + Send + Sync>>, SystemException> {
        let _ = who;
        Ok(None)
    }

    /// Before the servant is called: may look at the request's contexts, and send some along with the reply.
    ///
    /// # Errors
    ///
    /// What the client is to be told instead of calling the servant.
    fn before(&self, call: &mut Call<'_>) -> Result<(), SystemException> {
        let _ = call;
        Ok(())
    }

    /// After the reply was written and before it is sent: may send contexts along (in GIOP 1.2).
    fn after(&self, call: &mut Call<'_>) {
        let _ = call;
    }
}

/// Around requests that go out.
pub trait ClientInterceptor: Send + Sync {
    /// Before it is sent, each time it is: may send contexts along.
    ///
    /// # Errors
    ///
    /// What the caller is to be told instead of sending it. Of the interceptors only those before this one hear of it.
    fn before(&self, call: &mut Outgoing<'_>) -> Result<(), SystemException> {
        let _ = call;
        Ok(())
    }

    /// After its reply has come.
    fn after(&self, call: &Outgoing<'_>, replied: &Replied, contexts: &ServiceContexts<'_>) {
        let _ = (call, replied, contexts);
    }

    /// After it failed without a reply, or a later interceptor refused it.
    fn failed(&self, call: &Outgoing<'_>, exception: &SystemException) {
        let _ = (call, exception);
    }
}

/// A request about to be sent.
#[derive(Debug)]
pub struct Outgoing<'a> {
    pub(crate) operation: &'a str,
    pub(crate) key: &'a [u8],
    pub(crate) contexts: Vec<(u32, Vec<u8>)>,
}

impl Outgoing<'_> {
    /// The operation's name.
    pub fn operation(&self) -> &str {
        self.operation
    }

    /// The object's key.
    pub fn key(&self) -> &[u8] {
        self.key
    }

    /// Sends `data` along, as the service context with this id.
    pub fn send_context(&mut self, id: u32, data: Vec<u8>) {
        self.contexts.push((id, data));
    }
}
