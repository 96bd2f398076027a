//! The answer, for people.

use std::fmt::Write;

use hyoshi_model::{Deadline, Instant, JobId, Span, System};
use hyoshi_replay::blame::{BreakdownBasis, Crossing, ResponseBreakdown, ResponsePart, Stretch};
use hyoshi_report::blamed::{GROUPS, because, chief, name_of, together, words_of};
use hyoshi_report::figures::{count as digits, jobs as counted_jobs, share, time};
use hyoshi_report::lateness::LatenessSummary;
use hyoshi_trace::{DiscardReason, DispatchDecision, JobEnd, JobOutcome};

use super::super::recorded::ReadingEnd;
use super::path::{Earlier, Path, is_earlier};
use super::{JobAnswer, MissList, predecessor};

/// Columns of the bar.
const BAR: usize = 72;

/// The most steps and parts that are printed.
const MOST_PRINTED: usize = 24;

/// Why one job ended as it did.
pub(super) fn job(system: &System, answer: &JobAnswer, bound: Result<Span, String>) -> String {
    let account = &answer.account;
    let end = &account.end;
    let mut text = String::new();
    // Writing to a String cannot fail.
    if let Some((job, at)) = answer.dropped {
        let (job, from, at) = (name_of(system, job), name_of(system, end.job), at.as_nanos() as f64 / 1e9);
        let _ = writeln!(
            text,
            "{job} was never released: at {at:.6}s its thread, which was cancelled, arrived from {from}\n"
        );
    }
    let _ = writeln!(text, "{} {}", name_of(system, end.job), ended(account));
    let _ = writeln!(text, "{}\n", circumstances(system, account));
    if let Some(bar) = bar(account) {
        let _ = writeln!(text, "{bar}");
    }
    if let Some(crossing) = account.crossing {
        crossed(&mut text, system, account, crossing);
    }
    let _ = writeln!(text, "where its {} were spent", time(account.response()));
    parts(&mut text, system, account, &answer.left.names);
    if account.timeline.len() > 1 {
        let _ = writeln!(text, "\nstep by step, from its {}", counted(system, end));
        for stretch in account.timeline.iter().take(MOST_PRINTED) {
            let at = format!("+{}", time(stretch.from.since(account.from)));
            let span = time(stretch.to.since(stretch.from));
            let words = words_of(system, account, stretch.kind, &answer.left.names);
            let _ = writeln!(text, "{at:>12}{span:>10}  {words}");
        }
        more(&mut text, account.timeline.len().saturating_sub(MOST_PRINTED));
    }
    if answer.path.hops.len() > 1 {
        text.push_str("\nthe path to it\n");
        path(&mut text, system, &answer.path.hops, &answer.left.names);
    }
    if !answer.decisions.is_empty() {
        text.push_str("\nwhat the dispatcher decided\n");
        for (at, decision) in &answer.decisions {
            let _ = writeln!(text, "{:>22}  {}", since(*at, account.from), decided(system, decision));
        }
    }
    if !answer.regions.is_empty() {
        text.push_str("\nactive regions of contracts, and when they began\n");
        for (contract, change) in answer.regions.iter().take(MOST_PRINTED) {
            let at = since(Instant::from_nanos(change.at_ns), account.from);
            let region = change.to.as_deref().unwrap_or_default();
            let conditions = change.conditions();
            let conditions = if conditions.is_empty() { conditions } else { format!(" ({conditions})") };
            let _ = writeln!(text, "{at:>22}  {contract}: {region}{conditions}");
        }
        more(&mut text, answer.regions.len().saturating_sub(MOST_PRINTED));
    }
    text.push('\n');
    let observed = time(account.response());
    let _ = match bound {
        Ok(bound) if bound < account.response() => writeln!(
            text,
            "lasted {observed} (proved bound {}): the proof excludes overruns, overhead and other threads; see above",
            time(bound)
        ),
        Ok(bound) => writeln!(text, "lasted {observed} (proved bound {})", time(bound)),
        Err(why) => writeln!(text, "no bound: {why}"),
    };
    let _ = writeln!(text, "{}", basis(account.basis));
    left(&mut text, &answer.left);
    text
}

