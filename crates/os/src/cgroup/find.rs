//! Control groups by their paths, units and containers.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::process::geteuid;

use super::mounts::{self, Hierarchy};

/// Why a group was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoGroup {
    /// No hierarchy has it.
    Nowhere(String),
    /// It is not a control group's folder.
    NoGroup(PathBuf),
    /// It contains all processes of the machine.
    Root(PathBuf),
    /// It contains this process.
    Own(PathBuf),
    /// It is empty.
    Empty(PathBuf),
    /// Its processes cannot be read; the text is the kernel's.
    Unreadable(PathBuf, String),
    /// No group has the unit's name.
    Unit(String),
    /// No group has the container's id.
    Container(String),
    /// Several groups have it.
    Several(String, Vec<PathBuf>),
}

/// The most groups below one another that are searched.
pub(super) const MOST_GROUPS: usize = 16_384;
/// The shortest accepted prefix of a container's id.
const SHORTEST_ID: usize = 4;

/// The folder of a group, by its folder or its path within a hierarchy; see [`Group::open`](super::Group::open).
///
/// # Errors
///
/// For a path that is not a group, and for the root.
pub(super) fn of_path(path: &str) -> Result<PathBuf, NoGroup> {
    let hierarchies = hierarchies();
    let folder = folder(path, &hierarchies)?;
    if hierarchies.iter().any(|hierarchy| hierarchy.point == folder) {
        return Err(NoGroup::Root(folder));
    }
    Ok(folder)
}

/// The folder of a systemd unit, such as `cron.service`; a name without its kind is a service's.
///
/// # Errors
///
/// If no group has the name, as for a unit that does not run, or several have. Groups that other users but root have
/// made do not count: a user with a part of the tree could give one the name of a unit of the machine.
pub fn of_unit(name: &str) -> Result<PathBuf, NoGroup> {
    let kinds = [".service", ".scope", ".slice", ".socket", ".mount", ".swap"];
    let name = if kinds.iter().any(|kind| name.ends_with(kind)) { name.to_owned() } else { format!("{name}.service") };
    // A name that would be a file of the group's gets an underscore before it.
    let is = |group: &str| group.strip_prefix('_').unwrap_or(group) == name;
    for hierarchy in hierarchies().iter().filter(|hierarchy| hierarchy.has_units()) {
        if let Some(one) = one(named(&hierarchy.point, is, may_name), &name) {
            return one;
        }
    }
    Err(NoGroup::Unit(name))
}

