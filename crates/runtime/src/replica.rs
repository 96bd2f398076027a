//! The latest output of an operation, for the operations that read it. Operations on its own host read it after its
//! completion, operations on other hosts after the arrival of its flush.

use std::collections::BTreeMap;

use hyoshi_model::{HostId, Instant, OperationId, System};
use hyoshi_os::PiMutex;

use crate::common::CommonState;
use crate::link::Data;

/// The output of a job.
#[derive(Clone, Debug)]
pub(crate) struct JobOutput {
    /// The nominal release of the job.
    pub release: Instant,
    pub number: u64,
    pub leg: u16,
    /// `None` if the job emitted nothing.
    pub payload: Data,
}

impl JobOutput {
    /// The order of outputs: a later one replaces an earlier one, in any order of arrival.
    fn order(&self) -> (Instant, u64, u16) {
        (self.release, self.number, self.leg)
    }

    pub fn bytes(&self) -> &[u8] {
        self.payload.as_deref().map_or(&[], |payload| payload.bytes())
    }
}

/// The maximum number of outputs of an operation in transit to one replica.
const IN_TRANSIT: u64 = 1024;

/// The latest output, and outputs in transit. Only `new` allocates.
#[derive(Debug, Default)]
pub(crate) struct LatestOutput {
    current: Option<JobOutput>,
    /// Each with its time of arrival.
    in_transit: Vec<(Instant, JobOutput)>,
    room: usize,
}

impl LatestOutput {
    /// With room for this many outputs in transit.
    pub fn new(room: usize) -> Self {
        LatestOutput { current: None, in_transit: Vec::with_capacity(room), room }
    }

    /// Stores an output that is present now.
    pub fn set(&mut self, output: JobOutput) {
        self.current = Some(output);
    }

    /// Stores a flushed output that arrives at `due`. False if there is no room: it is lost.
    pub fn flush(&mut self, output: JobOutput, due: Instant, now: Instant) -> bool {
        self.receive(now);
        let fits = self.in_transit.len() < self.room;
        if fits {
            self.in_transit.push((due, output));
        }
        fits
    }

    /// The latest output that has arrived at `now`.
    pub fn at(&mut self, now: Instant) -> Option<&JobOutput> {
        self.receive(now);
        self.current.as_ref()
    }

    fn receive(&mut self, now: Instant) {
        let mut position = 0;
        while let Some((due, output)) = self.in_transit.get(position) {
            if *due > now {
                position += 1;
                continue;
            }
            let newer = self.current.as_ref().is_none_or(|current| current.order() < output.order());
            let (_, output) = self.in_transit.swap_remove(position);
            if newer {
                self.current = Some(output);
            }
        }
    }
}

/// The latest outputs of all operations.
#[derive(Debug)]
pub(crate) struct LatestOutputs {
    /// By operation, if an operation reads it.
    own: Vec<Option<PiMutex<LatestOutput>>>,
    /// The replicas on the hosts that this process runs.
    replicas: BTreeMap<(OperationId, HostId), PiMutex<LatestOutput>>,
}

impl LatestOutputs {
    /// For the hosts for which `runs` is true.
    pub fn new(system: &System, runs: impl Fn(HostId) -> bool) -> Self {
        let read = |id: OperationId| system.operations.iter().any(|operation| operation.reads.contains(&id));
        let own = system.operation_ids().map(|id| read(id).then(PiMutex::default)).collect();
        let mut replicas = BTreeMap::new();
        for (id, operation) in system.operation_ids().zip(&system.operations) {
            let to = operation.replication.iter().flat_map(|replication| &replication.to);
            for host in to.copied().filter(|host| runs(*host)) {
                replicas.insert((id, host), PiMutex::new(LatestOutput::new(in_transit(system, id, host))));
            }
        }
        LatestOutputs { own, replicas }
    }

    /// The outputs of an operation for readers on its own host, if it has readers.
    pub fn own(&self, id: OperationId) -> Option<&PiMutex<LatestOutput>> {
        self.own[id.index()].as_ref()
    }

    /// The replica of an operation's output on a host.
    pub fn replica(&self, id: OperationId, host: HostId) -> Option<&PiMutex<LatestOutput>> {
        self.replicas.get(&(id, host))
    }

    /// The output of `id` that an operation on `host` reads at `now`.
    pub fn read(&self, id: OperationId, host: HostId, now: Instant) -> Option<JobOutput> {
        self.replica(id, host).or(self.own(id))?.lock().at(now).cloned()
    }
}

/// The maximum number of outputs of an operation that wait for their flush, or are on their way to a host.
pub(crate) fn in_transit(system: &System, id: OperationId, host: HostId) -> usize {
    let own = system.processor(system.operation(id).on).host;
    let of_epoch = |epoch: usize| {
        let setting = system.setting(epoch, id);
        let longest = setting.deadline.span().as_nanos().saturating_add(system.delay(own, host).1.as_nanos());
        // Releases in 10^9 s.
        let rate = u128::from(system.release_rates(epoch)[id.index()]);
        let releases = (u128::from(longest) * rate).div_ceil(1_000_000_000_000_000_000) + 2;
        releases.saturating_mul(u128::from(setting.legs)).min(u128::from(IN_TRANSIT)) as u64
    };
    let most = (0..system.epochs.len()).map(of_epoch).max().unwrap_or(0);
    // Requests may arrive at any rate.
    let queued = system.operation(id).queue.most_jobs() as u64;
    (most + queued).min(IN_TRANSIT) as usize
}

