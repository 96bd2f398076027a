//! `hyoshi trace merge`: the recordings of several hosts of one run become one recording.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use hyoshi_model::{HostId, Instant, ProcessorId, Span, write};
use hyoshi_report::figures::{count, time};
use hyoshi_sched::Strategies;
use hyoshi_trace::merge::{Conflict, EventStream, Merge, Merged, Offsets};
use hyoshi_trace::recording::{Fact, RangeCheck, RangeError, RecordedEvent, RecordingHeader, WriteError};
use hyoshi_trace::{CpuEvent, CpuUser, RecordingWriter, TraceEvent};
use serde_json::json;

use super::output::{apart, cannot_write, open};
use super::recorded::{Recorded, cannot_read, reader};
use super::{CliError, Format, VerbOutcome, head, streams};

/// The recording of one host.
struct HostRecording {
    recorded: Recorded,
    host: HostId,
    /// Its measurements of the other hosts' clocks, by host.
    measured: Vec<Offsets>,
    /// The largest error among them.
    error: Span,
    /// The merged recording's numbers of its other threads.
    names: Vec<String>,
    lost: Vec<u64>,
}

const WHAT: &str = "the recording";

/// Merges the recordings `files` into `output`.
pub(super) fn merge(
    files: &[PathBuf],
    output: &Path,
    strategies: &Strategies,
    format: Format,
) -> Result<VerbOutcome, CliError> {
    for file in files {
        apart(&[("a recording to merge", Some(file)), ("-o", Some(output))])?;
    }
    let mut parts = Vec::with_capacity(files.len());
    for file in files {
        let part = HostRecording::read(Recorded::open(file, strategies)?)?;
        belong_together(&parts, &part)?;
        parts.push(part);
    }
    parts.sort_by_key(|part| part.host);
    let system = parts[0].recorded.system.clone();
    let reference = parts[0].host;
    let header = header(&parts);
    let file = open(output, &parts[0].recorded.path.display().to_string(), WHAT)?;
    // Devices and pipes have no length to set.
    drop(file.set_len(0));
    let mut writer =
        RecordingWriter::new(file, output.display().to_string(), &header).map_err(|error| match error {
            WriteError::Io { source, .. } => cannot_write(WHAT, output, &source),
            other => CliError::new(other),
        })?;
    let names: Vec<Vec<CpuUser>> =
        parts.iter().map(|part| part.names.iter().map(|name| writer.name(name)).collect()).collect();

    let mut sources = Vec::new();
    let mut owners = Vec::new();
    let mut stream_of = vec![None; system.processors.len()];
    for (index, part) in parts.iter().enumerate() {
        let offsets = offsets(&parts, index);
        for processor in part.recorded.header.processors.iter().copied().map(ProcessorId) {
            stream_of[processor.index()] = Some(sources.len());
            owners.push((processor, index));
            sources.push(EventStream::new(events(&part.recorded, processor)?, offsets.clone()));
        }
    }
    let counts = RefCell::new((0u64, vec![0u64; parts.len()]));
    let mut fits = RangeCheck::new(&system).of_part(&header.processors);
    let of = |operation| stream_of[system.operation(operation).on.index()];
    let written = Merge::new(sources, reference, of, |merged: Merged| {
        let (processor, part) = owners[merged.stream];
        let (events, clocks) = &mut *counts.borrow_mut();
        *events += 1;
        clocks[part] += u64::from(matches!(merged.event, TraceEvent::Cpu(CpuEvent::Clock { .. })));
        let entry = RecordedEvent { processor, now: merged.local, event: renamed(merged.event, &names[part]) };
        fits.check(&entry).map_err(|misfit| impossible(&parts[part], &misfit))?;
        writer.event(processor, entry.now, &entry.event).map_err(CliError::new)
    })
    .run();
    if written.is_err() && output.is_file() {
        // The part of a recording would look like a shorter run.
        drop(std::fs::remove_file(output));
    }
    written.map_err(|conflict| match conflict {
        Conflict::Failed(failure) => failure,
        Conflict::Order { from, to, at } => CliError::new(format!(
            "a signal from `{}` to `{}` arrives at {at}, before the earliest possible sending",
            system.operation(from).name,
            system.operation(to).name
        ))
        .help("the recordings are damaged, or a clock was set while they were made"),
    })?;
    for part in &parts {
        for (processor, lost) in (0u32..).zip(&part.lost) {
            writer.lost(ProcessorId(processor), *lost).map_err(CliError::new)?;
        }
    }
    writer.finish().map_err(CliError::new)?;
    let (events, clocks) = counts.into_inner();
    print_summary(&parts, output, events, &clocks, format)?;
    Ok(VerbOutcome::Success)
}

