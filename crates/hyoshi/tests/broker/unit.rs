//! The broker as a service of systemd.

use std::os::unix::net::UnixDatagram;

use super::*;

const UNITS: [(&str, &str); 2] = [("--system", "hyoshi-broker.service"), ("--user", "user/hyoshi-broker.service")];

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_units_are_as_systemd_wants_them() {
    let place = Place::new();
    for (kind, name) in UNITS {
        // Where it is to be installed, there is none yet.
        place.write("hyoshi-broker.service", unit(name).replace("/usr/local/bin/hyoshi", env!("CARGO_BIN_EXE_hyoshi")));
        let mut verify = Command::new("systemd-analyze");
        verify.args(["verify", "--man=no", kind]).arg(place.path().join("hyoshi-broker.service"));
        let Ok(output) = verify.env("XDG_RUNTIME_DIR", place.path()).output() else {
            eprintln!("skipped: needs systemd-analyze (package systemd)");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        // It looks at units of the machine, too, on which the test has no claim.
        let ours: Vec<_> = said.lines().filter(|line| line.contains("hyoshi")).collect();
        assert!(ours.is_empty(), "{name}: {said}");
    }
}

#[test]
fn started_as_the_unit_starts_it_it_says_when_it_serves() {
    let place = Place::new();
    let manager = UnixDatagram::bind(place.path().join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    for (_, name) in UNITS {
        let unit = unit(name);
        let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/hyoshi ")).unwrap();
        let at = |directory: &str| place.path().join(directory).display().to_string();
        let words = start.replace("${STATE_DIRECTORY}", &at("state")).replace("${LOGS_DIRECTORY}", &at("."));
        let mut command = place.command(&format!("{words} --scheduler none --socket"));
        command.arg(at("run/broker.sock")).env("NOTIFY_SOCKET", at("notify")).env("WATCHDOG_USEC", "200000");
        let mut broker = Broker::of(command);
        let mut message = [0; 256];
        let length = manager.recv(&mut message).unwrap();
        let said = String::from_utf8_lossy(&message[..length]);
        assert_eq!(said, format!("READY=1\nSTATUS=serves at {}", at("run/broker.sock")));
        ask(&place, "broker list").exits(0);
        for _ in 0..3 {
            let length = manager.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"WATCHDOG=1");
        }
        assert_eq!(broker.ends("-TERM").code(), Some(0));
        manager.set_nonblocking(true).unwrap();
        while manager.recv(&mut message).is_ok() {}
        manager.set_nonblocking(false).unwrap();
    }
}

#[test]
fn reloaded_as_the_unit_reloads_it_it_goes_on() {
    let place = Place::new();
    for (_, name) in UNITS {
        let unit = unit(name);
        let reload = unit.lines().find_map(|line| line.strip_prefix("ExecReload=")).expect("systemctl reload");
        place.write("err", "");
        let mut command = place.command("broker --scheduler none --socket");
        command.arg(place.path().join("run/broker.sock"));
        command.stderr(fs::File::create(place.path().join("err")).unwrap());
        let mut broker = Broker::of(command);
        let words = reload.replace("$MAINPID", &broker.child.id().to_string());
        let (program, words) = words.split_once(' ').unwrap();
        assert!(Command::new(program).args(words.split(' ')).status().unwrap().success());
        wait_for(|| place.read("err").contains("hyoshi broker: SIGHUP: "));
        ask(&place, "broker list").exits(0);
        assert_eq!(broker.ends("-TERM").code(), Some(0));
    }
}
