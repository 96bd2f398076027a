//! System exceptions, and the trait of user exceptions.

use core::fmt;
use core::hash::{Hash, Hasher};

use crate::cdr::{Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};
use crate::{minor, standard};

/// An exception that an IDL file declares.
pub trait UserException: Encode + for<'a> Decode<'a> + core::error::Error {
    /// Its repository id: `IDL:Tracking/UnknownTarget:1.0`.
    const ID: &'static str;
}

/// Whether the operation was carried out before the exception was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completed {
    /// It was.
    Yes,
    /// It was not: a retry is safe.
    No,
    /// Unknown.
    Maybe,
}

/// A standard exception (CORBA 3.3 part 1, annex A), raised by an ORB, not by an object.
///
/// `Display` and `Debug` print all known data: `TRANSIENT (minor 0x4859001d, not done) at 127.0.0.1:2809: No server
/// listens at the address`. Equality ignores the server.
#[derive(Clone, Copy)]
pub struct SystemException {
    /// The exception.
    pub kind: SystemKind,
    /// The exact cause: the upper twenty bits name the vendor.
    pub minor: u32,
    /// Whether the operation was carried out.
    pub completed: Completed,
    /// The address of the server that raised it, or that could not be called. The client's ORB sets it for remote
    /// calls; it is not sent.
    pub peer: Option<&'static str>,
}

macro_rules! kinds {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// The standard exceptions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum SystemKind { $(#[doc = $doc] $variant,)* }

        impl SystemKind {
            /// All of them.
            pub const ALL: &[SystemKind] = &[$(SystemKind::$variant,)*];

            /// `TRANSIENT`.
            pub const fn name(self) -> &'static str {
                match self { $(SystemKind::$variant => $name,)* }
            }

            /// Its description, in one sentence.
            pub const fn description(self) -> &'static str {
                match self { $(SystemKind::$variant => $doc,)* }
            }

            /// `IDL:omg.org/CORBA/TRANSIENT:1.0`.
            pub const fn id(self) -> &'static str {
                match self { $(SystemKind::$variant => concat!("IDL:omg.org/CORBA/", $name, ":1.0"),)* }
            }
        }
    };
}

kinds! {
    Unknown "UNKNOWN" "The operation raised an undeclared exception.";
    BadParam "BAD_PARAM" "An invalid argument.";
    NoMemory "NO_MEMORY" "Out of memory.";
    ImpLimit "IMP_LIMIT" "An implementation limit was exceeded.";
    CommFailure "COMM_FAILURE" "The connection was lost after the request was sent.";
    InvObjref "INV_OBJREF" "An invalid object reference.";
    NoPermission "NO_PERMISSION" "The caller lacks permission.";
    Internal "INTERNAL" "An internal error of the ORB.";
    Marshal "MARSHAL" "A message that cannot be encoded or decoded.";
    Initialize "INITIALIZE" "The ORB could not be initialized.";
    NoImplement "NO_IMPLEMENT" "Declared, but not implemented.";
    BadTypecode "BAD_TYPECODE" "An invalid type code.";
    BadOperation "BAD_OPERATION" "The object has no such operation.";
    NoResources "NO_RESOURCES" "A resource is exhausted.";
    NoResponse "NO_RESPONSE" "The answer has not arrived yet.";
    PersistStore "PERSIST_STORE" "Persistent storage failed.";
    BadInvOrder "BAD_INV_ORDER" "Called in the wrong order.";
    Transient "TRANSIENT" "The request could not be delivered now; a retry may succeed.";
    FreeMem "FREE_MEM" "Memory could not be freed.";
    InvIdent "INV_IDENT" "A name that is not an IDL identifier.";
    InvFlag "INV_FLAG" "An invalid flag.";
    IntfRepos "INTF_REPOS" "The interface repository cannot be reached.";
    BadContext "BAD_CONTEXT" "A context that the operation needs is missing.";
    ObjAdapter "OBJ_ADAPTER" "The adapter failed.";
    DataConversion "DATA_CONVERSION" "A character that is not in the connection's code set.";
    ObjectNotExist "OBJECT_NOT_EXIST" "The object does not exist.";
    TransactionRequired "TRANSACTION_REQUIRED" "A transaction is needed.";
    TransactionRolledback "TRANSACTION_ROLLEDBACK" "The transaction was rolled back.";
    InvalidTransaction "INVALID_TRANSACTION" "An invalid transaction.";
    InvPolicy "INV_POLICY" "Policies that conflict.";
    CodesetIncompatible "CODESET_INCOMPATIBLE" "Client and server share no code set.";
    Rebind "REBIND" "The client would have to rebind, which its policy forbids.";
    Timeout "TIMEOUT" "The time limit of the call has passed.";
    TransactionUnavailable "TRANSACTION_UNAVAILABLE" "Transactions are not available.";
    TransactionMode "TRANSACTION_MODE" "The transaction's mode does not match.";
    BadQos "BAD_QOS" "The requested quality of service is not available.";
    InvalidActivity "INVALID_ACTIVITY" "An invalid activity.";
    ActivityCompleted "ACTIVITY_COMPLETED" "The activity has ended.";
    ActivityRequired "ACTIVITY_REQUIRED" "An activity is needed.";
    ThreadCancelled "THREAD_CANCELLED" "The distributable thread was cancelled (Real-time CORBA).";
}

impl SystemKind {
    /// The one with this repository id; `UNKNOWN` for an unknown id (4.12.3).
    pub fn from_id(id: &str) -> SystemKind {
        Self::ALL.iter().copied().find(|kind| kind.id() == id).unwrap_or(SystemKind::Unknown)
    }

