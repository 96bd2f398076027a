//! A run in progress, as its starting thread sees it: polled for events, and stopped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyoshi_control::feedback::GroupSteps;
use hyoshi_model::{ControlGroup, Instant, OperationId, ProcessorId, Span};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::{
    Interrupt, MonotonicClock, Scheduled, SpawnedThread, StealReader, SwitchVisibility, ThreadPolicy, Wake,
};
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{CpuUser, RingDrain, TraceEvent};

use crate::claim::CpuClaims;
use crate::common::CommonState;
use crate::condition_sampler::SamplerThread;
use crate::contract_control::ContractControl;
use crate::cpu_watch::{CpuWatch, PendingCpuEvents, ThreadNames, merge, settled};
use crate::ended::{EndedBy, Finished, LostRecords, RunNote, panic_text};
use crate::machine_load::{MachineLoad, MachineMonitor};
use crate::meters::Meters;
use crate::moves::OperationMoves;
use crate::processor::ProcessorState;
use crate::region_actions::{ActionLog, ActionOutcome, ActionsEnd, Commands};
use crate::requests::Requests;
use crate::watchdog::LateReleases;

/// The time that bodies have to return at the end of the run, before they are abandoned.
const GRACE: Span = Span::from_millis(500);

/// A release thread that waited this long for its CPU was throttled; usually it waits for microseconds.
const THROTTLED: Span = Span::from_millis(20);

/// How often [`RunningNode::wait`] empties the rings.
const POLL: Duration = Duration::from_millis(40);

/// A run in progress. Drop it to end it without its last events.
#[derive(Debug)]
pub struct RunningNode {
    parts: RunThreads,
    notes: Vec<RunNote>,
    stolen: Vec<Option<Span>>,
}

/// Receives the events of the dispatchers and the observations of their CPUs, in order for each processor.
pub type EventSink<'a> = dyn FnMut(ProcessorId, Instant, TraceEvent) + 'a;

impl RunningNode {
    /// Delivers the events since the last call. Returns their number. Call it every 50 to 100 ms from an ordinary
    /// thread: the rings hold the events of a tenth of a second of a busy processor. Events that find them full are
    /// lost and counted.
    pub fn poll(&mut self, sink: &mut EventSink<'_>) -> usize {
        self.parts.drain(sink)
    }

    /// The time until which all events of all processors were delivered.
    pub fn complete_until(&self) -> Instant {
        self.parts.complete_until
    }

    /// The run's clock.
    pub fn clock(&self) -> MonotonicClock {
        *self.parts.common.clock()
    }

    /// The current time of the run's clock; 0 before the common start.
    pub fn now(&self) -> Instant {
        self.parts.common.now()
    }

    /// The notes so far: refusals, shared CPUs.
    pub fn notes(&self) -> &[RunNote] {
        &self.notes
    }

