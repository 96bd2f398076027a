//! The ways of completions between the hosts of a merged recording: when one sent it, when the other received it.
//!
//! A recording has the events of each processor in order, but those of several processors in blocks. The sendings are
//! therefore read by a reader for each sending processor, up to the receipt that is looked at.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span};
use hyoshi_replay::blame::Crossing;
use hyoshi_trace::merge::QUANTUM;
use hyoshi_trace::{CpuEvent, DispatchDecision, Input, Signal, TraceEvent};

use super::super::CliError;
use super::super::recorded::{ReadingEnd, Recorded, cannot_read, reader};

/// The most sendings kept that have not been received; the oldest are dropped.
const MOST_SENT: usize = 1 << 16;

/// The identity of a signal: the triggered operation, the predecessor's position, the release number.
type Key = (OperationId, u16, u64);

/// A clock against that of the reference host.
#[derive(Clone, Copy, Default)]
struct Lead {
    /// How far the reference's clock is ahead, in ns.
    ahead: i64,
    /// The error bound of that; `None` for the reference itself.
    error: Option<Span>,
}

/// Finds the sending of each signal between hosts.
struct Network<'a> {
    recorded: &'a Recorded,
    /// The host whose clock is the reference.
    reference: HostId,
    /// The receivers' clocks, by processor.
    clocks: Vec<Lead>,
    senders: HashMap<ProcessorId, SendingProcessor<'a>>,
    /// When signals were sent, on the reference's clock.
    sent: HashMap<Key, (Instant, Option<Span>)>,
    order: VecDeque<Key>,
}

/// Reads the next event of a processor.
type NextEvent<'a> = Box<dyn FnMut() -> Result<Option<(Instant, TraceEvent)>, CliError> + 'a>;

/// The events of a processor that sends to other hosts.
struct SendingProcessor<'a> {
    events: NextEvent<'a>,
    lead: Lead,
    /// The time of its last event, on the reference's clock.
    read_until: Instant,
    over: bool,
}

/// Hands every event to `each`, as [`Recorded::events`] does; a signal with its way.
pub(super) fn events(
    recorded: &Recorded,
    mut each: impl FnMut(ProcessorId, Instant, TraceEvent, Option<SignalWay>) -> ControlFlow<()>,
) -> Result<ReadingEnd, CliError> {
    let mut left = events_before_damage(recorded, &mut each)?;
    left.damaged.take().map_or(Ok(left), Err)
}

