//! Wake-ups that are decided under the lock and delivered after it. A more urgent thread that is woken earlier would
//! start, block on the lock, and lend its priority without effect.

use std::sync::{Arc, OnceLock};

use hyoshi_model::ProcessorId;
use hyoshi_os::Wake;

use crate::common::{CommonState, ThreadControl};
use crate::requests::{MOST, Requests};

/// Collected wake-ups. Each thread reuses its own.
#[derive(Debug)]
pub(crate) struct PendingWakeups {
    common: Arc<CommonState>,
    crew: Vec<Arc<ThreadControl>>,
    background: Arc<Wake>,
    requests: Arc<OnceLock<Requests>>,
    threads: Vec<u16>,
    /// Requests that no job serves.
    refused: Vec<u32>,
    /// The threads include one of the lane that reads requests.
    to_reader: bool,
    processors: Vec<ProcessorId>,
    /// A processor of each host to which threads move.
    hops: Vec<ProcessorId>,
    /// The calling thread sends these hops.
    sends_hops: bool,
    to_background: bool,
    to_feed: bool,
    to_actions: bool,
    /// The loop of this processor has set rates of clients.
    to_pacer: Option<ProcessorId>,
    /// The most urgent lane of the threads.
    first_lane: u8,
}

impl PendingWakeups {
    pub fn new(
        common: Arc<CommonState>,
        crew: Vec<Arc<ThreadControl>>,
        background: Arc<Wake>,
        requests: Arc<OnceLock<Requests>>,
    ) -> Self {
        // A section wakes a thread or processor at most once.
        let (threads, processors) = (Vec::with_capacity(crew.len() + 1), Vec::with_capacity(common.releases.len() + 1));
        let hops = Vec::with_capacity(common.releases.len());
        PendingWakeups {
            common,
            crew,
            background,
            requests,
            threads,
            refused: Vec::with_capacity(MOST),
            to_reader: false,
            processors,
            hops,
            sends_hops: false,
            to_background: false,
            to_feed: false,
            to_actions: false,
            to_pacer: None,
            first_lane: u8::MAX,
        }
    }

    pub fn wake_thread(&mut self, thread: u16, lane: u8) {
        self.threads.push(thread);
        self.to_reader |= self.requests.get().is_some_and(|requests| requests.lane == lane);
        self.first_lane = self.first_lane.min(lane);
    }

    pub fn wake_release(&mut self, processor: ProcessorId) {
        if !self.processors.contains(&processor) {
            self.processors.push(processor);
        }
    }

    /// A thread moves to a processor of another host.
    pub fn send_hop(&mut self, processor: ProcessorId) {
        if !self.hops.contains(&processor) {
            self.hops.push(processor);
        }
    }

    /// The calling thread serves `lane`, and sends the hops itself. If a thread of a more urgent lane is woken, the
    /// sender's thread sends them: otherwise they would wait for that lane.
    pub fn send_hops_on(&mut self, lane: u8) {
        self.sends_hops = !self.hops.is_empty() && !self.above(lane);
    }

    /// The calling thread is the release thread of `processor`.
    pub fn omit_release(&mut self, processor: ProcessorId) {
        self.processors.retain(|other| *other != processor);
    }

    /// No job serves this request.
    pub fn refuse(&mut self, call: u32) {
        self.refused.push(call);
    }

    /// Wakes the thread that waits for requests, for any reason.
    pub fn wake_reader(&mut self) {
        self.to_reader = true;
    }

    pub fn wake_background(&mut self) {
        self.to_background = true;
    }

    /// Wakes the thread that reads the feed of events.
    pub fn wake_feed(&mut self) {
        self.to_feed = true;
    }

    /// Wakes the thread that executes actions of contracts.
    pub fn wake_actions(&mut self) {
        self.to_actions = true;
    }

    /// Wakes the thread that informs clients of their rates.
    pub fn wake_pacer(&mut self, processor: ProcessorId) {
        self.to_pacer = Some(processor);
    }

    /// True if they include a thread of a more urgent lane.
    pub fn above(&self, lane: u8) -> bool {
        self.first_lane < lane
    }

    /// The threads of lanes among them.
    #[cfg(test)]
    pub fn threads(&self) -> &[u16] {
        &self.threads
    }

    /// Drops all wake-ups.
    pub fn clear(&mut self) {
        self.threads.clear();
        self.refused.clear();
        self.to_reader = false;
        self.processors.clear();
        self.hops.clear();
        (self.to_background, self.to_feed, self.to_actions) = (false, false, false);
        (self.to_pacer, self.first_lane) = (None, u8::MAX);
    }

    /// Delivers all wake-ups.
    #[inline]
    pub fn deliver(&mut self) {
        self.threads.drain(..).for_each(|thread| self.crew[usize::from(thread)].wake.post());
        self.processors.drain(..).for_each(|processor| self.common.release_of(processor).post());
        if std::mem::take(&mut self.to_reader)
            && let Some(requests) = self.requests.get()
        {
            requests.poke();
        }
        if !self.refused.is_empty() {
            self.refuse_all();
        }
        if std::mem::take(&mut self.to_background) {
            self.background.post();
        }
        if std::mem::take(&mut self.to_feed) {
            self.common.feed.post();
        }
        if std::mem::take(&mut self.to_actions) {
            self.common.actions.post();
        }
        if let Some(processor) = self.to_pacer.take() {
            self.common.client_periods[processor.index()].changed.post();
        }
        self.first_lane = u8::MAX;
        // Last: the other wake-ups do not wait for it.
        let sends = std::mem::take(&mut self.sends_hops);
        for processor in self.hops.drain(..) {
            if !(sends && self.common.try_send_to(processor)) {
                self.common.release_of(processor).post();
            }
        }
    }

    #[cold]
    fn refuse_all(&mut self) {
        if let Some(requests) = self.requests.get() {
            self.refused.iter().for_each(|call| requests.refuse(*call));
        }
        self.refused.clear();
    }
}
