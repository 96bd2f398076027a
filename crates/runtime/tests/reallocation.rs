//! Moves of operations between processors on the kernel.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common;

use common::{privileged, run_with, undisturbed::undisturbed, work};
use hyoshi_model::Span;
use hyoshi_runtime::RunNote;
use hyoshi_trace::{Input, TraceEvent};

/// `detect` needs seven times its declared time, 70 % of the CPU at its lowest rate.
const SATURATED: &str = "
    duration = \"4s\"
    [processor.front]
    [processor.rear]
    [feedback.front]
    algorithm = \"FC-U\"
    utilisation = \"50%\"
    period = \"100ms\"
    measure = \"lanes\"
    [feedback.rear]
    algorithm = \"FC-U\"
    utilisation = \"50%\"
    period = \"100ms\"
    measure = \"lanes\"
    [operation.detect]
    on = \"front\"
    rate = [\"20Hz\", \"100Hz\"]
    wcet = \"5ms\"
    takes = { uniform = [\"35ms\", \"35ms\"] }
    [operation.track]
    on = [\"front\", \"rear\"]
    rate = [\"20Hz\", \"40Hz\"]
    wcet = \"2ms\"
    queue = { limit = 64 }
    [operation.plan]
    on = \"rear\"
    rate = [\"10Hz\", \"20Hz\"]
    wcet = \"1ms\"
    ";

#[test]
fn an_operation_moves_with_its_body_and_its_state() {
    undisturbed(|| {
        let (seen, inside) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let ran = run_with(SATURATED, |node, _| {
            let (seen, inside) = (seen.clone(), inside.clone());
            // The state of the body.
            let mut count = 0;
            node.body("track", move |job| {
                assert_eq!(job.operation(), "track");
                assert!(!inside.swap(true, Ordering::SeqCst), "two jobs at a time");
                work(Span::from_millis(1));
                seen.lock().unwrap().push((count, job.job().number));
                count += 1;
                inside.store(false, Ordering::SeqCst);
            })
        });
        ran.replay();
        if !privileged(&ran) {
            return;
        }
        let arrived =
            ran.events.iter().position(|(.., event)| matches!(event, TraceEvent::Input(Input::Arrive { .. })));
        assert!(arrived.is_some(), "nothing moved: {:?}", ran.finished.notes);
        let seen = seen.lock().unwrap();
        assert!(seen.len() > 40, "{seen:?}");
        assert!(seen.iter().enumerate().all(|(at, one)| *one == (at as u64, at as u64)), "{seen:?}");
        let [front, rear] = ["track", "track@rear"].map(|name| ran.finished_jobs(name));
        assert!(front >= 10 && rear >= 10 && front + rear >= seen.len() - 1, "{front} and {rear}");
    });
}

#[test]
fn a_move_that_the_file_does_not_permit_is_a_note() {
    undisturbed(|| {
        let ran = run_with(&SATURATED.replace("[\"front\", \"rear\"]", "\"front\""), |node, _| node);
        if !privileged(&ran) {
            return;
        }
        let proposed = ran.finished.notes.iter().find_map(|note| match note {
            RunNote::ProposedMove { operation, from, to, .. } => Some([operation, from, to].map(String::as_str)),
            _ => None,
        });
        assert_eq!(proposed, Some(["track", "front", "rear"]), "{:?}", ran.finished.notes);
    });
}
