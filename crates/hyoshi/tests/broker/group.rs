//! Tasks of control groups: as root, else each says that it skips.

use std::path::PathBuf;

use hyoshi_os::scheduling::{Scheduling, SchedulingClass};

use super::*;

/// A control group that is gone after the test, with whoever is in it.
struct Group(PathBuf);

impl Group {
    /// In the version 2 hierarchy if `two`, else in one of version 1; none, with words, where it cannot be made.
    fn new(name: &str, two: bool) -> Option<Group> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let wanted = |line: &&str| match two {
            true => line.split(' ').nth(2) == Some("cgroup2"),
            // One that limits nothing: in that of the CPU controller real time may be refused.
            false => line
                .split(' ')
                .nth(3)
                .is_some_and(|options| options.ends_with(",pids") || options.ends_with(",freezer")),
        };
        let point = mounts.lines().find(wanted).and_then(|line| line.split(' ').nth(1)).map(PathBuf::from);
        let Some(point) = point else {
            eprintln!("skipped: no control groups of version {} are mounted", if two { 2 } else { 1 });
            return None;
        };
        let folder = point.join(name);
        match fs::create_dir_all(folder.join("below")) {
            Ok(()) => Some(Group(folder)),
            Err(error) => {
                eprintln!("skipped, needs root: {} cannot be made: {error}", folder.display());
                None
            }
        }
    }

    fn take(&self, below: &str, pid: u32) {
        fs::write(self.0.join(below).join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn attach(&self, place: &Place, name: &str) -> Ended {
        ask(place, &format!("attach --cgroup {} --name {name} --period 20ms", self.0.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it has to be gone first, which takes a moment.
        let gone = wait_for(|| {
            ["below", ""].iter().all(|below| {
                let folder = self.0.join(below);
                !folder.exists() || fs::remove_dir(&folder).is_ok()
            })
        });
        assert!(gone.is_some() || std::thread::panicking(), "{} is left behind", self.0.display());
    }
}

fn sleeper() -> Program {
    Program::start(Command::new("sleep").arg("1000"))
}

fn has(task: &Value, program: &Program) -> bool {
    task["processes"].as_array().is_some_and(|processes| processes.contains(&program.0.id().into()))
}

#[test]
fn all_processes_of_a_group_belong_to_the_task_those_that_come_later_too() {
    for two in [true, false] {
        let Some(group) = Group::new(&format!("hyoshi-test-{}", std::process::id()), two) else { continue };
        let place = Place::new();
        let _broker = Broker::start(&place, "");
        let spinner = Program::start(Command::new("sh").args(["-c", SPIN]));
        let (below, later) = (sleeper(), sleeper());
        let outside = sleeper();
        group.take("", spinner.0.id());
        group.take("below", below.0.id());
        group.attach(&place, "all").exits(0);
        let all = task(&place, "all", |task| task["consumed_ns"].as_u64() > Some(0));
        assert!(has(&all, &spinner) && has(&all, &below) && !has(&all, &outside), "{all}");
        assert_eq!(all["control_groups"][0], group.0.to_str().unwrap());
        group.take("", later.0.id());
        task(&place, "all", |task| has(task, &later));
        // Who goes leaves the task, also a child of one that stays; who comes back is in it again.
        let point = group.0.parent().unwrap();
        fs::write(point.join("cgroup.procs"), below.0.id().to_string()).unwrap();
        let all = task(&place, "all", |task| !has(task, &below));
        assert!(has(&all, &spinner) && has(&all, &later), "{all}");
        group.take("below", below.0.id());
        task(&place, "all", |task| has(task, &below));

        // A process has one task, a name one group.
        assert!(group.attach(&place, "again").exits(1).err.contains("already belongs to task `all`"));
        task(&place, "again", Value::is_null);

        // As when a service is started anew: nobody is there for a moment.
        drop((spinner, below, later));
        task(&place, "all", |task| task["processes"].as_array().is_some_and(Vec::is_empty));
        let anew = Program::start(Command::new("sh").args(["-c", SPIN]));
        group.take("below", anew.0.id());
        let seen = reports(&task(&place, "all", |task| has(task, &anew)));
        task(&place, "all", |task| reports(task) > seen && task["consumed_ns"].as_u64() > Some(0));
        ask(&place, "broker detach all").exits(0);
    }
}

#[test]
fn a_child_that_leaves_is_put_back_and_stays_outside_though_its_parent_has_not_left() {
    let Some(group) = Group::new(&format!("hyoshi-leave-{}", std::process::id()), false) else { return };
    let (_above, place) = (Above::all(), Place::new());
    let mut command = place.command("broker --cap 60% --socket");
    let _broker = Broker::of(command.arg(place.path().join("run/broker.sock")));
    if !ask(&place, "broker show").exits(0).out.contains("scheduler   window: ") {
        return common::missing("the broker's windows");
    }
    let script = format!("({SPIN}) & echo $! >child; wait");
    let parent = Program::start(Command::new("sh").args(["-c", &script]).current_dir(place.path()));
    wait_for(|| place.has("child") && place.read("child").ends_with('\n')).expect("it has a child");
    let child: u32 = place.read("child").trim().parse().unwrap();
    group.take("", parent.0.id());
    group.take("", child);
    group.attach(&place, "family").exits(0);
    ask(&place, "broker advocate add family rate 30%").exits(0);
    let class = || Scheduling::of(child).unwrap().class;
    wait_for(|| matches!(class(), SchedulingClass::Fifo(_))).expect("it is raised");
    fs::write(group.0.parent().unwrap().join("cgroup.procs"), child.to_string()).unwrap();
    let is_in = |task: &Value| task["processes"].as_array().unwrap().contains(&child.into());
    let mut family = task(&place, "family", |task| !is_in(task));
    assert!(has(&family, &parent) && matches!(class(), SchedulingClass::Fair(_)), "{:?} {family}", class());
    let left = reports(&family);
    while reports(&family) < left + 10 {
        family = task(&place, "family", |_| true);
        assert!(!is_in(&family) && matches!(class(), SchedulingClass::Fair(_)), "{:?} {family}", class());
    }
    // The parent waits, and what the child does is not the task's any more.
    assert!(family["consumed_ns"].as_u64() < Some(1_000_000), "{family}");
}

#[test]
fn a_container_is_found_by_the_beginning_of_its_number() {
    let number = format!("{:08x}{}", std::process::id(), "deadbeef".repeat(7));
    let Some(group) = Group::new(&format!("docker-{number}.scope"), true) else { return };
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let inside = sleeper();
    group.take("", inside.0.id());
    ask(&place, &format!("attach --container {} --name inside --period 20ms", &number[..16])).exits(0);
    assert!(has(&task(&place, "inside", |task| !task.is_null()), &inside));
}

#[test]
fn what_is_no_group_to_take_is_refused_and_nothing_is_left() {
    let place = Place::new();
    let broker = Broker::start(&place, "");
    let refused = |whom: &str, why: &str| {
        let said = ask(&place, &format!("attach {whom} --name a --period 20ms")).exits(1).err;
        assert!(said.contains(why), "{whom}: {said}");
    };
    refused("--cgroup /no/such/group", "no control group /no/such/group");
    refused("--cgroup /proc/self", "no control group /proc/self");
    refused("--unit no-such-unit", "no control group belongs to a unit no-such-unit.service");
    refused("--container 0123456789abcdef", "no control group belongs to a container 0123456789abcdef");
    refused("--cgroup /", "is the root of all control groups");
    if let Some(group) = Group::new(&format!("hyoshi-empty-{}", std::process::id()), true) {
        refused(&format!("--cgroup {}", group.0.display()), "is empty");
        group.take("", broker.child.id());
        refused(&format!("--cgroup {}", group.0.display()), "the broker itself is in");
        drop(broker);
    }
    assert!(ask(&place, "attach --period 20ms").exits(2).err.contains("missing argument"));
    assert!(ask(&place, "attach 1 --unit x --period 20ms").exits(2).err.contains("cannot be used with"));
}
