//! Which thread has a CPU, from the kernel's scheduler: a record for each switch, read from a ring in shared memory
//! (perf_event_open(2), `context_switch` on a software event that counts nothing).
//!
//! The access depends on `kernel.perf_event_paranoid`, and is returned as a [`SwitchVisibility`]:
//!
//! ```text
//! every switch of a CPU, with both threads     CAP_PERFMON (or root), or paranoid <= 0
//! when this process's threads get and lose it  paranoid <= 2
//! nothing                                      paranoid 3 and above (Debian, Ubuntu)
//! ```
//!
//! If every switch is recorded, and the kernel shows the addresses of its functions (CAP_SYSLOG, or
//! `kernel.kptr_restrict` 0), the records also have what a thread waits for when it releases its CPU ([`BlockedOn`]):
//! the same event then samples the kernel's call chain at each switch.

use std::fmt;
use std::fs;
use std::io;

use perf_event::events::Software;
use perf_event::{Builder, Clock, SampleFlag, Sampler};
use serde::Serialize;

use crate::waits::{BlockedOn, Functions};

/// How much of the switches is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchVisibility {
    /// Nothing: waiting time is inferred from CPU time.
    Nothing,
    /// When threads of this process get and lose the CPU, but not which other thread has it.
    OwnThreads,
    /// Which thread has the CPU at every instant.
    Everything,
}

/// One event of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switched {
    /// This thread has the CPU from now on.
    To {
        /// Its number; 0 for the idle thread, and in a container for threads outside it.
        tid: u32,
        /// The thread before could have continued.
        preempted: bool,
    },
    /// A thread of this process loses the CPU. The next thread is not known.
    From {
        /// Its number.
        tid: u32,
        /// It could have continued.
        preempted: bool,
    },
    /// With the next switch, the thread on the CPU releases it, to wait for this.
    Waits(BlockedOn),
    /// This many records did not fit into the ring.
    Lost(u64),
}

/// A source of switches of one CPU. [`crate::fake::FakeSwitches`] returns those that a test supplies.
pub trait SwitchSource: fmt::Debug + Send {
    /// Passes on the events that have arrived, in order, with the times of `CLOCK_MONOTONIC` in nanoseconds.
    fn drain(&mut self, each: &mut dyn FnMut(u64, Switched));
    /// How much it records.
    fn visibility(&self) -> SwitchVisibility;
}

/// The kernel's switches.
pub struct CpuSwitches {
    sampler: Sampler,
    visibility: SwitchVisibility,
    chains: CallStacks,
}

/// Bytes of a ring, and the sizes to try if so much memory cannot be locked. 2 MiB hold 8,000 switches with their call
/// chains; 512 KiB hold as many without, and are the amount of `kernel.perf_event_mlock_kb` for each CPU.
const RINGS: [usize; 4] = [2 << 20, 512 << 10, 128 << 10, 32 << 10];

impl CpuSwitches {
    /// Watches a CPU, as closely as the kernel allows. An error contains the reason why it allows nothing.
    ///
    /// If only threads of this process can be recorded, it is those that the calling thread starts from now on, and
    /// theirs: call it before starting any.
    pub fn of(cpu: u32) -> io::Result<Self> {
        let chains = || Functions::of_kernel().ok_or(io::Error::from(io::ErrorKind::PermissionDenied));
        let plain = |visibility| CpuSwitches::open(cpu, visibility, None);
        let with_waits =
            chains().and_then(|functions| CpuSwitches::open(cpu, SwitchVisibility::Everything, Some(functions)));
        with_waits.or_else(|_| plain(SwitchVisibility::Everything)).or_else(|_| plain(SwitchVisibility::OwnThreads))
    }

