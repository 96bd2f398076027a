//! What the broker tells of its tasks and itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use clap::Args;
use hyoshi_broker::client::{Client, ClientError};
use hyoshi_broker::idl::cpu_broker::{Broker, BrokerStanding, Reservation, Task, TaskStanding};
use hyoshi_broker::setting::Setting;
use hyoshi_model::Span;
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake};
use serde_json::{Value as Json, json};

use super::{Ended, share};
use crate::cli::{Failure, Format, Held, head, streams};

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    every: Span,
}

pub(super) fn list(client: &Client, format: Format) -> Result<Held, Ended> {
    let tasks = client.broker().tasks().map_err(ClientError::from)?;
    match format {
        Format::Text if tasks.is_empty() => {
            streams::out("no tasks: `hyoshi exec` and `hyoshi attach` bring programs under the broker\n")?;
        }
        Format::Text => {
            let rows = tasks.iter().map(|task| {
                [
                    task.name.clone(),
                    processes(&task.processes),
                    task.importance.to_string(),
                    about(task.consumed).to_string(),
                    reserved(&task.granted.asked),
                    reserved(&task.granted.held),
                    task.granted.because.clone(),
                ]
            });
            let heads = ["TASK", "PROCESSES", "IMPORTANCE", "CONSUMED", "ASKS", "HOLDS", "BECAUSE"].map(str::to_owned);
            streams::out(columns(std::iter::once(heads).chain(rows)))?;
        }
        Format::Json => {
            let tasks: Vec<_> = tasks.iter().map(task_json).collect();
            streams::out(format_args!("{:#}\n", json!({ "hyoshi": head("broker list"), "tasks": tasks })))?;
        }
    }
    Ok(Held::Yes)
}

pub(super) fn show(client: &Client, name: &str, format: Format) -> Result<Held, Ended> {
    let task = client.find(name)?.standing().map_err(ClientError::from)?;
    match format {
        Format::Text => {
            let mut text = String::new();
            let mut line = |what: &str, value: String| {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "{what:<12}{value}");
            };
            line("task", task.name.clone());
            line("processes", processes(&task.processes));
            line("user", task.owner.to_string());
            line("period", Span::from_nanos(task.period).to_string());
            line("importance", task.importance.to_string());
            line("weight", task.weight.to_string());
            if !task.group.is_empty() {
                line("group", task.group.clone());
            }
            for (place, setting) in task.advocates.iter().enumerate() {
                let what = if place == 0 { "advocates" } else { "" };
                line(what, format!("{place}  {}", Setting::from_wire(setting)));
            }
            line("reports", task.reports.to_string());
            line("consumed", format!("{} at the last one", about(task.consumed)));
            line("asks for", reserved(&task.granted.asked));
            line("holds", reserved(&task.granted.held));
            if !task.granted.because.is_empty() {
                line("because", task.granted.because.clone());
            }
            streams::out(text)?;
        }
        Format::Json => {
            let answer = json!({ "hyoshi": head("broker show"), "task": task_json(&task) });
            streams::out(format_args!("{answer:#}\n"))?;
        }
    }
    Ok(Held::Yes)
}

pub(super) fn standing(client: &Client, format: Format) -> Result<Held, Ended> {
    let standing = client.broker().standing().map_err(ClientError::from)?;
    match format {
        Format::Text => streams::out(format_args!("{}at          {}\n", told(&standing), client.socket().display()))?,
        Format::Json => {
            let answer = json!({ "hyoshi": head("broker show"), "broker": standing_json(&standing) });
            streams::out(format_args!("{answer:#}\n"))?;
        }
    }
    Ok(Held::Yes)
}

/// The broker, in lines.
pub(super) fn told(standing: &BrokerStanding) -> String {
    let mut text = format!(
        "broker      {}, process {}\npolicy      {}, cap {} (of one CPU)\nreserved    {} for {} {}\n",
        standing.version,
        standing.process,
        standing.policy,
        share(standing.cap),
        share(standing.reserved),
        standing.tasks,
        if standing.tasks == 1 { "task" } else { "tasks" },
    );
    for proxy in &standing.proxies {
        let what = if proxy.used { "scheduler" } else { "not used" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<12}{}: {}", proxy.name, proxy.why);
    }
    text
}