/// The jobs that did not make their deadlines.
pub(super) fn list(system: &System, list: &MissList<'_>) -> String {
    let MissList { of, count, ended: jobs, worst, lost, left: rest } = list;
    let mut text = String::new();
    let of = of.map_or(String::new(), |name| format!(" of {name}"));
    if *count == 0 && (rest.cut.is_some() || rest.torn.is_some()) {
        let until = rest.cut.map_or(String::new(), |cut| format!(" until {}", time(cut.since(Instant::ZERO))));
        match jobs {
            0 => _ = writeln!(text, "no result: the recording was cut off, and no job{of} ended{until}"),
            _ => {
                _ = writeln!(
                    text,
                    "the recording was cut off; all {} recorded jobs{of}{until} made their deadlines",
                    digits(*jobs)
                )
            }
        }
    } else if *count == 0 {
        _ = match jobs {
            0 => writeln!(text, "no job{of} ended"),
            _ => writeln!(text, "all {}{of} made their deadlines", counted_jobs(*jobs)),
        };
    } else {
        let order = if worst.iter().any(|path| last(path).is_some_and(|job| job.end.critical)) {
            "critical ones first, "
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{} of {}{of} did not make their deadlines, {order}worst first:\n",
            digits(*count),
            counted_jobs(*jobs)
        );
        let jobs = || worst.iter().filter_map(|path| Some((path, last(path)?)));
        let width = |wide: fn(&System, &ResponseBreakdown) -> String| {
            jobs().map(|(_, job)| wide(system, job).chars().count()).max().unwrap_or(0)
        };
        let (name, class) = (width(|system, job| name_of(system, job.end.job)), width(|_, job| class(job).into()));
        let how = width(|_, job| ended(job));
        for (path, job) in jobs() {
            let cause = main_cause(system, path, job, &rest.names);
            let class = format!("{:<class$}{}", self::class(job), if class > 0 { "  " } else { "" });
            let _ = writeln!(text, "  {:<name$}  {class}{:<how$}  {cause}", name_of(system, job.end.job), ended(job));
        }
        more(&mut text, *count as usize - worst.len());
        if let Some(lost) = lost {
            together_lost(&mut text, lost);
        }
        if let Some((_, job)) = jobs().next() {
            let _ = writeln!(text, "\n`hyoshi why RECORDING {}` explains the first", name_of(system, job.end.job));
        }
    }
    left(&mut text, rest);
    text
}

fn last(path: &Path) -> Option<&ResponseBreakdown> {
    path.hops.last()
}

fn class(job: &ResponseBreakdown) -> &'static str {
    if job.end.critical { "critical" } else { "" }
}

/// The main cause of a job's lateness; if that lies before the job, also the main cause there.
fn main_cause(system: &System, path: &Path, job: &ResponseBreakdown, names: &[String]) -> String {
    let cause = because(system, job, names);
    let earlier = chief(system, job).filter(|part| is_earlier(part.kind)).and_then(|_| path.earlier(system));
    match earlier {
        Some(Earlier { hop, part, executed }) => {
            let words = part.words(system, names);
            let executed = match executed.is_zero() {
                true => String::new(),
                false => format!(" {} of it executing as declared,", time(executed)),
            };
            format!("{cause};{executed} {} of it {} {words}", time(part.span), name_of(system, hop.end.job))
        }
        None => cause,
    }
}

