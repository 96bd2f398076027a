//! Interceptors: user code around every request of an ORB, on both sides.

use std::any::Any;

use hyoshi_os::Credentials;
use hyoshi_wire::SystemException;
use hyoshi_wire::giop::ServiceContexts;

use crate::call::{Call, Replied};

/// Runs around incoming requests: before them in the order of registration, after them in reverse.
pub trait ServerInterceptor: Send + Sync {
    /// A client has connected over a Unix socket. The returned value is dropped when the connection closes. After an error
    /// the connection is closed before it is read.
    fn connected(&self, who: &Credentials) -> Result<Option<Box<dyn Any + Send + Sync>>, SystemException> {
        let _ = who;
        Ok(None)
    }

    /// Before the servant is called. It may read the request's contexts, and add some to the reply.
    ///
    /// # Errors
    ///
    /// The exception for the client. The servant is not called.
    fn before(&self, call: &mut Call<'_>) -> Result<(), SystemException> {
        let _ = call;
        Ok(())
    }

    /// After the reply was written and before it is sent. It may add contexts (in GIOP 1.2).
    fn after(&self, call: &mut Call<'_>) {
        let _ = call;
    }
}

/// Runs around outgoing requests.
pub trait ClientInterceptor: Send + Sync {
    /// Before each time that the request is sent. It may add contexts.
    ///
    /// # Errors
    ///
    /// The exception for the caller. The request is not sent; only earlier interceptors learn of it.
    fn before(&self, call: &mut Outgoing<'_>) -> Result<(), SystemException> {
        let _ = call;
        Ok(())
    }

    /// After the reply arrived.
    fn after(&self, call: &Outgoing<'_>, replied: &Replied, contexts: &ServiceContexts<'_>) {
        let _ = (call, replied, contexts);
    }

    /// After the request failed without a reply, or a later interceptor refused it.
    fn failed(&self, call: &Outgoing<'_>, exception: &SystemException) {
        let _ = (call, exception);
    }
}

/// A request before it is sent.
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

    /// Adds a service context.
    pub fn send_context(&mut self, id: u32, data: Vec<u8>) {
        self.contexts.push((id, data));
    }
}
