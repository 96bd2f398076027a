//! Weights of control groups: a share of contended CPUs without a promise of when, and all idle CPU time; a hard task
//! is capped at its reservation. One percent of a CPU weighs as much as a program at nice 0, so a task with 30 % of a
//! CPU gets its share against thirty programs.
//!
//! A weight competes with the groups and programs beside it: in root's groups with the whole machine, in a delegated
//! subtree with that subtree.

use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_control::group::Terms;
use hyoshi_model::{Instant, Reservation};
use hyoshi_os::process::ProcessIdentity;

use super::groups::Groups;
use super::moves::Moves;
use super::{Abilities, ProxyContext, SchedulerProxy};
use crate::platform::NotReserved;

/// Creates a control group for each task.
#[derive(Debug)]
pub struct WeightsProxy {
    groups: Groups,
}

impl WeightsProxy {
    /// With these groups.
    pub fn new(groups: Groups) -> Self {
        WeightsProxy { groups }
    }
}

impl SchedulerProxy for WeightsProxy {
    fn name(&self) -> &'static str {
        "weights"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, early: false, shared: true }
    }

    fn may_cap(&self, task: TaskId, context: &ProxyContext) -> Result<(), String> {
        self.groups.may_hold(task, context)
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        _: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        self.groups.hold(task, Terms::alone(reservation, context.hard.contains(&task)), context)
    }

    fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        if !context.hard.contains(&task) || self.groups.hold(task, Terms::nothing(), context).is_err() {
            self.groups.release(task, context);
        }
    }

    fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        self.groups.remove_processes(task, left, context);
    }

    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant {
        self.groups.tick(now, context)
    }

    fn due(&self) -> Instant {
        self.groups.due()
    }

    fn moves(&self) -> Option<Arc<Moves>> {
        Some(self.groups.moves())
    }

    fn enforcement(&self, task: TaskId) -> Option<String> {
        self.groups.enforcement(task)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};

    use hyoshi_model::Span;
    use hyoshi_os::cgroup::{CgroupVersion, CpuGroup, Subtree};
    use hyoshi_os::process::Process;

    use super::*;
    use crate::state_file::StateFile;
    use crate::task_processes::TaskProcesses;

    /// A directory with the files of a version 2 control group.
    struct Fixture(PathBuf);

    impl Fixture {
        fn new(name: &str, passes_on: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hyoshi-weights-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("groups")).unwrap();
            fs::write(path.join("groups/cgroup.subtree_control"), passes_on).unwrap();
            fs::write(path.join("groups/cgroup.procs"), "").unwrap();
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

    /// A task with a sleeping program, and its proxy.
    fn sleeping(fixture: &Fixture, version: CgroupVersion) -> (Sleeper, TaskId, ProxyContext, WeightsProxy) {
        let subtree = Subtree::at(&fixture.groups(), version).unwrap();
        let (state_file, _) = StateFile::open(&fixture.0.join("state")).unwrap();
        let sleeper = Sleeper::start();
        let mut members = TaskProcesses::new();
        members.add(Process::open(sleeper.0.id()).unwrap()).unwrap();
        let task = TaskId(7);
        let tasks = BTreeMap::from([(task, members)]);
        let context = ProxyContext { tasks, hard: BTreeSet::new(), confined: BTreeSet::new(), state_file };
        (sleeper, task, context, WeightsProxy::new(Groups::in_subtree(subtree)))
    }

    #[test]
    fn programs_of_ordinary_users_stay_in_their_groups_of_version_two() {
        let fixture = Fixture::new("confined", "cpu");
        let third = Reservation::new(Span::from_millis(33), Span::from_millis(100)).unwrap();
        for (version, may) in [(CgroupVersion::Two, false), (CgroupVersion::One, true)] {
            let (sleeper, task, mut context, mut proxy) = sleeping(&fixture, version);
            context.confined.insert(task);
            let capped = CpuGroup::of_process(sleeper.0.id()).capped_by().is_some();
            let refused = proxy.may_cap(task, &context);
            assert_eq!(refused.is_ok(), may, "{refused:?}");
            let reserved = proxy.reserve(task, third, Instant::ZERO, &mut context);
            assert_eq!(reserved.is_ok(), may && !capped, "{reserved:?}");
            assert_eq!(proxy.enforcement(task).is_some(), may && !capped);
            context.confined.clear();
            assert_eq!(proxy.may_cap(task, &context), Ok(()));
        }
    }

    #[test]
    fn a_number_whose_process_has_ended_is_not_moved() {
        let fixture = Fixture::new("ended", "cpu");
        let third = Reservation::new(Span::from_millis(33), Span::from_millis(100)).unwrap();
        let home = fixture.0.join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("cgroup.procs"), "").unwrap();
        let (mut sleeper, task, mut context, mut proxy) = sleeping(&fixture, CgroupVersion::Two);
        let whose = context.tasks[&task].processes().next().unwrap().identity();
        sleeper.0.kill().unwrap();
        sleeper.0.wait().unwrap();
        proxy.reserve(task, third, Instant::ZERO, &mut context).unwrap();
        let group = PathBuf::from(proxy.enforcement(task).unwrap().rsplit(' ').next().unwrap());
        assert!(group.join("cpu.weight").exists() && !group.join("cgroup.procs").exists());
        context.state_file.moved(whose, &home).unwrap();
        proxy.release(task, &mut context);
        assert_eq!(fs::read_to_string(home.join("cgroup.procs")).unwrap(), "");
        assert_eq!(context.state_file.came_from(whose), None);
    }

    #[test]
    fn who_comes_later_is_moved_at_a_look_for_which_the_kernel_is_ready() {
        let fixture = Fixture::new("later", "cpu");
        let third = Reservation::new(Span::from_millis(33), Span::from_millis(100)).unwrap();
        let (sleeper, task, mut context, mut proxy) = sleeping(&fixture, CgroupVersion::Two);
        proxy.reserve(task, third, Instant::ZERO, &mut context).unwrap();
        let group = PathBuf::from(proxy.enforcement(task).unwrap().rsplit(' ').next().unwrap());
        let moved_last = || fs::read_to_string(group.join("cgroup.procs")).unwrap();
        let later = Sleeper::start();
        context.tasks.get_mut(&task).unwrap().add(Process::open(later.0.id()).unwrap()).unwrap();
        let mut now = proxy.tick(Instant::ZERO, &mut context);
        assert_eq!(moved_last(), sleeper.0.id().to_string(), "nobody is moved at the first look");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while moved_last() != later.0.id().to_string() {
            assert!(std::time::Instant::now() < until);
            now = proxy.tick(now, &mut context);
        }
    }

    #[test]
    fn a_group_of_version_two_gets_the_weight_the_cap_and_the_process() {
        let fixture = Fixture::new("two", "cpu");
        let (sleeper, task, mut context, mut proxy) = sleeping(&fixture, CgroupVersion::Two);
        context.hard.insert(task);
        let third = Reservation::new(Span::from_millis(33), Span::from_millis(100)).unwrap();
        proxy.reserve(task, third, Instant::ZERO, &mut context).unwrap();
        let enforcement = proxy.enforcement(task).unwrap();
        let group = PathBuf::from(enforcement.rsplit(' ').next().unwrap());
        assert_eq!(group.parent(), Some(fixture.groups().as_path()));
        let read = |name: &str| fs::read_to_string(group.join(name)).unwrap();
        assert_eq!((read("cpu.weight"), read("cgroup.procs")), ("3300".into(), sleeper.0.id().to_string()));
        assert_eq!(read("cpu.max"), "33000 100000");
        assert!(
            enforcement.starts_with("weighs as much as 33 ordinary programs, capped at 33ms of 100ms, in "),
            "{enforcement}"
        );
        proxy.release(task, &mut context);
        assert_eq!((read("cpu.weight"), read("cpu.max")), ("100".into(), "10000 1000000".into()));
        let state = fs::read_to_string(fixture.0.join("state/touched")).unwrap();
        assert!(state.contains(&format!("group {}", group.display())) && state.contains("moved "), "{state}");
        let whose = context.tasks[&task].processes().next().unwrap().identity();
        assert_eq!(context.state_file.came_from(whose), Some(CpuGroup::of_process(whose.number).folder.as_path()));
    }
}
