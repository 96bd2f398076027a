//! Classes in network namespaces that the tests create.

#[path = "common/namespaces.rs"]
mod namespaces;
#[path = "../../os/tests/common/privileges.rs"]
mod privileges;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_model::NetworkDevice;
use hyoshi_net::{ClassPlan, HANDLE, HeldClasses, NetworkError, probe, remove_left};
use namespaces::{ADDRESSES, ADDRESSES_6, DEVICE, Namespaces};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use rustix::process::Uid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, capabilities, set_capabilities, set_keep_capabilities,
    set_thread_res_uid,
};

/// Runs `test` on a thread in the first of two new namespaces.
///
/// One test at a time: a process that another test starts has copies of this test's sockets until it executes its
/// program, and a name stays in use until the last copy is closed.
fn within(test: impl FnOnce(&Namespaces) + Send) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(lacking) => return privileges::missing(lacking),
    };
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            let namespace = File::open(format!("/run/netns/{}", namespaces.names[0])).unwrap();
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            test(&namespaces);
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn plan() -> ClassPlan {
    ClassPlan::new(&NetworkDevice::new(DEVICE, 100_000_000))
}

/// Sends packets with a DSCP to the other namespace.
fn send(count: usize, dscp: u8) {
    let socket = UdpSocket::bind((ADDRESSES[0], 0)).unwrap();
    sockopt::set_ip_tos(&socket, dscp << 2).unwrap();
    assert!((0..count).all(|_| socket.send_to(&[0; 100], (ADDRESSES[1], 9)).is_ok()));
    let socket = UdpSocket::bind((ADDRESSES_6[0], 0)).unwrap();
    sockopt::set_ipv6_tclass(&socket, u32::from(dscp) << 2).unwrap();
    assert!((0..count).all(|_| socket.send_to(&[0; 100], (ADDRESSES_6[1], 9)).is_ok()));
}

