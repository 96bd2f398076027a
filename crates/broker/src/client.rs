//! A client of the broker: finds it, connects, and converts its exceptions to Rust errors.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_orb::{Orb, OrbBuilder, OrbError, SystemException, SystemKind, Timeouts, cpu_broker};
use hyoshi_os::process::{ProcessIdentity, identity};
use hyoshi_os::{SocketAddress, SocketStream};
use hyoshi_wire::ior::{IorEndpoint, ObjectUrl};

use crate::component::ComponentSpec;
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Broker, BrokerStub, TaskStub};
use crate::request_error::RequestError;

/// The default timeout of a call.
pub const PATIENCE: Span = Span::from_secs(5);

/// The scheme of endpoints on other machines.
const SECURE: &str = "ssliop://";
/// The accepted forms of an address.
const ADDRESSES: &str = "ssliop://HOST:PORT, unix:/PATH, or a reference (corbaloc:..., IOR:...)";

/// A connection to a broker.
#[derive(Debug)]
pub struct BrokerClient {
    // Dropping it ends its calls.
    _orb: Orb,
    broker: BrokerStub,
    process: Option<ProcessIdentity>,
    at: String,
}

/// Why a call to the broker failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum BrokerClientError {
    /// The ORB cannot be set up.
    Orb(OrbError),
    /// The address of the broker is invalid.
    Address {
        /// The address.
        given: String,
        /// The reason.
        reason: &'static str,
    },
    /// No broker answers.
    NoBroker {
        /// The address or socket.
        at: String,
        /// The error of the kernel or of the ORB.
        reason: String,
    },
    /// The broker rejected the request.
    Request(RequestError),
    /// The broker did not answer, or its answer is invalid.
    System(SystemException),
}

impl BrokerClientError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            BrokerClientError::Orb(_) => "free some memory, threads or file descriptors".to_owned(),
            BrokerClientError::Address { .. } => format!("write {ADDRESSES}"),
            BrokerClientError::NoBroker { at, .. } if !at.starts_with('/') => {
                format!("start one there with `hyoshi broker --listen {SECURE}HOST:PORT`")
            }
            BrokerClientError::NoBroker { .. } => {
                "start one with `hyoshi broker`, or name its socket with --socket".to_owned()
            }
            BrokerClientError::Request(error) => error.remedy(),
            BrokerClientError::System(exception) => match hyoshi_orb::minor::meaning(exception.minor) {
                Some(meaning) => meaning.to_owned(),
                None => "use the same version of client and broker".to_owned(),
            },
        }
    }
}

impl fmt::Display for BrokerClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrokerClientError::Orb(error) => error.fmt(f),
            BrokerClientError::Address { given, reason } => write!(f, "invalid broker address `{given}`: {reason}"),
            BrokerClientError::NoBroker { at, reason } => write!(f, "no broker answers at {at}: {reason}"),
            BrokerClientError::Request(error) => error.fmt(f),
            BrokerClientError::System(exception) => write!(f, "the broker returned an error: {exception}"),
        }
    }
}

impl std::error::Error for BrokerClientError {}

/// Each operation has its own error enum; all of them contain the same exceptions.
macro_rules! raised {
    ($($error:ident: $($exception:ident)*;)*) => {$(
        impl From<wire::$error> for BrokerClientError {
            fn from(error: wire::$error) -> Self {
                match error {
                    $(wire::$error::$exception(raised) => raised.into(),)*
                    wire::$error::System(exception) => BrokerClientError::System(exception),
                }
            }
        }
    )*};
}

raised! {
    JoinError: NoSuchTask NotAllowed Refused;
    AddProcessError: NoSuchTask NotAllowed Refused;
    AddControlGroupError: NoSuchTask NotAllowed Refused;
    ReportError: NoSuchTask NotAllowed Refused;
    LeaveError: NoSuchTask NotAllowed Refused;
    SetImportanceError: NoSuchTask NotAllowed Refused;
    SetWeightError: NoSuchTask NotAllowed Refused;
    SetGroupError: NoSuchTask NotAllowed Refused;
    SetLeastError: NoSuchTask NotAllowed Refused;
    SetAdvocateError: NoSuchTask NotAllowed Refused;
    SetHardError: NoSuchTask NotAllowed Refused;
    SetPeriodError: NoSuchTask NotAllowed Refused;
    SetChainError: NoSuchTask NotAllowed Refused;
    AddAdvocateError: NoSuchTask NotAllowed Refused;
    RemoveAdvocateError: NoSuchTask NotAllowed Refused;
    SetPolicyError: NoSuchTask NotAllowed Refused;
    FindError: NoSuchTask;
    ExplainError: NoSuchTask;
    StatusError: NoSuchTask;
    TaskStatusError: NoSuchTask;
    DetachError: NoSuchTask NotAllowed Refused;
    OwnTaskError: NoSuchTask NotAllowed Refused;
    PromiseLanesError: NoSuchTask NotAllowed Refused;
}

