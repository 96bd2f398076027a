//! The state file: what was changed of whose threads, written before it is changed, so that all of it is put back also
//! when the broker did not come to do it: by the next one, at its start.
//!
//! One line a change, in text. A line that was cut off is one whose change was never made, for lines come first:
//!
//! ```text
//! hyoshi-touched 1 BOOT-ID                         another boot's file means nothing any more
//! thread PID START TID START CLASS RESET CPUS [AT] as it was before the first change, and the CPU of its window
//! moved PID START FROM                             the control group it was taken from
//! group PATH<tab>HOME                              a control group that was made, and where who is left in it goes
//! done TID START                                   put back, or ended
//! ```
//!
//! The page cache holds what a killed process has written; after a crash of the machine there is nothing to put back.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hyoshi_os::cgroup::own::{dissolve, send_home};
use hyoshi_os::cpu::{cpu_list, parse_cpu_list};
use hyoshi_os::priority;
use hyoshi_os::process::{Identity, Process, boot_id, children_by_parent, identity_of_thread, is_same, threads_of};
use hyoshi_os::scheduling::{Affinity, Bandwidth, Class, Scheduling};

use crate::journal::Journal;
use crate::members::MOST_PROCESSES;

/// A thread as it was before the broker's first change to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// Its process.
    pub process: Identity,
    /// Itself.
    pub thread: Identity,
    /// How it was scheduled.
    pub scheduling: Scheduling,
    /// Where it could run.
    pub affinity: Affinity,
    /// The CPU of its window, to which whoever it starts there is bound.
    pub window: Option<u32>,
}

impl Before {
    /// Whether the thread has ended. A list of threads that was read while some ended can lack others that live.
    pub fn has_ended(&self) -> bool {
        identity_of_thread(self.process.number, self.thread.number) != Some(self.thread)
    }
}

/// What is changed at present. One broker at a time has the file.
#[derive(Debug)]
pub struct Touched {
    journal: Journal,
    /// Held for as long as this lives; also through renames of the file.
    _lock: File,
    threads: BTreeMap<Identity, Before>,
    moved: BTreeMap<Identity, PathBuf>,
    /// With where whoever is left in it goes.
    groups: BTreeMap<PathBuf, PathBuf>,
}

/// What the last broker had left changed, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// Threads that were at a window's priority or had bandwidth, and have not now.
    pub threads: usize,
    /// Control groups that were removed.
    pub groups: usize,
    /// What could not be put back, with the reason.
    pub failed: Vec<String>,
}

