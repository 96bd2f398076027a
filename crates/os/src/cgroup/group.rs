//! A control group of our own, with the files of either version.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use hyoshi_model::Span;

use super::Version;

/// A group that is made, set, filled and dissolved. It is only a name: what it says is in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    folder: PathBuf,
    version: Version,
}

impl Group {
    /// The group of a name below another. Nothing is made as yet.
    pub fn below(folder: &Path, name: &str, version: Version) -> Group {
        Group { folder: folder.join(name), version }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// What the kernel says: no permission, or one of that name.
    pub fn make(&self) -> io::Result<()> {
        fs::create_dir(&self.folder)
    }

    /// Lets it weigh as much as so many ordinary programs at nice 0: one is 1024 in version 1, where a group may have up
    /// to 262,144, and 100 in version 2, where it may have up to 10,000.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn weigh(&self, programs: u64) -> io::Result<()> {
        match self.version {
            Version::One => self.set("cpu.shares", programs.saturating_mul(1024).clamp(2, 262_144)),
            Version::Two => self.set("cpu.weight", programs.saturating_mul(100).clamp(1, 10_000)),
        }
    }

    /// Caps what its ordinary threads have in each period, in whole microseconds; `None`: no cap. Each call, also with what
    /// holds already, begins a period anew.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn cap(&self, quota: Option<(Span, Span)>) -> io::Result<()> {
        match (self.version, quota) {
            (Version::One, None) => self.set("cpu.cfs_quota_us", -1),
            (Version::One, Some((budget, period))) => {
                self.set("cpu.cfs_period_us", micros(period))?;
                self.set("cpu.cfs_quota_us", micros(budget))
            }
            (Version::Two, None) => self.set("cpu.max", "max"),
            (Version::Two, Some((budget, period))) => {
                self.set("cpu.max", format_args!("{} {}", micros(budget), micros(period)))
            }
        }
    }

    /// True if the kernel gives its threads a real-time priority only within a budget of the group (version 1 with
    /// CONFIG_RT_GROUP_SCHED), which is 0 at first.
    pub fn budgets_real_time(&self) -> bool {
        self.version == Version::One && self.folder.join("cpu.rt_runtime_us").exists()
    }

    /// Gives it a real-time budget on each CPU, where the kernel has such budgets.
    ///
    /// # Errors
    ///
    /// If all groups together would have more than the one above them (EINVAL); what it had then remains.
    pub fn allow_real_time(&self, budget: Span, period: Span) -> io::Result<()> {
        if !self.budgets_real_time() {
            return Ok(());
        }
        let before = fs::read_to_string(self.folder.join("cpu.rt_period_us"))?;
        let longer = before.trim().parse().is_ok_and(|before: u64| micros(period) > before);
        let part = || self.set("cpu.rt_runtime_us", micros(budget));
        let whole = || self.set("cpu.rt_period_us", micros(period));
        // In between, too, the part must not be more than the whole.
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
    /// What the kernel says: without privileges also that the process is outside what was delegated.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        move_to(&self.folder, pid)
    }

    fn set(&self, file: &str, value: impl std::fmt::Display) -> io::Result<()> {
        fs::write(self.folder.join(file), value.to_string())
    }
}

/// The processes of a group.
pub fn processes(folder: &Path) -> Vec<u32> {
    let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    inside.lines().filter_map(|pid| pid.parse().ok()).collect()
}

/// Moves a process, with all its threads.
///
/// # Errors
///
/// What the kernel says.
pub fn move_to(folder: &Path, pid: u32) -> io::Result<()> {
    fs::write(folder.join("cgroup.procs"), pid.to_string())
}

/// Moves a process to where it came from. If that group is gone meanwhile, or takes nobody, to the next above that does.
///
/// # Errors
///
/// What the kernel says of the group that it came from.
pub fn send_home(pid: u32, home: &Path) -> io::Result<()> {
    move_to(home, pid).or_else(|error| {
        let mut above = home.ancestors().skip(1).filter(|folder| folder.join("cgroup.procs").exists());
        if above.any(|folder| move_to(folder, pid).is_ok()) { Ok(()) } else { Err(error) }
    })
}

/// Removes a group; whoever is still in it is sent to `home`, or to the group above. One that is gone is removed.
///
/// # Errors
///
/// What the kernel says: somebody is still in it.
pub fn dissolve(folder: &Path, home: Option<&Path>) -> io::Result<()> {
    for pid in processes(folder) {
        let _ = home.or(folder.parent()).map(|home| send_home(pid, home));
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
    use super::*;

    /// A directory that takes what is written to a group.
    struct Fixture(PathBuf);

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn group(name: &str, version: Version) -> (Fixture, Group) {
        let folder = std::env::temp_dir().join(format!("hyoshi-group-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let group = Group::below(&folder, "g", version);
        group.make().unwrap();
        (Fixture(folder), group)
    }

    fn said(group: &Group, file: &str) -> String {
        fs::read_to_string(group.folder().join(file)).unwrap()
    }

    #[test]
    fn each_version_is_told_in_its_own_words() {
        let quota = Some((Span::from_millis(30), Span::from_millis(100)));
        let (_one, one) = group("one", Version::One);
        one.weigh(30).unwrap();
        one.cap(quota).unwrap();
        assert_eq!(
            ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|file| said(&one, file)),
            ["30720", "30000", "100000"]
        );
        one.cap(None).unwrap();
        assert_eq!(said(&one, "cpu.cfs_quota_us"), "-1");
        let (_two, two) = group("two", Version::Two);
        two.weigh(30).unwrap();
        two.cap(quota).unwrap();
        assert_eq!(["cpu.weight", "cpu.max"].map(|file| said(&two, file)), ["3000", "30000 100000"]);
        two.weigh(1_000).unwrap();
        two.cap(None).unwrap();
        assert_eq!(["cpu.weight", "cpu.max"].map(|file| said(&two, file)), ["10000", "max"]);
    }

    #[test]
    fn real_time_is_budgeted_where_the_kernel_does_and_nowhere_else() {
        let (_one, one) = group("real-time", Version::One);
        one.allow_real_time(Span::from_millis(1), Span::from_millis(2)).unwrap();
        assert!(!one.folder().join("cpu.rt_runtime_us").exists());
        fs::write(one.folder().join("cpu.rt_runtime_us"), "0").unwrap();
        fs::write(one.folder().join("cpu.rt_period_us"), "1000000\n").unwrap();
        one.allow_real_time(Span::from_millis(700), Span::from_secs(2)).unwrap();
        assert_eq!(["cpu.rt_runtime_us", "cpu.rt_period_us"].map(|file| said(&one, file)), ["700000", "2000000"]);
    }

    #[test]
    fn whoever_has_lost_their_home_goes_to_the_next_above() {
        let (fixture, group) = group("home", Version::Two);
        fs::write(fixture.0.join("cgroup.procs"), "").unwrap();
        send_home(7, &fixture.0.join("gone/further")).unwrap();
        assert_eq!(fs::read_to_string(fixture.0.join("cgroup.procs")).unwrap(), "7");
        dissolve(group.folder(), None).unwrap();
        dissolve(group.folder(), None).unwrap();
        assert!(!group.folder().exists());
    }
}
