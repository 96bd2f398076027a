//! Lanes on the kernel: who runs before whom.

mod common;

use common::{privileged, run};
use hyoshi_runtime::EndedBy;
use hyoshi_trace::Outcome;

#[test]
fn jobs_of_two_rates_are_released_run_and_counted() {
    let ran = run("
        duration = \"500ms\"
        [processor.main]
        strategy = \"RMS\"
        [operation.fast]
        every = \"10ms\"
        wcet = \"1ms\"
        [operation.slow]
        every = \"50ms\"
        wcet = \"10ms\"
    ");
    assert_eq!(ran.finished.ended_by, EndedBy::Duration);
    let (fast, slow) = (ran.finished_jobs("fast"), ran.finished_jobs("slow"));
    // The release at 500 ms may or may not be seen.
    assert!((50..=51).contains(&fast) && (10..=11).contains(&slow), "{fast} {slow}");
    if privileged(&ran) {
        assert!(ran.count("fast", Outcome::Made) >= 49, "{:?}", ran.ends_of("fast"));
    }
    ran.replay();
}
