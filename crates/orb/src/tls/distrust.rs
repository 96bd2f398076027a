//! Why TLS failed, as clients hear it.

use std::io;

use hyoshi_wire::{SystemException, SystemKind};
use rustls::{AlertDescription, CertificateError};

use crate::minor;

/// What TLS failed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// No authority that is believed signed the server's certificate.
    UnknownCa,
    /// The server's certificate is not valid at this time.
    Expired,
    /// The server's certificate is for another name.
    Name,
    /// The server's certificate is bad otherwise.
    Certificate,
    /// The server refused our certificate, or that there is none.
    Refused,
    /// Both speak TLS, and have no version or cipher in common.
    Incompatible,
    /// The handshake failed otherwise: the server speaks something else, mostly.
    Handshake,
    /// The server speaks TLS where we spoke plain GIOP.
    Expected,
}

impl Distrust {
    /// If the error is about TLS.
    pub(crate) fn of(error: &io::Error) -> Option<Distrust> {
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(match error {
            rustls::Error::InvalidCertificate(why) => match why {
                // Under the same name another key: another authority.
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

    /// As callers hear it. Nothing was carried out: a server serves only clients that it trusts.
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

/// Alerts by which a server refuses a client (RFC 8446, 6.2). In TLS 1.3 they come when the client has sent its first
/// request already.
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
            // A signature that is none of the authority's of that name: its key is another now.
            | AlertDescription::DecryptError
            // Before a cipher is chosen it means that there is none (`Handshake::go_on`); afterwards OpenSSL says so in
            // TLS 1.2 to a client that shows no certificate.
            | AlertDescription::HandshakeFailure
    )
}

/// What failed, for people. Of a certificate that is refused here, rustls shows what this crate found as a program text.
pub(crate) fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(why)) => format!("bad certificate: {}", why.0),
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            "bad certificate: its signature is not by the authority of that name, which may have a new key".to_owned()
        }
        error => error.to_string(),
    }
}
