//! A control group that this process makes, with the files of either version.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use hyoshi_model::Span;

use super::{CgroupVersion, CpuGroup};

/// A group to make, set, fill and remove. The value is only its name: its state is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnGroup {
    folder: PathBuf,
    version: CgroupVersion,
}

impl OwnGroup {
    /// The group of a name below another. Does not make it yet.
    pub fn below(folder: &Path, name: &str, version: CgroupVersion) -> OwnGroup {
        OwnGroup { folder: folder.join(name), version }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// The kernel's: no permission, or the name exists.
    pub fn make(&self) -> io::Result<()> {
        fs::create_dir(&self.folder)
    }

    /// Sets its weight to that of this many ordinary programs at nice 0: one is 1024 in version 1, where a group may
    /// have up to 262,144, and 100 in version 2, where it may have up to 10,000.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn weigh(&self, programs: u64) -> io::Result<()> {
        match self.version {
            CgroupVersion::One => self.set("cpu.shares", programs.saturating_mul(1024).clamp(2, 262_144)),
            CgroupVersion::Two => self.set("cpu.weight", programs.saturating_mul(100).clamp(1, 10_000)),
        }
    }

    /// Caps its ordinary threads in each period, in whole microseconds; `None`: no cap. Each call starts a new period,
    /// even without a change.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn cap(&self, quota: Option<(Span, Span)>) -> io::Result<()> {
        match (self.version, quota) {
            (CgroupVersion::One, None) => self.set("cpu.cfs_quota_us", -1),
            (CgroupVersion::One, Some((budget, period))) => {
                self.set("cpu.cfs_period_us", micros(period))?;
                self.set("cpu.cfs_quota_us", micros(budget))
            }
            (CgroupVersion::Two, None) => self.set("cpu.max", "max"),
            (CgroupVersion::Two, Some((budget, period))) => {
                self.set("cpu.max", format_args!("{} {}", micros(budget), micros(period)))
            }
        }
    }

    /// True if its threads get a real-time priority only within a budget of the group (version 1 with
    /// CONFIG_RT_GROUP_SCHED), which is 0 at first.
    pub fn budgets_real_time(&self) -> bool {
        self.version == CgroupVersion::One && self.folder.join("cpu.rt_runtime_us").exists()
    }

    /// Sets its real-time budget on each CPU, if the kernel has such budgets.
    ///
    /// # Errors
    ///
    /// If all groups together would have more than the one above them (EINVAL); its budget then remains.
    pub fn allow_real_time(&self, budget: Span, period: Span) -> io::Result<()> {
        if !self.budgets_real_time() {
            return Ok(());
        }
        let before = fs::read_to_string(self.folder.join("cpu.rt_period_us"))?;
        let longer = before.trim().parse().is_ok_and(|before: u64| micros(period) > before);
        let part = || self.set("cpu.rt_runtime_us", micros(budget));
        let whole = || self.set("cpu.rt_period_us", micros(period));
        // In between, too, the part must not exceed the whole.
        let set = if longer { whole().and_then(|()| part()) } else { part().and_then(|()| whole()) };
        if set.is_err() && longer {
            // A part of a longer whole is less than it was.
            let _ = self.set("cpu.rt_period_us", before.trim());
        }
        set
    }

    /// The processes in it.
    pub fn processes(&self) -> Vec<u32> {
        processes(&self.folder)
    }

    /// Moves a process into it, with all its threads.
    ///
    /// # Errors
    ///
    /// The kernel's: without privileges also that the process is outside of the delegated part.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        move_to(&self.folder, pid)
    }

    fn set(&self, file: &str, value: impl std::fmt::Display) -> io::Result<()> {
        fs::write(self.folder.join(file), value.to_string())
    }
}

/// Those with a visible number: moving 0 would move this process.
fn processes(folder: &Path) -> Vec<u32> {
    listed(folder).into_iter().filter(|pid| *pid != 0).collect()
}

/// The processes of a group; 0 is one of another namespace.
pub(super) fn listed(folder: &Path) -> Vec<u32> {
    let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    inside.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// Moves a process, with all its threads.
///
/// # Errors
///
/// The kernel's.
pub fn move_to(folder: &Path, pid: u32) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), pid.to_string())
}

