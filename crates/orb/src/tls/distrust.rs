//! Reasons for a TLS failure, as reported to callers.

use std::io;

use hyoshi_wire::{SystemException, SystemKind};
use rustls::{AlertDescription as Alert, CertificateError};

use crate::minor;

/// See [`minor`] for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    UnknownCa,
    Expired,
    Name,
    Certificate,
    Refused,
    Incompatible,
    Handshake,
    Expected,
}

impl Distrust {
    /// `None` if the error is not about TLS.
    pub(crate) fn of(error: &io::Error) -> Option<Distrust> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(why) => match why {
                // The same name with another key is another authority.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Distrust::UnknownCa,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Distrust::Expired,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Distrust::Name,
                _ => Distrust::Certificate,
            },
            // In TLS 1.3 the alerts about our certificate arrive after the first request (RFC 8446, 6.2).
            rustls::Error::AlertReceived(
                Alert::CertificateRequired
                | Alert::NoCertificate
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                // The authority of that name has another key.
                | Alert::DecryptError
                // Before a cipher is chosen it means that there is none (`Handshake::go_on`); afterwards OpenSSL sends
                // it in TLS 1.2 to a client without a certificate.
                | Alert::HandshakeFailure,
            ) => Distrust::Refused,
            rustls::Error::AlertReceived(Alert::ProtocolVersion | Alert::InsufficientSecurity)
            | rustls::Error::PeerIncompatible(_) => Distrust::Incompatible,
            _ => Distrust::Handshake,
        })
    }

    /// The exception for callers. The request has not run, as a server serves only clients that it trusts.
    pub(crate) fn exception(self) -> SystemException {
        let (kind, minor) = match self {
            Distrust::UnknownCa => (SystemKind::NoPermission, minor::TLS_UNKNOWN_CA),
            Distrust::Expired => (SystemKind::NoPermission, minor::TLS_EXPIRED),
            Distrust::Name => (SystemKind::NoPermission, minor::TLS_NAME),
            Distrust::Certificate => (SystemKind::NoPermission, minor::TLS_CERTIFICATE),
            Distrust::Refused => (SystemKind::NoPermission, minor::TLS_REFUSED),
            Distrust::Incompatible => (SystemKind::CommFailure, minor::TLS_INCOMPATIBLE),
            Distrust::Handshake => (SystemKind::CommFailure, minor::TLS_HANDSHAKE),
            Distrust::Expected => (SystemKind::CommFailure, minor::TLS_EXPECTED),
        };
        kind.not_done(minor)
    }
}

/// The failure, for messages. rustls would print this crate's own errors in debug format.
pub(crate) fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) => format!("bad certificate: {}", why.0),
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            "bad certificate: its signature is not by the authority of that name, which may have a new key".to_owned()
        }
        error => error.to_string(),
    }
}
