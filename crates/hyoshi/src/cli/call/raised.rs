//! Exceptions as text and JSON: those that an operation declares, and system exceptions.

use hyoshi_orb::{
    ByteOrder, CharSet, Completed, DecodeError, Decoder, EncodeError, Encoder, Raises, SystemException, SystemKind,
    TypeCode, Value, Version, minor,
};
use serde_json::{Value as Json, json};

use super::shown::{self, OrderedJson};
use crate::cli::tls;

/// An exception in place of a reply.
#[derive(Debug)]
pub(super) enum Raised {
    System(SystemException),
    /// Its ID, and its members as encoded in the message.
    User {
        id: String,
        members: RawMembers,
    },
}

/// Encoded members. `skipped` octets before them keep the alignment.
#[derive(Debug)]
pub(super) struct RawMembers {
    octets: Vec<u8>,
    skipped: usize,
    order: ByteOrder,
    version: Version,
    chars: CharSet,
}

impl Raises for Raised {
    fn decode(id: &str, from: &mut Decoder<'_>) -> Option<Result<Self, DecodeError>> {
        // RawMembers are aligned as the message is, to eight octets at most.
        let skipped = from.at() % 8;
        let octets = [&[0; 8][..skipped], from.rest()].concat();
        let (order, version, chars) = (from.order(), from.version(), from.chars());
        Some(Ok(Raised::User { id: id.to_owned(), members: RawMembers { octets, skipped, order, version, chars } }))
    }

    fn id(&self) -> &'static str {
        match self {
            Raised::System(raised) => raised.kind.id(),
            // Nothing here is ever sent as a reply.
            Raised::User { .. } => SystemKind::Unknown.id(),
        }
    }

    fn encode(&self, _: &mut Encoder) -> Result<(), EncodeError> {
        Err(EncodeError::Value("a received exception cannot be raised again"))
    }

    fn system(&self) -> Option<&SystemException> {
        match self {
            Raised::System(raised) => Some(raised),
            Raised::User { .. } => None,
        }
    }
}

/// An exception with its members.
#[derive(Debug)]
pub(super) enum ReadException {
    System(SystemException),
    User { id: String, name: String, members: Option<OrderedJson>, declared: bool },
}

impl Raised {
    /// Decodes the members, if the operation declares the exception.
    pub fn read(self, declared: &[TypeCode]) -> ReadException {
        let (id, members) = match self {
            Raised::System(raised) => return ReadException::System(raised),
            Raised::User { id, members } => (id, members),
        };
        let name = id.trim_start_matches("IDL:").rsplit_once(':').map_or(id.as_str(), |(name, _)| name).to_owned();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        let Some(code) = declared.iter().find(|code| code.id() == id) else {
            return ReadException::User { id, name, members: None, declared: false };
        };
        let mut from = Decoder::new(&members.octets, members.order);
        from.speak(members.version, members.chars);
        let read = from.raw(members.skipped).and_then(|_| read(code, &mut from));
        let members = read.ok().map(|value| shown::shown(&value, code));
        ReadException::User { id, name, members, declared: true }
    }
}

/// The members; the id before them has been read.
fn read(code: &TypeCode, from: &mut Decoder<'_>) -> Result<Value, DecodeError> {
    let hyoshi_wire::typecode::TypeShape::Exception(members) = code.shape() else { return Ok(Value::Null) };
    members.map(|(_, of)| Value::decode_as(&of, from)).collect::<Result<_, _>>().map(Value::Struct)
}