/// As [`events`]; if the recording is damaged, the events before the damage.
pub(in crate::cli) fn events_before_damage(
    recorded: &Recorded,
    mut each: impl FnMut(ProcessorId, Instant, TraceEvent, Option<SignalWay>) -> ControlFlow<()>,
) -> Result<ReadingEnd, CliError> {
    let (mut network, mut failed) = (Network::of(recorded), None);
    let left = recorded.events_before_damage(|processor, at, event| match network.event(processor, at, &event) {
        Ok(way) => each(processor, at, event, way),
        Err(failure) => {
            failed = Some(failure);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(left), Err)
}

/// How a signal came to its processor.
pub(in crate::cli) enum SignalWay {
    /// Within one process.
    Link,
    /// Over a network; `None` if the recording does not contain its sending.
    Network(Option<Crossing>),
}

impl<'a> Network<'a> {
    fn of(recorded: &'a Recorded) -> Network<'a> {
        Network {
            recorded,
            reference: recorded.clock(),
            clocks: vec![Lead::default(); recorded.system.processors.len()],
            senders: HashMap::new(),
            sent: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// The next event of the recording. `Some` for a signal.
    fn event(
        &mut self,
        processor: ProcessorId,
        at: Instant,
        event: &TraceEvent,
    ) -> Result<Option<SignalWay>, CliError> {
        match event {
            TraceEvent::Cpu(CpuEvent::Clock { host, offset, error }) if *host == self.reference => {
                if let Some(lead) = self.clocks.get_mut(processor.index()) {
                    *lead = Lead { ahead: *offset, error: Some(*error) };
                }
                Ok(None)
            }
            TraceEvent::Input(Input::Signal(signal) | Input::DropHop(signal)) => {
                self.way(processor, at, signal).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn way(&mut self, processor: ProcessorId, at: Instant, signal: &Signal) -> Result<SignalWay, CliError> {
        let system = &self.recorded.system;
        let from = system.operation(signal.from).on;
        let crosses = system.processor(from).host != system.processor(processor).host;
        if !crosses || self.recorded.header.verb == "sim" {
            return Ok(SignalWay::Link);
        }
        if !self.recorded.header.contains(from) {
            return Ok(SignalWay::Network(None));
        }
        let own = self.clocks.get(processor.index()).copied().unwrap_or_default();
        let received = signal.due.min(at);
        self.read(from, &key(signal), received.by_clock_ahead(own.ahead))?;
        let found = self.sent.remove(&key(signal));
        let measured = own.error.is_some() || self.senders.get(&from).is_some_and(|sender| sender.lead.error.is_some());
        Ok(match found {
            // One process ran all hosts, on one clock.
            _ if !measured => SignalWay::Link,
            None => SignalWay::Network(None),
            Some((sent, error)) => {
                let error =
                    own.error.unwrap_or_default().as_nanos().saturating_add(error.unwrap_or_default().as_nanos());
                let sent = sent.by_clock_ahead(own.ahead.saturating_neg()).min(received);
                SignalWay::Network(Some(Crossing { sent, received, error: Span::from_nanos(error) }))
            }
        })
    }

    /// Reads the sendings of a processor up to `wanted`, at most until its receipt.
    fn read(&mut self, from: ProcessorId, wanted: &Key, received: Instant) -> Result<(), CliError> {
        if !self.senders.contains_key(&from) {
            let sender = SendingProcessor::open(self.recorded, from)?;
            self.senders.insert(from, sender);
        }
        let Some(sender) = self.senders.get_mut(&from) else { return Ok(()) };
        // A merged recording has no receipt before its sending, except for its rounding.
        let until = received.saturating_add(QUANTUM);
        while !self.sent.contains_key(wanted) && !sender.over && sender.read_until <= until {
            let Some((at, event)) = (sender.events)()? else {
                sender.over = true;
                break;
            };
            match event {
                TraceEvent::Cpu(CpuEvent::Clock { host, offset, error }) if host == self.reference => {
                    sender.lead = Lead { ahead: offset, error: Some(error) };
                }
                TraceEvent::Decision(DispatchDecision::Send(signal)) => {
                    if self.order.len() == MOST_SENT
                        && let Some(oldest) = self.order.pop_front()
                    {
                        self.sent.remove(&oldest);
                    }
                    self.order.push_back(key(&signal));
                    self.sent.insert(key(&signal), (at.by_clock_ahead(sender.lead.ahead), sender.lead.error));
                }
                _ => {}
            }
            sender.read_until = at.by_clock_ahead(sender.lead.ahead);
        }
        Ok(())
    }
}

impl<'a> SendingProcessor<'a> {
    fn open(recorded: &'a Recorded, processor: ProcessorId) -> Result<SendingProcessor<'a>, CliError> {
        let mut reader = reader(&recorded.path)?.only(processor);
        let path = &recorded.path;
        let events = move || match reader.next() {
            Some(Ok(entry)) => Ok(Some((entry.now, entry.event))),
            Some(Err(error)) => Err(cannot_read(path, error)),
            None => Ok(None),
        };
        let (lead, read_until) = (Lead::default(), Instant::ZERO);
        Ok(SendingProcessor { events: Box::new(events), lead, read_until, over: false })
    }
}

fn key(signal: &Signal) -> Key {
    (signal.to, signal.position, signal.number)
}
