//! Whose a certificate is.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::tls::TlsError;

/// Names of a certificate that are heard; the rest is left out.
const MOST: usize = 32;
/// `id-at-commonName`, 2.5.4.3 (X.520, 6.2.2).
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// `id-ce-subjectAltName`, 2.5.29.17 (RFC 5280, 4.2.1.6).
const ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 0x11];

/// The names that a client's certificate (X.509, DER: [`peer_certificate`](crate::current::peer_certificate)) is for: host
/// names and URIs of its `subjectAltName`, and where it has no `subjectAltName` of whatever kind, the common names of its
/// subject (RFC 6125, 6.4.4). At most 32. Whether they are true was looked at when the connection was made.
///
/// # Errors
///
/// Of octets that are no certificate.
pub fn certificate_names(certificate: &[u8]) -> Result<Vec<String>, TlsError> {
    let der = CertificateDer::from(certificate);
    let read = EndEntityCert::try_from(&der).map_err(|error| TlsError::Refused(error.to_string()))?;
    let told = read.valid_dns_names().chain(read.valid_uri_names());
    let names: Vec<String> = told.take(MOST).map(str::to_owned).collect();
    Ok(if has_alternative_names(certificate) { names } else { common_names(read.subject()) })
}

/// Whether it says at all what it is for besides its subject; true of what cannot be read. The extensions are what is signed
/// under tag 3, each an object identifier and more (RFC 5280, 4.1).
fn has_alternative_names(certificate: &[u8]) -> bool {
    let inside = |der| Elements(der).next().map(|(_, content)| content);
    let Some(signed) = inside(certificate).and_then(inside) else { return true };
    let Some((_, extensions)) = Elements(signed).find(|(tag, _)| *tag == 0xa3) else { return false };
    let Some(extensions) = inside(extensions) else { return true };
    Elements(extensions).any(|(_, extension)| inside(extension).is_none_or(|id| id == ALTERNATIVE_NAME))
}

/// Of a subject: relative distinguished names, each a set of pairs of an object identifier and a value (RFC 5280, 4.1.2.4).
fn common_names(subject: &[u8]) -> Vec<String> {
    let sets = Elements(subject).filter(|(tag, _)| *tag == 0x31);
    let pairs = sets.flat_map(|(_, set)| Elements(set)).filter(|(tag, _)| *tag == 0x30);
    let named = pairs.filter_map(|(_, pair)| {
        let mut pair = Elements(pair);
        pair.next().filter(|(tag, id)| *tag == 0x06 && **id == COMMON_NAME)?;
        // UTF8String, PrintableString, IA5String: the others are of the last century.
        let (_, value) = pair.next().filter(|(tag, _)| matches!(tag, 0x0c | 0x13 | 0x16))?;
        String::from_utf8(value.to_vec()).ok()
    });
    named.take(MOST).collect()
}

/// What stands side by side in DER: tags and contents; ends where it cannot be read.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, length, rest) = match *self.0 {
            [tag, length @ ..=0x7f, ref rest @ ..] => (tag, usize::from(length), rest),
            [tag, 0x81, length, ref rest @ ..] => (tag, usize::from(length), rest),
            [tag, 0x82, high, low, ref rest @ ..] => (tag, usize::from(u16::from_be_bytes([high, low])), rest),
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common: &[&str], alternative: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Plant");
        common.iter().for_each(|name| params.distinguished_name.push(DnType::CommonName, *name));
        params.subject_alt_names = alternative;
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_is_for_its_alternative_names_or_else_its_subjects_common_name() {
        let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
        let uri = SanType::URI("spiffe://plant/ann".try_into().unwrap());
        let names = |common: &[&str], alternative| certificate_names(&certificate(common, alternative)).unwrap();
        assert_eq!(names(&["ann"], vec![]), ["ann"]);
        assert_eq!(
            names(&["root"], vec![dns("ann"), uri]),
            ["ann", "spiffe://plant/ann"],
            "the subject does not count"
        );
        let address = SanType::IpAddress([127, 0, 0, 1].into());
        let mail = SanType::Rfc822Name("zoe@plant".try_into().unwrap());
        for other in [address, mail] {
            assert!(names(&["root"], vec![other]).is_empty(), "nor does it beside names that are none of a holder");
        }
        assert_eq!(names(&["Zoë"], vec![]), ["Zoë"]);
        assert!(names(&[], vec![]).is_empty());
        assert!(certificate_names(b"no certificate").is_err());
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..64)) {
            common_names(&octets);
            has_alternative_names(&octets);
        }
    }
}
