//! The programs of omniORB and JacORB: built once for all tests, found, and started.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Messages of the largest checks are longer than omniORB accepts by default.
const OMNI_LIMIT: [&str; 2] = ["-ORBgiopMaxMsgSize", "8388608"];

/// Checks that JacORB 3.9 fails with every client: it reads an inout bounded wide string as a narrow one, omits the
/// leading zeros of a fixed, and writes 0 for each discriminator without a label.
const JACORB_CANNOT: [&str; 3] = ["echo_widename", "fixed with leading zeros", "discriminators that no label has"];

/// Another ORB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Debian's, in C++.
    OmniOrb,
    /// Maven's, in Java.
    JacOrb,
}

impl Peer {
    /// Its programs, built on first use. `None`, with a printed reason, if it is not installed.
    ///
    /// `HYOSHI_PEERS=required` makes its absence a failure.
    pub fn built(self) -> Option<&'static Path> {
        static OMNIORB: OnceLock<Option<PathBuf>> = OnceLock::new();
        static JACORB: OnceLock<Option<PathBuf>> = OnceLock::new();
        let (cell, name) = match self {
            Peer::OmniOrb => (&OMNIORB, "omniorb"),
            Peer::JacOrb => (&JACORB, "jacorb"),
        };
        cell.get_or_init(|| build(name)).as_deref()
    }

    /// Its server, on a port that the system chooses.
    pub fn server(self, at: &Path) -> Command {
        match self {
            Peer::OmniOrb => {
                let mut command = Command::new(at.join("server"));
                command.args(OMNI_LIMIT).args(["-ORBendPoint", "giop:tcp:127.0.0.1:0"]);
                command
            }
            Peer::JacOrb => java(at, "Server", &[]),
        }
    }

    /// Its server, with that version of GIOP, also in its references.
    pub fn server_of(self, at: &Path, giop: Giop) -> Command {
        match self {
            Peer::OmniOrb => {
                let mut command = self.server(at);
                command.args(["-ORBmaxGIOPVersion", giop.name()]);
                command
            }
            Peer::JacOrb => java(at, "Server", &[&format!("-Djacorb.giop_minor_version={}", giop.minor())]),
        }
    }

    /// Its client for a reference of Hyoshi's, with that version of GIOP.
    pub fn client_of(self, at: &Path, reference: &str, giop: Giop) -> Command {
        match self {
            Peer::OmniOrb => {
                let mut command = self.client(at, reference, None);
                command.args(["-ORBmaxGIOPVersion", giop.name()]);
                command
            }
            Peer::JacOrb => {
                let mut command = java(at, "Client", &[&format!("-Djacorb.giop_minor_version={}", giop.minor())]);
                command.arg(reference);
                command
            }
        }
    }

    /// Its client for a reference; it checks all that the server's ORB can do.
    pub fn client(self, at: &Path, reference: &str, of: Option<Peer>) -> Command {
        let mut command = match self {
            Peer::OmniOrb => {
                let mut command = Command::new(at.join("client"));
                command.arg(reference).args(OMNI_LIMIT).args(["-ORBendPoint", "giop:tcp:127.0.0.1:0"]);
                command
            }
            Peer::JacOrb => {
                let mut command = java(at, "Client", &[]);
                command.arg(reference);
                command
            }
        };
        if of == Some(Peer::JacOrb) {
            for check in JACORB_CANNOT {
                command.args(["--skip", check]);
            }
        }
        command
    }
}

/// omniORBpy's program, a server and a client of GIOP 1.1; none as with [`Peer::built`].
pub fn omniorbpy(arguments: &[&str]) -> Option<Command> {
    static OMNIORBPY: OnceLock<Option<PathBuf>> = OnceLock::new();
    let mut command = Command::new(OMNIORBPY.get_or_init(|| build("omniorbpy")).as_ref()?.join("peer"));
    command.args(arguments);
    Some(command)
}

/// The options with which JacORB supports calls in both directions.
const JACORB_BOTH: &str = "-Dorg.omg.PortableInterceptor.ORBInitializerClass.both=\
                           org.jacorb.orb.giop.BiDirConnectionInitializer";

impl Peer {
    /// Its server, which accepts calls in both directions on a connection.
    pub fn server_both_ways(self, at: &Path) -> Command {
        let mut command = match self {
            Peer::OmniOrb => {
                let mut command = self.server(at);
                command.args(["-ORBacceptBiDirectionalGIOP", "1", "-ORBserverTransportRule", "* tcp,bidir"]);
                command
            }
            Peer::JacOrb => java(at, "Server", &[JACORB_BOTH]),
        };
        command.arg("--bidir");
        command
    }

    /// Its client, which offers that, and listens at this address.
    pub fn client_both_ways(self, at: &Path, reference: &str, address: SocketAddrV4) -> Command {
        let mut command = match self {
            Peer::OmniOrb => {
                let mut command = Command::new(at.join("client"));
                command.args(OMNI_LIMIT).args(["-ORBendPoint", &format!("giop:tcp:{address}")]);
                command.args(["-ORBofferBiDirectionalGIOP", "1", "-ORBclientTransportRule", "* tcp,bidir"]);
                command
            }
            Peer::JacOrb => java(
                at,
                "Client",
                &[JACORB_BOTH, &format!("-DOAIAddr={}", address.ip()), &format!("-DOAPort={}", address.port())],
            ),
        };
        command.arg(reference).arg("--bidir");
        command
    }
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giop {
    /// The first, without fragments and wide characters.
    V1_0,
    /// With fragments, of requests and replies only.
    V1_1,
    /// The last.
    V1_2,
}

impl Giop {
    /// All versions, the latest first.
    pub const ALL: [Giop; 3] = [Giop::V1_2, Giop::V1_1, Giop::V1_0];

    /// As omniORB's options write it.
    pub fn name(self) -> &'static str {
        match self {
            Giop::V1_0 => "1.0",
            Giop::V1_1 => "1.1",
            Giop::V1_2 => "1.2",
        }
    }

    fn minor(self) -> u8 {
        match self {
            Giop::V1_0 => 0,
            Giop::V1_1 => 1,
            Giop::V1_2 => 2,
        }
    }
}

fn java(at: &Path, class: &str, options: &[&str]) -> Command {
    let mut jars: Vec<PathBuf> = std::fs::read_dir(at.join("jars"))
        .expect("JacORB was built")
        .map(|entry| entry.expect("a directory that was just written").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jar"))
        .collect();
    jars.push(at.join("classes"));
    let mut command = Command::new("java");
    // A small virtual machine that starts fast: these programs run for seconds.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx256m"]);
    command.arg("-cp").arg(std::env::join_paths(jars).expect("no colons in these paths"));
    command.args([
        "-Dorg.omg.CORBA.ORBClass=org.jacorb.orb.ORB",
        "-Dorg.omg.CORBA.ORBSingletonClass=org.jacorb.orb.ORBSingleton",
        "-DOAIAddr=127.0.0.1",
        "-Djacorb.log.default.verbosity=0",
    ]);
    command.args(options).arg(class);
    command
}

fn build(name: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp").join("peers").join(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("others/build");
    let output = Command::new(&script).arg(name).arg(&directory).output().expect("the build script starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(directory),
        Some(3) if std::env::var_os("HYOSHI_PEERS").is_none_or(|value| value != "required") => {
            eprintln!("skipped: {name} is not installed: {} (.ci/peers installs it)", printed.trim());
            None
        }
        code => panic!("{} {name} ended with {code:?}:\n{printed}", script.display()),
    }
}
