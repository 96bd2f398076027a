//! Which transports are used with which addresses, as in omniORB's `clientTransportRule` and `serverTransportRule`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use hyoshi_wire::ior::IorEndpoint;

/// Rules; the first that matches an address applies. Without rules all transports may be used with all addresses; if
/// there are rules and none matches, none may.
///
/// ```text
///   192.168.7.0/24 ssl,tcp; localhost unix; * ssl
/// ```
///
/// A rule is an address mask, then transports with commas or blanks between them; semicolons or line ends separate rules.
/// Masks are `*`, `localhost` (addresses of the loopback interface, Unix sockets), an address, and an address with `/` and a
/// number of bits or a mask. Transports are `tcp`, `ssl`, `unix` and `none`. IPv4 addresses within IPv6 are IPv4 addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportRules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    mask: Mask,
    allowed: Vec<Transport>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    All,
    Local,
    /// The first bits of an address.
    Net(IpAddr, u32),
}

/// A protocol below GIOP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP without TLS.
    Tcp,
    /// TLS over TCP.
    Tls,
    /// Unix sockets.
    Unix,
}

impl Transport {
    /// That of an endpoint.
    pub(crate) fn of(endpoint: &IorEndpoint) -> Transport {
        match endpoint {
            IorEndpoint::Tcp { .. } => Transport::Tcp,
            IorEndpoint::Tls { .. } => Transport::Tls,
            IorEndpoint::Unix { .. } => Transport::Unix,
        }
    }
}

/// A text that is not a transport rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportRuleError {
    /// The rule.
    pub rule: String,
    /// The mistake.
    pub why: &'static str,
}

impl fmt::Display for TransportRuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transport rule \"{}\": {}; such as \"10.0.0.0/8 ssl,tcp; * ssl\"", self.rule, self.why)
    }
}

impl std::error::Error for TransportRuleError {}

impl FromStr for TransportRules {
    type Err = TransportRuleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rules = text.split([';', '\n']).map(str::trim).filter(|rule| !rule.is_empty());
        let read = |rule: &str| parse(rule).map_err(|why| TransportRuleError { rule: rule.to_owned(), why });
        rules.map(read).collect::<Result<_, _>>().map(TransportRules)
    }
}

fn parse(rule: &str) -> Result<Rule, &'static str> {
    let mut words = rule.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mask = match words.next().unwrap_or_default() {
        "*" => Mask::All,
        "localhost" => Mask::Local,
        net => mask(net).ok_or("the address mask is not *, localhost, or an address such as 10.0.0.0/8")?,
    };
    let words: Vec<_> = words.collect();
    let allowed = words.iter().filter(|word| **word != "none").map(|word| match *word {
        "tcp" => Ok(Transport::Tcp),
        "ssl" => Ok(Transport::Tls),
        "unix" => Ok(Transport::Unix),
        _ => Err("transports are tcp, ssl, unix and none"),
    });
    let allowed = allowed.collect::<Result<Vec<_>, _>>()?;
    match (words.is_empty(), words.contains(&"none") && !allowed.is_empty()) {
        (true, _) => Err("name transports; `none` forbids all"),
        (_, true) => Err("`none` cannot be combined with transports"),
        _ => Ok(Rule { mask, allowed }),
    }
}

fn mask(text: &str) -> Option<Mask> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let Some(bits) = bits else { return Some(Mask::Net(address, most)) };
    let number = bits.parse().ok().or_else(|| {
        let mask = bits.parse::<Ipv4Addr>().ok().filter(|_| address.is_ipv4())?.to_bits();
        // Ones, then zeros.
        (mask.leading_ones() == mask.count_ones()).then(|| mask.count_ones())
    });
    number.filter(|bits| *bits <= most).map(|bits| Mask::Net(address, bits))
}

impl Mask {
    /// `None` is a Unix socket.
    fn holds(self, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (Mask::All, _) | (Mask::Local, None) => true,
            (Mask::Local, Some(address)) => address.is_loopback(),
            (Mask::Net(IpAddr::V4(net), bits), Some(IpAddr::V4(address))) => {
                (net.to_bits() ^ address.to_bits()).leading_zeros() >= bits
            }
            (Mask::Net(IpAddr::V6(net), bits), Some(IpAddr::V6(address))) => {
                (net.to_bits() ^ address.to_bits()).leading_zeros() >= bits
            }
            (Mask::Net(..), _) => false,
        }
    }
}

impl TransportRules {
    /// The rules in the environment under this name, as omniORB reads them.
    pub(crate) fn from_environment(variable: &str) -> Result<TransportRules, TransportRuleError> {
        hyoshi_os::secure_var_os(variable).map(|rules| rules.to_string_lossy().into_owned()).unwrap_or_default().parse()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `transport` may be used with an address; `None` is a Unix socket.
    pub(crate) fn allow(&self, transport: Transport, address: Option<IpAddr>) -> bool {
        let address = address.map(|address| address.to_canonical());
        let rule = self.0.iter().find(|rule| rule.mask.holds(address));
        self.0.is_empty() || rule.is_some_and(|rule| rule.allowed.contains(&transport))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowed(rules: &str, address: &str) -> Vec<Transport> {
        let rules: TransportRules = rules.parse().unwrap();
        let address = (!address.is_empty()).then(|| address.parse().unwrap());
        let all = [Transport::Tcp, Transport::Tls, Transport::Unix];
        all.into_iter().filter(|transport| rules.allow(*transport, address)).collect()
    }

    #[test]
    fn the_first_rule_that_fits_an_address_counts() {
        use Transport::{Tcp, Tls, Unix};
        assert_eq!(allowed("", "10.0.0.1"), [Tcp, Tls, Unix]);
        let plant = "192.168.7.0/24 tcp,ssl; 10.0.0.0/255.0.0.0 none\nlocalhost unix tcp; fe80::/10 ssl";
        assert_eq!(allowed(plant, "192.168.7.200"), [Tcp, Tls]);
        assert_eq!(allowed(plant, "::ffff:192.168.7.200"), [Tcp, Tls]);
        assert_eq!(allowed(plant, "192.168.8.1"), [], "no rule fits");
        assert_eq!(allowed(plant, "10.1.2.3"), []);
        assert_eq!(allowed(plant, "127.0.0.9"), [Tcp, Unix]);
        assert_eq!(allowed(plant, ""), [Tcp, Unix]);
        assert_eq!(allowed(plant, "fe80::7"), [Tls]);
        assert_eq!(allowed("* ssl; 10.0.0.1 tcp", "10.0.0.1"), [Tls]);
        assert_eq!(allowed("10.0.0.1 tcp", "10.0.0.1"), [Tcp]);
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for rule in ["10.0.0.0/33 tcp", "*", "* tcp,none", "host tcp", "* http", "10.0.0.0/255.0.255.0 tcp"] {
            let refused = rule.parse::<TransportRules>().unwrap_err();
            assert_eq!(refused.rule, rule);
        }
    }

    proptest! {
        #[test]
        fn a_net_holds_the_addresses_that_begin_as_it_does(net: u32, bits in 0u32..=32, address: u32) {
            let rules: TransportRules =
                format!("{}/{bits} tcp", Ipv4Addr::from_bits(net)).parse().unwrap();
            let begins = bits == 0 || net >> (32 - bits) == address >> (32 - bits);
            let address = IpAddr::from(Ipv4Addr::from_bits(address));
            prop_assert_eq!(rules.allow(Transport::Tcp, Some(address)), begins);
        }
    }
}
