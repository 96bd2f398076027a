//! Control of a running experiment.

/// Callbacks of a running experiment.
#[derive(Clone, Copy)]
pub struct ExperimentControl<'a> {
    /// Receives the name of each step.
    pub step: &'a (dyn Fn(&str) + Sync),
    /// Polled regularly; true stops the experiment.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for ExperimentControl<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

/// The experiment was stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;