    /// The CPU of each processor.
    pub fn cpus(&self) -> impl Iterator<Item = (ProcessorId, u32)> + '_ {
        self.parts.processors.iter().map(|part| (part.processor.id, part.cpu))
    }

    /// The visibility of the switches of a processor's CPU.
    pub fn visibility(&self, processor: ProcessorId) -> SwitchVisibility {
        let part = self.parts.processors.iter().find(|part| part.processor.id == processor);
        part.map_or(SwitchVisibility::Nothing, |part| self.parts.cpu_watch.visibility(part.cpu))
    }

    /// The names of other threads, including later ones. The name of a thread is available before its first event is
    /// delivered.
    pub fn names(&self) -> ThreadNames {
        self.parts.cpu_watch.names()
    }

    /// The utilisation of all CPUs of the machine, as far as [`poll`](Self::poll) has measured it.
    pub fn machine_load(&self) -> MachineLoad {
        self.parts.machine.load.clone()
    }

    /// The costs of queueing on each processor since the last call.
    pub fn take_queueing(&self) -> Vec<(ProcessorId, Queueing)> {
        let parts = self.parts.processors.iter();
        let take = |part: &ProcessorThreads| {
            // Created before, and dropped after, the section that lanes may wait for.
            let mut queueing = Queueing::default();
            std::mem::swap(&mut queueing, &mut part.processor.crew.lock().queueing);
            (part.processor.id, queueing)
        };
        parts.map(take).collect()
    }

    /// Events that found their ring full so far.
    pub fn lost_events(&self) -> u64 {
        self.parts.processors.iter().map(|part| part.drain.lost()).sum()
    }

    /// Suspends a triggered operation. Until [`RunningNode::resume`], its triggers are dropped and counted, and its
    /// `timeout` does not release it. Released jobs continue. False if no such operation runs here.
    ///
    /// It locks the operation's processor for a moment, like a release.
    pub fn suspend(&self, operation: &str) -> bool {
        self.suspend_triggers(operation, true)
    }

    /// Resumes an operation that [`RunningNode::suspend`] suspended. False if no such operation runs here.
    pub fn resume(&self, operation: &str) -> bool {
        self.suspend_triggers(operation, false)
    }

    fn suspend_triggers(&self, operation: &str, on: bool) -> bool {
        let system = &self.parts.common.system;
        let triggered = |id: &OperationId| !system.operation(*id).trigger.predecessors().is_empty();
        let named = |id: &OperationId| system.operation(*id).name == operation;
        let Some(id) = system.operation_ids().find(named).filter(triggered) else { return false };
        let here = |part: &&ProcessorThreads| part.processor.id == system.operation(id).on;
        let Some(part) = self.parts.processors.iter().find(here) else { return false };
        // Created before the section that lanes may wait for.
        let mut wakeups = part.processor.wakeups();
        part.processor.section(|crew, now| crew.suspend_triggers(now, id, on, &mut wakeups));
        wakeups.deliver();
        true
    }

    /// True if the run has ended for any reason: then call [`RunningNode::stop`].
    pub fn finished(&self) -> bool {
        let RunThreads { common, interrupt, .. } = &self.parts;
        common.ended().is_some() || common.now() >= common.until || interrupt.as_ref().is_some_and(Interrupt::requested)
    }

    /// Delivers all events until the run ends, then stops it: [`RunningNode::poll`] and [`RunningNode::stop`] for
    /// callers that do nothing else.
    pub fn wait(mut self, sink: &mut EventSink<'_>) -> Finished {
        while !self.finished() {
            self.poll(sink);
            // Not by the run's clock: it does not advance before instant 0.
            std::thread::sleep(POLL);
        }
        self.stop(sink)
    }

    /// Stops the run. Unfinished jobs end as in a simulation, running bodies should return, and `sink` receives the
    /// remaining events. A body that does not return within half a second is abandoned, with a note.
    pub fn stop(mut self, sink: &mut EventSink<'_>) -> Finished {
        let common = self.parts.common.clone();
        let interrupted = self.parts.interrupt.as_ref().is_some_and(Interrupt::requested);
        common.end(match () {
            () if common.now() >= common.until => EndedBy::Duration,
            () if interrupted => EndedBy::Interrupted,
            () => EndedBy::Stopped,
        });
        let waited: Vec<Option<Span>> = self.parts.processors.iter().map(ProcessorThreads::waited).collect();
        let machine = self.parts.machine.since_begin();
        let late = self.parts.end(sink);
        let elapsed = self.parts.ended_at.since(Instant::ZERO);
        let mut notes = std::mem::take(&mut self.notes);
        self.parts.note(&late, &mut notes);
        notes.extend(self.parts.sampler.take().into_iter().flat_map(SamplerThread::notes));
        let groups = match std::mem::replace(&mut self.parts.groups, Ok(Vec::new())) {
            Ok(groups) => groups,
            Err(message) => {
                notes.push(RunNote::GroupControlFailed { message });
                Vec::new()
            }
        };
        notes.extend(groups.iter().flat_map(RunNote::of_group));
        let proposals = common.moves.iter().flat_map(OperationMoves::proposals);
        notes.extend(proposals.map(|proposed| RunNote::of_proposal(&common.system, &proposed)));
        let stolen = self.parts.processors.iter_mut().zip(&self.stolen).map(|(part, before)| {
            let now = part.steal.as_mut().and_then(StealReader::stolen);
            let stolen = now.zip(*before).map(|(now, before)| now.saturating_sub(before));
            (part.processor.id, part.cpu, stolen)
        });
        let stolen: Vec<(ProcessorId, u32, Option<Span>)> = stolen.collect();
        self.parts.note_throttling(&waited, &stolen, &mut notes);
        let lost = LostRecords {
            events: self.parts.processors.iter().map(|part| part.drain.lost()).sum(),
            signals: common.lost_signals.load(Ordering::Relaxed),
            switches: self.parts.cpu_watch.lost(),
        };
        let ended_by = common.ended().cloned().unwrap_or(EndedBy::Stopped);
        let parts = self.parts.processors.iter();
        let queueing = parts.map(|part| (part.processor.id, part.processor.crew.lock().queueing.clone())).collect();
        // The processor of a loop is last: other processors receive its rates later.
        let has_loop = |part: &&ProcessorThreads| part.processor.crew.lock().sampling_period().is_some();
        let (of_loops, rest): (Vec<_>, Vec<_>) = self.parts.processors.iter().partition(has_loop);
        let adapted = |part: &ProcessorThreads| part.processor.crew.lock().adapted_periods();
        let mut periods: BTreeMap<_, _> = rest.into_iter().chain(of_loops).flat_map(adapted).collect();
        // A group may set rates of operations that are all on other hosts.
        let computed = |group: &ControlGroup| common.runs(common.system.feedback[group.loops[0]].processor);
        for task in common.system.control_groups().iter().filter(|group| computed(group)).flat_map(|group| &group.tasks)
        {
            periods.insert(task.root, common.rates.latest(task.root));
        }
        Finished { ended_by, elapsed, notes, lost, stolen, machine, queueing, periods, groups }
    }
}

