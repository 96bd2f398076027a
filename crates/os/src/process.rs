//! Other processes: their identity, which is safe against reuse of numbers, their threads and their children
//! (proc_pid_stat(5), pidfd_open(2)).

mod children;
mod credentials;

use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;

use hyoshi_model::Span;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, fstat, open, seek};
use rustix::io::Errno;
use rustix::param::clock_ticks_per_second;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open, waitid,
};
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::proc::Stat;
pub use children::Children;
pub use credentials::{Owner, set_no_new_privileges};

/// Identifies a process or a thread permanently: numbers are reused, pairs of number and start are not within the
/// kernel's resolution of 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessIdentity {
    /// The kernel's number of it.
    pub number: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

/// A process that existed when it was opened.
#[derive(Debug)]
pub struct Process {
    identity: ProcessIdentity,
    session: u32,
    name: String,
    /// `None` if the kernel or a filter has no such descriptors: then /proc is used.
    pidfd: Option<OwnedFd>,
    tasks: OwnedFd,
}

/// Why a process cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoProcess {
    /// No process has the number.
    Gone(u32),
    /// Another process has the number now.
    Reused(u32),
    /// It is a thread of the kernel's own.
    Kernel(u32, String),
    /// /proc cannot be read; the text is the kernel's.
    Unreadable(u32, String),
}

/// Sends SIGTERM, or SIGKILL, to the group of processes that `leader` began (kill(2)).
///
/// # Errors
///
/// The kernel's: the group is empty, or belongs to others.
pub fn end_group(leader: u32, at_once: bool) -> io::Result<()> {
    let group = i32::try_from(leader).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let signal = if at_once { Signal::KILL } else { Signal::TERM };
    Ok(kill_process_group(group, signal)?)
}

/// Whether a child has ended. It stays a zombie, so neither its number nor its group's is reused before it is reaped.
///
/// # Errors
///
/// The kernel's: it is no child of this process, or is reaped already.
pub fn has_ended(child: u32) -> io::Result<bool> {
    let child = i32::try_from(child).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), look)?.is_some())
}

/// PF_KTHREAD of the kernel's sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The most threads or children of a process that are followed.
pub const MOST_THREADS: usize = 16_384;

