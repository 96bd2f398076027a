//! Scheduling costs for `check`, `sim` and the bounds of `run`: from the command line, else from the system's file,
//! else as measured by `hyoshi calibrate` on this machine.

use std::path::{Path, PathBuf};

use clap::Args;
use hyoshi_model::{Contents, Costs, MeasuredCosts, Span, read_costs, read_costs_file};
use hyoshi_os::secure_var_os;
use hyoshi_report::{NoteLevel, ReportNote};

use super::CliError;
use super::notes::note;

/// The file of measured costs; `none` for no file, which makes results independent of the machine.
const VARIABLE: &str = "HYOSHI_COSTS";

/// The topic of notes on costs.
const TOPIC: &str = "costs";

/// The name under which a recording stores costs of the command line.
const RECORDED: &str = "costs of the command line";

/// The name under which a recording stores the costs measured on its machine.
const MEASURED: &str = "costs measured on the machine";

/// The measured costs in a recording, for systems without costs of their own.
pub(super) fn recalled_instead(files: &[(String, String)]) -> Result<Option<Costs>, CliError> {
    let Some((name, text)) = files.iter().find(|(stored, _)| stored == MEASURED) else { return Ok(None) };
    let read = read_costs(text, &format!("{name} (in the recording)")).map_err(CliError::File)?;
    Ok(Some(read.costs))
}

/// Which costs to use.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct CostsFrom {
    /// Scheduling costs: none, measured (on this machine, by `hyoshi calibrate`), or a file that `hyoshi calibrate`
    /// wrote [default: those of the system's file, else measured, else none]
    #[arg(long, value_name = "none|measured|FILE")]
    pub costs: Option<String>,
}

/// Costs from outside the system's file.
#[derive(Debug)]
pub(super) enum CostSource {
    /// From the command line: they override the file.
    Given { costs: Costs, text: String },
    /// Measured on this machine: for processors without costs in the file.
    Stored { costs: Costs, text: String },
    /// Not measured.
    Nowhere,
}

impl CostsFrom {
    /// Applies the costs of the command line that made a recording; `files` are the texts in it.
    pub fn recalled(&self, files: &[(String, String)], system: &mut Contents) -> Result<(), CliError> {
        let Some(name) = &self.costs else { return Ok(()) };
        let stored = files.iter().find(|(stored, _)| stored == name);
        let (name, text) = stored
            .ok_or_else(|| CliError::new(format!("the recording refers to `{name}`, but does not contain it")))?;
        let costs = read_costs(text, &format!("{name} (in the recording)")).map_err(CliError::File)?.costs;
        system.processors.iter_mut().for_each(|processor| processor.costs = costs);
        Ok(())
    }

    pub fn find(&self) -> Result<CostSource, CliError> {
        match self.costs.as_deref() {
            Some("none") => {
                Ok(CostSource::Given { costs: Costs::NONE, text: "overheads ignored (--costs none)".into() })
            }
            Some("measured") => {
                let stored = stored()?.ok_or_else(|| {
                    let wanted =
                        stored_path().map_or(String::new(), |path| format!(": {} does not exist", path.display()));
                    CliError::new(format!("no measured costs on this machine{wanted}"))
                        .help("measure them with `hyoshi calibrate`, which needs some seconds")
                })?;
                Ok(CostSource::Given { costs: stored.costs, text: measured_here(&stored) })
            }
            Some(file) => {
                let read = read_costs_file(file).map_err(CliError::File)?;
                let date = if read.date.is_empty() { String::new() } else { format!(", measured {}", read.date) };
                let text = format!("costs: from {file}{date} {}", list(&read.costs));
                Ok(CostSource::Given { costs: read.costs, text })
            }
            None => match stored()? {
                Some(stored) => Ok(CostSource::Stored { costs: stored.costs, text: measured_here(&stored) }),
                None => Ok(CostSource::Nowhere),
            },
        }
    }
}

impl CostSource {
    /// The costs as a named text for a recording, and the argument that selects them.
    pub fn to_record(&self) -> Option<((String, String), Option<String>)> {
        let text = |costs| MeasuredCosts { costs, ..MeasuredCosts::default() }.to_toml();
        match self {
            CostSource::Given { costs, .. } => {
                Some(((RECORDED.into(), text(*costs)), Some(format!("--costs={RECORDED}"))))
            }
            CostSource::Stored { costs, .. } => Some(((MEASURED.into(), text(*costs)), None)),
            CostSource::Nowhere => None,
        }
    }

    /// Costs for processors without costs in the file.
    pub fn instead(&self) -> Option<Costs> {
        match self {
            CostSource::Stored { costs, .. } => Some(*costs),
            CostSource::Given { .. } | CostSource::Nowhere => None,
        }
    }

    /// Applies the costs of the command line to the system.
    pub fn apply(&self, system: &mut Contents) {
        if let CostSource::Given { costs, .. } = self {
            system.processors.iter_mut().for_each(|processor| processor.costs = *costs);
        }
    }

