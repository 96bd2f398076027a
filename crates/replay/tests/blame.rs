//! Breakdowns of incomplete recordings of runs, and of nonsense.

use hyoshi_model::*;
use hyoshi_replay::blame::{BreakdownBasis, Culprit, Culprits, Rank, ResponseBreakdown, ResponsePart};
use hyoshi_trace::{
    CpuEvent, CpuUser, DispatchDecision, Input, JobEnd, JobOutcome, JobService, Signal, Slot, TraceEvent, Wait,
};
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

/// Both are released together, and the second strategy takes effect at once: `low` is in danger behind `high`.
fn switched(preemption: &str) -> ResponseBreakdown {
    let text = format!(
        "name = \"two\"\n[processor.main]\nstrategy = [\"RMS\", \"MUF\"]\npreemption = \"{preemption}\"\n\
         [operation.high]\nevery = \"10ms\"\nwcet = \"2ms\"\n\
         [operation.low]\nevery = \"50ms\"\nwcet = \"5ms\"\ndeadline = \"6ms\"\ncritical = true\n"
    );
    let script = Script::new(&text).tick(20).runs(20, 1).ends(2_000, 1, 1_980).runs(2_000, 0).ends(3_000, 0, 1_000);
    let switch = TraceEvent::Decision(DispatchDecision::Switch { second: true });
    assert!(script.events().contains(&(at(20), switch)), "{:?}", script.events());
    script.breakdown(0)
}

#[test]
fn a_job_waits_for_others_as_the_ruling_strategy_ranks_them() {
    for preemption in ["none", "levels"] {
        let breakdown = switched(preemption);
        let more_urgent = ResponsePart::Waited { who: culprit(1), rank: Rank::MoreUrgent };
        assert_eq!(breakdown.total(|kind| kind == more_urgent), us(1_980), "{preemption}: {breakdown:?}");
    }
}

fn breakdowns(events: &[(Instant, TraceEvent)]) -> Vec<ResponseBreakdown> {
    Script::new(FILE).accounts_of(events)
}

/// Both are ready at 20 us; `high` runs from 30 to 2,030, `low` from 2,050 to 8,000.
fn run_of_two(low_consumed: u64) -> Events {
    let script =
        Script::new(FILE).tick(20).runs(30, 0).ends(2_030, 0, 1_990).runs(2_050, 1).ends(8_000, 1, low_consumed);
    script.events().clone()
}

/// Inserts an observation of the CPU at its time.
fn see(events: &mut Events, micros: u64, seen: CpuEvent) {
    let place = events.partition_point(|(now, _)| *now <= at(micros));
    events.insert(place, (at(micros), TraceEvent::Cpu(seen)));
}

fn switch(to: CpuUser) -> CpuEvent {
    CpuEvent::Switch { to, preempted: false }
}

#[test]
fn without_switches_the_kernel_is_modelled_and_what_a_job_lacks_is_unexplained() {
    let breakdowns = breakdowns(&run_of_two(4_900));
    let high = culprit(0);
    assert_eq!(
        breakdowns[0].parts,
        [
            (ResponsePart::Executed, us(1_990)),
            (ResponsePart::TimerLate, us(20)),
            (ResponsePart::Overhead, us(10)),
            (ResponsePart::Unexplained, us(10))
        ]
    );
    assert_eq!(
        breakdowns[1].parts,
        [
            (ResponsePart::Executed, us(4_900)),
            (ResponsePart::Waited { who: high, rank: Rank::MoreUrgent }, us(2_000)),
            (ResponsePart::Unexplained, us(1_050)),
            (ResponsePart::Overhead, us(30)),
            (ResponsePart::TimerLate, us(20)),
        ]
    );
    assert_eq!(breakdowns[1].basis, BreakdownBasis::Inferred);
}

#[test]
fn time_that_is_known_to_be_stolen_explains_what_a_job_lacks() {
    let mut events = run_of_two(4_900);
    see(&mut events, 7_000, CpuEvent::Stolen { span: us(900) });
    see(&mut events, 6_000, CpuEvent::Overhead { who: CpuUser::Release, span: us(40) });
    let low = &breakdowns(&events)[1];
    assert_eq!(low.total(|kind| kind == ResponsePart::Stolen), us(900));
    assert_eq!(low.total(|kind| kind == ResponsePart::Overhead), us(30 + 40));
    assert_eq!(low.total(|kind| kind == ResponsePart::Unexplained), us(1_050 - 940));
}

