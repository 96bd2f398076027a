//! The laws of advocates, over every line of the table.

use hyoshi_control::advocate::{KINDS, Words};
use hyoshi_control::{Advocate, AdvocateChain, Spec, Status, Values};
use hyoshi_model::{Instant, Reservation, Span};
use proptest::prelude::*;

/// One of each kind, by its defaults where it has any.
fn all() -> Vec<Box<dyn Advocate>> {
    let spec = |name: &str, settings: &[(&str, &str)]| Spec::new(name, settings.iter().copied()).unwrap().build();
    KINDS
        .iter()
        .map(|kind| match kind.name {
            "rate" | "cap" | "floor" => spec(kind.name, &[("share", "25%")]),
            "value" => spec(kind.name, &[("each", "3ms")]),
            name => spec(name, &[]),
        })
        .collect()
}

#[derive(Clone, Debug)]
struct DrawnReport {
    consumed: u64,
    cycles: u32,
    mode: Option<u32>,
    values: Vec<i64>,
    wait: u64,
}

fn reports() -> impl Strategy<Value = DrawnReport> {
    let consumed = prop_oneof![4 => 0u64..200_000_000, 1 => any::<u64>()];
    let values = prop::collection::vec(prop_oneof![0i64..20, any::<i64>()], 0..=Values::MOST);
    (consumed, 0u32..4, prop::option::of(0u32..50), values, 0u64..1_000_000_000)
        .prop_map(|(consumed, cycles, mode, values, wait)| DrawnReport { consumed, cycles, mode, values, wait })
}

fn statuses(reports: &[DrawnReport], held: Reservation) -> Vec<Status> {
    let mut at = Instant::ZERO;
    reports
        .iter()
        .map(|report| {
            at = at.saturating_add(Span::from_nanos(report.wait));
            Status {
                at,
                consumed: Span::from_nanos(report.consumed),
                cycles: report.cycles,
                held: Some(held),
                mode: report.mode,
                values: Values::new(&report.values).unwrap(),
            }
        })
        .collect()
}

fn reservation() -> impl Strategy<Value = Reservation> {
    (100_000u64..3_600_000_000_000, 1u64..=1_000, 1u64..=1_000).prop_map(|(period, budget, deadline)| {
        let budget = (period / 1_000 * budget).max(1);
        let deadline = budget + (period - budget) / 1_000 * deadline;
        let reservation = Reservation::new(Span::from_nanos(budget), Span::from_nanos(period)).unwrap();
        reservation.within(Span::from_nanos(deadline)).unwrap()
    })
}

proptest! {
    #[test]
    fn whatever_is_reported_an_ask_keeps_period_and_deadline(
        reports in prop::collection::vec(reports(), 1..40),
        asked in reservation(),
    ) {
        for mut advocate in all() {
            for status in statuses(&reports, asked) {
                let ask = advocate.advise(&status, asked).ask;
                prop_assert_eq!((ask.period(), ask.deadline()), (asked.period(), asked.deadline()));
                prop_assert!(!ask.budget().is_zero() && ask.budget() <= ask.deadline());
                prop_assert!(!Words(&*advocate).to_string().contains('\n'));
                prop_assert!(advocate.next_check() > status.at, "{} would be asked again at once", advocate.name());
            }
        }
    }

    #[test]
    fn the_same_reports_get_the_same_asks(reports in prop::collection::vec(reports(), 1..40), asked in reservation()) {
        for (mut one, mut other) in all().into_iter().zip(all()) {
            for status in statuses(&reports, asked) {
                prop_assert_eq!(one.advise(&status, asked), other.advise(&status, asked));
            }
            prop_assert_eq!(Words(&*one).to_string(), Words(&*other).to_string());
        }
    }

    #[test]
    fn a_look_between_two_reports_teaches_nothing(
        reports in prop::collection::vec(reports(), 1..20),
        asked in reservation(),
    ) {
        for (mut one, mut other) in all().into_iter().zip(all()) {
            if one.name() == "watchdog" {
                continue; // it depends on samples
            }
            for status in statuses(&reports, asked) {
                // An application's reports are the same at any time.
                let look = Status { mode: None, values: Values::default(), ..Status::overdue(status.at, status.consumed) };
                other.advise(&look, asked);
                prop_assert_eq!(one.advise(&status, asked).ask, other.advise(&status, asked).ask, "{}", one.name());
            }
        }
    }

    #[test]
    fn a_steady_demand_is_met_and_little_more(demand in 100u64..900, period in 1u64..1_000) {
        let period = Span::from_millis(period);
        let demand = Span::from_nanos(period.as_nanos() / 1_000 * demand);
        let declared = Reservation::new(Span::from_nanos(period.as_nanos() / 50), period).unwrap();
        for name in ["max-decay", "glacial", "percentile", "proactive", "modes"] {
            let mut advocate = Spec::new(name, []).unwrap().build();
            let mut ask = declared;
            let mut at = Instant::ZERO;
            for _ in 0..100 {
                at += period;
                ask = advocate.advise(&Status::of_cycle(at, demand), declared).ask;
            }
            prop_assert!(ask.budget() >= demand, "{} asks {} for {}", name, ask, demand);
            let most = demand.as_nanos() * 105 / 100 + period.as_nanos() / 500;
            prop_assert!(ask.budget().as_nanos() <= most, "{} asks {} for {}", name, ask, demand);
        }
    }
}

#[test]
fn a_chain_passes_advice_down_and_is_bounded() {
    let spec = |words: &str| Spec::from_words(words.split_whitespace()).unwrap();
    let declared = Reservation::new(Span::from_millis(10), Span::from_millis(100)).unwrap();
    let specs = [spec("max-decay --headroom 0%"), spec("log"), spec("cap 30%"), spec("conditions")];
    let mut chain = Spec::chain(&specs).unwrap();
    let mut emitted = Vec::new();
    let report = Status::of_cycle(Instant::ZERO, Span::from_millis(70));
    let ask = chain.advise(&report, declared, |emission| emitted.push(emission));
    assert_eq!(ask.to_string(), "30ms of 100ms");
    let asked: Vec<_> =
        chain.iter().map(|(advocate, asked)| format!("{} {}", advocate.name(), asked.unwrap())).collect();
    assert_eq!(
        asked,
        ["max-decay 70ms of 100ms", "log 70ms of 100ms", "cap 30ms of 100ms", "conditions 30ms of 100ms"]
    );
    let printed: Vec<_> = emitted.iter().map(|emission| format!("{emission:?}")).collect();
    assert!(
        printed[0].starts_with("Log { position: 1") && printed[1].starts_with("Conditions { position: 3"),
        "{printed:?}"
    );

    assert_eq!(chain.remove(4).unwrap_err().to_string(), "there is no advocate 4: they are numbered 0 to 3");
    assert_eq!(chain.remove(1).unwrap().name(), "log");
    while chain.insert(spec("cap 50%").build(), Some(0)).is_ok() {}
    assert_eq!(chain.len(), AdvocateChain::LONGEST);
    let full = chain.insert(spec("cap 50%").build(), None).unwrap_err();
    assert_eq!(full.to_string(), "the chain has 16 advocates, which is the limit: remove one first");
}
