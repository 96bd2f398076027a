//! Calls between processors in a run: the method gets the caller's payload, the caller's remaining part gets the
//! answer, and a replay repeats the dispatchers' decisions.

use crate::common;

use std::sync::{Arc, Mutex};

use common::run_with;
use hyoshi_runtime::EndedBy;

#[test]
fn a_request_reaches_the_method_and_its_answer_the_rest_of_the_caller() {
    let seen: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let store = seen.clone();
    let ran = run_with(
        "
        duration = \"400ms\"
        [host.a]
        [host.b]
        [processor.p]
        host = \"a\"
        [processor.q]
        host = \"b\"
        [[link]]
        between = [\"a\", \"b\"]
        delay = \"1ms\"
        [operation.plan]
        on = \"p\"
        every = \"20ms\"
        wcet = \"2ms\"
        payload = \"8B\"
        calls = { method = \"locate\", after = \"1ms\" }
        [operation.note]
        on = \"p\"
        every = \"40ms\"
        wcet = \"0.2ms\"
        calls = { method = \"log\", after = \"0.1ms\", oneway = true }
        [operation.locate]
        on = \"q\"
        wcet = \"1ms\"
        payload = \"8B\"
        called = true
        [operation.log]
        on = \"q\"
        wcet = \"0.1ms\"
        called = true
        ",
        |node, _| {
            node.body("plan:call", |job| job.emit_value(&(job.job().number * 3)).unwrap())
                .body("locate@plan", |job| {
                    let asked: u64 = job.read().unwrap();
                    job.emit_value(&(asked + 1)).unwrap();
                })
                .body("plan", move |job| store.lock().unwrap().push((job.job().number, job.read().unwrap())))
        },
    );
    assert_eq!(ran.finished.ended_by, EndedBy::Duration);
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 15, "{seen:?}");
    assert!(seen.iter().all(|(number, answer)| *answer == number * 3 + 1), "{seen:?}");
    assert!(ran.finished_jobs("log@note") >= 7 && ran.finished_jobs("note") >= 7);
    ran.replay();
}
