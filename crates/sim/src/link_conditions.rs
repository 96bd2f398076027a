//! The measured conditions of links in virtual time: contracts watch `link.A-B.loss`, and epochs change it.
//!
//! As in a run, the nodes of both hosts exchange a message and its answer four times a second. Exchanges draw loss and
//! delay as completions do, so there are samples without completions.

use hyoshi_model::{Instant, LinkMeasure, LinkQuantity, OperationId, Span, System};
use hyoshi_trace::Probe;

use crate::cpu::SimulatedCpu;
use crate::links::LinkCounts;
use crate::measured::SampledCondition;

/// The time between two exchanges of a node.
const EXCHANGE: Span = Span::from_millis(250);

/// The watched links.
#[derive(Debug)]
pub(crate) struct LinkConditions<'a> {
    system: &'a System,
    watched: Vec<WatchedLink>,
}

#[derive(Debug)]
struct WatchedLink {
    link: usize,
    conditions: Vec<(LinkQuantity, SampledCondition)>,
    /// The number of the next exchange.
    exchange: u64,
    /// The counts at the last sample; `None` if a host was off.
    last: Option<(Instant, LinkTotals)>,
    /// Exchanged messages so far.
    messages: LinkTotals,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkTotals {
    sent: u64,
    lost: u64,
    octets: u64,
}

impl<'a> LinkConditions<'a> {
    pub fn new(system: &'a System, measured: Vec<(LinkMeasure, SampledCondition)>) -> Self {
        let mut watched: Vec<WatchedLink> = Vec::new();
        for (LinkMeasure { link, quantity }, condition) in measured {
            let link = usize::from(link);
            let known = watched.iter().position(|one| one.link == link).unwrap_or_else(|| {
                let messages = LinkTotals::default();
                watched.push(WatchedLink { link, conditions: Vec::new(), exchange: 1, last: None, messages });
                watched.len() - 1
            });
            watched[known].conditions.push((quantity, condition));
        }
        LinkConditions { system, watched }
    }

    /// Samples the conditions of all links.
    pub fn sample<P: Probe>(&mut self, cpus: &mut [SimulatedCpu<'_, P>], now: Instant) {
        self.watched.iter_mut().for_each(|one| one.sample(self.system, cpus, now));
    }
}

impl WatchedLink {
    fn sample<P: Probe>(&mut self, system: &System, cpus: &mut [SimulatedCpu<'_, P>], now: Instant) {
        let delay = self.exchange_until(system, now);
        let (one, other) = system.links[self.link].between;
        let environment = &system.epochs[system.epoch_at(now)].environment;
        if !environment.enables(one) || !environment.enables(other) {
            self.last = None;
            return;
        }
        let mut totals = self.messages;
        for (LinkCounts { sent, lost, .. }, octets) in cpus.iter().map(|cpu| cpu.links.carried(self.link)) {
            totals.sent += sent;
            totals.lost += lost;
            totals.octets += octets;
        }
        let Some((at, last)) = self.last.replace((now, totals)) else { return };
        let (sent, lost) = (totals.sent - last.sent, totals.lost - last.lost);
        let seconds = now.since(at).as_secs_f64();
        for (quantity, condition) in &self.conditions {
            let value = match quantity {
                LinkQuantity::Loss if sent == 0 => continue,
                LinkQuantity::Loss => (lost as f64 / sent as f64).min(1.0),
                LinkQuantity::Throughput => 8.0 * (totals.octets - last.octets) as f64 / seconds,
                LinkQuantity::Delay => match delay {
                    Some(delay) => delay.as_secs_f64(),
                    None => continue,
                },
            };
            condition.pass(cpus, now, value);
        }
    }

    /// Draws the exchanges until now. Returns half of the last round trip, if none of its messages was lost.
    fn exchange_until(&mut self, system: &System, now: Instant) -> Option<Span> {
        let mut delay = None;
        loop {
            let at = Instant::from_nanos(self.exchange.saturating_mul(EXCHANGE.as_nanos()));
            if at > now {
                return delay;
            }
            let setting = system.epochs[system.epoch_at(at)].environment.link(self.link, &system.links[self.link]);
            // No operation has this number: each message has its own draws.
            let message = OperationId(u32::MAX - self.link as u32);
            // Both nodes send one, with an answer.
            for first in [0, 2] {
                let lost = [first, first + 1]
                    .map(|position| system.draw_loss(setting.loss_ppm, message, position, self.exchange));
                self.messages.sent += 2;
                self.messages.lost += lost.map(u64::from).iter().sum::<u64>();
                if lost == [false; 2] {
                    let way = |position| system.draw_delay(setting.delay, message, position, self.exchange);
                    delay = Some(Span::from_nanos((way(first).as_nanos() + way(first + 1).as_nanos()) / 2));
                }
            }
            self.exchange += 1;
        }
    }
}
