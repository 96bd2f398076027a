//! Time for which the hypervisor stopped a CPU, so that reports can show "stolen" as the cause of a late job.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hyoshi_model::Span;

/// Reads the steal time of one CPU: /proc/stat (proc_stat(5)), kept open. A reading allocates nothing but lasts some 9
/// us, because the kernel writes the whole file: use it once a window, not once a job. It advances in steps of 10 ms
/// (USER_HZ), so it explains a late job, not a jitter.
#[derive(Debug)]
pub struct StealReader {
    stat: File,
    cpu: u32,
    tick: Span,
    text: Box<[u8]>,
}

impl StealReader {
    /// A reader for a CPU.
    pub fn of(cpu: u32) -> io::Result<Self> {
        // Ten counters of up to 20 digits a line, one line for each CPU before this one.
        let text = vec![0; 256 * (cpu as usize + 2)].into_boxed_slice();
        let tick = Span::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1));
        Ok(StealReader { stat: File::open("/proc/stat")?, cpu, tick, text })
    }

    /// Stolen time since boot; `None` if the CPU is offline or the kernel does not report it.
    pub fn stolen(&mut self) -> Option<Span> {
        let length = self.stat.read_at(&mut self.text, 0).ok()?;
        cpu_ticks(self.text.get(..length)?, self.cpu).map(|ticks| self.tick * ticks.steal)
    }
}

/// Times of one CPU since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Idle, also while requests of disks were outstanding.
    pub idle: u64,
    /// Stopped by the hypervisor.
    pub steal: u64,
}

/// Times of all CPUs together since boot, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineTicks {
    idle: u64,
    all: u64,
}

impl MachineTicks {
    /// Those of the line `cpu`, which is the first one.
    pub fn of(stat: &[u8]) -> Option<MachineTicks> {
        let line = stat.split(|byte| *byte == b'\n').next()?.strip_prefix(b"cpu ")?;
        let fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        // User, nice, system, idle, waiting for disks, interrupts (2), stolen. Guests are part of user and nice.
        let (mut ticks, mut read) = (MachineTicks::default(), 0);
        for field in fields.take(8) {
            let counter: u64 = str::from_utf8(field).ok()?.parse().ok()?;
            ticks.all = ticks.all.checked_add(counter)?;
            if read == 3 || read == 4 {
                ticks.idle += counter;
            }
            read += 1;
        }
        (read > 4).then_some(ticks)
    }

    /// The part that was not idle since `before`, in parts per million; `None` if no tick has passed. The kernel's
    /// counters of idle time may decrease slightly.
    pub fn utilisation_since(self, before: MachineTicks) -> Option<u32> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        u32::try_from(u128::from(all - idle) * 1_000_000 / u128::from(all)).ok()
    }
}

/// The counters of the line `cpuN`.
pub(crate) fn cpu_ticks(stat: &[u8], cpu: u32) -> Option<Ticks> {
    let number = |digits: &[u8]| str::from_utf8(digits).ok()?.parse::<u64>().ok();
    stat.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
        let name = fields.next()?.strip_prefix(b"cpu")?;
        let mut counter = |skipped| number(fields.nth(skipped)?);
        (number(name)? == u64::from(cpu)).then(|| {
            let idle = counter(3)?.checked_add(counter(0)?)?;
            Some(Ticks { idle, steal: counter(2)? })
        })?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &[u8] = b"cpu  1882 0 1853 219974 470 0 41 17 0 0\n\
        cpu0 466 0 646 110958 36 0 5 4 0 0\ncpu1 1415 0 1206 109016 433 0 35 13 0 0\n\
        cpu12 1 2 3 4 5 6 7 8 9 0\nintr 5 0 0\nctxt 7\n";

    #[test]
    fn each_cpu_has_its_own_steal() {
        let ticks = |idle, steal| Some(Ticks { idle, steal });
        let expected = [ticks(110_994, 4), ticks(109_449, 13), ticks(9, 8)];
        assert_eq!([0, 1, 12].map(|cpu| cpu_ticks(STAT, cpu)), expected);
        assert_eq!(cpu_ticks(STAT, 2), None);
        assert_eq!(cpu_ticks(b"cpu0 1 2 3\n", 0), None);
    }

    #[test]
    fn the_machine_is_busy_in_all_but_idle_and_waiting_ticks() {
        let ticks = MachineTicks::of(STAT).unwrap();
        assert_eq!(ticks, MachineTicks { idle: 220_444, all: 224_237 });
        let later = MachineTicks { idle: ticks.idle + 30, all: ticks.all + 40 };
        assert_eq!(later.utilisation_since(ticks), Some(250_000));
        assert_eq!(ticks.utilisation_since(ticks), None);
        assert_eq!(
            MachineTicks { idle: 5, all: 10 }.utilisation_since(MachineTicks { idle: 6, all: 8 }),
            Some(1_000_000)
        );
        for text in ["cpu0 1 2 3 4 5\n", "cpu 1 2 3\n", "cpu 1 2 3 x 5\n", ""] {
            assert_eq!(MachineTicks::of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn this_machine_reports_steal_time_that_never_decreases() {
        let mut reader = StealReader::of(crate::allowed_cpus()[0]).unwrap();
        let first = reader.stolen();
        assert!(first.is_none() || reader.stolen() >= first);
    }
}
