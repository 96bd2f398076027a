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
use crate::replica::Flush;

/// The capacity of a link, in completions.
pub(crate) const LINK: usize = 1024;

/// The payload of a completion.
pub(crate) type Data = Option<Arc<Payload>>;

/// The content of a ring. An output that is flushed at completion precedes the signals of that completion.
#[derive(Debug)]
pub(crate) enum LinkItem {
    Completion(Signal, Data),
    /// Only for hosts that run elsewhere.
    Flush(Flush),
}

/// The producer of a ring.
pub(crate) type Sender = Producer<LinkItem>;
/// The consumer of a ring.
pub(crate) type Receiver = Consumer<LinkItem>;

/// The links of one processor.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    common: Arc<CommonState>,
    /// By target processor: the index of its ring in `outgoing`, and the delay of a completion.
    to: Vec<Option<(usize, (Span, Span))>>,
    outgoing: Vec<Sender>,
    incoming: Vec<Receiver>,
    arriving: InFlight<Data>,
    /// To the hosts with replicas of outputs of this processor's operations.
    replicas: Vec<ReplicaRoute>,
}

/// The way to the replicas on a host.
#[derive(Clone, Copy, Debug)]
struct ReplicaRoute {
    to: HostId,
    /// If the host runs elsewhere: the index of its ring in `outgoing`, and a processor there.
    ring: Option<(usize, ProcessorId)>,
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
        replicas: Vec::new(),
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
    for from in system.operations.iter().filter(|from| common.runs(from.on)) {
        for to in from.replication.iter().flat_map(|replication| &replication.to).copied() {
            let end = &mut ends[from.on.index()];
            if end.replicas.iter().any(|route| route.to == to) {
                continue;
            }
            let mut there = system.processor_ids().filter(|id| host(*id) == to);
            let ring = match there.next() {
                Some(processor) if !common.runs(processor) => {
                    let known = leaving.iter().find(|(known, _)| *known == (from.on, to)).map(|(_, ring)| *ring);
                    let ring = known.unwrap_or_else(|| {
                        let (producer, consumer) = RingBuffer::new(LINK);
                        end.outgoing.push(producer);
                        remote.departures.push((to, consumer));
                        end.outgoing.len() - 1
                    });
                    Some((ring, processor))
                }
                // On a host without a processor no operation reads it.
                None if !common.runs_host(to) => continue,
                _ => None,
            };
            end.replicas.push(ReplicaRoute { to, ring });
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

    /// Sends an output to its replica on a host. Returns a processor of that host, if its sender has to be woken.
    pub fn flush(&mut self, to: HostId, flush: Flush, now: Instant) -> Option<ProcessorId> {
        let route = self.replicas.iter().find(|route| route.to == to)?;
        let Some((ring, processor)) = route.ring else {
            if !self.common.flush_here(flush, to, now) {
                self.lost();
            }
            return None;
        };
        if self.outgoing[ring].push(LinkItem::Flush(flush)).is_err() {
            self.lost();
        }
        Some(processor)
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
        if self.outgoing[ring].push(LinkItem::Completion(signal, data)).is_err() {
            self.lost();
        }
    }

    #[inline]
    fn next(&self) -> Instant {
        self.arriving.next()
    }

    fn receive(&mut self, now: Instant) -> Option<(Signal, Data)> {
        for link in 0..self.incoming.len() {
            while let Ok(item) = self.incoming[link].pop() {
                let arrives = match item {
                    LinkItem::Completion(signal, data) => self.arriving.push(signal, data),
                    LinkItem::Flush(_) => false,
                };
                if !arrives {
                    self.lost();
                }
            }
        }
        self.arriving.pop(now)
    }
}
