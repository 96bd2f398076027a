//! `hyoshi naming`: the service as a process that is killed and started again, its clients, and those of omniORB.

use crate::common;

use std::net::SocketAddrV4;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::broker::wait_for;
use common::loopback::unused_address;
use common::said::Said;
use common::{Ended, Place};
use hyoshi_naming::naming_context::NotFoundReason;
use hyoshi_naming::{NameError, Naming, NamingContext, NamingContextExt, NamingContextExtStub, NamingContextStub};
use hyoshi_orb::{Object, ObjectRef, Orb};
use serde_json::json;

/// A service that ends with the test.
struct Service {
    child: Child,
    /// Its corbaloc.
    at: String,
    reference: String,
}

impl Service {
    /// Listens at an address, and keeps its names in `names`.
    fn start(place: &Place, address: SocketAddrV4, more: &str) -> Service {
        let mut command = place.command(&format!("naming --listen iiop://{address} {more}"));
        if !more.contains("--memory") {
            command.args(["--store", "names"]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = Said::by(child.stdout.take().unwrap());
        let at = said.line().unwrap_or_default();
        let reference = said.line().unwrap_or_default();
        assert_eq!(at, format!("corbaloc:iiop:1.2@{address}/NameService"));
        assert!(reference.starts_with("IOR:"), "{reference}");
        Service { child, at, reference }
    }

    fn address(&self) -> SocketAddrV4 {
        self.at.trim_start_matches("corbaloc:iiop:1.2@").trim_end_matches("/NameService").parse().unwrap()
    }

    /// At once, whatever it was doing. Another one can listen at its address.
    fn kill(mut self) -> SocketAddrV4 {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.address()
    }

    fn ask(&self, place: &Place, words: &str) -> Ended {
        place.hyoshi(&format!("naming {words} --at {}", self.at))
    }

    fn names(&self, orb: &Orb) -> Naming {
        Naming::at(orb, &self.at).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended as the test wanted it to.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn it_listens_at_unix_sockets_too_and_refuses_other_schemes() {
    let place = Place::new();
    let socket = place.path().join("names.sock");
    let mut command = place.command(&format!("naming --memory --listen unix:{}", socket.display()));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = Said::by(child.stdout.take().unwrap());
    let (at, reference) = (said.line().unwrap_or_default(), said.line().unwrap_or_default());
    let _service = Service { child, at: at.clone(), reference };
    assert_eq!(at, format!("corbaloc:omniunix:{}:/NameService", socket.display()));
    place.hyoshi(&format!("naming context plant --at {at}")).exits(0);
    assert_eq!(place.hyoshi(&format!("naming list --at {at}")).exits(0).out, "plant/\n");
    for bad in ["tls://127.0.0.1:0", "127.0.0.1:0", "ssliop:127.0.0.1:0"] {
        let refused = place.hyoshi(&format!("naming --memory --listen {bad}")).exits(2).err;
        assert!(refused.contains(&format!("\"{bad}\" is not an endpoint: iiop://host:port")), "{refused}");
    }
}

/// A reference that nobody answers to, of any octets.
const NOWHERE: &str = "corbaloc:iiop:1.2@127.0.0.1:9/Nowhere";

fn nowhere(orb: &Orb) -> ObjectRef {
    orb.resolve_unchecked::<dyn Object>(NOWHERE).unwrap()
}

#[test]
fn names_are_bound_listed_resolved_and_unbound_from_the_shell() {
    let place = Place::new();
    let service = Service::start(&place, unused_address(), "--ior root.ior");
    assert_eq!(place.read("root.ior").trim(), service.reference);
    let refused = service.ask(&place, &format!("bind plant/tracker.service {NOWHERE}")).exits(1);
    assert!(refused.err.contains("nothing is bound to the first part of `plant/tracker.service`"), "{}", refused.err);
    service.ask(&place, &format!("bind -p plant/tracker.service {NOWHERE}")).exits(0);
    service.ask(&place, "context plant/empty").exits(0);
    assert_eq!(service.ask(&place, "list").exits(0).out, "plant/\n");
    assert_eq!(service.ask(&place, "list plant").exits(0).out, "empty/\ntracker.service\n");
    let all = service.ask(&place, "list -r").exits(0).out;
    assert_eq!(all, "plant/\nplant/empty/\nplant/tracker.service\n");
    let json = service.ask(&place, "list plant --format json").exits(0).json();
    assert_eq!(json["names"][0], json!({ "name": "empty", "context": true }));
    let before = place.hyoshi(&format!("naming --format json list plant --at {}", service.at)).exits(0).json();
    assert_eq!(before["names"], json["names"], "flags of all verbs may stand before the verb");
    let refused = place.hyoshi("naming --memory list plant").exits(2);
    assert!(refused.err.contains("--memory before `list` is a flag of the service"), "{}", refused.err);
    let json = service.ask(&place, "resolve plant/tracker.service --format json").exits(0).json();
    assert!(json["ior"].as_str().unwrap().starts_with("IOR:"), "nobody needs to answer there: {json}");
    let again = service.ask(&place, &format!("bind plant/tracker.service {NOWHERE}")).exits(1);
    assert!(again.err.contains("already") && again.err.contains("--replace"), "{}", again.err);
    service.ask(&place, &format!("bind --replace plant/tracker.service {}", service.at)).exits(0);
    let ior = service.ask(&place, "resolve plant/tracker.service").exits(0).out;
    assert!(ior.starts_with("IOR:"), "{ior}");
    let full = service.ask(&place, "unbind --destroy plant").exits(1);
    assert!(full.err.contains("has bindings"), "{}", full.err);
    service.ask(&place, "unbind plant/tracker.service").exits(0);
    service.ask(&place, "unbind --destroy plant/empty").exits(0);
    assert_eq!(service.ask(&place, "list plant").exits(0).out, "");
    let gone = service.ask(&place, "unbind plant/tracker.service --format json").exits(1).json();
    assert!(gone["errors"][0]["message"].as_str().unwrap().contains("is not found"));
}

#[test]
fn nothing_that_was_answered_is_lost_when_the_service_is_killed() {
    let place = Place::new();
    let mut address = unused_address();
    let mut kept: Option<String> = None;
    for round in 0..4 {
        let service = Service::start(&place, address, "");
        // Connections to the one that was killed are not to be met: what was sent over them may have been done.
        let orb = Orb::client().unwrap();
        let names = service.names(&orb);
        if let Some(reference) = &kept {
            // References to contexts are good across restarts.
            let plant = Naming::at(&orb, reference).unwrap();
            assert_eq!(plant.list(100).unwrap().0.len(), 10 * round);
            plant.unbind("0").unwrap();
            plant.bind("0", &nowhere(&orb)).unwrap();
        } else {
            let plant = names.new_context("plant.kind").unwrap();
            kept = Some(plant.to_string());
        }
        for number in 0..10 {
            names.bind(&format!("plant.kind/{}", 10 * round + number), &nowhere(&orb)).unwrap();
        }
        address = service.kill();
    }
    let service = Service::start(&place, address, "");
    let orb = Orb::client().unwrap();
    let (listed, more) = service.names(&orb).enter("plant.kind").unwrap().list(1000).unwrap();
    assert_eq!((listed.len(), more), (40, false));
}

#[test]
fn a_service_killed_amid_operations_keeps_what_it_confirmed() {
    let place = Place::new();
    let service = Service::start(&place, unused_address(), "");
    let at = service.at.clone();
    let (confirmed, printed) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        let orb = Orb::client().unwrap();
        let names = Naming::at(&orb, &at).unwrap();
        for number in 0.. {
            if names.bind(&format!("n{number}"), &nowhere(&orb)).is_err() || confirmed.send(number).is_err() {
                return;
            }
        }
    });
    let mut last = 0;
    while last < 50 {
        last = printed.recv_timeout(Duration::from_secs(60)).unwrap();
    }
    let address = service.kill();
    client.join().unwrap();
    let confirmed = printed.try_iter().last().unwrap_or(last) + 1;
    let service = Service::start(&place, address, "");
    let found = service.names(&Orb::client().unwrap()).list(1_000_000).unwrap().0.len();
    // The one whose answer was on its way may be there.
    assert!(found == confirmed || found == confirmed + 1, "{confirmed} confirmed, {found} found");
}

#[test]
fn it_ends_cleanly_when_asked_to_and_a_second_one_is_refused() {
    let place = Place::new();
    let mut service = Service::start(&place, unused_address(), "");
    let second = place.hyoshi("naming --listen iiop://127.0.0.1:0 --store names").exits(2);
    assert!(second.err.contains("another naming service uses names"), "{}", second.err);
    let taken = place.hyoshi(&format!("naming --memory --listen iiop://{}", service.address())).exits(2);
    assert!(taken.err.contains("cannot listen at"), "{}", taken.err);
    assert!(Command::new("kill").args(["-TERM", &service.child.id().to_string()]).status().unwrap().success());
    assert!(service.child.wait().unwrap().success());
    std::fs::write(place.path().join("names/names.log"), "something else").unwrap();
    let foreign = place.hyoshi("naming --listen iiop://127.0.0.1:0 --store names").exits(2);
    assert!(foreign.err.contains("is not a file of names"), "{}", foreign.err);
    assert_eq!(place.read("names/names.log"), "something else");
}

/// A file system of 256 KiB, as only root can have it.
struct Disk(std::path::PathBuf);

impl Disk {
    fn new(place: &Place, name: &str) -> Option<Disk> {
        let path = place.path().join(name);
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&path).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Disk(path))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a service of a test that failed may still use it.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_changes_are_refused_and_nothing_is_lost() {
    let place = Place::new();
    let Some(disk) = Disk::new(&place, "names") else {
        return common::missing("root, to mount a small file system");
    };
    let service = Service::start(&place, unused_address(), "");
    let orb = Orb::client().unwrap();
    let names = service.names(&orb);
    names.bind("first", &nowhere(&orb)).unwrap();
    std::fs::write(disk.0.join("ballast"), vec![0; 200 << 10]).unwrap();
    let mut bound = 1;
    let refused = loop {
        match names.bind(&format!("{bound}{}", "x".repeat(900)), &nowhere(&orb)) {
            Ok(()) => bound += 1,
            Err(error) => break error,
        }
    };
    let NameError::System(exception) = refused else { panic!("{refused}") };
    assert_eq!(exception.minor, hyoshi_orb::minor::NAMING_STORE);
    assert_eq!(names.list(1000).unwrap().0.len(), bound, "it goes on to answer");
    assert!(names.bind("second", &nowhere(&orb)).is_err());
    std::fs::remove_file(disk.0.join("ballast")).unwrap();
    names.bind("second", &nowhere(&orb)).unwrap();
    let address = service.kill();
    let service = Service::start(&place, address, "");
    assert_eq!(service.names(&Orb::client().unwrap()).list(1000).unwrap().0.len(), bound + 1);
    drop(service);
}

#[test]
fn corbanames_and_initial_references_lead_through_it() {
    let place = Place::new();
    let service = Service::start(&place, unused_address(), "--memory");
    let orb = Orb::builder().initial("NameService", &service.at).build().unwrap();
    let names = Naming::initial(&orb).unwrap();
    names.make_way("a.b/c/d").unwrap();
    let host = service.address();
    let found = orb.resolve::<dyn NamingContext>(&format!("corbaname:iiop:{host}#a.b/c")).unwrap();
    assert_eq!(found, *names.enter("a.b/c").unwrap().context());
    assert_eq!(orb.resolve::<dyn NamingContext>("corbaname:rir:#a.b/c").unwrap(), found);
    let error = orb.resolve::<dyn NamingContext>("corbaname:rir:#a.b/x").unwrap_err();
    assert_eq!(error.minor, hyoshi_orb::minor::NAME_UNBOUND);
    let mut command = place.command("naming list a.b");
    command.env("ORBInitRef", format!("Other=IOR:00 NameService=corbaloc:iiop:{host}/NameService"));
    assert_eq!(Ended::of("list", &command.output().unwrap()).exits(0).out, "c/\n");
}

#[test]
fn names_lead_into_another_service_and_back() {
    let place = Place::new();
    let (one, other) =
        (Service::start(&place, unused_address(), "--memory"), Service::start(&place, unused_address(), "--memory"));
    let orb = Orb::client().unwrap();
    let (names, far) = (one.names(&orb), other.names(&orb));
    names.bind_context("far", &far).unwrap();
    far.bind_context("back", &names).unwrap();
    names.new_context("far/back/here").unwrap();
    names.bind("far/back/here/it", &nowhere(&orb)).unwrap();
    assert_eq!(names.enter("here").unwrap().list(10).unwrap().0[0].name, "it");
    let error = names.unbind("far/back/far/x").unwrap_err();
    let NameError::NotFound { rest, why, .. } = error else { panic!("{error}") };
    assert_eq!((rest.as_str(), why), ("x", NotFoundReason::MissingNode));
    other.kill();
    let error = names.unbind("far/x/y").unwrap_err();
    let NameError::CannotProceed { rest, context, .. } = error else { panic!("{error}") };
    assert_eq!(rest, "x/y");
    assert!(context.is_some());
}

#[test]
fn listings_go_on_with_iterators_and_text_is_made_of_names() {
    let place = Place::new();
    let service = Service::start(&place, unused_address(), "--memory");
    let orb = Orb::client().unwrap();
    let names = service.names(&orb);
    for number in 0..25 {
        names.bind(&format!("n{number:02}"), &nowhere(&orb)).unwrap();
    }
    let context = names.context();
    let (first, rest) = context.list(10).unwrap();
    let rest = rest.unwrap();
    assert_eq!(first.len(), 10);
    use hyoshi_naming::BindingIterator;
    assert_eq!(rest.next_n(10).unwrap().1.len(), 10);
    let (some, one) = rest.next_one().unwrap();
    assert_eq!((some, one.binding_name[0].id.as_str()), (true, "n20"));
    assert_eq!(rest.next_n(100).unwrap().1.len(), 4);
    assert_eq!(rest.next_n(100).unwrap(), (false, vec![]));
    assert!(!rest.next_one().unwrap().0);
    assert!(rest.next_n(0).is_err());
    rest.destroy().unwrap();
    assert!(rest.next_one().is_err());
    assert!(context.list(25).unwrap().1.is_none());
    assert_eq!(names.list(7).unwrap().0.len(), 7);

    let root: NamingContextExtStub = orb.resolve::<dyn NamingContextExt>(&service.at).unwrap();
    let name = root.to_name(r"a\.b.kind/c\/d/.").unwrap();
    assert_eq!((name[0].id.as_str(), name[1].id.as_str(), name[2].id.as_str()), ("a.b", "c/d", ""));
    assert_eq!(NamingContextExt::to_string(&root, &name).unwrap(), r"a\.b.kind/c\/d/.");
    assert!(root.to_name("a//b").is_err() && root.to_name("").is_err());
    assert_eq!(root.to_url(":host", r"a b/c\.d").unwrap(), "corbaname::host#a%20b/c%5c.d");
    assert!(root.to_url("ftp:host", "a").is_err());
    assert!(root.resolve_str("n03").unwrap().is_some());
}

#[test]
fn whatever_is_wrong_is_told_with_what_to_do() {
    let place = Place::new();
    let service = Service::start(&place, unused_address(), "--memory --bindings 2 --contexts 2");
    let orb = Orb::client().unwrap();
    let names = service.names(&orb);
    names.new_context("c").unwrap();
    assert!(service.ask(&place, "context d").exits(2).err.contains("IMP_LIMIT"));
    names.bind("a", &nowhere(&orb)).unwrap();
    assert!(service.ask(&place, &format!("bind b {NOWHERE}")).exits(2).err.contains("has reached its limit"));
    assert!(service.ask(&place, &format!("bind a..b {NOWHERE}")).exits(2).err.contains("is not a name"));
    assert!(service.ask(&place, "bind z nonsense").exits(2).err.contains("cannot resolve `nonsense`"));
    let root: NamingContextStub = names.context().clone();
    assert!(root.destroy().is_err(), "it has bindings");
    assert!(root.bind(&[], Some(&nowhere(&orb))).is_err());
    assert!(root.rebind_context(&[], None).is_err());
    let closed = unused_address();
    let nobody = place.hyoshi(&format!("naming list --at corbaloc::{closed}/NameService")).exits(2);
    assert!(nobody.err.contains("help: "), "{}", nobody.err);
}

/// A program of omniORB's, if it is installed.
fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|directory| directory.join(program).is_file());
    if !found {
        assert!(std::env::var_os("HYOSHI_PEERS").is_none_or(|value| value != "required"), "{program} is not here");
        eprintln!("skipped, for {program} is not here (.ci/peers installs it)");
    }
    found
}