impl From<wire::NoSuchTask> for BrokerClientError {
    fn from(raised: wire::NoSuchTask) -> Self {
        BrokerClientError::Request(RequestError::NoSuchTask { name: raised.name, nearest: raised.nearest })
    }
}

impl From<wire::NotAllowed> for BrokerClientError {
    fn from(raised: wire::NotAllowed) -> Self {
        BrokerClientError::Request(RequestError::NotAllowed { message: raised.message, remedy: raised.remedy })
    }
}

impl From<wire::Refused> for BrokerClientError {
    fn from(raised: wire::Refused) -> Self {
        BrokerClientError::Request(RequestError::Refused { message: raised.message, remedy: raised.remedy })
    }
}

impl From<SystemException> for BrokerClientError {
    fn from(exception: SystemException) -> Self {
        BrokerClientError::System(exception)
    }
}

impl BrokerClient {
    /// Connects to the broker at a socket, or at the default socket.
    ///
    /// # Errors
    ///
    /// If no broker answers.
    pub fn connect(socket: Option<&Path>) -> Result<BrokerClient, BrokerClientError> {
        let socket = match socket {
            Some(socket) => socket.to_owned(),
            None => cpu_broker::to_ask_here(),
        };
        // The kernel's error is more precise than that of an ORB.
        let tried =
            SocketStream::connect(&SocketAddress::Unix(socket.clone()), Duration::from_nanos(PATIENCE.as_nanos()));
        let process = match tried {
            // In another PID namespace, the number that the broker reports may differ.
            Ok(stream) => stream.credentials().and_then(|broker| identity(broker.pid).ok()),
            Err(error) => {
                let reason = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => "the broker of this socket has ended".to_owned(),
                    std::io::ErrorKind::NotFound => "there is no such socket".to_owned(),
                    std::io::ErrorKind::WouldBlock => format!("no connection within {PATIENCE}"),
                    _ => error.to_string(),
                };
                return Err(BrokerClientError::NoBroker { at: socket.display().to_string(), reason });
            }
        };
        let reference = cpu_broker::corbaloc(&socket);
        let client = BrokerClient::resolve(socket.display().to_string(), &reference, Orb::builder(), PATIENCE)?;
        Ok(BrokerClient { process, ..client })
    }

    /// Connects to the broker at `ssliop://HOST:PORT`, `unix:/PATH` or a reference. `builder` configures TLS;
    /// `patience` limits each call.
    ///
    /// # Errors
    ///
    /// If the address is invalid or no broker answers.
    pub fn at(address: &str, builder: OrbBuilder, patience: Span) -> Result<BrokerClient, BrokerClientError> {
        const PLAIN: &str = "brokers do not serve plain TCP, which cannot identify clients";
        let wrong = |reason| BrokerClientError::Address { given: address.to_owned(), reason };
        if address.starts_with("iiop://") {
            return Err(wrong(PLAIN));
        }
        if let Some(path) = address.strip_prefix("unix:") {
            return BrokerClient::connect(Some(Path::new(path)));
        }
        let reference = match address.strip_prefix(SECURE) {
            Some(place) if place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                format!("corbaloc:ssliop:1.2@{place}/{}", cpu_broker::KEY)
            }
            Some(_) => return Err(wrong("missing port")),
            None => match address.parse() {
                Ok(reference) if is_plain(&reference) => return Err(wrong(PLAIN)),
                Ok(_) => address.to_owned(),
                Err(_) if ["IOR:", "corbaloc:"].iter().any(|scheme| address.starts_with(scheme)) => {
                    return Err(wrong("unreadable reference"));
                }
                Err(_) => return Err(wrong("unknown scheme")),
            },
        };
        // Never plain TCP, whatever the reference or one that it forwards to contains.
        BrokerClient::resolve(address.to_owned(), &reference, builder.tls_only(), patience)
    }

    fn resolve(
        at: String,
        reference: &str,
        builder: OrbBuilder,
        patience: Span,
    ) -> Result<BrokerClient, BrokerClientError> {
        let timeouts = Timeouts { connect: patience, round_trip: Some(patience), reply: None };
        let orb = builder.timeouts(timeouts).build().map_err(BrokerClientError::Orb)?;
        match orb.resolve::<dyn Broker>(reference) {
            Ok(broker) => Ok(BrokerClient { _orb: orb, broker, process: None, at }),
            Err(exception) => match exception.kind {
                SystemKind::InvObjref => Err(BrokerClientError::Address { given: at, reason: "unreadable reference" }),
                SystemKind::Transient | SystemKind::CommFailure | SystemKind::Timeout => {
                    Err(BrokerClientError::NoBroker { at, reason: exception.to_string() })
                }
                _ => Err(BrokerClientError::System(exception)),
            },
        }
    }

    /// The broker's socket or address.
    pub fn place(&self) -> &str {
        &self.at
    }

    /// The broker's process, if it is visible: not on another machine, in a PID namespace outside this one, or hidden
    /// in /proc.
    pub fn process(&self) -> Option<ProcessIdentity> {
        self.process
    }

    /// The broker's interface.
    pub fn broker(&self) -> &BrokerStub {
        &self.broker
    }

    /// Starts a task.
    ///
    /// # Errors
    ///
    /// If the broker rejects it.
    pub fn join(&self, joining: &crate::TaskSpec) -> Result<TaskStub, BrokerClientError> {
        if joining.period.is_some_and(Span::is_zero) {
            // The wire format uses 0 for automatic detection.
            let what = "period must not be zero";
            return Err(BrokerClientError::Request(RequestError::refused(what, "use 100us or more, or auto")));
        }
        let nanos = |span: Option<Span>| span.map_or(0, Span::as_nanos);
        let joining = wire::TaskSpec {
            name: joining.name.clone(),
            period: nanos(joining.period),
            deadline: nanos(joining.deadline),
            importance: joining.importance,
            weight: joining.weight,
            group: joining.group.clone(),
            initial_budget: nanos(joining.initial_budget),
            min_budget: nanos(joining.min_budget),
            hard: joining.hard,
            advocates: joining.advocates.iter().map(ComponentSpec::to_wire).collect(),
        };
        self.broker.join(&joining)?.ok_or_else(|| nil().into())
    }

    /// All tasks, by name. Tasks that start or end during the call may be missing.
    ///
    /// # Errors
    ///
    /// If the broker does not answer.
    pub fn tasks(&self) -> Result<Vec<wire::TaskStatus>, BrokerClientError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.broker.tasks(&after)?;
            // A broker sorts tasks by name, so this ends the loop for any other server.
            let last = page.tasks.last().map(|task| task.name.clone()).filter(|last| *last > after);
            all.extend(page.tasks);
            match last {
                Some(last) if page.more => after = last,
                _ => return Ok(all),
            }
        }
    }

    /// The task of a name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn find(&self, name: &str) -> Result<TaskStub, BrokerClientError> {
        self.broker.find(name)?.ok_or_else(|| nil().into())
    }
}

/// Whether a reference has only plain TCP endpoints.
fn is_plain(reference: &ObjectUrl) -> bool {
    let ior = match reference {
        ObjectUrl::Ior(ior) => Some(ior.clone()),
        ObjectUrl::Corbaloc(corbaloc) => corbaloc.ior("").ok().flatten(),
        ObjectUrl::Corbaname(_) => None,
    };
    let endpoints: Vec<_> = ior.iter().flat_map(|ior| ior.iiop().flatten()).flat_map(|way| way.endpoints()).collect();
    !endpoints.is_empty() && endpoints.iter().all(|endpoint| matches!(endpoint, IorEndpoint::Tcp { .. }))
}

fn nil() -> SystemException {
    SystemKind::InvObjref.not_done(0)
}
