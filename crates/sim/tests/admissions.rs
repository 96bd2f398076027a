//! Operations on standby that epochs and operators admit and withdraw, on executed jobs.

use crate::common;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::{Observer, replay};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{AdmissionOutcome, AdmissionRefusal, DispatchDecision, ExcessLoad, FeedbackHistory, TraceEvent};

const EXAMPLE: &str = include_str!("../../../examples/admission.toml");

fn system() -> System {
    read(EXAMPLE, "admission.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

fn id(system: &System, name: &str) -> OperationId {
    system.operation_ids().find(|id| system.operation(*id).name == name).unwrap()
}

fn run(system: &System) -> (FeedbackHistory, Vec<(ProcessorId, Instant, TraceEvent)>) {
    let until = Instant::ZERO + system.duration;
    let all = events(system, until);
    let mut observer = Observer::new(system);
    all.iter().for_each(|(processor, at, event)| observer.event(*processor, *at, event));
    (observer.figures(until).feedback[0].clone(), all)
}

/// The mean utilisation of the points in these seconds.
fn mean(history: &FeedbackHistory, from: u64, to: u64) -> f64 {
    let seconds = |at: Instant| at.as_nanos() as f64 / 1e9;
    let points =
        history.points().iter().filter(|point| seconds(point.at) > from as f64 && seconds(point.at) <= to as f64);
    let all: Vec<_> = points.map(|point| point.utilisation().unwrap()).collect();
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
fn epochs_admit_refuse_and_withdraw_and_the_loop_holds_its_set_point() {
    let system = system();
    let (zoom, enlarge, film) = (id(&system, "zoom"), id(&system, "enlarge"), id(&system, "film"));
    let (history, all) = run(&system);
    let (decisions, omitted) = history.admissions();
    let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
    let [first, second, third, last] = decisions[..] else { panic!("{decisions:?}") };
    assert_eq!(omitted, 0);
    let is_admitted = |outcome| matches!(outcome, AdmissionOutcome::Admitted { highest: false, .. });
    assert!((first.0, first.1) == (at(15), zoom) && is_admitted(first.2), "{first:?}");
    // 5 % of `control`, and at the lowest rates 2 % of `track` and of `detect`, 6 % of `zoom` and 52 % of `film`.
    let (when, operation, AdmissionOutcome::Refused(AdmissionRefusal::Load(excess))) = second else {
        panic!("{second:?}")
    };
    let ExcessLoad { least_ppm, most_ppm } = excess;
    assert!(
        when == at(30) && operation == film && most_ppm == 658_000 && least_ppm.abs_diff(670_000) < 5,
        "{excess:?}"
    );
    assert_eq!(third, (at(40), zoom, AdmissionOutcome::Withdrawn));
    assert!((last.0, last.1) == (at(40), film) && is_admitted(last.2), "{last:?}");
    assert!(history.is_present(&system, film) && !history.is_present(&system, zoom));
    for (from, to) in [(10, 15), (20, 30), (30, 40), (50, 60)] {
        let utilisation = mean(&history, from, to);
        assert!((utilisation - 0.7).abs() < 0.03, "{from} s to {to} s: {utilisation}");
    }
    for (operation, from, to) in [(zoom, 15, 40), (enlarge, 15, 40), (film, 40, 60)] {
        let releases = all.iter().filter_map(|(.., event)| match event {
            TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) if job.operation == operation => {
                Some((job.number, *release))
            }
            _ => None,
        });
        let releases: Vec<_> = releases.collect();
        assert!(releases.iter().map(|(number, _)| *number).eq(0..releases.len() as u64));
        assert!(releases.len() as u64 > 10 * (to - from) - 20, "{}", releases.len());
        assert!(releases.iter().all(|(_, release)| *release >= at(from) && *release <= at(to)));
    }
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let one = all.iter().map(|(_, at, event)| (*at, *event));
    replay(&system, &plan.processors[0], one).unwrap_or_else(|divergence| panic!("{divergence}"));
}

/// The other rates fall in the decision itself, before the first job of `zoom`.
#[test]
fn an_admission_does_not_overload_the_processor() {
    let system = system();
    let (_, all) = run(&system);
    let admitted = Instant::ZERO + Span::from_secs(15);
    let then: Vec<_> = all.iter().filter(|(_, at, _)| *at == admitted).collect();
    // A sample at the same instant precedes the epoch.
    let is_epoch = |event: &TraceEvent| matches!(event, TraceEvent::Decision(DispatchDecision::Epoch { .. }));
    let begun = then.iter().position(|(.., event)| is_epoch(event)).unwrap();
    let retimed: Vec<_> = then[begun..]
        .iter()
        .filter_map(|(.., event)| match event {
            TraceEvent::Decision(DispatchDecision::Retime { operation, .. }) => {
                Some(&*system.operation(*operation).name)
            }
            _ => None,
        })
        .collect();
    assert_eq!(retimed, ["track", "detect", "zoom"]);
    let late = all.iter().filter(|(_, at, event)| match event {
        TraceEvent::Decision(DispatchDecision::End(end)) => {
            *at > admitted && end.critical && end.outcome != hyoshi_trace::JobOutcome::Made
        }
        _ => false,
    });
    assert_eq!(late.count(), 0, "critical jobs are in time");
}
