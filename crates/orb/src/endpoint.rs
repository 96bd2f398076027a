//! Where an ORB listens: `iiop://127.0.0.1:2809`, `ssliop://[::1]:0`, `unix:/run/tracker`.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use hyoshi_os::SocketAddress;
use hyoshi_wire::ior::IorEndpoint;

/// What cannot be listened on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// No scheme that is known.
    Scheme(String),
    /// A host or port that is none.
    Address {
        /// What was given.
        given: String,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointError::Scheme(given) => {
                write!(
                    f,
                    "\"{given}\" is not an endpoint: iiop://host:port, iiop://[IPv6]:port, ssliop://host:port or unix:/path"
                )
            }
            EndpointError::Address { given, why } => write!(f, "\"{given}\": {why}"),
        }
    }
}

impl std::error::Error for EndpointError {}

/// Where to bind, and what references say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddress,
    /// The host's name as it was given; the address' own if none was.
    host: Option<String>,
    /// Over TLS.
    pub(crate) secure: bool,
}

impl Listening {
    pub(crate) fn parse(given: &str) -> Result<Listening, EndpointError> {
        if let Some(path) = given.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            if !path.is_absolute() {
                let why = "the path of a Unix socket begins with /".to_owned();
                return Err(EndpointError::Address { given: given.to_owned(), why });
            }
            return Ok(Listening { address: SocketAddress::Unix(path), host: None, secure: false });
        }
        let (authority, secure) = match (given.strip_prefix("iiop://"), given.strip_prefix("ssliop://")) {
            (Some(authority), _) => (authority, false),
            (None, Some(authority)) => (authority, true),
            (None, None) => return Err(EndpointError::Scheme(given.to_owned())),
        };
        let fail = |why: String| EndpointError::Address { given: given.to_owned(), why };
        if let Ok(address) = authority.parse::<SocketAddr>() {
            return Ok(Listening { address: SocketAddress::Tcp(address), host: None, secure });
        }
        let (host, _) =
            authority.rsplit_once(':').ok_or_else(|| fail("a port is missing; :0 lets one be chosen".into()))?;
        let mut found = authority.to_socket_addrs().map_err(|error| fail(error.to_string()))?;
        let address = found.next().ok_or_else(|| fail("the host has no address".into()))?;
        Ok(Listening { address: SocketAddress::Tcp(address), host: Some(host.to_owned()), secure })
    }

    /// What references say, once it is bound to `bound`. `advertised` is the host that the user wants there.
    /// `requires` is what a server over TLS insists on.
    pub(crate) fn advertise(&self, bound: &SocketAddress, advertised: Option<&str>, requires: u16) -> IorEndpoint {
        match bound {
            SocketAddress::Tcp(bound) => {
                let own = || match bound.ip() {
                    IpAddr::V4(ip) if ip.is_unspecified() => hyoshi_os::host_name(),
                    IpAddr::V6(ip) if ip.is_unspecified() => hyoshi_os::host_name(),
                    ip => ip.to_string(),
                };
                let host = advertised.map(str::to_owned).or_else(|| self.host.clone()).unwrap_or_else(own);
                let port = bound.port();
                match self.secure {
                    true => IorEndpoint::Tls { host, port, requires },
                    false => IorEndpoint::Tcp { host, port, priority: None },
                }
            }
            SocketAddress::Unix(path) => {
                IorEndpoint::Unix { host: hyoshi_os::host_name(), path: path.to_string_lossy().into_owned() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_or_refused_with_what_to_write() {
        let tcp = |text: &str| SocketAddress::Tcp(text.parse().unwrap());
        assert_eq!(Listening::parse("iiop://127.0.0.1:0").unwrap().address, tcp("127.0.0.1:0"));
        assert_eq!(Listening::parse("iiop://[::1]:2809").unwrap().address, tcp("[::1]:2809"));
        let tls = Listening::parse("ssliop://127.0.0.1:2810").unwrap();
        assert!(tls.secure && tls.address == tcp("127.0.0.1:2810"));
        assert_eq!(Listening::parse("unix:/run/t").unwrap().address, SocketAddress::Unix("/run/t".into()));
        assert!(Listening::parse("127.0.0.1:0").unwrap_err().to_string().contains("iiop://host:port"));
        assert!(Listening::parse("iiop://127.0.0.1").unwrap_err().to_string().contains("port is missing"));
        assert!(Listening::parse("unix:run").unwrap_err().to_string().contains("begins with /"));
    }
}
