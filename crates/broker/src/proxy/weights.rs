//! Weights of control groups: a share of contended CPUs, without a word on when in a period, and of CPU time that
//! nobody else wants as much as there is. One percent of a CPU weighs as much as an ordinary program at nice 0, so that
//! a task with 30 % of a CPU holds its own against thirty of them.
//!
//! Version 1: `cpu.shares` of a group at the top of the CPU controller. Version 2: `cpu.weight` of a group below the
//! broker's own, or at the top for root; [`WeightsProxy::in_folder`] takes any that was delegated.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::cgroup::{CpuGroup, Version};

use super::{Abilities, Ground, SchedulerProxy};
use crate::kernel::NotReserved;
use crate::touched::remove_group;

/// Makes a control group for each task.
#[derive(Debug)]
pub struct WeightsProxy {
    folder: PathBuf,
    version: Version,
    groups: BTreeMap<TaskId, PathBuf>,
    next: Instant,
}

/// Processes that were started since join this often: whoever a member starts is in the group from its birth, this is
/// for those that joined the task otherwise.
const LOOK: Span = Span::from_millis(500);

impl WeightsProxy {
    /// In the folder of the machine's CPU controller.
    ///
    /// # Errors
    ///
    /// The reason why there is none to work in, in words.
    pub fn probe() -> Result<Self, String> {
        let group = CpuGroup::of_this_process();
        let version = group.version.ok_or("no control groups are mounted")?;
        let candidates = [group.top, group.folder];
        let mut why = String::new();
        for folder in candidates {
            match WeightsProxy::in_folder(&folder, version) {
                Ok(proxy) => return Ok(proxy),
                Err(error) => why = format!("control groups cannot be made in {}: {error}", folder.display()),
            }
        }
        Err(format!("{why}; as a user, start it with `systemd-run --user --scope -p Delegate=yes hyoshi broker`"))
    }

    /// In a folder that was delegated: a group is made and removed to see whether it works.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn in_folder(folder: &Path, version: Version) -> io::Result<Self> {
        if version == Version::Two {
            // Children have the controller only where their parent passes it on; that it does already is no error.
            let passed = fs::write(folder.join("cgroup.subtree_control"), "+cpu");
            let there = fs::read_to_string(folder.join("cgroup.subtree_control")).unwrap_or_default();
            if !there.split_ascii_whitespace().any(|controller| controller.trim_start_matches('+') == "cpu") {
                passed?;
                return Err(io::Error::other("the CPU controller is not passed on"));
            }
        }
        let tried = folder.join(format!("hyoshi-probe-{}", std::process::id()));
        fs::create_dir(&tried)?;
        let written = fs::write(tried.join(weight_file(version)), weight(version, 1).to_string());
        remove_group(&tried).or_else(|_| fs::remove_dir_all(&tried))?;
        written?;
        Ok(WeightsProxy { folder: folder.to_owned(), version, groups: BTreeMap::new(), next: Instant::NEVER })
    }
}

impl SchedulerProxy for WeightsProxy {
    fn name(&self) -> &'static str {
        "weights"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, soon: false, shared: true }
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        ground: &mut Ground,
    ) -> Result<(), NotReserved> {
        ground.members(task)?;
        let refused = |what: &Path, error: io::Error| NotReserved {
            most: None,
            why: format!("the control group {} cannot be used: {error}", what.display()),
        };
        let new = !self.groups.contains_key(&task);
        let group = self.folder.join(format!("hyoshi-{}-{}", std::process::id(), task.0));
        if new {
            ground.touched.group(&group).map_err(|error| refused(&group, error))?;
            fs::create_dir(&group).map_err(|error| refused(&group, error))?;
            self.groups.insert(task, group.clone());
        }
        let percent = reservation.share().as_millionths().div_ceil(10_000);
        let file = group.join(weight_file(self.version));
        let done = fs::write(&file, weight(self.version, percent).to_string()).map_err(|error| refused(&file, error));
        let done = done.and_then(|()| self.gather(task, ground).map_err(|error| refused(&group, error)));
        if done.is_err() && new {
            self.release(task, ground);
        }
        self.next = self.next.min(now.saturating_add(LOOK));
        done
    }

    fn release(&mut self, task: TaskId, ground: &mut Ground) {
        let Some(group) = self.groups.remove(&task) else { return };
        let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let back = ground.tasks.get(&task).map(|members| {
            let known = members.processes().map(|process| process.identity());
            known.map(|identity| (identity, ground.touched.came_from(identity).map(Path::to_owned))).collect::<Vec<_>>()
        });
        let back = back.unwrap_or_default();
        let home = back.iter().find_map(|(_, from)| from.clone()).unwrap_or_else(|| self.folder.clone());
        for pid in inside.lines().filter_map(|pid| pid.parse::<u32>().ok()) {
            // A child that was born here has no other home than its parent's.
            let from = back.iter().find(|(identity, _)| identity.number == pid).and_then(|(_, from)| from.as_ref());
            let _ = fs::write(from.unwrap_or(&home).join("cgroup.procs"), pid.to_string());
        }
        back.iter().for_each(|(identity, _)| ground.touched.done(*identity));
        // One that cannot be removed yet is in the state file.
        if remove_group(&group).is_ok() {
            ground.touched.group_done(&group);
        }
    }

    fn tick(&mut self, now: Instant, ground: &mut Ground) -> Instant {
        if now >= self.next {
            let tasks: Vec<TaskId> = self.groups.keys().copied().collect();
            for task in &tasks {
                if let Some(members) = ground.tasks.get_mut(task) {
                    members.look_at_processes();
                }
                let _ = self.gather(*task, ground);
            }
            self.next = if tasks.is_empty() { Instant::NEVER } else { now.saturating_add(LOOK) };
        }
        self.next
    }
}

