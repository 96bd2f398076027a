//! What a program does around waits for replies: a job of a node gives its lane up meanwhile.

use std::sync::OnceLock;

/// Runs what it is given, once, and whatever belongs around it.
type Around = fn(&mut dyn FnMut());

static AROUND: OnceLock<Around> = OnceLock::new();

/// From now on each call of this process that waits for a reply runs within `around`, on the calling thread. It must run what
/// it is given exactly once. Only the first setting of a process counts.
pub fn around_waits(around: fn(&mut dyn FnMut())) {
    let _ = AROUND.set(around);
}

/// Runs something that waits.
#[inline]
pub(crate) fn wait<R>(run: impl FnOnce() -> R) -> R {
    match AROUND.get() {
        None => run(),
        Some(around) => within(*around, run),
    }
}

fn within<R>(around: Around, run: impl FnOnce() -> R) -> R {
    let (mut run, mut result) = (Some(run), None);
    around(&mut || {
        if let Some(run) = run.take() {
            result = Some(run());
        }
    });
    match (result, run) {
        (Some(result), _) => result,
        (None, Some(run)) => run(),
        // It was taken and gave a result.
        (None, None) => unreachable!("what ran has a result"),
    }
}
