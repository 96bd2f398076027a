//! Endpoints of servers: `iiop://127.0.0.1:2809`, `ssliop://[::1]:0`, `unix:/run/tracker`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use hyoshi_os::SocketAddress;
use hyoshi_wire::ior::IorEndpoint;

/// A text that is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenError {
    /// The text.
    pub given: String,
    /// The mistake.
    pub why: String,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not an endpoint: {}", self.given, self.why)
    }
}

impl std::error::Error for ListenError {}

/// An address to bind, and its host in references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) address: SocketAddress,
    /// The host's name, if the endpoint has one instead of an IP address.
    host: Option<String>,
    /// Over TLS.
    pub(crate) secure: bool,
}

impl Listening {
    pub(crate) fn parse(given: &str) -> Result<Listening, ListenError> {
        Listening::read(given).map_err(|why| ListenError { given: given.to_owned(), why })
    }

    fn read(given: &str) -> Result<Listening, String> {
        if let Some(path) = given.strip_prefix("unix:") {
            let path = PathBuf::from(path.strip_prefix("//").unwrap_or(path));
            if !path.is_absolute() {
                return Err("the path of a Unix socket begins with /".into());
            }
            return Ok(Listening { address: SocketAddress::Unix(path), host: None, secure: false });
        }
        let (authority, secure) = match (given.strip_prefix("iiop://"), given.strip_prefix("ssliop://")) {
            (Some(authority), _) => (authority, false),
            (None, Some(authority)) => (authority, true),
            (None, None) => return Err("iiop://host:port, iiop://[IPv6]:port, ssliop://host:port or unix:/path".into()),
        };
        if let Ok(address) = authority.parse::<SocketAddr>() {
            return Ok(Listening { address: SocketAddress::Tcp(address), host: None, secure });
        }
        let (host, _) = authority.rsplit_once(':').ok_or("a port is missing; port 0 lets the system choose one")?;
        let address = authority.to_socket_addrs().map_err(|error| error.to_string())?.next();
        let address = SocketAddress::Tcp(address.ok_or("the host has no address")?);
        Ok(Listening { address, host: Some(host.to_owned()), secure })
    }

    /// The endpoint of a pool's lane beside it: the same host and transport, at a port that the system chooses.
    pub(crate) fn beside(&self, name: &str) -> Listening {
        let address = match &self.address {
            SocketAddress::Tcp(address) => SocketAddress::Tcp(SocketAddr::new(address.ip(), 0)),
            SocketAddress::Unix(path) => {
                let mut path = path.clone().into_os_string();
                path.push(".");
                path.push(name);
                SocketAddress::Unix(path.into())
            }
        };
        Listening { address, ..self.clone() }
    }

    /// The endpoint in references, once it is bound to `bound`. `advertised` is the user's choice of the host, `requires`
    /// the association options that a TLS server requires.
    pub(crate) fn advertise(&self, bound: &SocketAddress, advertised: Option<&str>, requires: u16) -> IorEndpoint {
        match bound {
            SocketAddress::Tcp(bound) => {
                let own = || if bound.ip().is_unspecified() { hyoshi_os::host_name() } else { bound.ip().to_string() };
                let host = advertised.map(str::to_owned).or_else(|| self.host.clone()).unwrap_or_else(own);
                let port = bound.port();
                if self.secure {
                    return IorEndpoint::Tls { host, port, requires };
                }
                IorEndpoint::Tcp { host, port, priority: None }
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
    fn endpoints_are_read_or_refused_with_a_remedy() {
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
