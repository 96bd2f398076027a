//! Decoding of a reply to a stub's result.

use hyoshi_wire::giop::{Reply, ReplyStatus};
use hyoshi_wire::{Decode, DecodeError, Decoder, SystemException, SystemKind};

use crate::minor;
use crate::raises::Raises;

/// The outcome of a call, and how to read results.
pub(crate) struct CallOutcome<R, E, F> {
    results: Option<F>,
    outcome: Option<Result<R, E>>,
}

impl<R, E: Raises, F: Fn(&mut Decoder<'_>) -> Result<R, DecodeError>> CallOutcome<R, E, F> {
    pub(crate) fn new(results: F) -> Self {
        CallOutcome { results: Some(results), outcome: None }
    }

    /// Reads it from a reply.
    #[inline]
    pub(crate) fn accept(&mut self, mut reply: Reply<'_>) -> Result<(), SystemException> {
        let Some(results) = self.results.take() else { return Ok(()) };
        self.outcome = Some(match reply.status {
            ReplyStatus::NoException => Ok(reply.body.whole(results).map_err(unreadable)?),
            _ => Err(raised(&mut reply.body)?),
        });
        Ok(())
    }

    #[inline]
    pub(crate) fn take(self) -> Result<R, E> {
        self.outcome.unwrap_or_else(|| Err(SystemKind::Internal.maybe_done(minor::BAD_REPLY).into()))
    }
}

#[cold]
fn raised<E: Raises>(body: &mut Decoder<'_>) -> Result<E, SystemException> {
    let read = body.whole(|from| {
        let id = std::borrow::Cow::<str>::decode(from)?;
        E::decode(&id, from).transpose()
    });
    read.map_err(unreadable)?.ok_or(SystemKind::Unknown.done(minor::UNDECLARED))
}

/// The operation has run, but its results cannot be read.
fn unreadable(error: DecodeError) -> SystemException {
    SystemException::from(error).kind.done(minor::RESULTS)
}