fn nameclt(at: &str, words: &[&str]) -> (bool, String) {
    let mut command = Command::new("nameclt");
    command.arg("-ORBInitRef").arg(format!("NameService={at}")).args(words);
    let output = command.output().unwrap();
    (
        output.status.success(),
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    )
}

#[test]
fn nameclt_of_omniorb_works_with_it() {
    if !installed("nameclt") {
        return;
    }
    let place = Place::new();
    let service = Service::start(&place, unused_address(), "");
    let old = format!("corbaloc::{}/NameService", service.address());
    for at in [&service.reference, &old] {
        let works = |words: &[&str]| {
            let (well, said) = nameclt(at, words);
            assert!(well, "nameclt {words:?}: {said}");
            said
        };
        works(&["bind_new_context", "plant"]);
        works(&["bind", "plant/tracker.service", &service.reference]);
        works(&["-advanced", "rebind", "plant/tracker.service", &service.reference]);
        assert!(works(&["list", "plant"]).contains("tracker.service"));
        assert!(works(&["list"]).contains("plant/"));
        assert!(works(&["resolve", "plant/tracker.service"]).contains("IOR:"));
        let (well, said) = nameclt(at, &["resolve", "plant/other"]);
        assert!(!well && said.contains("NotFound"), "{said}");
        let (well, said) = nameclt(at, &["bind_new_context", "plant"]);
        assert!(!well && said.contains("AlreadyBound"), "{said}");
        works(&["unbind", "plant/tracker.service"]);
        works(&["remove_context", "plant"]);
    }
}

