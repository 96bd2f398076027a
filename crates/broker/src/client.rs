//! The broker's clients: where it is, and its answers as Rust has them.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_orb::{Orb, OrbBuilder, OrbError, SystemException, SystemKind, Timeouts, cpu_broker};
use hyoshi_os::process::{ProcessIdentity, identity};
use hyoshi_os::{SocketAddress, SocketStream};
use hyoshi_wire::ior::{IorEndpoint, Reference};

use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Broker, BrokerStub, TaskStub};
use crate::setting::Setting;
use crate::trouble::Trouble;

/// How long a broker is given for an answer.
pub const PATIENCE: Span = Span::from_secs(5);

/// How addresses of brokers that serve other machines begin.
const SECURE: &str = "ssliop://";
/// What names a broker.
const ADDRESSES: &str = "ssliop://HOST:PORT, unix:/PATH, or a reference (corbaloc:..., IOR:...)";

/// A connection to a broker.
#[derive(Debug)]
pub struct Client {
    // Ends its calls when it goes.
    _orb: Orb,
    broker: BrokerStub,
    process: Option<ProcessIdentity>,
    at: String,
}

/// Why the broker did not do it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The ORB cannot be set up.
    Orb(OrbError),
    /// What is no address of a broker, and what is wrong with it.
    Address {
        /// What was given.
        given: String,
        /// What is wrong.
        why: &'static str,
    },
    /// Nobody answers there.
    NoBroker {
        /// Where.
        at: String,
        /// Why, in the kernel's words or the ORB's.
        why: String,
    },
    /// The broker refuses.
    Trouble(Trouble),
    /// It did not answer, or not in a way that is understood.
    System(SystemException),
}

