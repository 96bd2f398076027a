//! Where control groups may be made: at the top for root, else in the part that was delegated to this user (systemd's
//! `Delegate=yes`, and `user@UID.service` by itself).
//!
//! In version 2 a group that passes controllers on has no processes itself (the "no internal processes" rule of
//! cgroups(7)). So a process that is alone in its delegated group first moves one level down.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Access, access};

use super::own::{OwnGroup, listed, move_to};
use super::{CgroupVersion, CpuGroup};

/// A group below which this process may make others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtree {
    folder: PathBuf,
    version: CgroupVersion,
    /// This process is in it, alone, and must leave it first.
    inside: bool,
}

impl Subtree {
    /// The best one for this process. It leaves nothing changed.
    ///
    /// # Errors
    ///
    /// Why there is none, with the remedy.
    pub fn find() -> Result<Subtree, String> {
        let group = CpuGroup::of_this_process();
        let version = group.version.ok_or("no control groups are mounted")?;
        let mut refusals = Vec::new();
        for folder in candidates(&group) {
            match Subtree::at(&folder, version) {
                Ok(subtree) => return Ok(subtree),
                Err(why) => refusals.push(format!("not in {}: {why}", folder.display())),
            }
        }
        refusals.dedup();
        let remedy =
            "start it as root, or in its own group: `systemd-run --user --scope -p Delegate=yes hyoshi broker`";
        Err(format!("the broker cannot create control groups, {}; {remedy}", refusals.join(", ")))
    }

    /// In this folder, if a group can be made in it and would have the CPU controller.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn at(folder: &Path, version: CgroupVersion) -> Result<Subtree, String> {
        let may = |path: &Path| access(path, Access::WRITE_OK).is_ok();
        if !may(folder) || !may(&folder.join("cgroup.procs")) {
            return Err("this group is not delegated to this user".into());
        }
        static TRIED: AtomicU32 = AtomicU32::new(0);
        let number = TRIED.fetch_add(1, Ordering::Relaxed);
        let tried = OwnGroup::below(folder, &format!("hyoshi-probe-{}-{number}", std::process::id()), version);
        tried.make().map_err(|error| error.to_string())?;
        let removed = fs::remove_dir(tried.folder());
        removed.map_err(|error| error.to_string())?;
        let inside = version == CgroupVersion::Two && !passes_on(folder) && leaves_first(folder)?;
        Ok(Subtree { folder: folder.to_owned(), version, inside })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Of its hierarchy.
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// The group below, of this name, into which this process must move before groups beside it have a controller.
    pub fn refuge(&self, name: &str) -> Option<OwnGroup> {
        self.inside.then(|| OwnGroup::below(&self.folder, name, self.version))
    }

    /// Passes the CPU controller on to groups made here; true if it was not passed on before.
    ///
    /// # Errors
    ///
    /// The kernel's: a process is in it (EBUSY).
    pub fn delegate_cpu(&self) -> io::Result<bool> {
        if self.version == CgroupVersion::One || passes_on(&self.folder) {
            return Ok(false);
        }
        fs::write(self.folder.join("cgroup.subtree_control"), "+cpu").map(|()| true)
    }

    /// Stops passing it on, so processes may be in it again.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn keep(&self) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.subtree_control"), "-cpu")
    }

    /// Moves this process back.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn move_back(&self) -> io::Result<()> {
        move_to(&self.folder, std::process::id())
    }
}

/// At the top first, if root may; else from the process's own group upwards.
fn candidates(group: &CpuGroup) -> Vec<PathBuf> {
    let mut folders = vec![group.top.clone()];
    folders.extend(group.folder.ancestors().take_while(|folder| folder.starts_with(&group.top)).map(Path::to_owned));
    folders.dedup();
    folders
}

fn has_cpu(file: &Path) -> bool {
    let there = fs::read_to_string(file).unwrap_or_default();
    there.split_ascii_whitespace().any(|controller| controller == "cpu")
}

fn passes_on(folder: &Path) -> bool {
    has_cpu(&folder.join("cgroup.subtree_control"))
}

/// Whether this process would have to move before the controller can be passed on.
fn leaves_first(folder: &Path) -> Result<bool, String> {
    if !has_cpu(&folder.join("cgroup.controllers")) {
        return Err("it has no CPU controller: the parent group does not delegate it".into());
    }
    if access(folder.join("cgroup.subtree_control"), Access::WRITE_OK).is_err() {
        return Err("this user may not delegate the CPU controller".into());
    }
    // The hierarchy's true root may have both.
    let inside = listed(folder);
    if inside.is_empty() || !folder.join("cgroup.type").exists() {
        return Ok(false);
    }
    match inside.iter().find(|pid| **pid != std::process::id()) {
        None => Ok(true),
        Some(other) => Err(format!("it contains other processes, such as {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Fixture;
    use super::*;

    /// A directory with the files of a version 2 group that are read.
    fn group(name: &str, controllers: &str, passed: &str, inside: &str) -> Fixture {
        let fixture = Fixture::new(name);
        let files =
            [("controllers", controllers), ("subtree_control", passed), ("procs", inside), ("type", "domain\n")];
        for (file, text) in files {
            fs::write(fixture.0.join(format!("cgroup.{file}")), text).unwrap();
        }
        fixture
    }

    #[test]
    fn an_empty_group_with_a_controller_to_pass_on_is_usable() {
        let own = std::process::id().to_string();
        for (name, passed, inside, leaves) in
            [("passes", "cpu memory", "1", false), ("empty", "", "", false), ("own", "memory", &own, true)]
        {
            let group = group(name, "cpuset cpu memory\n", passed, inside);
            let found = Subtree::at(&group.0, CgroupVersion::Two).unwrap();
            assert_eq!(found.refuge("x").is_some(), leaves, "{name}");
            assert_eq!(found.delegate_cpu().unwrap(), name != "passes", "{name}");
            assert_eq!(fs::read_dir(&group.0).unwrap().count(), 4, "nothing is left behind");
        }
    }

    #[test]
    fn a_group_without_a_controller_is_rejected_with_a_reason() {
        let without = group("without", "memory\n", "", "");
        assert!(
            Subtree::at(&without.0, CgroupVersion::Two).unwrap_err().contains("the parent group does not delegate it")
        );
        let shared = group("shared", "cpu\n", "", "1\n");
        assert_eq!(Subtree::at(&shared.0, CgroupVersion::Two).unwrap_err(), "it contains other processes, such as 1");
        assert!(Subtree::at(&shared.0.join("nowhere"), CgroupVersion::One).unwrap_err().contains("not delegated"));
    }

    #[test]
    fn roots_place_is_the_top_and_a_users_the_nearest_that_is_theirs() {
        let top = PathBuf::from("/sys/fs/cgroup");
        let folder = top.join("user.slice/user@1000.service/a.scope");
        let group =
            CpuGroup { version: Some(CgroupVersion::Two), folder: folder.clone(), top: top.clone(), rt_budget: None };
        let above = [folder.clone(), top.join("user.slice/user@1000.service"), top.join("user.slice")];
        assert_eq!(candidates(&group), [&[top.clone()][..], &above, &[top]].concat());
    }
}
