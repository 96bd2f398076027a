//! Private keys, stored outside core dumps. rustls would store them on the heap, which core dumps contain; only the
//! numbers of RSA are still there.

use std::fmt;
use std::io;
use std::sync::Arc;

use hyoshi_os::secret::{Secret, scrub_stack};
use ring::error::{KeyRejected, Unspecified};
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair,
};
use rustls::pki_types::{SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::{Signer, SigningKey, public_key_to_spki};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};

use super::certificate::{Elements, inside};
use super::pem::PemKind;

/// A private key, to sign with.
#[derive(Clone)]
pub(super) struct PrivateKey(Arc<Secret<Pair>>);

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl PrivateKey {
    /// `None` if its kind is not supported; an error if the kernel has no memory for it.
    pub(super) fn read(kind: PemKind, der: &[u8]) -> io::Result<Option<PrivateKey>> {
        let stored = store(kind, der);
        // Reading and moving it has left copies on the stack.
        scrub_stack();
        Ok(stored?.map(|pair| PrivateKey(Arc::new(pair))))
    }
}

#[inline(never)]
fn store(kind: PemKind, der: &[u8]) -> io::Result<Option<Secret<Pair>>> {
    read(kind, der).map(Secret::new).transpose()
}

fn read(kind: PemKind, der: &[u8]) -> Option<Pair> {
    let random = SystemRandom::new();
    match kind {
        PemKind::Key => curve(|algorithm| EcdsaKeyPair::from_pkcs8(algorithm, der, &random))
            .or_else(|| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Pair::Ed25519))
            .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Pair::Rsa)),
        PemKind::RsaKey => RsaKeyPair::from_der(der).ok().map(Pair::Rsa),
        PemKind::EcKey => {
            // RFC 5915, 3: version, private key, then the curve if it is named, and the public key.
            let mut parts = Elements(inside(der)?);
            let (_, private) = parts.find(|(tag, _)| *tag == 0x04)?;
            let public = inside(parts.find(|(tag, _)| *tag == 0xa1)?.1)?.strip_prefix(&[0])?;
            curve(|algorithm| EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public, &random))
        }
        _ => None,
    }
}

fn curve(read: impl Fn(&'static EcdsaSigningAlgorithm) -> Result<EcdsaKeyPair, KeyRejected>) -> Option<Pair> {
    let p256 = read(&signature::ECDSA_P256_SHA256_ASN1_SIGNING).map(Pair::P256);
    p256.or_else(|_| read(&signature::ECDSA_P384_SHA384_ASN1_SIGNING).map(Pair::P384)).ok()
}

/// The paddings of RSA, the best first.
static RSA: [(SignatureScheme, &dyn RsaEncoding); 6] = [
    (SignatureScheme::RSA_PSS_SHA512, &signature::RSA_PSS_SHA512),
    (SignatureScheme::RSA_PSS_SHA384, &signature::RSA_PSS_SHA384),
    (SignatureScheme::RSA_PSS_SHA256, &signature::RSA_PSS_SHA256),
    (SignatureScheme::RSA_PKCS1_SHA512, &signature::RSA_PKCS1_SHA512),
    (SignatureScheme::RSA_PKCS1_SHA384, &signature::RSA_PKCS1_SHA384),
    (SignatureScheme::RSA_PKCS1_SHA256, &signature::RSA_PKCS1_SHA256),
];

impl SigningKey for PrivateKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = match &**self.0 {
            Pair::P256(_) => SignatureScheme::ECDSA_NISTP256_SHA256,
            Pair::P384(_) => SignatureScheme::ECDSA_NISTP384_SHA384,
            Pair::Ed25519(_) => SignatureScheme::ED25519,
            Pair::Rsa(_) => RSA.iter().map(|(scheme, _)| *scheme).find(|scheme| offered.contains(scheme))?,
        };
        offered.contains(&scheme).then(|| Box::new(KeySigner { key: self.clone(), scheme }) as _)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(match &**self.0 {
            Pair::P256(pair) => public_key_to_spki(&alg_id::ECDSA_P256, pair.public_key()),
            Pair::P384(pair) => public_key_to_spki(&alg_id::ECDSA_P384, pair.public_key()),
            Pair::Ed25519(pair) => public_key_to_spki(&alg_id::ED25519, pair.public_key()),
            Pair::Rsa(pair) => public_key_to_spki(&alg_id::RSA_ENCRYPTION, pair.public_key()),
        })
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        match **self.0 {
            Pair::P256(_) | Pair::P384(_) => SignatureAlgorithm::ECDSA,
            Pair::Ed25519(_) => SignatureAlgorithm::ED25519,
            Pair::Rsa(_) => SignatureAlgorithm::RSA,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

#[derive(Debug)]
struct KeySigner {
    key: PrivateKey,
    scheme: SignatureScheme,
}

impl Signer for KeySigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        let signed = match &**self.key.0 {
            Pair::P256(pair) | Pair::P384(pair) => pair.sign(&random, message).map(|signed| signed.as_ref().to_vec()),
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let padding = RSA.iter().find(|(scheme, _)| *scheme == self.scheme).ok_or(Unspecified);
                let mut signed = vec![0; pair.public().modulus_len()];
                padding.and_then(|(_, padding)| pair.sign(*padding, &random, message, &mut signed)).map(|()| signed)
            }
        };
        signed.map_err(|Unspecified| Error::General("signing failed".to_owned()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_sec_1_is_the_same_as_in_pkcs_8() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
            let pkcs8 = rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_der();
            let (_, sec1) = Elements(inside(&pkcs8).unwrap()).find(|(tag, _)| *tag == 0x04).unwrap();
            // Version and private key; OpenSSL adds the curve before the public key.
            let parts = Vec::from_iter(Elements(inside(sec1).unwrap()));
            let element = |(tag, content): (u8, &[u8])| [&[tag, content.len() as u8], content].concat();
            let [version, private, public] = parts[..] else { panic!("{} parts", parts.len()) };
            let curve = (0xa0, &[0x06, 0x01, 0x2a][..]);
            let named = [version, private, curve, public].map(element).concat();
            let named = [&[0x30, 0x81, named.len() as u8], &named[..]].concat();
            let read = |kind, der: &[u8]| PrivateKey::read(kind, der).unwrap();
            let known = read(PemKind::Key, &pkcs8).unwrap();
            for der in [sec1, &named] {
                assert_eq!(read(PemKind::EcKey, der).unwrap().public_key(), known.public_key());
                // A key that is cut off, or has another public key, is refused.
                assert!((0..der.len()).all(|length| read(PemKind::EcKey, &der[..length]).is_none()));
                let mut other = der.to_vec();
                *other.last_mut().unwrap() ^= 1;
                assert!(read(PemKind::EcKey, &other).is_none());
            }
        }
    }
}
