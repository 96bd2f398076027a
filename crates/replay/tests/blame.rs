//! The law of blame on recordings of runs, which do not tell everything, and on nonsense.

use hyoshi_model::*;
use hyoshi_replay::blame::{Account, Basis, Culprit, Culprits, Kind, Rank};
use hyoshi_trace::{Decision, Event, Input, JobEnd, Outcome, Seen, Signal, Slot, Wait, Who};
use proptest::prelude::*;

use crate::scripts::{Events, Script, at, culprit, us};

const FILE: &str = r#"name = "two"
[processor.main]
strategy = "RMS"
[operation.high]
every = "10ms"
wcet = "2ms"
[operation.low]
every = "50ms"
wcet = "5ms"
"#;

/// Both are released together, and at once the second strategy rules: `low` is in danger behind `high`.
fn switched(preemption: &str) -> Account {
    let text = format!(
        "name = \"two\"\n[processor.main]\nstrategy = [\"RMS\", \"MUF\"]\npreemption = \"{preemption}\"\n\
         [operation.high]\nevery = \"10ms\"\nwcet = \"2ms\"\n\
         [operation.low]\nevery = \"50ms\"\nwcet = \"5ms\"\ndeadline = \"6ms\"\ncritical = true\n"
    );
    let script = Script::new(&text).tick(20).runs(20, 1).ends(2_000, 1, 1_980).runs(2_000, 0).ends(3_000, 0, 1_000);
    let switch = Event::Decision(Decision::Switch { second: true });
    assert!(script.events().contains(&(at(20), switch)), "{:?}", script.events());
    script.account(0)
}

#[test]
fn a_job_waits_for_others_as_the_ruling_strategy_ranks_them() {
    for preemption in ["none", "levels"] {
        let account = switched(preemption);
        let more_urgent = Kind::Waited { who: culprit(1), rank: Rank::MoreUrgent };
        assert_eq!(account.total(|kind| kind == more_urgent), us(1_980), "{preemption}: {account:?}");
    }
}

fn accounts(events: &[(Instant, Event)]) -> Vec<Account> {
    Script::new(FILE).accounts_of(events)
}

/// Both are ready at 20 us; `high` runs from 30 to 2,030, `low` from 2,050 to 8,000.
fn run_of_two(low_consumed: u64) -> Events {
    let script =
        Script::new(FILE).tick(20).runs(30, 0).ends(2_030, 0, 1_990).runs(2_050, 1).ends(8_000, 1, low_consumed);
    script.events().clone()
}

/// Puts what was seen of the CPU at its time.
fn see(events: &mut Events, micros: u64, seen: Seen) {
    let place = events.partition_point(|(now, _)| *now <= at(micros));
    events.insert(place, (at(micros), Event::Seen(seen)));
}

fn switch(to: Who) -> Seen {
    Seen::Switch { to, preempted: false }
}

#[test]
fn without_switches_the_kernel_is_modelled_and_what_a_job_lacks_is_unexplained() {
    let accounts = accounts(&run_of_two(4_900));
    let high = culprit(0);
    assert_eq!(
        accounts[0].parts,
        [(Kind::Executed, us(1_990)), (Kind::TimerLate, us(20)), (Kind::Overhead, us(10)), (Kind::Unexplained, us(10))]
    );
    assert_eq!(
        accounts[1].parts,
        [
            (Kind::Executed, us(4_900)),
            (Kind::Waited { who: high, rank: Rank::MoreUrgent }, us(2_000)),
            (Kind::Unexplained, us(1_050)),
            (Kind::Overhead, us(30)),
            (Kind::TimerLate, us(20)),
        ]
    );
    assert_eq!(accounts[1].basis, Basis::Inferred);
}

#[test]
fn time_that_is_known_to_be_stolen_explains_what_a_job_lacks() {
    let mut events = run_of_two(4_900);
    see(&mut events, 7_000, Seen::Stolen { span: us(900) });
    see(&mut events, 6_000, Seen::Overhead { who: Who::Release, span: us(40) });
    let low = &accounts(&events)[1];
    assert_eq!(low.total(|kind| kind == Kind::Stolen), us(900));
    assert_eq!(low.total(|kind| kind == Kind::Overhead), us(30 + 40));
    assert_eq!(low.total(|kind| kind == Kind::Unexplained), us(1_050 - 940));
}

#[test]
fn switches_name_who_was_in_the_way() {
    let mut events = run_of_two(4_900);
    see(&mut events, 4_000, switch(Who::Lane(1)));
    see(&mut events, 3_000, switch(Who::Other(7)));
    // The kernel marks it: `low` could have gone on.
    see(&mut events, 2_900, Seen::Switch { to: Who::Release, preempted: true });
    see(&mut events, 2_050, switch(Who::Lane(1)));
    let low = &accounts(&events)[1];
    assert_eq!(low.basis, Basis::Switches);
    assert_eq!(low.total(|kind| kind == Kind::Other(7)), us(1_000));
    assert_eq!(low.total(|kind| kind == Kind::Overhead), us(10 + 20 + 100));
    // The rest of what it lacks: 4,850 us on the CPU by the switches.
    assert_eq!(low.total(|kind| matches!(kind, Kind::Executed | Kind::Overran)), us(4_850));
}

