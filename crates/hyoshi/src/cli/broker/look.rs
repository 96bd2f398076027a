//! Prints the state of tasks and of the broker.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use clap::Args;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::{Broker, BrokerStatus, Reservation, RunStatus, TaskStatus};
use hyoshi_model::{Span, printable};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake};
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column};
use serde_json::{Value as Json, json};

use super::{Ended, share};
use crate::cli::answer::{OutputTable, OutputText, VerbOutput, with};
use crate::cli::{CliError, Format, VerbOutcome, streams};

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    every: Span,
}

const COLUMNS: [Column; 7] = [
    column("task"),
    column("processes").spare(2),
    column("importance").spare(3),
    column("consumed").spare(1),
    column("requested"),
    column("reserved"),
    column("because").if_any(),
];

pub(super) fn list(client: &BrokerClient) -> Result<VerbOutput, Ended> {
    let tasks = client.tasks()?;
    let row = |task: &TaskStatus| {
        vec![
            CellValue::words(&task.name),
            CellValue::words(processes(&task.processes)),
            CellValue::Count(task.importance.into(), Tone::Plain),
            CellValue::figure(about(task.consumed)),
            CellValue::figure(reserved(&task.granted.requested)),
            CellValue::figure(reserved(&task.granted.reserved)),
            CellValue::words(&task.granted.reason),
        ]
    };
    let table = OutputTable {
        columns: &COLUMNS,
        rows: tasks.iter().map(row).collect(),
        empty: "no tasks: add programs with `hyoshi exec` or `hyoshi attach`\n",
    };
    let tasks: Vec<_> = tasks.iter().map(task_json).collect();
    Ok(VerbOutput { text: OutputText::Table(table), json: json!({ "tasks": tasks }) })
}

pub(super) fn show(client: &BrokerClient, name: &str) -> Result<VerbOutput, Ended> {
    let task = client.broker().task_status(name).map_err(BrokerClientError::from)?;
    let mut text = String::new();
    let mut line = |what: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<12}{value}");
    };
    line("task", task.name.clone());
    line("processes", processes(&task.processes));
    for (place, folder) in task.control_groups.iter().enumerate() {
        line(if place == 0 { "in" } else { "" }, folder.clone());
    }
    line("user", task.owner.to_string());
    line("period", Span::from_nanos(task.period).to_string());
    if task.period_detection.automatic {
        line("", task.period_detection.text.clone());
    }
    line("importance", task.importance.to_string());
    line("weight", task.weight.to_string());
    if !task.group.is_empty() {
        line("group", task.group.clone());
    }
    for (place, setting) in task.advocates.iter().enumerate() {
        let what = if place == 0 { "advocates" } else { "" };
        line(what, format!("{place}  {}", brief(&ComponentSpec::from_wire(setting))));
        if let Some(status) = task.advocate_status.get(place).filter(|status| !status.is_empty()) {
            line("", format!("   {status}"));
        }
    }
    line("reports", task.reports.to_string());
    line("consumed", format!("{} in the last period", about(task.consumed)));
    line("requested", reserved(&task.granted.requested));
    line("reserved", reserved(&task.granted.reserved));
    if task.hard {
        line("hard", "yes".to_owned());
    }
    if !task.enforcement.is_empty() {
        line("enforced", task.enforcement.clone());
    }
    if !task.granted.reason.is_empty() {
        line("because", task.granted.reason.clone());
    }
    Ok(VerbOutput { text: OutputText::Lines(text), json: json!({ "task": task_json(&task) }) })
}

pub(super) fn status(client: &BrokerClient) -> Result<VerbOutput, Ended> {
    let status = client.broker().status().map_err(BrokerClientError::from)?;
    let text = format!("{}at          {}\n", status_text(&status), client.place());
    Ok(VerbOutput { text: OutputText::Lines(text), json: json!({ "broker": status_json(&status) }) })
}

