//! Calls: while a job waits for an answer the next one of its lane runs, and proofs of systems with calls hold in
//! simulation.

use crate::common;

use common::random::Choices;
use common::sound::{Account, check};
use hyoshi_model::{Span, System, read, write};
use hyoshi_trace::{DispatchDecision, JobOutcome, TraceEvent};

fn system(text: &str) -> System {
    read(text, "calls.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system
}

#[test]
fn who_waits_for_an_answer_holds_no_run_token() {
    // One lane, in which nothing preempts: `other` could not run before `plan` ends if that kept the token.
    let text = "name = 'token'\n[host.a]\n[host.b]\n[processor.p]\nhost = 'a'\npreemption = 'none'\n\
        [processor.q]\nhost = 'b'\n[[link]]\nbetween = ['a', 'b']\ndelay = '2ms'\n\
        [operation.plan]\non = 'p'\nevery = '100ms'\nwcet = '3ms'\ncalls = { method = 'locate', after = '1ms' }\n\
        [operation.other]\non = 'p'\nevery = '100ms'\noffset = '0.5ms'\nwcet = '4ms'\n\
        [operation.locate]\non = 'q'\nwcet = '4ms'\ncalled = true\n";
    let ends = |text: &str| -> Vec<(String, u64)> {
        let system = system(text);
        let events = common::events(&system, hyoshi_model::Instant::ZERO + Span::from_millis(90));
        let ended = events.into_iter().filter_map(|(_, at, event)| match event {
            TraceEvent::Decision(DispatchDecision::End(end)) if end.outcome == JobOutcome::Made => {
                Some((system.operation(end.job.operation).name.clone(), at.as_nanos() / 1_000))
            }
            _ => None,
        });
        ended.collect()
    };
    let named = |ends: &[(&str, u64)]| ends.iter().map(|(name, at)| (name.to_string(), *at)).collect::<Vec<_>>();
    // 1 ms, 2 ms of network, 4 ms, 2 ms of network, 2 ms.
    let two_way = [("plan:call", 1_000), ("other", 5_000), ("locate@plan", 7_000), ("plan", 11_000)];
    assert_eq!(ends(text), named(&two_way));
    let oneway = text.replace("after = '1ms'", "after = '1ms', oneway = true");
    let ended = ends(&oneway);
    assert!(ended.contains(&("locate@plan".into(), 7_000)), "{ended:?}");
    // `other` has waited since 0.5 ms, the rest of `plan` since 1 ms.
    assert!(ended.contains(&("other".into(), 5_000)) && ended.contains(&("plan".into(), 7_000)), "{ended:?}");
}

/// A file with two processors, some methods and some callers.
fn drawn(seed: u64) -> String {
    let mut choose = Choices::new(seed);
    let mut text = String::from("name = 'drawn'\n[host.a]\n[host.b]\n[[link]]\nbetween = ['a', 'b']\n");
    text += &format!("delay = ['{}us', '900us']\n", choose.below(900));
    for (processor, host) in [("p", "a"), ("q", "b")] {
        let strategy = choose.of(&["RMS", "DM", "EDF", "MUF", "RMS+MLF"]);
        let preemption = choose.of(&["levels", "full", "none"]);
        text += &format!("[processor.{processor}]\nhost = '{host}'\nstrategy = '{strategy}'\n");
        text += &format!("preemption = '{preemption}'\ncap = '100%'\n");
    }
    // The first method may call the second.
    let nested = choose.one_in(2);
    for method in 0..2 {
        let calls = if method == 0 && nested { "calls = { method = 'm1', after = '200us' }\n" } else { "" };
        let (on, wcet) = (choose.of(&["p", "q"]), 300 + choose.below(2_000));
        text += &format!("[operation.m{method}]\non = '{on}'\ncalled = true\nwcet = '{wcet}us'\n{calls}");
        if choose.one_in(4) {
            text += "guard = 'off'\n";
        }
    }
    for caller in 0..4 {
        let (on, wcet) = (choose.of(&["p", "q"]), 1_000 + choose.below(2_000));
        text += &format!("[operation.c{caller}]\non = '{on}'\nwcet = '{wcet}us'\n");
        let is_periodic = caller < 3 || choose.one_in(2);
        if !is_periodic {
            text += "after = { all = ['c0'] }\n";
        } else {
            text += &format!("every = '{}ms'\n", choose.of(&[20u64, 25, 40, 50, 100]));
        }
        if choose.one_in(3) {
            text += &format!("takes = {{ uniform = ['950us', '{wcet}us'] }}\n");
        }
        if choose.one_in(2) {
            text += "critical = true\n";
        }
        // The first two ensure that each method is called.
        if caller < 2 || choose.one_in(2) {
            let method = if caller < 2 { caller } else { choose.below(2) };
            let (after, oneway) = (100 + choose.below(800), choose.one_in(3));
            let divide = is_periodic && !oneway && choose.one_in(2);
            text += &format!("calls = {{ method = 'm{method}', after = '{after}us', oneway = {oneway}, ");
            text += &format!("divide = {divide} }}\n");
        }
    }
    text
}

#[test]
fn what_is_proved_of_calls_holds_and_what_fails_is_seen_to() {
    let mut account = Account::new();
    for seed in 0..400 {
        let text = drawn(seed);
        let system = system(&text);
        if let Err(wrong) = check(&system, &mut account) {
            panic!("seed {seed}: {wrong}\n{text}\n{}", write(&system));
        }
    }
    let bounds: u64 = account.values().map(|tally| tally.bounds).sum();
    println!("{bounds} bounds held");
    assert!(bounds > 2_000, "only {bounds} bounds were compared");
}
