//! A certificate authority that lives as long as a test.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use hyoshi_orb::{TlsIdentity, TlsRoots};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

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
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
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
        change(&mut params);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        Papers { certificate: signed.pem(), key: key.serialize_pem(), der: signed.der().to_vec() }
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