/// The folder of a container by its id, or a prefix of it: Docker's and Podman's, and those of containerd and CRI-O
/// under Kubernetes.
///
/// # Errors
///
/// If no group has the id, or several begin like that. As for units, groups that other users have made do not count.
pub fn of_container(id: &str) -> Result<PathBuf, NoGroup> {
    if id.len() >= SHORTEST_ID && id.chars().all(|c| c.is_ascii_hexdigit()) {
        for hierarchy in hierarchies() {
            let found =
                named(&hierarchy.point, |group| container(group).is_some_and(|whole| whole.starts_with(id)), may_name);
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

/// The id in a container's group: `docker/NUMBER`, `docker-NUMBER.scope`, `libpod-NUMBER.scope`.
fn container(group: &str) -> Option<&str> {
    let whole = group.strip_suffix(".scope").unwrap_or(group);
    let (by, number) = whole.rsplit_once('-').unwrap_or(("", whole));
    // Podman's monitor of a container is not in it.
    (number.len() >= 32 && number.chars().all(|c| c.is_ascii_hexdigit()) && !by.ends_with("conmon")).then_some(number)
}

enum Walk {
    Down,
    Past,
}

/// True of a group with an owner that is trusted to name the groups in it: root, and this user.
fn may_name(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|meta| meta.uid() == 0 || meta.uid() == geteuid().as_raw())
}

/// The groups of this name below a folder. It does not search below a match, nor below a group for which `may` is
/// false.
fn named(top: &Path, is: impl Fn(&str) -> bool, may: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if !may(top) {
        return found;
    }
    walk(top, MOST_GROUPS, |group| match group.file_name().and_then(|name| name.to_str()).is_some_and(&is) {
        true => {
            found.push(group.to_owned());
            Walk::Past
        }
        false if may(group) => Walk::Down,
        false => Walk::Past,
    });
    found
}

/// Each group below a folder, nearer ones first, at most this many.
fn walk(top: &Path, most: usize, mut each: impl FnMut(&Path) -> Walk) {
    let mut next = VecDeque::from([top.to_owned()]);
    let mut seen = 0;
    while let Some(folder) = next.pop_front() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let below = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for below in below.map(|entry| entry.path()) {
            seen += 1;
            if seen > most {
                return;
            }
            match each(&below) {
                Walk::Down => next.push_back(below),
                Walk::Past => {}
            }
        }
    }
}

/// The mount points of control groups, systemd's first.
fn hierarchies() -> Vec<Hierarchy> {
    let mut hierarchies = mounts::hierarchies();
    hierarchies.sort_by_key(|hierarchy| !hierarchy.has_units());
    hierarchies
}

/// The folder of a path. It uses only the text: a path with links is not followed, because any user may ask, and its
/// target would be revealed with this process's rights, or block.
fn folder(path: &str, hierarchies: &[Hierarchy]) -> Result<PathBuf, NoGroup> {
    let nowhere = || NoGroup::Nowhere(path.to_owned());
    let given = Path::new(path);
    if given.components().any(|part| part == Component::ParentDir) {
        return Err(nowhere());
    }
    let within = |hierarchy: &&Hierarchy| given.starts_with(&hierarchy.point);
    let whole = hierarchies.iter().find(within).map(|_| given.components().collect());
    let candidates = whole.into_iter().chain(hierarchies.iter().map(|hierarchy| hierarchy.below(path)));
    let mut other = None;
    for folder in candidates {
        // The hierarchy's own folders have no links among them; a link is not one of them.
        match fs::symlink_metadata(folder.join("cgroup.procs")) {
            Ok(_) => return Ok(folder),
            Err(_) if fs::symlink_metadata(&folder).is_ok() => other = Some(NoGroup::NoGroup(given.to_owned())),
            Err(_) => {}
        }
    }
    Err(other.unwrap_or_else(nowhere))
}

impl NoGroup {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            NoGroup::Nowhere(_) | NoGroup::NoGroup(_) => {
                "use a folder below /sys/fs/cgroup; /proc/PID/cgroup has the group of a process, `systemd-cgls` lists \
                    all"
                .into()
            }
            NoGroup::Root(_) | NoGroup::Own(_) => "use a control group of the programs to serve".into(),
            NoGroup::Empty(_) => "start the program first, or with `hyoshi exec`".into(),
            NoGroup::Unreadable(..) => "use the group above it, or run the broker as root".into(),
            // Like sd_booted(3).
            NoGroup::Unit(_) if !Path::new("/run/systemd/system").is_dir() => {
                "systemd does not run here: use a process, or its control group with --cgroup (see /proc/PID/cgroup)"
                    .into()
            }
            NoGroup::Unit(name) => format!("check that it runs: `systemctl status {name}`"),
            NoGroup::Container(_) => {
                "check that it runs: `docker ps` and `podman ps` list containers and their ids".into()
            }
            NoGroup::Several(..) => "select one of them with --cgroup".into(),
        }
    }
}

