//! `hyoshi threads`: lists, shows and cancels the distributable threads of a running system.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyoshi_model::printable_lines;
use hyoshi_node::NodeClient;
use hyoshi_node::idl::hyoshi_node::{
    CancelFound, CancelThreadError, CancelledThread, NodeStanding, SegmentState, ThreadRef, ThreadRefused,
    ThreadSegment, ThreadStates, ThreadsError,
};
use hyoshi_orb::rt::ThreadId;
use hyoshi_report::terminal::TerminalStyle;
use hyoshi_report::terminal::grid::{CellValue, Column, column, grid};
use serde_json::{Value as Json, json};

use super::answer::{OutputTable, OutputText, VerbOutput};
use super::node::{NodeAddress, connect, failed, here};
use super::{CliError, Format, VerbOutcome, streams};

#[derive(Debug, Args)]
#[command(
    after_help = "While a system with `carried_by = \"thread\"` in a [chain.NAME] runs, in another terminal:\n  \
                  hyoshi threads list\n  \
                  hyoshi threads show 5f1c9a2200000000-1a7\n  \
                  hyoshi threads cancel 5f1c9a2200000000-1a7"
)]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    node: NodeAddress,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Verb {
    /// List the live threads: where each one's head is, on all joined hosts
    List,
    /// Show a thread's segments, with deadlines and CPU time used
    Show {
        /// Its id, as `list` prints it
        #[arg(value_name = "ID", value_parser = id)]
        thread: ThreadRef,
    },
    /// Cancel a thread, wherever its head is
    Cancel {
        /// Its id, as `list` prints it
        #[arg(value_name = "ID", value_parser = id)]
        thread: ThreadRef,
    },
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match self.verb {
            Verb::List => "threads list",
            Verb::Show { .. } => "threads show",
            Verb::Cancel { .. } => "threads cancel",
        }
    }
}

/// A thread's id in hexadecimal digits: the run and the first operation, then the release number.
fn id(text: &str) -> Result<ThreadRef, String> {
    let read = || {
        let (origin, number) = text.split_once('-')?;
        let is_hex = |part: &str| part.len() <= 16 && part.chars().all(|digit| digit.is_ascii_hexdigit());
        let hex = |part: &str| if is_hex(part) { u64::from_str_radix(part, 16).ok() } else { None };
        Some(ThreadRef { origin: hex(origin)?, number: hex(number)? })
    };
    let thread = read().filter(|thread| thread.origin != 0);
    thread.ok_or_else(|| {
        format!(
            "{text:?} is not a thread's id; write one as `hyoshi threads list` prints it, such as 5f1c9a2200000000-1a7"
        )
    })
}

fn shown(thread: &ThreadRef) -> String {
    ThreadId { origin: thread.origin, number: thread.number }.to_string()
}

const THREADS: [Column; 8] = [
    column("thread"),
    column("chain").spare(2),
    column("segment"),
    column("host"),
    column("state"),
    column("age"),
    column("time left"),
    column("CPU time").spare(1),
];

const SEGMENTS: [Column; 7] = [
    column("segment"),
    column("host"),
    column("processor").spare(1),
    column("state"),
    column("age"),
    column("time left"),
    column("CPU time"),
];

