//! Reasons for a missing reply, and the exception for the caller.

use hyoshi_wire::{EncodeError, SystemException, SystemKind, minor};

use crate::tls::Distrust;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// The host's name cannot be resolved.
    HostUnknown,
    /// No process listens there.
    Refused,
    /// No connection for other reasons.
    NotConnected,
    ConnectTimedOut,
    /// It listens nowhere, and the connection that it opened is closed.
    NoWayBack,
    /// The transport rules forbid it.
    Forbidden,
    /// It was not sent whole.
    Unsent,
    /// The server closed the connection in the orderly way: it was not carried out.
    Closed,
    /// The connection was lost.
    Lost,
    /// Time was over before any of it was sent, or before all was and the rest never will be.
    SendTimedOut,
    TimedOut,
    /// The reply is malformed.
    Garbled,
    /// What was sent could not.
    NotUnderstood,
    InFlight,
    /// The backlog is full, and the caller must not wait.
    Backlog,
    ShutDown,
    Tls(Distrust),
    Encode(EncodeError),
    /// An interceptor's veto, or a result that cannot be read.
    Raised(SystemException),
}

impl CallFailure {
    pub(crate) fn exception(&self) -> SystemException {
        match self {
            CallFailure::HostUnknown => SystemKind::Transient.not_done(minor::HOST_UNKNOWN),
            CallFailure::Refused => SystemKind::Transient.not_done(minor::REFUSED),
            CallFailure::NotConnected => SystemKind::Transient.not_done(minor::CONNECT),
            CallFailure::ConnectTimedOut => SystemKind::Timeout.not_done(minor::CONNECT_TIMEOUT),
            CallFailure::NoWayBack => SystemKind::Transient.not_done(minor::NO_WAY_BACK),
            CallFailure::Forbidden => SystemKind::NoPermission.not_done(minor::TRANSPORT_RULE),
            CallFailure::Unsent => SystemKind::CommFailure.not_done(minor::SEND),
            CallFailure::Closed => SystemKind::Transient.not_done(minor::CLOSED),
            CallFailure::Lost => SystemKind::CommFailure.maybe_done(minor::LOST),
            CallFailure::SendTimedOut => SystemKind::Timeout.not_done(minor::SEND_TIMEOUT),
            CallFailure::ShutDown => SystemKind::BadInvOrder.not_done(minor::SHUT_DOWN),
            CallFailure::TimedOut => SystemKind::Timeout.maybe_done(minor::REPLY_TIMEOUT),
            CallFailure::Garbled => SystemKind::Marshal.maybe_done(minor::BAD_REPLY),
            CallFailure::NotUnderstood => SystemKind::CommFailure.not_done(minor::NOT_UNDERSTOOD),
            CallFailure::InFlight => SystemKind::Transient.not_done(minor::IN_FLIGHT),
            CallFailure::Backlog => SystemKind::Transient.not_done(minor::BACKLOG),
            CallFailure::Tls(why) => why.exception(),
            CallFailure::Encode(EncodeError::NotInCharSet(_)) => SystemKind::DataConversion.not_done(minor::CHARACTER),
            CallFailure::Encode(EncodeError::TooLong(_)) => SystemKind::ImpLimit.not_done(minor::NO_MEMORY_LIMIT),
            CallFailure::Encode(_) => SystemKind::BadParam.not_done(minor::ENCODE),
            CallFailure::Raised(exception) => *exception,
        }
    }

    /// Whether it may be sent another way: it was not carried out.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        let unreached = matches!(
            self,
            CallFailure::HostUnknown
                | CallFailure::Refused
                | CallFailure::NotConnected
                | CallFailure::ConnectTimedOut
                | CallFailure::NoWayBack
                | CallFailure::Forbidden
                | CallFailure::Tls(_)
        );
        unreached || self.may_repeat()
    }

    /// Whether it may be sent again as it is.
    pub(crate) fn may_repeat(&self) -> bool {
        matches!(self, CallFailure::Unsent | CallFailure::Closed)
    }
}
