//! Service contexts: additional data of requests and replies (CORBA 3.3 part 2, 7.7).

use alloc::string::String;
use alloc::vec::Vec;

use super::{ServiceContext, Transmission};
use crate::cdr::{ByteOrder, Decode, DecodeError, Decoder, Encode, EncodeError, Encoder};
use crate::tagged::{encapsulation, identifier, put_identifier};

/// [`Transmission`]: the connection's code sets.
pub const CONTEXT_CODE_SETS: u32 = 1;
/// [`ListenPoint`]s: the server may call back over this connection.
pub const CONTEXT_BI_DIR_IIOP: u32 = 5;
/// The priority of the request (Real-time CORBA).
pub const CONTEXT_RT_PRIORITY: u32 = 10;
/// A text about a system exception, usually a stack trace.
pub const CONTEXT_EXCEPTION_DETAIL: u32 = 14;
/// The scheduler's data (Real-time CORBA 1.2, distributable threads).
pub const CONTEXT_RT_SCHEDULING: u32 = 30;

/// [`OperationCall`](super::OperationCall): the call of an operation of the file (`HYO\x01`, not registered with OMG).
pub const CONTEXT_HYOSHI_CALL: u32 = 0x4859_4f01;

/// A known context, decoded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Context<'a> {
    /// The connection's code sets.
    CodeSets(Transmission),
    /// The addresses at which the client can be called over this connection.
    BiDirectional(Vec<ListenPoint<'a>>),
    /// The CORBA priority of the request.
    Priority(i16),
    /// A text about a system exception.
    ExceptionDetail(String),
    /// Any other, undecoded.
    Other(ServiceContext<'a>),
}

/// An address that needs no other connection: the one that transfers this context is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenPoint<'a> {
    /// As in the client's references.
    pub host: &'a str,
    /// Likewise.
    pub port: u16,
}

impl<'a> Context<'a> {
    /// Reads one.
    ///
    /// # Errors
    ///
    /// For a known context with invalid octets.
    pub fn decode(context: ServiceContext<'a>) -> Result<Context<'a>, DecodeError> {
        let from = || Decoder::encapsulated(context.data);
        Ok(match context.tag {
            CONTEXT_CODE_SETS => Context::CodeSets(Decode::decode(&mut from()?)?),
            CONTEXT_BI_DIR_IIOP => Context::BiDirectional(Decode::decode(&mut from()?)?),
            CONTEXT_RT_PRIORITY => Context::Priority(Decode::decode(&mut from()?)?),
            CONTEXT_EXCEPTION_DETAIL => Context::ExceptionDetail(detail(&mut from()?)?),
            _ => Context::Other(context),
        })
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        match self {
            Context::CodeSets(_) => CONTEXT_CODE_SETS,
            Context::BiDirectional(_) => CONTEXT_BI_DIR_IIOP,
            Context::Priority(_) => CONTEXT_RT_PRIORITY,
            Context::ExceptionDetail(_) => CONTEXT_EXCEPTION_DETAIL,
            Context::Other(context) => context.tag,
        }
    }

    /// Its data, to be sent; it can be reused for all requests of a connection.
    ///
    /// # Errors
    ///
    /// A host with a NUL inside; a text beyond 4 GiB.
    pub fn data(&self) -> Result<Vec<u8>, EncodeError> {
        encapsulation(ByteOrder::NATIVE, |to| match self {
            Context::CodeSets(chosen) => chosen.encode(to),
            Context::BiDirectional(points) => points.encode(to),
            Context::Priority(priority) => priority.encode(to),
            Context::ExceptionDetail(text) => put_detail(text, to),
            Context::Other(context) => {
                to.truncate(0);
                to.raw(context.data);
                Ok(())
            }
        })
    }
}

impl Encode for ListenPoint<'_> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        put_identifier(self.host, to)?;
        self.port.encode(to)
    }
}

impl<'a> Decode<'a> for ListenPoint<'a> {
    const LEAST: usize = 6;

    fn decode(from: &mut Decoder<'a>) -> Result<Self, DecodeError> {
        Ok(ListenPoint { host: identifier(from)?, port: u16::decode(from)? })
    }
}

/// A wstring of 1.2: its length in octets, then UTF-16, big-endian without a byte-order mark. It is text for users:
/// an invalid character becomes a replacement character.
fn detail(from: &mut Decoder<'_>) -> Result<String, DecodeError> {
    let octets = <&[u8]>::decode(from)?;
    let (units, _) = octets.as_chunks::<2>();
    let (units, little) = match units {
        [[0xff, 0xfe], units @ ..] => (units, true),
        [[0xfe, 0xff], units @ ..] => (units, false),
        units => (units, false),
    };
    let units = units.iter().map(|unit| if little { u16::from_le_bytes(*unit) } else { u16::from_be_bytes(*unit) });
    Ok(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

fn put_detail(text: &str, to: &mut Encoder) -> Result<(), EncodeError> {
    to.length(2 * text.encode_utf16().count())?;
    text.encode_utf16().for_each(|unit| to.raw(&unit.to_be_bytes()));
    Ok(())
}
