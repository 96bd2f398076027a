//! Where the node of a host listens: `"tcp/10.0.0.2:7447"`, `"tls/[fd00::2]:7447"`, `"unix//run/uav/drone"`.

use alloc::string::{String, ToString};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use core::str::FromStr;

/// The most endpoints of a host.
pub const ENDPOINTS: usize = 8;
/// The most bytes of a Unix socket's path: Linux has room for 108, and the last one is zero (unix(7)).
pub const UNIX_PATH: usize = 107;
/// The most characters of a host name (RFC 1035, section 2.3.4, without the root's dot).
const HOST_NAME: usize = 253;

/// An endpoint of a host's node. `Display` prints it in the file's syntax.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `tcp/ADDRESS:PORT`: neither encrypted nor authenticated.
    Tcp(Address),
    /// `tls/ADDRESS:PORT`: both sides authenticate with certificates.
    Tls(Address),
    /// `unix/PATH`, an absolute path.
    Unix(String),
}

/// An IP address or a host's name in lower case, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Never unspecified (`0.0.0.0`, `::`), never port 0.
    Ip(SocketAddr),
    /// A name that the network resolves.
    Name(String, u16),
}

/// The reason why a text is not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointError {
    /// It does not begin with `tcp/`, `tls/` or `unix/`.
    Scheme,
    /// There is no port after the address.
    NoPort,
    /// The port is not a number from 1 to 65535.
    Port,
    /// An IPv6 address without brackets.
    Brackets,
    /// Neither an IP address nor a host's name.
    Host,
    /// An unspecified address: all addresses of the machine.
    Unspecified,
    /// The path is empty.
    EmptyPath,
    /// The path does not begin with `/`.
    RelativePath,
    /// The path has more than [`UNIX_PATH`] bytes.
    LongPath,
    /// The path has control characters.
    ControlCharacters,
}

impl Endpoint {
    /// True if unencrypted packets may leave the machine: `tcp/` with an address or name that is not loopback.
    pub fn is_exposed(&self) -> bool {
        matches!(self, Endpoint::Tcp(address) if !address.is_loopback())
    }
}

impl Address {
    /// True for 127.0.0.0/8, `::1` and `localhost`.
    pub fn is_loopback(&self) -> bool {
        match self {
            Address::Ip(address) => address.ip().is_loopback(),
            Address::Name(name, _) => name == "localhost",
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        match text.split_once('/') {
            Some(("tcp", address)) => address.parse().map(Endpoint::Tcp),
            Some(("tls", address)) => address.parse().map(Endpoint::Tls),
            Some(("unix", path)) => unix_path(path).map(Endpoint::Unix),
            _ => Err(EndpointError::Scheme),
        }
    }
}

fn unix_path(path: &str) -> Result<String, EndpointError> {
    match path {
        "" => Err(EndpointError::EmptyPath),
        path if !path.starts_with('/') => Err(EndpointError::RelativePath),
        path if path.len() > UNIX_PATH => Err(EndpointError::LongPath),
        path if path.chars().any(char::is_control) => Err(EndpointError::ControlCharacters),
        path => Ok(path.to_string()),
    }
}

impl FromStr for Address {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Address, EndpointError> {
        let (host, port) = text.rsplit_once(':').ok_or(EndpointError::NoPort)?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(EndpointError::Brackets);
        }
        if host.starts_with('[') && !host.ends_with(']') {
            // The last colon is part of the address: `[::1]`.
            return Err(if text.ends_with(']') { EndpointError::NoPort } else { EndpointError::Host });
        }
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let number: u16 = port.parse().ok().filter(|port| digits && *port > 0).ok_or(EndpointError::Port)?;
        // With the port in the same text, for the scope of a link-local address: `[fe80::1%2]`.
        if let Ok(address) = text.parse::<SocketAddr>() {
            // An IPv4 address within an IPv6 one means the same host.
            let address = match address.ip().to_canonical() {
                IpAddr::V4(ip) => SocketAddr::from((ip, number)),
                IpAddr::V6(_) => address,
            };
            let unspecified = address.ip().is_unspecified();
            return if unspecified { Err(EndpointError::Unspecified) } else { Ok(Address::Ip(address)) };
        }
        if is_host_name(host) { Ok(Address::Name(host.to_ascii_lowercase(), number)) } else { Err(EndpointError::Host) }
    }
}

