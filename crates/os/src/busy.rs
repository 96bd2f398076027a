//! The time in which a CPU was not idle, for feedback control of its load.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use hyoshi_model::{Instant, Span};

use crate::cgroup;
use crate::steal::{Ticks, cpu_ticks};

/// Reads the non-idle time of one CPU. The readings of two instants differ by the time in which it was not idle.
///
/// - `cpuacct.usage_percpu` of the root control group (cpuacct in cgroups(7), version 1) has nanoseconds. A thread that
///   runs during the reading is up to 4 ms behind; a thread that runs on the CPU itself reads exact values.
/// - Otherwise `/proc/stat` (proc_stat(5)) has the idle time in steps of 10 ms. So a sampling period of 1 s measures the
///   utilisation to 1 %.
///
/// A reading allocates nothing.
#[derive(Debug)]
pub struct BusyReader {
    source: BusySource,
    text: Box<[u8]>,
    cpu: u32,
}

#[derive(Debug)]
enum BusySource {
    Cpuacct(File),
    Stat { file: File, tick: Span },
}

impl BusyReader {
    /// A reader for a CPU.
    pub fn of(cpu: u32) -> io::Result<Self> {
        // Numbers of up to 20 digits: one for each CPU, or ten in a line for each CPU.
        let text = vec![0; 256 * (cpu as usize + 2)].into_boxed_slice();
        let mut reader = BusyReader { source: BusySource::stat()?, text, cpu };
        if let Some(file) = cgroup::root_usage_of_cpus() {
            reader.source = BusySource::Cpuacct(file);
            if reader.busy(Instant::ZERO).is_none() {
                reader.source = BusySource::stat()?;
            }
        }
        Ok(reader)
    }

    /// The resolution of a reading.
    pub fn resolution(&self) -> Span {
        match &self.source {
            BusySource::Cpuacct(_) => Span::from_nanos(1),
            BusySource::Stat { tick, .. } => *tick,
        }
    }

    /// The non-idle time at `now`, from some constant on; `None` if the kernel does not report it.
    pub fn busy(&mut self, now: Instant) -> Option<Span> {
        let (BusySource::Cpuacct(file) | BusySource::Stat { file, .. }) = &self.source;
        let length = file.read_at(&mut self.text, 0).ok()?;
        let text = self.text.get(..length)?;
        match &self.source {
            BusySource::Cpuacct(_) => nth_number(text, self.cpu).map(Span::from_nanos),
            BusySource::Stat { tick, .. } => {
                let Ticks { idle, .. } = cpu_ticks(text, self.cpu)?;
                // The constant makes the difference positive: the machine may have been idle before instant 0.
                let idle = u128::from(tick.as_nanos()) * u128::from(idle);
                let since = u128::from(now.as_nanos()) + u128::from(u64::MAX / 2);
                since.checked_sub(idle).and_then(|busy| u64::try_from(busy).ok()).map(Span::from_nanos)
            }
        }
    }
}

impl BusySource {
    fn stat() -> io::Result<BusySource> {
        let tick = Span::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1));
        Ok(BusySource::Stat { file: File::open("/proc/stat")?, tick })
    }
}

/// The number at this place of a list.
fn nth_number(text: &[u8], place: u32) -> Option<u64> {
    let mut numbers = text.split(|byte| byte.is_ascii_whitespace()).filter(|number| !number.is_empty());
    str::from_utf8(numbers.nth(place as usize)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, MonotonicClock};

    #[test]
    fn each_cpu_has_its_own_number() {
        assert_eq!([0, 1, 2].map(|place| nth_number(b"12 345 \n", place)), [Some(12), Some(345), None]);
        assert_eq!(nth_number(b"x 1", 0), None);
    }

    #[test]
    fn a_cpu_is_busy_while_a_thread_spins_on_it() {
        let cpu = crate::allowed_cpus()[0];
        let (clock, spins) = (MonotonicClock::start(), Span::from_millis(200));
        let spin = std::thread::spawn(move || {
            crate::pin_to(cpu).unwrap();
            let mut readers = [BusyReader::of(cpu).unwrap(), BusyReader::of(cpu).unwrap()];
            readers[1].source = BusySource::stat().unwrap();
            let before = readers.each_mut().map(|reader| reader.busy(clock.now()).unwrap());
            let begin = clock.now();
            while clock.now().since(begin) < spins {}
            let after = readers.each_mut().map(|reader| reader.busy(clock.now()).unwrap());
            [0, 1].map(|one| after[one].saturating_sub(before[one]))
        });
        // No upper limit: the test may wait for its CPU.
        for busy in spin.join().unwrap() {
            assert!(busy >= spins.saturating_sub(Span::from_millis(20)), "{busy}");
        }
    }
}
