//! Samples of a group's processors on other hosts. The host of the group's first processor computes the rates. The
//! other hosts send it their samples.
//!
//! Sampling periods are numbered from instant 0, which all hosts share. A sample counts from half a period before the
//! end of its own period to half a period after it. So each step uses samples of one period, and late ones are dropped.

use std::collections::BTreeMap;

use hyoshi_model::{HostId, Instant, ProcessorId, Span};

use crate::common::CommonState;
use crate::remote::{Rejected, running};

/// The sample of a processor in a group, for the host that computes the group's rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSample {
    /// The processor.
    pub processor: ProcessorId,
    /// The number of the sampling period that has ended; period 1 begins at instant 0.
    pub number: u64,
    /// The utilisation in parts per million of the processor's hard cap; `None` if it was not measured.
    pub utilisation: Option<u32>,
}

/// Whether a sample still counts, or already. `to_own` converts instants of its host's clock to the own clock.
fn counts(number: u64, period: Span, now: Instant, to_own: impl Fn(u64) -> Instant) -> bool {
    let end = number.checked_mul(period.as_nanos()).map(to_own);
    end.is_some_and(|end| number > 0 && now.as_nanos().abs_diff(end.as_nanos()) <= period.as_nanos() / 2)
}

/// The samples of processors here that leave for one other host.
#[derive(Debug)]
pub(crate) struct DepartingSamples {
    members: Vec<(ProcessorId, Span)>,
    /// The new ones, each processor once.
    latest: Vec<GroupSample>,
}

impl DepartingSamples {
    /// `None` if that host computes no rates of processors here.
    pub fn new(common: &CommonState, to: HostId) -> Option<Self> {
        let members: Vec<_> =
            common.system.samples_between(common.here()?, to).map(|one| (one.processor, one.period)).collect();
        let latest = Vec::with_capacity(members.len());
        (!members.is_empty()).then_some(DepartingSamples { members, latest })
    }

    /// The samples since the last call that still count.
    pub fn take(&mut self, common: &CommonState) -> &[GroupSample] {
        self.latest.clear();
        for (processor, period) in &self.members {
            let new = common
                .groups
                .take(*processor)
                .filter(|one| counts(one.number, *period, common.now(), Instant::from_nanos));
            self.latest.extend(new);
        }
        &self.latest
    }
}

/// The samples that arrive from one other host, for the rates of groups that this host computes.
#[derive(Debug)]
pub(crate) struct ArrivingSamples {
    members: BTreeMap<ProcessorId, RemoteMember>,
}

#[derive(Debug)]
struct RemoteMember {
    period: Span,
    /// The number of its last sample.
    last: u64,
}

impl ArrivingSamples {
    pub fn new(common: &CommonState, from: HostId) -> Self {
        let here = common.here().into_iter();
        let loops = here.flat_map(|here| common.system.samples_between(from, here));
        let member = |(processor, period)| (processor, RemoteMember { period, last: 0 });
        ArrivingSamples { members: loops.map(|one| member((one.processor, one.period))).collect() }
    }

    /// That host has started anew. Its clock may have changed.
    pub fn restart(&mut self) {
        self.members.values_mut().for_each(|member| member.last = 0);
    }

    /// True if that host sends none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Accepts samples. If one is wrong, it accepts the other ones. It rejects all if there are too many.
    pub fn collect(
        &mut self,
        common: &CommonState,
        samples: &[GroupSample],
        to_own: impl Fn(u64) -> Instant,
    ) -> Result<(), Rejected> {
        if samples.len() > self.members.len() {
            return Err(Rejected::Foreign);
        }
        // Before the run and after it, no step uses them.
        let Ok(now) = running(common) else { return Ok(()) };
        let mut result = Ok(());
        for sample in samples {
            let Some(member) = self.members.get_mut(&sample.processor) else {
                result = Err(Rejected::Foreign);
                continue;
            };
            let is_new = sample.number > member.last && counts(sample.number, member.period, now, &to_own);
            if !is_new || sample.utilisation.is_some_and(|ppm| ppm > MOST_UTILISATION) {
                result = Err(Rejected::Implausible);
                continue;
            }
            member.last = sample.number;
            common.groups.offer(*sample);
        }
        result
    }
}

