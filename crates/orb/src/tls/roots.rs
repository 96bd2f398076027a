//! The trusted authorities, the certificates that they have revoked, and further rules for a chain.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, LazyLock};

use hyoshi_os::clock::unix_seconds;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use rustls::{CertificateError, DistinguishedName, OtherError};
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, KeyUsage, RevocationCheckDepth,
    RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath, anchor_from_trusted_cert,
};

use super::certificate::{Fields, next_update};
use super::error::{TlsError, TlsWarning, refused};
use super::identity::{age, called, certificates, read};
use super::pem::{PemKind, sections};

pub(super) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// Certificates of a peer besides its own.
const FURTHER: usize = 8;
/// Certificates with the same name (two, for an authority with an old and a new issuer), and the number of such names:
/// each doubles the paths to try.
const NAMESAKES: usize = 2;
/// Octets of all certificates of a peer.
const OCTETS: usize = 32 << 10;

/// The trusted authorities, and their lists of revoked certificates.
#[derive(Clone)]
pub struct TlsRoots(Arc<Roots>);

struct Roots {
    anchors: Vec<TrustAnchor<'static>>,
    /// Those of the anchors, in their order.
    certificates: Vec<CertificateDer<'static>>,
    lists: Vec<List>,
    subjects: Vec<DistinguishedName>,
    algorithms: &'static [&'static dyn SignatureVerificationAlgorithm],
}

struct List {
    list: CertRevocationList<'static>,
    /// Seconds since 1970.
    next_update: Option<u64>,
}