/// A departing output.
#[derive(Clone, Debug)]
pub(crate) struct Flush {
    pub operation: OperationId,
    pub output: JobOutput,
    /// When it must be sent.
    pub at: Instant,
}

impl CommonState {
    /// The operations of another host with a replica on the only host that this process runs.
    pub fn replicated_from(&self, from: HostId) -> Vec<OperationId> {
        let system = &self.system;
        let of_host = |id: &OperationId| system.processor(system.operation(*id).on).host == from;
        system.operation_ids().filter(of_host).filter(|id| self.replica_here(*id).is_some()).collect()
    }

    /// The replica of an operation's output on that host.
    pub fn replica_here(&self, id: OperationId) -> Option<&PiMutex<LatestOutput>> {
        self.latest.replica(id, self.here()?)
    }

    /// Copies an output to the replica on a host of this process, with the delay of the file's link. An output that is
    /// flushed at completion arrives no later than the signals of that completion.
    pub fn flush_here(&self, flush: Flush, host: HostId, now: Instant) -> bool {
        let Flush { operation, output, at } = flush;
        let due = at.saturating_add(self.system.flush_delay(operation, host).of(output.number));
        let replica = self.latest.replica(operation, host);
        replica.is_some_and(|replica| replica.lock().flush(output, due, now))
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::{FlushPoint, read};
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn output(number: u64, release: u64) -> JobOutput {
        JobOutput { release: at(release), number, leg: 0, payload: None }
    }

    fn number(latest: &mut LatestOutput, now: u64) -> Option<u64> {
        latest.at(at(now)).map(|output| output.number)
    }

    #[test]
    fn an_output_is_read_when_it_has_arrived_and_an_older_one_does_not_replace_it() {
        let mut latest = LatestOutput::new(3);
        assert_eq!(number(&mut latest, 99), None);
        assert!(latest.flush(output(1, 10), at(40), at(12)));
        assert!(latest.flush(output(2, 20), at(30), at(22)), "it overtakes the first");
        assert_eq!(
            (number(&mut latest, 29), number(&mut latest, 30), number(&mut latest, 40)),
            (None, Some(2), Some(2))
        );
    }

    #[test]
    fn an_output_without_room_is_lost() {
        let mut latest = LatestOutput::new(1);
        assert!(latest.flush(output(1, 10), at(40), at(12)));
        assert!(!latest.flush(output(2, 20), at(50), at(39)));
        assert!(latest.flush(output(3, 30), at(60), at(40)), "the first has arrived");
        assert_eq!(number(&mut latest, 60), Some(3));
    }

    #[test]
    fn room_is_for_all_outputs_between_completion_and_arrival() {
        let text = "name = \"t\"\n[host.a]\n[host.b]\n[processor.p]\nhost = \"a\"\n[operation.x]\nevery = \"10ms\"\n\
                    wcet = \"1ms\"\ndeadline = \"35ms\"\npayload = \"8B\"\nreplicate = { to = [\"b\"] }\n\
                    queue = { limit = 1 }\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = [\"1ms\", \"20ms\"]";
        let system = read(text, "t", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        // 55 ms at 100 Hz, and two at the edges.
        assert_eq!(in_transit(&system, OperationId(0), HostId(1)), 8 + system.operations[0].queue.most_jobs());
    }

    /// The jobs of a periodic operation: the times that each needs.
    const PERIOD: u64 = 100;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        /// At each instant the replica is the newest output of a job that met its deadline and whose flush has arrived.
        #[test]
        fn a_replica_is_always_of_a_job_in_time_and_its_age_grows_until_the_next_flush(
            jobs in prop::collection::vec((0..150u64, 0..300u64), 1..40),
            deadline in 20..250u64,
            looks in prop::collection::vec(0..6_000u64, 1..60),
        ) {
            let mut latest = LatestOutput::new(64);
            let mut ends = Vec::new();
            for (number, (response, delay)) in (0..).zip(&jobs) {
                let release = number * PERIOD;
                ends.push((release + response, number, release, *delay));
            }
            ends.sort_unstable();
            let mut arrived: Vec<(u64, u64)> = Vec::new();
            let mut looks = looks;
            looks.sort_unstable();
            let mut left = ends.iter().peekable();
            let mut before: Option<(u64, u64, u64)> = None;
            for now in looks {
                while let Some((end, number, release, delay)) = left.next_if(|(end, ..)| *end <= now) {
                    let due = FlushPoint::Deadline.of_job(at(*end), at(release + deadline));
                    prop_assert_eq!(due.is_some(), *end <= release + deadline);
                    let Some(due) = due else { continue };
                    let arrival = due.as_nanos() + delay;
                    prop_assert!(latest.flush(output(*number, *release), at(arrival), at(*end)));
                    arrived.push((arrival, *number));
                }
                let newest = arrived.iter().filter(|(arrival, _)| *arrival <= now).map(|(_, number)| *number).max();
                prop_assert_eq!(number(&mut latest, now), newest);
                let age = newest.map(|newest| now - newest * PERIOD);
                prop_assert!(age.is_none_or(|age| age >= deadline), "no output is younger than its deadline");
                if let (Some((then, held, old)), Some(newest), Some(age)) = (before, newest, age) {
                    prop_assert!(newest >= held);
                    prop_assert!(newest > held || age - old == now - then, "it grows with time");
                }
                before = newest.zip(age).map(|(newest, age)| (now, newest, age));
            }
        }
    }
}