#[test]
fn switches_name_who_was_in_the_way() {
    let mut events = run_of_two(4_900);
    see(&mut events, 4_000, switch(CpuUser::Lane(1)));
    see(&mut events, 3_000, switch(CpuUser::Other(7)));
    // The kernel marks that `low` could have continued.
    see(&mut events, 2_900, CpuEvent::Switch { to: CpuUser::Release, preempted: true });
    see(&mut events, 2_050, switch(CpuUser::Lane(1)));
    let low = &breakdowns(&events)[1];
    assert_eq!(low.basis, BreakdownBasis::Switches);
    assert_eq!(low.total(|kind| kind == ResponsePart::Other(7)), us(1_000));
    assert_eq!(low.total(|kind| kind == ResponsePart::Overhead), us(10 + 20 + 100));
    // The rest of its missing time: 4,850 us on the CPU by the switches.
    assert_eq!(low.total(|kind| matches!(kind, ResponsePart::Executed | ResponsePart::Overran)), us(4_850));
}

#[test]
fn lost_switches_are_not_made_up() {
    let mut events = run_of_two(4_900);
    see(&mut events, 5_000, CpuEvent::Gap);
    see(&mut events, 2_050, switch(CpuUser::Lane(1)));
    let low = &breakdowns(&events)[1];
    assert!(low.total(|kind| kind == ResponsePart::Unexplained) >= us(2_950), "{low:?}");
}

#[test]
fn a_job_with_a_lost_start_is_unexplained_from_its_first_known_instant() {
    let events = run_of_two(4_900);
    let only = &breakdowns(&events[events.len() - 2..])[0];
    assert_eq!(only.total(|kind| kind == ResponsePart::Unexplained), us(7_980));
}

#[test]
fn culprits_add_up_over_jobs_and_stay_few() {
    let mut culprits = Culprits::new(&Script::new(FILE).system);
    for breakdown in breakdowns(&run_of_two(4_900)) {
        culprits.record(&breakdown);
        culprits.record(&breakdown);
    }
    let low = culprits.of(OperationId(1)).unwrap();
    assert_eq!((low.jobs, low.response), (2, us(16_000)));
    let causes = low.causes();
    let any = Culprit { operation: OperationId(0), job: None };
    let (kind, delay) = causes[1];
    assert_eq!(kind, ResponsePart::Waited { who: any, rank: Rank::MoreUrgent });
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

fn arbitrary_event() -> impl Strategy<Value = TraceEvent> {
    let instant = || prop_oneof![0u64..60_000_000, Just(u64::MAX)].prop_map(Instant::from_nanos);
    let span = || prop_oneof![0u64..60_000_000, Just(u64::MAX)].prop_map(Span::from_nanos);
    let slot = || (0u32..4).prop_map(Slot);
    let who = || {
        prop_oneof![
            Just(CpuUser::Idle),
            any::<u8>().prop_map(CpuUser::Lane),
            Just(CpuUser::Below),
            Just(CpuUser::Other(3))
        ]
    };
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
    let ended = (arbitrary_job(), instant(), instant(), instant(), span(), any::<(u16, u8)>());
    let decision = prop_oneof![
        any::<u16>().prop_map(|index| DispatchDecision::Epoch { index }),
        (arbitrary_job(), instant()).prop_map(|(job, until)| DispatchDecision::Hold { job, until }),
        (arbitrary_job(), instant(), any::<u8>()).prop_map(|(job, release, lane)| DispatchDecision::Ready {
            job,
            release,
            deadline: release,
            lane
        }),
        (arbitrary_job(), any::<u8>(), slot(), any::<bool>())
            .prop_map(|(job, lane, slot, resumed)| DispatchDecision::Run { job, lane, slot, resumed }),
        arbitrary_job().prop_map(|job| DispatchDecision::Yield { job }),
        arbitrary_job().prop_map(|job| DispatchDecision::Demote { job }),
        any::<u8>().prop_map(|lane| DispatchDecision::Gate { lane }),
        ended.prop_map(|(job, release, ready, end, consumed, (epoch, level))| DispatchDecision::End(JobEnd {
            job,
            outcome: JobOutcome::Missed,
            critical: false,
            overran: false,
            service: JobService { level, demoted: false },
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
        (who(), any::<bool>()).prop_map(|(to, preempted)| CpuEvent::Switch { to, preempted }),
        Just(CpuEvent::Waits(Wait::Lock)),
        (who(), span()).prop_map(|(who, span)| CpuEvent::Overhead { who, span }),
        span().prop_map(|span| CpuEvent::Stolen { span }),
        Just(CpuEvent::Gap),
    ];
    prop_oneof![
        input.prop_map(TraceEvent::Input),
        decision.prop_map(TraceEvent::Decision),
        seen.prop_map(TraceEvent::Cpu)
    ]
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
            if let Some(breakdown) = law.event(Instant::from_nanos(now), &event) {
                culprits.record(&breakdown);
            }
        }
    }
}
