//! A hook around waits for replies: a node's job releases its lane meanwhile.

use std::sync::OnceLock;

/// Runs its argument once, with other code before and after it.
type Around = fn(&mut dyn FnMut());

static AROUND: OnceLock<Around> = OnceLock::new();

/// Each later call of this process that waits for a reply runs within `around`, on the calling thread. `around` must run
/// its argument exactly once. Only the first setting of a process counts.
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
        // Taking it produced a result.
        (None, None) => unreachable!("it ran without a result"),
    }
}
