//! Stores tasks, so that the next broker restores them however this one ended: each task with its settings and
//! processes, and the policy if it was changed. The file is `tasks` in the state directory:
//!
//! ```text
//! hyoshi-tasks 1 BOOT-ID      processes of another boot are obsolete
//! last NUMBER                 the largest task number so far: numbers are not reused
//! policy JSON                 the policy that was set at run time
//! task JSON                   a task; the last line of a number counts
//! left NUMBER                 the task has ended
//! ```
//!
//! A truncated last line is ignored. Any other unreadable line means that the file is damaged: it is stored as
//! `tasks.damaged`, and its readable lines count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

use hyoshi_control::{Arbiter, GroupId, TaskId};
use hyoshi_model::{Reservation, Share, Span};
use hyoshi_os::cgroup::is_group_path;
use hyoshi_os::process::{ProcessIdentity, boot_id};
use hyoshi_os::trusted::Folder;
use serde::{Deserialize, Serialize};

use crate::component::ComponentSpec;
use crate::journal::Journal;

/// Stored processes of a task; children are found by their parents.
pub const MOST_PROCESSES: usize = 256;

/// Tasks that a rewrite copies with each further line.
const AT_ONCE: usize = 16;

/// A stored task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredTask {
    /// Its number, so that references remain valid.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its user.
    pub owner: u32,
    /// For policies fair and strict.
    pub importance: u32,
    /// For policy weighted.
    pub weight: u32,
    /// For policy partition.
    pub group: String,
    /// The declared budget, in ns.
    pub budget: u64,
    /// In ns.
    pub period: u64,
    /// In ns within the period.
    pub deadline: u64,
    /// The smallest useful share, in millionths of a CPU.
    pub least: u64,
    /// Directories of its control groups.
    #[serde(default)]
    pub control_groups: Vec<String>,
    /// Its control groups may add processes of all users.
    #[serde(default)]
    pub anybody: bool,
    /// Its period is detected.
    #[serde(default)]
    pub auto: bool,
    /// The reservation is also a limit.
    #[serde(default)]
    pub hard: bool,
    /// An operator started it.
    #[serde(default)]
    pub directed: bool,
    /// The entry of its user's limits.
    #[serde(default)]
    pub account: String,
    /// The program itself reports.
    #[serde(default)]
    pub own: bool,
    /// Its advocates.
    pub chain: Vec<ComponentSpec>,
    /// Approximate consumption of its last cycle, in ns.
    pub consumed: u64,
    /// Its processes, each with number and start time; at most [`MOST_PROCESSES`].
    pub processes: Vec<(u32, u64)>,
}

/// A policy that was set at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPolicy {
    /// As users write it; empty for that of the command line.
    pub policy: String,
    /// Of one CPU, in millionths; 0 for that of the command line.
    pub cap: u64,
}

/// See the module.
#[derive(Debug)]
pub struct TaskStore {
    journal: Journal,
    /// A write failed: the next one writes everything.
    behind: bool,
    last: u32,
    policy: StoredPolicy,
    tasks: BTreeMap<u32, StoredTask>,
    /// During a rewrite: tasks up to this number are copied.
    copied: u32,
}

impl StoredTask {
    /// The declared reservation.
    pub fn declared(&self) -> Option<Reservation> {
        let reservation = Reservation::new(Span::from_nanos(self.budget), Span::from_nanos(self.period)).ok()?;
        reservation.within(Span::from_nanos(self.deadline)).ok()
    }

    /// The arbiter's form, without advocates.
    pub(crate) fn joining(&self, group: GroupId) -> Option<hyoshi_control::Joining> {
        Some(hyoshi_control::Joining {
            importance: self.importance,
            weight: self.weight,
            group,
            least: Share::from_millionths(self.least),
            ..hyoshi_control::Joining::new(&self.name, self.declared()?, hyoshi_control::AdvocateChain::default())
        })
    }

    /// Whether a broker can have written it: its processes have valid numbers, and its control groups are inside the
    /// mounted hierarchies.
    fn is_possible(&self) -> bool {
        self.processes.len() <= MOST_PROCESSES
            && self.identities().all(|who| who.is_possible())
            && self.control_groups.iter().all(|folder| is_group_path(Path::new(folder)))
    }

    /// Its processes.
    pub fn identities(&self) -> impl Iterator<Item = ProcessIdentity> + '_ {
        self.processes.iter().map(|(number, start)| ProcessIdentity { number: *number, start: *start })
    }

    /// Its last consumption.
    pub fn consumed(&self) -> Span {
        Span::from_nanos(self.consumed)
    }

    /// Whether the difference is worth a line: other settings or processes, or a consumption that has doubled or
    /// halved.
    pub fn differs(&self, other: &StoredTask) -> bool {
        let (less, more) = (self.consumed.min(other.consumed), self.consumed.max(other.consumed));
        more - less > more / 2 || StoredTask { consumed: other.consumed, ..self.clone() } != *other
    }
}

