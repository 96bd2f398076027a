//! What cannot be had is refused with the reason, and nothing is left changed; what is in the way of the broker is in nobody
//! else's. More of the kind stands in `refusals_say_what_is_wrong_and_what_to_do` and in the crates' own tests.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::{Broker as _, Task as _};
use hyoshi_model::Span;
use hyoshi_os::process::Process;

use super::*;

/// A file system of so many KiB in the place, which goes with the test; none, with a word, where none can be mounted.
struct Disk(PathBuf);

impl Disk {
    fn mount(place: &Place, name: &str, kib: usize) -> Option<Disk> {
        let path = place.path().join(name);
        fs::create_dir_all(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k,mode=700"), "tmpfs"]).arg(&path).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Disk(path));
        }
        eprintln!("not tested, needs root: no file system can be mounted");
        None
    }

    fn read_only(&self) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", "remount,ro"]).arg(&self.0).status().unwrap().success());
    }

    /// Leaves no room; the file that takes it.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("all-that-there-is");
        let mut file = fs::File::create(&path).unwrap();
        while file.write_all(&[0; 512]).is_ok() {}
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let gone = wait_for(|| Command::new("umount").arg(&self.0).status().is_ok_and(|status| status.success()));
        assert!(gone.is_some() || std::thread::panicking(), "{} stays mounted", self.0.display());
    }
}

/// How the program's first thread is scheduled, where it may run, and its control groups.
fn as_it_is(pid: u32) -> [String; 3] {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // Priority, nice value, real-time priority, class (proc_pid_stat(5): 18, 19, 40, 41).
    let scheduled = [18, 19, 40, 41].map(|field| fields[field - 3]).join(" ");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let may = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned();
    [scheduled, may, fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()]
}

fn sleeper() -> Program {
    Program::start(Command::new("sleep").arg("1000"))
}

/// `hyoshi broker` that is not to serve; what it says.
pub(super) fn not_started(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: ") && said.contains("\nhelp: "), "{said}");
    said
}

fn broker(place: &Place, words: &str) -> Command {
    let mut command = place.command(&format!("broker {words} --socket"));
    command.arg(place.path().join("run/broker.sock"));
    command
}

#[test]
fn a_process_that_has_ended_or_whose_number_is_anothers_is_refused_and_its_task_stays_empty() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let client = BrokerClient::connect(Some(&place.path().join("run/broker.sock"))).unwrap();
    let task = client.join(&TaskSpec::new("empty", Span::from_millis(50))).unwrap();
    let sleeper = sleeper();
    let before = as_it_is(sleeper.0.id());
    let why = |pid: u32, started: u64| {
        let error = BrokerClientError::from(task.add_process(pid, started).unwrap_err());
        assert!(!error.remedy().is_empty());
        error.to_string()
    };
    assert!(why(sleeper.0.id(), 1).contains("has ended, and another process has its number"));
    let mut ended = Program::start(&mut Command::new("true"));
    let pid = ended.0.id();
    // Until it is waited for, it keeps its number.
    wait_for(|| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ")).unwrap();
    assert!(why(pid, 0).contains(&format!("no process {pid}")));
    ended.0.wait().unwrap();
    assert!(why(pid, 0).contains(&format!("no process {pid}")));
    for nobody in [0, u32::MAX] {
        assert!(why(nobody, 0).contains("no process"));
    }
    assert_eq!(task.status().unwrap().processes, [0; 0]);
    assert_eq!(as_it_is(sleeper.0.id()), before);
}