    /// Applies the costs of the command line to the system. Returns notes on the costs in use.
    pub fn settle(self, system: &mut Contents, by_file: bool) -> Vec<ReportNote> {
        self.apply(system);
        let text = match self {
            CostSource::Given { text, .. } => text,
            _ if by_file => of_the_file(system),
            CostSource::Stored { costs, text } => match system.processors.iter().all(|one| one.costs == costs) {
                true => text,
                false => format!("{text}; costs of the system's file override these"),
            },
            CostSource::Nowhere => match system.processors.iter().all(|one| one.costs.is_none()) {
                true => "overheads ignored; `hyoshi calibrate` measures them".into(),
                false => format!("{}; none for processors without costs", of_the_file(system)),
            },
        };
        let text = text.strip_prefix("costs: ").map_or(text.clone(), str::to_owned);
        let mut notes = vec![note(NoteLevel::Info, TOPIC, text)];
        notes.extend(larger_than_operations(system));
        notes
    }
}

fn of_the_file(system: &Contents) -> String {
    let mut all = system.processors.iter().map(|processor| processor.costs);
    match all.next() {
        Some(first) if first.is_none() && all.all(|other| other == first) => {
            "overheads ignored, as the system's file requests".into()
        }
        Some(first) if system.processors.iter().all(|one| one.costs == first) => {
            format!("costs: from the system's file {}", list(&first))
        }
        _ => "costs: from the system's file, by processor".into(),
    }
}

fn measured_here(measured: &MeasuredCosts) -> String {
    let date = if measured.date.is_empty() { String::new() } else { format!(" {}", measured.date) };
    let priority = if measured.real_time == Some(false) { ", without real-time priority" } else { "" };
    let now = hyoshi_os::machine::kernel();
    let changed = !measured.kernel.is_empty() && measured.kernel != now;
    let kernel = if changed {
        format!(", with kernel {}; run `hyoshi calibrate` again", measured.kernel)
    } else {
        String::new()
    };
    format!("costs: measured on this machine{date}{priority}{kernel} {}", list(&measured.costs))
}

/// All costs, in one line.
fn list(costs: &Costs) -> String {
    let each = costs.named().map(|(name, span)| format!("{name} {}", short(span)));
    format!("({})", each.join(", "))
}

/// Two significant digits identify the costs.
pub(super) fn short(span: Span) -> String {
    match span.as_nanos() {
        nanos @ 0..1_000 => format!("{nanos}ns"),
        nanos @ 1_000..1_000_000 => format!("{:.1}us", nanos as f64 / 1e3),
        nanos => format!("{:.1}ms", nanos as f64 / 1e6),
    }
}

/// A note if scheduling a job costs more than its execution: most often, a unit is wrong.
fn larger_than_operations(system: &Contents) -> Option<ReportNote> {
    let per_job = |costs: &Costs| {
        let Costs { timer, enqueue, dequeue, cancel, switch, watchdog: _ } = *costs;
        [timer, enqueue, dequeue, cancel, switch, switch].into_iter().fold(Span::ZERO, |sum, one| sum + one)
    };
    let smaller = system.operation_ids().filter_map(|id| {
        let operation = system.operation(id);
        let overhead = per_job(&system.processor(operation.on).costs);
        let settings = system.epochs.iter().map(|epoch| &epoch.settings[id.index()]);
        let least = settings.filter(|setting| setting.enabled).map(|setting| setting.wcet).min()?;
        (overhead > least).then_some((operation, least, overhead))
    });
    let smaller: Vec<_> = smaller.collect();
    let (operation, least, overhead) = smaller.first()?;
    let more = match smaller.len() - 1 {
        0 => String::new(),
        1 => "; so does one more operation".into(),
        more => format!("; so do {more} more operations"),
    };
    let text = format!(
        "a job of `{}` costs up to {} to schedule, but executes for at most {least}{more}",
        operation.name,
        short(*overhead)
    );
    let remedy = Some("check the units of the costs, or do more work in fewer jobs".into());
    Some(ReportNote { remedy, ..note(NoteLevel::Info, TOPIC, text) })
}

/// The costs measured on this machine.
fn stored() -> Result<Option<MeasuredCosts>, CliError> {
    let Some(path) = stored_path() else { return Ok(None) };
    let named = secure_var_os(VARIABLE).is_some();
    if !named && path.symlink_metadata().is_err() {
        return Ok(None);
    }
    read_costs_file(&path).map(Some).map_err(CliError::File)
}

/// Their file: `HYOSHI_COSTS`, else where `hyoshi calibrate` stores it.
fn stored_path() -> Option<PathBuf> {
    match secure_var_os(VARIABLE) {
        Some(none) if none == "none" => None,
        Some(path) => Some(path.into()),
        None => default_path(),
    }
}

/// Where `hyoshi calibrate` stores costs (XDG base directory specification: a relative XDG_CONFIG_HOME is ignored).
pub(super) fn default_path() -> Option<PathBuf> {
    let absolute = |name| secure_var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".config"));
    let base = absolute("XDG_CONFIG_HOME").or_else(home)?;
    Some(base.join(Path::new("hyoshi/costs.toml")))
}