impl TaskStore {
    /// Opens or creates the file in this broker's directory. Returns a warning if it was damaged.
    ///
    /// # Errors
    ///
    /// If it cannot be read or written.
    pub fn open(directory: &Path) -> io::Result<(TaskStore, Option<String>)> {
        let (journal, text) = Journal::open(Folder::open(directory)?, "tasks")?;
        let mut roster = TaskStore {
            journal,
            behind: false,
            last: 0,
            policy: StoredPolicy::default(),
            tasks: BTreeMap::new(),
            copied: 0,
        };
        let warning = roster.read(&text).err().map(|line| {
            let kept = roster.journal.set_aside(&text);
            let (path, tasks) = (roster.journal.path(), roster.tasks.len());
            format!("line {line} of {} is unreadable; {kept}; restored {tasks} tasks", path.display())
        });
        roster.compact()?;
        Ok((roster, warning))
    }

    /// Deletes all tasks and the policy; their numbers are not reused.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn forget(&mut self) -> io::Result<()> {
        self.tasks.clear();
        self.policy = StoredPolicy::default();
        self.compact()
    }

    /// All tasks, by number.
    pub fn tasks(&self) -> impl Iterator<Item = &StoredTask> {
        self.tasks.values()
    }

    /// The largest number of a task.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// The policy that was set at run time.
    pub fn policy(&self) -> &StoredPolicy {
        &self.policy
    }

    /// Stores a task, unless it has hardly changed.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn task(&mut self, task: StoredTask) -> io::Result<()> {
        if !self.behind && self.tasks.get(&task.id).is_some_and(|before| !before.differs(&task)) {
            return Ok(());
        }
        self.last = self.last.max(task.id);
        let line = line("task", &task);
        self.tasks.insert(task.id, task);
        self.append(&line)
    }

    /// Deletes a task.
    ///
    /// # Errors
    ///
    /// If it cannot be written; the next broker then checks its processes.
    pub fn left(&mut self, id: TaskId) -> io::Result<()> {
        match self.tasks.remove(&id.0) {
            Some(_) => self.append(&format!("left {}\n", id.0)),
            None => Ok(()),
        }
    }

    /// Stores a policy unless it is empty, and a cap unless it is `None`.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn set_policy(&mut self, policy: &str, cap: Option<Share>) -> io::Result<()> {
        if !policy.is_empty() {
            policy.clone_into(&mut self.policy.policy);
        }
        if let Some(cap) = cap {
            self.policy.cap = cap.as_millionths();
        }
        let line = line("policy", &self.policy);
        self.append(&line)
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        let mut done = if self.behind { Ok(()) } else { self.journal.append(line) };
        if done.is_ok() && (self.behind || self.journal.is_rewritten() || self.journal.is_stale(self.tasks.len())) {
            done = self.rewrite(line);
        }
        self.behind = done.is_err() || (self.behind && self.journal.is_rewritten());
        done
    }

    /// Continues the rewrite, some tasks with each line, so that no request waits for all of them.
    fn rewrite(&mut self, line: &str) -> io::Result<()> {
        match self.journal.is_rewritten() {
            true => self.journal.add(line)?,
            // The text of the rewrite contains the appended line.
            false => {
                self.journal.begin(&self.beginning())?;
                self.copied = 0;
            }
        }
        let mut text = String::new();
        let mut count = 0;
        for (number, task) in self.tasks.range(self.copied.saturating_add(1)..).take(AT_ONCE) {
            text += &self::line("task", task);
            (self.copied, count) = (*number, count + 1);
        }
        self.journal.add(&text)?;
        if count < AT_ONCE { self.journal.finish() } else { Ok(()) }
    }

    /// The first lines, without tasks.
    fn beginning(&self) -> String {
        let mut text = format!("{}\nlast {}\n", head(), self.last);
        if self.policy != StoredPolicy::default() {
            text += &line("policy", &self.policy);
        }
        text
    }

    /// Rewrites the file with the present tasks.
    fn compact(&mut self) -> io::Result<()> {
        let mut text = self.beginning();
        self.tasks.values().for_each(|task| text += &line("task", task));
        self.journal.replace(&text)
    }

    /// The error is the first unreadable line.
    fn read(&mut self, text: &str) -> Result<(), usize> {
        if text.is_empty() {
            return Ok(());
        }
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let Some(first) = lines.next() else { return Ok(()) };
        if first != head() {
            // A file of another boot is obsolete; anything else is damaged.
            let other_boot = first.strip_prefix("hyoshi-tasks 1 ").is_some_and(|boot| !boot.contains(' '));
            return if other_boot { Ok(()) } else { Err(1) };
        }
        let mut damaged = None;
        for (number, line) in (2..).zip(lines) {
            if self.take(line).is_none() {
                damaged = damaged.or(Some(number));
            }
        }
        damaged.map_or(Ok(()), Err)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "last" => self.last = self.last.max(rest.parse().ok()?),
            "policy" => self.policy = serde_json::from_str(rest).ok()?,
            "left" => drop(self.tasks.remove(&rest.parse().ok()?)),
            "task" => {
                let task: StoredTask = serde_json::from_str(rest).ok()?;
                let known = self.tasks.contains_key(&task.id);
                task.declared()?;
                if !task.is_possible() || (!known && self.tasks.len() >= Arbiter::MOST_TASKS) {
                    return None;
                }
                self.last = self.last.max(task.id);
                self.tasks.insert(task.id, task);
            }
            _ => return None,
        }
        Some(())
    }
}