impl ReadException {
    pub fn text(&self, places: &[String]) -> String {
        match self {
            ReadException::System(raised) => {
                let mut text = format!("raised {raised}\n");
                if raised.meaning().is_some() {
                    text += &format!("{}\n", raised.kind.description());
                } else if raised.minor != 0 && raised.vendor().is_none() {
                    text += &format!("minor code: {:#x}, of an unknown vendor\n", raised.minor);
                }
                let of_connection = [SystemKind::Transient, SystemKind::CommFailure, SystemKind::Timeout];
                if of_connection.contains(&raised.kind) && raised.peer.is_none() && !places.is_empty() {
                    text += &format!("where: {}\n", places.join(", "));
                }
                text + &format!("help: {}\n", help(raised))
            }
            ReadException::User { id, name, members, declared } => {
                let mut text = format!("raised {name} ({id})\n");
                match members {
                    Some(OrderedJson::Members(members)) => {
                        members.iter().for_each(|(name, value)| text += &format!("  {name}: {}\n", value.line()));
                    }
                    _ if *declared => text += "its members cannot be decoded: the server uses another version of it\n",
                    _ => text += "help: pass with --idl a file in which the operation declares this exception\n",
                }
                text
            }
        }
    }

    pub fn json(self) -> OrderedJson {
        match self {
            ReadException::System(raised) => json!({
                "kind": "system", "id": raised.kind.id(), "name": raised.kind.name(), "minor": raised.minor,
                "meaning": raised.meaning(), "server": raised.peer, "help": help(&raised),
                "completed": match raised.completed {
                    Completed::Yes => "yes",
                    Completed::No => "no",
                    Completed::Maybe => "maybe",
                },
            })
            .into(),
            ReadException::User { id, name, members, .. } => {
                let head = [("kind", json!("user")), ("id", json!(id)), ("name", json!(name))];
                let head = head.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
                let members = ("members".to_owned(), members.unwrap_or(OrderedJson::Plain(Json::Null)));
                OrderedJson::Members(head.chain([members]).collect())
            }
        }
    }
}

/// A remedy for a system exception.
pub(super) fn help(raised: &SystemException) -> &'static str {
    if let Some(help) = tls::help(raised) {
        return help;
    }
    match raised.kind {
        SystemKind::Transient if raised.minor == minor::NO_USABLE_PROFILE => {
            "use a reference with a supported kind of address; `hyoshi ior decode` lists them"
        }
        SystemKind::Transient if raised.minor == minor::HOST_UNKNOWN => {
            "check the reference's host name; `getent hosts NAME` must resolve it"
        }
        SystemKind::Transient => {
            "check that the server runs and listens at the reference's address (`hyoshi ior decode`)"
        }
        SystemKind::CommFailure if raised.completed == Completed::No => {
            "try again; the server did not execute the call"
        }
        SystemKind::CommFailure => "check the server's state before you try again: it may have executed the call",
        SystemKind::ObjectNotExist if raised.minor == minor::NO_USABLE_PROFILE => {
            "compare the key with what the server publishes, or get a new reference"
        }
        SystemKind::ObjectNotExist => "get a new reference: this object was destroyed",
        SystemKind::BadOperation => {
            "check that --idl and --interface match the server; without --idl an attribute is called _get_NAME"
        }
        SystemKind::Marshal if raised.minor == minor::BAD_REPLY => {
            "check that a CORBA server listens there; if so, compare the IDL files"
        }
        SystemKind::Marshal => "compare the IDL files of client and server; or a value exceeds a bound",
        SystemKind::Timeout => "raise --timeout, or check why the server is busy",
        SystemKind::NoPermission => "ask the server's operator for the permission",
        SystemKind::InvObjref => "check the reference with `hyoshi ior decode`",
        SystemKind::BadParam => "check the arguments against the IDL's comments",
        SystemKind::NoImplement => "use a newer server: this one does not implement the operation",
        SystemKind::CodesetIncompatible | SystemKind::DataConversion => {
            "use only characters of the server's character set"
        }
        SystemKind::ImpLimit | SystemKind::NoResources | SystemKind::NoMemory => {
            "pass less data, or raise the server's limits"
        }
        SystemKind::Unknown => "check the server's log for the cause",
        _ => "check the server's log",
    }
}