/// omniNames, which ends with the test.
struct OmniNames(Child);

impl Drop for OmniNames {
    fn drop(&mut self) {
        // It may be gone by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn omninames_is_asked_from_the_shell_and_bound_into_ours() {
    if !installed("omniNames") {
        return;
    }
    let place = Place::new();
    let address = unused_address();
    std::fs::create_dir(place.path().join("omni")).unwrap();
    let mut command = Command::new("omniNames");
    command.args(["-start", &address.port().to_string(), "-datadir"]).arg(place.path().join("omni"));
    command.args(["-ORBendPoint", &format!("giop:tcp:{address}")]);
    let _omni = OmniNames(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let at = format!("corbaloc:iiop:1.2@{address}/NameService");
    let orb = Orb::client().unwrap();
    let names = Naming::at(&orb, &at).unwrap();
    wait_for(|| names.list(1).is_ok()).expect("omniNames answers");
    let ask = |words: &str| place.hyoshi(&format!("naming {words} --at {at}"));
    ask(&format!("bind -p plant/tracker.service {NOWHERE}")).exits(0);
    assert_eq!(ask("list -r").exits(0).out, "plant/\nplant/tracker.service\n");
    assert!(ask("list -r plant/x").exits(1).err.contains("is not found"));
    for number in 0..30 {
        names.bind(&format!("plant/n{number:02}"), &nowhere(&orb)).unwrap();
    }
    let plant = names.enter("plant").unwrap();
    let (some, more) = plant.list(10).unwrap();
    assert_eq!((some.len(), more), (10, true));
    assert_eq!(plant.list(100).unwrap().0.len(), 31);
    let service = Service::start(&place, unused_address(), "");
    service.ask(&place, &format!("bind omni {at} --as-context")).exits(0);
    service.ask(&place, "unbind omni/plant/n07").exits(0);
    assert_eq!(service.ask(&place, "list omni/plant").exits(0).out.lines().count(), 30);
    assert!(service.ask(&place, "resolve omni/plant/n07").exits(1).err.contains("`n07`"));
    ask("unbind --destroy plant").exits(1);
}
