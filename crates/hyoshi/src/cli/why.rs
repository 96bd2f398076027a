//! `hyoshi why`: why a job was late, from a recording.

mod job;
mod json;
pub(super) mod network;
mod path;
mod regions;
mod text;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use hyoshi_model::{Instant, JobId, OperationId, System};
use hyoshi_replay::blame::{Blame, Culprits, Interest, ResponseBreakdown};
use hyoshi_report::TerminalStyle;
use hyoshi_report::blamed::chief;
use hyoshi_report::lateness::{LatenessSummary, lateness};
use hyoshi_sched::Strategies;
use hyoshi_trace::{DiscardReason, DispatchDecision, JobOutcome, TraceEvent};

use super::proved::Analysing;
use super::recorded::{ReadingEnd, Recorded};
use super::{CliError, Format, VerbOutcome, streams};
use job::WhyTarget;
use network::SignalWay;
use path::Path;
use regions::{ActiveRegion, ActiveRegions};

/// The most misses that are listed.
const LISTED: usize = 20;

/// The most decisions about one job that are printed.
const MOST_DECISIONS: usize = 64;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The recording
    file: PathBuf,
    /// The job: its operation and release number, such as nav.update#812, or route#812.3 for a leg. Without a
    /// number: all jobs of an operation or template that did not make their deadlines. Left out: those of all
    #[arg(conflicts_with = "worst", value_name = "JOB|OPERATION")]
    job: Option<String>,
    /// The latest job of this operation or template
    #[arg(long, value_name = "OPERATION")]
    worst: Option<String>,
}

/// A decision about a job.
type Decided = (Instant, DispatchDecision);

