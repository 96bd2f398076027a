//! `hyoshi proxy` between programs of omniORB, and proxies of a system file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::common::broker::wait_for;
use crate::common::loopback::unused_address;
use crate::common::programs::{Program, build};
use crate::common::{Place, alone};

/// The directory of omniORB's server and client of `peers.idl`. If omniORB is not installed, `None`, and a printed line.
fn omniorb() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| build("omniorb")).as_deref()
}

/// A server that ends with this value, and its reference.
fn server(omniorb: &Path, options: &[&str]) -> (Program, String) {
    let mut command = Command::new(omniorb.join("server"));
    command.args(["-ORBgiopMaxMsgSize", "8388608", "-ORBendPoint", "giop:tcp:127.0.0.1:0"]).args(options);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // It ends when this pipe does.
    let open = child.stdin.take();
    let program = Program::follow(child);
    std::mem::forget(open);
    let reference = program.line().strip_prefix("ready ").unwrap().to_owned();
    (program, reference)
}

/// A proxy, and the reference that it printed.
fn proxy(place: &Place, words: &str) -> (Program, String) {
    let proxy = Program::start(&mut place.command(&format!("proxy --format json {words}")));
    let first: Value = serde_json::from_str(&proxy.line()).unwrap();
    (proxy, first["ior"].as_str().unwrap().to_owned())
}