impl fmt::Display for NoGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoGroup::Nowhere(path) => write!(f, "no control group {}", path.escape_debug()),
            NoGroup::NoGroup(folder) => write!(f, "{} is not a control group", folder.display()),
            NoGroup::Root(folder) => write!(f, "{} is the root of all control groups", folder.display()),
            NoGroup::Own(folder) => write!(f, "the broker itself is in {}", folder.display()),
            NoGroup::Empty(folder) => write!(f, "the control group {} is empty", folder.display()),
            NoGroup::Unreadable(folder, why) => {
                write!(f, "the processes of {} cannot be read: {why}", folder.display())
            }
            NoGroup::Unit(name) => write!(f, "no control group belongs to a unit {}", name.escape_debug()),
            NoGroup::Container(id) => write!(f, "no control group belongs to a container {}", id.escape_debug()),
            NoGroup::Several(name, all) => {
                write!(f, "several control groups match {}:", name.escape_debug())?;
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
        assert_eq!(of_path("/no/such/group"), Err(NoGroup::Nowhere("/no/such/group".into())));
        // Other folders are not revealed, nor reached through a hierarchy.
        for elsewhere in ["/proc/self/fd", "/", "/root", "../../../root", "/sys/fs/cgroup/../../../root"] {
            if hierarchies().iter().all(|hierarchy| hierarchy.point != Path::new(elsewhere)) && elsewhere != "/" {
                assert_eq!(of_path(elsewhere), Err(NoGroup::Nowhere(elsewhere.into())));
            }
        }
        assert!(matches!(of_unit("no-such-unit"), Err(NoGroup::Unit(name)) if name == "no-such-unit.service"));
        assert!(matches!(of_container("zz"), Err(NoGroup::Container(_))));
        for hierarchy in hierarchies() {
            let point = hierarchy.point.to_str().unwrap().to_owned();
            assert!(matches!(of_path(&point), Err(NoGroup::Root(_) | NoGroup::NoGroup(_))), "{point}");
        }
    }

    #[test]
    fn a_path_is_taken_by_its_text_and_links_lead_nowhere() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-text-{}", std::process::id()));
        fs::create_dir_all(top.join("mount/a/b")).unwrap();
        fs::create_dir_all(top.join("elsewhere")).unwrap();
        for group in ["mount", "mount/a", "mount/a/b", "elsewhere"] {
            fs::write(top.join(group).join("cgroup.procs"), "").unwrap();
        }
        std::os::unix::fs::symlink(top.join("mount/a"), top.join("link")).unwrap();
        let hierarchies = mounts::mounted(&format!("35 24 0:30 / {}/mount rw - cgroup2 cgroup2 rw\n", top.display()));
        let of = |path: &Path| folder(path.to_str().unwrap(), &hierarchies);
        for path in [top.join("mount/a/b"), top.join("mount//a/./b/"), "/a/b".into(), "a/b".into()] {
            assert_eq!(of(&path), Ok(top.join("mount/a/b")), "{}", path.display());
        }
        assert_eq!(of(Path::new("/")), Ok(top.join("mount")));
        for path in [top.join("mount/a/../a"), top.join("link"), top.join("elsewhere"), top.join("mount-not")] {
            assert_eq!(of(&path), Err(NoGroup::Nowhere(path.to_str().unwrap().into())));
        }
        fs::create_dir(top.join("mount/none")).unwrap();
        assert_eq!(of(Path::new("/none")), Err(NoGroup::NoGroup("/none".into())), "as it was given");
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn names_that_other_users_gave_are_no_units() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-owner-{}", std::process::id()));
        for folder in ["system.slice/nginx.service", "user.slice/user@7.service/nginx.service/x"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        let found = |may: &dyn Fn(&Path) -> bool| named(&top, |name| name == "nginx.service", may);
        assert_eq!(found(&|_| true).len(), 2);
        let machines = [top.join("system.slice/nginx.service")];
        assert_eq!(found(&|folder| !folder.ends_with("user@7.service")), machines);
        assert_eq!(found(&|folder| folder != top), Vec::<PathBuf>::new());
        assert!(may_name(&top) && may_name(Path::new("/")) && !may_name(&top.join("no-such")));
        // Only root can change the owner of folders.
        if geteuid().is_root() {
            std::os::unix::fs::chown(top.join("user.slice/user@7.service"), Some(7), None).unwrap();
            assert_eq!(found(&may_name), machines);
        }
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn groups_are_found_by_name_and_not_below_each_other() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-{}", std::process::id()));
        let number = "ab".repeat(32);
        for folder in ["system.slice/cron.service/x", "a/b/cron.service", &format!("docker/{number}/init")] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        assert_eq!(named(&top, |name| name == "cron.service", |_| true).len(), 2);
        assert_eq!(named(&top, |name| container(name).is_some(), |_| true), [top.join("docker").join(&number)]);
        fs::remove_dir_all(&top).unwrap();
    }
}
