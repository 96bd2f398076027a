//! The CPU broker's address, for its clients and for delegates: the machine's at [`MACHINE`], a user's own in their runtime
//! directory. It is looked up at each connection.

use std::path::{Path, PathBuf};

use hyoshi_os::Credentials;
use hyoshi_wire::ior::{Corbaloc, CorbalocAddress};

/// The machine's broker, run by root.
pub const MACHINE: &str = "/run/hyoshi/broker.sock";
/// The key of a broker's object.
pub const KEY: &str = "Broker";

/// The socket of a user's own broker; root's is the machine's. `None` if the user has no runtime directory.
pub fn own(uid: u32, runtime: Option<&Path>) -> Option<PathBuf> {
    match runtime {
        _ if uid == 0 => Some(MACHINE.into()),
        Some(runtime) if runtime.is_absolute() => Some(runtime.join("hyoshi/broker.sock")),
        _ => None,
    }
}

/// The socket for a user's clients: of their own broker if there is one, else the machine's.
fn to_ask(uid: u32, runtime: Option<&Path>) -> PathBuf {
    own(uid, runtime).filter(|own| own.symlink_metadata().is_ok()).unwrap_or_else(|| MACHINE.into())
}

/// The socket for this process.
pub fn to_ask_here() -> PathBuf {
    let runtime = hyoshi_os::secure_var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    to_ask(Credentials::own().uid, runtime.as_deref())
}

/// The address of the broker at a socket, for the ORB.
pub fn corbaloc(socket: &Path) -> String {
    let address = CorbalocAddress::Unix { path: socket.to_string_lossy().into_owned() };
    Corbaloc { addresses: vec![address], key: KEY.into() }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_own_broker_comes_before_the_machines() {
        let runtime = std::env::temp_dir().join(format!("hyoshi-cpu-broker-{}", std::process::id()));
        assert_eq!(to_ask(1000, Some(&runtime)), Path::new(MACHINE), "none serves there");
        let socket = own(1000, Some(&runtime)).unwrap();
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        std::fs::write(&socket, "").unwrap();
        assert_eq!(to_ask(1000, Some(&runtime)), socket);
        assert_eq!(to_ask(0, Some(&runtime)), Path::new(MACHINE));
        std::fs::remove_dir_all(&runtime).unwrap();
        for nowhere in [None, Some(Path::new("here"))] {
            assert_eq!((own(1000, nowhere), to_ask(1000, nowhere)), (None, PathBuf::from(MACHINE)));
        }
    }

    #[test]
    fn any_path_can_be_resolved() {
        assert_eq!(corbaloc(Path::new("/tmp/b.sock")), "corbaloc:omniunix:/tmp/b.sock:/Broker");
        for path in ["/a b", "/a:b", "/a,b", "/ü%"] {
            let read: Corbaloc = corbaloc(Path::new(path)).parse().unwrap();
            assert_eq!(read.addresses, [CorbalocAddress::Unix { path: path.into() }]);
        }
    }
}
