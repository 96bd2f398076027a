//! A run, to the thread that started it: what happens is polled, and it is stopped cleanly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Instant, ProcessorId, Span};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Policy, Scheduled, Sight, StealReader, Thread, Wake};
use hyoshi_trace::stats::Queueing;
use hyoshi_trace::{Event, RingDrain, Who};

use crate::claim::Claims;
use crate::common::Common;
use crate::ended::{EndedBy, Finished, Lost, Note};
use crate::lookout::{Lookout, Names, Pending, merge, settled};
use crate::meters::Meters;
use crate::processor::Processor;
use crate::requests::Requests;
use crate::watchdog::Late;

/// Bodies that are running when the run ends have so long to return until they are left behind.
const GRACE: Span = Span::from_millis(500);

/// A release thread that has waited this long for its CPU was stopped: else it waits for microseconds.
const THROTTLED: Span = Span::from_millis(20);

/// How often [`Running::wait`] empties the rings.
const POLL: Span = Span::from_millis(40);

/// A run in progress. Dropping it ends it too, with nobody to listen.
#[derive(Debug)]
pub struct Running {
    parts: Parts,
    notes: Vec<Note>,
    stolen: Vec<Option<Span>>,
}

/// Receives what the dispatchers were told and decided, and what was seen of their CPUs, in order
/// for each processor.
pub type Sink<'a> = dyn FnMut(ProcessorId, Instant, Event) + 'a;

impl Running {
    /// Hands over what has happened since the last call, and says how many events that were. Call
    /// it every 50 to 100 ms from an ordinary thread: the rings hold a tenth of a second of a busy
    /// processor, and what finds them full is lost (and counted).
    pub fn poll(&mut self, sink: &mut Sink<'_>) -> usize {
        self.parts.drain(sink)
    }

    /// Until when everything that happened has been handed over, of processors with nothing to tell, too.
    pub fn told_until(&self) -> Instant {
        self.parts.told_until
    }

    /// The run's clock.
    pub fn clock(&self) -> MonotonicClock {
        *self.parts.common.clock()
    }

    /// The present instant on the run's clock; 0 until the common start.
    pub fn now(&self) -> Instant {
        self.parts.common.now()
    }