    /// Raised before the operation was carried out.
    pub const fn not_done(self, minor: u32) -> SystemException {
        SystemException { kind: self, minor, completed: Completed::No, peer: None }
    }

    /// Raised when it is unknown whether the operation was carried out.
    pub const fn maybe_done(self, minor: u32) -> SystemException {
        SystemException { kind: self, minor, completed: Completed::Maybe, peer: None }
    }

    /// Raised after the operation was carried out.
    pub const fn done(self, minor: u32) -> SystemException {
        SystemException { kind: self, minor, completed: Completed::Yes, peer: None }
    }
}

impl SystemException {
    /// The same of the server at this address.
    #[must_use]
    pub const fn at(self, peer: Option<&'static str>) -> SystemException {
        SystemException { peer, ..self }
    }

    /// The meaning of the minor code: this ORB's, and OMG's.
    pub fn meaning(&self) -> Option<&'static str> {
        let (vendor, number) = (self.minor & 0xffff_f000, self.minor & 0xfff);
        match vendor {
            minor::OMG => standard::meaning(self.kind, number),
            minor::HYOSHI => {
                // "No adapter has that name (OBJECT_NOT_EXIST)."
                let text = minor::meaning(self.minor)?;
                Some(text.rsplit_once(" (").map_or(text, |(text, _)| text))
            }
            _ => None,
        }
    }

    /// The vendor of the minor code, if known.
    pub fn vendor(&self) -> Option<&'static str> {
        Some(match self.minor & 0xffff_f000 {
            minor::OMG => "OMG",
            minor::HYOSHI => "Hyoshi",
            0x4154_0000 => "omniORB",
            0x5441_0000 => "TAO",
            _ => return None,
        })
    }
}

impl fmt::Display for SystemException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completed = match self.completed {
            Completed::Yes => "done",
            Completed::No => "not done",
            Completed::Maybe => "perhaps done",
        };
        write!(f, "{} (minor {:#x}", self.kind.name(), self.minor)?;
        match (self.meaning(), self.vendor()) {
            (None, Some(vendor)) => write!(f, " of {vendor}, {completed})")?,
            _ => write!(f, ", {completed})")?,
        }
        if let Some(peer) = self.peer {
            write!(f, " at {peer}")?;
        }
        let meaning = self.meaning().unwrap_or(self.kind.description());
        write!(f, ": {}", meaning.trim_end_matches('.'))
    }
}

/// In readable form, which a test or an `unwrap` prints.
impl fmt::Debug for SystemException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for SystemException {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, self.minor, self.completed) == (other.kind, other.minor, other.completed)
    }
}

impl Eq for SystemException {}

impl Hash for SystemException {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind, self.minor, self.completed).hash(state);
    }
}

impl core::error::Error for SystemException {}

/// Arguments that cannot be decoded: DATA_CONVERSION for characters, else MARSHAL, both before the operation was
/// carried out.
impl From<DecodeError> for SystemException {
    fn from(error: DecodeError) -> Self {
        match error.kind {
            DecodeErrorKind::CharSet => SystemKind::DataConversion.not_done(minor::ARGUMENTS),
            _ => SystemKind::Marshal.not_done(minor::ARGUMENTS),
        }
    }
}

/// Its repository id, minor code and completion, as in a reply's body (9.4.3.2).
impl Encode for SystemException {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.kind.id().encode(to)?;
        self.minor.encode(to)?;
        (self.completed as u32).encode(to)
    }
}

impl Decode<'_> for SystemException {
    const LEAST: usize = 12;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let kind = SystemKind::from_id(&alloc::borrow::Cow::<str>::decode(from)?);
        let minor = u32::decode(from)?;
        let completed = match u32::decode(from)? {
            0 => Completed::Yes,
            1 => Completed::No,
            2 => Completed::Maybe,
            _ => return Err(from.error(DecodeErrorKind::Value("a completion status that is none"))),
        };
        Ok(SystemException { kind, minor, completed, peer: None })
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn exceptions_say_what_their_codes_mean_for_them_and_where_they_are_from() {
        let refused = SystemKind::Transient.not_done(minor::REFUSED);
        let text = "TRANSIENT (minor 0x4859001d, not done) at 127.0.0.1:2809: No server listens at the address: the \
                    connection was refused, or there is no such socket";
        assert_eq!(format!("{}", refused.at(Some("127.0.0.1:2809"))), text);
        assert_eq!(format!("{:?}", refused.at(Some("127.0.0.1:2809"))), text);
        assert_eq!(refused.at(Some("127.0.0.1:2809")), refused);
        for (exception, text) in [
            (
                SystemKind::ObjectNotExist.not_done(minor::OMG + 2),
                "OBJECT_NOT_EXIST (minor 0x4f4d0002, not done): no adapter has the object's key",
            ),
            (
                SystemKind::CodesetIncompatible.not_done(minor::OMG + 2),
                "CODESET_INCOMPATIBLE (minor 0x4f4d0002, not done): the client chose a code set that the server does \
                 not support",
            ),
            (
                SystemKind::CommFailure.maybe_done(0x4154_0001),
                "COMM_FAILURE (minor 0x41540001 of omniORB, perhaps done): The connection was lost after the request \
                 was sent",
            ),
            (SystemKind::NoPermission.done(0), "NO_PERMISSION (minor 0x0, done): The caller lacks permission"),
        ] {
            assert_eq!(format!("{exception}"), text);
        }
    }
}
