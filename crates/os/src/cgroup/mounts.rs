//! The mount points of control groups (mountinfo in proc_pid_mountinfo(5)).

use std::fs;
use std::path::{Path, PathBuf};

use super::CgroupVersion;

/// A mount of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hierarchy {
    pub point: PathBuf,
    pub version: CgroupVersion,
    /// The group at which the mount begins: in a container it may be further down than in /proc.
    root: String,
    /// Of version 1 its controllers, and systemd's `name=systemd`.
    options: String,
}

impl Hierarchy {
    /// Whether version 1 has this controller, or name, there.
    pub fn has(&self, option: &str) -> bool {
        self.version == CgroupVersion::One && self.options.split(',').any(|one| one == option)
    }

    /// Whether systemd keeps its units there.
    pub fn has_units(&self) -> bool {
        self.version == CgroupVersion::Two || self.has("name=systemd")
    }

    /// The folder of a group, by its path as in /proc/PID/cgroup.
    pub fn folder(&self, path: &str) -> PathBuf {
        self.below(path.strip_prefix(self.root.trim_end_matches('/')).unwrap_or(path))
    }

    /// The folder of a group, by its path from here.
    pub fn below(&self, path: &str) -> PathBuf {
        // Component by component: joining an empty path would leave a slash at the end.
        self.point.components().chain(Path::new(path.trim_start_matches('/')).components()).collect()
    }
}

/// All hierarchies of this process.
pub(super) fn hierarchies() -> Vec<Hierarchy> {
    mounted(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

pub(super) fn mounted(mounts: &str) -> Vec<Hierarchy> {
    let hierarchy = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?.to_owned(), PathBuf::from(mount.next()?));
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup" => CgroupVersion::One,
            "cgroup2" => CgroupVersion::Two,
            _ => return None,
        };
        Some(Hierarchy { point, version, root, options: kind.nth(1)?.to_owned() })
    };
    mounts.lines().filter_map(hierarchy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n\
            33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let all = mounted(mounts);
        let all: Vec<_> =
            all.iter().map(|one| (one.point.to_str().unwrap(), one.has("cpu"), one.has_units())).collect();
        let wanted = [("cpu,cpuacct", true, false), ("systemd", false, true), ("unified", false, true)]
            .map(|(name, cpu, units)| (format!("/sys/fs/cgroup/{name}"), cpu, units));
        assert_eq!(all, wanted.each_ref().map(|(point, cpu, units)| (point.as_str(), *cpu, *units)));
        assert_eq!(mounted("garbage\n - \n"), []);
    }

    #[test]
    fn a_container_that_mounts_only_its_part_is_understood() {
        let mounts = "32 31 0:29 /docker/c0 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
        let all = mounted(mounts);
        assert_eq!(all[0].folder("/docker/c0/inner"), PathBuf::from("/sys/fs/cgroup/cpu/inner"));
        assert_eq!(all[0].folder("/docker/c0").as_os_str(), "/sys/fs/cgroup/cpu");
    }
}
