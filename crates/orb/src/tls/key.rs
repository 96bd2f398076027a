//! Private keys: read once, stored outside core dumps, and used to sign handshakes.
//!
//! rustls could read them itself, but keeps them on the heap, which core dumps contain. `ring` still allocates RSA
//! numbers there; keys of elliptic curves are in the value itself.

use std::fmt;
use std::io;
use std::sync::Arc;

use hyoshi_os::secret::{Secret, scrub_stack};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding, RsaKeyPair};
use rustls::pki_types::{SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::{Signer, SigningKey, public_key_to_spki};
use rustls::{Error, SignatureAlgorithm, SignatureScheme};
use zeroize::Zeroizing;

use super::pem::Kind;

/// A key.
pub(super) struct Key(Arc<Secret<Pair>>);

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

/// Why there is no key.
#[derive(Debug)]
pub(super) enum Unread {
    /// Its kind is not supported.
    Unknown,
    /// The kernel has no memory for it.
    Memory(io::Error),
}

/// These octets before a SEC 1 key make a PKCS #8 key (RFC 5208, 5): version 0, `id-ecPublicKey`, and the curve.
const OF_P256: &[u8] = &[
    0x02, 0x01, 0x00, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48,
    0xce, 0x3d, 0x03, 0x01, 0x07,
];
const OF_P384: &[u8] = &[
    0x02, 0x01, 0x00, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04,
    0x00, 0x22,
];

impl Key {
    pub(super) fn read(kind: Kind, der: &[u8]) -> Result<Key, Unread> {
        let kept = keep(kind, der);
        // Reading and moving it has left copies on the stack.
        scrub_stack();
        kept.map(|pair| Key(Arc::new(pair)))
    }
}

#[inline(never)]
fn keep(kind: Kind, der: &[u8]) -> Result<Secret<Pair>, Unread> {
    Secret::new(read(kind, der).ok_or(Unread::Unknown)?).map_err(Unread::Memory)
}

fn read(kind: Kind, der: &[u8]) -> Option<Pair> {
    match kind {
        Kind::Key => curve(der, der)
            .or_else(|| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Pair::Ed25519))
            .or_else(|| RsaKeyPair::from_pkcs8(der).ok().map(Pair::Rsa)),
        Kind::RsaKey => RsaKeyPair::from_der(der).ok().map(Pair::Rsa),
        Kind::EcKey => curve(&wrapped(OF_P256, der)?, &wrapped(OF_P384, der)?),
        _ => None,
    }
}

fn curve(as_p256: &[u8], as_p384: &[u8]) -> Option<Pair> {
    let random = SystemRandom::new();
    let read = |algorithm, der| EcdsaKeyPair::from_pkcs8(algorithm, der, &random).ok();
    read(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, as_p256)
        .map(Pair::P256)
        .or_else(|| read(&signature::ECDSA_P384_SHA384_ASN1_SIGNING, as_p384).map(Pair::P384))
}

/// A sequence of `before` and an octet string of `der`.
fn wrapped(before: &[u8], der: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    // DER has the shortest form of a length (X.690, 10.1).
    let head = |length: usize, tag: u8, to: &mut Vec<u8>| {
        match length {
            0..128 => to.extend_from_slice(&[tag, length as u8]),
            128..256 => to.extend_from_slice(&[tag, 0x81, length as u8]),
            _ => {
                to.extend_from_slice(&[tag, 0x82]);
                to.extend_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
            }
        }
        Some(())
    };
    let mut inner = Zeroizing::new(Vec::with_capacity(before.len() + der.len() + 4));
    inner.extend_from_slice(before);
    head(der.len(), 0x04, &mut inner)?;
    inner.extend_from_slice(der);
    let mut outer = Zeroizing::new(Vec::with_capacity(inner.len() + 4));
    head(inner.len(), 0x30, &mut outer)?;
    outer.extend_from_slice(&inner);
    Some(outer)
}

const RSA: [SignatureScheme; 6] = [
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PKCS1_SHA512,
    SignatureScheme::RSA_PKCS1_SHA384,
    SignatureScheme::RSA_PKCS1_SHA256,
];

impl Pair {
    /// Its signature schemes, the best first.
    fn schemes(&self) -> &'static [SignatureScheme] {
        match self {
            Pair::P256(_) => &[SignatureScheme::ECDSA_NISTP256_SHA256],
            Pair::P384(_) => &[SignatureScheme::ECDSA_NISTP384_SHA384],
            Pair::Ed25519(_) => &[SignatureScheme::ED25519],
            Pair::Rsa(_) => &RSA,
        }
    }
}

impl SigningKey for Key {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self.0.schemes().iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(Signing { pair: self.0.clone(), scheme }))
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

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// One signature with it.
struct Signing {
    pair: Arc<Secret<Pair>>,
    scheme: SignatureScheme,
}

impl Signer for Signing {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let failed = |_| Error::General("signing failed".to_owned());
        let random = SystemRandom::new();
        match &**self.pair {
            Pair::P256(pair) | Pair::P384(pair) => {
                pair.sign(&random, message).map(|signed| signed.as_ref().to_vec()).map_err(failed)
            }
            Pair::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let padding: &dyn RsaEncoding = match self.scheme {
                    SignatureScheme::RSA_PSS_SHA512 => &signature::RSA_PSS_SHA512,
                    SignatureScheme::RSA_PSS_SHA384 => &signature::RSA_PSS_SHA384,
                    SignatureScheme::RSA_PSS_SHA256 => &signature::RSA_PSS_SHA256,
                    SignatureScheme::RSA_PKCS1_SHA512 => &signature::RSA_PKCS1_SHA512,
                    SignatureScheme::RSA_PKCS1_SHA384 => &signature::RSA_PKCS1_SHA384,
                    _ => &signature::RSA_PKCS1_SHA256,
                };
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(padding, &random, message, &mut signed).map(|()| signed).map_err(failed)
            }
        }
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

impl fmt::Debug for Signing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signing").field("scheme", &self.scheme).finish()
    }
}
