//! The checks of a peer's certificates, as rustls calls them.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use webpki::{EndEntityCert, KeyUsage};

use super::roots::{PROVIDER, TlsRoots, error};

#[derive(Debug)]
pub(super) struct OfClients {
    pub(super) roots: TlsRoots,
    pub(super) insists: bool,
}

#[derive(Debug)]
pub(super) struct OfServers(pub(super) TlsRoots);

/// The check that a peer has the key of its certificate.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, certificate, signed, &PROVIDER.signature_verification_algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, certificate, signed, &PROVIDER.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            PROVIDER.signature_verification_algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for OfClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.roots.subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.insists
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        further: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.roots.verify(own, further, now, KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

impl ServerCertVerifier for OfServers {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        further: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.verify(own, further, now, KeyUsage::server_auth())?;
        let read = EndEntityCert::try_from(own).map_err(error)?;
        read.verify_is_valid_for_subject_name(name).map_err(error)?;
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}