/// The policy and its cap.
pub(super) fn policy(client: &BrokerClient) -> Result<VerbOutput, Ended> {
    let status = client.broker().status().map_err(BrokerClientError::from)?;
    Ok(VerbOutput { text: OutputText::Lines(shared(&status)), json: json!({ "broker": status_json(&status) }) })
}

fn shared(status: &BrokerStatus) -> String {
    // To the nearest hundredth of a percent.
    let reserved = share((status.reserved + 50) / 100 * 100);
    let tasks = if status.tasks == 1 { "task" } else { "tasks" };
    let (policy, cap) = (&status.policy, share(status.cap));
    format!("policy      {policy}, cap {cap} (of one CPU)\nreserved    {reserved} for {} {tasks}\n", status.tasks)
}

/// The broker, in lines.
pub(super) fn status_text(status: &BrokerStatus) -> String {
    let mut text = format!("broker      {}, process {}\n{}", status.version, status.process, shared(status));
    for proxy in &status.proxies {
        let what = if proxy.used { "scheduler" } else { "not used" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<12}{}: {}", proxy.name, proxy.reason.replace('\n', "\n            "));
    }
    for run in &status.runs {
        let shares: Vec<String> =
            run.shares.iter().map(|one| format!("{} of CPU {}", share(one.cpu_share), one.cpu)).collect();
        let counted = if run.counted { "" } else { "; ignored, because this scheduler has no windows" };
        let (name, process) = (printable(&run.name), run.process);
        let _ = writeln!(text, "lanes       of run {name}, process {process}: {}{counted}", shares.join(", "));
    }
    text
}