#[test]
fn lost_switches_are_not_made_up() {
    let mut events = run_of_two(4_900);
    see(&mut events, 5_000, Seen::Gap);
    see(&mut events, 2_050, switch(Who::Lane(1)));
    let low = &accounts(&events)[1];
    assert!(low.total(|kind| kind == Kind::Unexplained) >= us(2_950), "{low:?}");
}

#[test]
fn a_job_whose_beginning_was_lost_is_unexplained_from_where_it_is_known() {
    let events = run_of_two(4_900);
    let only = &accounts(&events[events.len() - 2..])[0];
    assert_eq!(only.total(|kind| kind == Kind::Unexplained), us(7_980));
}

#[test]
fn culprits_add_up_over_jobs_and_stay_few() {
    let mut culprits = Culprits::new(&Script::new(FILE).system);
    for account in accounts(&run_of_two(4_900)) {
        culprits.record(&account);
        culprits.record(&account);
    }
    let low = culprits.of(OperationId(1)).unwrap();
    assert_eq!((low.jobs, low.response), (2, us(16_000)));
    let causes = low.causes();
    let any = Culprit { operation: OperationId(0), job: None };
    let (kind, delay) = causes[1];
    assert_eq!(kind, Kind::Waited { who: any, rank: Rank::MoreUrgent });
    assert_eq!((delay.total, delay.longest, delay.jobs, delay.chief), (us(4_000), us(2_000), 2, 2));
    assert_eq!(causes.iter().map(|(_, delay)| delay.total).sum::<Span>(), low.response);
}

fn arbitrary_job() -> impl Strategy<Value = JobId> {
    (0u32..4, 0u64..3, 0u16..2).prop_map(|(operation, number, leg)| JobId {
        operation: OperationId(operation),
        number,
        leg,
    })
}

fn arbitrary_event() -> impl Strategy<Value = Event> {
    let instant = || prop_oneof![0u64..60_000_000, Just(u64::MAX)].prop_map(Instant::from_nanos);
    let span = || prop_oneof![0u64..60_000_000, Just(u64::MAX)].prop_map(Span::from_nanos);
    let slot = || (0u32..4).prop_map(Slot);
    let who = || prop_oneof![Just(Who::Idle), any::<u8>().prop_map(Who::Lane), Just(Who::Below), Just(Who::Other(3))];
    let input = prop_oneof![
        Just(Input::Tick),
        (0u32..4, 0u32..4, instant()).prop_map(|(from, to, due)| Input::Signal(Signal {
            from: OperationId(from),
            to: OperationId(to),
            position: 0,
            number: 1,
            origin: due,
            period: Span::ZERO,
            due,
            ticket: None,
        })),
        slot().prop_map(|slot| Input::Suspend { slot }),
        (slot(), span()).prop_map(|(slot, consumed)| Input::Resume { slot, consumed }),
        (slot(), 0u32..3).prop_map(|(slot, resource)| Input::Acquire { slot, resource: ResourceId(resource) }),
        (slot(), 0u32..3).prop_map(|(slot, resource)| Input::Release { slot, resource: ResourceId(resource) }),
    ];
    let ended = (arbitrary_job(), instant(), instant(), instant(), span(), any::<u16>());
    let decision =
        prop_oneof![
            any::<u16>().prop_map(|index| Decision::Epoch { index }),
            (arbitrary_job(), instant()).prop_map(|(job, until)| Decision::Hold { job, until }),
            (arbitrary_job(), instant(), any::<u8>()).prop_map(|(job, release, lane)| Decision::Ready {
                job,
                release,
                deadline: release,
                lane
            }),
            (arbitrary_job(), any::<u8>(), slot(), any::<bool>())
                .prop_map(|(job, lane, slot, resumed)| Decision::Run { job, lane, slot, resumed }),
            arbitrary_job().prop_map(|job| Decision::Yield { job }),
            arbitrary_job().prop_map(|job| Decision::Demote { job }),
            any::<u8>().prop_map(|lane| Decision::Gate { lane }),
            ended.prop_map(|(job, release, ready, end, consumed, epoch)| Decision::End(JobEnd {
                job,
                outcome: Outcome::Missed,
                critical: false,
                overran: false,
                demoted: false,
                epoch,
                origin: release,
                release,
                ready,
                start: ready,
                end,
                deadline: release,
                consumed,
            })),
        ];
    let seen = prop_oneof![
        (who(), any::<bool>()).prop_map(|(to, preempted)| Seen::Switch { to, preempted }),
        Just(Seen::Waits(Wait::Lock)),
        (who(), span()).prop_map(|(who, span)| Seen::Overhead { who, span }),
        span().prop_map(|span| Seen::Stolen { span }),
        Just(Seen::Gap),
    ];
    prop_oneof![input.prop_map(Event::Input), decision.prop_map(Event::Decision), seen.prop_map(Event::Seen)]
}

proptest! {
    #[test]
    fn an_edited_recording_cannot_make_it_panic(
        events in prop::collection::vec((0u64..1_000_000, arbitrary_event()), 0..200), exact in any::<bool>()
    ) {
        let script = Script::new(FILE);
        let mut culprits = Culprits::new(&script.system);
        let mut law = script.law(exact);
        for (now, event) in events {
            if let Some(account) = law.event(Instant::from_nanos(now), &event) {
                culprits.record(&account);
            }
        }
    }
}