#[test]
fn a_setuid_program_is_for_those_who_may_manage_all() {
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _broker = Broker::start(&place, "");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    if as_nobody(&place, "").is_none() {
        return;
    }
    let own = place.path().join("sleep");
    fs::copy("/bin/sleep", &own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&own).arg("1000");
    let setuid = Program::start(&mut run);
    let pid = setuid.0.id();
    wait_for(|| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n").unwrap();
    if !fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("Uid:\t65534\t0\t0") {
        eprintln!("not tested: programs have not the rights of their owners here (nosuid)");
        return;
    }
    let before = as_it_is(pid);
    let words = format!("attach {at} {pid} --name theirs --period 50ms");
    let refused = Ended::of(&words, &as_nobody(&place, &words).unwrap().output().unwrap()).exits(1).err;
    assert!(
        refused.contains("has the rights of user 0") && refused.contains("only operators may manage setuid programs"),
        "{refused}"
    );
    task(&place, "theirs", Value::is_null);
    assert_eq!(as_it_is(pid), before);
    ask(&place, &format!("attach {pid} --name theirs --period 50ms")).exits(0);
}

#[test]
fn a_second_broker_at_a_socket_is_refused_and_the_first_serves_on() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let sleeper = sleeper();
    ask(&place, &format!("attach {} --name a --period 50ms", sleeper.0.id())).exits(0);
    let said = not_started(broker(&place, "--scheduler none --state other"));
    assert!(said.contains("run/broker.sock") && said.contains("hyoshi broker show --socket"), "{said}");
    let seen = reports(&task(&place, "a", |_| true));
    task(&place, "a", |task| reports(task) > seen);
}

#[test]
fn what_is_wrong_with_the_command_line_is_said_before_tasks_are_forgotten_or_anything_is_made() {
    let place = Place::new();
    Broker::start(&place, "").ends("-TERM");
    let _program = {
        let mut broker = Broker::start(&place, "");
        let program = spinner(&place, "--name a --period 50ms");
        task(&place, "a", |task| reports(task) > 0);
        broker.ends("-KILL");
        program
    };
    let (noted, names) = (place.read("run/state/tasks"), place.names());
    for (words, wrong) in [
        ("--forget --policy fairly", "`fairly`"),
        ("--forget --policy library", "`path`"),
        ("--forget --scheduler sometimes", "`sometimes`"),
        ("--forget --scheduler external:file:none", "none"),
        ("--forget --scheduler none --operators no-such-group", "no-such-group"),
        ("--forget --scheduler none --policy external", "`object`"),
    ] {
        let said = not_started(broker(&place, &format!("{words} --audit audit.log --log reports.log")));
        assert!(said.contains(wrong), "{words}: {said}");
        assert_eq!(place.names(), names, "{words}");
        assert_eq!(place.read("run/state/tasks"), noted, "{words}");
    }
    // Nor where it cannot serve.
    let first = Broker::start(&place, "--scheduler none");
    let noted = place.read("run/state/tasks");
    not_started(broker(&place, "--scheduler none --forget"));
    assert_eq!(place.read("run/state/tasks"), noted);
    drop(first);
    let _broker = Broker::start(&place, "--forget");
    assert!(ask(&place, "broker list").exits(0).out.starts_with("no tasks: "));
}

#[test]
fn a_state_directory_that_is_full_or_read_only_is_an_error_at_the_start() {
    let place = Place::new();
    let Some(disk) = Disk::mount(&place, "disk", 64) else { return };
    let full = disk.fill();
    let at = disk.0.join("state");
    let words = format!("--scheduler none --state {}", at.display());
    let said = not_started(broker(&place, &words));
    assert!(said.contains(&at.display().to_string()) && said.contains("No space left on device"), "{said}");
    fs::remove_file(full).unwrap();
    disk.read_only();
    let said = not_started(broker(&place, &words));
    assert!(said.contains("Read-only file system") && said.contains("help: use a directory"), "{said}");
    assert!(!place.has("run/broker.sock"));
}