    fn open(cpu: u32, visibility: SwitchVisibility, functions: Option<&'static Functions>) -> io::Result<Self> {
        let mut refused = io::Error::from(io::ErrorKind::Unsupported);
        for ring in if functions.is_some() { &RINGS[..] } else { &RINGS[1..] }.iter().copied() {
            let mut builder = switches(ring, functions.is_some());
            builder.one_cpu(cpu as usize);
            match visibility {
                SwitchVisibility::Everything => builder.any_pid(),
                // Inherited by threads: pinned ones are on this CPU all the time.
                _ => builder.observe_self().inherit(true),
            };
            match builder.build().and_then(|counter| counter.sampled(ring)) {
                Ok(mut sampler) => {
                    sampler.enable()?;
                    return Ok(CpuSwitches { sampler, visibility, chains: CallStacks { functions, last: None } });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

impl SwitchSource for CpuSwitches {
    fn drain(&mut self, each: &mut dyn FnMut(u64, Switched)) {
        let CpuSwitches { sampler, chains, .. } = self;
        drain(sampler, RINGS[0], |kind, misc, body| chains.record(kind, misc, body, each));
    }

    fn visibility(&self) -> SwitchVisibility {
        self.visibility
    }
}

impl fmt::Debug for CpuSwitches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuSwitches").field("sight", &self.visibility).finish_non_exhaustive()
    }
}

/// A thread's own switches on all CPUs: as far as `kernel.perf_event_paranoid` allows a user for their own
/// processes (2 and below), or with CAP_PERFMON.
pub(crate) struct ThreadSwitches(Sampler);

/// Bytes of a thread's ring: 680 switches.
const THREAD_RING: usize = 16 << 10;

impl ThreadSwitches {
    pub(crate) fn of(tid: u32) -> io::Result<Self> {
        let tid = i32::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        let counter = switches(THREAD_RING, false).observe_pid(tid).any_cpu().build()?;
        let mut sampler = counter.sampled(THREAD_RING)?;
        sampler.enable()?;
        Ok(ThreadSwitches(sampler))
    }

    pub(crate) fn drain(&mut self, each: &mut dyn FnMut(u64, Switched)) {
        let mut each = |(at, switched)| each(at, switched);
        drain(&mut self.0, THREAD_RING, |kind, misc, body| read(kind, misc, body).into_iter().for_each(&mut each));
    }
}

/// The calls in which a thread releases its CPU: the kernel samples them just before it reports the switch.
#[derive(Debug)]
struct CallStacks {
    functions: Option<&'static Functions>,
    /// What the thread of the last sample waits for.
    last: Option<(u32, BlockedOn)>,
}

/// This many calls are sampled, the innermost. Those that show what a thread waits for are at most ten deep; each costs
/// 0.1 us.
const DEEPEST: u16 = 16;

impl CallStacks {
    fn record(&mut self, kind: u32, misc: u16, body: &[u8], each: &mut dyn FnMut(u64, Switched)) {
        if kind == RECORD_SAMPLE {
            self.last = self.functions.and_then(|functions| sampled(functions, body));
            return;
        }
        let Some((at, switched)) = read(kind, misc, body) else { return };
        let last = self.last.take();
        // A preempted thread waits for nothing.
        if let (Switched::To { preempted: false, .. }, Some((tid, wait))) = (switched, last)
            && u32_at(body, body.len() - 12) == Some(tid)
        {
            each(at, Switched::Waits(wait));
        }
        each(at, switched);
    }
}

/// A sample: pid, tid, time, the number of calls, and the address of each.
fn sampled(functions: &Functions, body: &[u8]) -> Option<(u32, BlockedOn)> {
    let calls = body.get(24..)?.chunks_exact(8).map(|call| u64::from_ne_bytes(call.try_into().unwrap_or_default()));
    Some((u32_at(body, 4)?, functions.wait(calls)?))
}

fn switches(ring: usize, chains: bool) -> Builder<'static> {
    let mut builder = Builder::new(if chains { Software::CONTEXT_SWITCHES } else { Software::DUMMY });
    builder.context_switch(true).clockid(Clock::MONOTONIC);
    builder.sample_id_all(true).sample(SampleFlag::TID | SampleFlag::TIME);
    if chains {
        builder.sample_period(1).sample(SampleFlag::CALLCHAIN).sample_max_stack(DEEPEST);
        builder.include_kernel().exclude_callchain_user(true);
    }
    // No thread waits for it: it is read at intervals.
    builder.wakeup_watermark(ring);
    builder
}

fn drain(sampler: &mut Sampler, ring: usize, mut each: impl FnMut(u32, u16, &[u8])) {
    // Bounded: a CPU that switches faster than this reads must not keep the caller here.
    for _ in 0..ring / SHORTEST {
        let Some(record) = sampler.next_record() else { return };
        each(record.ty(), record.misc(), &record.to_contiguous());
    }
}

// Of linux/perf_event.h.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const RECORD_SWITCH: u32 = 14;
const RECORD_SWITCH_CPU_WIDE: u32 = 15;
const MISC_SWITCH_OUT: u16 = 1 << 13;
const MISC_SWITCH_OUT_PREEMPT: u16 = 1 << 14;

/// The shortest record: a header, and the identity at its end.
const SHORTEST: usize = 8 + 16;

/// A record's body. It ends with the thread on the CPU and the time: pid, tid, time.
fn read(kind: u32, misc: u16, body: &[u8]) -> Option<(u64, Switched)> {
    let (own, identity) = body.split_at_checked(body.len().checked_sub(16)?)?;
    let (tid, at) = (u32_at(identity, 4)?, u64_at(identity, 8)?);
    let preempted = misc & MISC_SWITCH_OUT_PREEMPT != 0;
    let switched = match (kind, misc & MISC_SWITCH_OUT != 0) {
        (RECORD_SWITCH, true) => Switched::From { tid, preempted },
        (RECORD_SWITCH, false) => Switched::To { tid, preempted: false },
        // The same switch is reported twice, for the old and the new thread: one is enough.
        (RECORD_SWITCH_CPU_WIDE, true) => Switched::To { tid: u32_at(own, 4)?, preempted },
        (RECORD_LOST, _) => Switched::Lost(u64_at(own, 8)?),
        _ => return None,
    };
    Some((at, switched))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// The kernel's name for a thread of any process (proc_pid_comm(5)), with control characters escaped; `None` after it
/// has ended.
pub fn thread_name(tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{tid}/comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(hyoshi_model::printable(name.strip_suffix('\n').unwrap_or(&name)))
}

/// True if this process sees every thread by its number: otherwise 0 may be any thread.
pub fn sees_every_thread() -> bool {
    // The first namespace has a fixed number (PROC_PID_INIT_INO of the kernel).
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::thread::Spawn;

    fn record(words: &[u32], pid_tid: [u32; 2], at: u64) -> Vec<u8> {
        let words = words.iter().chain(&pid_tid).flat_map(|word| word.to_ne_bytes());
        words.chain(at.to_ne_bytes()).collect()
    }

    #[test]
    fn records_are_read_as_the_manual_has_them() {
        let wide = record(&[70, 71], [60, 61], 5);
        let out = MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT;
        assert_eq!(read(RECORD_SWITCH_CPU_WIDE, out, &wide), Some((5, Switched::To { tid: 71, preempted: true })));
        assert_eq!(read(RECORD_SWITCH_CPU_WIDE, 0, &wide), None);
        let own = record(&[], [60, 61], 6);
        assert_eq!(read(RECORD_SWITCH, out, &own), Some((6, Switched::From { tid: 61, preempted: true })));
        assert_eq!(read(RECORD_SWITCH, 0, &own), Some((6, Switched::To { tid: 61, preempted: false })));
        let lost = record(&[1, 0, 42, 0], [0, 0], 7);
        assert_eq!(read(RECORD_LOST, 0, &lost), Some((7, Switched::Lost(42))));
        for length in 0..wide.len() {
            read(RECORD_SWITCH_CPU_WIDE, out, &wide[..length]);
            read(RECORD_LOST, 0, &wide[..length]);
        }
    }

    #[test]
    fn the_cause_of_waiting_is_in_the_threads_own_switch_unless_it_was_preempted() {
        let Some(functions) = Functions::of_kernel() else {
            return crate::privileges::missing("addresses of functions");
        };
        let sleeps = functions.first_of(BlockedOn::Sleep);
        let sample = |tid: u32| {
            let words = [60, tid, 5, 0, 2, 0].into_iter().flat_map(u32::to_ne_bytes);
            words.chain([u64::MAX - 127, sleeps].into_iter().flat_map(u64::to_ne_bytes)).collect::<Vec<u8>>()
        };
        let reported = |sampled: u32, misc: u16| {
            let (mut chains, mut all) = (CallStacks { functions: Some(functions), last: None }, Vec::new());
            chains.record(RECORD_SAMPLE, 0, &sample(sampled), &mut |_, switched| all.push(switched));
            let switch = record(&[70, 71], [60, 61], 5);
            for _ in 0..2 {
                chains.record(RECORD_SWITCH_CPU_WIDE, misc, &switch, &mut |_, switched| all.push(switched));
            }
            all
        };
        let to = |preempted| Switched::To { tid: 71, preempted };
        assert_eq!(reported(61, MISC_SWITCH_OUT), [Switched::Waits(BlockedOn::Sleep), to(false), to(false)]);
        assert_eq!(reported(62, MISC_SWITCH_OUT), [to(false), to(false)]);
        assert_eq!(reported(61, MISC_SWITCH_OUT | MISC_SWITCH_OUT_PREEMPT), [to(true), to(true)]);
        for length in 0..sample(61).len() {
            sampled(functions, &sample(61)[..length]);
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_seen_to_come_and_go_where_the_kernel_allows() {
        let cpu = crate::allowed_cpus()[0];
        let mut switches = match CpuSwitches::of(cpu) {
            Ok(switches) => switches,
            Err(error) => return crate::privileges::missing(format_args!("context switches: {error}")),
        };
        println!("{switches:?}");
        let done = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&done);
        let thread = Spawn::new("seen").cpu(cpu).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let thread = thread.unwrap();
        let tid = thread.handle.tid();
        let waits = switches.chains.functions.is_some();
        let (mut last, mut came, mut slept) = (0, 0, 0);
        // Other tests may fill the ring at once, so it is drained until enough was seen.
        let began = Instant::now();
        while (came < 20 || (waits && slept < 20)) && began.elapsed() < Duration::from_secs(60) {
            switches.drain(&mut |at, switched| {
                assert!(at >= last);
                last = at;
                came += u32::from(matches!(switched, Switched::To { tid: to, .. } if to == tid));
                slept += u32::from(switched == Switched::Waits(BlockedOn::Sleep));
            });
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert!(came >= 20, "{came} of {tid} {switches:?}");
        match waits {
            true => assert!(slept >= 20, "{slept}"),
            false => crate::privileges::missing("addresses of the kernel's functions"),
        }
    }

    #[test]
    fn this_thread_has_a_name() {
        assert!(thread_name(crate::lock::tid()).is_some_and(|name| !name.is_empty()));
        assert_eq!(thread_name(u32::MAX), None);
        // The thread chooses its name, which must not control a terminal when printed.
        let named = std::thread::Builder::new().name("a\x1b[2J\nb".into());
        let thread = named.spawn(|| thread_name(crate::lock::tid())).unwrap();
        assert_eq!(thread.join().unwrap().as_deref(), Some("a\\u{1b}[2J\\nb"));
    }
}
