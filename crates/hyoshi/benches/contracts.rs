//! From a condition to the action of its region: `cargo bench -p hyoshi --bench contracts`, as root.
//!
//! Two processes, each `hyoshi run --host` with a CPU of its own if there are two, connected over loopback. Each 37 ms an
//! epoch sets a condition on the host `station`, which evaluates a contract each 10 ms. Its region limits the rate of an
//! operation there, and of one on the host `drone`. The figures are times from the epoch to the change of the rate, by
//! both recordings: they contain up to a period until the evaluation. Both processes have the same CLOCK_MONOTONIC; the
//! figures contain the error of their agreement on instant 0.

use std::fmt::Write as _;
use std::fs::File;
use std::io::BufReader;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use hyoshi_model::{Instant, Span};
use hyoshi_trace::recording::RecordingReader;
use hyoshi_trace::{DispatchDecision, TraceEvent};

/// Between two epochs: their phases in the contract's period differ.
const STEP: u64 = 37;

fn main() {
    // `cargo test --benches` only checks that it starts.
    let short = std::env::args().any(|argument| argument == "--test");
    let (rounds, epochs) = if short { (1, 20) } else { (5, 120) };
    let folder = std::env::temp_dir().join(format!("hyoshi-contracts-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a directory for the recordings");
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        run(&folder, epochs);
        near.extend(delays(&folder, "station", epochs));
        far.extend(delays(&folder, "drone", epochs));
    }
    println!("host             changes        p50         p99         max");
    for (name, mut delays) in [("that evaluates", near), ("another one", far)] {
        delays.sort_unstable();
        let at = |part: usize| match delays.len() {
            0 => "-".to_owned(),
            count => format!("{:.3}ms", delays[(count - 1) * part / 100].as_nanos() as f64 / 1e6),
        };
        println!(
            "{name:<14} {:5} of {} {:>10}  {:>10}  {:>10}",
            delays.len(),
            rounds * epochs,
            at(50),
            at(99),
            at(100)
        );
    }
    println!("goals: p99 under 1 ms plus the period of 10 ms on one host, and 10 ms plus the period on another one");
    let _ = std::fs::remove_dir_all(folder);
}

fn system(epochs: usize) -> String {
    let free = || TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("an address");
    let second = usize::from(std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1));
    let mut text = format!(
        r#"
name = "contracts"
duration = "{}ms"
[host.drone]
endpoints = ["tcp/{}"]
[host.station]
endpoints = ["tcp/{}"]
[processor.airframe]
host = "drone"
cpu = {second}
[processor.ground]
host = "station"
cpu = 0
[operation.sense]
on = "airframe"
rate = ["5Hz", "50Hz"]
wcet = "0.1ms"
[operation.show]
on = "ground"
rate = ["5Hz", "50Hz"]
wcet = "0.1ms"
[condition.mode]
value = 0
[contract.mode]
on = "ground"
period = "10ms"
watch = {{ mode = {{ of = "condition.mode" }} }}
[[contract.mode.region]]
name = "slow"
enter = "mode > 0.5"
do = [{{ set = "operation.sense.rate", most = "10Hz" }}, {{ set = "operation.show.rate", most = "10Hz" }}]
[[contract.mode.region]]
name = "fast"
"#,
        1_000 + STEP * (epochs as u64 + 3),
        free(),
        free(),
    );
    for epoch in 0..epochs {
        let (at, value) = (begin(epoch).as_nanos() / 1_000_000, (epoch + 1) % 2);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[[epoch]]\nat = \"{at}ms\"\nset = {{ \"condition.mode.value\" = {value} }}");
    }
    text
}

fn begin(epoch: usize) -> Instant {
    Instant::ZERO + Span::from_millis(1_000 + STEP * epoch as u64)
}

fn run(folder: &Path, epochs: usize) {
    std::fs::write(folder.join("contracts.toml"), system(epochs)).expect("the system's file");
    let node = |host: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hyoshi"));
        command.args(["run", "contracts.toml", "--no-report", "--share-cpu", "--host", host]);
        command.args(["--record", &format!("{host}.hyo"), "--control", &format!("{host}.sock")]);
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hyoshi")
    };
    for node in [node("drone"), node("station")] {
        let output = node.wait_with_output().expect("the node ends");
        assert!(output.status.code().is_some_and(|code| code < 2), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// From each epoch to the change of the rate on a host.
fn delays(folder: &Path, host: &str, epochs: usize) -> Vec<Span> {
    let path = folder.join(format!("{host}.hyo"));
    let file = BufReader::new(File::open(&path).expect("a recording"));
    let recording = RecordingReader::new(file).expect("a recording");
    let mut changes = Vec::new();
    for event in recording {
        let event = event.expect("an event");
        if let TraceEvent::Decision(DispatchDecision::Retime { .. }) = event.event {
            changes.push(event.now);
        }
    }
    let _ = std::fs::remove_file(path);
    let within = |epoch: usize| changes.iter().find(|at| (begin(epoch)..begin(epoch + 1)).contains(at));
    (0..epochs).filter_map(|epoch| Some(within(epoch)?.since(begin(epoch)))).collect()
}
