//! The broker's clients: where it is, and its answers as Rust has them.

use std::fmt;
use std::path::{Path, PathBuf};

use hyoshi_model::Span;
use hyoshi_orb::{Orb, OrbError, SystemException, SystemKind, Timeouts};

use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Broker, BrokerStub, TaskStub};
use crate::place;
use crate::setting::Setting;
use crate::trouble::Trouble;

/// How long a broker is given for an answer.
pub const PATIENCE: Span = Span::from_secs(5);

/// A connection to a broker.
#[derive(Debug)]
pub struct Client {
    // Ends its calls when it goes.
    _orb: Orb,
    broker: BrokerStub,
    socket: PathBuf,
}

/// Why the broker did not do it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// The ORB cannot be set up.
    Orb(OrbError),
    /// Nobody answers at the socket.
    NoBroker {
        /// Where.
        socket: PathBuf,
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
            ClientError::NoBroker { socket, why } => write!(f, "no broker answers at {}: {why}", socket.display()),
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
    ReportError: NoSuchTask NotAllowed Refused;
    LeaveError: NoSuchTask NotAllowed Refused;
    SetImportanceError: NoSuchTask NotAllowed Refused;
    SetWeightError: NoSuchTask NotAllowed Refused;
    SetGroupError: NoSuchTask NotAllowed Refused;
    SetPeriodError: NoSuchTask NotAllowed Refused;
    SetChainError: NoSuchTask NotAllowed Refused;
    AddAdvocateError: NoSuchTask NotAllowed Refused;
    RemoveAdvocateError: NoSuchTask NotAllowed Refused;
    SetPolicyError: NoSuchTask NotAllowed Refused;
    FindError: NoSuchTask;
    ExplainError: NoSuchTask;
    StandingError: NoSuchTask;
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
            None => {
                let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
                place::to_ask(hyoshi_os::Credentials::own().uid, runtime.as_deref())
            }
        };
        let missing = |why: String| ClientError::NoBroker { socket: socket.clone(), why };
        // The kernel's words are better than those of an ORB whose connection was refused.
        if let Err(error) = std::os::unix::net::UnixStream::connect(&socket) {
            return Err(missing(match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "a broker was there, and has ended".to_owned(),
                std::io::ErrorKind::NotFound => "there is no such socket".to_owned(),
                _ => error.to_string(),
            }));
        }
        let timeouts = Timeouts { connect: PATIENCE, round_trip: Some(PATIENCE), reply: None };
        let orb = Orb::builder().timeouts(timeouts).build().map_err(ClientError::Orb)?;
        let broker = match orb.resolve::<dyn Broker>(&place::corbaloc(&socket)) {
            Ok(broker) => broker,
            Err(exception) if matches!(exception.kind, SystemKind::Transient | SystemKind::CommFailure) => {
                return Err(missing(exception.to_string()));
            }
            Err(exception) => return Err(ClientError::System(exception)),
        };
        Ok(Client { _orb: orb, broker, socket })
    }

    /// Where it is.
    pub fn socket(&self) -> &Path {
        &self.socket
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
        let nanos = |span: Option<Span>| span.map_or(0, Span::as_nanos);
        let joining = wire::Joining {
            name: joining.name.clone(),
            period: joining.period.as_nanos(),
            deadline: nanos(joining.deadline),
            importance: joining.importance,
            weight: joining.weight,
            group: joining.group.clone(),
            first: nanos(joining.first),
            least: nanos(joining.least),
            advocates: joining.advocates.iter().map(Setting::to_wire).collect(),
        };
        self.broker.join(&joining)?.ok_or_else(|| nil().into())
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

fn nil() -> SystemException {
    SystemKind::InvObjref.not_done(0)
}