/// The error of an event that no reader accepts on the common clock.
fn impossible(part: &HostRecording, misfit: &RangeError) -> CliError {
    let recording = part.recorded.path.display();
    let host = &part.recorded.system.hosts[part.host.index()].name;
    CliError::new(format!("cannot merge {recording}: with its clock offsets of host `{host}`, {misfit}"))
        .help("record the run again; `hyoshi node show` prints the clock offsets of its hosts")
}

/// Prints a summary of the merge.
fn print_summary(
    parts: &[HostRecording],
    output: &Path,
    events: u64,
    clocks: &[u64],
    format: Format,
) -> Result<(), CliError> {
    let system = &parts[0].recorded.system;
    let name = |part: &HostRecording| system.hosts[part.host.index()].name.clone();
    let measured = |index: usize| index == 0 || offsets(parts, index).is_some_and(|offsets| !offsets.is_empty());
    match format {
        Format::Text => {
            let mut text = format!(
                "{}: {} events of {} hosts, on the clock of `{}`\n",
                output.display(),
                count(events),
                parts.len(),
                name(&parts[0])
            );
            for (index, part) in parts.iter().enumerate().skip(1) {
                text += &match measured(index) {
                    true => format!(
                        "{}: {} offsets in use, measured within {}\n",
                        name(part),
                        count(clocks[index]),
                        time(error(parts, index))
                    ),
                    false => {
                        format!("degraded: {}: its clock was not measured; its times are unchanged\n", name(part))
                    }
                };
            }
            streams::out(text)
        }
        Format::Json => {
            let hosts = parts.iter().enumerate().map(|(index, part)| {
                json!({
                    "host": name(part), "recording": part.recorded.path.display().to_string(),
                    "measured": measured(index), "offsets": clocks[index],
                    "error_ns": error(parts, index).as_nanos(),
                })
            });
            let object = json!({
                "hyoshi": head("trace merge"), "file": output.display().to_string(), "events": events,
                "clock": name(&parts[0]), "hosts": hosts.collect::<Vec<_>>(),
            });
            streams::out(format_args!("{object:#}\n"))
        }
    }
}

impl HostRecording {
    /// Reads the data needed before its events.
    fn read(recorded: Recorded) -> Result<HostRecording, CliError> {
        let system = &recorded.system;
        let mut hosts: Vec<HostId> =
            recorded.header.processors.iter().map(|index| system.processors[*index as usize].host).collect();
        hosts.dedup();
        let [host] = hosts[..] else {
            let message = format!("{} is not the recording of a single host", recorded.path.display());
            return Err(CliError::new(message).help("merge the recordings of all hosts in one call, each of one host"));
        };
        let mut measured = vec![Offsets::default(); system.hosts.len()];
        let mut largest = Span::ZERO;
        let mut fits = RangeCheck::new(system).of_part(&recorded.header.processors);
        let mut reader = reader(&recorded.path)?;
        for entry in reader.by_ref() {
            let entry = entry.map_err(|error| cannot_read(&recorded.path, error))?;
            fits.check(&entry).map_err(|misfit| recorded.does_not_fit(&misfit))?;
            if let TraceEvent::Cpu(CpuEvent::Clock { host, offset, error }) = entry.event {
                measured[host.index()].add(entry.now, offset, error);
                largest = largest.max(error);
            }
        }
        let (names, lost) = (reader.names().to_vec(), reader.lost().to_vec());
        Ok(HostRecording { host, measured, error: largest, names, lost, recorded })
    }
}

/// The lead of the first part's clock over that of another part; `None` for the first.
fn offsets(parts: &[HostRecording], index: usize) -> Option<Offsets> {
    let (reference, part) = (&parts[0], &parts[index]);
    if index == 0 {
        return None;
    }
    let own = &part.measured[reference.host.index()];
    let mut offsets = if own.is_empty() { reference.measured[part.host.index()].reversed() } else { own.clone() };
    offsets.settle();
    Some(offsets)
}

