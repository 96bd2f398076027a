//! Reads a recording: its system and its events.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use hyoshi_model::{Contents, HostId, Instant, ProcessorId, ReadContext, SetPointAnalysis, System, read_with};
use hyoshi_report::ReportNote;
use hyoshi_report::figures::time;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::TraceEvent;
use hyoshi_trace::recording::{InTimeOrder, RangeCheck, RangeError, ReadError, RecordingHeader, RecordingReader};

use super::CliError;
use super::costs::{self, CostsFrom};
use super::load::{Changes, LoadedSystem, known_strategy, plan};
use super::set_points;

/// A recording with its system. Events are read on demand: memory does not grow with them.
pub(super) struct Recorded {
    pub path: PathBuf,
    pub header: RecordingHeader,
    pub system: Arc<System>,
    pub plan: Arc<Plan>,
    /// Known after reading.
    cut: OnceCell<Option<Instant>>,
}

/// The changes in a recording.
#[derive(Parser)]
struct Recalled {
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    costs: CostsFrom,
}

impl Recorded {
    pub fn open(path: &Path, strategies: &Strategies) -> Result<Recorded, CliError> {
        let opened = reader(path)?;
        let header = opened.header().clone();
        drop(opened);
        let name = "system.toml (in the recording)";
        let costs = costs::recalled_instead(&header.files)?;
        let set_points = |system: &System| set_points::recorded(&header.files, system);
        let set_points = Some(SetPointAnalysis(&set_points));
        let known = ReadContext { files: header.files.clone(), costs, set_points, ..ReadContext::default() };
        let mut system = read_with(&header.system, name, None, &known).map_err(CliError::File)?.system.into_contents();
        let words = std::iter::once("recording").chain(header.changes.iter().map(String::as_str));
        let recalled = Recalled::try_parse_from(words).map_err(|error| {
            CliError::new(format!("the recording {} contains an invalid change: {error}", path.display()))
        })?;
        recalled.changes.apply(&mut system)?;
        recalled.costs.recalled(&header.files, &mut system)?;
        system.seed = header.seed;
        let system = System::new(system);
        let sorted = header.processors.is_sorted_by(|one, next| one < next);
        let known = header.processors.last().is_some_and(|last| (*last as usize) < system.processors.len());
        if !sorted || !known {
            let message = format!("the recording {} names processors that its system does not have", path.display());
            return Err(CliError::new(message).help("it was edited or damaged; record again"));
        }
        let plan = plan(&system, strategies)?;
        Ok(Recorded { path: path.into(), header, system: system.into(), plan: plan.into(), cut: OnceCell::new() })
    }

    /// Its system with further changes, ready to be simulated.
    pub fn ready(
        &self,
        changes: &Changes,
        costs: &CostsFrom,
        mut notes: Vec<ReportNote>,
        strategies: &Strategies,
    ) -> Result<LoadedSystem, CliError> {
        known_strategy(changes, strategies)?;
        let mut system = Contents::clone(&self.system);
        changes.apply(&mut system)?;
        if costs.costs.is_some() {
            notes.extend(costs.find()?.settle(&mut system, true));
        }
        let system = System::new(system);
        let plan = plan(&system, strategies)?;
        Ok(LoadedSystem {
            file: self.path.display().to_string(),
            source: self.header.system.clone(),
            files: self.header.files.clone(),
            system: system.into(),
            plan: plan.into(),
            warnings: Vec::new(),
            notes,
            changes: self.header.changes.iter().cloned().chain(changes.arguments()).collect(),
        })
    }

    /// Passes every event to `each`, until it stops. Damage is an error.
    pub fn events(
        &self,
        each: impl FnMut(ProcessorId, Instant, TraceEvent) -> ControlFlow<()>,
    ) -> Result<ReadingEnd, CliError> {
        let mut left = self.events_before_damage(each)?;
        left.damaged.take().map_or(Ok(left), Err)
    }

