//! Addresses of nodes for operators, and a client for them.

use std::fmt;
use std::path::{Path, PathBuf};

use hyoshi_model::Span;
use hyoshi_orb::{Orb, OrbBuilder, OrbError, SystemException, minor};

use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::Control as _;

/// The key of the object for operators.
pub const KEY: &str = "hyoshi-node";

/// The longest wait for a node's answer.
const PATIENCE: Span = Span::from_secs(5);

/// A connection to a node.
#[derive(Debug)]
pub struct NodeClient {
    // Dropping it ends its calls.
    _orb: Orb,
    control: wire::ControlStub,
}

/// The reason why a node did not answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The ORB cannot be set up.
    Orb(OrbError),
    /// The text is not an address of a node.
    Address {
        /// The text.
        given: String,
    },
    /// It does not answer, or rejects the call.
    System {
        /// Where.
        at: String,
        /// The exception.
        exception: SystemException,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Orb(error) => error.fmt(f),
            ClientError::Address { given } => write!(f, "`{given}` is not the address of a node"),
            ClientError::System { at, exception } => write!(f, "no node answers at {at}: {exception}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl ClientError {
    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            ClientError::Orb(_) => "free some memory, threads or file descriptors",
            ClientError::Address { .. } => {
                "write unix:/PATH, ssliop://HOST:PORT, or a reference (corbaloc:..., IOR:...)"
            }
            ClientError::System { exception, .. } if exception.minor == minor::BROKER_NAME => {
                "start that node with --tls-operator NAME, or --tls-reader NAME for read access; NAME is in the certificate"
            }
            ClientError::System { .. } => "`hyoshi node list` lists the nodes of this machine",
        }
    }
}

impl NodeClient {
    /// The node at an address: `unix:/PATH`, `ssliop://HOST:PORT`, or a reference. `builder` contains the TLS settings.
    ///
    /// # Errors
    ///
    /// If it is no address, or the ORB cannot be set up. Nothing is sent.
    pub fn new(builder: OrbBuilder, at: &str) -> Result<NodeClient, ClientError> {
        let reference = match (at.strip_prefix("unix:"), at.strip_prefix("ssliop://")) {
            (Some(path), _) => format!("corbaloc:omniunix:{path}:/{KEY}"),
            (_, Some(address)) => format!("corbaloc:ssliop:1.2@{address}/{KEY}"),
            _ => at.to_owned(),
        };
        let orb = builder.build().map_err(ClientError::Orb)?;
        let control = orb.resolve_unchecked::<dyn wire::Control>(&reference);
        let control = control.map_err(|_| ClientError::Address { given: at.to_owned() })?;
        Ok(NodeClient { control: control.as_ref().within(PATIENCE), _orb: orb })
    }

