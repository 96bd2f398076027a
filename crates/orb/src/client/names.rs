//! Server addresses for exceptions. Exceptions are `Copy`, so the texts live as long as the process. Their number and
//! length are bounded; beyond that exceptions have no address.

use std::collections::BTreeSet;

use hyoshi_os::PiMutex;
use hyoshi_wire::ior::IorEndpoint;

/// Addresses that are kept.
const MOST: usize = 1024;
/// Octets of one.
const LONGEST: usize = 330;

static KNOWN: PiMutex<BTreeSet<&'static str>> = PiMutex::new(BTreeSet::new());

/// The endpoint's address, as people write it.
#[cold]
pub(super) fn of(endpoint: &IorEndpoint, without_plain: bool) -> Option<&'static str> {
    let tcp = |host: &str, port| match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    let text = match endpoint {
        IorEndpoint::Tcp { host, port, .. } => tcp(host, *port),
        IorEndpoint::Tls { host, port, .. } => {
            let plain = if without_plain { "; the reference's plain address is not used" } else { "" };
            format!("{} (TLS{plain})", tcp(host, *port))
        }
        IorEndpoint::Unix { path, .. } => path.clone(),
    };
    // The text of a reference is not trusted: it must not move a terminal's cursor.
    let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    let mut known = KNOWN.lock();
    if let Some(text) = known.get(text.as_str()) {
        return Some(text);
    }
    if text.len() > LONGEST || known.len() >= MOST {
        return None;
    }
    let text: &'static str = text.leak();
    known.insert(text);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_once_and_only_so_many() {
        let at = |port| IorEndpoint::Tcp { host: "::1".to_owned(), port, priority: None };
        let first = of(&at(1), false).unwrap();
        assert_eq!(first, "[::1]:1");
        assert!(std::ptr::eq(first, of(&at(1), false).unwrap()));
        let long = IorEndpoint::Unix { host: String::new(), path: "x".repeat(LONGEST + 1) };
        assert_eq!(of(&long, false), None);
        assert_eq!(of(&IorEndpoint::Unix { host: String::new(), path: "a\u{1b}[2J".to_owned() }, false), Some("a?[2J"));
        for port in 0..2000 {
            of(&at(port), false);
        }
        assert_eq!(KNOWN.lock().len(), MOST);
        assert_eq!(of(&at(1), false), Some(first), "known already");
    }
}
