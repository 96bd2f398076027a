//! The traffic classes of a host's devices. A separate process sets them, and removes them also after a killed run.
//!
//! ```text
//!   hyoshi run ── a pipe: the devices ──► network-watch: sets the classes, and answers
//!        │                                    │ the pipe closes, however the run ends
//!        ▼                                    ▼
//!     the run ◄── packets sent and dropped ── removes the classes
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use hyoshi_model::{Dscp, NetworkDevice, TrafficClass};
use hyoshi_net::{ClassPlan, HeldClasses, NetworkError, remove_left};
use hyoshi_os::{Hangup, Interrupt, Wake};
use hyoshi_report::figures::count;
use hyoshi_report::{NoteLevel, ReportNote};
use serde::{Deserialize, Serialize};

use crate::cli::notes::note;
use crate::cli::{CliError, VerbOutcome, streams};

/// The topic of notes.
const TOPIC: &str = "network";

/// The classes of a host. They are removed when this is dropped.
pub(super) struct HostNetwork {
    guard: Option<NetworkGuard>,
    devices: Vec<String>,
    notes: Vec<ReportNote>,
}

struct NetworkGuard {
    process: Child,
    pipe: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// A device for the guard: a line of JSON.
#[derive(Serialize, Deserialize)]
struct DeviceLine {
    device: String,
    rate: u64,
    /// DSCPs, share, ceiling.
    classes: Vec<(Vec<u8>, u32, u32)>,
}

/// The guard's answer for a device: at the start, and at the end.
#[derive(Serialize, Deserialize)]
enum GuardLine {
    Holds,
    Refused { text: String, remedy: String },
    Ended { text: String, lost: bool },
}

impl HostNetwork {
    /// Sets the classes of these devices. A refusal becomes a note.
    ///
    /// # Errors
    ///
    /// With `strict`, a refusal.
    pub fn set(devices: &[NetworkDevice], strict: bool) -> Result<HostNetwork, CliError> {
        let mut network = HostNetwork { guard: None, devices: Vec::new(), notes: Vec::new() };
        if devices.is_empty() {
            return Ok(network);
        }
        let mut guard = NetworkGuard::start(devices).map_err(|error| {
            CliError::new(format_args!("cannot start the process that sets traffic classes: {error}"))
        })?;
        for device in devices {
            match guard.answer() {
                Some(GuardLine::Holds) => network.devices.push(device.name.clone()),
                Some(GuardLine::Refused { text, remedy }) if strict => return Err(CliError::new(text).help(remedy)),
                Some(GuardLine::Refused { text, remedy }) => {
                    let text = format!("{text}; bulk traffic can delay critical completions");
                    network.notes.push(ReportNote { remedy: Some(remedy), ..note(NoteLevel::Refused, TOPIC, text) });
                }
                Some(GuardLine::Ended { .. }) | None => {
                    return Err(CliError::new("the process that sets traffic classes ended at its start"));
                }
            }
        }
        network.guard = Some(guard);
        Ok(network)
    }

    /// Removes the classes. Returns notes for the report.
    pub fn end(mut self) -> Vec<ReportNote> {
        let mut notes = std::mem::take(&mut self.notes);
        let Some(mut guard) = self.guard.take() else { return notes };
        drop(guard.pipe.take());
        for device in &self.devices {
            notes.push(match guard.answer() {
                Some(GuardLine::Ended { text, lost }) => {
                    note(if lost { NoteLevel::Degraded } else { NoteLevel::Info }, TOPIC, text)
                }
                // The guard was killed, and its classes remain.
                _ => match remove_left(device) {
                    Ok(_) => note(NoteLevel::Info, TOPIC, format!("{device}: the guard process was killed")),
                    Err(error) => {
                        let text = format!("{device}: classes remain: {error}");
                        ReportNote { remedy: Some(error.remedy()), ..note(NoteLevel::Degraded, TOPIC, text) }
                    }
                },
            });
        }
        notes
    }
}

impl NetworkGuard {
    fn start(devices: &[NetworkDevice]) -> io::Result<NetworkGuard> {
        let mut command = Command::new(std::env::current_exe()?);
        // In its own process group it receives no signals from the terminal.
        command.arg("network-watch").current_dir("/").process_group(0);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (pipe, answers) = (process.stdin.take(), process.stdout.take());
        let (Some(mut pipe), Some(answers)) = (pipe, answers) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        for device in devices {
            writeln!(pipe, "{}", serde_json::to_string(&DeviceLine::of(device))?)?;
        }
        writeln!(pipe)?;
        Ok(NetworkGuard { process, pipe: Some(pipe), answers: BufReader::new(answers) })
    }

