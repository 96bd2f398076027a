//! Brokers, as processes that end with the test.

use std::borrow::BorrowMut;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hyoshi_os::{Policy, priority, set_own_policy};

use super::Place;
use super::said::Said;

/// A broker that ends with the test.
pub struct Broker {
    pub child: Child,
    // Should it say more, somebody is there.
    out: Said,
}

impl Broker {
    /// Serves at `run/broker.sock` in the place. Spinners are reserved nothing, unless it is what is tested: they would ask for
    /// the machine.
    pub fn start(place: &Place, more: &str) -> Broker {
        let scheduler = if more.contains("--scheduler") { "" } else { "--scheduler none" };
        let mut command = place.command(&format!("broker {more} {scheduler} --socket"));
        command.arg(place.path().join("run/broker.sock"));
        Broker::of(command)
    }

    pub fn of(mut command: impl BorrowMut<Command>) -> Broker {
        let mut child = command.borrow_mut().stdout(Stdio::piped()).spawn().unwrap();
        let out = Said::by(child.stdout.take().unwrap());
        let mut broker = Broker { child, out };
        broker.says("at ");
        broker
    }

    /// The rest of the next line that begins so.
    pub fn says(&mut self, begin: &str) -> String {
        self.out.after(begin)
    }

    pub fn ends(&mut self, signal: &str) -> ExitStatus {
        kill(self.child.id(), signal);
        self.child.wait().unwrap()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended as the test wanted it to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Above all windows, where that is granted, until the end of the scope: who looks whether programs are raised may share their
/// CPU. Not inherited by what is started meanwhile.
pub struct Above;

impl Above {
    pub fn all() -> Above {
        let _ = set_own_policy(Policy::Fifo(priority::WINDOWS.end() + 1));
        Above
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        let _ = set_own_policy(Policy::Other);
    }
}

pub fn kill(pid: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// `None` if it does not come to pass within a minute.
pub fn wait_for(mut condition: impl FnMut() -> bool) -> Option<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        if Instant::now() > until {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(())
}