fn head() -> String {
    format!("hyoshi-tasks 1 {}", boot_id())
}

fn line(kind: &str, what: &impl Serialize) -> String {
    let mut line = format!("{kind} ");
    // Numbers and strings always serialize.
    let _ = writeln!(line, "{}", serde_json::to_string(what).unwrap_or_default());
    line
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hyoshi-roster-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Place(path)
        }

        fn open(&self) -> (TaskStore, Option<String>) {
            TaskStore::open(&self.0).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn sample_task(id: u32) -> StoredTask {
        StoredTask {
            id,
            name: format!("task-{id}"),
            owner: 1000,
            importance: 5,
            weight: 2,
            group: "video \"quoted\"".to_owned(),
            budget: 33_000,
            control_groups: hyoshi_os::cgroup::CpuGroup::of_this_process().top.to_str().map_or(
                vec![],
                |top| match top {
                    "" => vec![],
                    top => vec![format!("{top}/x")],
                },
            ),
            anybody: true,
            auto: true,
            period: 33_000_000,
            deadline: 20_000_000,
            least: 1_000,
            hard: true,
            directed: true,
            account: "group.hyoshi".into(),
            own: true,
            chain: vec![ComponentSpec::from_words(&["max-decay".into(), "--reports".into(), "10".into()]).unwrap()],
            consumed: 7_000_000,
            processes: vec![(4242, 1234), (4243, 1235)],
        }
    }

    #[test]
    fn what_is_noted_is_found_again_and_what_has_left_is_not() {
        let place = Place::new("again");
        let (mut roster, warning) = place.open();
        assert_eq!(warning, None);
        roster.task(sample_task(1)).unwrap();
        roster.task(sample_task(2)).unwrap();
        roster.task(StoredTask { importance: 9, ..sample_task(1) }).unwrap();
        roster.set_policy("weighted", None).unwrap();
        roster.set_policy("", Some(Share::from_percent(75))).unwrap();
        roster.task(sample_task(7)).unwrap();
        roster.left(TaskId(7)).unwrap();
        for _ in 0..2 {
            drop(roster);
            (roster, _) = place.open();
            let all: Vec<_> = roster.tasks().cloned().collect();
            assert_eq!(all, [StoredTask { importance: 9, ..sample_task(1) }, sample_task(2)]);
            assert_eq!(roster.policy(), &StoredPolicy { policy: "weighted".into(), cap: 750_000 });
            assert_eq!(roster.last(), 7, "numbers are not given twice");
        }
        roster.forget().unwrap();
        let (roster, _) = place.open();
        assert_eq!((roster.tasks().count(), roster.last(), &roster.policy().policy[..]), (0, 7, ""));
    }

    #[test]
    fn a_task_that_was_noted_before_it_was_noted_who_reports_is_found_again() {
        let place = Place::new("before-own");
        let old = line("task", &sample_task(1)).replace("\"own\":true,", "");
        assert!(!old.contains("own\":t"));
        fs::write(place.0.join("tasks"), format!("{}\n{old}", head())).unwrap();
        let (roster, warning) = place.open();
        assert_eq!(warning, None);
        assert_eq!(roster.tasks().collect::<Vec<_>>(), [&StoredTask { own: false, ..sample_task(1) }]);
    }

    #[test]
    fn a_file_that_is_cut_off_anywhere_is_read_without_a_word_and_of_another_boot_as_none() {
        let place = Place::new("cut");
        let text = format!("{}\nlast 2\n{}{}", head(), line("task", &sample_task(1)), line("task", &sample_task(2)));
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        for length in 0..=text.len() {
            fs::write(place.0.join("tasks"), &text[..length]).unwrap();
            let (roster, warning) = place.open();
            assert_eq!(warning, None, "{length}");
            assert_eq!(roster.tasks().count(), ends[2..].iter().filter(|end| **end <= length).count(), "{length}");
        }
        fs::write(place.0.join("tasks"), text.replacen(&boot_id(), "another", 1)).unwrap();
        let (roster, warning) = place.open();
        assert_eq!((roster.tasks().count(), warning), (0, None));
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_what_is_understood_counts() {
        let place = Place::new("damaged");
        let whole = StoredTask { period: 0, ..sample_task(2) };
        let text = format!("{}\n{}{}task {{\n", head(), line("task", &sample_task(1)), line("task", &whole));
        fs::write(place.0.join("tasks"), &text).unwrap();
        let (roster, warning) = place.open();
        let warning = warning.unwrap();
        assert!(warning.starts_with("line 3 of ") && warning.ends_with("tasks.damaged; restored 1 tasks"), "{warning}");
        assert_eq!(roster.tasks().collect::<Vec<_>>(), [&sample_task(1)]);
        assert_eq!(fs::read_to_string(place.0.join("tasks.damaged")).unwrap(), text);
        assert_eq!(place.open().1, None, "once");
        fs::write(place.0.join("tasks"), "hyoshi-tasks 2 later\n").unwrap();
        assert!(place.open().1.unwrap().starts_with("line 1 of "));
    }

    #[test]
    fn little_differences_are_not_written_and_a_long_life_does_not_make_a_long_file() {
        let place = Place::new("long");
        let (mut roster, _) = place.open();
        roster.task(sample_task(1)).unwrap();
        let length = || fs::metadata(place.0.join("tasks")).unwrap().len();
        let before = length();
        roster.task(StoredTask { consumed: 9_000_000, ..sample_task(1) }).unwrap();
        assert_eq!(length(), before);
        for round in 0..10_000 {
            roster.task(StoredTask { weight: round, ..sample_task(1) }).unwrap();
        }
        assert!(length() < 4 << 20, "{}", length());
        drop(roster);
        assert_eq!(place.open().0.tasks().next().unwrap().weight, 9_999);
    }

    #[test]
    fn a_long_file_is_written_anew_in_small_steps_and_loses_nothing_wherever_it_is_cut_off() {
        let place = Place::new("steps");
        let (mut roster, _) = place.open();
        (1..=1_000).for_each(|id| roster.task(sample_task(id)).unwrap());
        let beside = || fs::metadata(place.0.join("tasks.new")).ok().map(|found| found.len());
        let (mut before, mut longest, mut begun) = (None, 0, 0);
        for round in 0..8_000 {
            let id = 1 + round * 7 % 1_000;
            match round % 3 {
                0 => roster.left(TaskId(id)).unwrap(),
                _ => roster.task(StoredTask { weight: round + 10, ..sample_task(id) }).unwrap(),
            }
            let now = beside();
            if let (Some(before), Some(now)) = (before, now) {
                longest = longest.max(now - before);
            }
            begun += u32::from(before.is_none() && now.is_some());
            before = now;
            if now.is_some() && round % 50 == 0 {
                // If the broker ended now, the next one would read the same tasks.
                let copy = Place::new("steps-copy");
                fs::copy(place.0.join("tasks"), copy.0.join("tasks")).unwrap();
                let (again, warning) = copy.open();
                assert_eq!(warning, None);
                assert_eq!(again.tasks, roster.tasks);
            }
        }
        assert!(begun >= 1);
        let one = line("task", &sample_task(1)).len() as u64;
        assert!(longest <= (AT_ONCE as u64 + 2) * (one + 20), "{longest} octets in one step, {one} a task");
        let tasks = roster.tasks.clone();
        drop(roster);
        assert_eq!(place.open().0.tasks, tasks);
    }

    #[test]
    fn what_could_not_be_written_is_written_with_what_comes_next_though_that_is_as_before() {
        let place = Place::new("behind");
        let (mut roster, _) = place.open();
        roster.task(sample_task(2)).unwrap();
        // A directory of that name prevents a rewrite.
        let beside = place.0.join("tasks.new");
        fs::create_dir(&beside).unwrap();
        let refused = (0..10_000).find(|round| roster.task(StoredTask { weight: *round, ..sample_task(1) }).is_err());
        let last = StoredTask { weight: refused.unwrap(), ..sample_task(1) };
        roster.task(last.clone()).unwrap_err();
        roster.set_policy("weighted", None).unwrap_err();
        roster.left(TaskId(2)).unwrap_err();
        fs::remove_dir(&beside).unwrap();
        roster.task(last.clone()).unwrap();
        drop(roster);
        let (roster, warning) = place.open();
        assert_eq!((roster.tasks().collect::<Vec<_>>(), warning), (vec![&last], None));
        assert_eq!(roster.policy().policy, "weighted");
    }
}
