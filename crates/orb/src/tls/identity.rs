//! A certificate and its private key, from files.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyoshi_os::clock::unix_seconds;
use rustls::InconsistentKeys;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use super::certificate::Fields;
use super::error::{TlsError, TlsWarning, refused};
use super::key::PrivateKey;
use super::pem::{PemKind, PemSection, sections};

/// Largest size of a file, in octets.
const MOST: u64 = 4 << 20;
/// Time before a certificate's expiry from which a warning is given.
const SOON: u64 = 30 * DAY;
/// In seconds.
const DAY: u64 = 86_400;

/// A certificate with its chain to the root, and its private key. The key is kept out of core dumps, except for RSA
/// numbers on the heap, and no octets of its file remain in memory.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    own: Arc<CertifiedKey>,
    /// The key's file and its permissions, if other users can use it.
    open: Option<(PathBuf, u32)>,
}

impl TlsIdentity {
    /// From PEM: the certificate first, then its chain to the root; a key in PKCS #8, PKCS #1 or SEC 1.
    ///
    /// # Errors
    ///
    /// If the certificate or the key is missing.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(&sections(chain, "certificate")?)?;
        Ok(TlsIdentity { own: Arc::new(CertifiedKey::new(chain, private(key)?)), open: None })
    }

    /// From files in PEM; both may be in one. Fails as [`from_pem`](Self::from_pem) does, or if a file cannot be read.
    pub fn from_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, TlsError> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        let all = sections(&read(chain)?.0, "certificate");
        let chain = all.and_then(|all| certificates(&all)).map_err(|error| error.within(chain))?;
        let (text, open) = read(key)?;
        let private = private(&text).map_err(|error| error.within(key))?;
        let open = open.map(|mode| (key.to_owned(), mode));
        Ok(TlsIdentity { own: Arc::new(CertifiedKey::new(chain, private)), open })
    }

    /// The first common name of the certificate's subject.
    pub fn common_name(&self) -> Option<String> {
        Fields::of(self.own.cert.first()?)?.common_name()
    }

    /// Present problems, and those within 30 days.
    pub fn warnings(&self) -> Vec<TlsWarning> {
        let open = self.open.clone().map(|(path, mode)| TlsWarning::KeyOpen(path, mode));
        open.into_iter()
            .chain(self.own.cert.iter().filter_map(|certificate| age(certificate, unix_seconds())))
            .collect()
    }

    /// The certificate with its key; an error if they do not match.
    pub(super) fn own(&self) -> Result<Arc<CertifiedKey>, TlsError> {
        match self.own.keys_match() {
            Ok(()) => Ok(self.own.clone()),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(TlsError::Mismatch),
            Err(error) => Err(refused(error)),
        }
    }

    /// A warning if it has no name of a host.
    pub(super) fn nameless(&self) -> Option<TlsWarning> {
        let certificate = self.own.cert.first()?;
        let fields = Fields::of(certificate)?;
        (!fields.names_hosts()).then(|| TlsWarning::NoNames(called(&fields)))
    }
}

pub(super) fn called(fields: &Fields<'_>) -> String {
    match fields.common_name() {
        Some(name) => format!("the certificate of \"{name}\""),
        None => "a certificate without a common name".to_owned(),
    }
}

/// A warning about a certificate's dates.
pub(super) fn age(certificate: &[u8], now: u64) -> Option<TlsWarning> {
    let fields = Fields::of(certificate)?;
    let what = called(&fields);
    if now < fields.not_before {
        Some(TlsWarning::NotYetValid(what))
    } else if now > fields.not_after {
        Some(TlsWarning::Expired(what, (now - fields.not_after) / DAY))
    } else {
        let left = fields.not_after - now;
        (left < SOON).then_some(TlsWarning::ExpiresSoon(what, left / DAY))
    }
}

/// The content of a file, and its permissions if other users can use it. Root's files may be readable for a group, as with
/// PostgreSQL and Debian's group ssl-cert.
pub(super) fn read(path: &Path) -> Result<(Zeroizing<Vec<u8>>, Option<u32>), TlsError> {
    let fail = |error| TlsError::File(path.to_owned(), error);
    let file = File::open(path).map_err(fail)?;
    let found = file.metadata().map_err(fail)?;
    if found.is_file() && found.len() > MOST {
        return Err(fail(io::Error::other(format!("it has {} octets; {MOST} are the most", found.len()))));
    }
    // As large as needed: a buffer that grows leaves copies behind. A pipe, for example, has no size.
    let room = if found.is_file() { found.len() + 1 } else { MOST };
    let mut text = Zeroizing::new(Vec::with_capacity(room as usize));
    file.take(room).read_to_end(&mut text).map_err(fail)?;
    let forbidden = if found.uid() == 0 { 0o027 } else { 0o077 };
    let mode = found.mode() & 0o7777;
    Ok((text, (mode & forbidden != 0 && found.is_file()).then_some(mode)))
}

/// The certificates among sections; an error if there is none.
pub(super) fn certificates(all: &[PemSection]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found = all.iter().filter(|section| section.kind == PemKind::Certificate);
    let found: Vec<_> = found.map(|section| CertificateDer::from(section.der.to_vec())).collect();
    if found.is_empty() {
        let keys = all.iter().any(|section| section.kind.is_key());
        return Err(none("certificate", if keys { "it contains only a private key" } else { "there is none" }));
    }
    Ok(found)
}

fn none(wanted: &'static str, why: &str) -> TlsError {
    TlsError::Pem { file: None, wanted, why: why.to_owned() }
}

fn private(pem: &[u8]) -> Result<Arc<PrivateKey>, TlsError> {
    let all = sections(pem, "private key")?;
    match all.iter().find(|section| section.kind.is_key()) {
        None => Err(none("private key", "there is none")),
        Some(PemSection { kind: PemKind::EncryptedKey, .. }) => Err(TlsError::Encrypted(None)),
        Some(PemSection { kind, der }) => {
            PrivateKey::read(*kind, der).map_err(refused)?.map(Arc::new).ok_or_else(|| {
                refused("the private key is none of RSA (2048 bits and more), P-256, P-384 or Ed25519, or is damaged")
            })
        }
    }
}
