//! Critical completions over a saturated link: `cargo bench -p hyoshi --bench network`, as root.
//!
//! Two hosts, each `hyoshi run --host` in a network namespace of its own, with a link of 100 Mbit/s between them. Every
//! 20 ms the first host sends a critical completion to the second. Two seconds after the start, a process in the first
//! namespace begins to send UDP packets at 150 Mbit/s to the second, from 16 sockets, until the end. It has the lowest
//! real-time priority, below the nodes, so the link stays full on a busy machine. The figures are times of the network
//! stage, from the sending of a completion to its arrival, by both recordings. Three rounds each:
//!
//! - *idle*: without the packets; the link is a token bucket (TBF) with a queue of 1,000 packets, Linux' default length.
//! - *one queue*: the same link with the packets.
//! - *classes*: with the packets; the file has `network = [{ device = "hyoshi0", rate = "100Mbit/s" }]`.
//!
//! Both hosts have the same CLOCK_MONOTONIC. They agree on instant 0 while the link is idle. The figures contain the
//! error of this agreement, which the benchmark prints.

#[path = "../../net/tests/common/namespaces.rs"]
mod namespaces;

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{Instant, Span};
use hyoshi_os::{ThreadPolicy, set_own_policy};
use hyoshi_report::chart::{AxisLabels, Colour, Series, lines};
use hyoshi_report::html::{document, legend};
use hyoshi_trace::recording::RecordingReader;
use hyoshi_trace::{DispatchDecision, Input, TraceEvent};
use maud::{PreEscaped, html};
use namespaces::{ADDRESSES, DEVICE, Namespaces};

/// From the start of a run to that of the packets.
const QUIET: Duration = Duration::from_secs(2);
/// Octets of a packet, and their rate in bit/s.
const PACKET: usize = 1_400;
const BULK: usize = 150_000_000;
/// The role of a process that sends packets: for how many milliseconds.
const ROLE: &str = "HYOSHI_BULK_MS";

#[derive(Clone, Copy, PartialEq)]
enum Link {
    Idle,
    OneQueue,
    Classes,
}

fn main() {
    if let Ok(milliseconds) = std::env::var(ROLE) {
        return saturate(Duration::from_millis(milliseconds.parse().expect("milliseconds")));
    }
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, seconds) = if short { (1, 3) } else { (3, 22) };
    let namespaces = match Namespaces::new() {
        Ok(namespaces) => namespaces,
        Err(lacking) => return println!("skipped: needs {lacking}"),
    };
    let folder = std::env::temp_dir().join(format!("hyoshi-network-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a directory for the recordings");
    let mut all: [(&str, Link, Measured); 3] = [
        ("idle", Link::Idle, Measured::default()),
        ("one queue", Link::OneQueue, Measured::default()),
        ("classes", Link::Classes, Measured::default()),
    ];
    for _ in 0..rounds {
        for (_, link, measured) in &mut all {
            measured.add(run(&namespaces, &folder, *link, seconds));
        }
    }
    println!("link        sent   lost        p50         p99         max");
    for (name, _, Measured { sent, delays, .. }) in &mut all {
        delays.sort_unstable();
        let at = |part: usize| match delays.len() {
            0 => "-".to_owned(),
            count => format!("{:.3}ms", delays[(count - 1) * part / 100].as_nanos() as f64 / 1e6),
        };
        let lost = *sent - delays.len();
        println!("{name:<10} {sent:5}  {lost:5} {:>10}  {:>10}  {:>10}", at(50), at(99), at(100));
    }
    for (name, _, measured) in &all {
        measured.notes.iter().for_each(|note| println!("{name}: {note}"));
    }
    println!("goal: p99 with classes under 2 ms");
    let page = std::env::temp_dir().join("hyoshi-network.html");
    std::fs::write(&page, chart(&all)).expect("a page");
    println!("chart: {}", page.display());
    let _ = std::fs::remove_dir_all(folder);
}