    /// The state of the node.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub fn standing(&self) -> Result<wire::NodeStanding, SystemException> {
        self.control.standing()
    }

    /// Requests to the node's objects.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub fn requests(&self) -> Result<wire::ObjectRequests, SystemException> {
        self.control.requests()
    }

    /// The events of the file on the node.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub fn events(&self) -> Result<wire::EventStates, SystemException> {
        self.control.events()
    }

    /// Subscribes to events that match one of the patterns. The number is for [`take`](Self::take).
    ///
    /// # Errors
    ///
    /// If no event matches a pattern, the node has too many subscriptions, it does not answer, or refuses.
    pub fn subscribe(&self, patterns: &[String]) -> Result<u64, wire::SubscribeError> {
        self.control.subscribe(patterns)
    }

    /// The next events of a subscription.
    ///
    /// # Errors
    ///
    /// If the subscription has ended, the node does not answer, or refuses.
    pub fn take(&self, subscription: u64) -> Result<wire::EventBatch, wire::TakeError> {
        self.control.take(subscription)
    }

    /// Publishes an event.
    ///
    /// # Errors
    ///
    /// If the event or its payload is refused, the node does not answer, or refuses.
    pub fn publish(&self, name: &str, payload: &[u8]) -> Result<(), wire::PublishError> {
        self.control.publish(name, payload)
    }

    /// Registers a publisher of an event with a feedback loop, which sets its period within this range.
    ///
    /// # Errors
    ///
    /// If no loop sets rates for the event, the loop refuses the publisher, the node does not answer, or refuses.
    pub fn register_publisher(
        &self,
        name: &str,
        (shortest, longest): (Span, Span),
    ) -> Result<wire::RegisteredPublisher, wire::RegisterPublisherError> {
        self.control.register_publisher(name, shortest.as_nanos(), longest.as_nanos())
    }

    /// Publishes the event of a registered publisher. The answer has its present period.
    ///
    /// # Errors
    ///
    /// If the registration has ended, the payload is too long, the node does not answer, or refuses.
    pub fn publish_at_rate(
        &self,
        ticket: u64,
        payload: &[u8],
    ) -> Result<wire::PacedPublication, wire::PublishAtRateError> {
        self.control.publish_at_rate(ticket, payload)
    }

    /// Removes a registered publisher.
    ///
    /// # Errors
    ///
    /// If the node does not answer, or refuses.
    pub fn remove_publisher(&self, ticket: u64) -> Result<(), SystemException> {
        self.control.remove_publisher(ticket)
    }

    /// The live segments of threads on the node and on the hosts that have joined it; if `of` has an origin, only those
    /// of that thread, and the ended ones.
    ///
    /// # Errors
    ///
    /// If the thread is of another run, the node does not answer, or refuses.
    pub fn threads(&self, of: &wire::ThreadRef) -> Result<wire::ThreadStates, wire::ThreadsError> {
        self.control.threads(of)
    }

    /// Cancels a thread, wherever its head is.
    ///
    /// # Errors
    ///
    /// If the thread is not alive, the node does not answer, or refuses.
    pub fn cancel_thread(&self, which: &wire::ThreadRef) -> Result<wire::CancelledThread, wire::CancelThreadError> {
        self.control.cancel_thread(which)
    }

    /// Admits an operation on standby.
    ///
    /// # Errors
    ///
    /// If the loop of its processor refuses it, it is not on standby there, the node does not answer, or refuses.
    pub fn admit(&self, operation: &str) -> Result<wire::AdmittedOperation, wire::AdmitError> {
        self.control.admit(operation)
    }

    /// Withdraws an admitted operation.
    ///
    /// # Errors
    ///
    /// If it is not admitted there, the node does not answer, or refuses.
    pub fn withdraw(&self, operation: &str) -> Result<(), wire::WithdrawError> {
        self.control.withdraw(operation)
    }

    /// The contracts that the node evaluates.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub fn contracts(&self) -> Result<wire::ContractStates, SystemException> {
        self.control.contracts()
    }

    /// A contract in the file's syntax.
    ///
    /// # Errors
    ///
    /// If the system has no such contract, the node does not answer, or refuses.
    pub fn contract_text(&self, contract: &str) -> Result<String, wire::ContractTextError> {
        self.control.contract_text(contract)
    }

    /// Sets a condition of contracts.
    ///
    /// # Errors
    ///
    /// If the node has no such condition, does not answer, or refuses.
    pub fn set_condition(&self, condition: &str, value: f64) -> Result<(), wire::SetConditionError> {
        self.control.set_condition(condition, value)
    }

    /// Sets a region of a contract, for a time if there is one; without a region, conditions decide again.
    ///
    /// # Errors
    ///
    /// If the node has no such contract or region, does not answer, or refuses.
    pub fn force_region(
        &self,
        contract: &str,
        region: Option<&str>,
        lasting: Option<Span>,
    ) -> Result<(), wire::ForceRegionError> {
        self.control.force_region(contract, region.unwrap_or_default(), lasting.map_or(0, Span::as_nanos))
    }

    /// Asks the node to end.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses.
    pub fn stop(&self) -> Result<(), SystemException> {
        self.control.stop()
    }
}

/// The folder of this user's control sockets: `/run/hyoshi/nodes` for root, `$XDG_RUNTIME_DIR/hyoshi/nodes` for other
/// users.
pub fn folder() -> Option<PathBuf> {
    if hyoshi_os::file::own_user() == 0 {
        return Some(PathBuf::from("/run/hyoshi/nodes"));
    }
    let runtime = hyoshi_os::secure_var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(runtime.join("hyoshi/nodes"))
}

/// The sockets in a folder of nodes, by name. The socket of a killed node remains.
pub fn sockets(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut sockets: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    sockets.retain(|path| path.extension().is_some_and(|extension| extension == "sock"));
    sockets.sort();
    Ok(sockets)
}
