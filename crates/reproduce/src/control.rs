//! Control of a running experiment.

use serde::Serialize;

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

/// The length of the experiments on the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Length {
    /// The shortest meaningful length.
    Short,
    /// Long enough for a rating.
    #[default]
    Usual,
    /// As in the paper.
    Paper,
}

/// The experiment was stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// The reason why a part of an experiment has no result.
#[derive(Debug)]
pub(crate) enum NoResult {
    /// Stopped by the caller.
    Stopped,
    /// The reason as text.
    Because(String),
}

impl From<Stopped> for NoResult {
    fn from(_: Stopped) -> Self {
        NoResult::Stopped
    }
}

impl From<std::io::Error> for NoResult {
    fn from(error: std::io::Error) -> Self {
        NoResult::Because(error.to_string())
    }
}

/// Returns a result, or adds the reason for its absence to the notes.
pub(crate) fn or_note<T>(
    what: &str,
    result: Result<T, NoResult>,
    notes: &mut Vec<String>,
    control: ExperimentControl<'_>,
) -> Result<Option<T>, Stopped> {
    // An interrupt from the keyboard ends the programs, too: their last output is not a result.
    if (control.stop)() {
        return Err(Stopped);
    }
    match result {
        Ok(result) => Ok(Some(result)),
        Err(NoResult::Stopped) => Err(Stopped),
        Err(NoResult::Because(why)) => {
            notes.push(format!("{what}: no result on the kernel: {why}"));
            Ok(None)
        }
    }
}
