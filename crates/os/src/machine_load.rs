//! The utilisation of all CPUs of the machine.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::steal::MachineTicks;

/// Reads the time in which the machine's CPUs were not idle: the first line of `/proc/stat` (proc_stat(5)), in steps of
/// 10 ms of one CPU. All programs count, and time stolen by a hypervisor counts as busy. A reading allocates nothing,
/// but lasts some 10 us.
#[derive(Debug)]
pub struct MachineReader {
    stat: File,
    text: Box<[u8]>,
    first: MachineTicks,
    latest: MachineTicks,
}

impl MachineReader {
    /// Begins to measure. `None` if the kernel does not report the times of the machine.
    pub fn start() -> Option<Self> {
        // The first line has the name, and up to ten numbers of 20 digits.
        let text = vec![0; 256].into_boxed_slice();
        let (first, latest) = Default::default();
        let mut reader = MachineReader { stat: File::open("/proc/stat").ok()?, text, first, latest };
        reader.first = reader.read()?;
        reader.latest = reader.first;
        Some(reader)
    }

    fn read(&mut self) -> Option<MachineTicks> {
        let length = self.stat.read_at(&mut self.text, 0).ok()?;
        MachineTicks::of(self.text.get(..length)?)
    }

    /// The utilisation since the last call, or since the start, in parts per million of all CPUs. `None` if it was not
    /// measured, or if no time has passed.
    pub fn since_last(&mut self) -> Option<u32> {
        let now = self.read()?;
        now.utilisation_since(std::mem::replace(&mut self.latest, now))
    }

    /// The utilisation since the start.
    pub fn since_start(&mut self) -> Option<u32> {
        self.read()?.utilisation_since(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, MonotonicClock};
    use hyoshi_model::Span;

    #[test]
    fn a_spinning_thread_is_a_part_of_the_utilisation() {
        let (clock, spins) = (MonotonicClock::start(), Span::from_millis(300));
        let mut reader = MachineReader::start().unwrap();
        let begin = clock.now();
        while clock.now().since(begin) < spins {}
        let (latest, all) = (reader.since_last().unwrap(), reader.since_start().unwrap());
        // No upper limit below 1: other threads run, too. The thread may wait for a CPU, which is then busy.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        for part in [latest, all] {
            assert!((500_000 / cpus.max(1)..=1_000_000).contains(&part) || cpus > 64, "{part} of {cpus}");
        }
    }
}
