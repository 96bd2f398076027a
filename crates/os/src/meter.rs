//! The CPU time of other programs, also while they run on another CPU.
//!
//! The kernel's task clock is current (perf_event_open(2), PERF_COUNT_SW_TASK_CLOCK): one counter for each thread that
//! exists at the start, inherited by all its later children, so short-lived threads and children count. If that is
//! refused (`kernel.perf_event_paranoid`, another user's process), the CPU clock of each process is used
//! (clock_getcpuclockid(3)): exact for stopped threads, up to a tick (4 ms at 250 Hz) late for running ones, and
//! without short-lived children.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use hyoshi_model::Span;
use perf_event::events::Software;
use perf_event::{Builder, Counter};
use serde::Serialize;

use crate::process::{Process, ProcessIdentity, is_same};

/// The source of readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeterSource {
    /// The kernel's task clock: current, including all children of the metered threads.
    TaskClock,
    /// The CPU clock of each process: up to a tick late while it runs.
    CpuClock,
}

/// The consumption of some processes from when each was added. Readings never decrease.
pub struct Meter {
    counters: Vec<Counter>,
    clocks: Vec<ProcessClock>,
    /// Of processes that have ended, by their clocks.
    past: Span,
    /// The count before [`Meter::set_processes`].
    before: Span,
    /// Nothing was refused so far.
    fresh: bool,
    last: Span,
}

struct ProcessClock {
    identity: ProcessIdentity,
    at_start: Span,
    last: Span,
}

/// How often the threads of a process are listed again until no unmetered one was born meanwhile. If a program always
/// has new ones, those that its first threads started are counted anyway.
const PASSES: usize = 4;

/// Processes with more threads are metered by their CPU clocks: reading a counter for each would last as long as a
/// period.
const MOST_COUNTERS: usize = 1_024;

impl Meter {
    /// Without processes.
    pub fn new() -> Self {
        let (counters, clocks) = (Vec::new(), Vec::new());
        Meter { counters, clocks, past: Span::ZERO, before: Span::ZERO, fresh: true, last: Span::ZERO }
    }

    /// Without processes, and only by CPU clocks.
    pub fn coarse() -> Self {
        Meter { fresh: false, ..Meter::new() }
    }

    /// Also counts a process from now on. Of a child of a metered thread only the clock is stored: it is already
    /// counted. One descriptor for each thread is used.
    pub fn add(&mut self, process: &Process, born_of_metered: bool) {
        let identity = process.identity();
        if self.fresh && !born_of_metered && self.counters.len() + process.count_threads() > MOST_COUNTERS {
            self.fall_back();
        }
        if self.fresh && !born_of_metered {
            match task_clocks(process) {
                Ok(counters) => self.counters.extend(counters),
                Err(_) => self.fall_back(),
            }
        }
        if let Some(now) = process_time(identity.number) {
            let at_start = if born_of_metered { Span::ZERO } else { now };
            self.clocks.push(ProcessClock { identity, at_start, last: at_start });
        }
    }

    /// Counts only these from now on; earlier consumption stays counted. Processes that are removed: their consumption
    /// is in the counters of their parents.
    pub fn set_processes<'a>(&mut self, processes: impl IntoIterator<Item = &'a Process>) {
        let so_far = self.read();
        *self = Meter { past: so_far, before: so_far, last: so_far, fresh: self.fresh, ..Meter::new() };
        processes.into_iter().for_each(|process| self.add(process, false));
    }

    /// Consumption so far: costs 0.3 us for each counter, some us if its thread runs on another CPU.
    pub fn read(&mut self) -> Span {
        if self.fresh {
            let mut sum = self.before;
            for counter in &self.counters {
                match count(counter) {
                    Some(nanos) => sum += Span::from_nanos(nanos),
                    None => return self.fall_back_and_read(),
                }
            }
            self.last = self.last.max(sum);
        } else {
            self.last = self.last.max(self.by_clocks());
        }
        self.last
    }

    /// The source of the next reading.
    pub fn source(&self) -> MeterSource {
        if self.fresh { MeterSource::TaskClock } else { MeterSource::CpuClock }
    }

    /// Drops what belongs to processes that have ended; their consumption stays counted.
    pub fn forget_ended(&mut self) {
        let past = &mut self.past;
        self.clocks.retain(|clock| {
            let alive = is_same(clock.identity);
            if !alive {
                *past += clock.last.saturating_sub(clock.at_start);
            }
            alive
        });
    }

    /// The counters are incomplete: from here on the clocks are used, from the counters' last values.
    fn fall_back(&mut self) {
        let counted = self.last;
        self.fresh = false;
        self.counters.clear();
        let by_clocks = self.by_clocks();
        self.past += counted.saturating_sub(by_clocks);
    }

    fn fall_back_and_read(&mut self) -> Span {
        self.fall_back();
        self.read()
    }

    fn by_clocks(&mut self) -> Span {
        let mut sum = self.past;
        for clock in &mut self.clocks {
            // An ended one keeps its last reading; if another process has its number, its clock has decreased, or
            // `forget_ended` drops it.
            if let Some(now) = process_time(clock.identity.number) {
                clock.last = clock.last.max(now);
            }
            sum += clock.last.saturating_sub(clock.at_start);
        }
        sum
    }
}