pub(super) fn why(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<VerbOutcome, CliError> {
    let recorded = Recorded::open(&arguments.file, strategies)?;
    let system = &recorded.system;
    let asked = match (&arguments.job, &arguments.worst) {
        (Some(job), _) => match WhyTarget::parse(system, job)? {
            WhyTarget::Job(job) => job,
            WhyTarget::Of(name, operations) => return listed(&recorded, Some((&name, &operations)), format),
        },
        (None, Some(operation)) => latest(&recorded, operation)?,
        (None, None) => return listed(&recorded, None, format),
    };
    let analysing = Analysing::begin(system, &recorded.plan);
    let answer = answer(&recorded, asked)?;
    let proved = analysing.end();
    let bound = job::bound(proved.analysis(), &answer.account.end);
    match format {
        Format::Text => streams::out(TerminalStyle::of_stdout().wrap(&text::job(system, &answer, bound)))?,
        Format::Json => {
            let object = json::job(system, &answer, bound);
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(VerbOutcome::of(answer.holds()))
}

/// Everything about one job.
pub(super) struct JobAnswer {
    account: ResponseBreakdown,
    /// The requested job, which was never released, and when: its thread was cancelled on its way from the job of
    /// `account`.
    dropped: Option<(JobId, Instant)>,
    decisions: Vec<Decided>,
    regions: Vec<ActiveRegion>,
    path: Path,
    left: ReadingEnd,
}

impl JobAnswer {
    /// True if the requested job made its deadline.
    fn holds(&self) -> bool {
        self.dropped.is_none() && self.account.end.outcome == JobOutcome::Made
    }
}

/// Decisions about the job, and the numbers of its operation's jobs.
#[derive(Default)]
struct JobDecisions {
    decisions: Vec<Decided>,
    /// The least and greatest number of the operation's jobs.
    numbers: Option<(u64, u64)>,
}

impl JobDecisions {
    fn decided(&mut self, system: &System, at: Instant, decision: &DispatchDecision, wanted: JobId, here: bool) {
        let job = match decision {
            DispatchDecision::Hold { job, .. }
            | DispatchDecision::Ready { job, .. }
            | DispatchDecision::Run { job, .. }
            | DispatchDecision::Yield { job }
            | DispatchDecision::Demote { job } => *job,
            DispatchDecision::End(end) => {
                if end.job.operation == wanted.operation {
                    let number = end.job.number;
                    let (least, most) = self.numbers.unwrap_or((number, number));
                    self.numbers = Some((least.min(number), most.max(number)));
                }
                end.job
            }
            // Of copies of one release: the one that came later, and the job that another one had released. Of a
            // cancelled thread: its last job, and the job that it did not release.
            DispatchDecision::Discard {
                to,
                position,
                number,
                reason: DiscardReason::LaterCopy | DiscardReason::Cancelled,
            } => {
                let concerns = *to == wanted.operation || predecessor(system, *to, *position) == Some(wanted.operation);
                if concerns && *number == wanted.number && self.decisions.len() < MOST_DECISIONS {
                    self.decisions.push((at, *decision));
                }
                return;
            }
            // The cap's gate matters while the job lives.
            DispatchDecision::Gate { .. } | DispatchDecision::Pause { .. } if here => {
                let of_job = |(_, one): &&Decided| !matches!(one, DispatchDecision::Discard { .. });
                let last = self.decisions.iter().rev().find(of_job);
                let lives = last.is_some_and(|(_, last)| !matches!(last, DispatchDecision::End(_)));
                if lives && self.decisions.len() < MOST_DECISIONS {
                    self.decisions.push((at, *decision));
                }
                return;
            }
            _ => return,
        };
        if job == wanted && self.decisions.len() < MOST_DECISIONS {
            self.decisions.push((at, *decision));
        }
    }
}

/// The operation whose completions arrive at a position of another one.
fn predecessor(system: &System, to: OperationId, position: u16) -> Option<OperationId> {
    system.operation(to).trigger.predecessors().get(usize::from(position)).copied()
}

/// When the cancelled thread of the job was dropped on its way, and the job from which it came.
fn dropped_hop(system: &System, asked: JobId, decisions: &[Decided]) -> Option<(Instant, JobId)> {
    decisions.iter().find_map(|(at, decision)| match decision {
        DispatchDecision::Discard { to, position, number, reason: DiscardReason::Cancelled }
            if *to == asked.operation =>
        {
            let operation = predecessor(system, *to, *position)?;
            Some((*at, JobId { operation, number: *number, leg: 0 }))
        }
        _ => None,
    })
}

fn answer(recorded: &Recorded, asked: JobId) -> Result<JobAnswer, CliError> {
    let system = &recorded.system;
    let on = system.operation(asked.operation).on;
    let wanted = path::with_upstream(system, asked);
    let mut found = JobDecisions::default();
    let mut regions = ActiveRegions::new(system, recorded.clock());
    let (accounts, left) = path::accounts(recorded, &wanted, |processor, at, event| {
        regions.event(processor, at, event);
        if let TraceEvent::Decision(decision) = event {
            if let DispatchDecision::End(end) = decision
                && end.job == asked
            {
                regions.ended(processor, at);
            }
            found.decided(system, at, decision, asked, processor == on);
        }
    })?;
    let Some(account) = accounts.get(&asked).cloned() else {
        let Some((at, from)) = dropped_hop(system, asked, &found.decisions) else {
            return Err(job::unknown(system, asked, found.numbers));
        };
        // The thread came from the last leg.
        let mut legs = accounts.range(from..=JobId { leg: u16::MAX, ..from }).map(|(job, _)| *job);
        let last = legs.next_back().ok_or_else(|| job::cancelled_before(system, asked, from))?;
        return Ok(JobAnswer { dropped: Some((asked, at)), ..answer(recorded, last)? });
    };
    let mut paths = path::follow(recorded, std::slice::from_ref(&account), accounts, wanted)?;
    let path = paths.pop().unwrap_or(Path { hops: Vec::new() });
    let regions = regions.during(&account);
    Ok(JobAnswer { account, dropped: None, decisions: found.decisions, regions, path, left })
}

/// The latest job of an operation, or of a template's, by lateness.
fn latest(recorded: &Recorded, name: &str) -> Result<JobId, CliError> {
    let operations = job::named(&recorded.system, name)?;
    let mut latest: Option<(i64, JobId)> = None;
    recorded.events(|_, _, event| {
        if let TraceEvent::Decision(DispatchDecision::End(end)) = event
            && operations.contains(&end.job.operation)
        {
            let late = (end.outcome != JobOutcome::Made, end.end.lateness(end.deadline).as_nanos());
            // A job that did not make its deadline is worse than every job that did.
            let rank = if late.0 { late.1.max(0).saturating_add(1) } else { late.1.min(0) };
            if latest.is_none_or(|(worst, _)| rank > worst) {
                latest = Some((rank, end.job));
            }
        }
        ControlFlow::Continue(())
    })?;
    match latest {
        Some((_, job)) => Ok(job),
        None => Err(CliError::new(format!("the recording has no job of `{name}`"))
            .help("it was switched off, or the recording ends before its first release")),
    }
}

/// The jobs that did not make their deadlines.
pub(super) struct MissList<'a> {
    /// The name of their operation or template, if one was requested.
    of: Option<&'a str>,
    /// Their number, and the number of all jobs that ended.
    count: u64,
    ended: u64,
    /// The worst first, each with the jobs that led to it.
    worst: Vec<Path>,
    /// The causes of their lateness.
    lost: Option<LatenessSummary>,
    left: ReadingEnd,
}

/// Every job, or those of some operations, that did not make its deadline, worst first, with its main cause.
fn listed(recorded: &Recorded, of: Option<(&str, &[OperationId])>, format: Format) -> Result<VerbOutcome, CliError> {
    let system = &recorded.system;
    let exact = recorded.header.verb == "sim";
    let mut concerned = vec![of.is_none(); system.operations.len()];
    of.iter().flat_map(|(_, operations)| *operations).for_each(|id| concerned[id.index()] = true);
    let is_concerned = |id: OperationId| concerned.get(id.index()).copied().unwrap_or(false);
    let law = |plan| Blame::new(system, plan, exact, Interest::NotMade).by_clock_of(recorded.clock());
    let mut laws: Vec<Blame<'_>> = recorded.plan.processors.iter().map(law).collect();
    let mut worst: Vec<ResponseBreakdown> = Vec::new();
    let (mut count, mut ended) = (0u64, 0u64);
    let mut culprits = Culprits::new(system);
    let rank = |account: &ResponseBreakdown| {
        let end = &account.end;
        (Reverse((end.critical, end.end.lateness(end.deadline))), end.release, end.job)
    };
    let left = network::events(recorded, |processor, at, event, way| {
        let account = laws.get_mut(processor.index()).and_then(|law| {
            if let Some(SignalWay::Network(crossing)) = way {
                law.crosses(crossing);
            }
            law.event(at, &event)
        });
        let TraceEvent::Decision(DispatchDecision::End(end)) = event else { return ControlFlow::Continue(()) };
        if !is_concerned(end.job.operation) {
            return ControlFlow::Continue(());
        }
        ended += 1;
        let Some(account) = account else { return ControlFlow::Continue(()) };
        count += 1;
        culprits.record(&account);
        let place = worst.partition_point(|listed| rank(listed) <= rank(&account));
        if place < LISTED {
            worst.insert(place, account);
            worst.truncate(LISTED);
        }
        ControlFlow::Continue(())
    })?;
    let lost = lateness(system, &left.names, system.operation_ids().filter_map(|id| culprits.of(id)));
    let worst = with_what_led_to_them(recorded, worst)?;
    let list = MissList { of: of.map(|(name, _)| name), count, ended, worst, lost, left };
    match format {
        Format::Text => streams::out(TerminalStyle::of_stdout().wrap(&text::list(system, &list)))?,
        Format::Json => streams::out(format_args!("{:#}\n", json::list(system, &list)))?,
    }
    Ok(VerbOutcome::of(count == 0))
}

/// Adds the jobs before those whose main cause lies before them.
fn with_what_led_to_them(recorded: &Recorded, jobs: Vec<ResponseBreakdown>) -> Result<Vec<Path>, CliError> {
    let earlier =
        |job: &&ResponseBreakdown| chief(&recorded.system, job).is_some_and(|part| path::is_earlier(part.kind));
    let followed: Vec<ResponseBreakdown> = jobs.iter().filter(earlier).cloned().collect();
    let mut paths = path::follow(recorded, &followed, Default::default(), BTreeSet::new())?.into_iter();
    let path = |job: ResponseBreakdown| match earlier(&&job) {
        true => paths.next().unwrap_or(Path { hops: vec![job] }),
        false => Path { hops: vec![job] },
    };
    Ok(jobs.into_iter().map(path).collect())
}
