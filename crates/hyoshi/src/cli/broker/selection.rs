//! Selects the brokers of a verb: this machine's, one elsewhere, or several.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use hyoshi_broker::client::{BrokerClient, BrokerClientError, PATIENCE};
use hyoshi_model::Span;
use hyoshi_orb::{Orb, OrbBuilder};
use hyoshi_wire::ior::ObjectUrl;

use super::{At, Ended};
use crate::cli::CliError;
use crate::cli::tls::TlsPapers;

/// Most brokers of one command, each with a thread of its own.
const MOST: usize = 64;

/// See the module.
#[derive(Debug, Args)]
pub(in crate::cli) struct BrokerSelection {
    /// Use the broker at this address: ssliop://HOST:PORT, unix:/PATH, a reference, or a name in the hosts file;
    /// several with commas
    #[arg(long, value_name = "ADDRESS", global = true)]
    broker: Vec<String>,
    /// Use all brokers in this file, one line each: NAME ADDRESS
    #[arg(long, value_name = "FILE", global = true)]
    hosts: Option<PathBuf>,
    /// Timeout of each call
    #[arg(long, value_name = "TIME", global = true, default_value_t = PATIENCE)]
    patience: Span,
    #[command(flatten)]
    pub tls: TlsPapers,
}

/// A broker at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct BrokerAddress {
    /// Its name in the output.
    pub name: String,
    address: String,
}

/// The brokers of a verb.
pub(in crate::cli) enum SelectedBrokers {
    /// The broker of this machine, or of this user.
    Here,
    /// One.
    One(BrokerAddress),
    /// Several, or those of a file: answers show their names.
    Several(Vec<BrokerAddress>),
}

impl BrokerSelection {
    /// A flag for calls that is set.
    pub fn given(&self) -> Option<&'static str> {
        let all = [("--broker", !self.broker.is_empty()), ("--hosts", self.hosts.is_some())];
        all.into_iter().chain(self.tls.for_asking()).find_map(|(flag, given)| given.then_some(flag))
    }

    /// The broker at `at` unless others are named.
    pub fn asked(&self, at: &At) -> Result<SelectedBrokers, CliError> {
        let asked = self.named()?;
        match (&at.socket, &asked) {
            (Some(_), SelectedBrokers::One(_) | SelectedBrokers::Several(_)) => {
                Err(CliError::new("--socket and --broker name different brokers")
                    .help("use only one of them; --broker also accepts unix:/PATH"))
            }
            _ => Ok(asked),
        }
    }

    /// For a verb that uses one broker.
    pub fn one(&self, at: &At) -> Result<BrokerClient, Ended> {
        match self.asked(at)? {
            SelectedBrokers::Here => Ok(BrokerClient::connect(at.socket.as_deref())?),
            SelectedBrokers::One(broker) => Ok(self.connect(self.orb()?, &broker)?),
            SelectedBrokers::Several(_) => {
                Err(CliError::new("this verb accepts one broker").help("select one with --broker NAME").into())
            }
        }
    }

    fn named(&self) -> Result<SelectedBrokers, CliError> {
        let known = self.hosts.as_deref().map(read).transpose()?;
        // Commas of a corbaloc separate addresses of one object.
        let split = |given: &String| match given.parse::<ObjectUrl>() {
            Ok(_) => vec![given.clone()],
            Err(_) => given.split(',').map(|one| one.trim().to_owned()).filter(|one| !one.is_empty()).collect(),
        };
        let given: Vec<String> = self.broker.iter().flat_map(split).collect();
        let mut some = match (&known, given.is_empty()) {
            (None, true) if self.broker.is_empty() => return Ok(SelectedBrokers::Here),
            (None, true) => return Err(CliError::new("--broker is empty").help("--broker ssliop://HOST:PORT")),
            (Some(known), true) => known.clone(),
            (known, false) => given.iter().map(|given| find(given, known.as_deref())).collect::<Result<Vec<_>, _>>()?,
        };
        if some.len() > MOST {
            return Err(CliError::new(format_args!("too many brokers: {}", some.len()))
                .help(format_args!("use at most {MOST}, with --broker NAME,NAME")));
        }
        match some.len() {
            1 if !given.is_empty() => Ok(SelectedBrokers::One(some.remove(0))),
            _ => Ok(SelectedBrokers::Several(some)),
        }
    }

    /// The ORB for one of them.
    pub fn orb(&self) -> Result<OrbBuilder, CliError> {
        self.tls.client(Orb::builder())
    }

    /// Connects to it.
    pub fn connect(&self, orb: OrbBuilder, broker: &BrokerAddress) -> Result<BrokerClient, BrokerClientError> {
        BrokerClient::at(&broker.address, orb, self.patience)
    }
}

