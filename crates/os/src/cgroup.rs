//! Control groups (cgroups(7)), version 1 or 2. [`CpuGroup`]: the group that schedules a process, with its real-time
//! budget in version 1. [`Group`]: existing groups and their processes, found by path, unit or container ([`find`]).
//! [`OwnGroup`]: groups that this process makes; [`Subtree`]: where it may make them.
//!
//! With CONFIG_RT_GROUP_SCHED a new version 1 group has a budget of 0 and SCHED_FIFO is refused in it with EPERM; one
//! of 200 ms a second measured 20.08 %.

pub mod find;
#[cfg(test)]
mod fixture;
mod group;
mod mounts;
pub mod own;
mod subtree;

use std::fs;
use std::path::{Component, Path, PathBuf};

pub use find::NoGroup;
pub use group::{Group, Look};
use mounts::{Hierarchy, hierarchies};
pub use own::OwnGroup;
pub use subtree::Subtree;

/// The group of the CPU controller that has this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuGroup {
    /// The version of the hierarchy that has the CPU controller; `None` if no control groups are mounted.
    pub version: Option<CgroupVersion>,
    /// Its folder, for remedies.
    pub folder: PathBuf,
    /// The hierarchy's topmost visible group.
    pub top: PathBuf,
    /// Real-time budget and period in microseconds; `None` if the kernel has no such budgets.
    pub rt_budget: Option<(i64, i64)>,
}

/// The version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy for each controller.
    One,
    /// The unified hierarchy.
    Two,
}

/// The use of each CPU by all threads, in nanoseconds (`cpuacct.usage_percpu` of the root group, cgroups version 1).
pub(crate) fn root_usage_of_cpus() -> Option<std::fs::File> {
    let root = hierarchies().into_iter().find(|hierarchy| hierarchy.has("cpuacct"))?.below("/");
    // Only the root group has this file; in a container the top may be another group.
    root.join("release_agent").try_exists().ok()?.then_some(())?;
    std::fs::File::open(root.join("cpuacct.usage_percpu")).ok()
}

/// Whether a path can be that of a control group: inside the mount point of one of the hierarchies, without `..`. It
/// opens nothing, and the path need not exist.
pub fn is_group_path(path: &Path) -> bool {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    plain && path.is_absolute() && hierarchies().iter().any(|hierarchy| path.starts_with(&hierarchy.point))
}

impl CpuGroup {
    /// Reads /proc and the group itself.
    pub fn of_this_process() -> Self {
        CpuGroup::of_process(std::process::id())
    }

    /// The same of another process, as visible from here.
    pub fn of_process(pid: u32) -> Self {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let Some((hierarchy, folder)) = scheduling(&groups, &hierarchies()) else {
            return CpuGroup::default();
        };
        let number = |name| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
        let rt_budget = number("cpu.rt_runtime_us").zip(number("cpu.rt_period_us"));
        CpuGroup { version: Some(hierarchy.version), folder, top: hierarchy.point, rt_budget }
    }

    /// The nearest group from this one upwards, in version 1, that caps its ordinary threads.
    pub fn capped_by(&self) -> Option<&Path> {
        let capped = |folder: &&Path| {
            let quota = fs::read_to_string(folder.join("cpu.cfs_quota_us")).unwrap_or_default();
            quota.trim().parse().is_ok_and(|quota: i64| quota > 0)
        };
        self.folder.ancestors().take_while(|folder| folder.starts_with(&self.top)).find(capped)
    }

    /// True if no thread of the group may be SCHED_FIFO, whatever its privileges.
    pub fn forbids_fifo(&self) -> bool {
        self.rt_budget.is_some_and(|(runtime, _)| runtime == 0)
    }
}

/// The hierarchy and the folder of the group that controls the CPU. The version 1 controller takes precedence over the
/// unified hierarchy, which it was then removed from.
fn scheduling(groups: &str, hierarchies: &[Hierarchy]) -> Option<(Hierarchy, PathBuf)> {
    let path_of = |wanted: fn(&str, &str) -> bool| {
        groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            wanted(number, controllers).then_some(path)
        })
    };
    let first = |path: &str, wanted: fn(&Hierarchy) -> bool| {
        let hierarchy = hierarchies.iter().find(|hierarchy| wanted(hierarchy))?;
        Some((hierarchy.clone(), hierarchy.folder(path)))
    };
    if let Some(path) = path_of(|_, controllers| controllers.split(',').any(|name| name == "cpu")) {
        return first(path, |hierarchy| hierarchy.has("cpu"));
    }
    let path = path_of(|number, controllers| number == "0" && controllers.is_empty())?;
    first(path, |hierarchy| hierarchy.version == CgroupVersion::Two)
}

#[cfg(test)]
mod tests {
    use super::mounts::mounted;
    use super::*;

    const V1_MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
    const V2_MOUNTS: &str = "24 23 0:20 / /proc rw - proc proc rw\n35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn find(groups: &str, mounts: &str) -> Option<(CgroupVersion, PathBuf, PathBuf)> {
        let (hierarchy, folder) = scheduling(groups, &mounted(mounts))?;
        Some((hierarchy.version, hierarchy.point, folder))
    }

    #[test]
    fn version_1_is_found_by_its_controller_beside_a_unified_hierarchy() {
        let groups = "9:name=systemd:/\n4:memory:/x\n2:cpu,cpuacct:/jobs/a:b\n0::/elsewhere\n";
        let top = PathBuf::from("/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(find(groups, V1_MOUNTS), Some((CgroupVersion::One, top.clone(), top.join("jobs/a:b"))));
        assert_eq!(find("2:cpu,cpuacct:/\n", V1_MOUNTS).map(|(_, _, folder)| folder), Some(top));
    }

    #[test]
    fn version_2_is_found_on_a_systemd_machine() {
        let groups = "0::/user.slice/user-1000.slice/session-2.scope\n";
        let top = PathBuf::from("/sys/fs/cgroup");
        let folder = top.join("user.slice/user-1000.slice/session-2.scope");
        assert_eq!(find(groups, V2_MOUNTS), Some((CgroupVersion::Two, top, folder)));
    }

    #[test]
    fn the_nearest_cap_above_is_found_and_none_beyond_the_top() {
        let above = std::env::temp_dir().join(format!("hyoshi-capped-{}", std::process::id()));
        let top = above.join("top");
        let folder = top.join("a/b");
        fs::create_dir_all(&folder).unwrap();
        let cap = |folder: &Path, quota: &str| fs::write(folder.join("cpu.cfs_quota_us"), quota).unwrap();
        cap(&above, "1000\n");
        cap(&folder, "-1\n");
        let group =
            CpuGroup { version: Some(CgroupVersion::One), folder: folder.clone(), top: top.clone(), rt_budget: None };
        assert_eq!(group.capped_by(), None);
        cap(&top, "50000\n");
        assert_eq!(group.capped_by(), Some(top.as_path()));
        cap(&folder, "20000\n");
        assert_eq!(group.capped_by(), Some(folder.as_path()));
        assert_eq!(CpuGroup::default().capped_by(), None);
        fs::remove_dir_all(&above).unwrap();
    }

    #[test]
    fn nonsense_is_no_group() {
        assert_eq!(find("", V1_MOUNTS), None);
        assert_eq!(find("0::/\n", "garbage\n - \n"), None);
    }
}
