//! The threads that ask.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Policy, Spawn, Thread, Wake, priority};

use super::{ExternalEvent, ExternalEvents};
use crate::request_error::RequestError;

/// Questions that wait; beyond, requests go on as they came.
const QUESTIONS: usize = 1_024;
/// How long what is to be told at the end may take.
const ENDING: Span = Span::from_secs(1);

/// Somebody who is asked. One thread at a time asks one of them, so that a slow one has no more than that.
pub(super) trait RemoteCall: Send + Sync {
    /// Asks what there is to ask. Some if the broker is to be driven again.
    fn call_once(&self) -> Option<ExternalEvent>;

    /// What comes next; nobody has it in hand any more once it is over.
    fn next_call(&self) -> NextCall;

    /// There is no room for its question.
    fn give_up(&self);
}

/// What comes after a talk.
pub(super) enum NextCall {
    /// Nothing, until it is asked again.
    Over,
    /// More, which came meanwhile.
    Again,
    /// More, after a while.
    Later(Span),
}

pub(super) struct CallPool {
    name: &'static str,
    most: usize,
    queue: PiMutex<CallQueue>,
    wake: Wake,
    clock: MonotonicClock,
    ends: AtomicBool,
    threads: PiMutex<Vec<Thread<()>>>,
    events: Arc<ExternalEvents>,
}

#[derive(Default)]
struct CallQueue {
    now: VecDeque<Arc<dyn RemoteCall>>,
    later: Vec<(Instant, Arc<dyn RemoteCall>)>,
}

impl CallQueue {
    /// The next to be asked, and else when there will be one.
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

    /// Starts the threads, if they do not run.
    ///
    /// # Errors
    ///
    /// If there are no threads to be had.
    pub fn start(self: &Arc<Self>) -> Result<(), RequestError> {
        let mut threads = self.threads.lock();
        while threads.len() < self.most {
            let pool = self.clone();
            // As urgent as the broker: an answer that is late for want of the CPU helps nobody.
            let spawn = Spawn::new(format!("{}-{}", self.name, threads.len())).policy(Policy::Fifo(priority::BROKER));
            threads.push(spawn.spawn(move || pool.work()).map_err(|error| {
                let what = format!("cannot start a thread for calls to other processes: {error}");
                RequestError::refused(what, "end other threads on this system")
            })?);
        }
        Ok(())
    }

    /// False if too many wait.
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
                // The next thread shall see that it is over, too.
                self.wake.post();
                return self.finish();
            }
            let (asked, more) = {
                let mut queue = self.queue.lock();
                (queue.next(self.clock.now()), !queue.now.is_empty())
            };
            // Posts coalesce: others look for what is left.
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
            // At most one for each that is asked at all.
            NextCall::Later(rest) => self.queue.lock().later.push((self.clock.now().saturating_add(rest), asked)),
        }
    }

    /// What waits is said while there is time; nobody hears of what comes of it.
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

    /// Nothing new is asked.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.wake.post();
    }

    /// Waits for its threads.
    pub fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        // A panic of one of them would have been told by itself.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}