impl Default for Meter {
    fn default() -> Self {
        Meter::new()
    }
}

/// The value of a counter: the first of the words that the kernel writes (perf_event_open(2)). The crate's own way is
/// as slow as the system call.
fn count(counter: &Counter) -> Option<u64> {
    // SAFETY: the counter is open for as long as it is borrowed.
    let fd = unsafe { BorrowedFd::borrow_raw(counter.as_raw_fd()) };
    let mut words = [0; 40];
    let got = rustix::io::read(fd, &mut words).ok()?;
    Some(u64::from_ne_bytes(*words[..got].first_chunk()?))
}

/// A counter for each thread of a process, including its later children.
fn task_clocks(process: &Process) -> io::Result<Vec<Counter>> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut counters = Vec::new();
    for _ in 0..PASSES {
        counters.clear();
        process.threads(&mut before);
        for thread in &before {
            match task_clock(*thread) {
                Ok(counter) => counters.push(counter),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        // A thread born meanwhile may or may not have a counter, by its parent: only a pass without one is certain.
        process.threads(&mut after);
        if after.iter().all(|thread| before.contains(thread)) {
            break;
        }
    }
    Ok(counters)
}

fn task_clock(tid: u32) -> io::Result<Counter> {
    let tid = i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut builder = Builder::new(Software::TASK_CLOCK);
    builder.observe_pid(tid).any_cpu().inherit(true).enabled(true);
    builder.build()
}

/// The CPU clock of a process with all its threads, also those that have ended; `None` after it has ended. 0.2 us. Its
/// id is that of clock_getcpuclockid(3): `~pid << 3 | CPUCLOCK_SCHED`.
fn process_time(pid: u32) -> Option<Span> {
    crate::thread::cpu_time_by((!pid as libc::clockid_t) << 3 | 2)
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("source", &self.source()).field("last", &self.last).finish_non_exhaustive()
    }
}

impl fmt::Display for MeterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MeterSource::TaskClock => "the kernel's task clock, current",
            MeterSource::CpuClock => "the CPU clock of processes, up to a tick late",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::privileges::missing;

    struct Shell(Child);

    impl Shell {
        fn run(script: &str) -> (Self, Process) {
            let mut command = Command::new("sh");
            let child = command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("sh");
            let process = Process::open(child.id()).unwrap();
            (Shell(child), process)
        }

        /// Lets it continue, and waits for its end.
        fn finish(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    const SPIN: &str = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";

    #[test]
    fn what_a_process_consumes_is_counted_by_either_source_and_stays_when_it_ends() {
        for mut meter in [Meter::new(), Meter::coarse()] {
            let (mut shell, process) = Shell::run(&format!("read go; {SPIN}; read never; {SPIN}"));
            meter.add(&process, false);
            let first = meter.read();
            shell.finish();
            // Read after its end: a coarse meter keeps its last reading.
            let last = meter.read();
            meter.forget_ended();
            assert!(meter.read() >= last && last >= first);
            if meter.source() == MeterSource::TaskClock {
                assert!(last >= first + Span::from_millis(10), "{first} then {last} by {}", meter.source());
            }
        }
    }

    #[test]
    fn children_that_came_and_went_unseen_are_counted_by_the_task_clock() {
        let (mut shell, process) = Shell::run(&format!("read go; for n in 1 2 3 4; do ({SPIN}) & done; wait"));
        let mut meter = Meter::new();
        meter.add(&process, false);
        if meter.source() != MeterSource::TaskClock {
            return missing("the task clock of other processes");
        }
        let before = meter.read();
        shell.finish();
        assert!(meter.read() >= before + Span::from_millis(40), "{} after {before}", meter.read());
    }

    #[test]
    fn those_who_leave_count_no_longer_and_what_was_counted_stays() {
        for mut meter in [Meter::new(), Meter::coarse()] {
            let (mut shell, process) = Shell::run(&format!("{SPIN}; read go; {SPIN}"));
            meter.add(&process, false);
            let before = meter.read();
            meter.set_processes([&process]);
            assert!(meter.read() >= before);
            meter.set_processes([]);
            let last = meter.read();
            shell.finish();
            assert_eq!(meter.read(), last, "by {}", meter.source());
        }
    }

    #[test]
    fn an_ended_process_has_consumed_nothing() {
        let (mut shell, process) = Shell::run("read go");
        shell.finish();
        let mut meter = Meter::new();
        meter.add(&process, false);
        assert_eq!(meter.read(), Span::ZERO);
    }
}