/// Makes the kernel wait now, instead of at the next move of a process, until all threads that start or end processes
/// have noticed (`synchronize_rcu`; 5 to 25 ms measured). For about as long afterwards it need not wait again, and
/// moves one in some 50 us. This process is moved to its own group.
///
/// # Errors
///
/// The kernel's, as for a group that was not delegated: moves then last as long as without this call.
pub fn prepare_to_move() -> io::Result<()> {
    move_to(&CpuGroup::of_this_process().folder, std::process::id())
}

/// Moves a process back to its former group. If that group was removed, such as a scope that systemd removed because it
/// was empty, or accepts no process:
///
/// - in version 1, to the next above that accepts it, else to one of the same name;
/// - in version 2, where groups limit memory and processes too, to one of the same name, else to the next above, but
///   not to the topmost, which accepts any process and limits none. Those between that pass limits on accept none.
///
/// # Errors
///
/// The kernel's, for the former group.
pub fn move_back(pid: u32, home: &Path) -> io::Result<()> {
    let is_group = |folder: &&Path| folder.join("cgroup.procs").exists();
    let unified = || home.ancestors().any(|folder| folder.join("cgroup.controllers").exists());
    let mut above = home.ancestors().skip(1).filter(is_group);
    move_to(home, pid).or_else(|error| {
        let sent = if unified() {
            let mut above = above.filter(|folder| folder.parent().as_ref().is_some_and(is_group));
            recreate_and_move(pid, home).is_ok() || above.any(|folder| move_to(folder, pid).is_ok())
        } else {
            above.any(|folder| move_to(folder, pid).is_ok()) || recreate_and_move(pid, home).is_ok()
        };
        if sent { Ok(()) } else { Err(error) }
    })
}

/// Moves a process to a removed group, made again with its missing parents; all are removed again if that fails.
fn recreate_and_move(pid: u32, home: &Path) -> io::Result<()> {
    let gone: Vec<&Path> = home.ancestors().take_while(|folder| !folder.exists()).collect();
    let mut made = Vec::new();
    let all = gone.into_iter().rev().try_for_each(|folder| {
        fs::create_dir(folder)?;
        made.push(folder);
        inherit_owner(folder)
    });
    all.and_then(|()| move_to(home, pid)).inspect_err(|_| {
        made.into_iter().rev().for_each(|folder| {
            let _ = fs::remove_dir(folder);
        });
    })
}

/// A group in a user's part of the tree belongs to the user, as if the user had made it.
fn inherit_owner(folder: &Path) -> io::Result<()> {
    let owner = |folder: &Path| fs::symlink_metadata(folder).map(|meta| (meta.uid(), meta.gid()));
    let Some(above) = folder.parent().map(owner).transpose()? else { return Ok(()) };
    if owner(folder)? == above {
        return Ok(());
    }
    let give = |path: &Path| lchown(path, Some(above.0), Some(above.1));
    fs::read_dir(folder)?.try_for_each(|file| give(&file?.path()))?;
    give(folder)
}