/// Whether a text is a host's name (RFC 1123, section 2.1). A name with a number as last part is a mistyped IPv4
/// address.
fn is_host_name(text: &str) -> bool {
    let label = |label: &str| {
        let known = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        known && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    let numeric = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= HOST_NAME && text.split('.').all(label) && !text.rsplit('.').next().is_none_or(numeric)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "tcp/{address}"),
            Endpoint::Tls(address) => write!(f, "tls/{address}"),
            Endpoint::Unix(path) => write!(f, "unix/{path}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => write!(f, "{address}"),
            Address::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl EndpointError {
    /// The remedy.
    pub const fn remedy(self) -> &'static str {
        match self {
            EndpointError::Scheme => "write \"tcp/10.0.0.2:7447\", \"tls/10.0.0.2:7447\" or \"unix//run/uav/drone\"",
            EndpointError::NoPort => "add a port, as in \"tcp/10.0.0.2:7447\"",
            EndpointError::Port => "write a port from 1 to 65535: other nodes connect to it",
            EndpointError::Brackets => "write an IPv6 address in brackets, as in \"tcp/[fd00::2]:7447\"",
            EndpointError::Host => "write an IP address or a host name, as in \"tcp/10.0.0.2:7447\"",
            EndpointError::Unspecified => "write the address at which other nodes reach this host",
            EndpointError::EmptyPath | EndpointError::RelativePath => {
                "write an absolute path, as in \"unix//run/uav/drone\""
            }
            EndpointError::LongPath => "shorten the path to 107 bytes",
            EndpointError::ControlCharacters => "remove the control characters",
        }
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EndpointError::Scheme => "has an unknown scheme",
            EndpointError::NoPort => "has no port",
            EndpointError::Port => "has a port that is not a number from 1 to 65535",
            EndpointError::Brackets => "has an IPv6 address without brackets",
            EndpointError::Host => "has neither an IP address nor a host name",
            EndpointError::Unspecified => "has an unspecified address, which no other node can connect to",
            EndpointError::EmptyPath => "has an empty path",
            EndpointError::RelativePath => "has a relative path",
            EndpointError::LongPath => "has a path longer than 107 bytes, the most of a Unix socket",
            EndpointError::ControlCharacters => "has a path with control characters",
        })
    }
}

impl core::error::Error for EndpointError {}

#[cfg(test)]
mod tests {
    use alloc::format;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endpoints_are_printed_as_they_are_written() {
        for text in [
            "tcp/10.0.0.2:7447",
            "tls/10.0.0.2:7447",
            "tcp/[fd00::2]:1",
            "tcp/[fe80::1%2]:65535",
            "tls/station.example.org:7447",
            "unix//run/uav/drone",
        ] {
            assert_eq!(text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("tcp/LocalHost:1".parse(), "tcp/localhost:1".parse::<Endpoint>());
        assert_eq!("tcp/[::ffff:10.0.0.2]:1".parse(), "tcp/10.0.0.2:1".parse::<Endpoint>());
    }

    #[test]
    fn each_mistake_is_named() {
        use EndpointError::*;
        for (text, error) in [
            ("", Scheme),
            ("10.0.0.2:7447", Scheme),
            ("udp/10.0.0.2:7447", Scheme),
            ("TCP/10.0.0.2:7447", Scheme),
            ("tcp/10.0.0.2", NoPort),
            ("tcp/[::1]", NoPort),
            ("tcp/10.0.0.2:", Port),
            ("tcp/10.0.0.2:0", Port),
            ("tcp/10.0.0.2:65536", Port),
            ("tcp/10.0.0.2:+1", Port),
            ("tcp/fd00::2:7447", Brackets),
            ("tcp/[fd00::2:7447", Host),
            ("tcp/[drone]:7447", Host),
            ("tcp/:7447", Host),
            ("tcp/-a:7447", Host),
            ("tcp/a..b:7447", Host),
            ("tcp/256.1.1.1:7447", Host),
            ("tcp/a b:7447", Host),
            ("tcp/0.0.0.0:7447", Unspecified),
            ("tls/[::]:7447", Unspecified),
            ("tls/[::ffff:0.0.0.0]:7447", Unspecified),
            ("unix/", EmptyPath),
            ("unix/run/uav", RelativePath),
            ("unix//run/\n", ControlCharacters),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(error), "{text}");
        }
        let path = |length: usize| format!("unix//{}", "x".repeat(length - 1));
        assert!(path(UNIX_PATH).parse::<Endpoint>().is_ok());
        assert_eq!(path(UNIX_PATH + 1).parse::<Endpoint>(), Err(LongPath));
    }

    #[test]
    fn only_tcp_beyond_loopback_is_exposed() {
        let exposed = |text: &str| text.parse::<Endpoint>().unwrap().is_exposed();
        assert!(["tcp/10.0.0.2:1", "tcp/[fd00::2]:1", "tcp/drone:1", "tcp/localhost.org:1"].into_iter().all(exposed));
        let local = ["tcp/127.9.9.9:1", "tcp/[::1]:1", "tcp/localhost:1", "tls/10.0.0.2:1", "unix//run/a"];
        assert!(!local.into_iter().any(exposed));
    }

    proptest! {
        #[test]
        fn what_is_read_is_printed_and_read_again(text in "(tcp|tls|unix)/[\\[]?[a-f0-9:./%-]{0,20}[\\]]?(:[0-9]{1,5})?") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "(tcp/|tls/|unix/)?\\PC*") {
            let _ = text.parse::<Endpoint>();
        }
    }
}
