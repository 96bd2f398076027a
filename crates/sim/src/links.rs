//! Links in virtual time: they draw the delay and the loss of each completion.

use hyoshi_dispatch::{CompletionTransport, InFlight};
use hyoshi_model::{Instant, LinkSetting, ProcessorId, Span, System};
use hyoshi_trace::Signal;

/// The fate of a completion sent to another processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journey {
    /// It arrived after this delay.
    Delay(Span),
    /// It arrived at this instant, or at once if it is sent later.
    Until(Instant),
    /// It did not arrive.
    Lost,
}

/// Counts of a link: sent = received + lost + refused + in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Completions that were sent.
    pub sent: u64,
    /// Those that reached their processor.
    pub received: u64,
    /// Those that were lost on the way.
    pub lost: u64,
    /// Those for a host that was off.
    pub refused: u64,
    /// Those in transit at the end.
    pub in_flight: u64,
    /// Those sent with a recorded fate.
    pub recorded: u64,
}

impl LinkCounts {
    /// Adds the counts of another end of the link.
    pub fn add(&mut self, other: &LinkCounts) {
        let LinkCounts { sent, received, lost, refused, in_flight, recorded } = other;
        self.sent += sent;
        self.received += received;
        self.lost += lost;
        self.refused += refused;
        self.in_flight += in_flight;
        self.recorded += recorded;
    }
}

/// Known fates of completions.
pub type Journeys<'a> = &'a dyn Fn(&Signal) -> Option<Journey>;

/// One processor's end.
pub(crate) struct SimulatedLinks<'a> {
    system: &'a System,
    here: ProcessorId,
    /// To each processor, in the epoch of the last sending.
    ways: Vec<LinkSetting>,
    epoch: usize,
    /// For each pair of processors, the position of the link; one past the last if there is none.
    links: Vec<usize>,
    journeys: Option<Journeys<'a>>,
    /// The host is off in some epoch.
    ever_off: bool,
    arriving: InFlight<()>,
    /// Sent at this instant.
    leaving: Vec<(ProcessorId, Signal)>,
    /// For each link, and past the last for signals without a link.
    carried: Vec<LinkCounts>,
    /// The same: the octets of payloads that were not lost.
    octets: Vec<u64>,
}

impl<'a> SimulatedLinks<'a> {
    pub fn new(system: &'a System, here: ProcessorId, journeys: Option<Journeys<'a>>) -> Self {
        let host = |processor: ProcessorId| system.processor(processor).host;
        let link = |there: ProcessorId| system.link(host(here), host(there)).unwrap_or(system.links.len());
        let mut simulated = SimulatedLinks {
            system,
            here,
            ways: Vec::new(),
            epoch: 0,
            links: system.processor_ids().map(link).collect(),
            journeys,
            ever_off: system.epochs.iter().any(|epoch| !epoch.environment.enables(host(here))),
            arriving: InFlight::with_capacity(0),
            leaving: Vec::new(),
            carried: vec![LinkCounts::default(); system.links.len() + 1],
            octets: vec![0; system.links.len() + 1],
        };
        simulated.enter(0);
        simulated
    }

    fn enter(&mut self, epoch: usize) {
        self.epoch = epoch;
        let host = |processor: ProcessorId| self.system.processor(processor).host;
        let way = |there| self.system.link_setting(epoch, host(self.here), host(there));
        self.ways = self.system.processor_ids().map(way).collect();
    }

    /// Moves the sent signals to `into`.
    pub fn take_sent(&mut self, into: &mut Vec<(ProcessorId, Signal)>) {
        into.append(&mut self.leaving);
    }

    /// A signal that another end has sent; it is lost if too many are in transit.
    pub fn arrives(&mut self, signal: Signal) {
        if !self.arriving.push(signal, ()) {
            self.carried_from(&signal).lost += 1;
        }
    }

    /// The counts of a link so far, and the octets of payloads that were not lost.
    pub fn carried(&self, link: usize) -> (LinkCounts, u64) {
        (self.carried[link], self.octets[link])
    }

    /// Its counts after the simulation.
    pub fn close(mut self) -> Vec<LinkCounts> {
        while let Some((signal, ())) = self.arriving.pop(Instant::NEVER) {
            self.carried_from(&signal).in_flight += 1;
        }
        self.carried
    }

    /// Whether the host is off.
    pub fn is_off(&self, at: Instant) -> bool {
        let host = self.system.processor(self.here).host;
        self.ever_off && !self.system.epochs[self.system.epoch_at(at)].environment.enables(host)
    }

    fn carried_from(&mut self, signal: &Signal) -> &mut LinkCounts {
        &mut self.carried[self.links[self.system.operation(signal.from).on.index()]]
    }
}

impl std::fmt::Debug for SimulatedLinks<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").field("here", &self.here).field("carried", &self.carried).finish_non_exhaustive()
    }
}

impl CompletionTransport for SimulatedLinks<'_> {
    type Data = ();

    fn send(&mut self, to: ProcessorId, mut signal: Signal, _: ()) {
        while self.system.epochs.get(self.epoch + 1).is_some_and(|next| next.at <= signal.due) {
            self.enter(self.epoch + 1);
        }
        let LinkSetting { delay, loss_ppm } = self.ways[to.index()];
        let recorded = self.journeys.and_then(|journeys| journeys(&signal));
        let carried = &mut self.carried[self.links[to.index()]];
        carried.sent += 1;
        carried.recorded += u64::from(recorded.is_some());
        let Signal { to: operation, position, number, .. } = signal;
        let journey = recorded.unwrap_or_else(|| match self.system.draw_loss(loss_ppm, operation, position, number) {
            true => Journey::Lost,
            false => Journey::Delay(self.system.draw_delay(delay, operation, position, number)),
        });
        signal.due = match journey {
            Journey::Lost => {
                carried.lost += 1;
                return;
            }
            Journey::Delay(span) => signal.due.saturating_add(span),
            Journey::Until(arrival) => signal.due.max(arrival),
        };
        self.octets[self.links[to.index()]] += u64::from(self.system.operation(signal.from).payload);
        self.leaving.push((to, signal));
    }

    #[inline]
    fn next(&self) -> Instant {
        self.arriving.next()
    }

    #[inline]
    fn receive(&mut self, now: Instant) -> Option<(Signal, ())> {
        loop {
            let (signal, ()) = self.arriving.pop(now)?;
            if self.is_off(now) || self.is_off(signal.due) {
                self.carried_from(&signal).refused += 1;
                continue;
            }
            self.carried_from(&signal).received += 1;
            return Some((signal, ()));
        }
    }
}
