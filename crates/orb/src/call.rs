//! A request while a servant serves it.

use hyoshi_model::Span;
use hyoshi_wire::giop::{
    CONTEXT_RT_PRIORITY, Header, Reply, ReplyHeader, ReplyStatus, Request, ServiceContext, ServiceContexts,
};
use hyoshi_wire::{DecodeError, Decoder, Encode, EncodeError, Encoder, SystemException, SystemKind, Version};

use crate::minor;
use crate::raises::Raises;

/// A request, and the buffer for its reply. Generated code reads the arguments and writes the reply.
#[derive(Debug)]
pub struct Call<'a> {
    request: &'a Request<'a>,
    to: &'a mut Encoder,
    /// The service contexts for the reply, from interceptors.
    contexts: Vec<(u32, Vec<u8>)>,
    /// The request's priority, as the reply repeats it (TAO).
    echo: Option<&'a [u8]>,
    replied: Option<Replied>,
    silent: bool,
    /// The CPU time of its thread when a delegate began to measure it.
    pub(crate) began: Option<Span>,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replied {
    /// A result.
    Well,
    /// An exception that the operation declares: its repository id.
    User(std::borrow::Cow<'static, str>),
    /// A standard exception.
    System(SystemException),
}

impl<'a> Call<'a> {
    pub(crate) fn new(request: &'a Request<'a>, to: &'a mut Encoder) -> Self {
        let silent = !request.response.expected();
        Call { request, to, contexts: Vec::new(), echo: None, replied: None, silent, began: None }
    }

    /// The operation's name.
    pub fn operation(&self) -> &'a str {
        self.request.operation
    }

    /// The arguments. Use [`read`](Self::read) for GIOP 1.1 with fragments, where the alignment of numbers can be
    /// ambiguous.
    #[inline]
    pub fn arguments(&self) -> Decoder<'a> {
        self.request.arguments.clone()
    }

    /// Reads all arguments, for skeletons.
    ///
    /// # Errors
    ///
    /// That of `read`, or if they can be read in several ways (see [`Decoder::whole`]).
    #[inline]
    pub fn read<T>(&self, read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        self.arguments().whole(read)
    }

    /// The request's service contexts.
    pub fn contexts(&self) -> ServiceContexts<'a> {
        self.request.contexts.clone()
    }

    /// Adds a service context to the reply.
    pub fn send_context(&mut self, id: u32, data: Vec<u8>) {
        self.contexts.push((id, data));
    }

    /// The reply repeats the request's priority (service context 10).
    pub(crate) fn echo_priority(&mut self, data: &'a [u8]) {
        self.echo = Some(data);
    }

    /// The number of service contexts of the reply.
    pub(crate) fn sent_contexts(&self) -> usize {
        self.contexts.len()
    }

    /// The outcome, once there is one.
    pub fn replied(&self) -> Option<&Replied> {
        self.replied.as_ref()
    }

    /// Writes the reply: the result, for which `encode` appends return value and out parameters, or the exception.
    ///
    /// # Errors
    ///
    /// If the connection's code sets or limits do not allow it, or for a standard exception.
    #[inline]
    pub fn reply<R, E: Raises>(
        &mut self,
        outcome: Result<R, E>,
        encode: impl FnOnce(&R, &mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), SystemException> {
        match outcome {
            Ok(result) => {
                self.replied = Some(Replied::Well);
                self.write(ReplyStatus::NoException, |to| encode(&result, to))
            }
            Err(raised) => match raised.system() {
                Some(system) => Err(*system),
                None => {
                    self.replied = Some(Replied::User(raised.id().into()));
                    self.write(ReplyStatus::UserException, |to| {
                        raised.id().encode(to)?;
                        raised.encode(to)
                    })
                }
            },
        }
    }

    /// Replaces the reply by a standard exception.
    pub(crate) fn raise(&mut self, exception: SystemException) {
        self.to.clear();
        self.replied = Some(Replied::System(exception));
        // Cannot fail: names of exceptions are ASCII, and every version has the status.
        let _ = self.write(ReplyStatus::SystemException, |to| Encode::encode(&exception, to));
    }

    /// Forwards the client to another object.
    pub(crate) fn forward(&mut self, encode: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) {
        self.replied = Some(Replied::Well);
        let _ = self.write(ReplyStatus::LocationForward, encode);
    }

    /// Sends an empty reply before the call, and none after it: a oneway with scope WITH_SERVER.
    #[cold]
    pub(crate) fn answer_early(&mut self, send: &mut dyn FnMut(&[u8]) -> bool) {
        if !self.silent {
            let _ = self.write(ReplyStatus::NoException, |_| Ok(()));
            send(self.to.bytes());
            self.to.clear();
            self.silent = true;
        }
    }

    #[inline]
    fn write(
        &mut self,
        status: ReplyStatus,
        body: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), SystemException> {
        if self.silent {
            return Ok(());
        }
        let echo = self.echo.map(|data| ServiceContext { tag: CONTEXT_RT_PRIORITY, data });
        let all;
        // Only contexts of interceptors allocate.
        let contexts = if self.contexts.is_empty() {
            echo.as_slice()
        } else {
            let own = self.contexts.iter().map(|(tag, data)| ServiceContext { tag: *tag, data });
            all = echo.into_iter().chain(own).collect::<Vec<_>>();
            &all
        };
        let begun = ReplyHeader { id: self.request.id, status, contexts }.begin(self.to);
        begun.and_then(|begun| body(self.to).and_then(|()| begun.end(self.to))).map_err(unsendable)
    }

    /// Adds the contexts that were set after the reply was written. Possible only in GIOP 1.2, whose bodies can be moved.
    #[cold]
    pub(crate) fn add_contexts(&mut self) {
        if self.to.version() != Version::V1_2 || self.to.is_empty() {
            return;
        }
        let mut written = Decoder::new(self.to.bytes(), self.to.order());
        // Cannot fail: `write` wrote it.
        let Ok(reply) = written.raw(Header::LEN).and_then(|_| Reply::decode(written)) else { return };
        let (status, body) = (reply.status, reply.body.rest().to_vec());
        self.to.clear();
        let _ = self.write(status, |to| {
            to.raw(&body);
            Ok(())
        });
    }
}

/// The exception for a result that the connection cannot carry. The operation has run.
pub(crate) fn unsendable(error: EncodeError) -> SystemException {
    match error {
        EncodeError::NotInCharSet(_) => SystemKind::DataConversion.done(minor::CHARACTER),
        EncodeError::TooLong(_) => SystemKind::ImpLimit.done(minor::NO_MEMORY_LIMIT),
        _ => SystemKind::Marshal.done(minor::RESULTS),
    }
}
