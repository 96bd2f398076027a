//! Programs under the CPU broker, beside the operations: the laws of `hyoshi-control` in virtual time.
//!
//! Lanes are above all windows, so operations never wait for programs: they are simulated first, and programs use the
//! rest of each CPU. A program is one thread. Its cycles begin at whole multiples of its period; the rest of a cycle
//! at the end of the period is dropped, as in `hyoshi hourglass`. The broker reports for it at the end of each period.
//! No other threads use the CPU.

mod cpu_sharing;
mod machine;
mod results;
mod settings;

use hyoshi_model::{HostId, Instant, ProcessorId, ProgramId, ReservationSetting, System};

pub use results::{Period, PeriodRange, PeriodSums, ProgramResults};

use machine::SimulatedHost;
pub(crate) use machine::TaskLoad;
pub(crate) use settings::ProgramSettings;

/// All programs of a system, simulated as far as their hosts' lanes are known.
#[derive(Debug)]
pub struct Programs<'a> {
    machines: Vec<SimulatedHost<'a>>,
}

impl<'a> Programs<'a> {
    /// Of all hosts; `None` if the file has no programs.
    pub fn new(system: &'a System) -> Option<Self> {
        let hosts = (0..system.hosts.len() as u32).map(HostId);
        let machines: Vec<_> = hosts.filter_map(|host| SimulatedHost::new(system, host)).collect();
        (!machines.is_empty()).then_some(Programs { machines })
    }

    /// A processor's lanes have used their CPU. To be called in order of time for each processor.
    pub(crate) fn taken(&mut self, processor: ProcessorId, from: Instant, to: Instant) {
        self.machines.iter_mut().for_each(|machine| machine.taken(processor, from, to));
    }

    /// All use by lanes until `now` is known.
    pub(crate) fn play_until(&mut self, now: Instant) {
        self.machines.iter_mut().for_each(|machine| machine.play_until(now));
    }

    /// The tasks of a host's broker at the time until which all is simulated.
    pub(crate) fn tasks(&self, host: HostId) -> impl Iterator<Item = TaskLoad> {
        self.machines.iter().filter(move |machine| machine.host() == host).flat_map(SimulatedHost::tasks)
    }

    /// A setting of a program gets another value at the time until which all is simulated.
    pub(crate) fn set(&mut self, host: HostId, program: ProgramId, setting: ReservationSetting, to: u64) {
        let machines = self.machines.iter_mut().filter(|machine| machine.host() == host);
        machines.for_each(|machine| machine.set(program, setting, to));
    }

    /// The results of each program, in the file's order.
    pub fn close(self) -> Vec<ProgramResults> {
        let mut played: Vec<ProgramResults> = self.machines.into_iter().flat_map(SimulatedHost::close).collect();
        played.sort_by_key(|one| one.program);
        played
    }
}