    /// As [`events`](Self::events); if the recording is damaged, the events before the damage.
    pub fn events_before_damage(
        &self,
        mut each: impl FnMut(ProcessorId, Instant, TraceEvent) -> ControlFlow<()>,
    ) -> Result<ReadingEnd, CliError> {
        let mut reader = reader(&self.path)?;
        let mut fits = RangeCheck::new(&self.system).of_part(&self.header.processors);
        let cut = self.cut()?;
        let until = cut.unwrap_or(Instant::NEVER);
        let (mut damaged, mut last) = (None, Instant::ZERO);
        // Statistics of chains need the events of all processors together.
        for entry in InTimeOrder::new(reader.by_ref()) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    damaged = Some(cannot_read(&self.path, error));
                    break;
                }
            };
            fits.check(&entry).map_err(|misfit| self.does_not_fit(&misfit))?;
            // Later events lack those of the other processors.
            if entry.now > until {
                continue;
            }
            last = last.max(entry.now);
            if each(entry.processor, entry.now, entry.event).is_break() {
                break;
            }
        }
        let lost = reader.lost().iter().fold(0, |sum: u64, lost| sum.saturating_add(*lost));
        let torn = reader.torn().map(|torn| {
            let common = cut.map(|cut| {
                format!(
                    "; the part after {} is left out, because it lacks some processors",
                    time(cut.since(Instant::ZERO))
                )
            });
            format!("{torn}{}", common.unwrap_or_default())
        });
        let (names, part) = (reader.names().to_vec(), self.part());
        Ok(ReadingEnd { lost, torn, cut, last: cut.unwrap_or(last), damaged, names, part })
    }

    /// The hosts that it contains, in words; `None` if all.
    pub fn part(&self) -> Option<String> {
        let system = &self.system;
        let is_here = |host: &u32| {
            let mut processors = system.processor_ids().filter(|id| system.processor(*id).host.0 == *host);
            processors.any(|processor| self.header.contains(processor))
        };
        let (here, missing): (Vec<u32>, Vec<u32>) = (0..system.hosts.len() as u32)
            .filter(|host| system.processors.iter().any(|processor| processor.host.0 == *host))
            .partition(is_here);
        let names = |hosts: Vec<u32>| {
            let names = hosts.iter().map(|host| format!("`{}`", system.hosts[*host as usize].name));
            names.collect::<Vec<_>>().join(", ")
        };
        (!missing.is_empty()).then(|| format!("it contains only {}, not {}", names(here), names(missing)))
    }

    /// The host of all its processors, if the system has others.
    pub fn only_host(&self) -> Option<HostId> {
        let mut hosts = self.header.processors.iter().map(|index| self.system.processors[*index as usize].host);
        let host = hosts.next()?;
        let is_only = hosts.all(|other| other == host) && self.system.processors.iter().any(|one| one.host != host);
        is_only.then_some(host)
    }

    /// The reference host of its times: the first that it contains.
    pub fn clock(&self) -> HostId {
        let hosts = self.header.processors.iter().map(|index| self.system.processors[*index as usize].host);
        hosts.min().unwrap_or(HostId(0))
    }

    pub fn does_not_fit(&self, misfit: &RangeError) -> CliError {
        CliError::new(format!("the recording {} does not match the system in it: {misfit}", self.path.display()))
    }

    /// The last instant for which a truncated recording has events of all processors; `None` if it is complete, or has
    /// one processor.
    fn cut(&self) -> Result<Option<Instant>, CliError> {
        let processors = &self.header.processors;
        if processors.len() < 2 {
            return Ok(None);
        }
        if let Some(known) = self.cut.get() {
            return Ok(*known);
        }
        let mut reader = reader(&self.path)?;
        // Damage is reported by the second reading.
        while let Some(Ok(_)) = reader.next() {}
        let all = processors.iter().map(|processor| reader.complete_until(ProcessorId(*processor)));
        let cut = all.min().filter(|least| *least != Instant::NEVER);
        Ok(*self.cut.get_or_init(|| cut))
    }
}

/// The state of a recording after its events were read.
pub(super) struct ReadingEnd {
    /// Events that were lost while recording.
    pub lost: u64,
    /// How it ends within a block.
    pub torn: Option<String>,
    /// The last instant with events of all processors, if it is truncated.
    pub cut: Option<Instant>,
    /// The same; of a complete recording, the time of its last event.
    pub last: Instant,
    /// Why the rest could not be read.
    pub damaged: Option<CliError>,
    /// The names of other threads.
    pub names: Vec<String>,
    /// Which hosts it contains, if not all.
    pub part: Option<String>,
}

pub(super) fn reader(path: &Path) -> Result<RecordingReader<BufReader<File>>, CliError> {
    let file = File::open(path).map_err(|error| cannot_read(path, ReadError::Io(error)))?;
    RecordingReader::new(BufReader::with_capacity(READ, file)).map_err(|error| cannot_read(path, error))
}

/// The size of read buffers: more than a block.
const READ: usize = 128 << 10;

pub(super) fn cannot_read(path: &Path, error: ReadError) -> CliError {
    match error {
        ReadError::Io(error) => {
            let help = match error.kind() {
                ErrorKind::NotFound => "check the name; `hyoshi run FILE --record NAME` writes a recording",
                ErrorKind::IsADirectory => "name a file in this directory",
                ErrorKind::PermissionDenied => "make it readable for this user: chmod +r",
                _ => "check that other programs can read the file",
            };
            CliError::new(format!("cannot read {}: {error}", path.display())).help(help)
        }
        error => CliError::new(format!("cannot read {}: {error}", path.display())),
    }
}
