//! Errors in TLS settings, and warnings.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why TLS settings cannot be used. No error quotes a file's text, which may be a private key.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that cannot be read, and the system's error.
    File(PathBuf, io::Error),
    /// Text without a certificate or key in PEM (RFC 7468).
    Pem {
        /// The file, if there is one.
        file: Option<PathBuf>,
        /// The expected content.
        wanted: &'static str,
        /// The mistake.
        why: String,
    },
    /// The private key is encrypted, in this file if there is one.
    Encrypted(Option<PathBuf>),
    /// The private key does not match the certificate.
    Mismatch,
    /// This is not a host name or address, so no certificate can contain it.
    Name(String),
    /// The reason why TLS refuses a certificate, key or root.
    Refused(String),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let TlsError::Pem { file: Some(file), .. } | TlsError::Encrypted(Some(file)) = self {
            write!(f, "{}: ", file.display())?;
        }
        match self {
            TlsError::File(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            TlsError::Pem { wanted, why, .. } => write!(f, "no {wanted} in PEM (-----BEGIN ...-----): {why}"),
            TlsError::Encrypted(_) => f.write_str("the private key is encrypted"),
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
            TlsError::Pem { file, .. } | TlsError::Encrypted(file) => *file = Some(path.to_owned()),
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
    /// Other users can read or write this file of a private key, which has these permissions.
    KeyOpen(PathBuf, u32),
    /// This certificate expired so many days ago.
    Expired(String, u64),
    /// This certificate expires in so many days, at most 30.
    ExpiresSoon(String, u64),
    /// This certificate is not valid yet: a clock may be wrong.
    NotYetValid(String),
    /// This certificate of a server has no host name, so clients refuse it.
    NoNames(String),
    /// A list of revoked certificates is so many days past its own date for the next update.
    OldList(u64),
}

impl fmt::Display for TlsWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |days: &u64| if *days == 1 { "" } else { "s" };
        match self {
            TlsWarning::KeyOpen(path, mode) => {
                write!(f, "other users can use the private key in {} (mode {mode:04o})", path.display())
            }
            TlsWarning::Expired(what, days) => {
                write!(f, "{what} expired {days} day{} ago; peers refuse it", plural(days))
            }
            TlsWarning::ExpiresSoon(what, days) => write!(f, "{what} expires in {days} day{}", plural(days)),
            TlsWarning::NotYetValid(what) => write!(f, "{what} is not valid yet; peers refuse it"),
            TlsWarning::NoNames(what) => write!(f, "{what} names no host; clients refuse it"),
            TlsWarning::OldList(days) => {
                write!(f, "a list of revoked certificates should have been replaced {days} day{} ago", plural(days))
            }
        }
    }
}

impl TlsWarning {
    /// The remedy.
    pub fn remedy(&self) -> String {
        let remedy = match self {
            TlsWarning::KeyOpen(path, _) => return format!("chmod 600 {}", path.display()),
            TlsWarning::Expired(..) | TlsWarning::ExpiresSoon(..) => {
                "issue a new certificate; SIGHUP makes a service read it"
            }
            TlsWarning::NotYetValid(_) => "compare this machine's clock with the certificate's dates",
            TlsWarning::NoNames(_) => "issue it with a subjectAltName: the names or addresses that clients call",
            TlsWarning::OldList(_) => "have the authority issue a new one",
        };
        remedy.to_owned()
    }
}
