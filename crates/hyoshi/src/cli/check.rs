//! `hyoshi check`: proves deadlines and admits programs before deployment.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clap::Args;
use hyoshi_control::file::admit;
use hyoshi_model::{HostId, Stay, System};
use hyoshi_os::priority::TRANSPORT;
use hyoshi_report::check::contracts;
use hyoshi_report::{Checked, NoteLevel, ReportNote, TerminalStyle};
use hyoshi_sched::analysis::{AnalysisOptions, Bounds, Progress, Sensitivity, SensitivitySearch, analyse_with};
use hyoshi_sched::{Outcome, Report, Strategies};
use hyoshi_sim::{FlappingRegion, flapping, refute};

use super::costs::CostsFrom;
use super::counterexample;
use super::load::{Changes, LoadedSystem, load};
use super::notes::{Verbose, note, warning};
use super::output::command_line;
use super::progress::ProgressLine;
use super::{CliError, Format, VerbOutcome, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The system's file
    file: PathBuf,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: CostsFrom,
    /// If it does not hold: write a system that shows the miss in a simulation
    #[arg(long, value_name = "FILE")]
    counterexample: Option<PathBuf>,
    /// Show how much longer and how much more often each operation could run, and what breaks first
    #[arg(long)]
    sensitivity: bool,
    /// Calculate all response bounds of levels by deadline or laxity, which can be slow
    #[arg(long)]
    bounds: bool,
    /// List each analysis with its source, and the assumptions
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    verbose: Verbose,
}

pub(super) fn check(arguments: &Arguments, strategies: &Strategies, format: Format) -> Result<VerbOutcome, CliError> {
    let ready = load(&arguments.file, &arguments.changes, &arguments.costs, strategies, format)?;
    let mut line = ProgressLine::new(format);
    let bounds = if arguments.bounds { Bounds::All } else { Bounds::Quick };
    let mut report = {
        let line = RefCell::new(&mut line);
        let progress = |at: Progress| {
            line.borrow_mut().show(|| format!("response bounds: {} of about {} sums", at.done, at.of));
            true
        };
        analyse_with(&ready.system, &ready.plan, AnalysisOptions { bounds, progress: &progress })
    };
    refute(&ready.system, &ready.plan, strategies, &mut report, || {
        line.show(|| "simulating what is not proved".into());
        true
    });
    if arguments.sensitivity && ready.system.follow_contracts().contains(&true) {
        return Err(CliError::new("--sensitivity does not cover contracts that limit or disable operations")
            .help("check without --sensitivity, or a copy of the file without these contracts"));
    }
    let margins = arguments.sensitivity.then(|| margins(&ready, strategies, &report, &mut line));
    let flapping = flapping(&ready.system, &ready.plan, || {
        line.show(|| "simulating contracts".into());
        true
    });
    line.clear();
    let seen = match (counterexample::first(&ready, &report), arguments.counterexample.as_deref()) {
        (Some(example), Some(path)) => Some(counterexample::save(example, path, &ready, strategies)?),
        (example, _) => example.as_ref().map(counterexample::seen),
    };
    let mut notes = ready.notes.clone();
    notes.extend(zenoh_threads(&ready.system));
    notes.extend(contracts::contract_notes(&ready.system));
    notes.extend(flapping.into_iter().map(|(contract, found)| flaps(&ready.system, contract, found)));
    if format == Format::Json {
        // People have read them on standard error.
        notes.extend(ready.warnings.iter().map(warning));
    }
    if let (Some(path), None) = (&arguments.counterexample, &seen) {
        notes.push(note(NoteLevel::Info, "counterexample", none(&report, path)));
    }
    let hosts = (0..ready.system.hosts.len() as u32).map(HostId);
    let admissions: Vec<_> = hosts.filter_map(|host| admit(&ready.system, host)).collect();
    let command = command_line();
    let checked = Checked {
        notes: &notes,
        counterexample: seen.as_ref(),
        sensitivity: margins.as_ref(),
        admissions: &admissions,
        explain: arguments.explain,
        detail: arguments.verbose.detail(),
        ..Checked::new(&command, &ready.system, &report)
    };
    match format {
        Format::Text => streams::out(checked.terminal(TerminalStyle::of_stdout()))?,
        Format::Json => streams::out(checked.json())?,
    }
    Ok(VerbOutcome::of(checked.holds()))
}

