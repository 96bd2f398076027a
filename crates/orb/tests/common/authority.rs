//! A certificate authority that lives as long as a test.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_orb::{TlsIdentity, TlsRoots};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};

/// See the module.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate, and its key.
pub struct Papers {
    pub certificate: String,
    pub key: String,
    /// The certificate, in DER.
    pub der: Vec<u8>,
    pub serial: Vec<u8>,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        Authority::with(name, |_| ())
    }

    /// One with whatever else `change` says.
    pub fn with(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        change(&mut params);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Signs what `params` describes.
    pub fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Certificate {
        params.signed_by(key, &self.issuer).unwrap()
    }

    /// Its private key (PEM).
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A list of revoked certificates, by their serial numbers (PEM).
    pub fn revokes(&self, serials: &[&[u8]]) -> String {
        let now = rcgen::date_time_ymd(2024, 1, 1);
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: rcgen::date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    pub fn roots(&self) -> TlsRoots {
        TlsRoots::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// For these names and addresses, with whatever else `change` says.
    pub fn papers_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Papers {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, "yard");
        static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes()[2..].to_vec();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        change(&mut params);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        Papers { certificate: signed.pem(), key: key.serialize_pem(), der: signed.der().to_vec(), serial }
    }

    pub fn papers(&self, names: &[&str]) -> Papers {
        self.papers_with(names, |_| ())
    }

    /// The authority's certificate in a file of its own.
    pub fn file(&self, at: &Path) -> PathBuf {
        let path = at.join("authority.pem");
        std::fs::write(&path, &self.pem).unwrap();
        path
    }
}

impl Papers {
    pub fn identity(&self) -> TlsIdentity {
        TlsIdentity::from_pem(self.certificate.as_bytes(), self.key.as_bytes()).unwrap()
    }

    /// Certificate and key in one file.
    pub fn file(&self, at: &Path, name: &str) -> PathBuf {
        let path = at.join(name);
        std::fs::write(&path, format!("{}{}", self.key, self.certificate)).unwrap();
        path
    }
}

/// A certificate with so many authorities of one name, each of which could have signed any other: what looks for a way through
/// them to an authority of that name looks long. The chain, and the certificate's key.
pub fn crossed(name: &str, count: usize) -> (String, String) {
    let named = |common: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common);
        params
    };
    let mut authority = named(name);
    // As `Authority` has it.
    authority.distinguished_name = CertificateParams::new(Vec::new()).unwrap().distinguished_name;
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let keys: Vec<KeyPair> = (0..count).map(|_| KeyPair::generate().unwrap()).collect();
    let issuers: Vec<Issuer<'_, &KeyPair>> = keys.iter().map(|key| Issuer::new(authority.clone(), key)).collect();
    let key = KeyPair::generate().unwrap();
    let mut chain = named("chief").signed_by(&key, &issuers[0]).unwrap().pem();
    for (at, own) in keys.iter().enumerate() {
        chain += &authority.signed_by(own, &issuers[(at + 1) % count]).unwrap().pem();
    }
    (chain, key.serialize_pem())
}