#[test]
fn classes_have_their_rates_get_their_packets_and_leave_nothing_behind() {
    within(|namespaces| {
        let before = namespaces.root(0);
        let held = HeldClasses::apply(plan()).unwrap();
        let shown = namespaces.tc(0, &format!("class show dev {DEVICE}"));
        // tc prints 4859:10 and its rates.
        for part in
            ["4859:1 root rate 100Mbit ceil 100Mbit", "4859:10 parent 4859:1", "prio 2 rate 40Mbit ceil 100Mbit"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert_eq!(shown.matches("rate 30Mbit ceil 100Mbit").count(), 2, "{shown}");
        let fifos = namespaces.tc(0, &format!("qdisc show dev {DEVICE}"));
        assert_eq!(fifos.matches("pfifo").count(), 3, "{fifos}");

        let packets = || held.counts().unwrap().iter().map(|class| u64::from(class.packets)).collect::<Vec<_>>();
        namespaces.resolve(|| send(1, 0));
        for (dscp, class) in [(46, 0), (34, 1), (38, 1), (0, 2), (47, 2), (10, 2)] {
            let before = packets();
            send(100, dscp);
            // A class counts a packet when it leaves, and at 100 Mbit/s they leave more slowly than they are sent.
            let end = Instant::now() + Duration::from_secs(10);
            let mut after = packets();
            while after[class] < before[class] + 200 && Instant::now() < end {
                thread::yield_now();
                after = packets();
            }
            let sent: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
            // The kernel sends a few packets itself, for example for IPv6 groups.
            assert!((200..220).contains(&sent[class]), "DSCP {dscp}: {sent:?}");
            assert!(sent.iter().sum::<u64>() < 220, "DSCP {dscp}: {sent:?}");
        }
        assert!(held.counts().unwrap().iter().all(|class| class.dropped == 0));
        held.remove().unwrap();
        assert_eq!(namespaces.root(0), before);
        // Not removed, but dropped.
        drop(HeldClasses::apply(plan()).unwrap());
        assert_eq!(namespaces.root(0), before);
    });
}

#[test]
fn address_resolution_is_in_the_most_urgent_class() {
    within(|_| {
        let held = HeldClasses::apply(plan()).unwrap();
        send(1, 0);
        // A question for each protocol; the packets themselves wait for the answers.
        let first = held.counts().unwrap()[0];
        assert!(first.packets >= 2, "{first:?}");
    });
}

#[test]
fn classes_that_a_killed_run_left_are_replaced_or_removed() {
    within(|namespaces| {
        let before = namespaces.root(0);
        assert!(!remove_left(DEVICE).unwrap());
        namespaces.tc(0, &format!("qdisc add dev {DEVICE} root handle {HANDLE:x}: htb default 1"));
        let held = HeldClasses::apply(plan()).unwrap();
        assert_eq!(held.counts().unwrap().len(), 3);
        held.remove().unwrap();
        namespaces.tc(0, &format!("qdisc add dev {DEVICE} root handle {HANDLE:x}: htb default 1"));
        assert!(remove_left(DEVICE).unwrap());
        assert_eq!(namespaces.root(0), before);
    });
}

#[test]
fn a_discipline_of_another_program_is_refused_and_stays() {
    within(|namespaces| {
        for foreign in ["handle 1: htb default 1", &format!("handle {HANDLE:x}: pfifo limit 7"), "pfifo limit 9"] {
            namespaces.tc(0, &format!("qdisc add dev {DEVICE} root {foreign}"));
            // HTB counts packets.
            let root = || namespaces.root(0).split(" direct_packets_stat").next().map(str::to_owned);
            let before = root();
            let refused = HeldClasses::apply(plan()).err().unwrap();
            assert!(matches!(refused, NetworkError::Occupied { .. }), "{refused}");
            assert!(refused.remedy().contains(&format!("tc qdisc del dev {DEVICE} root")), "{}", refused.remedy());
            assert!(!remove_left(DEVICE).unwrap());
            assert_eq!(root(), before);
            namespaces.tc(0, &format!("qdisc del dev {DEVICE} root"));
        }
        // Replaced while a run holds it.
        let held = HeldClasses::apply(plan()).unwrap();
        namespaces.tc(0, &format!("qdisc replace dev {DEVICE} root handle 1: pfifo limit 5"));
        assert!(held.counts().is_err());
        held.remove().unwrap();
        assert!(namespaces.root(0).contains("pfifo 1:"), "{}", namespaces.root(0));
    });
}

#[test]
fn a_device_has_one_run_and_must_exist() {
    within(|_| {
        let held = HeldClasses::apply(plan()).unwrap();
        match HeldClasses::apply(plan()).err() {
            Some(refused @ NetworkError::InUse { .. }) => {
                let process = format!("is in use by process {} of user root", std::process::id());
                assert!(refused.to_string().ends_with(&process), "{refused}");
                assert!(refused.remedy().contains("stop this process"), "{}", refused.remedy());
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(remove_left(DEVICE), Err(NetworkError::InUse { .. })));
        assert_eq!(held.counts().unwrap().len(), 3, "they are still there");
        drop(held);
        let elsewhere = ClassPlan::new(&NetworkDevice::new("hyoshi9", 1_000_000));
        assert!(matches!(HeldClasses::apply(elsewhere), Err(NetworkError::NoDevice { .. })));
    });
}

/// Runs `run` on a thread of the user `nobody`, with CAP_NET_ADMIN if `privileged`.
fn as_nobody<R: Send>(privileged: bool, run: impl FnOnce() -> R + Send) -> R {
    let run = move || {
        set_keep_capabilities(privileged).unwrap();
        set_thread_res_uid(Uid::from_raw(NOBODY), Uid::from_raw(NOBODY), Uid::from_raw(NOBODY)).unwrap();
        let (none, own) = (CapabilitySet::empty(), CapabilitySet::NET_ADMIN);
        let own = if privileged { own } else { none };
        set_capabilities(None, CapabilitySets { effective: own, permitted: own, inheritable: none }).unwrap();
        run()
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

const NOBODY: u32 = 65_534;

/// The number of the device in the namespace of this thread.
fn index() -> u32 {
    let socket = UdpSocket::bind((ADDRESSES[0], 0)).unwrap();
    rustix::net::netdevice::name_to_index(&socket, DEVICE).unwrap()
}

#[test]
fn runs_of_different_users_do_not_replace_each_others_classes() {
    within(|namespaces| {
        let before = namespaces.root(0);
        let in_use = |user: &str| match HeldClasses::apply(plan()) {
            Err(NetworkError::InUse { pid, user: holder, .. }) => {
                assert_eq!((pid, holder.as_deref()), (Some(std::process::id()), Some(user)));
            }
            other => panic!("{other:?}"),
        };
        let held = HeldClasses::apply(plan()).unwrap();
        as_nobody(true, || {
            in_use("root");
            assert!(matches!(remove_left(DEVICE), Err(NetworkError::InUse { .. })));
        });
        assert_eq!(held.counts().unwrap().len(), 3);
        held.remove().unwrap();
        // A held claim is free for any user afterwards, and the other user's is respected.
        let held = as_nobody(true, || HeldClasses::apply(plan()).unwrap());
        in_use("nobody");
        assert_eq!(held.counts().unwrap().len(), 3);
        held.remove().unwrap();
        assert_eq!(namespaces.root(0), before);
    });
}

#[test]
fn a_claim_counts_in_its_network_namespace_only() {
    within(|namespaces| {
        let _held = HeldClasses::apply(plan()).unwrap();
        let elsewhere = || {
            let namespace = File::open(format!("/run/netns/{}", namespaces.names[1])).unwrap();
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            assert_eq!(HeldClasses::apply(plan()).unwrap().counts().unwrap().len(), 3);
        };
        thread::scope(|scope| scope.spawn(elsewhere).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

#[test]
fn a_process_without_privileges_can_only_prevent_classes() {
    within(|namespaces| {
        let name = format!("hyoshi-network-{}", index());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = as_nobody(false, || UnixListener::bind_addr(&address).unwrap());
        let left = format!("qdisc add dev {DEVICE} root handle {HANDLE:x}: htb default 1");
        for leave in [false, true] {
            if leave {
                namespaces.tc(0, &left);
            }
            // HTB counts packets.
            let root = || namespaces.root(0).split(" direct_packets_stat").next().map(str::to_owned);
            let before = root();
            let refused = HeldClasses::apply(plan()).err().unwrap();
            assert!(matches!(refused, NetworkError::InUse { .. }), "{refused}");
            assert!(refused.to_string().ends_with(" of user nobody"), "{refused}");
            assert!(matches!(remove_left(DEVICE), Err(NetworkError::InUse { .. })));
            assert_eq!(root(), before);
        }
        drop(listener);
        // The kernel does not report the process of a socket that does not listen.
        let silent = as_nobody(false, || {
            let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
            rustix::net::bind(&socket, &address).unwrap();
            socket
        });
        let refused = HeldClasses::apply(plan()).err().unwrap();
        assert!(matches!(refused, NetworkError::InUse { pid: None, user: None, .. }), "{refused:?}");
        assert!(refused.remedy().contains("ss -xap | grep hyoshi-network-"), "{}", refused.remedy());
        drop(silent);
        // The classes that were left are replaced.
        assert_eq!(HeldClasses::apply(plan()).unwrap().counts().unwrap().len(), 3);
    });
}

#[test]
fn without_the_privilege_the_refusal_names_it() {
    within(|namespaces| {
        probe().unwrap();
        let before = namespaces.root(0);
        let CapabilitySets { effective, permitted, inheritable } = capabilities(None).unwrap();
        let less = |set: CapabilitySet| set - CapabilitySet::NET_ADMIN;
        let sets = CapabilitySets { effective: less(effective), permitted: less(permitted), inheritable };
        set_capabilities(None, sets).unwrap();
        for refused in [HeldClasses::apply(plan()).err(), probe().err()] {
            match refused {
                Some(refused @ NetworkError::NotPermitted { .. }) => {
                    assert!(
                        refused.to_string().contains("CAP_NET_ADMIN") && refused.remedy().contains("cap_net_admin")
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(namespaces.root(0), before);
    });
}
