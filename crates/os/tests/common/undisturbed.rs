//! Tests of times on the kernel, which interrupts and a hypervisor can disturb.

use super::steal::interruptions;

/// Runs a test, and repeats it if it fails while interrupts or a hypervisor used CPU time, which stalls every thread for
/// up to 10 ms. The fifth failure always counts; without such time the first one does.
pub fn undisturbed(test: impl Fn()) {
    for attempt in 1.. {
        let before = interruptions();
        let Err(failure) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) else { return };
        if attempt == 5 || interruptions() == before {
            std::panic::resume_unwind(failure);
        }
        eprintln!("attempt {attempt}: something else took CPU time");
    }
}