/// The causes of the lateness of all jobs, by kind and by culprit.
fn together_lost(text: &mut String, lost: &LatenessSummary) {
    let part = |text: &mut String, nanos: u64, what: &str| {
        let part = time(Span::from_nanos(nanos));
        let _ = writeln!(text, "{part:>12}{:>10}  {what}", share(nanos, lost.response_ns));
    };
    let _ = writeln!(text, "\nwhere the {} of all of them were spent", time(Span::from_nanos(lost.response_ns)));
    for (group, name) in GROUPS {
        if let Some(found) = lost.groups.iter().find(|found| found.group == group) {
            part(text, found.total_ns, name);
        }
    }
    if !lost.culprits.is_empty() {
        text.push_str("\nwhich jobs delayed them\n");
    }
    for culprit in &lost.culprits {
        let name = |group: &str| GROUPS.iter().find(|(known, _)| *known == group).map_or("", |(_, name)| name);
        let kinds = culprit
            .groups
            .iter()
            .map(|group| format!("{} {}", name(group.group), time(Span::from_nanos(group.total_ns))));
        let overran = culprit.overrun.as_ref().map_or(String::new(), |overran| format!("; {}", overran.words));
        let what = format!("jobs of {}: {}{overran}", culprit.operation, kinds.collect::<Vec<_>>().join(", "));
        part(text, culprit.total_ns, &what);
    }
}

fn more(text: &mut String, more: usize) {
    if more > 0 {
        let _ = writeln!(text, "{:>12}and {} more", "", digits(more as u64));
    }
}

fn left(text: &mut String, left: &ReadingEnd) {
    if left.lost > 0 {
        let _ = writeln!(
            text,
            "degraded: {} events were lost while recording; their time is unexplained",
            digits(left.lost)
        );
    }
    if let Some(part) = &left.part {
        let _ = writeln!(text, "the recording is partial: {part}");
    }
    if let Some(torn) = &left.torn {
        let _ = writeln!(text, "degraded: {torn}");
    }
}

/// How a job ended, in a few words.
pub(super) fn ended(account: &ResponseBreakdown) -> String {
    let end = &account.end;
    let late = end.end.since(end.deadline);
    match end.outcome {
        JobOutcome::Made => format!("made its deadline with {} to spare", time(end.deadline.since(end.end))),
        JobOutcome::Missed if end.start == Instant::NEVER => {
            format!("not started when the run ended, {} late", time(late))
        }
        JobOutcome::Missed => format!("missed its deadline by {}", time(late)),
        JobOutcome::Cancelled => {
            let (left, needs) = (end.deadline.since(end.end), time(account.wcet));
            match late.is_zero() {
                // A dispatcher cancels only at the first dispatch, and only what does not fit.
                true if end.start != Instant::NEVER || end.critical || account.wcet <= left => {
                    format!("was cancelled from outside, {} before its deadline", time(left))
                }
                true => format!("was cancelled: {} left, it may need {needs}", time(left)),
                false if end.start == Instant::NEVER => {
                    format!("never started; cancelled at dispatch, {} after its deadline", time(late))
                }
                false => format!("was cancelled, {} after its deadline", time(late)),
            }
        }
        JobOutcome::Stopped if end.start == Instant::NEVER => "never started: its deadline was over".into(),
        JobOutcome::Stopped => {
            let limit = if end.overran { "beyond its worst case" } else { "at its deadline" };
            format!("was stopped after {}, {limit}", time(end.consumed))
        }
        JobOutcome::DroppedBusy => "was dropped: the job before it was unfinished".into(),
        JobOutcome::DroppedFull => "was dropped: its queue was full".into(),
        JobOutcome::Expired => "was dropped: its origin was older than its lifespan".into(),
        JobOutcome::Skipped => "was skipped: a job before it missed its deadline".into(),
    }
}

fn counted(system: &System, end: &JobEnd) -> &'static str {
    let epoch = usize::from(end.epoch).min(system.epochs.len() - 1);
    match system.setting(epoch, end.job.operation).deadline {
        Deadline::Own(_) => "release",
        Deadline::Origin(_) => "root's release",
    }
}