/// Interrupts the proxy, and returns its report.
fn report(proxy: Program) -> Value {
    let asked = Command::new("kill").args(["-INT", &proxy.child.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let (code, lines) = proxy.end();
    assert_eq!(code, Some(0));
    serde_json::from_str(lines.last().unwrap()).unwrap()
}

fn operation<'a>(report: &'a Value, name: &str) -> &'a Value {
    let operations = report["operations"].as_array().unwrap();
    operations.iter().find(|one| one["operation"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn count(report: &Value, name: &str, what: &str) -> u64 {
    operation(report, name)[what].as_u64().unwrap()
}

/// Every type, exceptions, oneways, forwarding, code sets, large messages in fragments, calls back.
#[test]
fn omniorb_programs_call_each_other_through_a_proxy_in_each_version() {
    let Some(omniorb) = omniorb() else { return };
    for giop in ["1.2", "1.1", "1.0"] {
        let place = Place::new();
        let (_server, reference) = server(omniorb, &["-ORBmaxGIOPVersion", giop]);
        place.write("server.ior", &reference);
        let (proxy, through) = proxy(&place, "--to server.ior --ior proxy.ior");
        assert_eq!(place.read("proxy.ior").trim(), through);
        assert_ne!(through, reference);
        let mut client = Command::new(omniorb.join("client"));
        client.arg(&through).args(["-ORBgiopMaxMsgSize", "8388608", "-ORBendPoint", "giop:tcp:127.0.0.1:0"]);
        client.args(["-ORBmaxGIOPVersion", giop]).stderr(Stdio::null());
        if giop != "1.2" {
            client.arg("--narrow");
        }
        if giop == "1.1" {
            // omniORB aligns from the start of each fragment, and cannot read its own messages.
            client.args(["--skip", "octets, 1048577"]);
        }
        let (code, lines) = Program::start(&mut client).end();
        let failed: Vec<_> = lines.iter().filter(|line| line.starts_with("FAILED")).collect();
        assert!(code == Some(0) && lines.last().is_some_and(|line| line.contains("checks, 0 failed")), "{failed:#?}");
        let report = report(proxy);
        assert!(count(&report, "note", "passed") > 0 && count(&report, "note", "failed") == 0, "{report:#}");
        assert!(count(&report, "raise_detailed", "passed") > 0, "{report:#}");
        let latency = &operation(&report, "echo_long")["latency"];
        assert!(latency["count"].as_u64() > Some(0) && latency["p50_ns"].as_u64() > Some(0), "{report:#}");
        assert_eq!((&report["forwarded_past"], &report["clients_displaced"]), (&0.into(), &0.into()), "{report:#}");
    }
}

#[test]
fn behaviours_of_a_proxy_reach_an_omniorb_client_as_exceptions_and_a_dead_server_too() {
    let Some(omniorb) = omniorb() else { return };
    let place = Place::new();
    let idl = concat!(env!("CARGO_MANIFEST_DIR"), "/../interop/idl/peers.idl");
    let ((first, reference), (_second, other)) = (server(omniorb, &[]), server(omniorb, &[]));
    place.write("server.ior", &reference);
    place.write("other.ior", &other);
    let behaviours = "--operation echo_short=refuse:NO_PERMISSION --operation echo_long=redirect:other.ior \
                      --operation echo_octet=cached:60s --operation echo_ushort=thin:1/2";
    let (proxy, _) = proxy(&place, &format!("--to server.ior --ior proxy.ior {behaviours}"));
    let call = |operation: &str| {
        place.hyoshi(&format!("call proxy.ior {operation} 1 2 --idl {idl} --interface Peers::Peer --format json"))
    };
    let refused = call("echo_short").exits(1);
    assert!(refused.out.contains("NO_PERMISSION") && refused.out.contains("1213792416"), "{}", refused.out);
    for _ in 0..2 {
        call("echo_octet").exits(0);
        call("echo_ulong").exits(0);
    }
    call("echo_ushort").exits(0);
    assert!(call("echo_ushort").exits(1).out.contains("TRANSIENT"));
    // The server dies: only other objects and the cache answer.
    drop(first);
    assert!(call("echo_ulong").exits(1).out.contains("TRANSIENT"));
    call("echo_long").exits(0);
    call("echo_octet").exits(0);
    let report = report(proxy);
    assert_eq!((count(&report, "echo_octet", "passed"), count(&report, "echo_octet", "cached")), (1, 2), "{report:#}");
    assert_eq!((count(&report, "echo_ulong", "passed"), count(&report, "echo_ulong", "failed")), (3, 1), "{report:#}");
    assert_eq!(count(&report, "echo_ushort", "refused"), 1, "{report:#}");
    assert!(report["connects_failed"].as_u64() >= Some(1), "{report:#}");
}

#[test]
fn mistakes_in_flags_of_a_proxy_are_refused_with_a_remedy() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let to = "--to corbaloc::127.0.0.1:1/Thing";
    for (words, message, help) in [
        (format!("{to} --listen {address}"), "cannot listen", "--listen HOST:PORT"),
        (format!("{to} --operation a=pass --operation a=refuse"), "--operation a=... is there twice", "one behaviour"),
        (format!("{to} --operation a=redirect:nowhere.ior"), "cannot read nowhere.ior", "corbaloc"),
        (format!("{to} --operation a=stop"), "unknown behaviour \"stop\"", "thin:1/4"),
        (format!("{to} --operation a"), "write NAME=BEHAVIOUR", "delay:5ms"),
        (format!("{to} --connections 0"), "--connections 0 is out of range", "1 to 10000"),
        ("--to corbaloc:ssliop:127.0.0.1:1/Thing".to_owned(), "plain TCP", "does not support TLS"),
    ] {
        let ended = place.hyoshi(&format!("proxy {words}")).exits(2);
        assert!(ended.err.contains(message) && ended.err.contains(help), "{words}: {}", ended.err);
    }
}

/// A naming service stands for a program that cannot be rebuilt.
#[test]
fn a_region_sets_the_behaviour_of_a_proxy_of_the_file_and_its_clients_notice() {
    let _alone = alone();
    let place = Place::new();
    let (service, gate) = (unused_address(), unused_address());
    let naming = Program::start(&mut place.command(&format!("naming --memory --listen iiop://{service}")));
    naming.line();
    let file = format!(
        "name = 'gate'
        duration = '10min'
        [operation.beat]
        rate = '10Hz'
        wcet = '0.1ms'
        [delegate.names]
        to = 'corbaloc:iiop:1.2@{service}/NameService'
        listen = 'tcp/{gate}'
        behaviour = {{ bind_new_context = 'refuse:NO_PERMISSION' }}
        [condition.mode]
        value = 0
        [contract.gate]
        period = '10ms'
        watch = {{ mode = {{ of = 'condition.mode' }}, calls = {{ of = 'delegate.names.rate' }} }}
        [[contract.gate.region]]
        name = 'closed'
        enter = 'mode > 0'
        do = [{{ set = 'delegate.names.*', to = 'refuse:NO_RESOURCES' }}]
        [[contract.gate.region]]
        name = 'open'"
    );
    place.write("gate.toml", &file);
    place.hyoshi("check gate.toml").exits(0);
    let mut run = place.command("run gate.toml --control gate.sock --format json --no-report");
    let run = Program::start(&mut run);
    let at = format!("--at unix:{}", place.path().join("gate.sock").display());
    let names = |words: &str| place.hyoshi(&format!("naming {words} --at corbaloc:iiop:1.2@{gate}/NameService"));
    wait_for(|| place.hyoshi(&format!("contract set mode 0 {at}")).code == 0).expect("the run has begun");
    names("list").exits(0);
    assert!(names("context deep").err.contains("NO_PERMISSION"));
    place.hyoshi(&format!("contract set mode 1 {at}")).exits(0);
    wait_for(|| names("list").err.contains("NO_RESOURCES")).expect("the region refuses");
    place.hyoshi(&format!("contract set mode 0 {at}")).exits(0);
    wait_for(|| names("list").code == 0).expect("the file's behaviour applies again");
    // Another run cannot have its endpoint.
    let taken = place.hyoshi("run gate.toml --duration 1s --no-report").exits(2).err;
    assert!(taken.contains("the proxy of delegate `names`") && taken.contains("set another `listen`"), "{taken}");
    place.hyoshi(&format!("node stop {at}")).exits(0);
    let (_, lines) = run.end();
    let report: Value = serde_json::from_str(&lines.join("\n")).unwrap();
    let text = report.to_string();
    assert!(
        text.contains("names: list: ") && text.contains("names: bind_new_context: 1 requests, 1 refused"),
        "{text}"
    );
}
