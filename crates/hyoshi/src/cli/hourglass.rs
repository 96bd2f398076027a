//! `hyoshi hourglass`: a synthetic real-time program that measures whether it had its CPU time.
//!
//! After the application of that name in J. Regehr, "Inferring scheduling behavior with Hourglass" (USENIX FREENIX
//! 2002), with which the CPU Broker's paper makes its figures 4 and 5. A period's work is CPU time by the threads' own
//! clocks. Work that is unfinished at the end of a period is dropped, and does not delay the next period.

mod demand;
mod tally;
mod work;

use std::sync::Arc;

use clap::Args;
use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake};
use hyoshi_report::TerminalStyle;
use serde_json::json;

use super::load::span;
use super::{CliError, Format, VerbOutcome, head, streams};
use demand::{Spike, WorkLength, WorkPhase, WorkPlan};
use tally::{PeriodCounts, PeriodOutcome};
use work::WorkerThreads;

#[derive(Debug, Args)]
#[command(after_help = "It ends after --for or on an interrupt, and prints a summary.\n  \
                        hyoshi hourglass --period 33ms --work 10ms --for 10s\n  \
                        hyoshi hourglass --period 300ms --work 100ms --phase 10:150ms --phase 20:200ms --repeat 30\n  \
                        hyoshi exec --period 33ms -- hyoshi hourglass --period 33ms --work 10ms --spike 12:25ms")]
pub(super) struct Hourglass {
    /// Period of the work: 33ms for 30 times a second
    #[arg(long, value_name = "TIME", value_parser = span)]
    period: Span,
    /// CPU time of the work in each period, for all threads together
    #[arg(long, value_name = "TIME", value_parser = demand::time)]
    work: Span,
    /// The work from then on (a time, or a number of periods); can be repeated
    #[arg(long, value_name = "FROM:WORK")]
    phase: Vec<WorkPhase>,
    /// Repeat the phases after this time or number of periods
    #[arg(long, value_name = "LENGTH", requires = "phase")]
    repeat: Option<WorkLength>,
    /// The work of one in so many periods; can be repeated
    #[arg(long, value_name = "EVERY:WORK")]
    spike: Vec<Spike>,
    /// Threads that share the work of each period
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MOST_THREADS))]
    threads: u32,
    /// How long to run [default: until interrupted]
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    length: Option<Span>,
    /// Print a line for each period, not for each second
    #[arg(long)]
    each: bool,
    /// Exit with 1 if a deadline was missed
    #[arg(long)]
    strict: bool,
}

const MOST_THREADS: i64 = 1_024;
/// The shortest period of a reservation.
const SHORTEST_PERIOD: Span = Span::from_micros(100);
const LONGEST_PERIOD: Span = Span::from_secs(3_600);
const SECOND: Span = Span::from_secs(1);

impl Hourglass {
    /// The work of all periods, after checks of the flags.
    fn demand(&self) -> Result<WorkPlan, CliError> {
        let Hourglass { period, threads, .. } = *self;
        if !(SHORTEST_PERIOD..=LONGEST_PERIOD).contains(&period) {
            return Err(CliError::new(format!("--period {period} is out of range"))
                .help(format!("use {SHORTEST_PERIOD} to {LONGEST_PERIOD}")));
        }
        if let Some(length) = self.length.filter(|length| *length < period) {
            return Err(CliError::new(format!("--for {length} is shorter than one period of {period}"))
                .help("use a longer --for, or none"));
        }
        let phases: Vec<_> = self.phase.iter().map(|phase| (phase.from.periods(period), phase.work)).collect();
        if let Some(pair) = phases.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            let (first, then) = (pair[0].0, pair[1].0);
            return Err(CliError::new(format!("--phase from period {then} cannot follow one from period {first}"))
                .help("order phases by their start; each lasts at least one period"));
        }
        let repeat = self.repeat.map(|repeat| repeat.periods(period));
        if let (Some(round), Some((last, _))) = (repeat, phases.last())
            && round <= *last
        {
            return Err(CliError::new(format!(
                "--repeat of {round} periods ends before the phase from period {last} begins"
            ))
            .help("set --repeat to the length of all phases together"));
        }
        let repeat = repeat.and_then(std::num::NonZeroU64::new);
        let demand = WorkPlan { work: self.work, phases, repeat, spikes: self.spike.clone() };
        let (most, greatest) = (period.as_nanos() * u64::from(threads), demand.greatest());
        if greatest.as_nanos() > most {
            let workers = if threads == 1 { "one thread".into() } else { format!("{threads} threads") };
            return Err(CliError::new(format!("{greatest} of work exceed what {workers} can do in {period}"))
                .help("use less work, a longer --period, or more --threads"));
        }
        Ok(demand)
    }
}

