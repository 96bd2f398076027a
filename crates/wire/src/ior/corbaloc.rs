//! `corbaloc:` (7.6.10): addresses and a key, in written form.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::Ipv6Addr;
use core::str::FromStr;

use super::{Component, Ior, Profile, ReferenceError, ReferenceErrorKind, SslTransport};
use crate::cdr::{EncodeError, Version};
use crate::tagged::Tagged;

/// The port of an address without one.
pub const DEFAULT_PORT: u16 = 2809;

/// Addresses and a key.
///
/// ```text
///   corbaloc:iiop:1.2@host:2809,iiop:[::1]:2810/Key%20in%20octets
///   corbaloc::host/Key                       1.0, port 2809
///   corbaloc:ssliop:1.2@host:2810/Key        TLS
///   corbaloc:omniunix:/path/to/socket:/Key   a Unix socket, as omniORB writes it
///   corbaloc:rir:/NameService                the ORB's initial reference of that name
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Corbaloc {
    /// The addresses, in the order of the attempts.
    pub addresses: Vec<CorbalocAddress>,
    /// The object key, escapes resolved.
    pub key: Vec<u8>,
}

/// Where to find the object of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CorbalocAddress {
    /// The ORB's own initial references.
    Rir,
    /// TCP.
    Iiop {
        /// The highest version to use.
        version: Version,
        /// A name or address, an IPv6 one without brackets; empty: this machine.
        host: String,
        /// The port.
        port: u16,
    },
    /// TLS over TCP.
    Ssliop {
        /// The highest version to use.
        version: Version,
        /// A name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix {
        /// Its path.
        path: String,
    },
}

impl Corbaloc {
    /// As a reference: a profile for each address. None of `rir:`, which only the ORB can resolve.
    ///
    /// For a host or path that no reference can express.
    ///
    /// A host or path that no reference can carry.
    pub fn ior(&self, type_id: &str) -> Result<Option<Ior>, EncodeError> {
        let mut profiles = Vec::with_capacity(self.addresses.len());
        for address in &self.addresses {
            // An empty host is this machine's.
            let host = |host: &'_ str| if host.is_empty() { "localhost".to_string() } else { host.to_string() };
            profiles.push(match address {
                CorbalocAddress::Rir => return Ok(None),
                CorbalocAddress::Iiop { version, host: name, port } => {
                    Profile::iiop(*version, &host(name), *port, &self.key, &[])?
                }
                CorbalocAddress::Ssliop { version, host: name, port } => {
                    // Integrity, confidentiality and trust in the target, as every TLS server supports.
                    let ssl = Component::Ssl(SslTransport { supports: 0x66, requires: 0, port: *port });
                    let data = ssl.data()?;
                    let component = Tagged { tag: ssl.tag(), data: &data };
                    Profile::iiop((*version).max(Version::V1_1), &host(name), 0, &self.key, &[component])?
                }
                CorbalocAddress::Unix { path } => {
                    let unix = Component::OmniUnix { host: "", path };
                    let data = unix.data()?;
                    let component = Tagged { tag: unix.tag(), data: &data };
                    Profile::iiop(Version::V1_2, "", 0, &self.key, &[component])?
                }
            });
        }
        Ok(Some(Ior { type_id: type_id.into(), profiles }))
    }
}

/// The rest of the text, and its position in the text.
#[derive(Clone, Copy)]
pub(super) struct Rest<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
}

impl<'a> Rest<'a> {
    pub(super) fn fail<T>(self, kind: ReferenceErrorKind) -> Result<T, ReferenceError> {
        Err(ReferenceError { at: self.at, kind })
    }

    pub(super) fn skip(self, count: usize) -> Rest<'a> {
        Rest { text: &self.text[count..], at: self.at + count }
    }

    /// The text after a prefix, which is matched without regard to case.
    pub(super) fn after(self, prefix: &str) -> Option<Rest<'a>> {
        let head = self.text.get(..prefix.len())?;
        head.eq_ignore_ascii_case(prefix).then(|| self.skip(prefix.len()))
    }

    fn up_to(self, stop: &[char]) -> (&'a str, Rest<'a>) {
        let end = self.text.find(stop).unwrap_or(self.text.len());
        (&self.text[..end], self.skip(end))
    }
}

/// Addresses and key, up to the end.
pub(super) fn addresses_and_key(mut rest: Rest<'_>) -> Result<Corbaloc, ReferenceError> {
    let start = rest;
    let mut addresses = Vec::new();
    loop {
        let (address, after) = address(rest)?;
        addresses.push(address);
        match after.text.as_bytes().first() {
            Some(b',') => rest = after.skip(1),
            Some(b'/') => {
                rest = after.skip(1);
                break;
            }
            Some(_) => return after.fail(ReferenceErrorKind::Port),
            None => {
                rest = after;
                break;
            }
        }
    }
    if addresses.len() > 1 && addresses.contains(&CorbalocAddress::Rir) {
        return start.fail(ReferenceErrorKind::RirAmongOthers);
    }
    Ok(Corbaloc { addresses, key: unescape(rest)? })
}