/// A region of a contract that began and ended in a cycle in a simulation.
fn flaps(system: &System, contract: u16, found: FlappingRegion) -> ReportNote {
    let contract = &system.contracts[usize::from(contract)];
    let region = &contract.regions[usize::from(found.region)];
    let text = format!(
        "region `{}` of `{}` flaps in a simulation: it begins again soon after its end, {} times in succession, last after {}",
        region.name, contract.name, found.times, found.cycle
    );
    let Stay { first, most, .. } = region.rules.stay;
    let remedy = match first < most {
        true => format!("watch a value that its actions do not change, or raise `most` of `stay` above {most}"),
        false => "watch a value that its actions do not change, or let `stay` grow: { first = \"5s\", grow = 2, most = \"1min\" }".into(),
    };
    ReportNote { remedy: Some(remedy), ..note(NoteLevel::Info, "contract", text) }
}

/// The threads of Zenoh in the nodes of hosts that exchange completions over it.
fn zenoh_threads(system: &System) -> Option<ReportNote> {
    let host = |id| system.processor(system.operation(id).on).host;
    let mut hosts = BTreeSet::new();
    for to in system.operation_ids().filter(|to| system.hosts[host(*to).index()].over_zenoh().is_some()) {
        let sources = system.operation(to).trigger.predecessors();
        hosts.extend(
            sources.iter().map(|from| host(*from)).filter(|from| *from != host(to)).flat_map(|from| [from, host(to)]),
        );
    }
    // A node binds them to the CPU of its host's first processor.
    let first = |host: &HostId| {
        let mut own = system.processors.iter().filter(|processor| processor.host == *host);
        own.next().map(|processor| processor.name.as_str())
    };
    let processors: Vec<&str> = hosts.iter().filter_map(first).collect();
    (!processors.is_empty()).then(|| {
        let text = format!(
            "with --host, Zenoh's threads have SCHED_FIFO priority {TRANSPORT} on the CPUs of {}, above all lanes. Bounds \
             include `timer` and `enqueue` of `costs` for each completion from another host, not the time of these threads",
            processors.join(", ")
        );
        note(NoteLevel::Info, "zenoh", text)
    })
}

/// Why there is no counterexample.
fn none(report: &Report, path: &Path) -> String {
    let path = path.display();
    match report.outcome {
        Outcome::Unknown => format!(
            "{path} is not written: some requirements are not proved, but none is known to fail; hyoshi sim shows what \
             to expect"
        ),
        Outcome::Holds | Outcome::DoesNotHold => format!("{path} is not written: no requirement that counts fails"),
    }
}

/// All margins, searched by one thread per CPU; this thread shows the progress.
fn margins(ready: &LoadedSystem, strategies: &Strategies, report: &Report, line: &mut ProgressLine) -> Sensitivity {
    let search = SensitivitySearch::new(&ready.system, strategies, report);
    let (next, done, of) = (AtomicUsize::new(0), AtomicUsize::new(0), ready.system.operations.len());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(search.parts());
    let parts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let work = || {
            loop {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= search.parts() {
                    break;
                }
                let found = search.part(part, &mut || {
                    done.fetch_add(1, Ordering::Relaxed);
                    true
                });
                parts.lock().unwrap_or_else(PoisonError::into_inner).push(found);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            let done = done.load(Ordering::Relaxed);
            line.show(|| format!("sensitivity: {done} of {of} operations"));
            thread::sleep(Duration::from_millis(2));
        }
    });
    search.join(parts.into_inner().unwrap_or_else(PoisonError::into_inner))
}
