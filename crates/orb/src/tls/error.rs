//! Errors in TLS settings, and warnings.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why TLS settings cannot be used. No error shows an octet of a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be read.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Text without a certificate or key in PEM (RFC 7468).
    Pem {
        /// The file, if there is one.
        file: Option<PathBuf>,
        /// What was expected.
        wanted: &'static str,
        /// The error.
        why: String,
    },
    /// The private key is encrypted.
    Encrypted {
        /// The file, if there is one.
        file: Option<PathBuf>,
    },
    /// The private key does not match the certificate.
    Mismatch,
    /// This is not a host name or address, so no certificate can contain it.
    Name(String),
    /// A certificate, key or root that TLS refuses.
    Refused(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let TlsError::Pem { file: Some(file), .. } | TlsError::Encrypted { file: Some(file) } = self {
            write!(f, "{}: ", file.display())?;
        }
        match self {
            TlsError::File { path, error } => write!(f, "cannot read {}: {error}", path.display()),
            TlsError::Pem { wanted, why, .. } => write!(f, "no {wanted} in PEM (-----BEGIN ...-----): {why}"),
            TlsError::Encrypted { .. } => f.write_str("the private key is encrypted"),
            TlsError::Mismatch => f.write_str("the private key does not match the certificate"),
            TlsError::Name(name) => write!(f, "\"{name}\" is not a host name or address"),
            TlsError::Refused(why) => write!(f, "TLS cannot use the certificate, key or root: {why}"),
        }
    }
}

impl std::error::Error for TlsError {}

impl TlsError {
    /// The same error, with the file.
    pub(super) fn within(mut self, path: &Path) -> TlsError {
        match &mut self {
            TlsError::Pem { file, .. } | TlsError::Encrypted { file } => *file = Some(path.to_owned()),
            TlsError::Refused(why) => *why = format!("{}: {why}", path.display()),
            _ => {}
        }
        self
    }
}

pub(super) fn refused(error: impl fmt::Display) -> TlsError {
    TlsError::Refused(error.to_string())
}

/// A problem that does not prevent use, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsWarning {
    /// Other users can read or write the file of a private key.
    KeyOpen {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A certificate has expired.
    Expired {
        /// Whose.
        what: String,
        /// For how many days.
        days: u64,
    },
    /// A certificate expires within 30 days.
    ExpiresSoon {
        /// Whose.
        what: String,
        /// In how many days.
        days: u64,
    },
    /// A certificate is not valid yet: a clock may be wrong.
    NotYetValid {
        /// Whose.
        what: String,
    },
    /// A server's certificate names no host, so no client can compare it with the host that it calls.
    NoNames {
        /// Whose.
        what: String,
    },
    /// A list of revoked certificates is past its own date for the next update.
    OldList {
        /// For how many days.
        days: u64,
    },
}

impl fmt::Display for TlsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |days: &u64| if *days == 1 { "" } else { "s" };
        match self {
            TlsWarning::KeyOpen { path, mode } => {
                write!(f, "other users can use the private key in {} (mode {mode:04o})", path.display())
            }
            TlsWarning::Expired { what, days } => {
                write!(f, "{what} expired {days} day{} ago; peers refuse it", plural(days))
            }
            TlsWarning::ExpiresSoon { what, days } => write!(f, "{what} expires in {days} day{}", plural(days)),
            TlsWarning::NotYetValid { what } => write!(f, "{what} is not valid yet; peers refuse it"),
            TlsWarning::NoNames { what } => write!(f, "{what} names no host; clients refuse it"),
            TlsWarning::OldList { days } => {
                write!(f, "a list of revoked certificates should have been replaced {days} day{} ago", plural(days))
            }
        }
    }
}

impl TlsWarning {
    /// The remedy.
    pub fn remedy(&self) -> String {
        let remedy = match self {
            TlsWarning::KeyOpen { path, .. } => return format!("chmod 600 {}", path.display()),
            TlsWarning::Expired { .. } | TlsWarning::ExpiresSoon { .. } => {
                "issue a new certificate; SIGHUP makes a service read it"
            }
            TlsWarning::NotYetValid { .. } => "compare this machine's clock with the certificate's dates",
            TlsWarning::NoNames { .. } => "issue it with a subjectAltName: the names or addresses that clients call",
            TlsWarning::OldList { .. } => "have the authority issue a new one",
        };
        remedy.to_owned()
    }
}
