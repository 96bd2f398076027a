//! Programs that gain another user's rights after they joined, and program names that would control a terminal.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// coreutils' sleep, which root owns and everybody may run; setuid if it is to be.
fn sleep_of_root(place: &Place, name: &str, setuid: bool) -> Option<PathBuf> {
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = place.path().join(name);
    let sleep = ["/usr/bin/sleep", "/bin/sleep"].into_iter().find(|path| Path::new(path).exists())?;
    fs::copy(sleep, &path).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(if setuid { 0o4755 } else { 0o755 })).unwrap();
    as_nobody(place, "--version")?;
    let mut probe = Command::new("setpriv");
    probe.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&path).arg("1000");
    let probe = Program::start(&mut probe);
    let users = || {
        let status = fs::read_to_string(format!("/proc/{}/status", probe.0.id())).unwrap();
        let users = status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned();
        users.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for(|| users()[0] == "65534").expect("it runs");
    let started = || fs::read_link(format!("/proc/{}/exe", probe.0.id())).is_ok_and(|exe| exe == path);
    wait_for(started).expect("it is what was started");
    if setuid && users()[1] != "0" {
        common::missing("root, and a file system without nosuid, to make a setuid program");
        return None;
    }
    Some(path)
}

fn lines(place: &Place, change: &str) -> Vec<Value> {
    let log = place.read("audit.log");
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["change"] == change).collect()
}

/// A broker with windows, an audit log, and its standard error in a file.
fn broker(place: &Place) -> Broker {
    let mut command = place.command("broker --scheduler window --audit audit.log --socket");
    command.arg(place.path().join("run/broker.sock"));
    command.stderr(fs::File::create(place.path().join("said")).unwrap());
    Broker::of(command)
}

fn words(place: &Place, words: &str) -> String {
    format!("{words} --socket {}", place.path().join("run/broker.sock").display())
}

#[test]
fn a_program_that_becomes_setuid_leaves_its_users_task_within_a_second() {
    let place = Place::new();
    let Some(guard) = sleep_of_root(&place, "guard", true) else { return };
    let _broker = broker(&place);
    let run = words(&place, "exec --name guard --period 50ms --budget 10ms");
    let mut run = as_nobody(&place, &run).unwrap();
    let program = Program::start(run.arg("--").arg(&guard).arg("1000"));
    wait_for(|| !lines(&place, "process-leaves").is_empty()).expect("it leaves the task");
    let (added, left) = (&lines(&place, "add-process")[0], &lines(&place, "process-leaves")[0]);
    let after = left["at_ms"].as_u64().unwrap() - added["at_ms"].as_u64().unwrap();
    assert!(after < 3_000, "after {after} ms");
    assert_eq!((&left["task"], left["to"].as_str().unwrap().contains("(guard)")), (&"guard".into(), true), "{left}");
    // It had the only process.
    task(&place, "guard", Value::is_null);
    let pid = program.0.id();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it goes on");
    let class: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!(class[41 - 3], "0", "it is scheduled as any other: {stat}");
    wait_for(|| place.read("said").contains("it now has the rights of another user")).expect("the operator sees it");
}

#[test]
fn a_setuid_child_leaves_the_task_and_its_parent_stays() {
    let place = Place::new();
    // The child's name must not control a terminal.
    let Some(guard) = sleep_of_root(&place, "\x1b[2Jg\nrd", true) else { return };
    let _broker = broker(&place);
    let run = words(&place, "exec --name family --period 50ms --budget 10ms");
    let mut run = as_nobody(&place, &run).unwrap();
    run.args(["--", "sh", "-c", "\"$0\" 1000 & exec sleep 1000"]).arg(&guard);
    let program = Program::start(&mut run);
    wait_for(|| !lines(&place, "process-leaves").is_empty()).expect("the child leaves the task");
    let family = task(&place, "family", |task| task["processes"].as_array().is_some_and(|all| all.len() == 1));
    assert_eq!(family["processes"][0], program.0.id());
    wait_for(|| place.read("said").contains("left task")).expect("the operator sees it");
    for text in [place.read("said"), place.read("audit.log")] {
        assert!(!text.contains('\x1b') && text.contains("[2Jg"), "{text:?}");
    }
}

#[test]
fn a_users_hard_program_gains_no_rights() {
    let place = Place::new();
    let Some(_) = sleep_of_root(&place, "guard", true) else { return };
    let privileges = |command: &mut Command| {
        let output = command.args(["--", "grep", "NoNewPrivs", "/proc/self/status"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let exec = words(&place, "exec --anyway --name x --period 50ms");
    let hard = words(&place, "exec --anyway --name x --period 50ms --hard");
    assert_eq!(privileges(&mut as_nobody(&place, &hard).unwrap()), "NoNewPrivs:\t1\n");
    assert_eq!(privileges(&mut as_nobody(&place, &exec).unwrap()), "NoNewPrivs:\t0\n");
    // Root may cap what it likes.
    assert_eq!(privileges(&mut place.command(&hard)), "NoNewPrivs:\t0\n");
}

#[test]
fn names_of_programs_steer_no_terminal() {
    let place = Place::new();
    let Some(odd) = sleep_of_root(&place, "\x1b[2J\nroot", false) else { return };
    let _broker = broker(&place);
    let program = Program::start(Command::new(odd).arg("1000"));
    let attach = words(&place, &format!("attach {} --name mine --period 50ms", program.0.id()));
    let output = as_nobody(&place, &attach).unwrap().output().unwrap();
    let refused = Ended::of("attach", &output).exits(1).err;
    assert!(refused.contains(r"(\u{1b}[2J\nroot) belongs to user 0"), "{refused:?}");
    assert!(!place.read("audit.log").contains('\x1b'));
    let output = ask(&place, &format!("attach {} --period 50ms", program.0.id())).exits(0);
    for verb in ["broker list", "broker show", "broker explain --2J-root", "broker show --2J-root", "top --once"] {
        assert!(!ask(&place, verb).out.contains('\x1b'), "{verb}");
    }
    assert!(!output.out.contains('\x1b'));
}

#[test]
fn a_setuid_program_does_not_read_its_delegate_from_the_environment() {
    let place = Place::new();
    let Some(_) = sleep_of_root(&place, "guard", true) else { return };
    let open = PermissionsExt::from_mode(0o777);
    fs::set_permissions(place.path(), open).unwrap();
    let serve = |command: &mut Command| {
        command.env("HYOSHI_DELEGATE", "nonsense").env("XDG_RUNTIME_DIR", "/nowhere");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().unwrap();
        // It ends with a refusal, or serves.
        let ended = wait_for(|| child.try_wait().unwrap().is_some() || place.path().join("naming.sock").exists());
        ended.expect("it serves or refuses");
        let served = child.try_wait().unwrap().is_none();
        let _ = child.kill();
        let output = child.wait_with_output().unwrap();
        let _ = fs::remove_file(place.path().join("naming.sock"));
        (served, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let naming = format!("naming --listen unix:{}", place.path().join("naming.sock").display());
    let (served, said) = serve(&mut as_nobody(&place, &naming).unwrap());
    assert!(!served && said.contains("is not NAME=VALUE"), "an ordinary program reads it: {said}");
    fs::set_permissions(place.path().join("hyoshi"), PermissionsExt::from_mode(0o4755)).unwrap();
    let (served, said) = serve(&mut as_nobody(&place, &naming).unwrap());
    assert!(served, "a setuid program does not: {said}");
}
