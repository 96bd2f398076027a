//! Control groups by their paths, units and containers, and who is in them (cgroups(7), both versions).

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group with all that are below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    folder: PathBuf,
}

/// Why there is no such group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoGroup {
    /// No hierarchy has it.
    Nowhere(String),
    /// It is no control group's folder.
    NoGroup(PathBuf),
    /// All processes of the machine are in it.
    Root(PathBuf),
    /// This process is in it.
    Own(PathBuf),
    /// Nobody is in it.
    Empty(PathBuf),
    /// Who is in it cannot be read; the text is the kernel's.
    Unreadable(PathBuf, String),
    /// No group has the unit's name.
    Unit(String),
    /// No group has the container's number.
    Container(String),
    /// Several have.
    Several(String, Vec<PathBuf>),
}

/// Groups below one another that are looked through.
const MOST_GROUPS: usize = 16_384;
/// The shortest beginning of a container's number that is taken for one.
const SHORTEST_ID: usize = 4;

/// A mount of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    point: PathBuf,
    /// systemd keeps its units there: version 2, or `name=systemd`.
    units: bool,
}

impl Group {
    /// By its folder, such as `/sys/fs/cgroup/system.slice/cron.service`, or by its path within the hierarchy, as
    /// /proc/PID/cgroup has it.
    ///
    /// # Errors
    ///
    /// Of what is no group, the root, the group that this process is in, and one in which nobody is.
    pub fn open(path: &str) -> Result<Group, NoGroup> {
        let hierarchies = hierarchies();
        let folder = folder(path, &hierarchies)?;
        if hierarchies.iter().any(|hierarchy| hierarchy.point == folder) {
            return Err(NoGroup::Root(folder));
        }
        let group = Group { folder };
        let unreadable = |error: io::Error| NoGroup::Unreadable(group.folder.clone(), error.to_string());
        let processes = group.processes(usize::MAX).map_err(unreadable)?;
        if processes.is_empty() {
            return Err(NoGroup::Empty(group.folder));
        }
        if processes.contains(&std::process::id()) {
            return Err(NoGroup::Own(group.folder));
        }
        Ok(group)
    }

    /// By the folder of one that was opened before, whether anybody is in it now or not.
    pub fn again(folder: &Path) -> Group {
        Group { folder: folder.to_owned() }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The processes in it and below, by number, about `most` of them.
    ///
    /// # Errors
    ///
    /// If the group is no more, or is one of single threads.
    pub fn processes(&self, most: usize) -> io::Result<Vec<u32>> {
        let mut processes = Vec::new();
        let read = |folder: &Path, into: &mut Vec<u32>| {
            let list = fs::read_to_string(folder.join("cgroup.procs"))?;
            // 0 is somebody of another namespace of processes.
            into.extend(list.lines().filter_map(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid != 0));
            io::Result::Ok(())
        };
        read(&self.folder, &mut processes)?;
        walk(&self.folder, |below| {
            // One that has gone since, or is one of threads, has no processes of its own.
            let _ = read(below, &mut processes);
            if processes.len() < most { Walk::Down } else { Walk::End }
        });
        processes.sort_unstable();
        processes.dedup();
        Ok(processes)
    }
}

/// The folder of a systemd unit, such as `cron.service`; a name without its kind is a service's.
///
/// # Errors
///
/// If no group has the name, as of a unit that does not run, or several have: of the machine and of users.
pub fn of_unit(name: &str) -> Result<PathBuf, NoGroup> {
    let kinds = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];
    let name = if kinds.iter().any(|kind| name.ends_with(kind)) { name.to_owned() } else { format!("{name}.service") };
    // A name that would be a file of the group's has an underscore before it.
    let is = |group: &str| group.strip_prefix('_').unwrap_or(group) == name;
    for hierarchy in hierarchies().iter().filter(|hierarchy| hierarchy.units) {
        if let Some(one) = one(named(&hierarchy.point, is), &name) {
            return one;
        }
    }
    Err(NoGroup::Unit(name))
}

/// The folder of a container by its number, or the beginning of it: Docker's and Podman's, and those of containerd and CRI-O
/// under Kubernetes.
///
/// # Errors
///
/// If no group has the number, or several begin like that.
pub fn of_container(id: &str) -> Result<PathBuf, NoGroup> {
    if id.len() >= SHORTEST_ID && id.chars().all(|c| c.is_ascii_hexdigit()) {
        for hierarchy in hierarchies() {
            let found = named(&hierarchy.point, |group| container(group).is_some_and(|whole| whole.starts_with(id)));
            if let Some(one) = one(found, id) {
                return one;
            }
        }
    }
    Err(NoGroup::Container(id.to_owned()))
}

