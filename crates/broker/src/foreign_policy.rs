//! Policies in other processes and libraries: their common part.

use std::fmt;

use hyoshi_control::policy::{AnyPolicy, ExternalPolicy, LawViolation, PolicyWords};
use hyoshi_control::{Ask, Grant, GroupId, Limit, Policy, TaskId};
use hyoshi_model::Share;

use crate::external::ExternalEvents;

/// A policy outside the broker.
pub(crate) trait PolicySource: fmt::Debug + Send {
    /// Its name.
    const NAME: &'static str;
    /// Its name in a sentence.
    const LABEL: &'static str;

    /// Fetches the answer for these requests, before they are settled.
    fn fetch(&mut self, foreign: &mut ExternalPolicy, asks: &[Ask], cap: Share);

    /// Sends the requests once they are settled.
    fn ask(&mut self, asks: &[Ask], cap: Share) {
        let _ = (asks, cap);
    }

    /// Its description.
    fn description(&self) -> Option<String>;

    fn events(&self) -> &ExternalEvents;
}

/// A foreign policy with its fallback, which decides while the policy does not answer.
#[derive(Debug)]
pub(crate) struct ForeignPolicy<S> {
    source: S,
    foreign: ExternalPolicy,
}

impl<S: PolicySource> ForeignPolicy<S> {
    pub fn new(source: S, fallback: AnyPolicy) -> Self {
        ForeignPolicy { source, foreign: ExternalPolicy::new(fallback) }
    }
}

impl<S: PolicySource> Policy for ForeignPolicy<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    /// A foreign policy reports no reasons.
    fn manner(&self, group: GroupId) -> &str {
        if self.foreign.decides() { "" } else { self.foreign.fallback.manner(group) }
    }

    fn arbitrate(&mut self, asks: &[Ask], limit: Limit, grants: &mut Vec<Grant>) {
        self.source.fetch(&mut self.foreign, asks, limit.share());
        self.foreign.arbitrate(asks, limit, grants);
        self.source.ask(asks, limit.share());
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.foreign.decides() {
            let instead = PolicyWords(&*self.foreign.fallback);
            return match self.foreign.why() {
                None => write!(f, "{instead} until {} answers", S::LABEL),
                Some(reason) => write!(f, "{instead}, because {} is bypassed: {reason}", S::LABEL),
            };
        }
        match self.source.description() {
            Some(words) => write!(f, "{} ({words})", S::NAME)?,
            None => f.write_str(S::NAME)?,
        }
        exceeded(&self.foreign, self.source.events(), f)
    }

    /// All tasks with a reservation, if the foreign policy decides.
    fn blame(&self, asks: &[Ask], grants: &[Grant], index: usize, name: &mut dyn FnMut(TaskId, Share)) {
        if !self.foreign.decides() {
            return self.foreign.fallback.blame(asks, grants, index, name);
        }
        for (other, grant) in grants.iter().enumerate().take(asks.len()) {
            if other != index && grant.reservation.is_some() {
                name(grant.task, grant.share());
            }
        }
    }

    fn group_count(&self) -> u32 {
        self.foreign.fallback.group_count()
    }

    fn group(&self, name: &str) -> Option<GroupId> {
        self.foreign.fallback.group(name)
    }

    fn group_name(&self, group: GroupId) -> Option<&str> {
        self.foreign.fallback.group_name(group)
    }
}

/// Describes how the policy violated its contract, if it did.
fn exceeded(foreign: &ExternalPolicy, events: &ExternalEvents, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match foreign.exceeded() {
        None => Ok(()),
        Some(LawViolation::Ask(task)) => {
            write!(f, "; cut, because it granted more than requested to {}", events.name_of(task))
        }
        Some(LawViolation::Limit(task)) => {
            write!(f, "; cut, because it granted more than the cap, from {} on", events.name_of(task))
        }
    }
}
