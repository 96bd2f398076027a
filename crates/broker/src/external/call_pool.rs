//! The threads that call other processes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Spawn, SpawnedThread, ThreadPolicy, Wake, priority};

use super::{ExternalEvent, ExternalEvents};
use crate::request_error::RequestError;

/// Length of the queue; beyond it, requests pass unchanged.
const QUESTIONS: usize = 1_024;
/// Time for queued calls at shutdown.
const ENDING: Span = Span::from_secs(1);

/// An object in another process. At most one thread calls it, so a slow object blocks one thread only.
pub(super) trait RemoteCall: Send + Sync {
    /// Makes the pending call. Returns an event if the broker must run again.
    fn call_once(&self) -> Option<ExternalEvent>;

    /// The next call; after `Over` it is in no queue.
    fn next_call(&self) -> NextCall;

    /// The queue is full: the pending call is dropped.
    fn give_up(&self);
}

/// When to call again.
pub(super) enum NextCall {
    /// After the next request.
    Over,
    /// At once, because a request arrived during the call.
    Again,
    /// After a pause.
    Later(Span),
}

pub(super) struct CallPool {
    name: &'static str,
    most: usize,
    queue: PiMutex<CallQueue>,
    wake: Wake,
    clock: MonotonicClock,
    ends: AtomicBool,
    threads: PiMutex<Vec<SpawnedThread<()>>>,
    events: Arc<ExternalEvents>,
}

#[derive(Default)]
struct CallQueue {
    now: VecDeque<Arc<dyn RemoteCall>>,
    later: Vec<(Instant, Arc<dyn RemoteCall>)>,
}

impl CallQueue {
    /// The next call, or the instant of the next one.
    fn next(&mut self, now: Instant) -> Result<Arc<dyn RemoteCall>, Instant> {
        if let Some(at) = self.later.iter().position(|(at, _)| *at <= now) {
            let (_, rested) = self.later.swap_remove(at);
            self.now.push_back(rested);
        }
        let first = self.now.pop_front();
        first.ok_or_else(|| self.later.iter().map(|(at, _)| *at).min().unwrap_or(Instant::NEVER))
    }
}

impl CallPool {
    pub fn new(name: &'static str, most: usize, events: &Arc<ExternalEvents>) -> Arc<CallPool> {
        Arc::new(CallPool {
            name,
            most,
            queue: PiMutex::new(CallQueue::default()),
            wake: Wake::new(),
            clock: MonotonicClock::start(),
            ends: AtomicBool::new(false),
            threads: PiMutex::new(Vec::new()),
            events: events.clone(),
        })
    }

    /// Starts the threads unless they run.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub fn start(self: &Arc<Self>) -> Result<(), RequestError> {
        let mut threads = self.threads.lock();
        while threads.len() < self.most {
            let pool = self.clone();
            // As urgent as the broker, so that an answer is not late for lack of CPU time.
            let spawn =
                Spawn::new(format!("{}-{}", self.name, threads.len())).policy(ThreadPolicy::Fifo(priority::BROKER));
            threads.push(spawn.spawn(move || pool.work()).map_err(|error| {
                let what = format!("cannot start a thread for calls to other processes: {error}");
                RequestError::refused(what, "end other threads on this system")
            })?);
        }
        Ok(())
    }

    /// False if the queue is full.
    pub fn ask(&self, asked: Arc<dyn RemoteCall>) -> bool {
        let mut queue = self.queue.lock();
        if queue.now.len() >= QUESTIONS {
            return false;
        }
        queue.now.push_back(asked);
        drop(queue);
        self.wake.post();
        true
    }

    fn work(&self) {
        let mut next = Instant::NEVER;
        loop {
            self.wake.wait_until(&self.clock, next);
            if self.ends.load(Ordering::Acquire) {
                // The other threads must see the end, too.
                self.wake.post();
                return self.finish();
            }
            let (asked, more) = {
                let mut queue = self.queue.lock();
                (queue.next(self.clock.now()), !queue.now.is_empty())
            };
            // Posts coalesce, so wake another thread for the rest of the queue.
            if more {
                self.wake.post();
            }
            match asked {
                Err(later) => next = later,
                Ok(asked) => {
                    self.perform(asked);
                    next = self.queue.lock().later.iter().map(|(at, _)| *at).min().unwrap_or(Instant::NEVER);
                }
            }
        }
    }

    fn perform(&self, asked: Arc<dyn RemoteCall>) {
        if let Some(about) = asked.call_once() {
            self.events.notify(about);
        }
        match asked.next_call() {
            NextCall::Over => (),
            NextCall::Again if self.ask(asked.clone()) => (),
            NextCall::Again => asked.give_up(),
            // At most one for each object.
            NextCall::Later(rest) => self.queue.lock().later.push((self.clock.now().saturating_add(rest), asked)),
        }
    }

    /// Makes queued calls until the time ends; their results are ignored.
    fn finish(&self) {
        let until = self.clock.now().saturating_add(ENDING);
        while self.clock.now() < until {
            let Some(asked) = self.queue.lock().now.pop_front() else { return };
            let _ = asked.call_once();
            if let NextCall::Again = asked.next_call() {
                self.queue.lock().now.push_back(asked);
            }
        }
    }

    /// Stops the threads.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.wake.post();
    }

    /// Waits for the threads.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        // A panic has already been reported.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