pub(super) fn hourglass(arguments: &Hourglass, format: Format) -> Result<VerbOutcome, CliError> {
    let demand = arguments.demand()?;
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone())
        .map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let clock = MonotonicClock::start();
    let workers = WorkerThreads::new(arguments.threads, clock, &interrupt);
    let total = std::thread::scope(|scope| {
        for number in 1..arguments.threads {
            let thread = std::thread::Builder::new().name(format!("hourglass-{number}"));
            if let Err(error) = thread.spawn_scoped(scope, || workers.join_in()) {
                // The started threads would wait for the missing ones for ever.
                CliError::new(format!("cannot start thread {number}: {error}"))
                    .help("use fewer --threads, or raise `ulimit -u`")
                    .print("hourglass", format);
                std::process::exit(2);
            }
        }
        let total = play(arguments, &demand, &workers, &Time { clock, wake: &wake, interrupt: &interrupt }, format);
        workers.dismiss();
        total
    })?;
    match format {
        Format::Text => streams::out(TerminalStyle::of_stdout().wrap(&total.closing()))?,
        Format::Json => streams::out(format_args!("{}\n", json!({ "hyoshi": head("hourglass"), "total": total })))?,
    }
    Ok(VerbOutcome::of(!arguments.strict || total.missed == 0))
}

/// The clock, and the interrupt that ends the program.
struct Time<'a> {
    clock: MonotonicClock,
    wake: &'a Wake,
    interrupt: &'a Interrupt,
}

/// Executes all periods.
fn play(
    arguments: &Hourglass,
    demand: &WorkPlan,
    workers: &WorkerThreads<'_>,
    time: &Time<'_>,
    format: Format,
) -> Result<PeriodCounts, CliError> {
    let Hourglass { period, each, .. } = *arguments;
    let start = |number: u64| Instant::from_nanos(number.saturating_mul(period.as_nanos()));
    let periods = arguments.length.map_or(u64::MAX, |length| length.as_nanos() / period.as_nanos());
    let mut read = open(arguments, time.clock, format)?;
    let (mut total, mut since, mut next_line) =
        (PeriodCounts::default(), PeriodCounts::default(), Instant::ZERO + SECOND);
    let mut number = 0;
    loop {
        let release = start(number);
        while number < periods && time.clock.now() < release && !time.interrupt.requested() {
            time.wake.wait_until(&time.clock, release);
        }
        if number >= periods || time.interrupt.requested() || !read {
            break;
        }
        let (demanded, deadline) = (demand.of(number), start(number + 1));
        let (obtained, ended) = workers.work(demanded, deadline);
        if time.interrupt.requested() {
            break;
        }
        let met = obtained >= demanded && ended <= deadline;
        let cycle = PeriodOutcome { number, release, ended, demanded, obtained, met };
        total.add(&cycle);
        since.add(&cycle);
        if each {
            read = print(format, || cycle.line(), || cycle.json())?;
        }
        // Periods that have passed are missed; the current one may still be met.
        number += 1;
        let now = (ended.as_nanos() / period.as_nanos()).min(periods);
        while number < now {
            total.skip(demand.of(number));
            since.skip(demand.of(number));
            number += 1;
        }
        let until = start(number);
        if !each && (until >= next_line || number >= periods) {
            read = print(format, || since.line(until), || second(until, &since))?;
            since = PeriodCounts::default();
            while next_line <= until {
                next_line += SECOND;
            }
        }
    }
    Ok(total)
}

/// Prints the process ID and the start time, for `attach` and for comparisons.
fn open(arguments: &Hourglass, clock: MonotonicClock, format: Format) -> Result<bool, CliError> {
    let Hourglass { period, work, threads, .. } = *arguments;
    let process = std::process::id();
    let threads_too = if threads == 1 { String::new() } else { format!(", {threads} threads") };
    print(
        format,
        || format!("process {process}: {work} of each {period}{threads_too}\n"),
        || json!({ "process": process, "origin_ns": clock.origin(), "period_ns": period.as_nanos(), "threads": threads }),
    )
}

fn second(until: Instant, since: &PeriodCounts) -> serde_json::Value {
    let mut line = json!(since);
    line["until_ns"] = until.as_nanos().into();
    line
}

/// Prints one line at once. Returns false if the reader has closed the pipe.
fn print(
    format: Format,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> serde_json::Value,
) -> Result<bool, CliError> {
    match format {
        Format::Text => streams::out_while_read(text()),
        Format::Json => streams::out_while_read(format_args!("{}\n", json())),
    }
}