fn circumstances(system: &System, account: &ResponseBreakdown) -> String {
    let end = &account.end;
    let operation = system.operation(end.job.operation);
    let processor = system.processor(operation.on);
    let epoch = usize::from(end.epoch).min(system.epochs.len() - 1);
    let class = if end.critical { "critical" } else { "non-critical" };
    let mut text = format!(
        "  {class}, on {} ({}); {} at {:.6}s, due {} later, ended {} later",
        processor.name,
        processor.strategy,
        counted(system, end),
        account.from.as_nanos() as f64 / 1e9,
        time(end.deadline.since(account.from)),
        time(account.response()),
    );
    if system.epochs.len() > 1 {
        let _ = write!(text, "; in {}", system.epochs[epoch].name);
    }
    if let (true, Some(timeout)) = (account.timed_out, operation.timeout) {
        let _ = write!(text, "; released by its timeout: no trigger for {}", time(timeout));
    }
    if !account.held_before.is_zero() {
        let _ = write!(text, "; its release guard had held it for {} before", time(account.held_before));
    }
    text
}

/// A bar of the time from the release to the end; `None` if it would be empty.
fn bar(account: &ResponseBreakdown) -> Option<String> {
    let whole = account.response().as_nanos();
    if whole == 0 || account.timeline.is_empty() {
        return None;
    }
    let column =
        |at: Instant| (u128::from(at.since(account.from).as_nanos()) * BAR as u128 / u128::from(whole)) as usize;
    let mut cells = [' '; BAR];
    for Stretch { from, to, kind } in &account.timeline {
        // A step shorter than a column is shown unless a longer one covers it.
        let (first, last) = (column(*from).min(BAR - 1), column(*to).min(BAR));
        for cell in &mut cells[first..last.max(first + 1)] {
            *cell = sign(*kind);
        }
    }
    let mut text = format!("  {}", cells.iter().collect::<String>());
    if account.end.deadline < account.end.end && account.end.deadline >= account.from {
        let _ = write!(text, "\n  {:>1$}", "^ deadline", column(account.end.deadline) + "^ deadline".len());
    }
    text.push_str("\n  █ ran  ▓ ran too long  ░ waited  ▒ preempted  x resource, cap  · before its queue  o other\n");
    Some(text)
}

fn sign(kind: ResponsePart) -> char {
    match kind {
        ResponsePart::Executed => '█',
        ResponsePart::Overran => '▓',
        ResponsePart::Waited { .. } => '░',
        ResponsePart::Preempted { .. } => '▒',
        ResponsePart::Resource { .. } | ResponsePart::Cap { .. } | ResponsePart::Demoted { .. } => 'x',
        ResponsePart::Upstream | ResponsePart::Legs | ResponsePart::Link | ResponsePart::Network { .. } => '·',
        ResponsePart::Offset
        | ResponsePart::Jitter
        | ResponsePart::Guard
        | ResponsePart::Moved { .. }
        | ResponsePart::TimerLate => '·',
        _ => 'o',
    }
}

fn parts(text: &mut String, system: &System, account: &ResponseBreakdown, names: &[String]) {
    let whole = account.response().as_nanos().max(1) as f64;
    let together = together(system, account);
    for part in together.iter().take(MOST_PRINTED) {
        let share = format!("{:.1} %", part.span.as_nanos() as f64 / whole * 100.0);
        let _ = writeln!(text, "{:>12}{share:>10}  {}", time(part.span), part.words(system, names));
    }
    more(text, together.len().saturating_sub(MOST_PRINTED));
}

fn path(text: &mut String, system: &System, hops: &[ResponseBreakdown], names: &[String]) {
    // All on one clock: hops may be on several hosts.
    let origin = hops.first().map_or(Instant::ZERO, |hop| hop.end.release.by_clock_ahead(hop.ahead));
    let mut reached = origin;
    for hop in hops {
        // From the end of the one before to its own end: the hop's share of the whole.
        let end = hop.end.end.by_clock_ahead(hop.ahead);
        let share = end.since(reached);
        let on = &system.processor(system.operation(hop.end.job.operation).on).name;
        let ran = hop.total(|kind| matches!(kind, ResponsePart::Executed | ResponsePart::Overran));
        let chief = together(system, hop).into_iter().find(|part| !part.kind.is_own() && !is_earlier(part.kind));
        let chief = chief.map_or(String::new(), |part| format!("; {} {}", time(part.span), part.words(system, names)));
        let at = format!("+{}", time(end.since(origin)));
        let _ = writeln!(
            text,
            "{at:>12}{:>10}  {} on {on}: {} executing{chief}",
            time(share),
            name_of(system, hop.end.job),
            time(ran)
        );
        reached = end;
    }
}