/// Why there is no state file to work with. Nothing has been changed on the machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateError {
    /// Another broker has it.
    Taken(PathBuf),
    /// It cannot be made, read or written.
    Unusable {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Touched {
    /// Takes the directory's state file, and puts back what another broker left there.
    ///
    /// # Errors
    ///
    /// If another broker works with it, or if it cannot be written.
    pub fn open(directory: &Path) -> Result<(Touched, PutBack), StateError> {
        let unusable = |path: &Path| {
            let path = path.to_owned();
            move |error| StateError::Unusable { path, error }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unusable(directory))?;
        let lock_path = directory.join("touched.lock");
        let lock = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        let lock = lock.map_err(unusable(&lock_path))?;
        if !hyoshi_os::file::take(&lock).map_err(unusable(&lock_path))? {
            return Err(StateError::Taken(directory.to_owned()));
        }
        let path = directory.join("touched");
        let (journal, text) = Journal::open(&path).map_err(unusable(&path))?;
        let mut touched =
            Touched { journal, _lock: lock, threads: BTreeMap::new(), moved: BTreeMap::new(), groups: BTreeMap::new() };
        touched.read(&text);
        let report = touched.put_all_back();
        // What could not be put back stays in the file, for another start to try.
        touched.compact().map_err(unusable(&path))?;
        Ok((touched, report))
    }

    /// A thread is about to be changed. A second record of the same thread replaces the first: the program itself has
    /// changed what it is to be put back to.
    ///
    /// # Errors
    ///
    /// If it cannot be written: then the thread must be left alone.
    pub fn thread(&mut self, before: Before) -> io::Result<()> {
        if self.threads.get(&before.thread) == Some(&before) {
            return Ok(());
        }
        self.append(&thread_line(&before))?;
        self.threads.insert(before.thread, before);
        Ok(())
    }

    /// A process is about to be moved out of a control group.
    ///
    /// # Errors
    ///
    /// If it cannot be written: then it must stay where it is.
    pub fn moved(&mut self, process: Identity, from: &Path) -> io::Result<()> {
        self.append(&moved_line(process, from))?;
        self.moved.insert(process, from.to_owned());
        Ok(())
    }

    /// A control group is about to be made; whoever is left in it when it is removed goes to `home`.
    ///
    /// # Errors
    ///
    /// If it cannot be written: then it must not be made.
    pub fn group(&mut self, path: &Path, home: &Path) -> io::Result<()> {
        self.append(&group_line(path, home))?;
        self.groups.insert(path.to_owned(), home.to_owned());
        Ok(())
    }

    /// Where whoever is left in a group goes.
    pub fn home_of(&self, group: &Path) -> Option<&Path> {
        self.groups.get(group).map(PathBuf::as_path)
    }

    /// The group that a process came from.
    pub fn came_from(&self, process: Identity) -> Option<&Path> {
        self.moved.get(&process).map(PathBuf::as_path)
    }

    /// A thread or process is as it was, or has ended.
    pub fn done(&mut self, whose: Identity) {
        let known = self.threads.remove(&whose).is_some() | self.moved.remove(&whose).is_some();
        if known {
            // A line too few does no harm: what is as it was is found to be so.
            let _ = self.append(&format!("done {} {}\n", whose.number, whose.start));
        }
    }

    /// A control group is gone.
    pub fn group_done(&mut self, path: &Path) {
        self.groups.remove(path);
    }

    /// Threads that are not as they were.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Puts everything back as it was: the last act of a broker, and the first of the next.
    pub fn put_all_back(&mut self) -> PutBack {
        let mut report = PutBack::default();
        let failed = &mut report.failed;
        let (noted, kin) = (self.threads.keys().map(|thread| thread.number).collect(), self.kin());
        self.threads.retain(|_, before| match put_back(before) {
            Ok(changed) => {
                report.threads += usize::from(changed);
                false
            }
            Err(why) => {
                failed.push(format!("thread {} of process {}: {why}", before.thread, before.process));
                true
            }
        });
        // Nobody is born bound any more.
        unbind_born(&noted, kin);
        self.moved.retain(|process, from| {
            if !is_same(*process) {
                return false;
            }
            send_home(process.number, from)
                .map_err(|error| failed.push(format!("process {process} to {}: {error}", from.display())))
                .is_err()
        });
        self.groups.retain(|group, home| match dissolve(group, Some(home)) {
            Ok(()) => {
                report.groups += 1;
                false
            }
            Err(error) => {
                failed.push(format!("control group {}: {error}", group.display()));
                true
            }
        });
        let _ = self.compact();
        report
    }

    /// Of each process with threads in a window, one of them: the first, if it is noted.
    fn kin(&self) -> BTreeMap<Identity, Before> {
        let mut kin = BTreeMap::new();
        for before in self.threads.values().filter(|before| before.window.is_some()) {
            let one = kin.entry(before.process).or_insert(*before);
            if before.thread == before.process {
                *one = *before;
            }
        }
        kin
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.journal.is_stale(self.threads.len() + self.moved.len() + self.groups.len()) {
            self.compact()?;
        }
        self.journal.append(line)
    }

    /// Writes the file anew with what is true.
    fn compact(&mut self) -> io::Result<()> {
        let mut text = format!("hyoshi-touched 1 {}\n", boot_id());
        self.threads.values().for_each(|before| text.push_str(&thread_line(before)));
        self.moved.iter().for_each(|(process, from)| text.push_str(&moved_line(*process, from)));
        self.groups.iter().for_each(|(group, home)| text.push_str(&group_line(group, home)));
        self.journal.replace(&text)
    }

    fn read(&mut self, text: &str) {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let expected = format!("hyoshi-touched 1 {}", boot_id());
        if lines.next() != Some(&expected) {
            return;
        }
        // A line that is not understood is passed over: the others are all the more to be put back.
        for line in lines {
            if self.threads.len() + self.moved.len() + self.groups.len() > 1_000_000 {
                return;
            }
            if let Some(rest) = line.strip_prefix("thread ") {
                if let Some(before) = parse_thread(rest) {
                    self.threads.insert(before.thread, before);
                }
            } else if let Some(rest) = line.strip_prefix("moved ") {
                if let Some((process, from)) = parse_moved(rest) {
                    self.moved.insert(process, from);
                }
            } else if let Some((path, home)) = line.strip_prefix("group ").and_then(|rest| rest.split_once('\t')) {
                self.groups.insert(path.into(), home.into());
            } else if let Some(whose) = line.strip_prefix("done ").and_then(parse_identity) {
                self.threads.remove(&whose);
                self.moved.remove(&whose);
            }
        }
    }
}

/// True if it was changed: a thread is ours only while it has what only we give, a window's priority or bandwidth, and
/// with it the flag that its children have neither. Whatever else it has by now is its own choice.
fn put_back(before: &Before) -> Result<bool, hyoshi_os::Refused> {
    let tid = before.thread.number;
    if before.has_ended() {
        return Ok(false);
    }
    let ours = match Scheduling::of(tid) {
        Ok(Scheduling { class: Class::Fifo(at), reset_on_fork: true }) => priority::WINDOWS.contains(&at),
        Ok(Scheduling { class: Class::Deadline(_), reset_on_fork: true }) => true,
        _ => false,
    };
    if !ours {
        return Ok(false);
    }
    /// EINVAL: its cpuset has none of these CPUs any more, and has bound it to others.
    const ELSEWHERE: i32 = 22;
    // In the order of `lower`: affinity is ours only while the priority is.
    let freed =
        before.affinity.put(tid).or_else(|refused| if refused.errno == ELSEWHERE { Ok(()) } else { Err(refused) });
    match freed.and_then(|()| before.scheduling.put_back(tid)) {
        Ok(()) => Ok(true),
        Err(refused) if refused.is_gone() => Ok(false),
        Err(refused) => Err(refused),
    }
}

/// Threads and children that were born in a window, and that nobody has looked at since, have inherited that they may run on its
/// CPU alone: they may again where their kin may, as the window itself would have it.
fn unbind_born(noted: &BTreeSet<u32>, kin: BTreeMap<Identity, Before>) {
    let own = std::process::id();
    let by_parent = OnceCell::new();
    let mut seen: BTreeSet<Identity> = kin.keys().copied().collect();
    let mut next: Vec<(Identity, Before)> = kin.into_iter().collect();
    while let Some((process, before)) = next.pop() {
        let Some(here) = before.window.map(|cpu| Affinity::to([cpu])).filter(|here| *here != before.affinity) else {
            continue;
        };
        for tid in threads_of(process, MOST_PROCESSES).into_iter().filter(|tid| !noted.contains(tid)) {
            if Affinity::of(tid).is_ok_and(|found| found == here) {
                let _ = before.affinity.put(tid);
            }
        }
        let Ok(open) = Process::open_same(process) else { continue };
        let children = open.children().unwrap_or_else(|_| {
            let all = by_parent.get_or_init(children_by_parent).iter();
            all.filter(|(parent, _)| *parent == process.number).map(|(_, child)| *child).collect()
        });
        for child in children.into_iter().filter(|child| *child != own) {
            let Ok(child) = Process::open(child).map(|child| child.identity()) else { continue };
            if seen.len() < MOST_UNBOUND && seen.insert(child) {
                next.push((child, before));
            }
        }
    }
}

/// Processes that are looked through for it.
const MOST_UNBOUND: usize = 4 * MOST_PROCESSES;

fn thread_line(before: &Before) -> String {
    let Before { process, thread, scheduling, affinity, window } = before;
    let class = match scheduling.class {
        Class::Fair(number) => format!("fair:{number}"),
        Class::Fifo(priority) => format!("fifo:{priority}"),
        Class::RoundRobin(priority) => format!("rr:{priority}"),
        Class::Deadline(Bandwidth { runtime, deadline, period, flags }) => {
            format!("deadline:{runtime}:{deadline}:{period}:{flags}")
        }
    };
    let reset = u8::from(scheduling.reset_on_fork);
    let cpus = cpu_list(&affinity.cpus().collect::<Vec<_>>());
    let [p, t] = [process, thread].map(|identity| format!("{} {}", identity.number, identity.start));
    let window = window.map_or(String::new(), |cpu| format!(" {cpu}"));
    format!("thread {p} {t} {class} {reset} {cpus}{window}\n")
}

fn moved_line(process: Identity, from: &Path) -> String {
    format!("moved {} {} {}\n", process.number, process.start, from.display())
}

fn group_line(group: &Path, home: &Path) -> String {
    format!("group {}\t{}\n", group.display(), home.display())
}

fn parse_thread(rest: &str) -> Option<Before> {
    let fields: Vec<&str> = rest.split(' ').collect();
    let (fields, window) = match fields.split_at_checked(7)? {
        (fields, []) => (fields, None),
        (fields, [window]) => (fields, Some(window.parse().ok()?)),
        _ => return None,
    };
    let [pid, start, tid, tid_start, class, reset, cpus] = *fields else { return None };
    let identity =
        |number: &str, start: &str| Some(Identity { number: number.parse().ok()?, start: start.parse().ok()? });
    let (kind, numbers) = class.split_once(':')?;
    let class = match kind {
        "fair" => Class::Fair(numbers.parse().ok()?),
        "fifo" => Class::Fifo(numbers.parse().ok()?),
        "rr" => Class::RoundRobin(numbers.parse().ok()?),
        "deadline" => {
            let numbers: Vec<u64> = numbers.split(':').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            let [runtime, deadline, period, flags] = numbers[..] else { return None };
            Class::Deadline(Bandwidth { runtime, deadline, period, flags })
        }
        _ => return None,
    };
    let cpus = parse_cpu_list(cpus).filter(|cpus| !cpus.is_empty())?;
    Some(Before {
        process: identity(pid, start)?,
        thread: identity(tid, tid_start)?,
        scheduling: Scheduling { class, reset_on_fork: reset == "1" },
        affinity: Affinity::to(cpus),
        window,
    })
}

fn parse_moved(rest: &str) -> Option<(Identity, PathBuf)> {
    let mut fields = rest.splitn(3, ' ');
    let (number, start) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((Identity { number, start }, fields.next()?.into()))
}

fn parse_identity(rest: &str) -> Option<Identity> {
    let (number, start) = rest.split_once(' ')?;
    Some(Identity { number: number.parse().ok()?, start: start.parse().ok()? })
}

impl StateError {
    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            StateError::Taken(_) => {
                "end the other broker first (`hyoshi broker list` asks it), or give this one a state directory of its own".into()
            }
            StateError::Unusable { path, error } if error.kind() == io::ErrorKind::StorageFull => {
                format!("make room on the file system of {}", path.display())
            }
            StateError::Unusable { .. } => "name a directory that the broker can write to, such as /run/hyoshi".into(),
        }
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Taken(path) => write!(f, "another broker works with {}", path.display()),
            StateError::Unusable { path, error } => write!(
                f,
                "what is changed of programs cannot be noted in {}: {error}; so nothing is changed",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StateError {}

impl fmt::Display for PutBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "put back {} threads, removed {} control groups", self.threads, self.groups)?;
        self.failed.iter().try_for_each(|why| write!(f, "; not put back: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use hyoshi_os::process::Process;
    use hyoshi_os::scheduling::raise;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("hyoshi-touched-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Place(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> (Self, Before) {
            let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("coreutils' sleep");
            let process = Process::open(child.id()).unwrap().identity();
            let (scheduling, affinity) = (Scheduling::of(child.id()).unwrap(), Affinity::of(child.id()).unwrap());
            (Sleeper(child), Before { process, thread: process, scheduling, affinity, window: None })
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Another test may be starting a process just now, which holds all files of this one until it executes its program.
    fn reopen(place: &Place) -> (Touched, PutBack) {
        for _ in 0..1000 {
            match Touched::open(&place.0) {
                Err(StateError::Taken(_)) => std::thread::sleep(std::time::Duration::from_millis(5)),
                opened => return opened.unwrap(),
            }
        }
        panic!("a file that nobody has stays taken")
    }

    #[test]
    fn a_thread_that_was_raised_is_put_back_by_the_next_start_and_others_are_left() {
        let place = Place::new("next");
        let ((_one, raised), (_two, own), (three, gone)) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
        if let Err(refused) = raise(raised.thread.number, 30) {
            return println!("skipped, needs root or CAP_SYS_NICE: {refused}");
        }
        let (mut touched, _) = Touched::open(&place.0).unwrap();
        [raised, own, gone].into_iter().for_each(|before| touched.thread(before).unwrap());
        Affinity::to([raised.affinity.cpus().next().unwrap()]).put(raised.thread.number).unwrap();
        // The second chose a priority of its own since, with which the broker never had to do.
        Scheduling { class: Class::RoundRobin(5), reset_on_fork: false }.put_back(own.thread.number).unwrap();
        drop(three);
        drop(touched);
        let (touched, report) = reopen(&place);
        assert_eq!((report.threads, report.failed, touched.threads()), (1, vec![], 0));
        assert_eq!(Scheduling::of(raised.thread.number).unwrap(), raised.scheduling);
        assert_eq!(Affinity::of(raised.thread.number).unwrap(), raised.affinity);
        assert_eq!(Scheduling::of(own.thread.number).unwrap().class, Class::RoundRobin(5));
    }

    #[test]
    fn one_broker_at_a_time_has_it_and_says_so() {
        let place = Place::new("two");
        let first = Touched::open(&place.0).unwrap();
        let refused = Touched::open(&place.0).unwrap_err();
        assert!(matches!(refused, StateError::Taken(_)) && refused.remedy().contains("end the other broker"));
        drop(first);
        reopen(&place);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_an_error_before_anything_is_changed() {
        let place = Place::new("file");
        fs::write(&place.0, "no directory").unwrap();
        let refused = Touched::open(&place.0).unwrap_err();
        assert!(refused.to_string().contains("so nothing is changed"), "{refused}");
        fs::remove_file(&place.0).unwrap();
    }

    #[test]
    fn a_file_of_another_boot_or_cut_off_anywhere_is_read_without_harm() {
        let place = Place::new("cut");
        let (_sleeper, before) = Sleeper::start();
        let text = format!("hyoshi-touched 1 {}\n{}", boot_id(), thread_line(&before));
        fs::create_dir_all(&place.0).unwrap();
        for length in 0..=text.len() {
            fs::write(place.0.join("touched"), &text[..length]).unwrap();
            let (_, report) = reopen(&place);
            assert_eq!(report.failed, Vec::<String>::new());
        }
        fs::write(place.0.join("touched"), text.replacen(&boot_id(), "another", 1)).unwrap();
        let (touched, _) = reopen(&place);
        assert_eq!(touched.threads(), 0);
    }

    #[test]
    fn lines_read_as_they_were_written() {
        let (_sleeper, mut before) = Sleeper::start();
        let bandwidth = Bandwidth { runtime: 1, deadline: 2, period: 3, flags: 4 };
        for class in [Class::Fair(3), Class::Fifo(9), Class::RoundRobin(1), Class::Deadline(bandwidth)] {
            before.scheduling = Scheduling { class, reset_on_fork: class == Class::Fair(3) };
            before.window = (class == Class::Fair(3)).then_some(5);
            let line = thread_line(&before);
            assert_eq!(parse_thread(line.strip_prefix("thread ").unwrap().trim_end()), Some(before));
        }
        let (process, from) = (before.process, PathBuf::from("/sys/fs/cgroup/with space"));
        let line = moved_line(process, &from);
        assert_eq!(parse_moved(line.strip_prefix("moved ").unwrap().trim_end()), Some((process, from)));
    }

    #[test]
    fn who_was_born_in_a_window_and_not_looked_at_may_run_where_its_kin_may() {
        let place = Place::new("born");
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "read go; sleep 1000 & echo $!; read go; taskset -c \"$0\" sleep 1000 & echo $!; read end; kill 0",
        ]);
        let everywhere = Affinity::of(std::process::id()).unwrap();
        let cpus: Vec<u32> = everywhere.cpus().collect();
        let [at, .., other] = cpus[..] else { return println!("skipped, needs two CPUs") };
        shell.arg(other.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut shell = shell.spawn().unwrap();
        let process = Process::open(shell.id()).unwrap().identity();
        let scheduling = Scheduling::of(shell.id()).unwrap();
        let before = Before { process, thread: process, scheduling, affinity: everywhere, window: Some(at) };
        let (mut input, output) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        // With patience: a shell that says nothing would hold the test up for good.
        let patience = std::time::Duration::from_secs(60);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| tell.send(line.unwrap())));
        let mut child = || {
            input.write_all(b"go\n").unwrap();
            told.recv_timeout(patience).expect("the shell says whom it has started").parse::<u32>().unwrap()
        };
        let (mut touched, _) = Touched::open(&place.0).unwrap();
        touched.thread(before).unwrap();
        Affinity::to([at]).put(shell.id()).unwrap();
        let (born, bound) = (child(), child());
        let until = std::time::Instant::now() + patience;
        while Affinity::of(bound).unwrap() != Affinity::to([other]) {
            assert!(std::time::Instant::now() < until, "taskset does not bind it");
            std::thread::yield_now();
        }
        assert_eq!(Affinity::of(born).unwrap(), Affinity::to([at]));
        // The window had ended when the broker was killed: nobody is raised.
        everywhere.put(shell.id()).unwrap();
        drop(touched);
        let (_, report) = reopen(&place);
        assert_eq!((report.threads, report.failed), (0, vec![]));
        assert_eq!(Affinity::of(born).unwrap(), everywhere);
        assert_eq!(Affinity::of(bound).unwrap(), Affinity::to([other]), "its own choice");
        drop(input);
        shell.wait().unwrap();
    }

    #[test]
    fn a_long_life_does_not_make_a_long_file() {
        let place = Place::new("long");
        let (_sleeper, before) = Sleeper::start();
        let (mut touched, _) = Touched::open(&place.0).unwrap();
        for start in 0..20_000 {
            let thread = Identity { number: 1, start };
            touched.thread(Before { thread, ..before }).unwrap();
            touched.done(thread);
        }
        assert!(fs::metadata(place.0.join("touched")).unwrap().len() < 1 << 20);
    }
}