pub(super) fn standing_json(standing: &BrokerStanding) -> Json {
    let proxy = |proxy: &hyoshi_broker::idl::cpu_broker::ProxyStanding| json!({ "name": proxy.name, "used": proxy.used, "why": proxy.why });
    json!({
        "version": standing.version, "process": standing.process, "policy": standing.policy,
        "cap_millionths": standing.cap, "reserved_millionths": standing.reserved, "tasks": standing.tasks,
        "schedulers": standing.proxies.iter().map(proxy).collect::<Vec<_>>(),
    })
}

pub(super) fn explain(client: &Client, name: &str, format: Format) -> Result<Held, Ended> {
    let words = client.broker().explain(name).map_err(ClientError::from)?;
    match format {
        Format::Text => streams::out(format_args!("{}\n", words.trim_end()))?,
        Format::Json => {
            let answer = json!({ "hyoshi": head("broker explain"), "task": name, "words": words.trim_end() });
            streams::out(format_args!("{answer:#}\n"))?;
        }
    }
    Ok(Held::Yes)
}

pub(super) fn watch(client: &Client, watch: &Watch, format: Format) -> Result<Held, Ended> {
    if watch.every < Span::from_millis(10) {
        let failure = Failure::new(format_args!("--every {} is too often", watch.every));
        return Err(failure.help("10ms is the least: each look costs the broker time").into());
    }
    let (wake, clock) = (Arc::new(Wake::new()), MonotonicClock::start());
    let interrupt = Interrupt::on_signals(wake.clone());
    let interrupt = interrupt.map_err(|error| Failure::new(format_args!("cannot listen for signals: {error}")))?;
    let mut before: BTreeMap<String, (Reservation, Reservation)> = BTreeMap::new();
    while !interrupt.requested() {
        let tasks = client.broker().tasks().map_err(ClientError::from)?;
        let mut now = BTreeMap::new();
        for task in &tasks {
            let granted = (task.granted.asked, task.granted.held);
            if before.get(&task.name) != Some(&granted) {
                changed(task, format)?;
            }
            now.insert(task.name.clone(), granted);
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            match format {
                Format::Text => streams::out(format_args!("{name:<20} has left\n"))?,
                Format::Json => streams::out(format_args!("{}\n", json!({ "task": name, "left": true })))?,
            }
        }
        before = now;
        wake.wait_until(&clock, clock.now() + watch.every);
    }
    Ok(Held::Yes)
}

fn changed(task: &TaskStanding, format: Format) -> Result<(), Failure> {
    match format {
        Format::Text => {
            let because = match task.granted.because.as_str() {
                "" => String::new(),
                because => format!(" ({because})"),
            };
            let (asked, held) = (reserved(&task.granted.asked), reserved(&task.granted.held));
            streams::out(format_args!("{:<20} asks for {asked}, holds {held}{because}\n", task.name))
        }
        // One object a line: what reads it need not wait for an end.
        Format::Json => streams::out(format_args!("{}\n", task_json(task))),
    }
}

pub(in crate::cli) fn task_json(task: &TaskStanding) -> Json {
    let advocates: Vec<_> = task.advocates.iter().map(|setting| Setting::from_wire(setting).to_string()).collect();
    let reservation =
        |one: &Reservation| json!({ "budget_ns": one.budget, "period_ns": one.period, "deadline_ns": one.deadline });
    json!({
        "name": task.name, "user": task.owner, "processes": task.processes, "importance": task.importance,
        "weight": task.weight, "group": task.group, "period_ns": task.period, "advocates": advocates, "consumed_ns": task.consumed,
        "reports": task.reports, "asked": reservation(&task.granted.asked), "held": reservation(&task.granted.held),
        "because": task.granted.because,
    })
}

/// A reservation as people say it.
fn reserved(one: &Reservation) -> String {
    if one.budget == 0 {
        return "nothing".to_owned();
    }
    let text = format!("{} of {}", Span::from_nanos(one.budget), Span::from_nanos(one.period));
    match one.deadline < one.period {
        true => format!("{text} within {}", Span::from_nanos(one.deadline)),
        false => text,
    }
}

/// To the microsecond: meters are not finer.
fn about(nanos: u64) -> Span {
    Span::from_micros((nanos + 500) / 1_000)
}

/// A few of them, and how many there are.
fn processes(pids: &[u32]) -> String {
    match pids {
        [] => "none".to_owned(),
        [first] => first.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// Words below each other.
fn columns<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (word, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{word:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
