//! Wake-ups decided under the lock and delivered after it: a thread that is more urgent than the
//! one that posts would otherwise start, run into the lock, and lend its priority to no purpose.

use std::sync::{Arc, OnceLock};

use hyoshi_model::ProcessorId;
use hyoshi_os::Wake;

use crate::common::{Common, Signs};
use crate::requests::{MOST, Requests};

/// Collected wake-ups; each thread keeps one and uses it again.
#[derive(Debug)]
pub(crate) struct Posts {
    common: Arc<Common>,
    crew: Vec<Arc<Signs>>,
    background: Arc<Wake>,
    requests: Arc<OnceLock<Requests>>,
    threads: Vec<u16>,
    /// Requests that no job serves.
    refused: Vec<u32>,
    /// A thread of the lane that reads requests is among the threads.
    to_reader: bool,
    processors: Vec<ProcessorId>,
    to_background: bool,
    /// The most urgent lane among the threads.
    first_lane: u8,
}

impl Posts {
    pub fn new(
        common: Arc<Common>,
        crew: Vec<Arc<Signs>>,
        background: Arc<Wake>,
        requests: Arc<OnceLock<Requests>>,
    ) -> Self {
        // A thread is posted at most once in a section of the lock, and so is a processor.
        let (threads, processors) = (Vec::with_capacity(crew.len() + 1), Vec::with_capacity(common.releases.len() + 1));
        Posts {
            common,
            crew,
            background,
            requests,
            threads,
            refused: Vec::with_capacity(MOST),
            to_reader: false,
            processors,
            to_background: false,
            first_lane: u8::MAX,
        }
    }

    pub fn thread(&mut self, thread: u16, lane: u8) {
        self.threads.push(thread);
        self.to_reader |= self.requests.get().is_some_and(|requests| requests.lane == lane);
        self.first_lane = self.first_lane.min(lane);
    }

    pub fn release(&mut self, processor: ProcessorId) {
        if !self.processors.contains(&processor) {
            self.processors.push(processor);
        }
    }

    /// The release thread of `processor` is the one that posts.
    pub fn not(&mut self, processor: ProcessorId) {
        self.processors.retain(|other| *other != processor);
    }

    /// No job serves this request.
    pub fn refuse(&mut self, call: u32) {
        self.refused.push(call);
    }

    /// Wakes the thread that waits for requests, for any kind of post.
    pub fn reader(&mut self) {
        self.to_reader = true;
    }

    pub fn background(&mut self) {
        self.to_background = true;
    }

    /// True if a thread of a more urgent lane is among them.
    pub fn above(&self, lane: u8) -> bool {
        self.first_lane < lane
    }

    /// Threads of lanes among them.
    #[cfg(test)]
    pub fn threads(&self) -> &[u16] {
        &self.threads
    }

    /// Wakes none of them.
    pub fn clear(&mut self) {
        self.threads.clear();
        self.refused.clear();
        self.to_reader = false;
        self.processors.clear();
        (self.to_background, self.first_lane) = (false, u8::MAX);
    }

    /// Wakes them all.
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
        self.first_lane = u8::MAX;
    }

    #[cold]
    fn refuse_all(&mut self) {
        if let Some(requests) = self.requests.get() {
            self.refused.iter().for_each(|call| requests.refuse(*call));
        }
        self.refused.clear();
    }
}
