//! Who waits for an experiment.

/// Who waits for it.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told of each step.
    pub step: &'a (dyn Fn(&str) + Sync),
    /// Asked now and then; true ends the experiment.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

/// It was ended before it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;