    /// What has been noted so far: refusals, shared CPUs.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The CPU of each processor.
    pub fn cpus(&self) -> impl Iterator<Item = (ProcessorId, u32)> + '_ {
        self.parts.processors.iter().map(|part| (part.processor.id, part.cpu))
    }

    /// How much is seen of the switches of a processor's CPU.
    pub fn sight(&self, processor: ProcessorId) -> Sight {
        let part = self.parts.processors.iter().find(|part| part.processor.id == processor);
        part.map_or(Sight::Nothing, |part| self.parts.lookout.sight(part.cpu))
    }

    /// The names of other threads that were seen, also those that are still to come. An event
    /// that uses a number is handed over after its name is there.
    pub fn names(&self) -> Names {
        self.parts.lookout.names()
    }

    /// What queueing has cost on each processor since this was last asked.
    pub fn take_queueing(&self) -> Vec<(ProcessorId, Queueing)> {
        let parts = self.parts.processors.iter();
        let take = |part: &Part| {
            // Made before, and let go of after, the section that lanes may have to wait for.
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

    /// True once the run is over, for whatever reason: then [`Running::stop`] it.
    pub fn finished(&self) -> bool {
        let Parts { common, interrupt, .. } = &self.parts;
        common.ended().is_some() || common.now() >= common.until || interrupt.as_ref().is_some_and(Interrupt::requested)
    }

    /// Hands over what happens until the run is over, and ends it: [`Running::poll`] and [`Running::stop`] for
    /// those who have nothing else to do meanwhile.
    pub fn wait(mut self, sink: &mut Sink<'_>) -> Finished {
        let clock = *self.parts.common.clock();
        while !self.finished() {
            self.poll(sink);
            clock.sleep_until(clock.now() + POLL);
        }
        self.stop(sink)
    }

    /// Ends the run: what is unfinished at this moment is accounted for as a simulation does it at
    /// its end, running bodies are asked to return, and everything that has happened is handed to
    /// `sink`. A body that does not return within half a second is left behind, and noted.
    pub fn stop(mut self, sink: &mut Sink<'_>) -> Finished {
        let common = self.parts.common.clone();
        let interrupted = self.parts.interrupt.as_ref().is_some_and(Interrupt::requested);
        common.end(match () {
            () if common.now() >= common.until => EndedBy::Duration,
            () if interrupted => EndedBy::Interrupted,
            () => EndedBy::Stopped,
        });
        let waited: Vec<Option<Span>> = self.parts.processors.iter().map(Part::waited).collect();
        let late = self.parts.end(sink);
        let elapsed = self.parts.ended_at.since(Instant::ZERO);
        let mut notes = std::mem::take(&mut self.notes);
        self.parts.note(&late, &mut notes);
        let stolen = self.parts.processors.iter_mut().zip(&self.stolen).map(|(part, before)| {
            let now = part.steal.as_mut().and_then(StealReader::stolen);
            let stolen = now.zip(*before).map(|(now, before)| now.saturating_sub(before));
            (part.processor.id, part.cpu, stolen)
        });
        let stolen: Vec<(ProcessorId, u32, Option<Span>)> = stolen.collect();
        self.parts.note_throttling(&waited, &stolen, &mut notes);
        let lost = Lost {
            events: self.parts.processors.iter().map(|part| part.drain.lost()).sum(),
            signals: common.lost_signals.load(Ordering::Relaxed),
            switches: self.parts.lookout.lost(),
        };
        let ended_by = common.ended().cloned().unwrap_or(EndedBy::Stopped);
        let parts = self.parts.processors.iter();
        let queueing = parts.map(|part| (part.processor.id, part.processor.crew.lock().queueing.clone())).collect();
        Finished { ended_by, elapsed, notes, lost, stolen, queueing }
    }
}

/// Every thread of a run.
#[derive(Debug)]
pub(crate) struct Parts {
    pub common: Arc<Common>,
    pub processors: Vec<Part>,
    pub watchdog: Option<(Thread<Vec<Late>>, Arc<Wake>)>,
    lookout: Lookout,
    interrupt: Option<Interrupt>,
    ended_at: Instant,
    told_until: Instant,
    over: bool,
    /// Its CPUs are no other run's, and do not sleep deeply.
    kept: (Claims, Option<AwakeCpus>),
    /// What each release thread had waited for its CPU when the run began.
    waited: Vec<Option<Span>>,
}

/// The threads of one processor.
#[derive(Debug)]
pub(crate) struct Part {
    pub processor: Arc<Processor>,
    /// By thread of the crew.
    pub lanes: Vec<Thread<()>>,
    /// Release thread, and the one below the lanes.
    pub others: Vec<Thread<()>>,
    drain: RingDrain,
    cpu: u32,
    steal: Option<StealReader>,
    pending: Pending,
    meters: Meters,
}

impl Parts {
    pub fn new(common: Arc<Common>, lookout: Lookout, interrupt: Option<Interrupt>) -> Self {
        let (ended_at, told_until) = (Instant::ZERO, Instant::ZERO);
        let (processors, kept, waited) = (Vec::new(), (Claims::default(), None), Vec::new());
        let (watchdog, over) = (None, false);
        Parts { common, processors, watchdog, lookout, interrupt, ended_at, told_until, over, kept, waited }
    }

    /// The run's CPUs are its own, and awake, until it is over.
    pub fn keep(&mut self, claims: Claims, awake: Option<AwakeCpus>) {
        self.kept = (claims, awake);
    }

    pub fn add(
        &mut self,
        processor: Arc<Processor>,
        drain: RingDrain,
        cpu: u32,
        steal: Option<StealReader>,
    ) -> &mut Part {
        let (lanes, others) = (Vec::new(), Vec::new());
        let meters = Meters::new(StealReader::of(cpu).ok());
        let pending = Pending::default();
        self.processors.push(Part { processor, lanes, others, drain, cpu, steal, pending, meters });
        let last = self.processors.len() - 1;
        &mut self.processors[last]
    }

    /// Every thread at normal priority, but for the watchdog's.
    pub fn without_priorities(&self) {
        for part in &self.processors {
            // No section: the run has no clock yet.
            part.processor.crew.lock().without_priorities();
            part.processor.ask_the_kernel();
            for thread in &part.others {
                let _ = thread.handle.set_policy(Policy::Other);
            }
        }
    }

    /// Everything is there: lets the release threads go.
    pub fn begin(mut self, notes: Vec<Note>) -> Running {
        let read = |part: &mut Part| part.steal.as_mut().and_then(StealReader::stolen);
        let stolen = self.processors.iter_mut().map(read).collect();
        let watchdog = self.watchdog.as_ref().map(|(thread, _)| thread.handle.tid());
        for part in &mut self.processors {
            part.know(watchdog);
            part.meters.begin();
        }
        self.waited = self.processors.iter().map(Part::waited).collect();
        self.common.releases.iter().for_each(|release| release.wake.post());
        self.watchdog.iter().for_each(|(_, begin)| begin.post());
        Running { parts: self, notes, stolen }
    }

    /// A start that failed.
    pub fn abandon(mut self) {
        self.end(&mut |_, _, _| ());
    }

    /// Hands over what has happened: of each processor in the order of time.
    fn drain(&mut self, sink: &mut Sink<'_>) -> usize {
        // Read before the rings: what is in them by then is complete up to `settled`, and what was seen up to now.
        let now = self.common.now();
        self.look();
        let mut events = 0;
        for part in &mut self.processors {
            if !self.over {
                part.meters.poll(now, &mut part.pending);
            }
            events += part.drain(now, settled(now), &mut self.lookout, sink);
        }
        self.told_until = settled(now);
        events
    }

    fn look(&mut self) {
        let mut parts: Vec<_> = self.processors.iter_mut().map(|part| (part.cpu, &mut part.pending)).collect();
        self.lookout.look(self.common.clock(), &mut parts);
    }

    /// Ends every thread that can be ended.
    fn end(&mut self, sink: &mut Sink<'_>) -> Vec<Late> {
        self.over = true;
        let common = self.common.clone();
        self.ended_at = common.now().min(common.until);
        for part in &self.processors {
            // One that is broken is closed.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut posts = part.processor.posts();
                part.processor.section(|crew, now| crew.close(now, &mut posts));
                posts.deliver();
            }));
            part.processor.poke_reader();
            part.processor.requests.get().into_iter().for_each(Requests::over);
            part.processor.background.post();
        }
        common.releases.iter().for_each(|release| release.wake.post());
        self.wait(GRACE, sink);
        for part in &self.processors {
            let left = part.lanes.iter().zip(&part.processor.signs).filter(|(thread, _)| !thread.is_finished());
            for (thread, signs) in left {
                // Whatever it still does, it must not do above the rest of the machine.
                signs.abandoned.store(true, Ordering::SeqCst);
                let _ = thread.handle.set_policy(Policy::Other);
            }
        }
        common.watchdog.post();
        let watchdog = self.watchdog.take().and_then(|(thread, begin)| {
            begin.post();
            thread.join().ok()
        });
        self.look();
        // What is seen after the end is not of the run.
        for part in &mut self.processors {
            part.meters.tell(self.ended_at, &mut part.pending);
            part.drain(Instant::NEVER, self.ended_at, &mut self.lookout, sink);
        }
        watchdog.unwrap_or_default()
    }

    /// Waits until all lanes have ended, at most for `span`.
    fn wait(&mut self, span: Span, sink: &mut Sink<'_>) {
        let clock = *self.common.clock();
        let started = std::time::Instant::now();
        let ended = |part: &Part| part.lanes.iter().all(Thread::is_finished);
        while !self.processors.iter().all(ended) && started.elapsed().as_nanos() < u128::from(span.as_nanos()) {
            self.drain(sink);
            clock.sleep_until(clock.now() + Span::from_millis(1));
        }
    }

    /// The kernel lets a release thread wait for its CPU only while its own throttle, or its server of ordinary threads,
    /// holds all real-time threads back; or while something of a higher priority, or another machine, has the CPU.
    fn note_throttling(
        &self,
        waited: &[Option<Span>],
        stolen: &[(ProcessorId, u32, Option<Span>)],
        notes: &mut Vec<Note>,
    ) {
        for (index, (_, cpu, stolen)) in stolen.iter().enumerate() {
            let waited = waited[index].zip(self.waited.get(index).copied().flatten());
            let Some(stopped) = waited.map(|(now, before)| now.saturating_sub(before)) else { continue };
            let stopped = stopped.saturating_sub(stolen.unwrap_or_default());
            if stopped >= THROTTLED {
                notes.push(Note::Throttled { cpu: *cpu, stopped });
            }
        }
    }

    fn note(&self, late: &[Late], notes: &mut Vec<Note>) {
        let system = &self.common.system;
        for part in &self.processors {
            for (thread, signs) in part.lanes.iter().zip(&part.processor.signs) {
                if let (false, Some((operation, since))) = (thread.is_finished(), signs.body()) {
                    let operation = system.operation(operation).name.clone();
                    let consumed = thread.handle.cpu_time().map_or(Span::ZERO, |time| time.saturating_sub(since));
                    notes.push(Note::NotReturned { operation, consumed });
                }
            }
        }
        for (part, late) in self.processors.iter().zip(late).filter(|(_, late)| late.times > 0) {
            let processor = system.processor(part.processor.id).name.clone();
            notes.push(Note::LateRelease { processor, by: late.by, times: late.times });
        }
        for part in &self.processors {
            let crew = part.processor.crew.lock();
            let (times, paused) = crew.dispatcher.hard_pauses(self.ended_at);
            if times > 0 {
                let demoted = crew.dispatcher.relegated().map(|id| system.operation(id).name.clone()).collect();
                let processor = system.processor(part.processor.id).name.clone();
                notes.push(Note::HardCapped { processor, times, paused, demoted });
            }
        }
        let times = self.common.blocked_lanes.load(Ordering::Relaxed);
        if times > 0 {
            notes.push(Note::PoolExhausted { times });
        }
        let times = self.common.refused_later.load(Ordering::Relaxed);
        if times > 0 {
            notes.push(Note::RefusedLater { times });
        }
    }
}