/// A page with the percentiles of the delays: all links, and without the one that would hide the others.
fn chart(all: &[(&str, Link, Measured)]) -> String {
    let parts = [50, 75, 90, 95, 98, 99, 100];
    let places = AxisLabels { title: "percentile".to_owned(), names: parts.map(|part| part.to_string()).to_vec() };
    let drawn = |link: Link| match link {
        Link::Idle => (Colour::Other, "other"),
        Link::OneQueue => (Colour::Missed, "missed"),
        Link::Classes => (Colour::Made, "made"),
    };
    let series = |(_, link, measured): &(&str, Link, Measured)| {
        let at = |part: usize| measured.delays.get(measured.delays.len().checked_sub(1)? * part / 100);
        let values = parts.map(|part| at(part).map(|delay| delay.as_nanos() as f64)).to_vec();
        Series { colour: drawn(*link).0, dashed: false, values }
    };
    let draw = |some: &dyn Fn(Link) -> bool| {
        let series: Vec<Series> = all.iter().filter(|(_, link, _)| some(*link)).map(series).collect();
        PreEscaped(lines("delay by percentile", &places, &series, 0.0, |nanos| format!("{:.1}ms", nanos / 1e6)))
    };
    let names: Vec<(&str, &str)> = all.iter().map(|(name, link, _)| (drawn(*link).1, *name)).collect();
    let body = html! {
        header { h1 { "Critical completions over a saturated link" } }
        section {
            p { "From the sending of a completion to its arrival, over a link of 100 Mbit/s. It is idle, or full of UDP \
                 packets in one queue, or full with classes by DSCP." }
            (legend(&names))
            div class="pair" {
                div { h3 { "All" } (draw(&|_| true)) }
                div { h3 { "Idle, and with classes" } (draw(&|link| link != Link::OneQueue)) }
            }
        }
    };
    document("Critical completions over a saturated link", &body).into_string()
}

#[derive(Default)]
struct Measured {
    sent: usize,
    delays: Vec<Span>,
    notes: Vec<String>,
}

impl Measured {
    fn add(&mut self, other: Measured) {
        self.sent += other.sent;
        self.delays.extend(other.delays);
        self.notes.extend(other.notes);
    }
}

fn system(link: Link, seconds: u64) -> String {
    let network = match link {
        Link::Classes => format!("network = [{{ device = \"{DEVICE}\", rate = \"100Mbit/s\" }}]"),
        Link::Idle | Link::OneQueue => String::new(),
    };
    let [drone, station] = ADDRESSES;
    format!(
        r#"
name = "saturated"
duration = "{seconds}s"
[host.drone]
endpoints = ["tcp/{drone}:7447"]
insecure = true
{network}
[host.station]
endpoints = ["tcp/{station}:7447"]
insecure = true
[processor.airframe]
host = "drone"
[processor.ground]
host = "station"
[operation.sense]
on = "airframe"
rate = "50Hz"
wcet = "0.1ms"
critical = true
[operation.act]
on = "ground"
after = {{ all = ["sense"] }}
wcet = "0.1ms"
critical = true
guard = "off"
"#
    )
}

