//! Reads a system's file, applies the changes of the command line, and makes the plan.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use hyoshi_control::feedback::Coordinator;
use hyoshi_control::file;
use hyoshi_model::{
    Contents, DesignGains, Diagnostic, Laws, Overload, Preemption, ReadContext, SetPointAnalysis, Span, System,
    quantity, read_file_with,
};
use hyoshi_report::{ColourChoice, ReportNote};
use hyoshi_sched::{Plan, Strategies};

use super::costs::CostsFrom;
use super::{CliError, Format, set_points, streams};

/// The CPU broker's rules for reservations in a file.
const LAWS: Laws =
    Laws { advocate: file::advocate, policy: |text| file::policy(text).map(|policy| file::groups(&policy)) };

/// Changes to the system's file.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Changes {
    /// The strategy of every processor; of two, such as RMS,RMS+MLF, the second is used in overload
    #[arg(long, value_name = "NAME")]
    pub strategy: Option<String>,
    /// Whether to cancel non-critical jobs that can no longer finish in time
    #[arg(long, value_name = "BOOL")]
    pub cancel: Option<bool>,
    /// Which jobs may interrupt which: none, levels or full
    #[arg(long, value_name = "WHICH", value_parser = preemption)]
    pub preemption: Option<Preemption>,
    /// The seed of all pseudo-random sequences of a simulation, a run or a counterexample
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = seed)]
    pub seed: Option<u64>,
    /// How long the system runs, such as 10s or 5min; later regions are not reached
    #[arg(long, value_name = "SPAN", value_parser = span)]
    pub duration: Option<Span>,
    /// Cap on the CPU share of lanes, such as 94%; 100% for none
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub cap: Option<u32>,
    /// Hard cap, which also limits critical work, such as 94%; 100% for none
    #[arg(long, value_name = "SHARE", value_parser = hard_share)]
    pub hard_cap: Option<u32>,
    /// Design gains of feedback loops. Jobs need up to GA times their worst case. Misses rise by GM per unit of
    /// overload, latencies by GL times their set point per unit of utilisation. Without GL that of the file stays
    #[arg(long, value_name = "GA,GM[,GL]", value_parser = gains)]
    pub gains: Option<GivenGains>,
}

pub(super) fn span(text: &str) -> Result<Span, String> {
    match quantity::span(text) {
        Ok(Span::ZERO) => Err(format!("{text:?} must not be zero; write a time such as \"10s\"")),
        Ok(span) => Ok(span),
        Err(error) => Err(format!("{text:?} {error}; {}", error.remedy(text))),
    }
}

fn share(text: &str) -> Result<u32, String> {
    let ppm = quantity::share_ppm(text).map_err(|error| format!("{text:?} {error}; {}", error.remedy(text)))?;
    if (1..=1_000_000).contains(&ppm) {
        Ok(ppm)
    } else {
        Err(format!("{text:?} must not be zero; write a percentage up to \"100%\" (no cap)"))
    }
}

fn hard_share(text: &str) -> Result<u32, String> {
    match share(text)? {
        ppm if ppm >= 10_000 => Ok(ppm),
        _ => Err(format!("{text:?} is below 1%; write a percentage from \"1%\" to \"100%\" (no hard cap)")),
    }
}

/// GA, GM and, if given, GL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GivenGains(f64, f64, Option<f64>);

fn gains(text: &str) -> Result<GivenGains, String> {
    let number = |text: &str| text.trim().parse().ok().filter(|gain| DesignGains::RANGE.contains(gain));
    let numbers: Option<Vec<_>> = text.split(',').map(number).collect();
    let given = match numbers.as_deref() {
        Some([ga, gm]) => Some(GivenGains(*ga, *gm, None)),
        Some([ga, gm, gl]) => Some(GivenGains(*ga, *gm, Some(*gl))),
        _ => None,
    };
    let (least, most) = DesignGains::RANGE.into_inner();
    given.ok_or_else(|| {
        format!("{text:?} is not GA,GM or GA,GM,GL; write two or three numbers from {least} to {most}, such as 2,0.447")
    })
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a seed; write a whole number from 0 to {}", u64::MAX))
}