impl Process {
    /// Opens a process by its number.
    ///
    /// # Errors
    ///
    /// If there is none, or it is the kernel's own.
    pub fn open(pid: u32) -> Result<Self, NoProcess> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(NoProcess::Gone(pid))?;
        // The descriptor first: later reads of /proc are of the same process if it still exists.
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Some(fd),
            // INVAL and, from Linux 6.14 on, NOENT: the number is a thread's, not a process's.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Err(NoProcess::Gone(pid)),
            Err(_) => None,
        };
        let stat = stat_of(pid)?;
        if stat.flags & KERNEL_THREAD != 0 {
            return Err(NoProcess::Kernel(pid, stat.name));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tasks = open(format!("/proc/{pid}/task"), flags, Mode::empty()).map_err(|errno| unread(pid, errno))?;
        let identity = ProcessIdentity { number: pid, start: stat.start };
        let process = Process { identity, session: stat.session, name: stat.name, pidfd, tasks };
        if process.has_ended() { Err(NoProcess::Gone(pid)) } else { Ok(process) }
    }

    /// Opens this process, and no other that has its number since.
    ///
    /// # Errors
    ///
    /// As for [`Process::open`], and if it is another.
    pub fn open_same(meant: ProcessIdentity) -> Result<Self, NoProcess> {
        let found = Process::open(meant.number)?;
        if found.identity == meant { Ok(found) } else { Err(NoProcess::Reused(meant.number)) }
    }

    /// Its identity.
    pub fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    /// Its session when it was opened (setsid(2)): programs that it starts are in the same, unless they begin their
    /// own.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The kernel's name for it when it was opened, with control characters escaped: a program chooses its name
    /// itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kernel's name for it at present, as [`Process::name`]; `None` after it has ended.
    pub fn name_now(&self) -> Option<String> {
        stat_of(self.identity.number).ok().filter(|stat| stat.start == self.identity.start).map(|stat| stat.name)
    }

    /// True when all its threads have ended.
    pub fn has_ended(&self) -> bool {
        match &self.pidfd {
            Some(fd) => ends_within(fd, Span::ZERO),
            None => !is_same(self.identity),
        }
    }

    /// Sleeps until it has ended, at most this long. False if it has not.
    pub fn ends_within(&self, span: Span) -> bool {
        match &self.pidfd {
            Some(fd) => ends_within(fd, span),
            None => {
                std::thread::sleep(std::time::Duration::from_nanos(span.as_nanos()));
                self.has_ended()
            }
        }
    }

    /// The numbers of its threads, at most [`MOST_THREADS`], into `threads`; none after it has ended. About 1 us and
    /// 0.3 us for each thread.
    pub fn threads(&self, threads: &mut Vec<u32>) {
        threads.clear();
        let mut space = [MaybeUninit::<u8>::uninit(); 8192];
        if seek(&self.tasks, SeekFrom::Start(0)).is_err() {
            return;
        }
        let mut entries = RawDir::new(self.tasks.as_fd(), &mut space);
        while let Some(Ok(entry)) = entries.next() {
            // Only `.` and `..` are not numbers.
            let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok());
            threads.extend(number);
            if threads.len() >= MOST_THREADS {
                return;
            }
        }
    }

    /// Number of threads, without listing them; 0 after it has ended. 0.5 us: the link count of the directory.
    pub fn count_threads(&self) -> usize {
        #[allow(clippy::useless_conversion, reason = "it has 32 bits on some architectures")]
        let links = fstat(&self.tasks).map_or(2, |stat| u64::from(stat.st_nlink));
        usize::try_from(links.saturating_sub(2)).unwrap_or(0)
    }

    /// True when its first thread has ended, also while others continue: it is still listed among them, and must not be
    /// scheduled any more (the kernel would reserve bandwidth for it and never return it).
    pub fn first_thread_has_ended(&self) -> bool {
        stat_of(self.identity.number).is_ok_and(|stat| stat.start != self.identity.start || stat.has_ended())
    }

    /// Number of threads; 0 after it has ended. 2 us.
    pub fn thread_count(&self) -> usize {
        let stat = stat_of(self.identity.number).ok();
        stat.filter(|stat| stat.start == self.identity.start && !stat.has_ended()).map_or(0, |stat| stat.threads)
    }

    /// The number of its parent, or of the process that adopted it; `None` after it has ended.
    pub fn parent(&self) -> Option<u32> {
        stat_of(self.identity.number).ok().filter(|stat| stat.start == self.identity.start).map(|stat| stat.parent)
    }

    /// How long it may compute at a real-time priority before the kernel ends it (RLIMIT_RTTIME, getrlimit(2)): `None`
    /// for ever, the usual value.
    pub fn realtime_limit(&self) -> Option<Span> {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.identity.number)).ok()?;
        realtime_limit(&limits)
    }

    /// Its users at present; `None` after it has ended. Under 1 us from Linux 6.13 on, some 12 us before.
    pub fn owner(&self) -> Option<Owner> {
        let owner = self.pidfd.as_ref().and_then(credentials::of_descriptor);
        let owner = owner.or_else(|| credentials::of_number(self.identity.number))?;
        (!self.has_ended()).then_some(owner)
    }
}

/// A signal may interrupt the sleep.
fn ends_within(process: &OwnedFd, span: Span) -> bool {
    let nanos = span.as_nanos();
    let span = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&span)).is_ok_and(|ready| ready > 0)
}

