//! Two network namespaces with a link between them. Tests and benchmarks of other crates include this file.

#![allow(dead_code, reason = "each of them uses a part")]

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// The addresses at the two ends.
pub const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// The same in IPv6.
pub const ADDRESSES_6: [&str; 2] = ["fd77::1", "fd77::2"];
/// The device at each end.
pub const DEVICE: &str = "hyoshi0";

/// Two network namespaces with a link. Dropping it removes them.
pub struct Namespaces {
    pub names: [String; 2],
}

impl Namespaces {
    /// `Err`: the missing privilege or program.
    pub fn new() -> Result<Namespaces, &'static str> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let names = ["a", "b"].map(|end| format!("hyoshi-{}-{number}-{end}", std::process::id()));
        let made = Namespaces { names };
        for name in &made.names {
            match Command::new("ip").args(["netns", "add", name]).output() {
                Err(_) => return Err("iproute2"),
                Ok(output) if !output.status.success() => return Err("root: network namespaces"),
                Ok(_) => {}
            }
        }
        let [a, b] = &made.names;
        ip(&format!("link add {DEVICE} netns {a} type veth peer name {DEVICE} netns {b}"));
        for (end, name) in made.names.iter().enumerate() {
            ip(&format!("-n {name} addr add {}/24 dev {DEVICE}", ADDRESSES[end]));
            ip(&format!("-n {name} addr add {}/64 dev {DEVICE} nodad", ADDRESSES_6[end]));
            ip(&format!("-n {name} link set lo up"));
            ip(&format!("-n {name} link set {DEVICE} up"));
        }
        Ok(made)
    }

    /// A command in one of the namespaces.
    pub fn command(&self, end: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[end], program]);
        command
    }

    /// The output of `tc` in one of the namespaces.
    pub fn tc(&self, end: usize, words: &str) -> String {
        let output = self.command(end, "tc").args(words.split(' ')).output().expect("tc of iproute2");
        assert!(output.status.success(), "tc {words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Calls `send`, which sends packets from the first namespace to the second, until the first has resolved both
    /// addresses.
    pub fn resolve(&self, send: impl Fn()) {
        for _ in 0..500 {
            send();
            let known = ip(&format!("-n {} neigh show dev {DEVICE}", self.names[0]));
            let known = String::from_utf8_lossy(&known.stdout).into_owned();
            let is_known = |address| known.lines().any(|line| line.starts_with(address) && line.contains("lladdr"));
            if [ADDRESSES[1], ADDRESSES_6[1]].into_iter().all(is_known) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("the link does not resolve addresses");
    }

    /// The root discipline of the device at an end, as `tc` prints it.
    pub fn root(&self, end: usize) -> String {
        self.tc(end, &format!("qdisc show dev {DEVICE} root"))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            // The devices end with it.
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

fn ip(words: &str) -> Output {
    let output = Command::new("ip").args(words.split(' ')).output().expect("ip of iproute2");
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