fn preemption(text: &str) -> Result<Preemption, String> {
    match text {
        "none" => Ok(Preemption::None),
        "levels" => Ok(Preemption::Levels),
        "full" => Ok(Preemption::Full),
        other => Err(format!("{other:?} is unknown; known: none, levels, full")),
    }
}

/// Defaults for switching between two strategies.
const MARGIN: Span = Span::ZERO;
const CALM: Span = Span::from_secs(1);

impl Changes {
    /// The names in `--strategy`: one, or two separated by a comma.
    fn strategies(&self) -> Option<(&str, Option<&str>)> {
        let named = self.strategy.as_deref()?;
        let pair = named.split_once(',').map(|(first, second)| (first.trim(), Some(second.trim())));
        Some(pair.unwrap_or((named, None)))
    }

    /// Applies the changes.
    ///
    /// # Errors
    ///
    /// If one of them changes nothing in the system.
    pub fn apply(&self, system: &mut Contents) -> Result<(), CliError> {
        if self.gains.is_some() && system.feedback.iter().all(|one| one.algorithm.is_of_group()) {
            let why = format!("--gains has no effect: system `{}` has no feedback loop with gains", system.name);
            return Err(
                CliError::new(why).help("add [feedback.PROCESSOR] with FC-U, FC-M, FC-UM or FC-UL, or omit --gains")
            );
        }
        let is_one = self.strategies().is_some_and(|(_, second)| second.is_none());
        if let Some(contract) = system.contracts.iter().find(|one| is_one && one.needs_two_strategies()) {
            let why = format!("--strategy names one strategy, but contract `{}` needs two", contract.name);
            return Err(CliError::new(why).help("name two, such as --strategy RMS,RMS+MLF, or omit --strategy"));
        }
        for processor in &mut system.processors {
            if let Some((first, second)) = self.strategies() {
                processor.strategy = first.to_owned();
                // The file's thresholds, else the defaults.
                let (margin, calm) =
                    processor.overload.as_ref().map_or((MARGIN, CALM), |file| (file.margin, file.calm));
                processor.overload = second.map(|name| Overload { strategy: name.to_owned(), margin, calm });
            }
            processor.cancel = self.cancel.unwrap_or(processor.cancel);
            processor.preemption = self.preemption.unwrap_or(processor.preemption);
            processor.cap_ppm = self.cap.unwrap_or(processor.cap_ppm);
            processor.hard_cap.ppm = self.hard_cap.unwrap_or(processor.hard_cap.ppm);
        }
        for one in &mut system.feedback {
            if let Some(GivenGains(ga, gm, gl)) = self.gains {
                one.gains = DesignGains { ga, gm, gl: gl.unwrap_or(one.gains.gl) };
            }
        }
        system.seed = self.seed.unwrap_or(system.seed);
        system.duration = self.duration.unwrap_or(system.duration);
        Ok(())
    }

    /// The changes as arguments of the command line, for a recording.
    pub fn arguments(&self) -> Vec<String> {
        let preemption = self.preemption.map(|preemption| match preemption {
            Preemption::None => "none",
            Preemption::Levels => "levels",
            Preemption::Full => "full",
        });
        let given = [
            ("strategy", self.strategy.clone()),
            ("cancel", self.cancel.map(|cancel| cancel.to_string())),
            ("preemption", preemption.map(str::to_owned)),
            ("seed", self.seed.map(|seed| seed.to_string())),
            ("duration", self.duration.map(|span| span.to_string())),
            ("cap", self.cap.map(|ppm| format!("{}%", f64::from(ppm) / 1e4))),
            (
                "gains",
                self.gains.map(|GivenGains(ga, gm, gl)| {
                    format!("{ga},{gm}{}", gl.map_or(String::new(), |gl| format!(",{gl}")))
                }),
            ),
            ("hard-cap", self.hard_cap.map(|ppm| format!("{}%", f64::from(ppm) / 1e4))),
        ];
        given.into_iter().filter_map(|(name, value)| value.map(|value| format!("--{name}={value}"))).collect()
    }
}

/// A system that is ready to be simulated or run.
pub(super) struct LoadedSystem {
    /// The file as the user named it.
    pub file: String,
    /// Its text.
    pub source: String,
    /// The files that it refers to, with their texts.
    pub files: Vec<(String, String)>,
    pub system: Arc<System>,
    pub plan: Arc<Plan>,
    pub warnings: Vec<Diagnostic>,
    /// Notes on scheduling costs.
    pub notes: Vec<ReportNote>,
    /// The changes as arguments of the command line.
    pub changes: Vec<String>,
}