fn address(rest: Rest<'_>) -> Result<(CorbalocAddress, Rest<'_>), ReferenceError> {
    if let Some(rest) = rest.after("rir:") {
        return Ok((CorbalocAddress::Rir, rest));
    }
    if let Some(path) = rest.after("omniunix:").or_else(|| rest.after("unix:")) {
        let (text, after) = path.up_to(&[':']);
        if text.is_empty() || after.text.is_empty() {
            return path.fail(ReferenceErrorKind::Path);
        }
        let octets = unescape(Rest { text, ..path })?;
        if octets.contains(&0) {
            return path.skip(text.find("%00").unwrap_or(0)).fail(ReferenceErrorKind::Nul);
        }
        return match String::from_utf8(octets) {
            Ok(path) => Ok((CorbalocAddress::Unix { path }, after.skip(1))),
            Err(_) => rest.fail(ReferenceErrorKind::Utf8),
        };
    }
    let (rest, tls) = match (rest.after("iiop:").or_else(|| rest.after(":")), rest.after("ssliop:")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => return rest.fail(ReferenceErrorKind::Protocol),
    };
    let (version, rest) = match rest.up_to(&['@', '/', ',']) {
        (text, after) if after.text.starts_with('@') => {
            let version = match text {
                "1.0" => Version::V1_0,
                "1.1" => Version::V1_1,
                "1.2" => Version::V1_2,
                _ => return rest.fail(ReferenceErrorKind::Version),
            };
            (version, after.skip(1))
        }
        _ => (Version::V1_0, rest),
    };
    let (host, rest) = if let Some(inside) = rest.after("[") {
        match inside.up_to(&[']', '/', ',']) {
            (host, after) if after.text.starts_with(']') && is_ipv6(host) => (host, after.skip(1)),
            _ => return rest.fail(ReferenceErrorKind::Brackets),
        }
    } else {
        let (host, after) = rest.up_to(&[':', '/', ',']);
        if let Some((at, c)) = host.char_indices().find(|(_, c)| !c.is_ascii_graphic() || "[]@%".contains(*c)) {
            let kind = if "[]".contains(c) { ReferenceErrorKind::Brackets } else { ReferenceErrorKind::Unescaped(c) };
            return rest.skip(at).fail(kind);
        }
        (host, after)
    };
    let (port, after) = match rest.after(":") {
        None => (DEFAULT_PORT, rest),
        Some(digits) => {
            let (text, after) = digits.up_to(&['/', ',']);
            // An IPv6 address without brackets looks like this.
            if text.contains(':') {
                return digits.fail(ReferenceErrorKind::Brackets);
            }
            match text.parse() {
                Ok(port) if port != 0 && text.as_bytes()[0].is_ascii_digit() => (port, after),
                _ => return digits.fail(ReferenceErrorKind::Port),
            }
        }
    };
    let host = host.to_string();
    let address = if tls {
        CorbalocAddress::Ssliop { version, host, port }
    } else {
        CorbalocAddress::Iiop { version, host, port }
    };
    Ok((address, after))
}

/// An address, with the name of a network interface after `%` if it is link-local.
fn is_ipv6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').unwrap_or((host, "none"));
    let named = !zone.is_empty() && zone.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c));
    address.parse::<Ipv6Addr>().is_ok() && named
}

/// Characters that need no escape (7.6.10.5): those of URLs, without `%`.
fn plain(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b";/:?@&=+$,-_.!~*'()".contains(&octet)
}

/// Octets of a text with `%` escapes.
pub(super) fn unescape(rest: Rest<'_>) -> Result<Vec<u8>, ReferenceError> {
    let mut octets = Vec::with_capacity(rest.text.len());
    let mut chars = rest.text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '%' => {
                let digits = rest.text.get(at + 1..at + 3).filter(|two| two.bytes().all(|d| d.is_ascii_hexdigit()));
                let Some(octet) = digits.and_then(|two| u8::from_str_radix(two, 16).ok()) else {
                    return rest.skip(at).fail(ReferenceErrorKind::Escape);
                };
                octets.push(octet);
                chars.nth(1);
            }
            c if c.is_ascii() && plain(c as u8) => octets.push(c as u8),
            c => return rest.skip(at).fail(ReferenceErrorKind::Unescaped(c)),
        }
    }
    Ok(octets)
}

/// The octets, with `%` escapes if needed.
pub(super) fn escape(octets: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    octets.iter().try_for_each(|octet| match octet {
        octet if plain(*octet) => write!(f, "{}", char::from(*octet)),
        octet => write!(f, "%{octet:02x}"),
    })
}

impl FromStr for Corbaloc {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Corbaloc, ReferenceError> {
        let rest = Rest { text, at: 0 };
        match rest.after("corbaloc:") {
            Some(rest) => addresses_and_key(rest),
            None => rest.fail(ReferenceErrorKind::Scheme),
        }
    }
}

/// Without the scheme: addresses and key.
pub(super) fn print(corbaloc: &Corbaloc, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, address) in corbaloc.addresses.iter().enumerate() {
        write!(f, "{}{address}", if at > 0 { "," } else { "" })?;
    }
    if !corbaloc.key.is_empty() {
        f.write_str("/")?;
        escape(&corbaloc.key, f)?;
    }
    Ok(())
}

impl fmt::Display for Corbaloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("corbaloc:")?;
        print(self, f)
    }
}

impl fmt::Display for CorbalocAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, version, host, port) = match self {
            CorbalocAddress::Rir => return f.write_str("rir:"),
            CorbalocAddress::Unix { path } => {
                f.write_str("omniunix:")?;
                // A colon would end the path, a comma the address for other readers.
                for (at, part) in path.split(':').enumerate() {
                    f.write_str(if at > 0 { "%3a" } else { "" })?;
                    escape(part.as_bytes(), f)?;
                }
                return f.write_str(":");
            }
            CorbalocAddress::Iiop { version, host, port } => ("iiop", version, host, port),
            CorbalocAddress::Ssliop { version, host, port } => ("ssliop", version, host, port),
        };
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}:{version}@{open}{host}{close}:{port}")
    }
}
