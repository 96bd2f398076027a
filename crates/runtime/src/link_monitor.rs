//! The measured conditions of the links to other hosts: loss, throughput and delay between two readings of their counts.

use std::fmt;
use std::sync::{Arc, OnceLock};

use hyoshi_model::{Dscp, HostId, Link, LinkMeasure, LinkQuantity, Span};

use crate::common::CommonState;
use crate::condition_sampler::Sampled;
use crate::region_actions::SettingRefusal;

/// What the nodes of two hosts have counted of their link so far, in both directions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReading {
    /// When, in nanoseconds: on the same clock in all readings.
    pub at: u64,
    /// Sent segments and dropped completions.
    pub sent: u64,
    /// The lost part of them.
    pub lost: u64,
    /// Transported octets.
    pub octets: u64,
    /// Half of the last round trip.
    pub delay: Span,
}

/// The connections of a node to the nodes of other hosts, as contracts use them.
pub trait LinkAccess: Send + Sync {
    /// The counts of the link to a host; `None` while its node is not connected.
    fn counts(&self, host: HostId) -> Option<LinkReading>;

    /// Completions to a host that are not critical have this class from now on, or their own one.
    ///
    /// # Errors
    ///
    /// If no node is there, or the kernel refuses the class.
    fn set_dscp(&self, host: HostId, dscp: Option<Dscp>) -> Result<(), SettingRefusal>;
}

/// Where the node of a host puts its [`LinkAccess`]. Without one, the hosts run in one process. Clones share it.
#[derive(Clone, Default)]
pub struct LinkAccessSlot(Arc<OnceLock<Box<dyn LinkAccess>>>);

impl fmt::Debug for LinkAccessSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LinkAccessSlot").field(&self.0.get().is_some()).finish()
    }
}

impl LinkAccessSlot {
    /// Only the first call counts.
    pub fn set(&self, access: Box<dyn LinkAccess>) {
        let _ = self.0.set(access);
    }

    pub(crate) fn get(&self) -> Option<&dyn LinkAccess> {
        self.0.get().map(|access| &**access)
    }
}

/// The links that end here.
#[derive(Debug)]
pub(crate) struct LinkMonitors {
    access: LinkAccessSlot,
    /// By link of the system: the host at its other end, and the last two readings. `None` if it does not end here.
    links: Vec<Option<LinkMonitor>>,
}

#[derive(Debug)]
struct LinkMonitor {
    to: HostId,
    last: Option<LinkReading>,
    before: Option<LinkReading>,
    /// The last reading is new.
    is_new: bool,
}

impl LinkMonitor {
    fn read(&mut self, counts: Option<LinkReading>) {
        // The other node reports its counts with each exchange; if it has started again, they begin at 0.
        // Lost ones become fewer if an overtaken completion arrives.
        let follows = |last: LinkReading, now: LinkReading| now.sent >= last.sent && now.octets >= last.octets;
        self.is_new = counts.map(|now| now.at) != self.last.map(|last| last.at);
        if self.is_new {
            self.before = self.last.take().filter(|last| counts.is_some_and(|now| follows(*last, now)));
            self.last = counts;
        }
    }

    fn sampled(&self, quantity: LinkQuantity) -> Sampled {
        let (Some(now), is_new) = (self.last, self.is_new) else { return Sampled::Failed };
        let (true, Some(before)) = (is_new, self.before) else { return Sampled::Nothing };
        let (sent, octets, nanos) = (now.sent - before.sent, now.octets - before.octets, now.at - before.at);
        match quantity {
            LinkQuantity::Delay => Sampled::Value(now.delay.as_secs_f64()),
            // A Unix socket counts nothing, and each exchange of the nodes has some octets.
            LinkQuantity::Loss | LinkQuantity::Throughput if now.octets == 0 => Sampled::Nothing,
            LinkQuantity::Loss if sent == 0 => Sampled::Nothing,
            LinkQuantity::Loss => Sampled::Value((now.lost.saturating_sub(before.lost) as f64 / sent as f64).min(1.0)),
            LinkQuantity::Throughput => Sampled::Value(8.0 * octets as f64 / (nanos as f64 / 1e9)),
        }
    }
}

impl LinkMonitors {
    pub fn new(common: &CommonState) -> LinkMonitors {
        let monitor = |link: &Link| {
            let to = common.other_end(link)?;
            Some(LinkMonitor { to, last: None, before: None, is_new: false })
        };
        LinkMonitors { access: common.link_access.clone(), links: common.system.links.iter().map(monitor).collect() }
    }

    /// Reads the counts of all links here.
    pub fn read(&mut self) {
        for one in self.links.iter_mut().flatten() {
            one.read(self.access.get().and_then(|access| access.counts(one.to)));
        }
    }

    /// What the last two readings show.
    pub fn sampled(&self, measure: LinkMeasure) -> Sampled {
        self.links[usize::from(measure.link)].as_ref().map_or(Sampled::Failed, |one| one.sampled(measure.quantity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_throughput_are_those_between_two_readings_of_one_connection() {
        let mut monitor = LinkMonitor { to: HostId(1), last: None, before: None, is_new: false };
        let delay = Span::from_millis(3);
        let counts =
            |at: u64, sent, lost, octets| Some(LinkReading { at: at * 1_000_000_000, sent, lost, octets, delay });
        let all = [LinkQuantity::Loss, LinkQuantity::Throughput, LinkQuantity::Delay];
        let values = |monitor: &LinkMonitor| all.map(|one| monitor.sampled(one));
        assert_eq!(values(&monitor), [Sampled::Failed; 3]);
        for (reading, expected) in [
            (counts(1, 50, 5, 1000), [Sampled::Nothing; 3]),
            (counts(2, 150, 10, 2000), [0.05, 8000.0, 0.003].map(Sampled::Value)),
            // The same reading again.
            (counts(2, 150, 10, 2000), [Sampled::Nothing; 3]),
            (counts(3, 150, 10, 2000), [Sampled::Nothing, Sampled::Value(0.0), Sampled::Value(0.003)]),
            // It is lost, and returns after a restart of the other node.
            (None, [Sampled::Failed; 3]),
            (counts(9, 5, 0, 10), [Sampled::Nothing; 3]),
            (counts(10, 7, 2, 10), [Sampled::Value(1.0), Sampled::Value(0.0), Sampled::Value(0.003)]),
            (counts(11, 1, 0, 1), [Sampled::Nothing; 3]),
            (counts(12, 11, 0, 1), [Sampled::Value(0.0), Sampled::Value(0.0), Sampled::Value(0.003)]),
        ] {
            monitor.read(reading);
            assert_eq!(values(&monitor), expected, "{reading:?}");
        }
    }
}