/// The greatest utilisation of a sample, in parts per million.
pub(crate) const MOST_UTILISATION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyoshi_os::MonotonicClock;

    use super::*;

    const HOSTS: &str = "name = 'hosts'\n[host.near]\n[host.far]\n\
        [processor.near]\nhost = 'near'\n[processor.far]\nhost = 'far'\n[processor.alone]\nhost = 'far'\n\
        [feedback.near]\nalgorithm = 'EUCON'\nutilisation = '50%'\nperiod = '1h'\n\
        [feedback.far]\nalgorithm = 'EUCON'\nutilisation = '50%'\nperiod = '1h'\n\
        [operation.poll]\non = 'near'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
        [operation.serve]\non = 'far'\nafter = { all = ['poll'] }\nwcet = '1ms'\n";
    const NEAR: HostId = HostId(0);
    const FAR: HostId = HostId(1);
    const HOUR: Span = Span::from_secs(3_600);

    /// A host on which the run began this long ago.
    fn running_for(host: HostId, since: Span) -> CommonState {
        let system = Arc::new(hyoshi_model::read(HOSTS, "hosts.toml", None).unwrap().system);
        let common = CommonState::new(system, Some(host), Instant::NEVER);
        let now = hyoshi_os::Clock::now(&MonotonicClock::from_origin(0)).as_nanos() as i64;
        common.begin(MonotonicClock::from_origin(now - since.as_nanos() as i64));
        common
    }

    fn sample(processor: u32, number: u64, utilisation: Option<u32>) -> GroupSample {
        GroupSample { processor: ProcessorId(processor), number, utilisation }
    }

    #[test]
    fn a_sample_counts_for_half_a_period_around_its_end() {
        let period = Span::from_millis(100);
        let at = |number, ms: u64| counts(number, period, Instant::from_nanos(ms * 1_000_000), Instant::from_nanos);
        assert_eq!([249, 250, 300, 350, 351].map(|ms| at(3, ms)), [false, true, true, true, false]);
        assert!(!at(0, 10) && !at(u64::MAX, 300));
    }

    #[test]
    fn samples_of_a_host_leave_once_and_only_while_they_count() {
        let common = running_for(FAR, HOUR * 3);
        assert!(DepartingSamples::new(&running_for(NEAR, HOUR), FAR).is_none());
        let mut departing = DepartingSamples::new(&common, NEAR).unwrap();
        for (number, utilisation) in [(3, None), (3, Some(700_000))] {
            common.groups.offer(sample(1, number, utilisation));
            assert_eq!(departing.take(&common), [sample(1, number, utilisation)]);
        }
        assert!(departing.take(&common).is_empty());
        common.groups.offer(sample(1, 2, Some(1)));
        common.groups.offer(sample(2, 3, Some(1)));
        assert!(departing.take(&common).is_empty(), "it is old, and the other one is in no group");
    }

    #[test]
    fn a_host_sends_each_sample_of_its_own_processors_once() {
        let common = running_for(NEAR, HOUR * 3);
        let mut arriving = ArrivingSamples::new(&common, FAR);
        let mut collect = |samples: &[GroupSample]| arriving.collect(&common, samples, Instant::from_nanos);
        let taken = || common.groups.take(ProcessorId(1));
        assert_eq!(collect(&[sample(1, 3, Some(700_000))]), Ok(()));
        assert_eq!(taken(), Some(sample(1, 3, Some(700_000))));
        let [foreign, implausible] = [Err(Rejected::Foreign), Err(Rejected::Implausible)];
        assert_eq!(collect(&[sample(1, 3, Some(1))]), implausible, "again");
        for number in [0, 1, 2, 4, 5, u64::MAX] {
            assert_eq!(collect(&[sample(1, number, Some(1))]), implausible, "{number}");
        }
        for processor in [0, 2, 3, u32::MAX] {
            assert_eq!(collect(&[sample(processor, 3, Some(1))]), foreign, "{processor}");
        }
        assert_eq!(collect(&[sample(1, 3, None), sample(1, 3, None)]), foreign, "more than there are");
        assert_eq!(taken(), None);
        assert!(ArrivingSamples::new(&running_for(FAR, HOUR), NEAR).is_empty());
        common.stopping.store(true, std::sync::atomic::Ordering::Release);
        assert_eq!(collect(&[sample(1, 4, Some(1))]), Ok(()), "the run is over");
        assert_eq!(taken(), None);
    }

    #[test]
    fn a_utilisation_is_at_most_the_whole_cpu() {
        let common = running_for(NEAR, HOUR * 3);
        let mut arriving = ArrivingSamples::new(&common, FAR);
        let mut collect = |ppm| arriving.collect(&common, &[sample(1, 3, Some(ppm))], Instant::from_nanos);
        assert_eq!(collect(1_000_001), Err(Rejected::Implausible));
        assert_eq!(collect(1_000_000), Ok(()), "the number is still new");
    }

    #[test]
    fn the_numbers_of_a_host_are_of_its_own_clock() {
        let common = running_for(NEAR, HOUR * 3);
        let mut arriving = ArrivingSamples::new(&common, FAR);
        // That machine was suspended for two hours.
        let late = |at: u64| Instant::from_nanos(at + 2 * HOUR.as_nanos());
        assert_eq!(arriving.collect(&common, &[sample(1, 3, Some(1))], late), Err(Rejected::Implausible));
        assert_eq!(arriving.collect(&common, &[sample(1, 1, Some(1))], late), Ok(()));
        assert_eq!(arriving.collect(&common, &[sample(1, 1, Some(1))], late), Err(Rejected::Implausible), "again");
        arriving.restart();
        assert_eq!(arriving.collect(&common, &[sample(1, 1, Some(1))], late), Ok(()));
    }
}