/// All threads of a run.
#[derive(Debug)]
pub(crate) struct RunThreads {
    pub common: Arc<CommonState>,
    pub processors: Vec<ProcessorThreads>,
    pub watchdog: Option<(SpawnedThread<Vec<LateReleases>>, Arc<Wake>)>,
    /// The thread of the coordinators of groups, if there are any.
    pub coordinator: Option<(SpawnedThread<Vec<GroupSteps>>, Arc<Wake>)>,
    /// The thread of the actions of contracts, if there are any.
    pub actions: Option<ActionsThread>,
    /// The thread that samples measured conditions, if there are any.
    pub sampler: Option<SamplerThread>,
    pub machine: MachineMonitor,
    cpu_watch: CpuWatch,
    interrupt: Option<Interrupt>,
    ended_at: Instant,
    complete_until: Instant,
    over: bool,
    /// The claims on its CPUs, and the hold on their idle states.
    holds: (CpuClaims, Option<AwakeCpus>),
    /// The time that each release thread had waited for its CPU at the begin of the run.
    waited: Vec<Option<Span>>,
    /// At the end: the counts of each group, or the panic of the coordinators' thread.
    groups: Result<Vec<GroupSteps>, String>,
}

/// The thread that executes actions of contracts.
#[derive(Debug)]
pub(crate) struct ActionsThread {
    pub thread: SpawnedThread<()>,
    pub log: ActionLog,
    pub end: ActionsEnd,
    /// The commands, if there are any.
    pub commands: Option<Arc<Commands>>,
}

