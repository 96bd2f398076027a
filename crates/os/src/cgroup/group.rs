//! An existing control group with all groups below it, and their processes.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::find::{MOST_GROUPS, NoGroup, of_path};

/// A control group with all groups below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    folder: PathBuf,
}

/// This many are searched before the caller's rights are known.
const FIRST_GROUPS: usize = 64;
impl Group {
    /// By its folder, such as `/sys/fs/cgroup/system.slice/cron.service`, or by its path within the hierarchy, as in
    /// /proc/PID/cgroup. Files outside of the hierarchies are never read.
    ///
    /// # Errors
    ///
    /// For a path that is not a group, and for the root.
    pub fn open(path: &str) -> Result<Group, NoGroup> {
        of_path(path).map(|folder| Group { folder })
    }

    /// Some of the processes in it and in the nearest groups below: those that can be read in a short time.
    pub fn some_processes(&self) -> Vec<u32> {
        self.gathered(usize::MAX, FIRST_GROUPS).unwrap_or_default()
    }

    /// All processes in it and below.
    ///
    /// # Errors
    ///
    /// For a group of this process, an empty one, and one of single threads.
    pub fn inhabitants(&self) -> Result<Vec<u32>, NoGroup> {
        let unreadable = |error: io::Error| NoGroup::Unreadable(self.folder.clone(), error.to_string());
        let processes = self.processes(usize::MAX).map_err(unreadable)?;
        if processes.is_empty() {
            return Err(NoGroup::Empty(self.folder.clone()));
        }
        if processes.contains(&std::process::id()) {
            return Err(NoGroup::Own(self.folder.clone()));
        }
        Ok(processes)
    }

    /// By the folder of one that was opened before, empty or not.
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
    /// If the group no longer exists, or is one of single threads.
    pub fn processes(&self, most: usize) -> io::Result<Vec<u32>> {
        self.gathered(most, MOST_GROUPS)
    }

    fn gathered(&self, most: usize, groups: usize) -> io::Result<Vec<u32>> {
        let mut look = Look { left: groups, ..Look::begin(self)? };
        look.go_on(most, &mut || true);
        Ok(look.processes())
    }
}

/// A listing of the processes in a group and in those below it, nearer ones first, done in parts, because a tree may be
/// large.
#[derive(Debug)]
pub struct Look {
    /// Groups with processes that are not listed yet.
    next: VecDeque<PathBuf>,
    /// The groups below one of them.
    here: Option<fs::ReadDir>,
    left: usize,
    found: Vec<u32>,
}

impl Look {
    /// Starts with the group itself.
    ///
    /// # Errors
    ///
    /// If it no longer exists, or is one of single threads.
    pub fn begin(group: &Group) -> io::Result<Look> {
        let mut found = Vec::new();
        inhabitants_of(&group.folder, &mut found)?;
        Ok(Look { next: VecDeque::from([group.folder.clone()]), here: None, left: MOST_GROUPS, found })
    }

    /// Continues while there is `time`, at least by one group. True when all groups are listed, or about `most`
    /// processes are found.
    pub fn go_on(&mut self, most: usize, time: &mut dyn FnMut() -> bool) -> bool {
        while self.left > 0 && self.found.len() < most {
            match self.here.as_mut().and_then(Iterator::next) {
                Some(entry) => {
                    let Ok(entry) = entry else { continue };
                    if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                        let below = entry.path();
                        // One that was removed since, or is one of threads, has no processes of its own.
                        let _ = inhabitants_of(&below, &mut self.found);
                        self.left -= 1;
                        self.next.push_back(below);
                    }
                }
                None => match self.next.pop_front() {
                    Some(folder) => self.here = fs::read_dir(&folder).ok(),
                    None => return true,
                },
            }
            if !time() {
                return false;
            }
        }
        true
    }

    /// Whether all were found, at the end; `most` is the limit.
    pub fn is_whole(&self, most: usize) -> bool {
        self.left > 0 && self.found.len() < most
    }

    /// The processes found, by number.
    pub fn processes(mut self) -> Vec<u32> {
        self.found.sort_unstable();
        self.found.dedup();
        self.found
    }
}

fn inhabitants_of(folder: &Path, into: &mut Vec<u32>) -> io::Result<()> {
    let list = fs::read_to_string(folder.join("cgroup.procs"))?;
    // 0 is a process of another namespace.
    into.extend(list.lines().filter_map(|pid| pid.parse::<u32>().ok()).filter(|pid| *pid != 0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_look_at_a_group_is_a_short_one() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-first-{}", std::process::id()));
        for number in 0..3 * FIRST_GROUPS {
            let below = top.join(number.to_string());
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("cgroup.procs"), format!("{}\n", 1_000_000_000 + number)).unwrap();
        }
        fs::write(top.join("cgroup.procs"), "").unwrap();
        let group = Group::again(&top);
        assert_eq!(group.some_processes().len(), FIRST_GROUPS);
        assert_eq!(group.inhabitants().unwrap().len(), 3 * FIRST_GROUPS);
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn a_look_that_is_taken_in_parts_finds_the_same() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-parts-{}", std::process::id()));
        for number in 0..40 {
            let below = top.join(format!("{}/{}", number % 5, number));
            fs::create_dir_all(&below).unwrap();
            fs::write(below.join("cgroup.procs"), format!("{}\n", 1_000_000_000 + number)).unwrap();
        }
        fs::write(top.join("cgroup.procs"), "7\n").unwrap();
        let group = Group::again(&top);
        let (mut look, mut parts) = (Look::begin(&group).unwrap(), 1);
        while !look.go_on(usize::MAX, &mut || false) {
            parts += 1;
        }
        assert!(parts > 45, "{parts}");
        let all = look.processes();
        assert_eq!((all.len(), &all), (41, &group.inhabitants().unwrap()));
        fs::remove_dir_all(&top).unwrap();
    }

    #[test]
    fn processes_in_it_and_below_are_listed_once() {
        let top = std::env::temp_dir().join(format!("hyoshi-groups-below-{}", std::process::id()));
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("cgroup.procs"), "7\n0\n").unwrap();
        fs::write(top.join("a/b/cgroup.procs"), "9\n7\n8\n").unwrap();
        assert_eq!(Group::again(&top).processes(100).unwrap(), [7, 8, 9]);
        fs::remove_dir_all(&top).unwrap();
    }
}