impl ClientError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            ClientError::Orb(_) => "free some memory, threads or file descriptors".to_owned(),
            ClientError::Address { .. } => format!("write {ADDRESSES}"),
            ClientError::NoBroker { at, .. } if !at.starts_with('/') => {
                format!("is one there? `hyoshi broker --listen {SECURE}HOST:PORT` serves other machines")
            }
            ClientError::NoBroker { .. } => "`hyoshi broker` starts one; --socket names another's socket".to_owned(),
            ClientError::Trouble(trouble) => trouble.remedy(),
            ClientError::System(exception) => match hyoshi_orb::minor::meaning(exception.minor) {
                Some(meaning) => meaning.to_owned(),
                None => "is it a broker of this version?".to_owned(),
            },
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Orb(error) => error.fmt(f),
            ClientError::Address { given, why } => write!(f, "`{given}` is no address of a broker: {why}"),
            ClientError::NoBroker { at, why } => write!(f, "no broker answers at {at}: {why}"),
            ClientError::Trouble(trouble) => trouble.fmt(f),
            ClientError::System(exception) => write!(f, "the broker answers: {exception}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// Each operation has an enum of its own for what it raises; they all raise the same.
macro_rules! raised {
    ($($error:ident: $($exception:ident)*;)*) => {$(
        impl From<wire::$error> for ClientError {
            fn from(error: wire::$error) -> Self {
                match error {
                    $(wire::$error::$exception(raised) => raised.into(),)*
                    wire::$error::System(exception) => ClientError::System(exception),
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
    SetHardError: NoSuchTask NotAllowed Refused;
    SetPeriodError: NoSuchTask NotAllowed Refused;
    SetChainError: NoSuchTask NotAllowed Refused;
    AddAdvocateError: NoSuchTask NotAllowed Refused;
    RemoveAdvocateError: NoSuchTask NotAllowed Refused;
    SetPolicyError: NoSuchTask NotAllowed Refused;
    FindError: NoSuchTask;
    ExplainError: NoSuchTask;
    StandingError: NoSuchTask;
    StandingOfError: NoSuchTask;
    DetachError: NoSuchTask NotAllowed Refused;
    OwnTaskError: NoSuchTask NotAllowed Refused;
    PromiseLanesError: NoSuchTask NotAllowed Refused;
}

impl From<wire::NoSuchTask> for ClientError {
    fn from(raised: wire::NoSuchTask) -> Self {
        ClientError::Trouble(Trouble::NoSuchTask { name: raised.name, nearest: raised.nearest })
    }
}

impl From<wire::NotAllowed> for ClientError {
    fn from(raised: wire::NotAllowed) -> Self {
        ClientError::Trouble(Trouble::NotAllowed { what: raised.what, remedy: raised.remedy })
    }
}

impl From<wire::Refused> for ClientError {
    fn from(raised: wire::Refused) -> Self {
        ClientError::Trouble(Trouble::Refused { what: raised.what, remedy: raised.remedy })
    }
}

impl From<SystemException> for ClientError {
    fn from(exception: SystemException) -> Self {
        ClientError::System(exception)
    }
}

impl Client {
    /// Asks the broker at a socket, or at the usual place.
    ///
    /// # Errors
    ///
    /// If none answers.
    pub fn connect(socket: Option<&Path>) -> Result<Client, ClientError> {
        let socket = match socket {
            Some(socket) => socket.to_owned(),
            None => cpu_broker::to_ask_here(),
        };
        // The kernel's words are better than those of an ORB whose connection was refused.
        let tried =
            SocketStream::connect(&SocketAddress::Unix(socket.clone()), Duration::from_nanos(PATIENCE.as_nanos()));
        let process = match tried {
            // What the broker calls itself may be another's number here.
            Ok(stream) => stream.credentials().and_then(|broker| identity(broker.pid).ok()),
            Err(error) => {
                let why = match error.kind() {
                    std::io::ErrorKind::ConnectionRefused => "a broker was there, and has ended".to_owned(),
                    std::io::ErrorKind::NotFound => "there is no such socket".to_owned(),
                    std::io::ErrorKind::WouldBlock => format!("it takes no connection within {PATIENCE}"),
                    _ => error.to_string(),
                };
                return Err(ClientError::NoBroker { at: socket.display().to_string(), why });
            }
        };
        let reference = cpu_broker::corbaloc(&socket);
        let client = Client::resolve(socket.display().to_string(), &reference, Orb::builder(), PATIENCE)?;
        Ok(Client { process, ..client })
    }

    /// Asks the broker at an address: `ssliop://HOST:PORT`, `unix:/PATH` or a reference. The ORB that asks is made by
    /// `builder`, which knows how to speak TLS; the broker is given so long for each answer.
    ///
    /// # Errors
    ///
    /// Of what is no address, and if none answers.
    pub fn at(address: &str, builder: OrbBuilder, patience: Span) -> Result<Client, ClientError> {
        const PLAIN: &str = "over plain TCP clients cannot prove who they are, so brokers do not serve it";
        let wrong = |why| ClientError::Address { given: address.to_owned(), why };
        if address.starts_with("iiop://") {
            return Err(wrong(PLAIN));
        }
        if let Some(path) = address.strip_prefix("unix:") {
            return Client::connect(Some(Path::new(path)));
        }
        let reference = match address.strip_prefix(SECURE) {
            Some(place) if place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                format!("corbaloc:ssliop:1.2@{place}/{}", cpu_broker::KEY)
            }
            Some(_) => return Err(wrong("a port is missing")),
            None => match address.parse() {
                Ok(reference) if is_plain(&reference) => return Err(wrong(PLAIN)),
                Ok(_) => address.to_owned(),
                Err(_) if ["IOR:", "corbaloc:"].iter().any(|scheme| address.starts_with(scheme)) => {
                    return Err(wrong("it cannot be read as a reference"));
                }
                Err(_) => return Err(wrong("it names no way to get there")),
            },
        };
        // Whatever else this reference, or a reference that it forwards to, offers.
        Client::resolve(address.to_owned(), &reference, builder.tls_only(), patience)
    }

    fn resolve(at: String, reference: &str, builder: OrbBuilder, patience: Span) -> Result<Client, ClientError> {
        let timeouts = Timeouts { connect: patience, round_trip: Some(patience), reply: None };
        let orb = builder.timeouts(timeouts).build().map_err(ClientError::Orb)?;
        match orb.resolve::<dyn Broker>(reference) {
            Ok(broker) => Ok(Client { _orb: orb, broker, process: None, at }),
            Err(exception) => match exception.kind {
                SystemKind::InvObjref => {
                    Err(ClientError::Address { given: at, why: "it cannot be read as a reference" })
                }
                SystemKind::Transient | SystemKind::CommFailure | SystemKind::Timeout => {
                    Err(ClientError::NoBroker { at, why: exception.to_string() })
                }
                _ => Err(ClientError::System(exception)),
            },
        }
    }

    /// Where it is: its socket, or its address.
    pub fn place(&self) -> &str {
        &self.at
    }

    /// The broker's process, if it can be seen from here: one on another machine cannot, nor one in a namespace of
    /// processes that this one is not above, or is hidden in /proc.
    pub fn process(&self) -> Option<ProcessIdentity> {
        self.process
    }

    /// All that the broker can do.
    pub fn broker(&self) -> &BrokerStub {
        &self.broker
    }

    /// Begins a task.
    ///
    /// # Errors
    ///
    /// Of what the broker refuses.
    pub fn join(&self, joining: &crate::Joining) -> Result<TaskStub, ClientError> {
        if joining.period.is_some_and(Span::is_zero) {
            // On the wire that would mean that it is to be found.
            let what = "a period of 0 comes round at no time";
            return Err(ClientError::Trouble(Trouble::refused(
                what,
                "100us is the least; or have it found, with auto",
            )));
        }
        let nanos = |span: Option<Span>| span.map_or(0, Span::as_nanos);
        let joining = wire::Joining {
            name: joining.name.clone(),
            period: nanos(joining.period),
            deadline: nanos(joining.deadline),
            importance: joining.importance,
            weight: joining.weight,
            group: joining.group.clone(),
            first: nanos(joining.first),
            least: nanos(joining.least),
            hard: joining.hard,
            advocates: joining.advocates.iter().map(Setting::to_wire).collect(),
        };
        self.broker.join(&joining)?.ok_or_else(|| nil().into())
    }

    /// All tasks, by name. Tasks that start or end during the call may be missing.
    ///
    /// # Errors
    ///
    /// If the broker does not answer.
    pub fn tasks(&self) -> Result<Vec<wire::TaskStanding>, ClientError> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = self.broker.tasks(&after)?;
            // A list without an end does not come from a broker.
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
    pub fn find(&self, name: &str) -> Result<TaskStub, ClientError> {
        self.broker.find(name)?.ok_or_else(|| nil().into())
    }
}

/// Whether a reference leads over plain TCP alone.
fn is_plain(reference: &Reference) -> bool {
    let ior = match reference {
        Reference::Ior(ior) => Some(ior.clone()),
        Reference::Corbaloc(corbaloc) => corbaloc.ior("").ok().flatten(),
        Reference::Corbaname(_) => None,
    };
    let endpoints: Vec<_> = ior.iter().flat_map(|ior| ior.iiop().flatten()).flat_map(|way| way.endpoints()).collect();
    !endpoints.is_empty() && endpoints.iter().all(|endpoint| matches!(endpoint, IorEndpoint::Tcp { .. }))
}

fn nil() -> SystemException {
    SystemKind::InvObjref.not_done(0)
}