impl ActionsThread {
    /// Executes what is left, at most for [`GRACE`].
    fn finish(&self, common: &CommonState) {
        let started = std::time::Instant::now();
        self.end.request(common);
        while !self.thread.is_finished() && started.elapsed().as_nanos() < u128::from(GRACE.as_nanos()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.commands.iter().for_each(|commands| commands.finish());
    }
}

/// The threads of one processor.
#[derive(Debug)]
pub(crate) struct ProcessorThreads {
    pub processor: Arc<ProcessorState>,
    /// By thread of the crew.
    pub lanes: Vec<SpawnedThread<()>>,
    /// The release thread, and the thread for demoted work.
    pub others: Vec<SpawnedThread<()>>,
    drain: RingDrain,
    cpu: u32,
    steal: Option<StealReader>,
    pending: PendingCpuEvents,
    meters: Meters,
}

impl RunThreads {
    pub fn new(common: Arc<CommonState>, cpu_watch: CpuWatch, interrupt: Option<Interrupt>) -> Self {
        let (ended_at, complete_until) = (Instant::ZERO, Instant::ZERO);
        let (processors, holds, waited) = (Vec::new(), (CpuClaims::default(), None), Vec::new());
        let (watchdog, coordinator, actions, sampler, over) = (None, None, None, None, false);
        RunThreads {
            common,
            processors,
            watchdog,
            coordinator,
            actions,
            sampler,
            machine: MachineMonitor::default(),
            cpu_watch,
            interrupt,
            ended_at,
            complete_until,
            over,
            holds,
            waited,
            groups: Ok(Vec::new()),
        }
    }

    /// Keeps the claims and the hold until the end of the run.
    pub fn hold(&mut self, claims: CpuClaims, awake: Option<AwakeCpus>) {
        self.holds = (claims, awake);
    }

    pub fn add(
        &mut self,
        processor: Arc<ProcessorState>,
        drain: RingDrain,
        cpu: u32,
        steal: Option<StealReader>,
    ) -> &mut ProcessorThreads {
        let (lanes, others) = (Vec::new(), Vec::new());
        let meters = Meters::new(StealReader::of(cpu).ok());
        let pending = PendingCpuEvents::default();
        self.processors.push(ProcessorThreads { processor, lanes, others, drain, cpu, steal, pending, meters });
        let last = self.processors.len() - 1;
        &mut self.processors[last]
    }

    /// The contracts of the run.
    pub fn contracts(&self) -> ContractControl {
        let processors = self.processors.iter().map(|part| part.processor.clone()).collect();
        ContractControl::new(self.common.clone(), processors, self.actions.as_ref().map(|one| one.log.clone()))
    }

    /// Sets all threads except the watchdog to normal priority.
    pub fn without_priorities(&self) {
        if let Some((thread, _)) = &self.coordinator {
            let _ = thread.handle.set_policy(ThreadPolicy::Other);
        }
        for part in &self.processors {
            // Not a section: the run has no clock yet.
            part.processor.crew.lock().without_priorities();
            part.processor.apply_policies();
            for thread in &part.others {
                let _ = thread.handle.set_policy(ThreadPolicy::Other);
            }
        }
    }

    /// Starts the run: wakes the release threads.
    pub fn begin(mut self, notes: Vec<RunNote>) -> RunningNode {
        let read = |part: &mut ProcessorThreads| part.steal.as_mut().and_then(StealReader::stolen);
        let stolen = self.processors.iter_mut().map(read).collect();
        let watchdog = self.watchdog.as_ref().map(|(thread, _)| thread.handle.tid());
        for part in &mut self.processors {
            part.register_threads(watchdog);
            part.meters.begin();
        }
        self.machine.begin();
        self.waited = self.processors.iter().map(ProcessorThreads::waited).collect();
        self.common.releases.iter().for_each(|release| release.wake.post());
        self.watchdog.iter().for_each(|(_, begin)| begin.post());
        self.coordinator.iter().for_each(|(_, begin)| begin.post());
        self.common.actions.post();
        self.sampler.iter().for_each(SamplerThread::begin);
        RunningNode { parts: self, notes, stolen }
    }