pub(in crate::cli) fn status_json(status: &BrokerStatus) -> Json {
    let proxy = |proxy: &hyoshi_broker::idl::cpu_broker::ProxyStatus| json!({ "name": proxy.name, "used": proxy.used, "reason": proxy.reason });
    let run = |run: &RunStatus| {
        let shares = run.shares.iter().map(|one| json!({ "cpu": one.cpu, "millionths": one.cpu_share }));
        json!({
            "name": run.name, "process": run.process, "user": run.owner, "shares": shares.collect::<Vec<_>>(),
            "counted": run.counted,
        })
    };
    json!({
        "version": status.version, "process": status.process, "policy": status.policy,
        "cap_millionths": status.cap, "reserved_millionths": status.reserved, "tasks": status.tasks,
        "schedulers": status.proxies.iter().map(proxy).collect::<Vec<_>>(),
        "runs": status.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

pub(super) fn explain(client: &BrokerClient, name: &str) -> Result<VerbOutput, Ended> {
    let text = client.broker().explain(name).map_err(BrokerClientError::from)?;
    let text = text.trim_end();
    Ok(VerbOutput { text: OutputText::Lines(format!("{text}\n")), json: json!({ "task": name, "text": text }) })
}

/// One of the watched brokers.
pub(super) struct WatchedBroker<'a> {
    /// The broker's name and the width of its column; `None` if it is the only one.
    pub host: Option<(&'a str, usize)>,
    pub interrupt: &'a Interrupt,
    pub wake: &'a Wake,
}

pub(super) fn watch_one(client: &BrokerClient, watch_: &Watch, format: Format) -> Result<VerbOutcome, Ended> {
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone());
    let interrupt = interrupt.map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    watch(client, watch_, &WatchedBroker { host: None, interrupt: &interrupt, wake: &wake }, format)?;
    Ok(VerbOutcome::Success)
}

pub(super) fn watch(
    client: &BrokerClient,
    watch: &Watch,
    watched: &WatchedBroker<'_>,
    format: Format,
) -> Result<(), Ended> {
    if watch.every < Span::from_millis(10) {
        let failure = CliError::new(format_args!("--every {} is too short", watch.every));
        return Err(failure.help("use at least 10ms, because each sample costs CPU time").into());
    }
    let clock = MonotonicClock::start();
    let mut before: BTreeMap<String, (Reservation, Reservation)> = BTreeMap::new();
    while !watched.interrupt.requested() {
        let tasks = client.tasks()?;
        let mut now = BTreeMap::new();
        for task in &tasks {
            let granted = (task.granted.requested, task.granted.reserved);
            if before.get(&task.name) != Some(&granted) {
                watched.print(&changed(task), task_json(task), format)?;
            }
            now.insert(task.name.clone(), granted);
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            watched.print(&format!("{name:<20} ended"), json!({ "task": name, "left": true }), format)?;
        }
        before = now;
        watched.wake.wait_until(&clock, clock.now() + watch.every);
    }
    // Other watching threads must see the interrupt, too.
    watched.wake.post();
    Ok(())
}

impl WatchedBroker<'_> {
    fn print(&self, line: &str, object: Json, format: Format) -> Result<(), CliError> {
        let line = printable(line);
        match (format, self.host) {
            (Format::Text, None) => streams::out(format_args!("{line}\n")),
            (Format::Text, Some((host, width))) => streams::out(format_args!("{host:<width$}  {line}\n")),
            // One object a line, so that a reader need not wait for the end.
            (Format::Json, None) => streams::out(format_args!("{object}\n")),
            (Format::Json, Some((host, _))) => streams::out(format_args!("{}\n", with("host", host, object))),
        }
    }
}

fn changed(task: &TaskStatus) -> String {
    let because = match task.granted.reason.as_str() {
        "" => String::new(),
        because => format!(" ({because})"),
    };
    let (requested, reserved) = (reserved(&task.granted.requested), reserved(&task.granted.reserved));
    format!("{:<20} requested {requested}, reserved {reserved}{because}", task.name)
}

pub(in crate::cli) fn task_json(task: &TaskStatus) -> Json {
    let advocates: Vec<_> =
        task.advocates.iter().map(|setting| ComponentSpec::from_wire(setting).to_string()).collect();
    let detection = task.period_detection.automatic.then(|| {
        json!({
            "period_ns": task.period_detection.period, "confidence_percent": task.period_detection.confidence,
            "wakeups": task.period_detection.wakeups, "age_ns": task.period_detection.age,
            "text": task.period_detection.text,
        })
    });
    let reservation =
        |one: &Reservation| json!({ "budget_ns": one.budget, "period_ns": one.period, "deadline_ns": one.deadline });
    json!({
        "name": task.name, "user": task.owner, "processes": task.processes, "control_groups": task.control_groups,
        "importance": task.importance, "weight": task.weight, "group": task.group, "period_ns": task.period,
        "period_detection": detection,
        "advocates": advocates, "advocate_status": task.advocate_status, "consumed_ns": task.consumed,
        "total_ns": task.total,
        "reports": task.reports, "requested": reservation(&task.granted.requested), "reserved": reservation(&task.granted.reserved),
        "reason": task.granted.reason, "hard": task.hard, "enforcement": task.enforcement,
    })
}

/// An advocate with a shortened reference.
pub(super) fn brief(setting: &ComponentSpec) -> String {
    let mut setting = setting.clone();
    for (_, value) in setting.parameters.iter_mut().filter(|(_, value)| value.starts_with("IOR:") && value.len() > 40) {
        value.truncate(24);
        value.push_str("...");
    }
    setting.to_string()
}

/// A reservation for people.
fn reserved(one: &Reservation) -> String {
    if one.budget == 0 {
        return "nothing".to_owned();
    }
    let text = format!("{:.4} of {:.4}", Span::from_nanos(one.budget), Span::from_nanos(one.period));
    match one.deadline < one.period {
        true => format!("{text} within {:.4}", Span::from_nanos(one.deadline)),
        false => text,
    }
}

/// To the microsecond, the precision of meters, with four digits.
fn about(nanos: u64) -> String {
    format!("{:.4}", Span::from_micros((nanos + 500) / 1_000))
}

/// The first process and the number of the others.
fn processes(pids: &[u32]) -> String {
    match pids {
        [] => "none".to_owned(),
        [first] => first.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}
