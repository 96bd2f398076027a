//! Who had the CPU lately: what explains a release that came late.

use std::collections::VecDeque;

use hyoshi_model::{Instant, Span};

use super::Kind;
use super::marks::{Holder, sum};

/// Stretches that are remembered. A release that is later than they reach back has the rest unexplained.
const REMEMBERED: usize = 256;

/// A stretch of the CPU's time.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Instant,
    to: Instant,
    holder: Holder,
    /// It ended because something more urgent could run.
    preempted: bool,
    /// All that the hypervisor is known to have taken before it.
    stolen: Span,
}

/// The last stretches of a CPU's time.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    stretches: VecDeque<Stretch>,
    stolen: Span,
}

impl Past {
    /// The CPU was so used.
    pub fn slice(&mut self, from: Instant, to: Instant, holder: Holder) {
        if let Some(last) = self.stretches.back_mut()
            && last.holder == holder
            && last.to == from
        {
            last.to = to;
            return;
        }
        if self.stretches.len() >= REMEMBERED {
            self.stretches.pop_front();
        }
        self.stretches.push_back(Stretch { from, to, holder, preempted: false, stolen: self.stolen });
    }

    /// The last stretch ended so.
    pub fn ended_by_preemption(&mut self, preempted: bool) {
        if let Some(last) = self.stretches.back_mut() {
            last.preempted = preempted;
        }
    }

    /// A hypervisor took so much more.
    pub fn stolen(&mut self, span: Span) {
        self.stolen = sum(self.stolen, span);
    }

    /// All that it is known to have taken before `at`.
    pub fn stolen_before(&self, at: Instant) -> Span {
        let first = self.stretches.iter().find(|stretch| stretch.to > at);
        first.map_or(self.stolen, |stretch| stretch.stolen)
    }

    /// What a late release is due to, from when it was due until it came.
    ///
    /// The release thread stands above every lane and every ordinary thread. Another thread that kept the CPU until it
    /// gave it up by itself was more urgent; one that was preempted was not, and had the CPU because the timer was late.
    pub fn late(&self, due: Instant, came: Instant) -> Vec<(Kind, Instant, Instant)> {
        let mut parts: Vec<(Kind, Instant, Instant)> = Vec::new();
        let mut at = due;
        let within = self.stretches.iter().filter(|stretch| stretch.to > due && stretch.from < came);
        for stretch in within {
            let kind = match stretch.holder {
                Holder::Other(name) if !stretch.preempted => Kind::Other(name),
                Holder::Overhead(_) => Kind::Overhead,
                _ => continue,
            };
            let (from, to) = (stretch.from.max(at), stretch.to.min(came));
            if from > at {
                parts.push((Kind::TimerLate, at, from));
            }
            if to > from {
                parts.push((kind, from, to));
            }
            at = at.max(to);
        }
        if came > at {
            parts.push((Kind::TimerLate, at, came));
        }
        parts
    }
}
