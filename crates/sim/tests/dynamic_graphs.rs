//! Dynamic graphs: the first of several copies of a stage, and hops that a completion chooses.

use std::collections::BTreeMap;

use hyoshi_model::{Instant, JobId, OperationId, Span, System, read, read_file};
use hyoshi_replay::replay;
use hyoshi_sched::analysis::{Report, Requirement};
use hyoshi_sched::{Plan, Strategies, analyse};
use hyoshi_sim::{KnownJobs, simulate_known};
use hyoshi_trace::stats::ChainStats;
use hyoshi_trace::{DiscardReason, DispatchDecision, JobEnd, Probe, Stats, TraceEvent};

/// A client, two copies and a server on four processors; `primary` and `secondary` are lines of the copies.
fn system(primary: &str, secondary: &str, rest: &str) -> System {
    let text = format!(
        "name = 'copies'\nduration = '2s'\n[processor.a]\n[processor.b]\n[processor.c]\n[processor.d]\n\
         [operation.client]\non = 'a'\nevery = '20ms'\nwcet = '2ms'\ncritical = true\n\
         [operation.primary]\non = 'b'\ncritical = true\n{primary}\n\
         [operation.secondary]\non = 'c'\ncritical = true\n{secondary}\n\
         [operation.server]\non = 'd'\nafter = {{ first = ['primary', 'secondary'] }}\nwcet = '3ms'\ncritical = true\n\
         guard = 'off'\n\
         [chain.request]\npath = ['client', 'primary', 'server']\ndeadline = '20ms'\n{rest}"
    );
    read(&text, "copies.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

const CLIENT: OperationId = OperationId(0);
const PRIMARY: OperationId = OperationId(1);
const SECONDARY: OperationId = OperationId(2);
const SERVER: OperationId = OperationId(3);

/// What a simulation showed.
struct Seen {
    ends: Vec<JobEnd>,
    stats: Stats,
}

impl Seen {
    fn of(&self, operation: OperationId) -> Vec<&JobEnd> {
        self.ends.iter().filter(|end| end.job.operation == operation).collect()
    }

    /// How many jobs of each operation finished.
    fn finished(&self) -> [usize; 4] {
        let finished = |id| self.of(id).iter().filter(|end| end.outcome.finished()).count();
        [CLIENT, PRIMARY, SECONDARY, SERVER].map(finished)
    }

    fn skipped(&self) -> usize {
        self.stats.discarded(SERVER, DiscardReason::LaterCopy) as usize
    }

    fn chain(&self) -> &ChainStats {
        &self.stats.chains()[0]
    }
}

/// Simulates a system, whose recording must replay exactly.
fn play(system: &System, hops: Option<&dyn Fn(JobId) -> Option<u64>>) -> Seen {
    let plan = Plan::new(system, &Strategies::built_in()).unwrap();
    let given = KnownJobs {
        execution_time: &|_, drawn| drawn,
        late: None,
        crowded: false,
        inputs: &[],
        requests: true,
        samples: true,
        links: None,
        hops,
    };
    let until = Instant::ZERO + system.duration;
    let simulated = simulate_known(system, &plan, until, Some(given), None, |_| Vec::new(), |_| true);
    let mut all: Vec<(Instant, TraceEvent)> = Vec::new();
    for (plan, processor) in plan.processors.iter().zip(simulated.processors) {
        let events: Vec<(Instant, TraceEvent)> = processor.probe;
        replay(system, plan, events.iter().copied()).unwrap_or_else(|divergence| panic!("{divergence}"));
        all.extend(events);
    }
    all.sort_by_key(|(at, _)| *at);
    let mut stats = Stats::new(system);
    let mut ends = Vec::new();
    for (at, event) in all {
        stats.event(at, event);
        if let TraceEvent::Decision(DispatchDecision::End(end)) = event {
            ends.push(end);
        }
    }
    Seen { ends, stats }
}

fn report(system: &System) -> Report {
    analyse(system, &Plan::new(system, &Strategies::built_in()).unwrap())
}

#[test]
fn the_first_copy_of_each_release_wins_and_the_other_is_skipped() {
    let copy = "after = { all = ['client'] }\nwcet = '8ms'\ntakes = { uniform = ['1ms', '8ms'] }";
    let seen = play(&system(copy, copy, ""), None);
    let [client, primary, secondary, server] = seen.finished();
    assert!(client == 100 && [primary, secondary, server] == [client; 3], "{:?}", seen.finished());
    assert_eq!(seen.skipped(), server);
    let ended: BTreeMap<JobId, Instant> = seen.ends.iter().map(|end| (end.job, end.end)).collect();
    let mut wins = [0, 0];
    for job in seen.of(SERVER) {
        let copies = [PRIMARY, SECONDARY].map(|operation| ended[&JobId { operation, ..job.job }]);
        assert_eq!(job.ready, copies[0].min(copies[1]));
        wins[usize::from(copies[1] < copies[0])] += 1;
    }
    assert!(wins.iter().all(|wins| *wins > 20), "{wins:?}");
}

#[test]
fn a_hop_that_is_not_chosen_releases_nothing() {
    let all = "after = { all = ['client'] }\nwcet = '5ms'";
    let chosen = "after = { chosen = ['client'] }\nwcet = '5ms'";
    let seen = play(&system(all, chosen, ""), None);
    let [client, primary, secondary, server] = seen.finished();
    assert!(client == primary && primary == server && (30..70).contains(&secondary), "{:?}", seen.finished());
    assert_eq!(seen.skipped(), secondary);
    // The same choices, whatever the strategy; others with another seed.
    let numbers = |seen: &Seen| seen.of(SECONDARY).iter().map(|end| end.job.number).collect::<Vec<_>>();
    let with = |change: fn(&mut hyoshi_model::Contents)| numbers(&play(&system(all, chosen, "").with(change), None));
    assert_eq!(with(|system| system.processors[0].strategy = "EDF".into()), numbers(&seen));
    assert_ne!(with(|system| system.seed = 9), numbers(&seen));
    // Known choices replace drawn ones.
    let even = play(&system(all, chosen, ""), Some(&|job| Some(u64::from(job.number.is_multiple_of(2)))));
    assert_eq!(numbers(&even), (0..100).step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_number_without_any_copy_is_skipped_and_numbers_may_arrive_out_of_order() {
    // The slow copy lasts longer than a period, and the fast one is often absent.
    let slow =
        "after = { chosen = ['client'], probability = '70%' }\nwcet = '15ms'\noffset = '30ms'\nqueue = { limit = 8 }";
    let fast = "after = { chosen = ['client'], probability = '30%' }\nwcet = '1ms'";
    let seen = play(&system(slow, fast, "").with(|system| system.operations[3].queue.limit = 8), None);
    let numbers = |id| seen.of(id).iter().map(|end| end.job.number).collect::<Vec<_>>();
    let mut expected: Vec<u64> = numbers(PRIMARY).into_iter().chain(numbers(SECONDARY)).collect();
    expected.sort_unstable();
    expected.dedup();
    let arrived = numbers(SERVER);
    let mut sorted = arrived.clone();
    sorted.sort_unstable();
    assert!(sorted == expected && sorted.len() < 95 && !arrived.is_sorted(), "{arrived:?} of {expected:?}");
    assert_eq!(seen.skipped(), numbers(PRIMARY).len() + numbers(SECONDARY).len() - expected.len());
}

#[test]
fn a_guard_delays_only_the_first_copies() {
    let copy = "after = { all = ['client'] }\nwcet = '8ms'\ntakes = { uniform = ['1ms', '8ms'] }";
    let guarded = system(copy, copy, "").with(|system| system.operations[3].guard = hyoshi_model::Guard::On);
    let seen = play(&guarded, None);
    let server = seen.of(SERVER);
    assert_eq!((server.len(), seen.skipped()), (100, 100));
    let gaps = server.windows(2).map(|pair| pair[1].ready.since(pair[0].ready));
    assert!(gaps.into_iter().all(|gap| gap >= Span::from_millis(20)));
}

#[test]
fn a_lost_copy_loses_no_instance_of_the_chain_if_another_one_leads_on() {
    let lossy = "after = { all = ['client'] }\nwcet = '15ms'\nqueue = { limit = 1 }\non_busy = 'skip'";
    let other = "[operation.load]\non = 'b'\nevery = '15ms'\nwcet = '8ms'\ncritical = true\n";
    let second = |choice: &str| format!("after = {{ {choice} = ['client'] }}\nwcet = '2ms'");
    let seen = play(&system(lossy, &second("all"), other), None);
    let lost = seen.of(PRIMARY).iter().filter(|end| !end.outcome.finished()).count();
    assert!(lost > 10, "{lost}");
    assert_eq!((seen.finished()[3], seen.chain().lost), (100, 0));
    assert_eq!(seen.chain().latency.extent().count(), 100);
    // Without the second copy, each of them is lost.
    let seen = play(&system(lossy, &second("chosen"), other), Some(&|_| Some(0)));
    let lost = seen.of(PRIMARY).iter().filter(|end| !end.outcome.finished()).count();
    assert_eq!(seen.chain().lost, lost as u64);
}

#[test]
fn a_bound_counts_the_slowest_copy() {
    let fast = "after = { all = ['client'] }\nwcet = '1ms'";
    let slow = "after = { chosen = ['client'] }\nwcet = '9ms'";
    let of = |system: &System| {
        let report = report(system);
        let chain = &report.scenes[0].chains[0];
        assert_eq!(chain.requirement, Requirement::Deadline);
        assert!(chain.verdict.is_proved(), "{chain:#?}");
        chain.bound_ns.unwrap()
    };
    let bound = of(&system(fast, slow, ""));
    // 2 ms, 9 ms and 3 ms, though the path leads along the fast copy, which is never absent.
    assert_eq!(bound, 14_000_000);
    let latency = play(&system(fast, slow, ""), None).chain().latency.extent().most().unwrap();
    assert_eq!(latency, Span::from_millis(6));
    // If the fast copy is absent, the bound is reached.
    let swapped = system(&slow.replace("chosen", "all"), &fast.replace("all", "chosen"), "");
    assert_eq!(of(&swapped), 14_000_000);
    let latency = play(&swapped, None).chain().latency.extent().most().unwrap();
    assert_eq!(latency, Span::from_millis(14));
}

#[test]
fn the_time_between_jobs_that_may_not_be_chosen_has_no_bound() {
    let all = "after = { all = ['client'] }\nwcet = '1ms'";
    let chosen = "after = { chosen = ['client'] }\nwcet = '1ms'";
    let chain = |path: &str| {
        let rest = format!("[chain.react]\npath = [{path}]\nmax_reaction = '60ms'\nmax_age = '30ms'\n");
        let report = report(&system(all, chosen, &rest));
        let of = |wanted: Requirement| {
            let chain =
                report.scenes[0].chains.iter().find(|chain| chain.name == "react" && chain.requirement == wanted);
            chain.unwrap().verdict.clone()
        };
        (of(Requirement::MaxAge).is_proved(), of(Requirement::MaxReaction))
    };
    let (age, reaction) = chain("'client', 'secondary'");
    assert!(age && format!("{reaction:?}").contains("Chosen"), "{reaction:?}");
    // The other copy is always there.
    let (age, reaction) = chain("'client', 'primary', 'server'");
    assert!(age && reaction.is_proved(), "{reaction:?}");
}

#[test]
fn an_operation_that_may_not_be_chosen_never_fails() {
    let all = "after = { all = ['client'] }\nwcet = '1ms'";
    let late = |choice: &str| format!("after = {{ {choice} = ['client'] }}\nwcet = '9ms'\ndeadline = '5ms'");
    let fails = |choice: &str| {
        let report = report(&system(all, &late(choice), ""));
        let (.., one) = report.operations().find(|(.., one)| one.operation == SECONDARY).unwrap();
        (one.verdict.fails(), one.verdict.is_proved())
    };
    assert_eq!((fails("all"), fails("chosen")), ((true, false), (false, false)));
}

#[test]
fn the_example_is_proved_and_its_server_runs_once_for_each_release() {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/dynamic-graph.toml");
    let system = read_file(&file).unwrap_or_else(|errors| panic!("{errors}")).system;
    let report = report(&system);
    assert!(report.operations().all(|(.., one)| one.verdict.is_proved()), "{report:#?}");
    assert!(report.scenes[0].chains.iter().all(|chain| chain.verdict.is_proved()), "{report:#?}");
    let seen = play(&system, None);
    let [client, primary, secondary, server] = seen.finished();
    assert!(client == 100 && primary == 100 && server == 100 && (30..70).contains(&secondary), "{:?}", seen.finished());
    assert_eq!((seen.skipped(), seen.chain().lost, seen.chain().missed), (secondary, 0, 0));
}
