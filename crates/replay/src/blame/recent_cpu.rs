//! The recent users of a CPU, which explain late releases.

use std::collections::VecDeque;

use hyoshi_model::{Instant, Span};

use super::ResponsePart;
use super::cpu_changes::{CpuOccupant, sum};

/// The most intervals kept. Older parts of a late release stay unexplained.
const REMEMBERED: usize = 256;

/// An interval of the CPU's time.
#[derive(Clone, Copy, Debug)]
struct CpuInterval {
    from: Instant,
    to: Instant,
    occupant: CpuOccupant,
    /// It ended by preemption.
    preempted: bool,
    /// Total time of the hypervisor before it.
    stolen: Span,
}

/// The latest intervals of a CPU's time.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentCpu {
    stretches: VecDeque<CpuInterval>,
    stolen: Span,
}

impl RecentCpu {
    /// Adds an interval.
    pub fn slice(&mut self, from: Instant, to: Instant, occupant: CpuOccupant) {
        if let Some(last) = self.stretches.back_mut()
            && last.occupant == occupant
            && last.to == from
        {
            last.to = to;
            return;
        }
        if self.stretches.len() >= REMEMBERED {
            self.stretches.pop_front();
        }
        self.stretches.push_back(CpuInterval { from, to, occupant, preempted: false, stolen: self.stolen });
    }

    /// Records how the last interval ended.
    pub fn ended_by_preemption(&mut self, preempted: bool) {
        if let Some(last) = self.stretches.back_mut() {
            last.preempted = preempted;
        }
    }

    /// Adds time of the hypervisor.
    pub fn stolen(&mut self, span: Span) {
        self.stolen = sum(self.stolen, span);
    }

    /// Total time of the hypervisor before `at`.
    pub fn stolen_before(&self, at: Instant) -> Span {
        let first = self.stretches.iter().find(|stretch| stretch.to > at);
        first.map_or(self.stolen, |stretch| stretch.stolen)
    }

    /// The causes of a late release, from its due time until it happened.
    ///
    /// The release thread is above all lanes and all ordinary threads. A thread that kept the CPU until it blocked was
    /// more urgent. A thread that was preempted was less urgent: it had the CPU because the timer was late.
    pub fn late(&self, due: Instant, released: Instant) -> Vec<(ResponsePart, Instant, Instant)> {
        let mut parts: Vec<(ResponsePart, Instant, Instant)> = Vec::new();
        let mut at = due;
        let within = self.stretches.iter().filter(|stretch| stretch.to > due && stretch.from < released);
        for stretch in within {
            let kind = match stretch.occupant {
                CpuOccupant::Other(name) if !stretch.preempted => ResponsePart::Other(name),
                CpuOccupant::Overhead(_) => ResponsePart::Overhead,
                _ => continue,
            };
            let (from, to) = (stretch.from.max(at), stretch.to.min(released));
            if from > at {
                parts.push((ResponsePart::TimerLate, at, from));
            }
            if to > from {
                parts.push((kind, from, to));
            }
            at = at.max(to);
        }
        if released > at {
            parts.push((ResponsePart::TimerLate, at, released));
        }
        parts
    }
}
