//! The control group that schedules this process (cgroups(7)), version 1 or 2, and the real-time
//! budget that version 1 gives it; groups of our own ([`Group`]), and where they may be made ([`Subtree`]).
//!
//! With CONFIG_RT_GROUP_SCHED a new version 1 group has a budget of 0 and SCHED_FIFO is refused in
//! it with EPERM; one of 200 ms a second was measured to give 20.08 %.

pub mod group;
pub mod subtree;

use std::fs;
use std::path::{Path, PathBuf};

pub use group::Group;
pub use subtree::Subtree;

/// The group whose CPU controller holds this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuGroup {
    /// Of the hierarchy that has the CPU controller; `None` where no control groups are mounted.
    pub version: Option<Version>,
    /// Its folder, for remedies to name.
    pub folder: PathBuf,
    /// The hierarchy's uppermost group that can be seen from here.
    pub top: PathBuf,
    /// Real-time budget and period in microseconds; `None` where the kernel has no such budgets.
    pub rt_budget: Option<(i64, i64)>,
}

/// Of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// The unified hierarchy.
    Two,
}

impl CpuGroup {
    /// Asks /proc and the group itself.
    pub fn of_this_process() -> Self {
        CpuGroup::of_process(std::process::id())
    }

    /// The same of another process, as seen from here.
    pub fn of_process(pid: u32) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let groups = read(&format!("/proc/{pid}/cgroup"));
        let Some((version, top, folder)) = find(&groups, &read("/proc/self/mountinfo")) else {
            return CpuGroup::default();
        };
        let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
        let rt_budget = number("cpu.rt_runtime_us").zip(number("cpu.rt_period_us"));
        CpuGroup { version: Some(version), folder, top, rt_budget }
    }

    /// True if no thread of the group may be SCHED_FIFO, whatever its privileges.
    pub fn forbids_fifo(&self) -> bool {
        self.rt_budget.is_some_and(|(runtime, _)| runtime == 0)
    }
}

/// The version 1 CPU controller wins over the unified hierarchy, which it was then taken out of.
fn find(groups: &str, mounts: &str) -> Option<(Version, PathBuf, PathBuf)> {
    let path_of = |wanted: fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(number, controllers).then_some(path)
        })
    };
    if let Some(path) = path_of(|_, controllers| controllers.split(',').any(|name| name == "cpu")) {
        let is_cpu = |kind: &str, options: &str| kind == "cgroup" && options.split(',').any(|name| name == "cpu");
        let (top, folder) = folder(mounts, path, is_cpu)?;
        return Some((Version::One, top, folder));
    }
    let path = path_of(|number, controllers| number == "0" && controllers.is_empty())?;
    let (top, folder) = folder(mounts, path, |kind, _| kind == "cgroup2")?;
    Some((Version::Two, top, folder))
}

/// The mount of a hierarchy, and where a group's path lies below it (mountinfo in proc_pid_mountinfo(5)).
fn folder(mounts: &str, path: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<(PathBuf, PathBuf)> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let (kind, options) = (kind.next()?, kind.nth(1)?);
        // In a container the mount may begin further down than the path that /proc tells.
        let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
        // Component by component: joining an empty path would leave a slash behind.
        let folder = Path::new(point).components().chain(Path::new(below.trim_start_matches('/')).components());
        wanted(kind, options).then(|| (PathBuf::from(point), folder.collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1_MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const V2_MOUNTS: &str = "24 23 0:20 / /proc rw - proc proc rw\n35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_1_is_found_by_its_controller_beside_a_unified_hierarchy() {
        let groups = "9:name=systemd:/\n4:memory:/x\n2:cpu,cpuacct:/jobs/a:b\n0::/elsewhere\n";
        let top = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(find(groups, V1_MOUNTS), Some((Version::One, top.clone(), top.join("jobs/a:b"))));
        assert_eq!(find("2:cpu,cpuacct:/\n", V1_MOUNTS).map(|(_, _, folder)| folder), Some(top));
    }

    #[test]
    fn version_2_is_found_on_a_systemd_machine() {
        let groups = "0::/user.slice/user-1000.slice/session-2.scope\n";
        let top = PathBuf::from("/sys/fs/cgroup");
        let folder = top.join("user.slice/user-1000.slice/session-2.scope");
        assert_eq!(find(groups, V2_MOUNTS), Some((Version::Two, top, folder)));
    }

    #[test]
    fn a_container_that_mounts_only_its_part_is_understood() {
        let mounts = "32 31 0:29 /docker/c0 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let (_, _, folder) = find("2:cpu:/docker/c0/inner\n", mounts).unwrap();
        assert_eq!(folder, PathBuf::from("/sys/fs/cgroup/cpu/inner"));
    }

    #[test]
    fn nonsense_is_no_group() {
        assert_eq!(find("", V1_MOUNTS), None);
        assert_eq!(find("0::/\n", "garbage\n - \n"), None);
    }
}