/// The way of a job's trigger from another host.
fn crossed(text: &mut String, system: &System, account: &ResponseBreakdown, crossing: Crossing) {
    let host = |job: JobId| {
        let processor = system.operation(job.operation).on;
        &system.hosts[system.processor(processor).host.index()].name
    };
    let instant = |at: Instant| format!("{:.6}s", at.as_nanos() as f64 / 1e9);
    let _ = writeln!(text, "its trigger crossed hosts (times on the clock of {})", host(account.end.job));
    let by = account.by.map_or(String::new(), |by| format!("  by {} on {}", name_of(system, by), host(by)));
    let _ = writeln!(text, "{:>12}{:>13}{by}", "sent", instant(crossing.sent));
    let _ = writeln!(
        text,
        "{:>12}{:>13}  {} later; clock error at most {}\n",
        "received",
        instant(crossing.received),
        time(crossing.took()),
        time(crossing.error)
    );
}

fn since(at: Instant, from: Instant) -> String {
    if at >= from { format!("+{}", time(at.since(from))) } else { format!("-{}", time(from.since(at))) }
}

pub(super) fn decided(system: &System, decision: &DispatchDecision) -> String {
    match decision {
        DispatchDecision::Discard { to, reason: DiscardReason::Cancelled, .. } => {
            format!("{} is not released: the thread was cancelled", system.operation(*to).name)
        }
        DispatchDecision::Discard { to, position, .. } => {
            let copy = predecessor(system, *to, *position).map_or("", |id| system.operation(id).name.as_str());
            let to = &system.operation(*to).name;
            format!("{to} skips the copy of {copy}: another copy of this release was first")
        }
        DispatchDecision::Hold { until, .. } => {
            format!("held back, until {:.6}s at the latest", until.as_nanos() as f64 / 1e9)
        }
        DispatchDecision::Ready { lane, .. } => format!("ready, in the queue of lane {lane}"),
        DispatchDecision::Run { lane, resumed: false, .. } => format!("begins, in lane {lane}"),
        DispatchDecision::Run { lane, .. } => format!("continues, in lane {lane}"),
        DispatchDecision::Yield { .. } => "yields its lane".into(),
        DispatchDecision::Demote { .. } => "continues below the lanes: beyond its worst case".into(),
        DispatchDecision::Gate { lane: u8::MAX } => "the cap's window is over: every lane may start work".into(),
        DispatchDecision::Gate { lane } => format!("the cap stops non-critical work in lanes from {lane} on"),
        DispatchDecision::Pause { on: true } => "the hard cap pauses every lane".into(),
        DispatchDecision::Pause { on: false } => "the hard cap's pause is over".into(),
        DispatchDecision::End(end) => match end.outcome {
            JobOutcome::Made | JobOutcome::Missed => "ends".into(),
            JobOutcome::Cancelled if end.start != Instant::NEVER => "ends: cancelled from outside".into(),
            JobOutcome::Cancelled => "cancelled at its first dispatch".into(),
            JobOutcome::Stopped => "stopped".into(),
            JobOutcome::DroppedBusy | JobOutcome::DroppedFull => "not admitted".into(),
            JobOutcome::Expired => "expired".into(),
            JobOutcome::Skipped => "skipped".into(),
        },
        _ => String::new(),
    }
}

fn basis(basis: BreakdownBasis) -> &'static str {
    match basis {
        BreakdownBasis::Exact => "from a simulation: every instant is known",
        BreakdownBasis::Switches => "the kernel's context switches show who had the CPU",
        BreakdownBasis::Inferred => {
            "who had the CPU is inferred from priorities and CPU times: the recording has no context switches (`hyoshi doctor` lists remedies)"
        }
    }
}
