//! Proved bounds hold on the kernel: sets of operations run for real, then are analysed with the
//! longest execution time that was observed of each and what calibration says scheduling costs.
//! A job beyond its bound must have lost at least the excess to something that no analysis of this
//! system knows: a foreign thread, the host of a virtual machine, an interrupt, a timer that came late. The
//! recording must name it; else it is a violation.

use crate::common;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use hyoshi::{
    DispatchDecision, Instant, JobContext, JobEnd, Node, Plan, Span, Strategies, System, TraceEvent, analyse, read,
};
use hyoshi_model::{Contents, Costs, ExecutionTime, Trigger};
use hyoshi_os::{allowed_cpus, own_cpu_time};
use hyoshi_replay::blame::{Blame, CpuChange, CpuOccupant, Interest, ResponseBreakdown, ResponsePart};
use hyoshi_runtime::{CalibrateError, Calibration, Finished, RunNote};
use hyoshi_trace::CpuEvent;

const STRATEGIES: [&str; 7] = ["RMS", "EDF", "MUF", "RMS+EDF", "MLF", "DM", "RMS+MLF"];

/// Pseudo-random choices of a seed.
struct Choices(u64);

impl Choices {
    fn new(seed: u64) -> Self {
        Choices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Whether what the strategy decides depends on declared execution times: then jobs take exactly these.
fn minds_laxity(strategy: &str) -> bool {
    strategy.contains("MLF") || strategy == "MUF"
}

/// Three to eight operations, 30 to 70 % of a processor.
fn random(seed: u64, duration: Span) -> System {
    let mut choices = Choices::new(seed);
    let strategy = STRATEGIES[seed as usize % STRATEGIES.len()];
    let cpu = allowed_cpus().last().copied().unwrap_or(0);
    let mut text = format!(
        "name = 'set {seed}'\nseed = {seed}\nduration = '{duration}'\n[processor.main]\ncpu = {cpu}\nstrategy = '{strategy}'\n"
    );
    let (harmonic, count) = (choices.below(2) == 0, 3 + choices.below(6));
    let share_of_all = 300 + choices.below(401);
    let weights: Vec<u64> = (0..count).map(|_| 1 + choices.below(10)).collect();
    let mut before: Option<u64> = None;
    for (operation, weight) in weights.iter().enumerate() {
        let triggered = before.filter(|_| choices.below(4) == 0);
        let period = match (triggered, harmonic) {
            (Some(period), _) => period,
            (None, true) => 4_000 << choices.below(5),
            (None, false) => 4_003 + choices.below(50_000),
        };
        let wcet = (period * share_of_all * weight / weights.iter().sum::<u64>() / 1_000).max(50);
        let critical = choices.below(3) == 0;
        let trigger = match triggered {
            Some(_) => format!("after = {{ all = ['o{}'] }}", operation - 1),
            None => format!("every = '{period}us'\nphase = '{}us'", choices.below(period)),
        };
        text += &format!("[operation.o{operation}]\n{trigger}\nwcet = '{wcet}us'\ncritical = {critical}\n");
        before = Some(period);
    }
    read(&text, "random.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

/// Uses the CPU for so long, and as much longer as it takes to notice.
fn work(span: Span) {
    let until = own_cpu_time() + span;
    while own_cpu_time() < until {
        (0..200).for_each(|turn| {
            black_box(turn);
        });
    }
}

/// A run, and what the recording tells of it.
struct Ran {
    ends: Vec<JobEnd>,
    accounts: Vec<ResponseBreakdown>,
    /// When something foreign had the CPU.
    foreign: Vec<(Instant, Instant, String)>,
    finished: Finished,
}

/// Runs a set; `usual` is what all costs of scheduling make together.
fn run(system: &Arc<System>, plan: &Arc<Plan>, usual: Span) -> Ran {
    let mut node = Node::new(system.clone(), plan.clone()).ring(1 << 17).watch(true);
    if !minds_laxity(&system.processors[0].strategy) {
        for (operation, setting) in system.operations.iter().zip(system.epochs[0].settings.iter()) {
            // A half to nine tenths of what is declared, by a body of our own: how long the longest is, is seen.
            let (declared, mut choices) = (setting.wcet.as_nanos(), Choices::new(setting.wcet.as_nanos()));
            let body = move |_: &mut JobContext<'_>| work(Span::from_nanos(declared * (50 + choices.below(41)) / 100));
            node = node.body(operation.name.clone(), body);
        }
    }
    let running = node.start().unwrap();
    let names = running.names();
    let mut events: Vec<(Instant, TraceEvent)> = Vec::new();
    let finished = running.wait(&mut |_, now, event| events.push((now, event)));
    let names = names.since(0);
    let mut law = Blame::new(system, &plan.processors[0], false, Interest::All);
    let mut foreign: Vec<(Instant, Instant, String)> = Vec::new();
    let mut printed = Instant::ZERO;
    let (mut ends, mut accounts) = (Vec::new(), Vec::new());
    for (now, event) in &events {
        let account = law.event_watched(*now, event, |mark| match mark {
            CpuChange::Slice { from, to, occupant: CpuOccupant::Other(number) } => {
                let name = names.get(*number as usize).map_or("a foreign thread", String::as_str);
                foreign.push((*from, *to, name.to_owned()));
            }
            // Beyond all that scheduling costs together somebody was in its way: an interrupt, the host.
            CpuChange::Slice { from, to, occupant: CpuOccupant::Overhead(_) | CpuOccupant::Dispatch }
                if to.since(*from) > usual =>
            {
                foreign.push((*from + usual, *to, SLOW.into()));
            }
            _ => {}
        });
        accounts.extend(account);
        match event {
            TraceEvent::Decision(DispatchDecision::End(end)) => ends.push(*end),
            // It was at some time since this was last told: nearer it is not known.
            TraceEvent::Cpu(CpuEvent::Stolen { span }) => {
                foreign.push((printed.max(Instant::ZERO), printed + *span, STOLEN.into()));
                printed = *now;
            }
            _ => {}
        }
    }
    Ran { ends, accounts, foreign, finished }
}

const STOLEN: &str = "the host";
const LATE: &str = "a late timer";
/// The kernel says that a thread had the CPU, and gives it no CPU time for it.
const NOBODY: &str = "nobody that the kernel saw: an interrupt or the host";
const SLOW: &str = "slow scheduling";

/// What a set's jobs did within, or beyond, their bounds.
#[derive(Default)]
struct Tally {
    jobs: u64,
    within: u64,
    unbounded: u64,
    excluded: BTreeMap<String, u64>,
    violations: Vec<String>,
    /// Response over bound, in percent, of those within.
    shares: Vec<u64>,
}

fn judge(seed: u64, duration: Span, costs: Costs, tally: &mut Tally) -> bool {
    let system = Arc::new(random(seed, duration));
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let usual = costs.named().into_iter().map(|(_, span)| span).sum();
    let ran = run(&system, &plan, usual);
    if let Some(refused) = ran.finished.notes.iter().find(|note| matches!(note, RunNote::Refused { .. })) {
        eprintln!("not asserted, for bounds need what was refused: {refused}");
        return false;
    }
    let lost = &ran.finished.lost;
    if (lost.events, lost.switches) != (0, 0) {
        // Somebody may have been in the way unseen.
        println!(
            "set {seed}: not judged, {} events and {} switches were lost on a busy machine",
            lost.events, lost.switches
        );
        return true;
    }
    let mut measured = Contents::clone(&system);
    measured.processors[0].costs = costs;
    let mut settings = measured.epochs[0].settings.to_vec();
    for (index, setting) in settings.iter_mut().enumerate() {
        let of = ran.ends.iter().filter(|end| end.job.operation.index() == index && end.outcome.finished());
        let most = of.map(|end| end.consumed).max().unwrap_or(setting.wcet);
        assert!(minds_laxity(&system.processors[0].strategy) <= (most <= setting.wcet), "built-in work is exact");
        if !minds_laxity(&system.processors[0].strategy) {
            (setting.wcet, setting.bcet, setting.execution_time) =
                (most, setting.bcet.min(most), ExecutionTime::Fixed(most));
        }
    }
    measured.epochs[0].settings = settings.into();
    let report = analyse(&System::new(measured), &plan);
    let bounds: BTreeMap<_, _> =
        report.operations().map(|(.., one)| ((one.operation, one.critical), one.bound_ns)).collect();
    let triggered = system.operations.iter().filter(|operation| operation.trigger != Trigger::Periodic).count();
    let jobs = (tally.jobs, tally.within, tally.violations.len());
    for account in ran.accounts.iter().filter(|account| account.end.outcome.finished()) {
        tally.jobs += 1;
        let Some(Some(bound)) = bounds.get(&(account.end.job.operation, account.end.critical)) else {
            tally.unbounded += 1;
            continue;
        };
        let (response, bound) = (account.response(), Span::from_nanos(*bound));
        if response <= bound {
            tally.within += 1;
            tally.shares.push(response.as_nanos() * 100 / bound.as_nanos().max(1));
            continue;
        }
        let excess = response - bound;
        let causes = unknown_to_analysis(account, &ran, &costs);
        let lost: Span = causes.values().copied().sum();
        if lost >= excess {
            let chief = causes.iter().max_by_key(|(_, span)| **span).map_or("", |(name, _)| name);
            *tally.excluded.entry(chief.to_owned()).or_default() += 1;
        } else {
            let name = &system.operation(account.end.job.operation).name;
            tally.violations.push(format!(
                "set {seed}: {name}#{} took {response}, bound {bound}: {excess} more, of which {lost} explained {causes:?}\n{:?}",
                account.end.job.number, account.parts
            ));
        }
    }
    println!(
        "set {seed}: {:<8} {} operations ({triggered} triggered), {} jobs, {} within their bounds, {} violations; the host took {:?}",
        system.processors[0].strategy,
        system.operations.len(),
        tally.jobs - jobs.0,
        tally.within - jobs.1,
        tally.violations.len() - jobs.2,
        ran.finished.stolen[0].2.unwrap_or_default(),
    );
    true
}

/// What the jobs of a job's busy period, itself included, lost to what the analysis does not know.
fn unknown_to_analysis(account: &ResponseBreakdown, ran: &Ran, costs: &Costs) -> BTreeMap<String, Span> {
    // Backwards through those that were unfinished when the earliest of them came.
    let mut since = account.from;
    let spans = ran.accounts.iter().map(|other| (other.from, other.end.end));
    let mut before: Vec<(Instant, Instant)> = spans.filter(|(from, _)| *from < account.end.end).collect();
    before.sort_by_key(|(_, end)| core::cmp::Reverse(*end));
    loop {
        let earlier = before.iter().filter(|(from, end)| *from < since && *end > since).map(|(from, _)| *from).min();
        match earlier {
            Some(from) => since = from,
            None => break,
        }
    }
    let until = account.end.end;
    let mut causes: BTreeMap<String, Span> = BTreeMap::new();
    for (from, to, name) in &ran.foreign {
        let span = (*to).min(until).since((*from).max(since));
        if !span.is_zero() {
            *causes.entry(name.clone()).or_default() += span;
        }
    }
    // Timers that came later than their cost says: the CPU was not there, though nothing had it.
    let known = costs.timer + costs.enqueue;
    for other in ran.accounts.iter().filter(|other| other.end.end > since && other.end.release < until) {
        let late = other.total(|kind| kind == ResponsePart::TimerLate).saturating_sub(known);
        if !late.is_zero() {
            let most = causes.entry(LATE.into()).or_default();
            *most = (*most).max(late);
        }
        let unseen = other.total(|kind| kind == ResponsePart::Unexplained);
        if !unseen.is_zero() {
            *causes.entry(NOBODY.into()).or_default() += unseen;
        }
    }
    causes
}

fn tell(mut tally: Tally) {
    tally.shares.sort_unstable();
    let at = |of_100: usize| tally.shares.get((tally.shares.len() * of_100).div_ceil(100).saturating_sub(1));
    println!(
        "{} jobs: {} within their bounds, {} without a bound, excluded {:?}, {} violations",
        tally.jobs,
        tally.within,
        tally.unbounded,
        tally.excluded,
        tally.violations.len()
    );
    println!("response / bound in %: median {:?}, p90 {:?}, p99 {:?}, most {:?}", at(50), at(90), at(99), at(100));
    assert!(tally.violations.is_empty(), "{}", tally.violations.join("\n"));
    // What nobody is seen to have taken excuses single jobs, not a fault that comes again and again.
    let excused: u64 = tally.excluded.values().copied().sum();
    assert!(excused * 100 <= tally.jobs, "{excused} of {} jobs excused: {:?}", tally.jobs, tally.excluded);
    if tally.jobs == 0 {
        eprintln!("not asserted: nothing could be judged on this machine now");
    }
    assert!(tally.within > 0 || tally.jobs == 0);
}

fn calibrated() -> Option<Costs> {
    if !common::real_time() {
        return None;
    }
    let calibration = match Calibration::measure(|_, _| ()) {
        Ok(calibration) => calibration,
        Err(error @ CalibrateError::TooFew { .. }) => {
            eprintln!("not asserted, for costs cannot be measured now: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    // Not the largest: on a virtual machine that is the host's doing, and bounds that allow for it say little.
    let [timer, enqueue, dequeue, cancel, switch, watchdog] = calibration.costs.map(|(_, figures)| figures.p99);
    let costs = Costs { timer, enqueue, dequeue, cancel, switch, watchdog };
    println!("costs, 99 % of them: {costs:?}");
    Some(costs)
}

#[test]
fn jobs_of_a_set_stay_within_their_bounds_on_the_kernel() {
    let _alone = common::alone();
    if !common::real_time() {
        return;
    }
    // More than any machine that this is tested on needs: measuring takes longer than the test may.
    let us = Span::from_micros;
    let costs =
        Costs { timer: us(200), enqueue: us(20), dequeue: us(20), cancel: us(5), switch: us(50), watchdog: us(200) };
    let mut tally = Tally::default();
    if judge(1, Span::from_secs(2), costs, &mut tally) {
        tell(tally);
    }
}

/// `cargo test --release -p hyoshi --test suite kernel_bounds:: -- --ignored --nocapture`
#[test]
#[ignore = "half a minute for the machine alone"]
fn jobs_of_random_sets_stay_within_their_bounds_on_the_kernel() {
    let _alone = common::alone();
    let Some(costs) = calibrated() else { return };
    let mut tally = Tally::default();
    if (0..8).all(|seed| judge(seed, Span::from_millis(2_500), costs, &mut tally)) {
        tell(tally);
    }
}