pub(super) fn threads(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    match arguments.verb {
        Verb::List => list(&arguments.node)?.print(arguments.name(), format),
        Verb::Show { thread } => {
            let (client, at) = node_of(&arguments.node, &thread)?;
            let states = client.threads(&thread).map_err(|error| refusal(&at, error))?;
            if states.segments.is_empty() {
                return Err(CliError::new(format_args!("nothing is known about the thread {}", shown(&thread)))
                    .help("it ended long ago or never began; `hyoshi threads list` lists the live threads"));
            }
            show(&thread, &states).print(arguments.name(), format)
        }
        Verb::Cancel { thread } => {
            let (client, at) = node_of(&arguments.node, &thread)?;
            let cancelled = client.cancel_thread(&thread).map_err(|error| match error {
                CancelThreadError::ThreadRefused(why) => refused(&why),
                CancelThreadError::System(raised) => failed(&at, raised),
            })?;
            let CancelledThread { found, operation, host } = cancelled;
            let on_its_way = found == CancelFound::Hop;
            let place = if on_its_way { "on its way to" } else { "at" };
            let text = format!("cancelled {} {place} {operation}, host {host}\n", shown(&thread));
            let json = json!({
                "thread": shown(&thread), "operation": operation, "host": host, "on_its_way": on_its_way,
            });
            VerbOutput { text: OutputText::Lines(text), json }.print(arguments.name(), format)
        }
    }
}

fn refused(refused: &ThreadRefused) -> CliError {
    CliError::new(&refused.why).help(&refused.remedy)
}

fn refusal(at: &str, error: ThreadsError) -> CliError {
    match error {
        ThreadsError::ThreadRefused(why) => refused(&why),
        ThreadsError::System(raised) => failed(at, raised),
    }
}

/// A node of the thread's run: the named one, or one of this user on this machine.
fn node_of(arguments: &NodeAddress, thread: &ThreadRef) -> Result<(NodeClient, String), CliError> {
    if let Some(at) = arguments.named() {
        return Ok((connect(arguments, at)?, at.to_owned()));
    }
    let is_its = |(_, node): &&(PathBuf, NodeStanding)| {
        let begins = node.run[..4].iter().fold(0, |begin, octet| (begin << 8) | u64::from(*octet));
        !node.gathering && begins == thread.origin >> 32
    };
    let nodes = here(arguments)?;
    let Some((socket, _)) = nodes.iter().find(is_its) else {
        return Err(CliError::new(format_args!("no node of this user here runs the thread {}", shown(thread)))
            .help("`hyoshi threads list` lists the live threads; --at ADDRESS names a node elsewhere"));
    };
    let at = format!("unix:{}", socket.display());
    Ok((connect(arguments, &at)?, at))
}

fn list(arguments: &NodeAddress) -> Result<VerbOutput, CliError> {
    let at: Vec<String> = match arguments.named() {
        Some(at) => vec![at.to_owned()],
        None => here(arguments)?.iter().map(|(socket, _)| format!("unix:{}", socket.display())).collect(),
    };
    let (mut segments, mut seen, mut runs) = (Vec::<ThreadSegment>::new(), BTreeSet::new(), BTreeSet::new());
    let (mut all, mut silent) = (0, BTreeSet::new());
    for at in at {
        let states = connect(arguments, &at)?.threads(&ThreadRef::default()).map_err(|error| refusal(&at, error))?;
        // Nodes of one run answer for each other.
        let is_new_run = states.segments.first().is_none_or(|first| runs.insert(first.thread.origin >> 32));
        all += if is_new_run { states.all } else { 0 };
        silent.extend(states.silent);
        segments.extend(states.segments.into_iter().filter(|one| seen.insert((one.thread.origin, one.thread.number))));
    }
    silent.retain(|host| !segments.iter().any(|segment| segment.host == *host));
    if !silent.is_empty() {
        let hosts = silent.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        streams::err(printable_lines(&format!("not listed: threads on {hosts}, which did not answer\n")));
    }
    if all > segments.len() as u64 {
        streams::err(format_args!("{} of {all} segments are listed\n", segments.len()));
    }
    let json = segments.iter().map(segment_json).collect::<Vec<_>>();
    let rows = segments.iter().map(row).collect();
    let empty = "no threads: a chain with `carried_by = \"thread\"` has some while it runs\n";
    Ok(VerbOutput {
        text: OutputText::Table(OutputTable { columns: &THREADS, rows, empty }),
        json: json!({ "threads": json, "live_segments": all, "silent_hosts": silent }),
    })
}

