//! A model of the kernel, for simulations of a dispatcher's threads and for recordings without the kernel's switches.
//! The most urgent started job with its lane's token runs; paused and demoted jobs run when no other does.

use alloc::collections::VecDeque;

use hyoshi_trace::{Probe, Slot};

use crate::dispatcher::Dispatcher;
use crate::effects::Effects;

/// The level of ordinary threads: below every lane.
pub const BACKGROUND: u8 = u8::MAX;

/// The kernel's state beside the dispatcher's.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// Jobs below the lanes, in the order in which they were demoted.
    pub demoted: VecDeque<Slot>,
    /// The job that has the CPU, or would have it if scheduling cost nothing.
    pub holder: Option<Slot>,
}

impl Kernel {
    /// The started job that the kernel runs, and its level. `blocks` is true for jobs that keep their lane's token
    /// while they wait for a resource of another processor.
    #[inline]
    pub fn best_started<P: Probe>(
        &self,
        dispatcher: &Dispatcher<P>,
        effects: &Effects,
        blocks: impl Fn(Slot) -> bool,
    ) -> (Option<Slot>, u8) {
        let token = |lane: u8| dispatcher.lanes()[usize::from(lane)].running;
        let running = effects.running;
        if !dispatcher.has_resources() && (running & effects.paused).is_empty() {
            return match running.first() {
                Some(lane) => (token(lane), lane),
                None => (self.demoted.front().copied(), BACKGROUND),
            };
        }
        let mut best = (None, BACKGROUND, false);
        for slot in running.iter().filter_map(token).filter(|slot| !blocks(*slot)) {
            let level = level(dispatcher, effects, slot);
            // Of equal priorities the running one continues: the kernel's FIFO does not preempt it.
            let runs = self.holder == Some(slot);
            if best.0.is_none() || level < best.1 || (level == best.1 && runs && !best.2) {
                best = (Some(slot), level, runs);
            }
        }
        (best.0.or(self.demoted.front().copied()), best.1)
    }
}

/// The level at which the kernel runs a job that holds its lane's token. The soft cap does not pause one that holds a
/// resource with a ceiling above its lane.
pub fn level<P: Probe>(dispatcher: &Dispatcher<P>, effects: &Effects, slot: Slot) -> u8 {
    let (lane, level) = (dispatcher.job(slot).lane, dispatcher.effective_level(slot));
    let paused = effects.fully_paused.contains(lane) || (effects.paused.contains(lane) && level >= lane);
    if paused { BACKGROUND } else { level }
}
