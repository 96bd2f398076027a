//! Reasons for a missing reply, and the exception for the caller.

use hyoshi_wire::{EncodeError, SystemException, SystemKind, minor};

use crate::tls::Distrust;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The host's name cannot be resolved.
    HostUnknown,
    /// No process listens there.
    Refused,
    /// No connection for other reasons.
    NotConnected,
    ConnectTimedOut,
    /// It listens nowhere, and the connection that it opened is gone.
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
    ShutDown,
    Tls(Distrust),
    Encode(EncodeError),
    /// An interceptor's veto, or a result that cannot be read.
    Raised(SystemException),
}

impl Failure {
    pub(crate) fn exception(&self) -> SystemException {
        match self {
            Failure::HostUnknown => SystemKind::Transient.not_done(minor::HOST_UNKNOWN),
            Failure::Refused => SystemKind::Transient.not_done(minor::REFUSED),
            Failure::NotConnected => SystemKind::Transient.not_done(minor::CONNECT),
            Failure::ConnectTimedOut => SystemKind::Timeout.not_done(minor::CONNECT_TIMEOUT),
            Failure::NoWayBack => SystemKind::Transient.not_done(minor::NO_WAY_BACK),
            Failure::Forbidden => SystemKind::NoPermission.not_done(minor::TRANSPORT_RULE),
            Failure::Unsent => SystemKind::CommFailure.not_done(minor::SEND),
            Failure::Closed => SystemKind::Transient.not_done(minor::CLOSED),
            Failure::Lost => SystemKind::CommFailure.maybe_done(minor::LOST),
            Failure::SendTimedOut => SystemKind::Timeout.not_done(minor::SEND_TIMEOUT),
            Failure::ShutDown => SystemKind::BadInvOrder.not_done(minor::SHUT_DOWN),
            Failure::TimedOut => SystemKind::Timeout.maybe_done(minor::REPLY_TIMEOUT),
            Failure::Garbled => SystemKind::Marshal.maybe_done(minor::BAD_REPLY),
            Failure::NotUnderstood => SystemKind::CommFailure.not_done(minor::NOT_UNDERSTOOD),
            Failure::InFlight => SystemKind::Transient.not_done(minor::IN_FLIGHT),
            Failure::Tls(why) => why.exception(),
            Failure::Encode(EncodeError::NotInCharSet(_)) => SystemKind::DataConversion.not_done(minor::CHARACTER),
            Failure::Encode(EncodeError::TooLong(_)) => SystemKind::ImpLimit.not_done(minor::NO_MEMORY_LIMIT),
            Failure::Encode(_) => SystemKind::BadParam.not_done(minor::ENCODE),
            Failure::Raised(exception) => *exception,
        }
    }

    /// Whether it may be sent another way: it was not carried out.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        let unreached = matches!(
            self,
            Failure::HostUnknown
                | Failure::Refused
                | Failure::NotConnected
                | Failure::ConnectTimedOut
                | Failure::NoWayBack
                | Failure::Forbidden
                | Failure::Tls(_)
        );
        unreached || self.may_repeat()
    }

    /// Whether it may be sent again as it is.
    pub(crate) fn may_repeat(&self) -> bool {
        matches!(self, Failure::Unsent | Failure::Closed)
    }
}