fn state(segment: &ThreadSegment) -> &'static str {
    match segment.state {
        _ if segment.cancelled => "cancelled",
        SegmentState::Held => "held",
        SegmentState::Waiting => "waits",
        SegmentState::Running => "runs",
        SegmentState::Blocked => "blocked",
        SegmentState::Demoted => "demoted",
        SegmentState::Ended => "ended",
    }
}

/// Its state, age, time left and CPU time.
fn figures(segment: &ThreadSegment) -> [CellValue; 4] {
    let known = |cell: CellValue| if segment.state == SegmentState::Ended { CellValue::figure("") } else { cell };
    [
        CellValue::words(state(segment)),
        known(CellValue::signed_time(segment.age)),
        known(CellValue::signed_time(segment.left)),
        CellValue::time(segment.used),
    ]
}

fn row(segment: &ThreadSegment) -> Vec<CellValue> {
    let begin = [
        CellValue::words(shown(&segment.thread)),
        CellValue::words(&segment.chain),
        CellValue::words(&segment.operation),
        CellValue::words(&segment.host),
    ];
    begin.into_iter().chain(figures(segment)).collect()
}

fn show(thread: &ThreadRef, states: &ThreadStates) -> VerbOutput {
    let segments = &states.segments;
    let used: u64 = segments.iter().map(|segment| segment.used).sum();
    let head = segments.iter().find(|segment| segment.state != SegmentState::Ended);
    let mut text = String::new();
    let chain = segments.first().map_or("", |segment| &segment.chain);
    let at = head.map_or_else(|| "ended".to_owned(), |head| format!("{}, host {}", head.operation, head.host));
    for (what, value) in [("thread", shown(thread)), ("chain", chain.to_owned()), ("head", at)] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<12}{value}");
    }
    let look = TerminalStyle::of_stdout();
    let mut text = look.wrap(&printable_lines(&text));
    let row = |segment: &ThreadSegment| {
        let begin = [&segment.operation, &segment.host, &segment.processor].map(CellValue::words);
        begin.into_iter().chain(figures(segment)).collect()
    };
    let rows: Vec<Vec<CellValue>> = segments.iter().map(row).collect();
    text.push('\n');
    text += &grid(look, &SEGMENTS, &rows, usize::MAX);
    for host in &states.silent {
        text += &look.wrap(&printable_lines(&format!("host {host} did not answer\n")));
    }
    let json = segments.iter().map(segment_json).collect::<Vec<_>>();
    VerbOutput {
        text: OutputText::Styled(text),
        json: json!({
            "thread": shown(thread), "chain": chain, "head": head.map(|head| &head.operation), "used_ns": used,
            "segments": json, "silent_hosts": states.silent,
        }),
    }
}

fn segment_json(segment: &ThreadSegment) -> Json {
    let lives = segment.state != SegmentState::Ended;
    json!({
        "thread": shown(&segment.thread),
        "chain": segment.chain,
        "operation": segment.operation,
        "host": segment.host,
        "processor": segment.processor,
        "state": state(segment),
        "age_ns": lives.then_some(segment.age),
        "left_ns": lives.then_some(segment.left),
        "used_ns": segment.used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_printed() {
        let thread = ThreadRef { origin: 0x5f1c_9a22_0000_0003, number: 0x1a7 };
        assert_eq!(shown(&thread), "5f1c9a2200000003-1a7");
        assert_eq!(id(&shown(&thread)), Ok(thread));
        let greatest = ThreadRef { origin: u64::MAX, number: u64::MAX };
        assert_eq!(id(&shown(&greatest)), Ok(greatest));
        for wrong in ["", "-", "1a7", "5f1c9a2200000003-", "-1", "5f1c9a220000000g-1", "0-1", "+5-1"] {
            assert!(id(wrong).unwrap_err().contains("is not a thread's id"), "{wrong}");
        }
        assert!(id("5f1c9a2200000003-+1").is_err() && id("5f1c9a2200000003-00000000000000001").is_err());
    }
}
