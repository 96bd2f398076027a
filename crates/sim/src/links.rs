//! Links in virtual time: they draw how long each completion is on its way.

use hyoshi_dispatch::{InFlight, Transport};
use hyoshi_model::{Instant, ProcessorId, Span, System};
use hyoshi_trace::Signal;

/// One processor's end.
#[derive(Debug)]
pub(crate) struct Simulated<'a> {
    system: &'a System,
    /// To each processor.
    delays: Vec<(Span, Span)>,
    arriving: InFlight<()>,
    /// Sent at this instant.
    leaving: Vec<(ProcessorId, Signal)>,
}

impl<'a> Simulated<'a> {
    pub fn new(system: &'a System, processor: ProcessorId) -> Self {
        Simulated {
            system,
            delays: system.delays_from(processor),
            arriving: InFlight::with_capacity(0),
            leaving: Vec::new(),
        }
    }

    /// Moves the sent signals to `into`.
    pub fn take_sent(&mut self, into: &mut Vec<(ProcessorId, Signal)>) {
        into.append(&mut self.leaving);
    }

    /// One that another end has sent; it is lost where too many are on their way.
    pub fn arrives(&mut self, signal: Signal) {
        self.arriving.push(signal, ());
    }
}

impl Transport for Simulated<'_> {
    type Data = ();

    fn send(&mut self, to: ProcessorId, mut signal: Signal, _: ()) {
        signal.due += self.system.draw_delay(self.delays[to.index()], signal.to, signal.position, signal.number);
        self.leaving.push((to, signal));
    }

    #[inline]
    fn next(&self) -> Instant {
        self.arriving.next()
    }

    #[inline]
    fn receive(&mut self, now: Instant) -> Option<(Signal, ())> {
        self.arriving.pop(now)
    }
}
