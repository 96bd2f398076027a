//! Transport of completions between processors. Within this process, each connected ordered pair has a single-producer
//! ring: its producer is used under the source's lock, its consumer under the target's. Links between hosts have the
//! same delays as in a simulation.
//!
//! If a node runs one host of several, each pair of a processor and another host has two rings: one for departing
//! completions ([`OutgoingCompletions`](crate::OutgoingCompletions)), one for arriving ones
//! ([`IncomingCompletions`](crate::IncomingCompletions)).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_dispatch::transport::IN_FLIGHT;
use hyoshi_dispatch::{CompletionTransport, InFlight};
use hyoshi_model::{HostId, Instant, ProcessorId, Span};
use hyoshi_trace::Signal;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::common::CommonState;
use crate::payload::Payload;

/// The capacity of a link, in completions.
pub(crate) const LINK: usize = 1024;

/// The payload of a completion.
pub(crate) type Data = Option<Arc<Payload>>;
/// The producer of a ring.
pub(crate) type Sender = Producer<(Signal, Data)>;
/// The consumer of a ring.
pub(crate) type Receiver = Consumer<(Signal, Data)>;

/// The links of one processor.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    common: Arc<CommonState>,
    /// By target processor: the index of its ring in `outgoing`, and the delay of a completion.
    to: Vec<Option<(usize, (Span, Span))>>,
    outgoing: Vec<Sender>,
    incoming: Vec<Receiver>,
    arriving: InFlight<Data>,
}

/// The ends of rings to and from other hosts.
#[derive(Debug, Default)]
pub(crate) struct RemoteRings {
    /// Departing completions, by target host.
    pub departures: Vec<(HostId, Receiver)>,
    /// Arriving completions for a processor, by source host.
    pub arrivals: Vec<(HostId, ProcessorId, Sender)>,
}

/// Creates the links for every pair of processors where one triggers the other. Returns the ends for each processor and
/// for other hosts.
pub(crate) fn connect(common: &Arc<CommonState>) -> (Vec<LinkEnd>, RemoteRings) {
    let system = &common.system;
    let end = |_| LinkEnd {
        common: common.clone(),
        to: vec![None; system.processors.len()],
        outgoing: Vec::new(),
        incoming: Vec::new(),
        arriving: InFlight::with_capacity(0),
    };
    let mut ends: Vec<LinkEnd> = system.processor_ids().map(end).collect();
    let mut remote = RemoteRings::default();
    // Rings to other hosts: from a processor to a host, and from a host to a processor.
    let (mut leaving, mut coming) = (Vec::new(), Vec::new());
    let host = |processor: ProcessorId| system.processor(processor).host;
    for to in &system.operations {
        for from in to.trigger.predecessors().iter().map(|from| system.operation(*from)) {
            let (source, target) = (from.on, to.on);
            match (common.runs(source), common.runs(target)) {
                _ if source == target => {}
                (true, _) if ends[source.index()].to[target.index()].is_some() => {}
                (true, true) => {
                    let (producer, consumer) = RingBuffer::new(LINK);
                    let delay = system.delay(host(source), host(target));
                    ends[source.index()].add_outgoing(target, producer, delay);
                    ends[target.index()].add_incoming(consumer);
                }
                (true, false) => {
                    let way = (source, host(target));
                    let known = leaving.iter().find(|(known, _)| *known == way).map(|(_, ring)| *ring);
                    if let Some(ring) = known {
                        ends[source.index()].to[target.index()] = Some((ring, Default::default()));
                        continue;
                    }
                    let (producer, consumer) = RingBuffer::new(LINK);
                    leaving.push((way, ends[source.index()].outgoing.len()));
                    ends[source.index()].add_outgoing(target, producer, Default::default());
                    remote.departures.push((host(target), consumer));
                }
                (false, true) => {
                    let way = (host(source), target);
                    if !coming.contains(&way) {
                        let (producer, consumer) = RingBuffer::new(LINK);
                        coming.push(way);
                        ends[target.index()].add_incoming(consumer);
                        remote.arrivals.push((way.0, target, producer));
                    }
                }
                (false, false) => {}
            }
        }
    }
    (ends, remote)
}

impl LinkEnd {
    fn add_outgoing(&mut self, to: ProcessorId, ring: Sender, delay: (Span, Span)) {
        self.to[to.index()] = Some((self.outgoing.len(), delay));
        self.outgoing.push(ring);
    }

    fn add_incoming(&mut self, ring: Receiver) {
        if self.incoming.is_empty() {
            self.arriving = InFlight::with_capacity(IN_FLIGHT);
        }
        self.incoming.push(ring);
    }

    fn lost(&self) {
        self.common.lost_signals.fetch_add(1, Ordering::Relaxed);
    }
}

impl CompletionTransport for LinkEnd {
    type Data = Data;

    fn send(&mut self, to: ProcessorId, mut signal: Signal, data: Data) {
        let Some((ring, delay)) = self.to[to.index()] else { return self.lost() };
        signal.due += self.common.system.draw_delay(delay, signal.to, signal.position, signal.number);
        if self.outgoing[ring].push((signal, data)).is_err() {
            self.lost();
        }
    }

    #[inline]
    fn next(&self) -> Instant {
        self.arriving.next()
    }

    fn receive(&mut self, now: Instant) -> Option<(Signal, Data)> {
        for link in 0..self.incoming.len() {
            while let Ok((signal, data)) = self.incoming[link].pop() {
                if !self.arriving.push(signal, data) {
                    self.lost();
                }
            }
        }
        self.arriving.pop(now)
    }
}