impl WeightsProxy {
    /// Moves every process of the task into its group.
    fn gather(&self, task: TaskId, ground: &mut Ground) -> io::Result<()> {
        let (Some(group), Some(members)) = (self.groups.get(&task), ground.tasks.get(&task)) else { return Ok(()) };
        let inside = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let inside: Vec<u32> = inside.lines().filter_map(|pid| pid.parse().ok()).collect();
        for process in members.processes() {
            let identity = process.identity();
            if inside.contains(&identity.number) {
                continue;
            }
            let from = CpuGroup::of_process(identity.number).folder;
            ground.touched.moved(identity, &from)?;
            match fs::write(group.join("cgroup.procs"), identity.number.to_string()) {
                Err(_) if process.has_ended() => ground.touched.done(identity),
                Err(error) => {
                    ground.touched.done(identity);
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

fn weight_file(version: Version) -> &'static str {
    match version {
        Version::One => "cpu.shares",
        Version::Two => "cpu.weight",
    }
}

/// An ordinary program at nice 0 weighs 1024 in version 1, where a group may have up to 262,144, and 100 in version 2,
/// where it may have up to 10,000.
fn weight(version: Version, percent: u64) -> u64 {
    match version {
        Version::One => (percent * 1024).clamp(2, 262_144),
        Version::Two => (percent * 100).clamp(1, 10_000),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use hyoshi_os::process::Process;

    use super::*;
    use crate::members::Members;
    use crate::touched::Touched;

    /// A directory that has the files of a version 2 control group, as far as they are written and read.
    struct Fixture(PathBuf);

    impl Fixture {
        fn new(name: &str, passes_on: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hyoshi-weights-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("groups")).unwrap();
            fs::write(path.join("groups/cgroup.subtree_control"), passes_on).unwrap();
            Fixture(path)
        }

        fn groups(&self) -> PathBuf {
            self.0.join("groups")
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("coreutils' sleep"))
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn one_percent_weighs_as_much_as_an_ordinary_program() {
        assert_eq!([1, 30, 100, 200].map(|percent| weight(Version::Two, percent)), [100, 3_000, 10_000, 10_000]);
        assert_eq!([0, 1, 30, 1_000].map(|percent| weight(Version::One, percent)), [2, 1_024, 30_720, 262_144]);
    }

    #[test]
    fn a_group_of_version_two_gets_the_weight_and_the_process() {
        let fixture = Fixture::new("two", "+cpu");
        let mut proxy = WeightsProxy::in_folder(&fixture.groups(), Version::Two).unwrap();
        let (touched, _) = Touched::open(&fixture.0.join("state")).unwrap();
        let sleeper = Sleeper::start();
        let mut members = Members::new();
        members.add(Process::open(sleeper.0.id()).unwrap()).unwrap();
        let task = TaskId(7);
        let mut ground = Ground { tasks: BTreeMap::from([(task, members)]), touched };
        let third = Reservation::new(Span::from_millis(33), Span::from_millis(100)).unwrap();
        proxy.reserve(task, third, Instant::ZERO, &mut ground).unwrap();
        let group = fixture.groups().join(format!("hyoshi-{}-7", std::process::id()));
        let read = |name: &str| fs::read_to_string(group.join(name)).unwrap();
        assert_eq!((read("cpu.weight"), read("cgroup.procs")), ("3300".into(), sleeper.0.id().to_string()));
        let state = fs::read_to_string(fixture.0.join("state/touched")).unwrap();
        assert!(state.contains(&format!("group {}", group.display())) && state.contains("moved "), "{state}");
        let whose = ground.tasks[&task].processes().next().unwrap().identity();
        assert_eq!(ground.touched.came_from(whose), Some(CpuGroup::of_process(whose.number).folder.as_path()));
    }

    #[test]
    fn a_folder_that_does_not_pass_the_controller_on_is_no_place() {
        let fixture = Fixture::new("none", "");
        // In a real one the write of `+cpu` is refused; here it is taken, so the file is one that cannot be written.
        fs::remove_file(fixture.groups().join("cgroup.subtree_control")).unwrap();
        fs::create_dir(fixture.groups().join("cgroup.subtree_control")).unwrap();
        assert!(WeightsProxy::in_folder(&fixture.groups(), Version::Two).is_err());
        assert!(WeightsProxy::in_folder(&fixture.0.join("nowhere"), Version::One).is_err());
    }
}