/// Reads a file, applies the changes and the costs, and makes the plan. Warnings are printed at once on standard
/// error, if people read the results; the notes name the costs in use.
pub(super) fn load(
    path: &Path,
    changes: &Changes,
    costs: &CostsFrom,
    strategies: &Strategies,
    format: Format,
) -> Result<LoadedSystem, CliError> {
    known_strategy(changes, strategies)?;
    // A strategy that the command line replaces is not checked.
    let named = changes.strategy.is_none().then(|| strategies.names());
    let costs = costs.find()?;
    // What analysis has found, for a recording.
    let utilisations = RefCell::new(None);
    let set_points = |read: &System| {
        let mut contents = Contents::clone(read);
        let planned = changes.apply(&mut contents).and_then(|()| {
            costs.apply(&mut contents);
            let system = System::new(contents);
            plan(&system, strategies).map(|plan| set_points::by_analysis(&system, &plan))
        });
        // Loading fails later, with the same error.
        let found = planned.unwrap_or_else(|_| {
            let why = ("the changes of the command line do not apply".to_owned(), "omit them".to_owned());
            vec![Err(why); read.feedback.len()]
        });
        utilisations.replace(set_points::to_record(read, &found));
        found
    };
    let known = ReadContext {
        strategies: named,
        costs: costs.instead(),
        duration: changes.duration,
        laws: Some(LAWS),
        set_points: Some(SetPointAnalysis(&set_points)),
        ..ReadContext::default()
    };
    let loaded = read_file_with(path, &known).map_err(CliError::File)?;
    let mut system = loaded.system.into_contents();
    changes.apply(&mut system)?;
    let (mut files, mut changes) = (loaded.files, changes.arguments());
    files.extend(utilisations.into_inner());
    if let Some((file, change)) = costs.to_record() {
        files.push(file);
        changes.extend(change);
    }
    let notes = costs.settle(&mut system, loaded.costs_declared);
    let system = System::new(system);
    if let Err(error) = Coordinator::of(&system) {
        return Err(CliError::new(error.to_string()).help(error.remedy));
    }
    let plan = plan(&system, strategies)?;
    if format == Format::Text {
        for warning in &loaded.warnings {
            let warning = format!("{}\n\n", warning.render(ColourChoice::colours(&std::io::stderr())));
            streams::err(streams::wrap_diagnostics(&warning));
        }
    }
    Ok(LoadedSystem {
        file: path.display().to_string(),
        source: loaded.text,
        files,
        system: system.into(),
        plan: plan.into(),
        warnings: loaded.warnings,
        notes,
        changes,
    })
}

/// Checks the strategies of the command line: one, or two.
pub(super) fn known_strategy(changes: &Changes, strategies: &Strategies) -> Result<(), CliError> {
    let pair = changes.strategies();
    if let Some((first, Some(second))) = pair {
        let refused = match second {
            _ if second.contains(',') => Some("names more than two strategies"),
            _ if first.trim().eq_ignore_ascii_case(second) => Some("names one strategy twice"),
            _ => None,
        };
        if let Some(message) = refused {
            return Err(CliError::new(format!("`--strategy` {message}"))
                .help("name two, such as RMS,RMS+MLF; the second is used in overload"));
        }
    }
    let names = pair.into_iter().flat_map(|(first, second)| [Some(first), second]).flatten();
    match names.into_iter().find(|name| strategies.find(name).is_none()) {
        Some(name) => Err(CliError::new(format!("unknown strategy `{name}`")).help(known(strategies))),
        None => Ok(()),
    }
}

pub(super) fn plan(system: &System, strategies: &Strategies) -> Result<Plan, CliError> {
    Plan::new(system, strategies).map_err(|unknown| {
        let (processor, name) = (unknown.processor, unknown.name);
        CliError::new(format!("unknown strategy `{name}` of processor `{processor}`")).help(known(strategies))
    })
}

fn known(strategies: &Strategies) -> String {
    format!("known: {}; a program adds its own in `hyoshi::cli`", strategies.names().join(", "))
}