#[test]
fn what_cannot_be_noted_is_not_changed_and_is_reserved_for_once_there_is_room() {
    if !common::real_time() {
        return;
    }
    let place = Place::new();
    let Some(disk) = Disk::mount(&place, "disk", 64) else { return };
    let mut broker = Broker::of(broker(&place, &format!("--scheduler window --state {}", disk.0.display())));
    // More of them than there is room for in what their file has already.
    let script = format!("for i in $(seq 100); do sleep 1000 & done; {SPIN}");
    let many = Program::start(Command::new("sh").args(["-c", &script]));
    let pid = many.0.id();
    let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    wait_for(|| children().split_whitespace().count() == 100).unwrap();
    let children: Vec<u32> = children().split_whitespace().map(|child| child.parse().unwrap()).collect();
    let before = as_it_is(pid);
    let full = disk.fill();
    let mut attach = place.command(&format!("attach {pid} --name many --period 100ms --advocate"));
    attach.arg("rate 30%").arg("--socket").arg(place.path().join("run/broker.sock"));
    assert!(attach.status().unwrap().success());
    task(&place, "many", |task| reports(task) > 5);
    let noted = || fs::read_to_string(disk.0.join("touched")).unwrap();
    let changed = children.iter().filter(|child| raised(**child));
    let unnoted: Vec<_> = changed.filter(|child| !noted().contains(&format!(" {child} "))).collect();
    assert_eq!(unnoted, [&0; 0], "raised, and nobody would know");
    // A broker that is killed leaves nothing that the next does not find.
    broker.ends("-KILL");
    fs::remove_file(full).unwrap();
    broker = Broker::of(self::broker(&place, &format!("--scheduler window --state {}", disk.0.display())));
    assert_eq!(broker.ends("-TERM").code(), Some(0));
    assert_eq!(as_it_is(pid), before);
    assert!(children.iter().all(|child| !raised(*child)));
}

#[test]
fn what_a_broker_without_privileges_is_asked_for_and_cannot_do_is_refused_with_the_remedy() {
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let run = place.path().join("run");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
    for (words, why) in [
        ("--scheduler window", "`window`"),
        ("--scheduler deadline", "`deadline`"),
        ("--scheduler weights", "`weights`"),
        ("--scheduler none --floor weights", "weights as a floor"),
    ] {
        let Some(mut command) = as_nobody(&place, &format!("broker {words} --socket")) else { return };
        command.arg(run.join("broker.sock"));
        let said = not_started(command);
        assert!(said.contains(why), "{words}: {said}");
        assert!(!place.has("run/broker.sock"), "{words}");
    }
    assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), groups);
    // A directory of root's: nothing can be made there.
    let roots = place.path().join("roots");
    fs::create_dir(&roots).unwrap();
    let mut command = as_nobody(&place, "broker --scheduler none --socket").unwrap();
    command.arg(roots.join("deeper/broker.sock"));
    assert!(not_started(command).contains("Permission denied"));
    let mut command = as_nobody(&place, "broker --scheduler none --state").unwrap();
    command.arg(&roots).arg("--socket").arg(run.join("broker.sock"));
    assert!(not_started(command).contains("Permission denied"));
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0);
}

/// A group of version 1 that caps whoever is in it, and goes with the test.
struct Capped(PathBuf);

impl Capped {
    fn new() -> Option<Capped> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let cpu = |line: &&str| {
            let mut parts = line.split(' ').skip(2);
            parts.next() == Some("cgroup")
                && parts.next().is_some_and(|options| options.split(',').any(|one| one == "cpu"))
        };
        let point = mounts.lines().find(cpu).and_then(|line| line.split(' ').nth(1));
        let folder = PathBuf::from(point?).join(format!("hyoshi-capped-{}", std::process::id()));
        fs::create_dir(&folder).and_then(|()| fs::write(folder.join("cpu.cfs_quota_us"), "90000")).ok()?;
        Some(Capped(folder))
    }
}

impl Drop for Capped {
    fn drop(&mut self) {
        // Whoever was in it has to be gone first, which takes a moment.
        assert!(wait_for(|| fs::remove_dir(&self.0).is_ok()).is_some() || std::thread::panicking());
    }
}