fn run(namespaces: &Namespaces, folder: &Path, link: Link, seconds: u64) -> Measured {
    let text = system(link, seconds);
    std::fs::write(folder.join("saturated.toml"), text).expect("the system's file");
    if link != Link::Classes {
        let tbf = format!("qdisc add dev {DEVICE} root tbf rate 100mbit burst 14000 limit 1514000");
        namespaces.tc(0, &tbf);
    }
    let node = |end: usize, host: &str| {
        let mut command = namespaces.command(end, env!("CARGO_BIN_EXE_hyoshi"));
        command.args(["run", "saturated.toml", "--no-report", "--share-cpu", "--host", host]);
        command.args(["--record", &format!("{host}.hyo"), "--control", &format!("{host}.sock")]);
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("hyoshi")
    };
    let nodes = [node(0, "drone"), node(1, "station")];
    let recording = folder.join("drone.hyo");
    wait_for(&recording);
    std::thread::sleep(QUIET);
    let rest = Duration::from_secs(seconds).saturating_sub(QUIET);
    let bulk = (link != Link::Idle).then(|| {
        let own = std::env::current_exe().expect("this program");
        let mut command = namespaces.command(0, &own.display().to_string());
        command.env(ROLE, rest.as_millis().to_string()).process_group(0);
        command.spawn().expect("this program")
    });
    let outputs = nodes.map(|node| node.wait_with_output().expect("the node ends"));
    bulk.into_iter().for_each(|mut bulk: Child| drop(bulk.wait()));
    let mut measured = Measured { notes: outputs.iter().flat_map(notes).collect(), ..delays(folder) };
    if link != Link::Classes {
        let queue = namespaces.tc(0, &format!("-s qdisc show dev {DEVICE} root"));
        measured.notes.extend(queue.lines().nth(1).map(|line| format!("  the queue: {}", line.trim())));
        namespaces.tc(0, &format!("qdisc del dev {DEVICE} root"));
    }
    for host in ["drone", "station"] {
        let _ = std::fs::remove_file(folder.join(format!("{host}.hyo")));
    }
    measured
}

/// Waits until a node has begun its recording.
fn wait_for(recording: &PathBuf) {
    let began = WallClock::now();
    while std::fs::metadata(recording).map_or(0, |found| found.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(40), "the nodes do not start");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lines of a node's report about the network.
fn notes(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{text}");
    let about_classes =
        |line: &&str| line.contains("error at most") || line.contains(DEVICE) || line.contains("refused");
    text.lines().filter(about_classes).map(str::to_owned).collect()
}

/// From the sending to the arrival of each completion, without those of the quiet time.
fn delays(folder: &Path) -> Measured {
    let mut sent: HashMap<u64, Instant> = HashMap::new();
    let mut arrived: HashMap<u64, Instant> = HashMap::new();
    for host in ["drone", "station"] {
        let file = File::open(folder.join(format!("{host}.hyo"))).expect("a recording");
        let reader = RecordingReader::new(BufReader::new(file)).expect("a recording");
        for event in reader.map(|event| event.expect("a whole recording")) {
            match event.event {
                TraceEvent::Decision(DispatchDecision::Send(signal)) => drop(sent.insert(signal.number, signal.due)),
                TraceEvent::Input(Input::Signal(signal)) => drop(arrived.insert(signal.number, signal.due)),
                _ => {}
            }
        }
    }
    // The packets start after the quiet time, and the last completion may be on its way at the end.
    let last = sent.keys().max().copied().unwrap_or(0);
    let first = Instant::ZERO + Span::from_nanos(QUIET.as_nanos() as u64) + Span::from_millis(500);
    sent.retain(|number, at| *at > first && *number + 5 < last);
    // The agreement's error can be larger than a short delay.
    let delay = |(number, sent): (&u64, &Instant)| {
        arrived.get(number).map(|at| if at > sent { at.since(*sent) } else { Span::ZERO })
    };
    Measured { sent: sent.len(), delays: sent.iter().filter_map(delay).collect(), notes: Vec::new() }
}

/// Sends packets at a steady rate. A socket can fill only a part of the queue.
fn saturate(duration: Duration) {
    if let Err(refused) = set_own_policy(ThreadPolicy::Fifo(1)) {
        println!("the packets are sent at normal priority: {refused}");
    }
    let sockets: Vec<UdpSocket> = (0..16).map(|_| UdpSocket::bind((ADDRESSES[0], 0)).expect("a socket")).collect();
    sockets.iter().for_each(|socket| socket.set_nonblocking(true).expect("a socket that does not wait"));
    let (began, mut sent) = (WallClock::now(), 0u128);
    while began.elapsed() < duration {
        let due = began.elapsed().as_micros() * (BULK / 8 / PACKET) as u128 / 1_000_000;
        while sent < due {
            // A full queue drops it.
            let _ = sockets[sent as usize % 16].send_to(&[0; PACKET], (ADDRESSES[1], 9));
            sent += 1;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