/// The error bound of a part's offsets.
fn error(parts: &[HostRecording], index: usize) -> Span {
    match index {
        0 => Span::ZERO,
        _ if parts[index].measured[parts[0].host.index()].is_empty() => parts[0].error,
        _ => parts[index].error,
    }
}

/// Rejects a part of another run, or of a host that another part contains.
fn belong_together(parts: &[HostRecording], part: &HostRecording) -> Result<(), CliError> {
    let Some(first) = parts.first() else { return Ok(()) };
    let (one, other) = (&first.recorded, &part.recorded);
    let both = format!("{} and {}", one.path.display(), other.path.display());
    let (ours, theirs) = (write(&one.system), write(&other.system));
    if ours != theirs {
        let mut lines = ours.lines().zip(theirs.lines()).enumerate().filter(|(_, (ours, theirs))| ours != theirs);
        let difference = match lines.next() {
            Some((line, (ours, theirs))) => format!("line {} is `{ours}` in one and `{theirs}` in the other", line + 1),
            None => "one has more lines than the other".to_string(),
        };
        return Err(CliError::new(format!("{both} are of different systems: as text, {difference}"))
            .help("start every host with the same file and the same options"));
    }
    if one.header.run != other.header.run || one.header.verb != other.header.verb {
        return Err(
            CliError::new(format!("{both} are of different runs")).help("merge recordings of hosts that ran together")
        );
    }
    if let Some(same) = parts.iter().find(|known| known.host == part.host) {
        let host = &one.system.hosts[part.host.index()].name;
        let (one, other) = (same.recorded.path.display(), part.recorded.path.display());
        return Err(CliError::new(format!("{one} and {other} are both of host `{host}`")).help("remove one of them"));
    }
    Ok(())
}

fn header(parts: &[HostRecording]) -> RecordingHeader {
    let first = &parts[0].recorded;
    let mut processors: Vec<u32> = parts.iter().flat_map(|part| part.recorded.header.processors.clone()).collect();
    processors.sort_unstable();
    let facts = parts.iter().flat_map(|part| {
        let host = &first.system.hosts[part.host.index()].name;
        part.recorded
            .header
            .facts
            .iter()
            .map(move |fact| Fact { detail: format!("{host}: {}", fact.detail), ..fact.clone() })
    });
    let started = parts.iter().map(|part| part.recorded.header.started_unix_ns).min();
    RecordingHeader {
        processors,
        facts: facts.collect(),
        started_unix_ns: started.unwrap_or_default(),
        ..first.header.clone()
    }
}

/// The next event of a recording, `None` at its end.
type Next = Result<Option<(Instant, TraceEvent)>, CliError>;

/// The events of one processor. Each has its own reader: blocks of several processors are unordered.
fn events(recorded: &Recorded, processor: ProcessorId) -> Result<impl FnMut() -> Next + use<>, CliError> {
    let mut reader = reader(&recorded.path)?.only(processor);
    let path = recorded.path.clone();
    Ok(move || match reader.next() {
        Some(Ok(entry)) => Ok(Some((entry.now, entry.event))),
        Some(Err(error)) => Err(cannot_read(&path, error)),
        None => Ok(None),
    })
}

/// The event with the merged recording's numbers of other threads.
fn renamed(event: TraceEvent, names: &[CpuUser]) -> TraceEvent {
    let who = |who| match who {
        CpuUser::Other(number) => names.get(number as usize).copied().unwrap_or(CpuUser::Unknown),
        who => who,
    };
    match event {
        TraceEvent::Cpu(CpuEvent::Switch { to, preempted }) => {
            TraceEvent::Cpu(CpuEvent::Switch { to: who(to), preempted })
        }
        TraceEvent::Cpu(CpuEvent::Overhead { who: by, span }) => {
            TraceEvent::Cpu(CpuEvent::Overhead { who: who(by), span })
        }
        TraceEvent::Cpu(CpuEvent::Used { who: by, span }) => TraceEvent::Cpu(CpuEvent::Used { who: who(by), span }),
        event => event,
    }
}
