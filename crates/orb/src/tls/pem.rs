//! PEM (RFC 7468): sections of text. Errors never quote the text, because it may be a private key.

use std::borrow::Cow;

use zeroize::Zeroizing;

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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

impl Kind {
    fn of(label: &[u8]) -> Kind {
        match label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => Kind::Certificate,
            b"X509 CRL" => Kind::RevocationList,
            b"PRIVATE KEY" => Kind::Key,
            b"RSA PRIVATE KEY" => Kind::RsaKey,
            b"EC PRIVATE KEY" => Kind::EcKey,
            b"ENCRYPTED PRIVATE KEY" => Kind::EncryptedKey,
            _ => Kind::Other,
        }
    }

    pub(super) fn is_key(self) -> bool {
        matches!(self, Kind::Key | Kind::RsaKey | Kind::EcKey | Kind::EncryptedKey)
    }
}

/// One of them, decoded; overwritten when it goes.
pub(super) struct Section {
    pub(super) kind: Kind,
    pub(super) der: Zeroizing<Vec<u8>>,
}

/// The error, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) kind: Option<Kind>,
    what: &'static str,
}

impl Fault {
    /// Not the text: it may be a key.
    pub(super) fn said(self) -> Cow<'static, str> {
        format!("line {}: {}", self.line, self.what).into()
    }
}

const JOINED: &str = "the marker is not on a line of its own; the file may have lost its line ends";
const CUT_OFF: &str = "it is cut off: the section that begins here has no -----END";
const NOT_BASE64: &str = "no base64 between the markers";

/// All sections, in their order.
pub(super) fn sections(text: &[u8]) -> Result<Vec<Section>, Fault> {
    let mut all = Vec::new();
    let mut lines = (1..).zip(text.split(|octet| *octet == b'\n'));
    while let Some((begun, line)) = lines.next() {
        let line = line.trim_ascii();
        if !line.starts_with(b"-----BEGIN") {
            continue;
        }
        let marked = line.strip_prefix(b"-----BEGIN ").and_then(|rest| rest.strip_suffix(b"-----"));
        // A marker inside the marker: the text has one line.
        let marked = marked.filter(|label| !label.windows(5).any(|five| five == b"-----"));
        let Some(label) = marked else { return Err(Fault { line: begun, kind: None, what: JOINED }) };
        let mut kind = Kind::of(label);
        let fault = |line, what| Fault { line, kind: Some(kind), what };
        // As large as needed: a buffer that grows leaves copies behind.
        let mut der = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
        let mut decoder = Base64::default();
        let mut encrypted = false;
        loop {
            let Some((number, line)) = lines.next() else { return Err(fault(begun, CUT_OFF)) };
            let line = line.trim_ascii();
            if let Some(end) = line.strip_prefix(b"-----END ") {
                if end.strip_suffix(b"-----") != Some(label) {
                    return Err(fault(number, JOINED));
                }
                break;
            }
            if line.starts_with(b"-----") {
                return Err(fault(begun, CUT_OFF));
            }
            // Headers of the old format (RFC 1421).
            if line.contains(&b':') {
                encrypted |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
                continue;
            }
            if !line.iter().all(|octet| decoder.take(*octet, &mut der)) {
                return Err(fault(number, NOT_BASE64));
            }
        }
        // Encrypted content is not decoded.
        if encrypted && kind.is_key() {
            kind = Kind::EncryptedKey;
        } else if !decoder.is_whole() {
            return Err(fault(begun, NOT_BASE64));
        }
        all.push(Section { kind, der });
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
    /// False if it is not one.
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
        fn what_is_encoded_comes_back(octets in proptest::collection::vec(any::<u8>(), 0..200), width in 1usize..80) {
            let body: Vec<String> =
                encode(&octets).as_bytes().chunks(width).map(|line| String::from_utf8(line.to_vec()).unwrap()).collect();
            for end in ["\n", "\r\n", " \n"] {
                let text =
                    format!("note{end}-----BEGIN PRIVATE KEY-----{end}{}{end}-----END PRIVATE KEY-----", body.join(end));
                let all = sections(text.as_bytes()).unwrap();
                prop_assert_eq!(all.len(), 1);
                prop_assert_eq!((&*all[0].der, all[0].kind), (&octets, Kind::Key));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "(-----(BEGIN|END) (PRIVATE KEY|CERTIFICATE)-----|[A-Z=\n: -]){0,20}") {
            let _ = sections(text.as_bytes());
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_none_of_the_text() {
        let fault = |text: &str| sections(text.as_bytes()).map(drop).unwrap_err();
        let said = |text: &str| fault(text).said().into_owned();
        assert_eq!(said("\n-----BEGIN PRIVATE KEY----- AAAA -----END PRIVATE KEY-----"), format!("line 2: {JOINED}"));
        assert_eq!(said("-----BEGIN PRIVATE KEY-----\nAAAA\n"), format!("line 1: {CUT_OFF}"));
        assert_eq!(fault("-----BEGIN PRIVATE KEY-----\nAAAA\n").kind, Some(Kind::Key));
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
        assert_eq!(sections(headers.as_bytes()).unwrap()[0].kind, Kind::EncryptedKey);
    }
}
