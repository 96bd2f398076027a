//! The certificate of a host for Zenoh over TLS.

use std::path::Path;

use hyoshi_node::CarrierError;
use hyoshi_orb::TlsIdentity;

use crate::config::quoted;

/// The files of a certificate, its private key and the trusted authorities, in PEM. Zenoh reads them when it listens and
/// at each attempt to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZenohTls {
    certificate: String,
    key: String,
    roots: String,
    common_name: Option<String>,
}

impl ZenohTls {
    /// From these files. The key may be in the certificate's file.
    ///
    /// # Errors
    ///
    /// If the certificate or its key cannot be read, or Zenoh cannot use a path.
    pub fn from_files(certificate: &Path, key: &Path, roots: &Path) -> Result<ZenohTls, CarrierError> {
        let identity = TlsIdentity::from_files(certificate, key).map_err(|error| CarrierError {
            message: format!("Zenoh cannot use the certificate in {}: {error}", certificate.display()),
            remedy: "`openssl x509 -noout -text -in FILE` shows the certificate; its key must be in the same file, or in --tls-key"
                .to_owned(),
        })?;
        let path = |path: &Path| {
            let text = path.to_str().filter(|text| !text.contains(';'));
            text.map(str::to_owned).ok_or_else(|| CarrierError {
                message: format!("Zenoh cannot use the path {}", path.display()),
                remedy: "rename the file: paths for Zenoh are UTF-8, without `;`".to_owned(),
            })
        };
        let (certificate, key, roots) = (path(certificate)?, path(key)?, path(roots)?);
        Ok(ZenohTls { certificate, key, roots, common_name: identity.common_name() })
    }

    /// Checks that peers will accept the certificate as that of a host. Zenoh compares only common names.
    ///
    /// # Errors
    ///
    /// If it has another common name.
    pub(crate) fn is_for(&self, host: &str) -> Result<(), CarrierError> {
        let name = match &self.common_name {
            Some(name) if name == host => return Ok(()),
            Some(name) => format!("the common name `{name}`"),
            None => "no common name".to_owned(),
        };
        Err(CarrierError {
            message: format!("the certificate in {} has {name}, not `{host}`", self.certificate),
            remedy: format!(
                "Zenoh compares common names: create it with the subject `CN={host}`, and the DNS name `{host}` for IIOP"
            ),
        })
    }

    /// The settings of links. Access rules compare names, so that of the address is not compared.
    pub(crate) fn settings(&self) -> String {
        let [certificate, key, roots] = [&self.certificate, &self.key, &self.roots].map(|path| quoted(path));
        format!(
            "tls: {{
                enable_mtls: true, verify_name_on_connect: false, root_ca_certificate: {roots},
                listen_certificate: {certificate}, listen_private_key: {key},
                connect_certificate: {certificate}, connect_private_key: {key},
            }},"
        )
    }
}
