//! `hyoshi trace export`: converts a recording for Perfetto.

use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use hyoshi_dispatch::lanes_of;
use hyoshi_replay::perfetto::{Export, ExportCounts};
use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{count, counted};
use hyoshi_sched::ProcessorPlan;
use serde_json::json;

use super::output::{cannot_write, open};
use super::recorded::{ReadingEnd, Recorded};
use super::{CliError, Format, VerbOutcome, head, streams};

/// Its name in errors.
const WHAT: &str = "the export";

/// Writes a recording for Perfetto; beside the recording if no other file is named.
pub(super) fn perfetto(recorded: &Recorded, output: Option<&Path>, format: Format) -> Result<VerbOutcome, CliError> {
    let path = output.map_or_else(|| recorded.path.with_extension("perfetto-trace"), PathBuf::from);
    let file = open(&path, &recorded.path.display().to_string(), WHAT)?;
    // Devices and pipes have no length to set.
    drop(file.set_len(0));
    let (exported, left, broken) = written(recorded, BufWriter::new(file), &path)?;
    match format {
        Format::Text => {
            let ExportCounts { jobs, runs, flows, .. } = exported;
            streams::out(TerminalStyle::of_stdout().wrap(&format!(
                "{}: {}, {}, {}; open it at https://ui.perfetto.dev\n",
                path.display(),
                counted(jobs, "job", "jobs"),
                counted(runs, "interval of execution", "intervals of execution"),
                counted(flows, "arrow", "arrows")
            )))?;
            if let Some(torn) = left.as_ref().and_then(|left| left.torn.as_ref()) {
                streams::out(format_args!("degraded: the export is marked as partial: {torn}\n"))?;
            }
            if let Some(part) = left.as_ref().and_then(|left| left.part.as_ref()) {
                streams::out(format_args!("the recording is partial: {part}\n"))?;
            }
            if let Some(lost) = left.as_ref().map(|left| left.lost).filter(|lost| *lost > 0) {
                streams::out(format_args!("degraded: {} events were lost while recording\n", count(lost)))?;
            }
        }
        Format::Json => {
            let object = json!({
                "hyoshi": head("trace export"), "file": path.display().to_string(), "jobs": exported.jobs,
                "runs": exported.runs, "flows": exported.flows, "packets": exported.packets,
                "lost_events": left.as_ref().map(|left| left.lost),
                "torn": left.as_ref().and_then(|left| left.torn.as_ref()),
                "part": left.as_ref().and_then(|left| left.part.as_ref()),
            });
            // The object with the failure reports damage.
            if broken.is_none() {
                streams::out(format_args!("{object:#}\n"))?;
            }
        }
    }
    broken.map_or(Ok(VerbOutcome::Success), Err)
}

type Written = (ExportCounts, Option<ReadingEnd>, Option<CliError>);

fn written(recorded: &Recorded, to: BufWriter<File>, path: &Path) -> Result<Written, CliError> {
    let (system, plan) = (&recorded.system, &recorded.plan);
    let fail = |error: std::io::Error| cannot_write(WHAT, path, &error);
    let lanes: Vec<Vec<String>> = plan.processors.iter().map(labels).collect();
    let mut export = Export::new(to, system, plan, &lanes, recorded.header.verb == "sim").map_err(fail)?;
    export = export.by_clock_of(recorded.clock());
    let mut failed = None;
    let read = recorded.events(|processor, at, event| match export.event(processor, at, &event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    });
    if let Some(error) = failed {
        return Err(fail(error));
    }
    let partial = match &read {
        Ok(left) => left.torn.is_some() || left.cut.is_some() || left.lost > 0,
        Err(_) => true,
    };
    let exported = export.finish(partial).map_err(fail)?;
    Ok(match read {
        Ok(left) => (exported, Some(left), None),
        Err(broken) => (exported, None, Some(broken)),
    })
}

/// The labels of the lanes.
fn labels(plan: &ProcessorPlan) -> Vec<String> {
    let label = |levels: std::ops::Range<u8>| {
        let levels = plan.levels.get(usize::from(levels.start)..usize::from(levels.end)).unwrap_or_default();
        levels.iter().map(|level| level.label.as_str()).collect::<Vec<_>>().join("; ")
    };
    lanes_of(plan).into_iter().map(label).collect()
}