/// Sleeps until one of two processes has ended: 0 for the first, also if both have, 1 for the second.
///
/// # Errors
///
/// If processes have no descriptors (pidfd_open(2), before Linux 5.3).
pub fn wait_for_either(first: &Process, second: &Process) -> io::Result<usize> {
    let both = [first, second].map(|process| process.pidfd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
    let [Some(first), Some(second)] = both else {
        let why = "the kernel cannot report the end of a process (pidfd_open)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    };
    let mut both = [first, second];
    loop {
        match poll(&mut both, None) {
            Ok(_) => match both.iter().position(|one| !one.revents().is_empty()) {
                Some(which) => return Ok(which),
                None => continue,
            },
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Sends SIGTERM to a child, which may then end in an orderly way.
///
/// # Errors
///
/// If it is another user's since, or a filter forbids it.
pub fn ask_to_end(child: &Child) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), Signal::TERM)?)
}

/// Programs that this process executes or starts from now on inherit none of its descriptors from `first` on
/// (close_range(2), Linux 5.11).
///
/// # Errors
///
/// On an older kernel.
pub fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: the call has three integers as arguments, and sets a flag of descriptors.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl ProcessIdentity {
    /// Whether a process or thread can have this number, and can have started (`PID_MAX_LIMIT`, proc_sys_kernel(5)).
    pub fn is_possible(self) -> bool {
        (1..=1 << 22).contains(&self.number) && self.start <= start_of_now()
    }
}

/// The identity of the process or thread that has this number now, also an ended one that was not waited for.
///
/// # Errors
///
/// If there is none.
pub fn identity(number: u32) -> Result<ProcessIdentity, NoProcess> {
    stat_of(number).map(|stat| ProcessIdentity { number, start: stat.start })
}

/// True if the process or thread of this number is still the same.
pub fn is_same(meant: ProcessIdentity) -> bool {
    identity(meant.number).is_ok_and(|found| found == meant)
}

/// The numbers of a process's threads, about `most` of them; none after it has ended. For one that is not open: 5 us
/// and 0.3 us for each thread.
pub fn threads_of(meant: ProcessIdentity, most: usize) -> Vec<u32> {
    let there = fs::read_dir(format!("/proc/{}/task", meant.number)).ok().filter(|_| is_same(meant));
    let names = there.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    names.take(most).collect()
}

/// The identity of a thread of a process; `None` if that has no such thread now, or one that has ended while others
/// continue.
pub fn identity_of_thread(pid: u32, tid: u32) -> Option<ProcessIdentity> {
    let stat = Stat::read(&format!("/proc/{pid}/task/{tid}")).ok()??;
    (!stat.has_ended()).then_some(ProcessIdentity { number: tid, start: stat.start })
}

/// The value of `start` in a [`ProcessIdentity`] for a start of now.
pub fn start_of_now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let ticks = clock_ticks_per_second();
    now.tv_sec as u64 * ticks + now.tv_nsec as u64 * ticks / 1_000_000_000
}

/// The machine's present boot: identities of an earlier one are meaningless.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| "unknown".into(), |id| id.trim().into())
}

/// Random bytes, unique on any machine.
pub fn unique() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // Up to 256 bytes are never partial (getrandom(2)).
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

fn stat_of(pid: u32) -> Result<Stat, NoProcess> {
    match Stat::read(&format!("/proc/{pid}")) {
        Ok(Some(stat)) => Ok(stat),
        Ok(None) => Err(NoProcess::Unreadable(pid, "its line in /proc has an unknown form".into())),
        Err(error) => Err(unread(pid, error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))),
    }
}

fn unread(pid: u32, errno: Errno) -> NoProcess {
    match errno {
        Errno::NOENT | Errno::SRCH => NoProcess::Gone(pid),
        other => NoProcess::Unreadable(pid, other.to_string()),
    }
}

/// The real-time classes that a thread may set by itself, without help of another process (sched(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealTimeRight {
    /// The highest priority of SCHED_FIFO and SCHED_RR that its RLIMIT_RTPRIO allows, or that it may raise this limit
    /// to.
    pub limit: u8,
    /// It has CAP_SYS_NICE for this machine, or may get it: any priority, and SCHED_DEADLINE.
    pub capable: bool,
}

impl RealTimeRight {
    /// Of a thread of a process; none if it has ended or cannot be read.
    pub fn of(pid: u32, tid: u32) -> RealTimeRight {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
        let limit = realtime_priority_limit(&limits).unwrap_or(0).min(99) as u8;
        RealTimeRight { limit, capable: permits_nice(&status) && in_our_user_namespace(pid) }
    }

