//! The names in a certificate, and fields that `webpki` does not provide.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::error::TlsError;

/// Names of a certificate; others are ignored.
const MOST: usize = 32;
/// `id-at-commonName`, 2.5.4.3 (X.520, 6.2.2).
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// `id-ce-subjectAltName`, 2.5.29.17 (RFC 5280, 4.2.1.6).
const ALTERNATIVE_NAME: [u8; 3] = [0x55, 0x1d, 0x11];
/// `id-ce-keyUsage`, 2.5.29.15.
const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 0x0f];
/// `id-ce-basicConstraints`, 2.5.29.19.
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];
/// `id-ce-nameConstraints`, 2.5.29.30.
const NAME_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x1e];

/// The names of a client's certificate (X.509, DER: [`peer_certificate`](crate::current::peer_certificate)), at most 32:
/// host names and URIs of its `subjectAltName`, or if it has none the common names of its subject (RFC 6125, 6.4.4).
///
/// # Errors
///
/// If the octets are not a certificate.
pub fn certificate_names(certificate: &[u8]) -> Result<Vec<String>, TlsError> {
    let der = CertificateDer::from(certificate);
    let read = EndEntityCert::try_from(&der).map_err(|error| TlsError::Refused(error.to_string()))?;
    if Fields::of(certificate).is_some_and(|fields| fields.extension(&ALTERNATIVE_NAME).is_none()) {
        return Ok(common_names(read.subject()));
    }
    Ok(read.valid_dns_names().chain(read.valid_uri_names()).take(MOST).map(str::to_owned).collect())
}

/// Fields of a certificate that `webpki` does not provide (RFC 5280, 4.1 and 4.2).
pub(crate) struct Fields<'a> {
    /// Seconds since 1970.
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
    pub(super) subject: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Fields<'a> {
    /// `None` if it cannot be read.
    pub(crate) fn of(certificate: &'a [u8]) -> Option<Fields<'a>> {
        let signed = inside(inside(certificate)?)?;
        let mut fields = Elements(signed).peekable();
        // The version is left out of certificates of version 1.
        fields.next_if(|(tag, _)| *tag == 0xa0);
        let (_serial, _algorithm, _issuer) = (fields.next()?, fields.next()?, fields.next()?);
        let mut validity = Elements(fields.next()?.1);
        let (not_before, not_after) = (seconds(validity.next()?)?, seconds(validity.next()?)?);
        let (_, subject) = fields.next()?;
        let extensions = match fields.find(|(tag, _)| *tag == 0xa3) {
            Some((_, extensions)) => inside(extensions)?,
            None => &[],
        };
        let all_readable = Elements(extensions).all(|(_, extension)| content(extension).is_some());
        all_readable.then_some(Fields { not_before, not_after, subject, extensions })
    }

    fn extension(&self, wanted: &[u8]) -> Option<&'a [u8]> {
        let mut all = Elements(self.extensions).filter_map(|(_, extension)| content(extension));
        all.find(|(id, _)| *id == wanted).map(|(_, content)| content)
    }

    /// Whether it is an authority's: `basicConstraints` contains `cA` (RFC 5280, 4.2.1.9).
    pub(crate) fn is_authority(&self) -> bool {
        let constraints = self.extension(&BASIC_CONSTRAINTS).and_then(inside);
        constraints.and_then(|content| Elements(content).next()).is_some_and(|(tag, ca)| tag == 0x01 && ca == [0xff])
    }

    /// Whether its key may sign certificates: it has no `keyUsage`, or one with `keyCertSign` (RFC 5280, 6.1.4 n).
    pub(crate) fn may_sign(&self) -> bool {
        // A bit string: the number of unused bits in the last octet, then bits from the highest on.
        let signs = |usage| inside(usage).and_then(|bits| bits.get(1)).is_some_and(|bits| bits & 0x04 != 0);
        self.extension(&KEY_USAGE).is_none_or(signs)
    }

    /// Whether it constrains the names of certificates below it (RFC 5280, 4.2.1.10).
    pub(crate) fn constrains_names(&self) -> bool {
        self.extension(&NAME_CONSTRAINTS).is_some()
    }

    /// Whether it has a name to which constraints do not apply here: a URI, or a common name that counts.
    pub(crate) fn has_free_names(&self) -> bool {
        match self.extension(&ALTERNATIVE_NAME) {
            None => !common_names(self.subject).is_empty(),
            Some(names) => inside(names).is_none_or(|names| Elements(names).any(|(tag, _)| tag == 0x86)),
        }
    }

    /// Whether a client can compare it with a host: it has a host name or address.
    pub(crate) fn names_hosts(&self) -> bool {
        let names = self.extension(&ALTERNATIVE_NAME).and_then(inside);
        names.is_some_and(|names| Elements(names).any(|(tag, _)| matches!(tag, 0x82 | 0x87)))
    }

    /// Its subject's common name, for messages.
    pub(crate) fn common_name(&self) -> Option<String> {
        common_names(self.subject).into_iter().next().map(|name| name.chars().filter(|c| !c.is_control()).collect())
    }
}

pub(super) fn inside(der: &[u8]) -> Option<&[u8]> {
    Elements(der).next().map(|(_, content)| content)
}

