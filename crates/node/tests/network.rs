//! Completions of two classes over a slow link, in network namespaces.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use hyoshi_model::{Dscp, HostId, Instant, NetworkDevice, Span, TrafficClass};
use hyoshi_net::{ClassPlan, HeldClasses};
use hyoshi_node::NodePeers;
use hyoshi_runtime::Node;
use hyoshi_sched::{Plan, Strategies};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::common::{DRONE, STATION, settings, system};
use crate::namespaces::{ADDRESSES, DEVICE, Namespaces};
use crate::privileges::missing;

/// Every 20 ms a critical completion, and one with 60 KiB that is not: 25 Mbit/s.
fn text() -> String {
    let [drone, station] = ADDRESSES;
    format!(
        r#"
        name = "slow"
        duration = "5s"
        [host.drone]
        endpoints = ["tcp/{drone}:7447"]
        insecure = true
        [host.station]
        endpoints = ["tcp/{station}:7447"]
        insecure = true
        [processor.airframe]
        host = "drone"
        [processor.ground]
        host = "station"
        [operation.sense]
        on = "airframe"
        every = "20ms"
        wcet = "0.1ms"
        critical = true
        [operation.act]
        on = "ground"
        after = {{ all = ["sense"] }}
        wcet = "0.1ms"
        critical = true
        guard = "off"
        [operation.look]
        on = "airframe"
        every = "20ms"
        wcet = "0.1ms"
        payload = "60KiB"
        [operation.log]
        on = "ground"
        after = {{ all = ["look"] }}
        wcet = "0.1ms"
        guard = "off"
        "#
    )
}

/// A link of 4 Mbit/s, half of it for critical completions.
fn slow_link() -> ClassPlan {
    let class = TrafficClass { dscp: vec![Dscp::EF], share: 500_000, ceiling: 1_000_000 };
    ClassPlan::new(&NetworkDevice { name: DEVICE.into(), rate: 4_000_000, classes: vec![class] })
}

/// Arrivals at the station: critical completions, those of them within 20 ms of their release, and non-critical ones.
#[derive(Debug, Default)]
struct Arrived {
    critical: AtomicU64,
    in_time: AtomicU64,
    others: AtomicU64,
}

/// Runs a host in one of the namespaces. The threads of a node are in the namespace of the thread that starts it.
fn run(namespaces: &Namespaces, host: HostId, arrived: &Arc<Arrived>) {
    let namespace = File::open(format!("/run/netns/{}", namespaces.names[host.index()])).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    let plan = if host == DRONE { slow_link() } else { ClassPlan::new(&NetworkDevice::new(DEVICE, 100_000_000)) };
    let classes = HeldClasses::apply(plan).unwrap();
    let system = system(&text());
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let (critical, others) = (arrived.clone(), arrived.clone());
    let node = Node::for_host(system.clone(), plan, host).share_cpu(true);
    let node = node.body("look", |job| {
        // While the link is full, earlier payloads may hold all buffers.
        let _ = job.emit(&[7; 60 << 10]);
    });
    let node = node.body("act", move |job| {
        critical.critical.fetch_add(1, Ordering::Relaxed);
        let release = Instant::ZERO + Span::from_millis(20) * job.job().number;
        let in_time = job.now() < release + Span::from_millis(20);
        critical.in_time.fetch_add(u64::from(in_time), Ordering::Relaxed);
    });
    let node = node.body("log", move |_| {
        others.others.fetch_add(1, Ordering::Relaxed);
    });
    let mut node = node.prepare().unwrap();
    let peers = NodePeers::start(settings(&system, host, Span::from_secs(20)), &mut node).unwrap();
    let agreed = peers.agree(|_| ()).unwrap();
    node.begin(agreed.clock).wait(&mut |_, _, _| ());
    let standing = peers.standing();
    println!("{host:?}: {standing:?}");
    assert!(standing[0].joined <= 1, "the full link has separated the hosts: {standing:?}");
    let counts = classes.counts().unwrap();
    println!("{counts:?}");
    // Critical completions, comparisons of clocks, and the acknowledgements of both are in the class of EF.
    let (critical, others) = (counts[0], counts[counts.len() - 1]);
    assert!(critical.packets >= 100 && critical.octets < 300_000, "{counts:?}");
    if host == DRONE {
        assert!(critical.packets >= 250 && others.octets > 1_000_000, "{counts:?}");
    }
}

#[test]
fn completions_that_the_link_cannot_carry_do_not_delay_critical_ones() {
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(lacking) => return missing(lacking),
    };
    let arrived = Arc::new(Arrived::default());
    thread::scope(|scope| {
        let runs = [DRONE, STATION].map(|host| {
            scope.spawn({
                let (namespaces, arrived) = (&namespaces, &arrived);
                move || run(namespaces, host, arrived)
            })
        });
        runs.into_iter().for_each(|run| run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    // 250 of each were sent. The others have less than 4 Mbit/s: 40 of 60 KiB.
    assert!(of(&arrived.critical) >= 235, "{arrived:?}");
    assert!(of(&arrived.in_time) + 15 >= of(&arrived.critical), "{arrived:?}");
    assert!((1..120).contains(&of(&arrived.others)), "{arrived:?}");
}