#[test]
fn a_users_program_does_not_leave_its_groups_cap_for_a_group_of_its_own() {
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(capped) = Capped::new() else {
        eprintln!("not tested, needs root and the CPU controller of version 1");
        return;
    };
    let _broker = Broker::start(&place, "--scheduler weights");
    let at = format!("--socket {}", place.path().join("run/broker.sock").display());
    for more in ["", "--hard"] {
        let words = format!("exec {at} --name own --period 50ms {more} -- sleep 1000");
        let Some(nobody) = as_nobody(&place, &words) else { return };
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&capped.0);
        let program =
            Program::start(command.arg(nobody.get_program()).args(nobody.get_args()).current_dir(place.path()));
        let own = task(&place, "own", |task| !task["reason"].as_str().unwrap_or("").is_empty());
        let because = own["reason"].as_str().unwrap();
        assert!(
            because.contains("would leave the cap of control group") && because.contains("hyoshi-capped"),
            "{because}"
        );
        assert!(as_it_is(program.0.id())[2].contains("hyoshi-capped"));
        drop(program);
        task(&place, "own", Value::is_null);
    }
}

#[test]
fn windows_go_on_when_nobody_reads_what_the_broker_says() {
    if !common::real_time() {
        return;
    }
    let place = Place::new();
    let (_nobody_reads, mut full) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    for octets in [512, 1] {
        while full.write_all(&vec![b'x'; octets]).is_ok() {}
    }
    full.set_nonblocking(false).unwrap();

    // What is told at once is that no line can be added to the audit log.
    let mut command = broker(&place, "--scheduler window --audit /dev/full");
    let mut broker = Broker::of(command.stderr(Stdio::from(OwnedFd::from(full))));
    drop(command);
    let _above = Above::all();
    let program = Program::start(Command::new("sh").args(["-c", SPIN]));
    let pid = program.0.id();
    let mut attach = place.command(&format!("attach {pid} --name a --period 50ms --advocate"));
    attach.arg("rate 30%").arg("--socket").arg(place.path().join("run/broker.sock"));
    assert!(attach.status().unwrap().success());
    for round in 0..10 {
        wait_for(|| raised(pid)).unwrap_or_else(|| panic!("not raised in round {round}"));
        wait_for(|| !raised(pid)).unwrap_or_else(|| panic!("not lowered in round {round}"));
    }
    let seen = reports(&task(&place, "a", |_| true));
    task(&place, "a", |task| reports(task) > seen + 2);
    assert_eq!(broker.ends("-TERM").code(), Some(0));
    assert!(!raised(pid));
}

#[test]
fn a_broker_in_another_namespace_of_processes_is_known_by_its_number_here_and_takes_no_other_process_for_one_of_here() {
    let place = Place::new();
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    if !unshare.arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return common::missing("root and unshare");
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", env!("CARGO_BIN_EXE_hyoshi"), "broker"]);
    unshare.args(["--scheduler", "none", "--socket"]).arg(place.path().join("run/broker.sock"));
    let broker = Broker::of(unshare);
    let client = BrokerClient::connect(Some(&place.path().join("run/broker.sock"))).unwrap();
    let seen = Process::open_same(client.process().unwrap()).unwrap();
    assert_eq!(seen.parent(), Some(broker.child.id()));
    assert_eq!(client.broker().status().unwrap().process, 1, "its own number of itself");
    // Here that is another's.
    let refused = ask(&place, "attach 1 --name first --period 50ms").exits(1).err;
    assert!(refused.contains("another PID namespace"), "{refused}");
    let refused = exec(&place, "--name own --period 50ms").arg("true").output().unwrap();
    let refused = Ended::of("exec", &refused).exits(125).err;
    assert!(refused.contains("no process") || refused.contains("another namespace"), "{refused}");
}
