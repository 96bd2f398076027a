//! A request on its way through a servant.

use hyoshi_model::Span;
use hyoshi_wire::giop::{Header, Reply, ReplyHeader, ReplyStatus, Request, ServiceContext, ServiceContexts};
use hyoshi_wire::{DecodeError, Decoder, Encode, EncodeError, Encoder, SystemException, SystemKind, Version};

use crate::minor;
use crate::raises::Raises;

/// A request, and the place for its reply. Generated code takes the arguments out and puts the outcome in.
#[derive(Debug)]
pub struct Call<'a> {
    request: &'a Request<'a>,
    to: &'a mut Encoder,
    /// What interceptors send along with the reply.
    contexts: Vec<(u32, Vec<u8>)>,
    replied: Option<Replied>,
    silent: bool,
    /// CPU time of its thread when a delegate began to measure it.
    pub(crate) began: Option<Span>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replied {
    /// With a result.
    Well,
    /// With an exception that the operation declares: its repository id.
    User(std::borrow::Cow<'static, str>),
    /// With a standard exception.
    System(SystemException),
}

impl<'a> Call<'a> {
    pub(crate) fn new(request: &'a Request<'a>, to: &'a mut Encoder) -> Self {
        Call { request, to, contexts: Vec::new(), replied: None, silent: !request.response.expected(), began: None }
    }

    /// The operation's name.
    pub fn operation(&self) -> &'a str {
        self.request.operation
    }

    /// The arguments. [`read`](Self::read) also understands those in fragments of GIOP 1.1 in which a number can stand
    /// at several places.
    #[inline]
    pub fn arguments(&self) -> Decoder<'a> {
        self.request.arguments.clone()
    }

    /// Reads all arguments. Skeletons do.
    ///
    /// # Errors
    ///
    /// That of `read`, or they can be read in several ways (see [`Decoder::whole`]).
    #[inline]
    pub fn read<T>(&self, read: impl Fn(&mut Decoder<'a>) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        self.arguments().whole(read)
    }

    /// What rode along with the request.
    pub fn contexts(&self) -> ServiceContexts<'a> {
        self.request.contexts.clone()
    }

    /// Sends `data` along with the reply, as the service context with this id.
    pub fn send_context(&mut self, id: u32, data: Vec<u8>) {
        self.contexts.push((id, data));
    }

    /// How many contexts are to be sent along.
    pub(crate) fn sent_contexts(&self) -> usize {
        self.contexts.len()
    }

    /// How it ended, once it has.
    pub fn replied(&self) -> Option<&Replied> {
        self.replied.as_ref()
    }

    /// Writes the reply: the result, for which `encode` appends return value and out parameters, or the exception.
    ///
    /// # Errors
    ///
    /// What the connection cannot carry.
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

    /// Writes a standard exception as the reply, instead of what was written before.
    pub(crate) fn raise(&mut self, exception: SystemException) {
        self.to.clear();
        self.replied = Some(Replied::System(exception));
        // Cannot fail: names of exceptions are ASCII, and every version has the status.
        let _ = self.write(ReplyStatus::SystemException, |to| Encode::encode(&exception, to));
    }

    /// Tells the client to ask elsewhere.
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
        let written = if self.contexts.is_empty() {
            message(self.request.id, status, &[], self.to, body)
        } else {
            let contexts: Vec<_> = self.contexts.iter().map(|(tag, data)| ServiceContext { tag: *tag, data }).collect();
            message(self.request.id, status, &contexts, self.to, body)
        };
        written.map_err(unsendable)
    }

    /// Puts the contexts that came after the reply into it. Possible in 1.2 only, where bodies can be moved.
    #[cold]
    pub(crate) fn add_contexts(&mut self) {
        if self.to.version() != Version::V1_2 || self.to.is_empty() {
            return;
        }
        let mut written = Decoder::new(self.to.bytes(), self.to.order());
        // Cannot fail: this was written as a reply.
        let Ok(reply) = written.raw(Header::LEN).and_then(|_| Reply::decode(written)) else { return };
        let (status, body) = (reply.status, reply.body.rest().to_vec());
        self.to.clear();
        let _ = self.write(status, |to| {
            to.raw(&body);
            Ok(())
        });
    }
}

#[inline]
fn message(
    id: u32,
    status: ReplyStatus,
    contexts: &[ServiceContext<'_>],
    to: &mut Encoder,
    body: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let begun = ReplyHeader { id, status, contexts }.begin(to)?;
    body(to)?;
    begun.end(to)
}

/// A result that the connection cannot carry: what was done stays done.
pub(crate) fn unsendable(error: EncodeError) -> SystemException {
    match error {
        EncodeError::NotInCharSet(_) => SystemKind::DataConversion.done(minor::CHARACTER),
        EncodeError::TooLong(_) => SystemKind::ImpLimit.done(minor::NO_MEMORY_LIMIT),
        _ => SystemKind::Marshal.done(minor::RESULTS),
    }
}