impl TlsRoots {
    /// From certificates in PEM, and lists of revoked certificates (`X509 CRL`) among them.
    ///
    /// # Errors
    ///
    /// If there is none, one is broken, or one is not an authority's.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let all = sections(pem, "certificate")?;
        let lists = all.iter().filter(|section| section.kind == PemKind::RevocationList);
        let lists = lists.map(|section| list(&section.der)).collect::<Result<_, _>>()?;
        let certificates = certificates(&all)?;
        let anchors = certificates.iter().map(anchor).collect::<Result<Vec<_>, _>>()?;
        let subjects = anchors.iter().map(|anchor| DistinguishedName::in_sequence(&anchor.subject)).collect();
        let algorithms = PROVIDER.signature_verification_algorithms.all;
        Ok(TlsRoots(Arc::new(Roots { anchors, certificates, lists, subjects, algorithms })))
    }

    /// From a file in PEM. Fails as [`from_pem`](Self::from_pem) does, or if the file cannot be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TlsError> {
        TlsRoots::from_pem(&read(path.as_ref())?.0).map_err(|error| error.within(path.as_ref()))
    }

    /// Present problems, and those within 30 days. Certificates of an expired authority are refused.
    pub fn warnings(&self) -> Vec<TlsWarning> {
        let now = unix_seconds();
        let ages = self.0.certificates.iter().filter_map(|certificate| age(certificate, now));
        let late = self.0.lists.iter().filter_map(|list| now.checked_sub(list.next_update?));
        ages.chain(late.map(|late| TlsWarning::OldList(late / 86_400))).collect()
    }

    pub(super) fn subjects(&self) -> &[DistinguishedName] {
        &self.0.subjects
    }

    /// Whether a chain of certificates leads to one of them and fulfils all rules. The peer's chain can cost a few
    /// signatures at most.
    pub(super) fn verify(
        &self,
        own: &CertificateDer<'_>,
        further: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), rustls::Error> {
        bounded(own, further)?;
        let read = EndEntityCert::try_from(own).map_err(error)?;
        let fields = Fields::of(own).ok_or(CertificateError::BadEncoding)?;
        // Servers are compared with the host's name only.
        let free_names = usage == KeyUsage::client_auth() && fields.has_free_names();
        let lists: Vec<_> = self.0.lists.iter().map(|list| &list.list).collect();
        // An outdated list gives a warning (`warnings`), and its certificates are still revoked.
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|options| {
            options.with_status_policy(UnknownStatusPolicy::Allow).with_depth(RevocationCheckDepth::Chain).build()
        });
        let wrong = Cell::new(None);
        let fit = |path: &VerifiedPath<'_>| {
            self.fit(path, free_names, now).map_err(|why| {
                wrong.set(Some(why));
                webpki::Error::UnknownIssuer
            })
        };
        let verified =
            read.verify_for_usage(self.0.algorithms, &self.0.anchors, further, now, usage, revocation, Some(&fit));
        match (verified, wrong.take()) {
            (Ok(_), _) => Ok(()),
            (Err(webpki::Error::UnknownIssuer), Some(why)) => Err(why.into()),
            (Err(why), _) => Err(error(why)),
        }
    }

    /// The rules for a chain besides those of `webpki`.
    fn fit(&self, path: &VerifiedPath<'_>, free_names: bool, now: UnixTime) -> Result<(), CertificateError> {
        let at =
            self.0.anchors.iter().position(|anchor| ptr::eq(anchor.subject.as_ptr(), path.anchor().subject.as_ptr()));
        let root = at.and_then(|at| Fields::of(&self.0.certificates[at])).ok_or_else(unread)?;
        if !(root.not_before..=root.not_after).contains(&now.as_secs()) {
            return Err(CertificateError::Expired);
        }
        let mut constrained = root.constrains_names();
        for issuer in path.intermediate_certificates() {
            let der = issuer.der();
            let fields = Fields::of(&der).ok_or_else(unread)?;
            if !fields.may_sign() {
                return Err(unfit("one of its issuers may not sign certificates (keyUsage without keyCertSign)"));
            }
            constrained |= fields.constrains_names();
        }
        if constrained && free_names {
            return Err(unfit(
                "its authority may name certain hosts only (nameConstraints), and the certificate has a URI or only a \
                 common name: issue it with a host name in its subjectAltName",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsRoots").field("roots", &self.0.anchors.len()).field("lists", &self.0.lists.len()).finish()
    }
}

fn anchor(certificate: &CertificateDer<'_>) -> Result<TrustAnchor<'static>, TlsError> {
    let anchor = anchor_from_trusted_cert(certificate).map_err(refused)?.to_owned();
    let fields = Fields::of(certificate).ok_or_else(|| refused("a certificate cannot be read"))?;
    let what = match (fields.is_authority(), fields.may_sign()) {
        (true, true) => return Ok(anchor),
        (false, _) => "is not an authority's (basicConstraints without CA:TRUE)",
        (true, false) => "may not sign certificates (keyUsage without keyCertSign)",
    };
    Err(refused(format_args!("{} {what}", called(&fields))))
}

fn list(der: &[u8]) -> Result<List, TlsError> {
    let broken = |error| refused(format_args!("a list of revoked certificates: {error}"));
    let list = BorrowedCertRevocationList::from_der(der).and_then(|list| list.to_owned()).map_err(broken)?;
    Ok(List { list: list.into(), next_update: next_update(der) })
}

/// No more than a chain needs, which keeps the search short.
fn bounded(own: &CertificateDer<'_>, further: &[CertificateDer<'_>]) -> Result<(), CertificateError> {
    if further.len() > FURTHER {
        return Err(unfit(format!("{} further certificates; {FURTHER} are the most", further.len())));
    }
    let octets = own.len() + further.iter().map(|certificate| certificate.len()).sum::<usize>();
    if octets > OCTETS {
        return Err(unfit(format!("{octets} octets of certificates; {OCTETS} are the most")));
    }
    let subjects: Vec<_> =
        further.iter().map(|certificate| Fields::of(certificate).map(|fields| fields.subject)).collect();
    let namesakes = |one: &Option<&[u8]>| subjects.iter().filter(|other| *other == one).count();
    let repeated = subjects.iter().filter(|one| namesakes(one) > 1).count();
    if repeated > NAMESAKES * NAMESAKES || subjects.iter().any(|one| namesakes(one) > NAMESAKES) {
        return Err(unfit(format!(
            "too many certificates of authorities with one name; {NAMESAKES} names may have {NAMESAKES}"
        )));
    }
    Ok(())
}

/// The reason to refuse a chain that may lead to an authority.
fn unfit(why: impl Into<Box<dyn StdError + Send + Sync>>) -> CertificateError {
    CertificateError::Other(OtherError(Arc::from(why.into())))
}

fn unread() -> CertificateError {
    unfit("a certificate cannot be read")
}

/// The error in rustls's terms.
pub(super) fn error(error: webpki::Error) -> rustls::Error {
    use webpki::Error;
    let called = match error {
        Error::BadDer | Error::BadDerTime | Error::TrailingData(_) => CertificateError::BadEncoding,
        Error::CertNotValidYet { time, not_before } => CertificateError::NotValidYetContext { time, not_before },
        Error::CertExpired { time, not_after } => CertificateError::ExpiredContext { time, not_after },
        Error::InvalidCertValidity => CertificateError::Expired,
        Error::UnknownIssuer => CertificateError::UnknownIssuer,
        Error::CertNotValidForName(webpki::InvalidNameContext { expected, presented }) => {
            CertificateError::NotValidForNameContext { expected, presented }
        }
        Error::CertRevoked => CertificateError::Revoked,
        // The same name with another key is another authority.
        Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    called.into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::pki_types::{AlgorithmIdentifier, InvalidSignature};

    use super::*;

    /// Counts checked signatures.
    #[derive(Debug)]
    struct Counted(&'static dyn SignatureVerificationAlgorithm, &'static AtomicUsize);

    impl SignatureVerificationAlgorithm for Counted {
        fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.verify_signature(key, message, signature)
        }
        fn public_key_alg_id(&self) -> AlgorithmIdentifier {
            self.0.public_key_alg_id()
        }
        fn signature_alg_id(&self) -> AlgorithmIdentifier {
            self.0.signature_alg_id()
        }
    }

    fn named(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
    }

    /// The number of signatures checked for a leaf under so many authorities of each name, the last name's under the root.
    /// With `valid` all signatures are valid, except the leaf's.
    fn cost(of_each_name: &[usize], valid: bool) -> usize {
        let (root, wrong) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut roots = TlsRoots::from_pem(named("root").self_signed(&root).unwrap().pem().as_bytes()).unwrap();
        let mut above = (named("root"), root);
        let mut further = Vec::new();
        for (level, count) in of_each_name.iter().enumerate().rev() {
            let name = named(&format!("level {level}"));
            let issuer = Issuer::from_params(&above.0, if valid { &above.1 } else { &wrong });
            let keys: Vec<_> = (0..*count).map(|_| KeyPair::generate().unwrap()).collect();
            further.extend(keys.iter().map(|key| name.signed_by(key, &issuer).unwrap().der().clone()));
            above = (name, keys.into_iter().next_back().unwrap());
        }
        let mut leaf = named("chief");
        leaf.is_ca = IsCa::NoCa;
        let own = leaf.signed_by(&wrong, &Issuer::from_params(&above.0, &wrong)).unwrap();
        let count: &'static AtomicUsize = Box::leak(Box::default());
        let all = PROVIDER.signature_verification_algorithms.all.iter().map(|of| Counted(*of, count));
        let all: Vec<_> = all.map(|of| &*Box::leak(Box::new(of)) as &dyn SignatureVerificationAlgorithm).collect();
        Arc::get_mut(&mut roots.0).unwrap().algorithms = all.leak();
        let usage = KeyUsage::client_auth();
        assert!(roots.verify(own.der(), &further, UnixTime::now(), usage).is_err());
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn no_chain_costs_more_than_a_few_signatures() {
        // Of a stranger, and of one with certificates of an authority.
        for (levels, stranger, insider) in
            [(&[1, 1][..], 1, 3), (&[2, 2], 4, 12), (&[1, 2, 1, 2], 4, 20), (&[2, 2, 2, 2], 0, 0), (&[3], 0, 0)]
        {
            let [outside, inside] = [false, true].map(|valid| cost(levels, valid));
            assert!(outside <= stranger && inside <= insider, "{levels:?}: {outside}, {inside}");
        }
    }
}
