//! The utilisation of all CPUs of the machine during a run. The polling thread measures it, below the lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hyoshi_model::{Instant, Span};
use hyoshi_os::MachineReader;

/// The time between two readings.
const EVERY: Span = Span::from_millis(500);

/// The utilisation of all CPUs of the machine. Clones share it. Hosts that run in one process share their machine.
#[derive(Clone, Debug)]
pub struct MachineLoad(Arc<AtomicU32>);

/// The latest utilisation is not known.
const UNKNOWN: u32 = u32::MAX;

impl Default for MachineLoad {
    fn default() -> Self {
        MachineLoad(Arc::new(AtomicU32::new(UNKNOWN)))
    }
}

impl MachineLoad {
    /// In the latest half second of the run, in parts per million of all CPUs. `None` before, or if the kernel does not
    /// report it.
    pub fn latest(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ppm| *ppm != UNKNOWN)
    }
}

/// Measures from the begin of the run on.
#[derive(Debug, Default)]
pub(crate) struct MachineMonitor {
    pub load: MachineLoad,
    reader: Option<MachineReader>,
    last: Instant,
}

impl MachineMonitor {
    /// The run begins.
    pub fn begin(&mut self) {
        self.reader = MachineReader::start();
    }

    /// Measures, if it is due.
    pub fn poll(&mut self, now: Instant) {
        if now.since(self.last) >= EVERY {
            self.last = now;
            let latest = self.reader.as_mut().and_then(MachineReader::since_last);
            self.load.0.store(latest.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
    }

    /// The utilisation since the begin of the run.
    pub fn since_begin(&mut self) -> Option<u32> {
        self.reader.as_mut()?.since_start()
    }
}
