//! Tests of times on the kernel, which a hypervisor can disturb.

use super::steal::stolen;

/// Runs a test, and repeats it if it fails while a hypervisor used CPU time, which stalls every thread for up to 10 ms.
/// The fifth failure always counts; without stolen time the first one does.
pub fn undisturbed(test: impl Fn()) {
    for attempt in 1.. {
        let before = stolen();
        let Err(failure) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) else { return };
        if attempt == 5 || stolen() == before {
            std::panic::resume_unwind(failure);
        }
        eprintln!("attempt {attempt}: a hypervisor took CPU time");
    }
}