/// The identifier and the content of an extension, which may have a flag between them.
fn content(extension: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = Elements(extension);
    let (_, id) = parts.next()?;
    Some((id, parts.find(|(tag, _)| *tag == 0x04)?.1))
}

/// When a list of revoked certificates (DER) must be replaced, if it has that date (RFC 5280, 5.1).
pub(crate) fn next_update(list: &[u8]) -> Option<u64> {
    let signed = inside(inside(list)?)?;
    let mut times = Elements(signed).filter(|(tag, _)| matches!(tag, 0x17 | 0x18));
    let _this_update = times.next()?;
    times.next().and_then(seconds)
}

/// The seconds since 1970 of a UTCTime (1950 to 2049) or a GeneralizedTime (RFC 5280, 4.1.2.5).
fn seconds((tag, time): (u8, &[u8])) -> Option<u64> {
    let digits = time.strip_suffix(b"Z").filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let number = |digits: &[u8]| digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    let (year, rest) = match (tag, digits.len()) {
        (0x17, 12) => (number(&digits[..2]) + if digits[0] < b'5' { 2000 } else { 1900 }, &digits[2..]),
        (0x18, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let [month, day, hour, minute, second] = [0, 2, 4, 6, 8].map(|at| number(&rest[at..at + 2]));
    // Days since 1 March of year 0, then since 1970 (Gregorian calendar; months from March on).
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * ((month + 9) % 12) + 2) / 5 + day;
    Some(days.saturating_sub(719_469) * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// The common names of a subject, which is a list of sets of pairs of object identifier and value (RFC 5280, 4.1.2.4).
fn common_names(subject: &[u8]) -> Vec<String> {
    let sets = Elements(subject).filter(|(tag, _)| *tag == 0x31);
    let pairs = sets.flat_map(|(_, set)| Elements(set)).filter(|(tag, _)| *tag == 0x30);
    let named = pairs.filter_map(|(_, pair)| {
        let mut pair = Elements(pair);
        pair.next().filter(|(tag, id)| *tag == 0x06 && **id == COMMON_NAME)?;
        // UTF8String, PrintableString or IA5String; certificates of this century use no others.
        let (_, value) = pair.next().filter(|(tag, _)| matches!(tag, 0x0c | 0x13 | 0x16))?;
        String::from_utf8(value.to_vec()).ok()
    });
    named.take(MOST).collect()
}

/// Consecutive elements of DER: tags and contents. Ends where it cannot be read.
pub(super) struct Elements<'a>(pub(super) &'a [u8]);

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

    #[test]
    fn what_a_certificate_says_of_itself_is_read() {
        let with = |change: fn(&mut CertificateParams)| {
            let mut params = CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(1999, 12, 31);
            params.not_after = rcgen::date_time_ymd(2051, 3, 1);
            change(&mut params);
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        let der = with(|_| ());
        let leaf = Fields::of(&der).unwrap();
        // date -ud 1999-12-31 +%s; date -ud 2051-03-01 +%s
        assert_eq!((leaf.not_before, leaf.not_after), (946_598_400, 2_561_241_600));
        assert!(!leaf.is_authority() && leaf.may_sign() && !leaf.constrains_names() && !leaf.names_hosts());
        let der = with(|params| params.is_ca = rcgen::IsCa::ExplicitNoCa);
        assert!(!Fields::of(&der).unwrap().is_authority());
        let der = with(|params| {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(2));
            params.key_usages = vec![rcgen::KeyUsagePurpose::CrlSign];
            params.name_constraints = Some(rcgen::NameConstraints {
                permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("guest".to_owned())],
                excluded_subtrees: vec![],
            });
        });
        let authority = Fields::of(&der).unwrap();
        assert!(authority.is_authority() && !authority.may_sign() && authority.constrains_names());
        let der = with(|params| params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign]);
        assert!(Fields::of(&der).unwrap().may_sign());
        let der = with(|params| params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())]);
        assert!(Fields::of(&der).unwrap().names_hosts() && !Fields::of(&der).unwrap().has_free_names());
    }

    proptest! {
        #[test]
        fn days_are_counted_as_the_calendar_has_them(at in 0u64..253_402_300_800) {
            let days = at / 86_400;
            // By counting: years, then months.
            let (mut year, mut left) = (1970, days);
            let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
            while left >= 365 + u64::from(leap(year)) {
                left -= 365 + u64::from(leap(year));
                year += 1;
            }
            let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let mut month = 0;
            while left >= lengths[month] {
                left -= lengths[month];
                month += 1;
            }
            let (clock, month, day) = (at % 86_400, month + 1, left + 1);
            let rest = format!("{month:02}{day:02}{:02}{:02}{:02}Z", clock / 3_600, clock / 60 % 60, clock % 60);
            prop_assert_eq!(seconds((0x18, format!("{year:04}{rest}").as_bytes())), Some(at));
            if year < 2050 {
                prop_assert_eq!(seconds((0x17, format!("{:02}{rest}", year % 100).as_bytes())), Some(at));
            }
        }

        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..64)) {
            common_names(&octets);
            let _ = Fields::of(&octets).map(|fields| fields.extension(&ALTERNATIVE_NAME));
            seconds((0x17, &octets));
        }
    }
}