    /// Ends a start that failed.
    pub fn abandon(mut self) {
        self.end(&mut |_, _, _| ());
    }

    /// Delivers the events of each processor in the order of time.
    fn drain(&mut self, sink: &mut EventSink<'_>) -> usize {
        // Read before the rings: they are then complete until `settled`, and the observations until now.
        let now = self.common.now();
        self.sample();
        self.machine.poll(now);
        let mut events = 0;
        for part in &mut self.processors {
            if !self.over {
                // Later records would not belong to the run, and their use would be lost.
                part.meters.poll(now.min(self.common.until), &mut part.pending);
            }
            events += part.drain(now, settled(now), &mut self.cpu_watch, sink);
        }
        self.complete_until = settled(now);
        events
    }

    fn sample(&mut self) {
        let mut parts: Vec<_> = self.processors.iter_mut().map(|part| (part.cpu, &mut part.pending)).collect();
        self.cpu_watch.sample(self.common.clock(), &mut parts);
    }

    /// Ends all threads that can end.
    fn end(&mut self, sink: &mut EventSink<'_>) -> Vec<LateReleases> {
        self.over = true;
        let common = self.common.clone();
        common.begin_if_abandoned();
        self.sampler.iter().for_each(SamplerThread::end);
        self.ended_at = common.now().min(common.until);
        for part in &self.processors {
            // A broken crew is closed already.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut wakeups = part.processor.wakeups();
                part.processor.section(|crew, now| crew.close(now, &mut wakeups));
                wakeups.deliver();
            }));
            part.processor.poke_reader();
            part.processor.requests.get().into_iter().for_each(Requests::over);
            part.processor.background.post();
        }
        common.releases.iter().for_each(|release| release.wake.post());
        self.wait(GRACE, sink);
        for part in &self.processors {
            let left = part.lanes.iter().zip(&part.processor.control).filter(|(thread, _)| !thread.is_finished());
            for (thread, control) in left {
                // Whatever it still does, it must not run above ordinary threads.
                control.abandoned.store(true, Ordering::SeqCst);
                let _ = thread.handle.set_policy(ThreadPolicy::Other);
            }
        }
        if let Some((thread, begin)) = self.coordinator.take() {
            common.stopping.store(true, Ordering::Release);
            begin.post();
            common.groups.wake.post();
            // A panic there ended only the control.
            self.groups = thread.join().map_err(|panic| panic_text(&*panic));
        }
        self.actions.iter().for_each(|actions| actions.finish(&common));
        common.watchdog.post();
        let watchdog = self.watchdog.take().and_then(|(thread, begin)| {
            begin.post();
            thread.join().ok()
        });
        self.sample();
        // Observations after the end do not belong to the run.
        for part in &mut self.processors {
            part.meters.record(self.ended_at, &mut part.pending);
            part.drain(Instant::NEVER, self.ended_at, &mut self.cpu_watch, sink);
        }
        watchdog.unwrap_or_default()
    }

    /// Waits for the end of all lanes, at most for `span`.
    fn wait(&mut self, span: Span, sink: &mut EventSink<'_>) {
        let started = std::time::Instant::now();
        let ended = |part: &ProcessorThreads| part.lanes.iter().all(SpawnedThread::is_finished);
        while !self.processors.iter().all(ended) && started.elapsed().as_nanos() < u128::from(span.as_nanos()) {
            self.drain(sink);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A release thread waits for its CPU only in two cases: the kernel's throttle, or its server for ordinary threads,
    /// stops all real-time threads; or a more urgent thread or another virtual machine has the CPU.
    fn note_throttling(
        &self,
        waited: &[Option<Span>],
        stolen: &[(ProcessorId, u32, Option<Span>)],
        notes: &mut Vec<RunNote>,
    ) {
        for (index, (_, cpu, stolen)) in stolen.iter().enumerate() {
            let waited = waited[index].zip(self.waited.get(index).copied().flatten());
            let Some(stopped) = waited.map(|(now, before)| now.saturating_sub(before)) else { continue };
            let stopped = stopped.saturating_sub(stolen.unwrap_or_default());
            if stopped >= THROTTLED {
                notes.push(RunNote::Throttled { cpu: *cpu, stopped });
            }
        }
    }

    fn note(&self, late: &[LateReleases], notes: &mut Vec<RunNote>) {
        let system = &self.common.system;
        for part in &self.processors {
            for (thread, control) in part.lanes.iter().zip(&part.processor.control) {
                if let (false, Some((operation, since))) = (thread.is_finished(), control.body()) {
                    let operation = system.operation(operation).name.clone();
                    let consumed = thread.handle.cpu_time().map_or(Span::ZERO, |time| time.saturating_sub(since));
                    notes.push(RunNote::NotReturned { operation, consumed });
                }
            }
        }
        for (part, late) in self.processors.iter().zip(late).filter(|(_, late)| late.times > 0) {
            let processor = system.processor(part.processor.id).name.clone();
            notes.push(RunNote::LateRelease { processor, by: late.by, times: late.times });
        }
        for part in &self.processors {
            let crew = part.processor.crew.lock();
            let (times, paused) = crew.dispatcher.hard_pauses(self.ended_at);
            if times > 0 {
                let demoted = crew.dispatcher.relegated().map(|id| system.operation(id).name.clone()).collect();
                let processor = system.processor(part.processor.id).name.clone();
                notes.push(RunNote::HardCapped { processor, times, paused, demoted });
            }
        }
        if let Some(ActionsThread { thread, log, .. }) = &self.actions {
            let has_begun = |one: &ActionOutcome| one.last.is_some();
            notes.extend(log.outcomes().into_iter().filter(has_begun).map(RunNote::RegionAction));
            notes.extend((!thread.is_finished()).then_some(RunNote::ActionsBlocked));
        }
        let times = self.common.lost_regions.load(Ordering::Relaxed);
        if times > 0 {
            notes.push(RunNote::LostRegions { times });
        }
        let times = self.common.blocked_lanes.load(Ordering::Relaxed);
        if times > 0 {
            notes.push(RunNote::PoolExhausted { times });
        }
        let times = self.common.refused_later.load(Ordering::Relaxed);
        if times > 0 {
            notes.push(RunNote::RefusedLater { times });
        }
    }
}

impl ProcessorThreads {
    /// The time that its release thread has waited for its CPU.
    fn waited(&self) -> Option<Span> {
        self.others.first()?.handle.waited()
    }

    /// Registers its threads by their numbers.
    fn register_threads(&mut self, watchdog: Option<u32>) {
        let ProcessorThreads { processor, lanes, others, pending, meters, .. } = self;
        let kinds = others.iter().zip([CpuUser::Release, CpuUser::Below]);
        let lanes = lanes.iter().zip(processor.crew.lock().lanes_of_threads().map(CpuUser::Lane).collect::<Vec<_>>());
        let lanes = lanes.map(|(thread, who)| (&thread.handle, who));
        for (thread, who) in kinds.map(|(thread, who)| (&thread.handle, who)).chain(lanes) {
            pending.add_own_thread(thread.tid(), who);
            meters.add(who, thread.clone());
        }
        watchdog.into_iter().for_each(|tid| pending.add_own_thread(tid, CpuUser::Watchdog));
    }

    /// Delivers the dispatcher's events until `events_until` and the observations until `settled`, in the order of
    /// time.
    fn drain(
        &mut self,
        events_until: Instant,
        settled: Instant,
        cpu_watch: &mut CpuWatch,
        sink: &mut EventSink<'_>,
    ) -> usize {
        let processor = self.processor.id;
        let (events, dropped) =
            merge(&mut self.drain, &mut self.pending, events_until, settled, |at, event| sink(processor, at, event));
        cpu_watch.count_lost(dropped);
        events
    }
}

impl Drop for RunThreads {
    fn drop(&mut self) {
        if !self.over {
            self.end(&mut |_, _, _| ());
        }
        for part in &mut self.processors {
            // Threads that have not ended are abandoned: joining them could wait forever.
            let threads = part.lanes.drain(..).chain(part.others.drain(..));
            threads.filter(SpawnedThread::is_finished).for_each(|thread| drop(thread.join()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use hyoshi_model::read;
    use hyoshi_sched::{Plan, Strategies};
    use hyoshi_trace::{CpuEvent, DispatchDecision};

    use super::*;
    use crate::Node;

    #[test]
    fn cpu_time_that_is_read_after_the_end_belongs_to_the_run() {
        let text = "name = \"t\"\nduration = \"600ms\"\n[operation.a]\nevery = \"20ms\"\nwcet = \"4ms\"\n";
        let system = Arc::new(read(text, "t", None).unwrap().system);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let mut running = Node::new(system.clone(), plan).start().unwrap();
        let (mut used, mut consumed) = (Span::ZERO, Span::ZERO);
        let mut sink = |_: ProcessorId, _: Instant, event: TraceEvent| match event {
            TraceEvent::Cpu(CpuEvent::Used { who: CpuUser::Lane(_), span }) => used += span,
            TraceEvent::Decision(DispatchDecision::End(end)) => consumed += end.consumed,
            _ => {}
        };
        while running.now() < Instant::ZERO + Span::from_millis(610) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The first reading of the clocks.
        running.poll(&mut sink);
        running.stop(&mut sink);
        assert!(!consumed.is_zero() && used >= consumed, "{used} used, {consumed} consumed");
    }

    #[test]
    fn operators_may_ask_before_the_run_begins() {
        let text = "name = \"t\"\nduration = \"1s\"\n[operation.a]\nevery = \"20ms\"\nwcet = \"1ms\"\n\
                    [condition.c]\nvalue = 1\n[contract.k]\nwatch = { c = { of = \"condition.c\" } }\n\
                    [[contract.k.region]]\nname = \"only\"\n";
        let system = Arc::new(read(text, "t", None).unwrap().system);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let prepared = Node::new(system, plan).prepare().unwrap();
        let contracts = prepared.handles().contracts;
        assert!(contracts.states()[0].regions.is_empty());
        assert!(contracts.set("c", 2.0).is_err());
        let running = prepared.start();
        while contracts.states()[0].regions.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        running.stop(&mut |_, _, _| ());
    }

    #[test]
    fn a_panic_within_the_dispatcher_s_section_ends_the_run_with_an_error_and_what_was_recorded_replays() {
        let text = "name = \"t\"\nduration = \"20s\"\n[operation.a]\nevery = \"5ms\"\nwcet = \"1ms\"\n[operation.b]\n\
                    every = \"20ms\"\nwcet = \"5ms\"\n";
        let system = Arc::new(read(text, "t", None).unwrap().system);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let mut running = Node::new(system.clone(), plan.clone()).start().unwrap();
        let mut events = Vec::new();
        let mut sink = |_: ProcessorId, at: Instant, event: TraceEvent| events.push((at, event));
        while running.now() < Instant::ZERO + Span::from_millis(100) {
            running.poll(&mut sink);
        }
        let processor = running.parts.processors[0].processor.clone();
        let panic = catch_unwind(AssertUnwindSafe(|| processor.section(|_, _| panic!("on purpose"))));
        assert!(panic.is_err() && running.finished());
        let finished = running.stop(&mut sink);
        assert_eq!(finished.ended_by, EndedBy::Broken { processor: "main".into(), message: "on purpose".into() });
        assert!(finished.notes.iter().all(|note| !matches!(note, RunNote::NotReturned { .. })), "{:?}", finished.notes);
        let replayed =
            hyoshi_replay::replay(&system, &plan.processors[0], events).unwrap_or_else(|parted| panic!("{parted}"));
        assert!(replayed.decisions > 20);
    }
}