fn one(mut found: Vec<PathBuf>, name: &str) -> Option<Result<PathBuf, NoGroup>> {
    match found.len() {
        0 => None,
        1 => found.pop().map(Ok),
        _ => Some(Err(NoGroup::Several(name.to_owned(), found))),
    }
}

/// The number in a container's group: `docker/NUMBER`, `docker-NUMBER.scope`, `libpod-NUMBER.scope`.
fn container(group: &str) -> Option<&str> {
    let whole = group.strip_suffix(".scope").unwrap_or(group);
    let (by, number) = whole.rsplit_once('-').unwrap_or(("", whole));
    // Podman's monitor of a container is not in it.
    (number.len() >= 32 && number.chars().all(|c| c.is_ascii_hexdigit()) && !by.ends_with("conmon")).then_some(number)
}

enum Walk {
    Down,
    Past,
    End,
}

/// The groups below a folder, not those below one that is named.
fn named(top: &Path, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(top, |group| match group.file_name().and_then(|name| name.to_str()).is_some_and(&is) {
        true => {
            found.push(group.to_owned());
            Walk::Past
        }
        false => Walk::Down,
    });
    found
}

/// Each group below a folder, nearer ones first, at most [`MOST_GROUPS`].
fn walk(top: &Path, mut each: impl FnMut(&Path) -> Walk) {
    let mut next = VecDeque::from([top.to_owned()]);
    let mut seen = 0;
    while let Some(folder) = next.pop_front() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let below = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for below in below.map(|entry| entry.path()) {
            seen += 1;
            if seen > MOST_GROUPS {
                return;
            }
            match each(&below) {
                Walk::Down => next.push_back(below),
                Walk::Past => {}
                Walk::End => return,
            }
        }
    }
}

/// Where control groups are mounted, systemd's first.
fn hierarchies() -> Vec<Hierarchy> {
    mounted(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// From mountinfo (proc_pid_mountinfo(5)).
fn mounted(mounts: &str) -> Vec<Hierarchy> {
    let mut hierarchies: Vec<_> = mounts
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let point = PathBuf::from(mount.split(' ').nth(4)?);
            let mut kind = kind.split(' ');
            match (kind.next()?, kind.nth(1)?) {
                ("cgroup2", _) => Some(Hierarchy { point, units: true }),
                ("cgroup", options) => {
                    Some(Hierarchy { point, units: options.split(',').any(|option| option == "name=systemd") })
                }
                _ => None,
            }
        })
        .collect();
    hierarchies.sort_by_key(|hierarchy| !hierarchy.units);
    hierarchies
}

/// The folder that is meant; nothing outside of the hierarchies, whatever links lead there.
fn folder(path: &str, hierarchies: &[Hierarchy]) -> Result<PathBuf, NoGroup> {
    let below = Path::new(path.trim_start_matches('/'));
    let whole = [PathBuf::from(path)].into_iter().filter(|path| path.is_absolute());
    let candidates = whole.chain(hierarchies.iter().map(|hierarchy| hierarchy.point.join(below)));
    let mut other = None;
    for candidate in candidates {
        let Ok(folder) = fs::canonicalize(&candidate) else { continue };
        let inside = hierarchies.iter().any(|hierarchy| folder.starts_with(&hierarchy.point));
        if inside && folder.join("cgroup.procs").exists() {
            return Ok(folder);
        }
        other = other.or(Some(folder));
    }
    Err(other.map_or(NoGroup::Nowhere(path.to_owned()), NoGroup::NoGroup))
}

impl NoGroup {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            NoGroup::Nowhere(_) | NoGroup::NoGroup(_) => {
                "name a folder below /sys/fs/cgroup; /proc/PID/cgroup has the one of a process, `systemd-cgls` shows all".into()
            }
            NoGroup::Root(_) | NoGroup::Own(_) => "name a group of the programs that are meant".into(),
            NoGroup::Empty(_) => "start the program first, or with `hyoshi exec`".into(),
            NoGroup::Unreadable(..) => "name the group above it, or run the broker as root".into(),
            NoGroup::Unit(name) => format!("is it running? `systemctl status {name}` tells"),
            NoGroup::Container(_) => {
                "is it running? `docker ps` and `podman ps` show containers, and their numbers".into()
            }
            NoGroup::Several(..) => "name one of them with --cgroup".into(),
        }
    }
}