    /// Whether it may set this priority by itself.
    pub fn allows(self, priority: u8) -> bool {
        self.capable || priority <= self.limit
    }
}

/// A capability counts only in its own user namespace: any user has all capabilities in a namespace of their own.
fn in_our_user_namespace(pid: u32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
    namespace(&pid.to_string()).is_some_and(|theirs| namespace("self") == Some(theirs))
}

/// CAP_SYS_NICE (capabilities(7)) among those that a thread may use.
fn permits_nice(status: &str) -> bool {
    const SYS_NICE: u64 = 1 << 23;
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    line.and_then(|sets| u64::from_str_radix(sets.trim(), 16).ok()).is_some_and(|sets| sets & SYS_NICE != 0)
}

/// The hard limit: a process may raise its soft one to it.
fn realtime_priority_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime priority"))?;
    match line.split_ascii_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        limit => limit.parse().ok(),
    }
}

fn realtime_limit(limits: &str) -> Option<Span> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    line.split_ascii_whitespace().next()?.parse().ok().map(Span::from_micros)
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

impl fmt::Display for NoProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoProcess::Gone(pid) => write!(f, "no process {pid}: `ps -e` lists processes"),
            NoProcess::Reused(pid) => write!(
                f,
                "process {pid} has ended, and another process has its number (or it is in another PID namespace, such \
                    as a container's): select that one again if it is meant"
            ),
            NoProcess::Kernel(pid, name) => {
                write!(f, "{pid} is {name}, a kernel thread; Hyoshi does not change its scheduling")
            }
            NoProcess::Unreadable(pid, why) => {
                write!(f, "/proc does not show process {pid}: {why}; if /proc is mounted with hidepid, run as root")
            }
        }
    }
}