fn find(given: &str, known: Option<&[BrokerAddress]>) -> Result<BrokerAddress, CliError> {
    if let Some(found) = known.and_then(|known| known.iter().find(|broker| broker.name == given)) {
        return Ok(found.clone());
    }
    if let (Some(known), false) = (known, given.contains(':')) {
        let names: Vec<_> = known.iter().map(|broker| broker.name.as_str()).collect();
        return Err(CliError::new(format_args!("--hosts does not contain `{given}`"))
            .help(format_args!("use one of {}", names.join(", "))));
    }
    let name = given.rsplit_once("//").map_or(given, |(_, place)| place);
    Ok(BrokerAddress { name: name.to_owned(), address: given.to_owned() })
}

fn read(path: &Path) -> Result<Vec<BrokerAddress>, CliError> {
    let text = fs::read_to_string(path).map_err(|error| {
        CliError::new(format_args!("cannot read {}: {error}", path.display()))
            .help("use a file with one line for each broker: NAME ADDRESS")
    })?;
    parse(&text).map_err(|(line, what)| {
        CliError::new(format_args!("{}:{line}: {what}", path.display()))
            .help("write NAME ADDRESS, such as `yard ssliop://yard.plant:2811`; # starts a comment")
    })
}

fn parse(text: &str) -> Result<Vec<BrokerAddress>, (usize, String)> {
    let mut all: Vec<BrokerAddress> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { continue };
        let (Some(address), None) = (words.next(), words.next()) else {
            return Err((number, format!("`{name}` needs one address")));
        };
        if name.contains([':', ',']) {
            return Err((number, format!("invalid name `{name}`: it contains a colon or a comma")));
        }
        if all.iter().any(|broker| broker.name == name) {
            return Err((number, format!("duplicate name `{name}`")));
        }
        all.push(BrokerAddress { name: name.to_owned(), address: address.to_owned() });
    }
    if all.is_empty() { Err((1, "no broker in the file".to_owned())) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_or_refused_with_their_line() {
        let two = parse("# the plant\nyard ssliop://yard:2811 # east\n\nmill  unix:/run/mill.sock\n").unwrap();
        let found: Vec<_> = two.iter().map(|broker| (broker.name.as_str(), broker.address.as_str())).collect();
        assert_eq!(found, [("yard", "ssliop://yard:2811"), ("mill", "unix:/run/mill.sock")]);
        assert_eq!(parse("a unix:/a\na unix:/b").unwrap_err(), (2, "duplicate name `a`".to_owned()));
        assert_eq!(parse("\na").unwrap_err(), (2, "`a` needs one address".to_owned()));
        assert_eq!(parse("# none").unwrap_err().0, 1);
        assert!(parse("a:1 unix:/a").is_err());
    }

    #[test]
    fn a_broker_is_called_as_in_the_file_or_else_by_its_address() {
        let known = parse("yard ssliop://yard:2811").unwrap();
        assert_eq!(find("yard", Some(&known)).unwrap().address, "ssliop://yard:2811");
        assert_eq!(find("ssliop://mill:1", Some(&known)).unwrap().name, "mill:1");
        assert!(find("mill", Some(&known)).is_err());
    }
}
