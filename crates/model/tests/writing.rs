//! A written system reads as the same system.

use std::path::{Path, PathBuf};

use hyoshi_model::{LatencyScope, LatencySetPoint, OperationId, Span, StartRates, Trigger, read, read_file, write};
use proptest::prelude::*;

fn round_trip(text: &str, dir: Option<&Path>) {
    let system = read(text, "first.toml", dir).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system;
    let written = write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    // Both in full would be too long to read.
    assert!(again == system, "{text}\n is not \n{written}");
    assert_eq!(write(&again), written);
}

#[test]
fn every_example_survives_being_written_and_read() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(&examples).unwrap().map(|entry| entry.unwrap().path());
    // broker.toml has a broker's limits.
    let is_system =
        |path: &PathBuf| path.extension().is_some_and(|end| end == "toml") && !path.ends_with("broker.toml");
    let systems: Vec<_> = files.filter(is_system).collect();
    assert!(systems.len() >= 4);
    for path in systems {
        round_trip(&read_file(&path).unwrap().text, Some(&examples));
    }
}

#[test]
fn start_rates_of_single_operations_survive() {
    let text = "name = 'start'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
                start = { track = '10Hz', 'poll.2' = '30.5ms' }\n\
                [operation.track]\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
                [operation.poll]\nrate = ['2Hz', '50Hz']\nwcet = '1ms'\ncount = 2\n\
                [operation.show]\nrate = ['4Hz', '20Hz']\nwcet = '1ms'\n";
    let system = read(text, "start.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let expected = [100_000, 500_000, 30_500, 250_000].map(Span::from_micros).to_vec();
    assert_eq!(system.feedback[0].start, StartRates::Given(expected));
    round_trip(text, None);
}

#[test]
fn latencies_of_templates_and_chains_survive() {
    let text = "name = 'latencies'\n[processor.main]\n[processor.other]\n\
                [feedback.main]\nalgorithm = 'FC-UL'\nutilisation = '70%'\n\
                latency = { of = ['poll', 'track'], quantile = '99.9%', at = '20ms' }\n\
                [feedback.other]\nalgorithm = 'FC-UL'\nutilisation = '70%'\ngains = { gl = 2.5 }\n\
                latency = { of = 'end', at = '0.1s' }\n\
                [operation.track]\non = 'main'\nrate = '10Hz'\nwcet = '1ms'\n\
                [operation.poll]\non = 'main'\nrate = ['2Hz', '50Hz']\nwcet = '1ms'\ncount = 2\n\
                [operation.grab]\non = 'other'\nrate = ['2Hz', '50Hz']\nwcet = '1ms'\n\
                [operation.show]\non = 'other'\nafter = { all = ['grab'] }\nwcet = '1ms'\n\
                [chain.end]\npath = ['grab', 'show']\ndeadline = '1s'\n";
    let system = read(text, "latencies.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let latencies = system.feedback.iter().map(|one| one.latency.clone().unwrap());
    let of = |of, quantile_ppm, at| LatencySetPoint { of, quantile_ppm, at: Span::from_millis(at) };
    let operations = LatencyScope::Operations((0..3).map(OperationId).collect());
    assert_eq!(latencies.collect::<Vec<_>>(), [of(operations, 999_000, 20), of(LatencyScope::Chain(0), 990_000, 100)]);
    assert_eq!(system.feedback[1].gains.gl, 2.5);
    round_trip(text, None);
}

#[test]
fn a_body_that_may_call_any_object_survives() {
    let text = "name = 'calls'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\ncount = 2\ncalls = 'any'\n\
                [operation.other]\nafter = { any = ['nav'] }\nwcet = '1ms'";
    let system = read(text, "calls.toml", None).unwrap().system;
    let calling: Vec<bool> = system.operations.iter().map(|one| one.calls_any).collect();
    assert_eq!(calling, [true, true, false]);
    round_trip(text, None);
}

#[test]
fn a_short_file_stays_short() {
    let text =
        "name = 'small'\n[operation.nav]\nevery = '10ms'\nwcet = '2ms'\ncount = 3\nstagger = 'even'\ncritical = true";
    let written = write(&read(text, "small.toml", None).unwrap().system);
    let (_, operation) = written.split_once("\n\n[operation.nav]\n").unwrap();
    assert!(operation.starts_with("every = \"10ms\"\ncount = 3\nstagger = \"even\"\nwcet"), "{operation}");
}

#[test]
fn the_endpoints_of_events_are_written() {
    let text = "name = 'offered'\n[event.a]\nendpoints = ['tcp/10.0.0.1:7000', 'unix//run/a']\ninsecure = true\n[event.b]\n\
                endpoints = ['tcp/10.0.0.1:7000', 'unix//run/a']\ninsecure = true\n[event.c]\n\
                [operation.x]\nevery = '1s'\nwcet = '1ms'\nsupplies = ['a', 'b', 'c']";
    let system = read(text, "offered.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let endpoints: Vec<usize> = system.events.iter().map(|event| event.endpoints.len()).collect();
    assert_eq!((endpoints, system.events[1].insecure, system.events[2].insecure), (vec![2, 2, 0], true, false));
    round_trip(text, None);
}

#[test]
fn an_operation_after_events_is_written_with_them_while_they_mean_its_trigger() {
    let text = "name = 'events'\n[event.'a/b']\npayload = '8B'\nkeep = 2\n[event.c]\n[operation.x]\nevery = '1s'\nwcet = '1ms'\n\
                supplies = ['a/b', 'c']\n[operation.y]\nevery = '1s'\nwcet = '1ms'\nsupplies = ['c']\n\
                [operation.all]\nafter = { event = '**' }\nwcet = '1ms'\n\
                [operation.some]\nafter = { event = ['c'], from = ['y'] }\nwcet = '1ms'";
    let system = read(text, "events.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let written = write(&system);
    for line in [
        "[event.\"a/b\"]\npayload = \"8B\"\nkeep = 2\n",
        "supplies = [\"a/b\", \"c\"]\n",
        "[operation.all]\nafter = { event = [\"a/b\", \"c\"] }\n",
        "[operation.some]\nafter = { event = [\"c\"], from = [\"y\"] }\n",
    ] {
        assert!(written.contains(line), "{line}\n{written}");
    }
    // A trigger that was changed in memory is kept.
    let other = system.with(|system| system.operations[2].trigger = Trigger::All(vec![OperationId(0), OperationId(1)]));
    let line = "[operation.all]\nafter = { all = [{ event = [\"a/b\", \"c\"], from = [\"x\"] }, \
                { event = [\"c\"], from = [\"y\"] }] }\n";
    assert!(write(&other).contains(line), "{}", write(&other));
    round_trip(text, None);
}

#[test]
fn groups_of_events_are_written_as_read() {
    let head = "name = 'events'\n[event.'a/b']\n[event.c]\n[operation.x]\nevery = '1s'\nwcet = '1ms'\ncount = 2\n\
                supplies = ['a/b', 'c']\n[operation.y]\nevery = '1s'\nwcet = '1ms'\nsupplies = ['c']\n\
                [operation.z]\nevery = '1s'\nwcet = '1ms'\n[operation.last]\nwcet = '1ms'\nafter = ";
    for (given, written) in [
        ("{ event = 'c', except = 'y' }", "{ event = [\"c\"], from = [\"x.1\", \"x.2\"] }"),
        ("{ event = '**', except = ['a/*', 'x.1'] }", "{ event = [\"c\"], from = [\"x.2\", \"y\"] }"),
        ("{ event = '**', except = ['x'] }", "{ event = [\"c\"], from = [\"y\"] }"),
        ("{ all = [{ event = 'c' }] }", "{ event = [\"c\"] }"),
        ("{ all = ['z', { event = 'a/b' }] }", "{ all = [\"z\", { event = [\"a/b\"] }] }"),
        ("{ all = [{ event = 'c', from = ['y'] }, 'z'] }", "{ all = [\"z\", { event = [\"c\"], from = [\"y\"] }] }"),
        (
            "{ all = ['z', { event = 'c' }, { any = ['z', { event = 'a/b' }] }], within = '2ms' }",
            "{ all = [\"z\", { event = [\"a/b\", \"c\"] }, { any = [\"z\", { event = [\"a/b\", \"c\"], \
             from = [\"x.1\", \"x.2\"] }] }], within = \"2ms\" }",
        ),
        ("{ all = ['z', 'y'], within = '2ms' }", "{ all = [\"z\", \"y\"], within = \"2ms\" }"),
        (
            "{ all = [{ any = ['z', 'x.2'] }, { any = ['y'] }] }",
            "{ all = [{ any = [\"x.2\", \"z\"] }, { any = [\"y\"] }] }",
        ),
        ("{ any = ['z', { event = 'a/b' }] }", "{ any = [\"z\", { event = [\"a/b\"] }] }"),
        ("{ any = ['x.2', { event = 'a/b' }] }", "{ any = [\"x.2\", \"x.1\", { event = [\"a/b\"] }] }"),
        ("{ any = ['y', { event = 'c', from = ['y'] }] }", "{ any = [\"y\", { event = [\"c\"], from = [\"y\"] }] }"),
        ("{ any = [{ event = 'a/b' }, { event = 'c', from = ['y'] }] }", "{ event = [\"a/b\", \"c\"] }"),
    ] {
        let text = format!("{head}{given}");
        let system = read(&text, "groups.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{given}")).system;
        assert!(write(&system).contains(&format!("after = {written}\n")), "{given}:\n{}", write(&system));
        round_trip(&text, None);
    }
}

#[test]
fn copies_and_chosen_hops_are_written_as_read() {
    let head = "name = 'hops'\n[operation.x]\nevery = '1s'\nwcet = '1ms'\n[operation.copy]\nafter = { all = ['x'] }\n\
                wcet = '1ms'\ncount = 2\n[operation.last]\nwcet = '1ms'\nafter = ";
    for (given, written) in [
        ("{ first = ['copy'] }", "{ first = [\"copy.1\", \"copy.2\"] }"),
        ("{ first = ['x', 'copy.2'] }", "{ first = [\"x\", \"copy.2\"] }"),
        ("{ chosen = ['x'] }", "{ chosen = [\"x\"], probability = \"50.0000%\" }"),
        (
            "{ chosen = ['copy'], probability = '0.5%' }",
            "{ chosen = [\"copy.1\", \"copy.2\"], probability = \"0.5000%\" }",
        ),
    ] {
        let text = format!("{head}{given}");
        let system = read(&text, "hops.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{given}")).system;
        assert!(write(&system).contains(&format!("after = {written}\n")), "{given}:\n{}", write(&system));
        round_trip(&text, None);
    }
}

/// The shortest period of an operation, and how much longer the longest is.
fn range(draw: &[u64; 12]) -> (u64, u64) {
    (1_000_000 + draw[5] % 100_000_000, draw[6] % 3 * 7_001)
}

/// One operation's lines, from a few numbers.
fn operation(index: usize, draw: &[u64; 12]) -> String {
    let triggered = index > 0 && draw[0].is_multiple_of(3);
    let requested = is_requested(index, draw);
    let many = draw[2].is_multiple_of(3) && !requested;
    let burst = many && !triggered && (draw[1] / 2).is_multiple_of(3);
    let mut lines = vec![format!("[operation.'op {index}']"), format!("on = 'p{}'", draw[1] % 2)];
    if triggered && draw[6].is_multiple_of(2) {
        lines.push(format!("after = {{ {} }}", selections(index, draw)));
        lines.push(format!("guard = '{}'", ["off", "on", "idle"][draw[4] as usize % 3]));
    } else if triggered {
        let kind = ["all", "any", "chosen"][draw[2] as usize % 3];
        let from: Vec<String> =
            (0..index).filter(|from| draw[3] >> from & 1 == 1).map(|n| format!("'op {n}'")).collect();
        let from = if from.is_empty() { "'op 0'".into() } else { from.join(", ") };
        lines.push(format!("after = {{ {kind} = [{from}] }}"));
        lines.push(format!("guard = '{}'", ["off", "on", "idle"][draw[4] as usize % 3]));
    } else if requested {
        lines.push("called = true".into());
        lines.push(format!("{} = '{}us'", ["deadline", "min_interval"][draw[2] as usize % 2], 5_000 + draw[3] % 9_000));
    } else {
        let (least, more) = range(draw);
        lines.push(format!("every = ['{least}ns', '{}ns']", least + more));
        if burst {
            lines.push(format!("burst = {{ jobs = {}, within = '{}us' }}", 1 + draw[3] % 4, draw[7] % 1_000));
        } else {
            lines.push(format!("jitter = '{}us'", draw[7] % 1_000));
        }
        if !burst || draw[8].is_multiple_of(2) {
            lines.push(format!("phase = '{}us'", draw[8] % 1_000_000));
        }
        if draw[9].is_multiple_of(4) {
            lines.push(format!("repeat = {{ legs = {}, critical = {} }}", 1 + draw[9] % 5, draw[9] % 2));
        }
    }
    if triggered && draw[8].is_multiple_of(3) {
        lines.push(format!("timeout = '{}us'\nlifespan = '{}us'", 1 + draw[9] % 90_000, 1 + draw[8] % 7_000));
    }
    if !draw[7].is_multiple_of(3) {
        lines.push(format!("on_miss = '{}'", ["continue", "stop", "skip-next"][draw[7] as usize % 3]));
    }
    if many && !burst {
        lines.push(format!("count = {}", 1 + draw[3] % 4));
        if !triggered {
            lines.push(format!("stagger = '{}'", ["even", "1.7ms"][draw[4] as usize % 2]));
        }
    }
    lines.push(format!("supplies = ['{}s', 'group {index}/x/x/x/x/x/{}']", "s/".repeat(index), draw[0] % 2));
    lines.push(format!("wcet = '{}us'", 100 + draw[10] % 3_000));
    match draw[11] % 5 {
        0 => lines.push("takes = { uniform = ['1us', '90us'] }".into()),
        1 => lines.push("takes = { list = ['1us', '2us'] }".into()),
        2 => lines.push("takes = { normal = { mean = '50us', deviation = '5us' } }\nbcet = '7us'".into()),
        3 if !requested => lines.push(format!("deadline = '{}us'", 5_000 + draw[10] % 9_000)),
        _ => {
            lines.push(format!("offset = '{}us'\nimportance = {}\nuses = {{ r = '3us' }}", draw[9] % 999, draw[8] % 9))
        }
    }
    if draw[6].is_multiple_of(3) {
        let (other, flush) = (["b", "a"][draw[1] as usize % 2], ["deadline", "completion"][draw[7] as usize % 2]);
        lines.push(format!("payload = '{}B'", 1 + draw[8] % 100));
        lines.push(format!("replicate = {{ to = ['{other}'], flush = '{flush}' }}"));
    }
    lines.push(format!("critical = {}", !draw[9].is_multiple_of(4) && draw[5].is_multiple_of(2)));
    lines.join("\n")
}

/// The selected events of a triggered operation: only those of earlier ones, which have as many parts as their position
/// demands.
fn events(index: usize, draw: &[u64; 12]) -> String {
    let patterns = (0..index).filter(|from| *from == 0 || draw[3] >> from & 1 == 1).map(|from| {
        let parts: Vec<&str> = (0..=from).map(|part| if draw[7] >> part & 1 == 1 { "*" } else { "s" }).collect();
        let parts = parts.join("/");
        if draw[8] >> from & 1 == 1 { format!("'group {from}/**'") } else { format!("'{parts}'") }
    });
    let from = if draw[9].is_multiple_of(3) { ", from = ['op 0']" } else { "" };
    format!("event = [{}]{from}", patterns.collect::<Vec<_>>().join(", "))
}

/// Events alone, or in groups.
fn selections(index: usize, draw: &[u64; 12]) -> String {
    let events = events(index, draw);
    let except = if draw[10].is_multiple_of(7) { ", except = ['group 0/**']" } else { "" };
    let operation = format!("'op {}'", draw[9] % index as u64);
    match draw[10] % 5 {
        0 => format!("any = [{operation}, {{ {events} }}]"),
        1 => format!("all = [{operation}, {{ {events} }}]"),
        2 => format!("all = [{{ {events} }}, {{ event = ['group 0/**', 's']{except} }}, {{ any = [{operation}] }}]"),
        3 => format!(
            "all = [{operation}, {{ any = ['op 0', {{ {events} }}] }}, {{ event = ['s', 'group 0/**']{except} }}], within = '1ms'"
        ),
        _ => events,
    }
}

/// Whether requests release it.
fn is_requested(index: usize, draw: &[u64; 12]) -> bool {
    index > 0 && draw[0] % 3 == 1
}

fn epoch(index: usize, draw: &[u64; 12], operations: &[[u64; 12]]) -> String {
    let mut lines = vec![format!("[[epoch]]\nat = '{index}s'\nname = 'region {index}'\n[epoch.set]")];
    for (position, operation) in operations.iter().enumerate().filter(|(position, _)| draw[0] >> position & 1 == 1) {
        let periodic = position == 0 || operation[0] % 3 == 2;
        let instance =
            if operation[2].is_multiple_of(3) && !is_requested(position, operation) && draw[3].is_multiple_of(2) {
                ".1"
            } else {
                ""
            };
        let set = |key: &str, value: &str| format!("'operation.op {position}{instance}.{key}' = {value}");
        lines.push(set("enabled", if draw[2].is_multiple_of(2) { "true" } else { "false" }));
        lines.push(set("wcet", &format!("'{}us'", 3_100 + draw[4] % 500)));
        if periodic && draw[1].is_multiple_of(2) {
            // A range cannot be left.
            let within = range(operation);
            let every =
                if within.1 > 0 { within.0 + draw[5] % (within.1 + 1) } else { 1_000 * (2_000 + draw[5] % 70_000) };
            lines.push(set("every", &format!("'{every}ns'")));
        }
        if draw[1].is_multiple_of(3) {
            lines.push(set("takes", "'80us'"));
        }
        if draw[1].is_multiple_of(5) {
            lines.push(set("deadline", "'44ms'"));
        }
    }
    let set = |key: &str, value: String| format!("'{key}' = {value}");
    match draw[6] % 4 {
        0 => lines.push(set("link.b-a.delay", format!("['{}us', '5us']", draw[7] % 6))),
        1 => lines.push(set("link.a-b.loss", format!("'{}.{}%'", draw[7] % 100, draw[8] % 100))),
        2 => lines.push(set(
            &format!("host.{}.enabled", ["a", "b"][draw[7] as usize % 2]),
            draw[8].is_multiple_of(2).to_string(),
        )),
        _ => {}
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_means_what_was_read(
        operations in prop::collection::vec(any::<[u64; 12]>(), 1..6),
        epochs in prop::collection::vec(any::<[u64; 12]>(), 0..4),
        head in any::<[u64; 12]>(),
    ) {
        let mut text = format!(
            "name = 'a \\\"b\\\" \\\\ c'\nseed = {}\nduration = '7s'\n[host.a]\nendpoints = ['tcp/a:{}', 'unix//run/a']\n\
             insecure = true\nclock_error = '{}us'\n\
             network = [{{ device = 'eth0', rate = '{}kbit/s' }}, {{ device = 'eth1', rate = '1.5Gbit/s', classes = [\
             {{ dscp = ['EF', '{}'], share = '{}%', ceiling = '60%' }}, {{ dscp = ['cs6'], share = '1.5%' }}] }}]\n[host.b]\nenabled = {}\nendpoints = ['tls/[fd00::{}]:1']\nzenoh = 'tcp/[::1]:7450'\n[host.c]\nrouter = 'tcp/[::1]:7460'\n[processor.p0]\nhost = 'a'\n\
             cap = '{}%'\ncancel = {}\npreemption = 'full'\n[processor.p1]\nhost = 'b'\nstrategy = ['RMS', 'MUF']\n\
             switch = {{ margin = '{}us' }}\ncosts = {{ timer = '{}ns' }}\n[resource.r]\n\
             [[link]]\nbetween = ['a', 'b']\ndelay = ['1us', '{}us']\nloss = '{}%'\n",
            head[0] >> 1, 1 + head[6] % 65_535, head[7] % 2_000, 100 + head[3] % 100_000, 57 + head[1] % 7, 1 + head[2] % 59, head[8] % 2 == 0, 1 + head[9] % 9, 1 + head[1] % 100, head[2] % 2 == 0, head[3] % 1_000, head[4] % 3, 1 + head[5] % 3,
            head[10] % 3 * 7,
        );
        let all = operations.iter().enumerate().map(|(index, draw)| operation(index, draw));
        for (index, draw) in operations.iter().enumerate() {
            let payload = draw[4] % 2 * 9;
            text += &format!("[event.'{}s']\npayload = '{payload}B'\nkeep = {}\n", "s/".repeat(index), draw[4] % 3);
            // An event that nothing supplies may only be left alone.
            text += &format!("[event.'group {index}/x/x/x/x/x/{}']\n[event.'lonely {index}/x/x/x/x/x/x']\n", draw[0] % 2);
        }
        text.extend(all.map(|one| one + "\n"));
        text.extend(epochs.iter().enumerate().map(|(index, draw)| epoch(index, draw, &operations) + "\n"));
        round_trip(&text, None);
    }
}
