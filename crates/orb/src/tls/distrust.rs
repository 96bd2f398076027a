//! Why TLS failed, as reported to clients.

use std::io;

use hyoshi_wire::{SystemException, SystemKind};
use rustls::{AlertDescription, CertificateError};

use crate::minor;

/// Reasons for a TLS failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// No trusted authority signed the server's certificate.
    UnknownCa,
    /// The server's certificate is not valid at this time.
    Expired,
    /// The server's certificate is for another name.
    Name,
    /// The server's certificate is otherwise bad.
    Certificate,
    /// The server refused our certificate, or its absence.
    Refused,
    /// Both use TLS, but have no common version or cipher.
    Incompatible,
    /// The handshake failed otherwise: usually the server does not use TLS.
    Handshake,
    /// The server uses TLS on a port that we called with plain GIOP.
    Expected,
}

impl Distrust {
    /// If the error is about TLS.
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
            rustls::Error::AlertReceived(alert) if is_about_us(*alert) => Distrust::Refused,
            rustls::Error::AlertReceived(
                AlertDescription::ProtocolVersion | AlertDescription::InsufficientSecurity,
            )
            | rustls::Error::PeerIncompatible(_) => Distrust::Incompatible,
            _ => Distrust::Handshake,
        })
    }

    /// The exception for callers. Nothing was carried out: a server serves only clients that it trusts.
    pub(crate) fn exception(self) -> SystemException {
        match self {
            Distrust::UnknownCa => SystemKind::NoPermission.not_done(minor::TLS_UNKNOWN_CA),
            Distrust::Expired => SystemKind::NoPermission.not_done(minor::TLS_EXPIRED),
            Distrust::Name => SystemKind::NoPermission.not_done(minor::TLS_NAME),
            Distrust::Certificate => SystemKind::NoPermission.not_done(minor::TLS_CERTIFICATE),
            Distrust::Refused => SystemKind::NoPermission.not_done(minor::TLS_REFUSED),
            Distrust::Incompatible => SystemKind::CommFailure.not_done(minor::TLS_INCOMPATIBLE),
            Distrust::Handshake => SystemKind::CommFailure.not_done(minor::TLS_HANDSHAKE),
            Distrust::Expected => SystemKind::CommFailure.not_done(minor::TLS_EXPECTED),
        }
    }
}

/// Alerts by which a server refuses a client (RFC 8446, 6.2). In TLS 1.3 they arrive after the client has sent its
/// first request.
fn is_about_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::NoCertificate
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            // The signature is not by the known key of the authority of that name: its key has changed.
            | AlertDescription::DecryptError
            // Before a cipher is chosen it means that there is none (`Handshake::go_on`); afterwards OpenSSL sends it
            // in TLS 1.2 to a client without a certificate.
            | AlertDescription::HandshakeFailure
    )
}

/// The failure, for messages. For a certificate that is refused here, rustls prints this crate's error in debug
/// format.
pub(crate) fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) => format!("bad certificate: {}", why.0),
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            "bad certificate: its signature is not by the authority of that name, which may have a new key".to_owned()
        }
        error => error.to_string(),
    }
}
