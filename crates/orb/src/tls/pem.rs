//! PEM (RFC 7468). Errors never quote the text, because it may be a private key.
//!
//! rustls has a reader too, which leaves copies of keys on the heap.

use zeroize::Zeroizing;

use super::error::TlsError;

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PemKind {
    Certificate,
    RevocationList,
    /// PKCS #8.
    Key,
    /// PKCS #1.
    RsaKey,
    /// SEC 1.
    EcKey,
    EncryptedKey,
    Other,
}

impl PemKind {
    fn of(label: &[u8]) -> PemKind {
        match label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => PemKind::Certificate,
            b"X509 CRL" => PemKind::RevocationList,
            b"PRIVATE KEY" => PemKind::Key,
            b"RSA PRIVATE KEY" => PemKind::RsaKey,
            b"EC PRIVATE KEY" => PemKind::EcKey,
            b"ENCRYPTED PRIVATE KEY" => PemKind::EncryptedKey,
            _ => PemKind::Other,
        }
    }

    pub(super) fn is_key(self) -> bool {
        matches!(self, PemKind::Key | PemKind::RsaKey | PemKind::EcKey | PemKind::EncryptedKey)
    }
}

/// A decoded section; overwritten when it is dropped.
pub(super) struct PemSection {
    pub(super) kind: PemKind,
    pub(super) der: Zeroizing<Vec<u8>>,
}

const JOINED: &str = "the marker is not on a line of its own; the file may have lost its line ends";
const CUT_OFF: &str = "it is cut off: the section that begins here has no -----END";
const NOT_BASE64: &str = "no base64 between the markers";

/// All sections, in their order, or the line of the first mistake. `wanted` is the content that the caller needs.
pub(super) fn sections(text: &[u8], wanted: &'static str) -> Result<Vec<PemSection>, TlsError> {
    let broken = |wanted, line, what| TlsError::Pem { file: None, wanted, why: format!("line {line}: {what}") };
    let mut all = Vec::new();
    let mut lines = (1..).zip(text.split(|octet| *octet == b'\n').map(<[u8]>::trim_ascii));
    while let Some((begun, line)) = lines.next() {
        if !line.starts_with(b"-----BEGIN") {
            continue;
        }
        let label = line.strip_prefix(b"-----BEGIN ").and_then(|rest| rest.strip_suffix(b"-----"));
        // A marker inside the marker: the text has one line.
        let label = label.filter(|label| !label.windows(5).any(|five| five == b"-----"));
        let label = label.ok_or_else(|| broken(wanted, begun, JOINED))?;
        let mut kind = PemKind::of(label);
        // A broken key does not make the certificate in its file broken.
        let wanted = match kind {
            PemKind::Certificate => "certificate",
            kind if kind.is_key() => "private key",
            _ => wanted,
        };
        // As large as needed: a buffer that grows leaves copies behind.
        let mut der = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
        let mut decoder = Base64::default();
        let mut encrypted = false;
        loop {
            let (number, line) = lines.next().ok_or_else(|| broken(wanted, begun, CUT_OFF))?;
            if let Some(end) = line.strip_prefix(b"-----END ") {
                if end.strip_suffix(b"-----") != Some(label) {
                    return Err(broken(wanted, number, JOINED));
                }
                break;
            }
            if line.starts_with(b"-----") {
                return Err(broken(wanted, begun, CUT_OFF));
            }
            // Headers of the old format (RFC 1421).
            if line.contains(&b':') {
                encrypted |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
            } else if !line.iter().all(|octet| decoder.take(*octet, &mut der)) {
                return Err(broken(wanted, number, NOT_BASE64));
            }
        }
        // Encrypted content is not decoded.
        if encrypted && kind.is_key() {
            kind = PemKind::EncryptedKey;
        } else if !decoder.is_whole() {
            return Err(broken(wanted, begun, NOT_BASE64));
        }
        all.push(PemSection { kind, der });
    }
    Ok(all)
}

/// RFC 4648, 4.
#[derive(Default)]
struct Base64 {
    bits: u32,
    characters: u8,
    padding: u8,
}

impl Base64 {
    /// False if the character is not base64.
    fn take(&mut self, character: u8, into: &mut Vec<u8>) -> bool {
        let six = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' if self.characters + self.padding < 4 && self.characters >= 2 => {
                self.padding += 1;
                return true;
            }
            b' ' | b'\t' => return true,
            _ => return false,
        };
        if self.padding > 0 {
            return false;
        }
        self.bits = self.bits << 6 | u32::from(six);
        self.characters += 1;
        // An octet is whole after the second, third and fourth character.
        if self.characters > 1 {
            into.push((self.bits >> ((4 - self.characters) * 2)) as u8);
        }
        if self.characters == 4 {
            (self.bits, self.characters) = (0, 0);
        }
        true
    }

    fn is_whole(&self) -> bool {
        self.characters == 0 || self.characters + self.padding == 4
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(octets: &[u8]) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in octets.chunks(3) {
            let bits = three.iter().fold(0, |bits, octet| bits << 8 | u32::from(*octet)) << (8 * (3 - three.len()));
            for at in 0..4 {
                let six = (bits >> (18 - 6 * at)) as usize & 63;
                text.push(if at <= three.len() { ALPHABET[six].into() } else { '=' });
            }
        }
        text
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(octets in proptest::collection::vec(any::<u8>(), 0..200), width in 1usize..80) {
            let body: Vec<String> =
                encode(&octets).as_bytes().chunks(width).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
            for end in ["\n", "\r\n", " \n"] {
                let text =
                    format!("note{end}-----BEGIN PRIVATE KEY-----{end}{}{end}-----END PRIVATE KEY-----", body.join(end));
                let all = sections(text.as_bytes(), "certificate").unwrap();
                prop_assert_eq!(all.len(), 1);
                prop_assert_eq!((&*all[0].der, all[0].kind), (&octets, PemKind::Key));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "(-----(BEGIN|END) (PRIVATE KEY|CERTIFICATE)-----|[A-Z=\n: -]){0,20}") {
            let _ = sections(text.as_bytes(), "certificate");
        }
    }

    #[test]
    fn an_error_has_its_line_and_none_of_the_text() {
        let fault = |text: &str| match sections(text.as_bytes(), "certificate").map(drop).unwrap_err() {
            TlsError::Pem { file: None, wanted, why } => (wanted, why),
            other => panic!("{other}"),
        };
        let said = |text: &str| fault(text).1;
        assert_eq!(said("\n-----BEGIN PRIVATE KEY----- AAAA -----END PRIVATE KEY-----"), format!("line 2: {JOINED}"));
        assert_eq!(said("-----BEGIN PRIVATE KEY-----\nAAAA\n"), format!("line 1: {CUT_OFF}"));
        assert_eq!(fault("-----BEGIN PRIVATE KEY-----\nAAAA\n").0, "private key");
        assert_eq!(
            said("-----BEGIN PRIVATE KEY-----\nAA\u{0}A\n-----END PRIVATE KEY-----"),
            format!("line 2: {NOT_BASE64}")
        );
        assert_eq!(
            said("-----BEGIN PRIVATE KEY-----\nAAA\n-----END PRIVATE KEY-----"),
            format!("line 1: {NOT_BASE64}")
        );
        assert_eq!(
            said("-----BEGIN PRIVATE KEY-----\nA=AA\n-----END PRIVATE KEY-----"),
            format!("line 2: {NOT_BASE64}")
        );
        let headers = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----";
        assert_eq!(sections(headers.as_bytes(), "private key").unwrap()[0].kind, PemKind::EncryptedKey);
    }
}
