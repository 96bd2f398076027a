//! Network devices of a host whose traffic is divided into classes by DSCP (Differentiated Services, RFC 2474).

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A number in the IP header, 0 to 63, by which routers and switches choose a packet's queue. As text it is a name of
/// RFC 4594 (`EF`, `AF41`, `CS6`) or the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// The default class (RFC 4594).
    pub const CS0: Dscp = Dscp(0);
    /// Expedited forwarding (RFC 3246): packets of critical completions.
    pub const EF: Dscp = Dscp(46);

    /// `None` above 63.
    pub const fn new(number: u8) -> Option<Dscp> {
        if number < 64 { Some(Dscp(number)) } else { None }
    }

    /// The number, 0 to 63.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Names of RFC 4594 (section 2), RFC 5865 (VA) and RFC 8622 (LE).
const NAMES: [(&str, u8); 23] = [
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// Neither a name of a DSCP nor a number up to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownDscp;

impl fmt::Display for UnknownDscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is not a DSCP")
    }
}

impl core::error::Error for UnknownDscp {}

impl FromStr for Dscp {
    type Err = UnknownDscp;

    fn from_str(text: &str) -> Result<Dscp, UnknownDscp> {
        let named = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = named.or_else(|| text.parse().ok().filter(|_| digits));
        number.and_then(Dscp::new).ok_or(UnknownDscp)
    }
}

/// The maximum number of classes of a device, without the class of other packets: HTB has eight priorities.
pub const CLASSES: usize = 7;

/// The minimum share of a class, and the minimum share left for other packets, in parts per million.
pub const LEAST_SHARE: u32 = 10_000;

/// The maximum length of a device's name (IFNAMSIZ).
pub const DEVICE_NAME: usize = 15;

/// A network device of a host. It sends packets in classes, at most at its rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Its name in Linux, at most [`DEVICE_NAME`] bytes.
    pub name: String,
    /// The rate of its link, in bit/s.
    pub rate: u64,
    /// The most urgent class first, at most [`CLASSES`]. Other packets have the rest of the rate. Each DSCP occurs
    /// once.
    pub classes: Vec<TrafficClass>,
}

/// Packets with certain DSCPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficClass {
    /// Their DSCPs, at least one.
    pub dscp: Vec<Dscp>,
    /// The guaranteed share of the device's rate, in parts per million. All shares leave [`LEAST_SHARE`].
    pub share: u32,
    /// The share that they may use while other classes need less, in parts per million: at least `share`.
    pub ceiling: u32,
}

impl NetworkDevice {
    /// The classes of a device without declared ones: EF for critical work, AF4x for important work.
    pub fn default_classes() -> Vec<TrafficClass> {
        let class = |dscp: &[u8]| TrafficClass {
            dscp: dscp.iter().copied().map(Dscp).collect(),
            share: 300_000,
            ceiling: 1_000_000,
        };
        [class(&[46]), class(&[34, 36, 38])].into()
    }

    /// The share of packets in no class, in parts per million.
    pub fn rest(&self) -> u32 {
        self.classes.iter().fold(1_000_000, |left, class| left.saturating_sub(class.share))
    }

    /// Whether a text can be the name of a device (Linux, `dev_valid_name`).
    pub fn is_name(text: &str) -> bool {
        let known = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
        (1..=DEVICE_NAME).contains(&text.len()) && text != "." && text != ".." && text.bytes().all(known)
    }

    /// A device with the default classes.
    pub fn new(name: &str, rate: u64) -> NetworkDevice {
        NetworkDevice { name: name.to_owned(), rate, classes: NetworkDevice::default_classes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn each_dscp_is_printed_as_it_is_written() {
        for number in 0..64 {
            let dscp = Dscp::new(number).unwrap();
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
            assert_eq!(number.to_string().parse(), Ok(dscp));
        }
        assert_eq!(("ef".parse(), "AF41".parse()), (Ok(Dscp::EF), Ok(Dscp(34))));
        for text in ["", "64", "256", "-1", "+1", "EF ", "AF44", "BE"] {
            assert_eq!(text.parse::<Dscp>(), Err(UnknownDscp), "{text}");
        }
        assert_eq!(Dscp::new(64), None);
    }

    #[test]
    fn names_of_devices_are_those_of_linux() {
        assert!(["eth0", "wlp0s20f3", "br-lan.7", "a"].into_iter().all(NetworkDevice::is_name));
        assert!(
            !["", ".", "..", "a/b", "eth0:1", "a b", "abcdefghijklmnop", "é"].into_iter().any(NetworkDevice::is_name)
        );
    }

    #[test]
    fn the_default_classes_leave_some_of_the_rate() {
        assert_eq!(NetworkDevice::new("eth0", 1_000_000).rest(), 400_000);
    }
}
