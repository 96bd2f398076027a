//! A server or client that is told octet for octet what to do.
#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use hyoshi_orb::{ByteOrder, Encode, EncodeError, Encoder, Ior, IorEndpoint, Orb, Version};
use hyoshi_wire::giop::{ReplyHeader, ReplyStatus, RequestHeader, Response, Target};
use hyoshi_wire::ior::Profile;

/// A connection to an ORB.
pub fn connect(orb: &Orb) -> TcpStream {
    let Some(IorEndpoint::Tcp { host, port, .. }) = orb.endpoints().first() else { panic!("no TCP") };
    let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A request as a whole message.
pub fn request(id: u32, key: &[u8], operation: &str, response: Response) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Big);
    let header = RequestHeader { id, response, target: Target::Key(key), operation, contexts: &[] };
    header.begin(&mut to).unwrap().end(&mut to).unwrap();
    to.into_bytes()
}

/// A reply as a whole message.
pub fn reply(id: u32, status: ReplyStatus, body: impl FnOnce(&mut Encoder) -> Result<(), EncodeError>) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Big);
    let begun = ReplyHeader { id, status, contexts: &[] }.begin(&mut to).unwrap();
    body(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    to.into_bytes()
}

/// One whole message; none at the end of the stream.
pub fn message(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut message = vec![0; 12];
    stream.read_exact(&mut message).ok()?;
    let size = [message[8], message[9], message[10], message[11]];
    let size = if message[6] & 1 == 1 { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) };
    message.resize(12 + size as usize, 0);
    stream.read_exact(&mut message[12..]).ok()?;
    Some(message)
}

/// The id of a request or reply of 1.2.
pub fn id(message: &[u8]) -> u32 {
    let id = [message[12], message[13], message[14], message[15]];
    if message[6] & 1 == 1 { u32::from_le_bytes(id) } else { u32::from_be_bytes(id) }
}

/// A reference to an object of the server that listens there.
pub fn reference(listener: &TcpListener, type_id: &str) -> Ior {
    let port = listener.local_addr().unwrap().port();
    let profile = Profile::iiop(Version::V1_2, "127.0.0.1", port, b"key", &[]).unwrap();
    Ior { type_id: type_id.to_owned(), profiles: vec![profile] }
}

/// A void result to every request, until the stream ends.
pub fn answer_all(mut stream: TcpStream) {
    while let Some(message) = message(&mut stream) {
        if message[7] == 0 && stream.write_all(&reply(id(&message), ReplyStatus::NoException, |_| Ok(()))).is_err() {
            return;
        }
    }
}

/// `string` with a length, as `Encode` has it.
pub fn text(text: &str) -> impl FnOnce(&mut Encoder) -> Result<(), EncodeError> + '_ {
    move |to| text.encode(to)
}