/// Removes a group; remaining processes are moved to `home`, or to the group above. A missing group counts as removed.
///
/// # Errors
///
/// The kernel's: a process is still in it.
pub fn remove(folder: &Path, home: Option<&Path>) -> io::Result<()> {
    for pid in processes(folder) {
        let _ = home.or(folder.parent()).map(|home| move_back(pid, home));
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn micros(span: Span) -> u64 {
    span.as_nanos() / 1_000
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    /// A group that accepts writes.
    fn group(name: &str, version: CgroupVersion) -> (Fixture, OwnGroup) {
        let fixture = Fixture::new(name);
        let group = OwnGroup::below(&fixture.0, "g", version);
        group.make().unwrap();
        (fixture, group)
    }

    fn contents(group: &OwnGroup, file: &str) -> String {
        fs::read_to_string(group.folder().join(file)).unwrap()
    }

    #[test]
    fn each_version_gets_its_own_settings() {
        let quota = Some((Span::from_millis(30), Span::from_millis(100)));
        let (_one, one) = group("one", CgroupVersion::One);
        one.weigh(30).unwrap();
        one.cap(quota).unwrap();
        assert_eq!(
            ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|file| contents(&one, file)),
            ["30720", "30000", "100000"]
        );
        one.cap(None).unwrap();
        assert_eq!(contents(&one, "cpu.cfs_quota_us"), "-1");
        let (_two, two) = group("two", CgroupVersion::Two);
        two.weigh(30).unwrap();
        two.cap(quota).unwrap();
        assert_eq!(["cpu.weight", "cpu.max"].map(|file| contents(&two, file)), ["3000", "30000 100000"]);
        two.weigh(1_000).unwrap();
        two.cap(None).unwrap();
        assert_eq!(["cpu.weight", "cpu.max"].map(|file| contents(&two, file)), ["10000", "max"]);
    }

    #[test]
    fn real_time_is_budgeted_where_the_kernel_does_and_nowhere_else() {
        let (_one, one) = group("real-time", CgroupVersion::One);
        one.allow_real_time(Span::from_millis(1), Span::from_millis(2)).unwrap();
        assert!(!one.folder().join("cpu.rt_runtime_us").exists());
        fs::write(one.folder().join("cpu.rt_runtime_us"), "0").unwrap();
        fs::write(one.folder().join("cpu.rt_period_us"), "1000000\n").unwrap();
        one.allow_real_time(Span::from_millis(700), Span::from_secs(2)).unwrap();
        assert_eq!(["cpu.rt_runtime_us", "cpu.rt_period_us"].map(|file| contents(&one, file)), ["700000", "2000000"]);
    }

    #[test]
    fn processes_of_a_removed_group_move_to_the_next_above_in_version_one() {
        let (fixture, group) = group("home", CgroupVersion::One);
        fs::write(fixture.0.join("cgroup.procs"), "").unwrap();
        move_back(7, &fixture.0.join("gone/further")).unwrap();
        assert!(!fixture.0.join("gone").exists());
        assert_eq!(fs::read_to_string(fixture.0.join("cgroup.procs")).unwrap(), "7");
        // Those above accept no process.
        fs::remove_file(fixture.0.join("cgroup.procs")).unwrap();
        move_back(8, &fixture.0.join("gone")).unwrap();
        assert_eq!(fs::read_to_string(fixture.0.join("gone/cgroup.procs")).unwrap(), "8");
        remove(group.folder(), None).unwrap();
        remove(group.folder(), None).unwrap();
        assert!(!group.folder().exists());
    }

    #[test]
    fn processes_of_a_removed_group_stay_below_their_limits_in_version_two() {
        let (fixture, _) = group("limits", CgroupVersion::Two);
        let (top, user) = (fixture.0.join("top"), fixture.0.join("top/user.slice"));
        fs::create_dir_all(&user).unwrap();
        for (folder, file) in [&top, &user].into_iter().flat_map(|folder| [(folder, "procs"), (folder, "controllers")])
        {
            fs::write(folder.join(format!("cgroup.{file}")), "").unwrap();
        }
        // Only root can change the owner of folders.
        let given = lchown(&user, Some(1000), Some(1000)).is_ok();
        let inside = |folder: &Path| fs::read_to_string(folder.join("cgroup.procs")).unwrap();
        let home = user.join("app.slice/x.scope");
        move_back(7, &home).unwrap();
        assert_eq!([&home, &user, &top].map(|folder| inside(folder)), ["7", "", ""]);
        for folder in [&home, &user.join("app.slice")] {
            let owner = fs::metadata(folder).unwrap().uid();
            assert_eq!(owner == 1000, given || fs::metadata(&user).unwrap().uid() == 1000);
        }
        // One that cannot be made anew.
        fs::write(user.join("file"), "").unwrap();
        move_back(8, &user.join("file/x.scope")).unwrap();
        assert_eq!([&user, &top].map(|folder| inside(folder)), ["8", ""]);
        // And none between accepts them.
        fs::remove_file(user.join("cgroup.procs")).unwrap();
        fs::create_dir(user.join("cgroup.procs")).unwrap();
        move_back(9, &user.join("file/x.scope")).unwrap_err();
        assert_eq!(inside(&top), "");
        move_back(9, &top).unwrap();
        assert_eq!(inside(&top), "9", "where it came from");
    }
}