    fn answer(&mut self) -> Option<GuardLine> {
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

impl Drop for NetworkGuard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        drop(self.process.wait());
    }
}

impl DeviceLine {
    fn of(device: &NetworkDevice) -> DeviceLine {
        let dscp = |class: &TrafficClass| class.dscp.iter().map(|dscp| dscp.number()).collect();
        let classes = device.classes.iter().map(|class| (dscp(class), class.share, class.ceiling)).collect();
        DeviceLine { device: device.name.clone(), rate: device.rate, classes }
    }

    fn plan(self) -> ClassPlan {
        let class = |(dscp, share, ceiling): (Vec<u8>, u32, u32)| TrafficClass {
            dscp: dscp.into_iter().filter_map(Dscp::new).collect(),
            share,
            ceiling,
        };
        let classes = self.classes.into_iter().map(class).collect();
        ClassPlan::new(&NetworkDevice { name: self.device, rate: self.rate, classes })
    }
}

/// `hyoshi network-watch`: reads one line for each device and an empty line from standard input, and sets the classes.
/// When standard input is closed, it removes them.
pub(in crate::cli) fn watch() -> Result<VerbOutcome, CliError> {
    // A service manager signals all processes of a run at once. This process ignores that and ends after the run.
    let wake = Arc::new(Wake::new());
    let signals = Interrupt::on_signals(wake).and_then(|stop| Ok((stop, Hangup::on_signal()?)));
    let _signals = signals.map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let mut lines = io::stdin().lock().lines().map_while(Result::ok);
    let mut held = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let line: DeviceLine =
            serde_json::from_str(&line).map_err(|error| CliError::new(format_args!("not a device: {error}")))?;
        let answer = match HeldClasses::apply(line.plan()) {
            Ok(classes) => {
                held.push(classes);
                GuardLine::Holds
            }
            Err(error) => GuardLine::Refused { text: error.to_string(), remedy: error.remedy() },
        };
        say(&answer);
    }
    lines.for_each(drop);
    for classes in held {
        let counted = counted(&classes);
        let device = classes.plan().device.clone();
        let answer = match (counted, classes.remove()) {
            (Ok(text), Ok(())) => GuardLine::Ended { text, lost: false },
            (Err(error), _) | (_, Err(error)) => GuardLine::Ended {
                text: format!("{device}: its classes were changed during the run: {error}"),
                lost: true,
            },
        };
        say(&answer);
    }
    Ok(VerbOutcome::Success)
}

/// Sends an answer to the run, if the run still reads.
fn say(answer: &GuardLine) {
    if let Ok(text) = serde_json::to_string(answer) {
        drop(streams::out(format_args!("{text}\n")));
    }
}

/// The packets of each class.
fn counted(classes: &HeldClasses) -> Result<String, NetworkError> {
    let counts = classes.counts()?;
    let each = classes.plan().classes.iter().zip(counts).map(|(class, counts)| {
        let name = match &class.dscp[..] {
            [] => "other".to_owned(),
            all => all.iter().map(Dscp::to_string).collect::<Vec<_>>().join("+"),
        };
        let dropped = match counts.dropped {
            0 => String::new(),
            dropped => format!(" ({} dropped)", count(dropped.into())),
        };
        format!("{name} {} packets{dropped}", count(counts.packets.into()))
    });
    Ok(format!("{}: {}", classes.plan().device, each.collect::<Vec<_>>().join(", ")))
}