impl Part {
    /// What its release thread has waited for its CPU.
    fn waited(&self) -> Option<Span> {
        self.others.first()?.handle.waited()
    }

    /// Its own threads are known by their numbers.
    fn know(&mut self, watchdog: Option<u32>) {
        let Part { processor, lanes, others, pending, meters, .. } = self;
        let kinds = others.iter().zip([Who::Release, Who::Below]);
        let lanes = lanes.iter().zip(processor.crew.lock().lanes_of_threads().map(Who::Lane).collect::<Vec<_>>());
        let lanes = lanes.map(|(thread, who)| (&thread.handle, who));
        for (thread, who) in kinds.map(|(thread, who)| (&thread.handle, who)).chain(lanes) {
            pending.know(thread.tid(), who);
            meters.add(who, thread.clone());
        }
        watchdog.into_iter().for_each(|tid| pending.know(tid, Who::Watchdog));
    }

    /// Hands over what the dispatcher told until `told`, and what was seen until `settled`, in the order of time.
    fn drain(&mut self, told: Instant, settled: Instant, lookout: &mut Lookout, sink: &mut Sink<'_>) -> usize {
        let processor = self.processor.id;
        let (events, gave_up) =
            merge(&mut self.drain, &mut self.pending, told, settled, |at, event| sink(processor, at, event));
        lookout.gave_up(gave_up);
        events
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if !self.over {
            self.end(&mut |_, _, _| ());
        }
        for part in &mut self.processors {
            // Those that have not ended are left behind: joining them would wait for ever.
            let threads = part.lanes.drain(..).chain(part.others.drain(..));
            threads.filter(Thread::is_finished).for_each(|thread| drop(thread.join()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use hyoshi_model::read;
    use hyoshi_sched::{Plan, Strategies};

    use super::*;
    use crate::Node;

    #[test]
    fn a_panic_within_the_dispatcher_s_section_ends_the_run_with_an_error_and_what_was_recorded_replays() {
        let text = "name = \"t\"\nduration = \"20s\"\n[operation.a]\nevery = \"5ms\"\nwcet = \"1ms\"\n[operation.b]\n\
                    every = \"20ms\"\nwcet = \"5ms\"\n";
        let system = Arc::new(read(text, "t", None).unwrap().system);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let mut running = Node::new(system.clone(), plan.clone()).start().unwrap();
        let mut events = Vec::new();
        let mut sink = |_: ProcessorId, at: Instant, event: Event| events.push((at, event));
        while running.now() < Instant::ZERO + Span::from_millis(100) {
            running.poll(&mut sink);
        }
        let processor = running.parts.processors[0].processor.clone();
        let panic = catch_unwind(AssertUnwindSafe(|| processor.section(|_, _| panic!("on purpose"))));
        assert!(panic.is_err() && running.finished());
        let finished = running.stop(&mut sink);
        assert_eq!(finished.ended_by, EndedBy::Broken { processor: "main".into(), message: "on purpose".into() });
        assert!(finished.notes.iter().all(|note| !matches!(note, Note::NotReturned { .. })), "{:?}", finished.notes);
        let replayed =
            hyoshi_replay::replay(&system, &plan.processors[0], events).unwrap_or_else(|parted| panic!("{parted}"));
        assert!(replayed.decisions > 20);
    }
}