impl std::error::Error for NoProcess {}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Ended and reaped when it is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            let mut sleep = Command::new("sleep");
            Sleeper(sleep.arg("1000").stdin(Stdio::null()).spawn().expect("coreutils' sleep"))
        }

        fn end(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.end();
        }
    }

    #[test]
    fn the_one_of_two_processes_that_ends_is_named() {
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut cat = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (first, second) = (Process::open(sleeper.id()).unwrap(), Process::open(cat.id()).unwrap());
        drop(cat.stdin.take());
        assert_eq!(wait_for_either(&first, &second).unwrap(), 1);
        assert_eq!(wait_for_either(&second, &first).unwrap(), 0);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        cat.wait().unwrap();
    }

    #[test]
    fn its_users_are_the_same_by_its_descriptor_and_by_proc() {
        use std::os::unix::process::CommandExt;

        let mut sleep = Command::new("sleep");
        sleep.arg("1000");
        if rustix::process::geteuid().is_root() {
            sleep.uid(12_345);
        }
        let sleeper = Sleeper(sleep.spawn().expect("coreutils' sleep"));
        let process = Process::open(sleeper.0.id()).unwrap();
        let by_proc = credentials::of_number(sleeper.0.id()).unwrap();
        match process.pidfd.as_ref().and_then(credentials::of_descriptor) {
            Some(by_descriptor) => assert_eq!(by_descriptor, by_proc),
            None => println!("skipped: needs Linux 6.13 for PIDFD_GET_INFO"),
        }
        assert_eq!(process.owner(), Some(by_proc));
    }

    #[test]
    fn a_program_without_new_privileges_gains_none() {
        let ended = std::thread::spawn(|| {
            // For the thread and its children only.
            set_no_new_privileges().unwrap();
            Command::new("grep").args(["NoNewPrivs", "/proc/self/status"]).output().unwrap()
        });
        assert_eq!(String::from_utf8_lossy(&ended.join().unwrap().stdout).trim(), "NoNewPrivs:\t1");
    }

    #[test]
    fn a_process_is_itself_until_it_ends() {
        let mut sleeper = Sleeper::start();
        let process = Process::open(sleeper.0.id()).unwrap();
        // A tick for those that start in it, and one for rounding.
        assert!(start_of_now().abs_diff(process.identity().start) <= 500, "{} {process:?}", start_of_now());
        assert!(!process.has_ended() && is_same(process.identity()));
        assert!(Process::open_same(process.identity()).is_ok());
        let mut threads = Vec::new();
        process.threads(&mut threads);
        assert_eq!(threads, [sleeper.0.id()]);
        assert_eq!(process.owner().map(|owner| owner.is_only(owner.real)), Some(true));
        assert_eq!(process.parent(), Some(std::process::id()));
        sleeper.0.kill().unwrap();
        assert!(process.ends_within(Span::from_secs(60)));
        assert_eq!(identity(sleeper.0.id()), Ok(process.identity()), "until it is waited for");
        sleeper.end();
        assert_eq!(identity(sleeper.0.id()), Err(NoProcess::Gone(sleeper.0.id())));
        assert!(process.has_ended() && !is_same(process.identity()) && process.owner().is_none());
        process.threads(&mut threads);
        assert!(threads.is_empty());
        assert_eq!(Process::open(sleeper.0.id()).unwrap_err(), NoProcess::Gone(sleeper.0.id()));
    }

    #[test]
    fn a_number_that_another_has_is_refused() {
        let sleeper = Sleeper::start();
        let meant = ProcessIdentity { start: 1, ..Process::open(sleeper.0.id()).unwrap().identity() };
        assert_eq!(Process::open_same(meant).unwrap_err(), NoProcess::Reused(sleeper.0.id()));
        assert!(!is_same(meant));
    }

    #[test]
    fn kernel_threads_and_unused_numbers_are_refused() {
        // kthreadd, if it is visible to this process (not in a container).
        if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
            let refused = Process::open(2).unwrap_err();
            assert!(refused.to_string().contains("a kernel thread"), "{refused}");
        }
        for nobody in [0, u32::MAX, 4_194_305] {
            assert_eq!(Process::open(nobody).unwrap_err(), NoProcess::Gone(nobody));
        }
    }

    #[test]
    fn a_thread_of_a_process_is_no_process() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (end, until) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender.send(crate::lock::tid()).unwrap();
            let _ = until.recv();
        });
        let tid = receiver.recv().unwrap();
        assert_eq!(Process::open(tid).unwrap_err(), NoProcess::Gone(tid));
        assert!(identity_of_thread(std::process::id(), tid).is_some());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_limit_of_real_time_is_read_where_there_is_one() {
        let limits = |limit| format!("Max realtime priority     0 0\nMax realtime timeout      {limit}  200000   us\n");
        assert_eq!(realtime_limit(&limits("200000")), Some(Span::from_millis(200)));
        assert_eq!(realtime_limit(&limits("unlimited")), None);
    }

    #[test]
    fn what_a_thread_may_take_by_itself_is_its_limit_or_all() {
        let limits =
            |soft, hard| format!("Max realtime priority     {soft}                    {hard}                    \n");
        assert_eq!(realtime_priority_limit(&limits("0", "20")), Some(20));
        assert_eq!(realtime_priority_limit(&limits("0", "unlimited")), Some(u64::MAX));
        assert_eq!(realtime_priority_limit("Max nice priority 0 0\n"), None);
        assert!(permits_nice("Name:\tx\nCapPrm:\t0000000000800000\n"));
        assert!(!permits_nice("CapPrm:\t00000000ff7fffff\n") && !permits_nice("CapPrm:\t?\n") && !permits_nice(""));
        let right = RealTimeRight { limit: 20, capable: false };
        assert!(right.allows(20) && !right.allows(21) && RealTimeRight { capable: true, ..right }.allows(99));
        assert_eq!(RealTimeRight::of(u32::MAX, u32::MAX), RealTimeRight::default(), "there is none");
    }

    #[test]
    fn a_setuid_program_belongs_to_no_single_user() {
        let mixed = credentials::of_status("Name:\tx\nUid:\t1000\t0\t0\t0\n").unwrap();
        assert!(!mixed.is_only(1000) && !mixed.is_only(0));
        assert!(credentials::of_status("Uid:\t7\t7\t7\t7\n").unwrap().is_only(7));
        assert_eq!(credentials::of_status("Uid:\t7\n"), None);
    }
}