impl fmt::Display for NoGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoGroup::Nowhere(path) => write!(f, "there is no control group {}", path.escape_debug()),
            NoGroup::NoGroup(folder) => write!(f, "{} is no control group", folder.display()),
            NoGroup::Root(folder) => write!(f, "{} is the root of all control groups", folder.display()),
            NoGroup::Own(folder) => write!(f, "the broker itself is in {}", folder.display()),
            NoGroup::Empty(folder) => write!(f, "nobody is in the control group {}", folder.display()),
            NoGroup::Unreadable(folder, why) => write!(f, "who is in {} cannot be read: {why}", folder.display()),
            NoGroup::Unit(name) => write!(f, "no control group belongs to a unit {}", name.escape_debug()),
            NoGroup::Container(id) => write!(f, "no control group belongs to a container {}", id.escape_debug()),
            NoGroup::Several(name, all) => {
                write!(f, "several control groups are called {}:", name.escape_debug())?;
                all.iter().take(4).try_for_each(|one| write!(f, " {}", one.display()))
            }
        }
    }
}

impl std::error::Error for NoGroup {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_of_both_versions_are_found_systemds_first() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:4 - cgroup cgroup rw,cpu,cpuacct\n\
            33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let all = mounted(mounts);
        let points: Vec<_> = all.iter().map(|one| (one.point.to_str().unwrap(), one.units)).collect();
        let below = |name: &str| format!("/sys/fs/cgroup/{name}");
        let wanted = [("systemd", true), ("unified", true), ("cpu,cpuacct", false)];
        assert_eq!(
            points,
            wanted.map(|(name, units)| (below(name), units)).each_ref().map(|(name, units)| (name.as_str(), *units))
        );
        assert_eq!(mounted("garbage\n - \n"), []);
    }

    #[test]
    fn containers_of_each_kind_have_their_number_and_monitors_none() {
        let number = "0123456789abcdef".repeat(4);
        for group in
            ["NUMBER", "docker-NUMBER.scope", "libpod-NUMBER.scope", "cri-containerd-NUMBER.scope", "crio-NUMBER"]
        {
            assert_eq!(container(&group.replace("NUMBER", &number)), Some(number.as_str()), "{group}");
        }
        for group in ["libpod-conmon-NUMBER.scope", "cron.service", "deadbeef", "user-1000.slice"] {
            assert_eq!(container(&group.replace("NUMBER", &number)), None, "{group}");
        }
    }

    #[test]
    fn what_is_no_group_is_refused_for_its_own_reason() {
        assert_eq!(Group::open("/no/such/group"), Err(NoGroup::Nowhere("/no/such/group".into())));
        assert_eq!(Group::open("/proc/self/fd").map_err(|error| matches!(error, NoGroup::NoGroup(_))), Err(true));
        assert!(matches!(of_unit("no-such-unit"), Err(NoGroup::Unit(name)) if name == "no-such-unit.service"));
        assert!(matches!(of_container("zz"), Err(NoGroup::Container(_))));
        for hierarchy in hierarchies() {
            let point = hierarchy.point.to_str().unwrap().to_owned();
            assert!(matches!(Group::open(&point), Err(NoGroup::Root(_) | NoGroup::NoGroup(_))), "{point}");
        }
    }

    #[test]
    fn groups_are_found_by_name_and_not_below_each_other() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-{}", std::process::id()));
        let number = "ab".repeat(32);
        for folder in ["system.slice/cron.service/x", "a/b/cron.service", &format!("docker/{number}/init")] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        assert_eq!(named(&top, |name| name == "cron.service").len(), 2);
        assert_eq!(named(&top, |name| container(name).is_some()), [top.join("docker").join(&number)]);
        fs::write(top.join("cgroup.procs"), "7\n0\n").unwrap();
        fs::write(top.join("a/b/cgroup.procs"), "9\n7\n8\n").unwrap();
        assert_eq!(Group::again(&top).processes(100).unwrap(), [7, 8, 9]);
        fs::remove_dir_all(&top).unwrap();
    }
}
