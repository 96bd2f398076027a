//! A whole ORB server among clients that do anything: requests, fragments of them, cancellations, half a message, octets
//! that are no GIOP, closes, in any order and over several connections. The server neither panics nor hangs, and afterwards
//! it serves a client that behaves.
//!
//! The input is a sequence of steps: an octet for what happens, one for the connection, and what the step needs.

#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::OnceLock;

use hyoshi_naming::{NamingContextExt, NamingLimits, NamingService};
use hyoshi_orb::{ByteOrder, Claims, Encoder, IorEndpoint, LaneOptions, Orb, ServerLimits, Version};
use hyoshi_wire::giop::{
    Header, MessageKind, RequestHeader, Response, ServiceContext, Target, cancel_request, close_connection,
    message_error, split,
};
use libfuzzer_sys::fuzz_target;

/// Connections beside each other.
const CONNECTIONS: usize = 4;

struct Server {
    /// The server's, and its client's.
    _orbs: [Orb; 2],
    _naming: NamingService,
    address: SocketAddr,
    root: hyoshi_naming::NamingContextExtStub,
}

/// One for the whole run: what earlier inputs left behind is part of the test.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        // Threads of servants and of the ORB itself: a panic that is caught there is a finding, too.
        let reported = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panicked| {
            reported(panicked);
            std::process::abort();
        }));
        let limits = ServerLimits {
            message: 64 << 10,
            in_flight: 4,
            backlog: 1 << 20,
            unfinished: 1 << 20,
            connections: 32,
            ..ServerLimits::default()
        };
        let lane = LaneOptions { threads: 4, ..LaneOptions::default() };
        let builder = Orb::builder().collocation(false).server_limits(limits).accept_bidirectional(Claims::Own);
        let orb = builder.lane(lane).listen("iiop://127.0.0.1:0").expect("an endpoint").build().expect("it starts");
        let names = NamingLimits { bindings: 100, contexts: 100, ..NamingLimits::default() };
        let naming = NamingService::start(&orb, None, names).expect("the only one");
        orb.ready();
        let Some(IorEndpoint::Tcp { port, .. }) = orb.endpoints().first() else { panic!("it listens") };
        let address = SocketAddr::from(([127, 0, 0, 1], *port));
        let client = Orb::client().expect("threads");
        let root = client
            .resolve_unchecked::<dyn NamingContextExt>(&format!("corbaloc:iiop:1.2@127.0.0.1:{port}/NameService"))
            .expect("an address");
        Server { _orbs: [orb, client], _naming: naming, address, root }
    })
}

/// A client whose next octets may be the rest of a message.
#[derive(Default)]
struct Client {
    stream: Option<TcpStream>,
    /// Octets of a message that were not sent yet.
    rest: Vec<u8>,
}

impl Client {
    /// Sends, as far as the server takes it: one that does not read must not keep the fuzzer.
    fn send(&mut self, to: SocketAddr, octets: &[u8]) {
        if self.stream.is_none() {
            let Ok(stream) = TcpStream::connect(to) else { return };
            let set = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
            self.stream = set.ok().map(|()| stream);
        }
        let Some(stream) = &mut self.stream else { return };
        match stream.write(octets) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => self.stream = None,
            _ => {}
        }
    }

    fn read(&mut self) {
        if let Some(stream) = &mut self.stream {
            while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
        }
    }
}

/// Operations of the naming service, and of every object, and one that is none.
const OPERATIONS: [&str; 8] =
    ["resolve", "list", "_is_a", "_non_existent", "new_context", "bind_new_context", "to_name", "nothing_of_that_name"];

/// A request, with arguments that are any octets.
fn request(what: u8, id: u8, body: &[u8]) -> Vec<u8> {
    let version = [Version::V1_0, Version::V1_1, Version::V1_2, Version::V1_2][usize::from(what & 3)];
    let order = if what & 4 == 0 { ByteOrder::Big } else { ByteOrder::Little };
    let mut to = Encoder::new(order);
    to.speak(version, Default::default());
    let operation = OPERATIONS[usize::from(what >> 3 & 7)];
    let response = if what & 64 == 0 { Response::Target } else { Response::None };
    // Of code sets, of listen points, of priorities: any octets, too.
    let tag = [1, 5, 10, 30][usize::from(id & 3)];
    let context = [ServiceContext { tag, data: &body[..body.len().min(24)] }];
    let contexts = if what & 128 == 0 { &[][..] } else { &context[..] };
    let key: &[u8] = if id & 128 == 0 { b"NameService" } else { body };
    let header = RequestHeader { id: u32::from(id & 127), response, target: Target::Key(key), operation, contexts };
    let Ok(begun) = header.begin(&mut to) else { return Vec::new() };
    to.raw(body);
    drop(begun.end(&mut to));
    to.into_bytes()
}

fuzz_target!(|octets: &[u8]| {
    let server = server();
    let mut clients: [Client; CONNECTIONS] = Default::default();
    let mut left = octets;
    while let Some(([what, which, more, length], after)) = left.split_first_chunk::<4>() {
        let (data, after) = after.split_at(usize::from(*length).min(after.len()));
        left = after;
        let client = &mut clients[usize::from(*which) % CONNECTIONS];
        let id = u32::from(*more & 127);
        match what % 12 {
            0..=2 => client.send(server.address, &request(*more, *which, data)),
            3 => {
                // In fragments, of which the last may never come.
                let message = request(2 | *more, *which, &data.repeat(8));
                let pieces: Vec<_> = split(&message, 64).collect();
                let count = if *more & 1 == 0 { pieces.len() } else { pieces.len() - 1 };
                let all: Vec<u8> =
                    pieces[..count].iter().flat_map(|piece| [piece.head(), piece.body()].concat()).collect();
                client.send(server.address, &all);
            }
            4 => {
                // A fragment of 1.1, or of a message that never began.
                let version = if *more & 1 == 0 { Version::V1_1 } else { Version::V1_2 };
                let (order, size) = (ByteOrder::Big, data.len() as u32);
                let header = Header { version, order, more: *more & 2 == 0, kind: MessageKind::Fragment, size };
                client.send(server.address, &[&header.encode()[..], data].concat());
            }
            5 => {
                // Half of a message, and its rest another time.
                let message = request(*more, *which, data);
                let (now, later) = message.split_at(usize::from(*more) % (message.len() + 1));
                client.rest = later.to_vec();
                client.send(server.address, now);
            }
            6 => {
                let rest = std::mem::take(&mut client.rest);
                client.send(server.address, &rest);
            }
            7 => {
                let mut to = Encoder::new(ByteOrder::Big);
                drop(cancel_request(id, &mut to));
                client.send(server.address, to.bytes());
            }
            8 => client.send(server.address, data),
            9 => match &client.stream {
                Some(stream) if *more & 1 == 0 => drop(stream.shutdown(Shutdown::Write)),
                _ => client.stream = None,
            },
            10 if *more & 1 == 0 => client.send(server.address, &close_connection(Version::V1_2)),
            10 => client.send(server.address, &message_error(Version::V1_2)),
            _ => client.read(),
        }
    }
    drop(clients);
    // Whatever they did: somebody else is served, in a time that no hanging server has.
    let patient = server.root.within(hyoshi_model::Span::from_secs(20));
    patient.to_name("a/b.c").expect("the server serves those that behave");
});
