//! What the broker tells of its tasks and itself.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use clap::Args;
use hyoshi_broker::client::{Client, ClientError};
use hyoshi_broker::idl::cpu_broker::{Broker, BrokerStanding, Reservation, RunStanding, TaskStanding};
use hyoshi_broker::setting::Setting;
use hyoshi_model::{Span, printable};
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake};
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column};
use serde_json::{Value as Json, json};

use super::{Ended, share};
use crate::cli::answer::{Answer, Table, Told, with};
use crate::cli::{Failure, Format, Held, streams};

#[derive(Debug, Args)]
pub(super) struct Watch {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    every: Span,
}

const COLUMNS: [Column; 7] = [
    column("task"),
    column("processes").spare(2),
    column("importance").spare(3),
    column("consumed").spare(1),
    column("asks"),
    column("holds"),
    column("because").if_any(),
];

pub(super) fn list(client: &Client) -> Result<Answer, Ended> {
    let tasks = client.tasks()?;
    let row = |task: &TaskStanding| {
        vec![
            CellValue::words(&task.name),
            CellValue::words(processes(&task.processes)),
            CellValue::Count(task.importance.into(), Tone::Plain),
            CellValue::figure(about(task.consumed)),
            CellValue::figure(reserved(&task.granted.asked)),
            CellValue::figure(reserved(&task.granted.held)),
            CellValue::words(&task.granted.because),
        ]
    };
    let table = Table {
        columns: &COLUMNS,
        rows: tasks.iter().map(row).collect(),
        empty: "no tasks: `hyoshi exec` and `hyoshi attach` bring programs under the broker\n",
    };
    let tasks: Vec<_> = tasks.iter().map(task_json).collect();
    Ok(Answer { told: Told::Table(table), json: json!({ "tasks": tasks }) })
}

pub(super) fn show(client: &Client, name: &str) -> Result<Answer, Ended> {
    let task = client.broker().standing_of(name).map_err(ClientError::from)?;
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
    if task.found.automatic {
        line("", task.found.words.clone());
    }
    line("importance", task.importance.to_string());
    line("weight", task.weight.to_string());
    if !task.group.is_empty() {
        line("group", task.group.clone());
    }
    for (place, setting) in task.advocates.iter().enumerate() {
        let what = if place == 0 { "advocates" } else { "" };
        line(what, format!("{place}  {}", brief(&Setting::from_wire(setting))));
        if let Some(saying) = task.sayings.get(place).filter(|saying| !saying.is_empty()) {
            line("", format!("   {saying}"));
        }
    }
    line("reports", task.reports.to_string());
    line("consumed", format!("{} at the last one", about(task.consumed)));
    line("asks for", reserved(&task.granted.asked));
    line("holds", reserved(&task.granted.held));
    if task.hard {
        line("hard", "no more than it holds".to_owned());
    }
    if !task.held_to.is_empty() {
        line("held to", task.held_to.clone());
    }
    if !task.granted.because.is_empty() {
        line("because", task.granted.because.clone());
    }
    Ok(Answer { told: Told::Lines(text), json: json!({ "task": task_json(&task) }) })
}

pub(super) fn standing(client: &Client) -> Result<Answer, Ended> {
    let standing = client.broker().standing().map_err(ClientError::from)?;
    let text = format!("{}at          {}\n", told(&standing), client.place());
    Ok(Answer { told: Told::Lines(text), json: json!({ "broker": standing_json(&standing) }) })
}

/// What tasks share, and how.
pub(super) fn policy(client: &Client) -> Result<Answer, Ended> {
    let standing = client.broker().standing().map_err(ClientError::from)?;
    Ok(Answer { told: Told::Lines(shared(&standing)), json: json!({ "broker": standing_json(&standing) }) })
}

fn shared(standing: &BrokerStanding) -> String {
    // To the nearest hundredth of a percent.
    let reserved = share((standing.reserved + 50) / 100 * 100);
    let tasks = if standing.tasks == 1 { "task" } else { "tasks" };
    let (policy, cap) = (&standing.policy, share(standing.cap));
    format!("policy      {policy}, cap {cap} (of one CPU)\nreserved    {reserved} for {} {tasks}\n", standing.tasks)
}

/// The broker, in lines.
pub(super) fn told(standing: &BrokerStanding) -> String {
    let mut text = format!("broker      {}, process {}\n{}", standing.version, standing.process, shared(standing));
    for proxy in &standing.proxies {
        let what = if proxy.used { "scheduler" } else { "not used" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what:<12}{}: {}", proxy.name, proxy.why.replace('\n', "\n            "));
    }
    for run in &standing.runs {
        let takes: Vec<String> =
            run.takes.iter().map(|one| format!("{} of CPU {}", share(one.takes), one.cpu)).collect();
        let counted = if run.counted { "" } else { "; not counted: only windows are below lanes" };
        let (name, process) = (printable(&run.name), run.process);
        let _ = writeln!(text, "lanes       of run {name}, process {process}: {}{counted}", takes.join(", "));
    }
    text
}

pub(in crate::cli) fn standing_json(standing: &BrokerStanding) -> Json {
    let proxy = |proxy: &hyoshi_broker::idl::cpu_broker::ProxyStanding| json!({ "name": proxy.name, "used": proxy.used, "why": proxy.why });
    let run = |run: &RunStanding| {
        let takes = run.takes.iter().map(|one| json!({ "cpu": one.cpu, "millionths": one.takes }));
        json!({
            "name": run.name, "process": run.process, "user": run.owner, "takes": takes.collect::<Vec<_>>(),
            "counted": run.counted,
        })
    };
    json!({
        "version": standing.version, "process": standing.process, "policy": standing.policy,
        "cap_millionths": standing.cap, "reserved_millionths": standing.reserved, "tasks": standing.tasks,
        "schedulers": standing.proxies.iter().map(proxy).collect::<Vec<_>>(),
        "runs": standing.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

pub(super) fn explain(client: &Client, name: &str) -> Result<Answer, Ended> {
    let words = client.broker().explain(name).map_err(ClientError::from)?;
    let words = words.trim_end();
    Ok(Answer { told: Told::Lines(format!("{words}\n")), json: json!({ "task": name, "words": words }) })
}

/// How somebody watches.
pub(super) struct Watched<'a> {
    /// What the broker is called, and how wide that column is; none if it is the only one.
    pub host: Option<(&'a str, usize)>,
    pub interrupt: &'a Interrupt,
    pub wake: &'a Wake,
}

pub(super) fn watch_one(client: &Client, watch_: &Watch, format: Format) -> Result<Held, Ended> {
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone());
    let interrupt = interrupt.map_err(|error| Failure::new(format_args!("cannot listen for signals: {error}")))?;
    watch(client, watch_, &Watched { host: None, interrupt: &interrupt, wake: &wake }, format)?;
    Ok(Held::Yes)
}

pub(super) fn watch(client: &Client, watch: &Watch, watched: &Watched<'_>, format: Format) -> Result<(), Ended> {
    if watch.every < Span::from_millis(10) {
        let failure = Failure::new(format_args!("--every {} is too often", watch.every));
        return Err(failure.help("10ms is the least: each look costs the broker time").into());
    }
    let clock = MonotonicClock::start();
    let mut before: BTreeMap<String, (Reservation, Reservation)> = BTreeMap::new();
    while !watched.interrupt.requested() {
        let tasks = client.tasks()?;
        let mut now = BTreeMap::new();
        for task in &tasks {
            let granted = (task.granted.asked, task.granted.held);
            if before.get(&task.name) != Some(&granted) {
                watched.tell(&changed(task), task_json(task), format)?;
            }
            now.insert(task.name.clone(), granted);
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            watched.tell(&format!("{name:<20} has left"), json!({ "task": name, "left": true }), format)?;
        }
        before = now;
        watched.wake.wait_until(&clock, clock.now() + watch.every);
    }
    // Others who watch shall see that it is over, too.
    watched.wake.post();
    Ok(())
}

impl Watched<'_> {
    fn tell(&self, line: &str, object: Json, format: Format) -> Result<(), Failure> {
        let line = printable(line);
        match (format, self.host) {
            (Format::Text, None) => streams::out(format_args!("{line}\n")),
            (Format::Text, Some((host, width))) => streams::out(format_args!("{host:<width$}  {line}\n")),
            // One object a line: what reads it need not wait for an end.
            (Format::Json, None) => streams::out(format_args!("{object}\n")),
            (Format::Json, Some((host, _))) => streams::out(format_args!("{}\n", with("host", host, object))),
        }
    }
}

fn changed(task: &TaskStanding) -> String {
    let because = match task.granted.because.as_str() {
        "" => String::new(),
        because => format!(" ({because})"),
    };
    let (asked, held) = (reserved(&task.granted.asked), reserved(&task.granted.held));
    format!("{:<20} asks for {asked}, holds {held}{because}", task.name)
}

pub(in crate::cli) fn task_json(task: &TaskStanding) -> Json {
    let advocates: Vec<_> = task.advocates.iter().map(|setting| Setting::from_wire(setting).to_string()).collect();
    let found = task.found.automatic.then(|| {
        json!({
            "period_ns": task.found.period, "confidence_percent": task.found.confidence, "wakeups": task.found.wakeups,
            "ago_ns": task.found.ago, "words": task.found.words,
        })
    });
    let reservation =
        |one: &Reservation| json!({ "budget_ns": one.budget, "period_ns": one.period, "deadline_ns": one.deadline });
    json!({
        "name": task.name, "user": task.owner, "processes": task.processes, "control_groups": task.control_groups,
        "importance": task.importance, "weight": task.weight, "group": task.group, "period_ns": task.period, "found": found,
        "advocates": advocates, "sayings": task.sayings, "consumed_ns": task.consumed,
        "total_ns": task.total,
        "reports": task.reports, "asked": reservation(&task.granted.asked), "held": reservation(&task.granted.held),
        "because": task.granted.because, "hard": task.hard, "held_to": task.held_to,
    })
}

/// An advocate's setting, without the many digits of a reference.
pub(super) fn brief(setting: &Setting) -> String {
    let mut setting = setting.clone();
    for (_, value) in setting.parameters.iter_mut().filter(|(_, value)| value.starts_with("IOR:") && value.len() > 40) {
        value.truncate(24);
        value.push_str("...");
    }
    setting.to_string()
}

/// A reservation as people say it.
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

/// To the microsecond, for meters are not finer, and as finely as anybody reads.
fn about(nanos: u64) -> String {
    format!("{:.4}", Span::from_micros((nanos + 500) / 1_000))
}

/// A few of them, and how many there are.
fn processes(pids: &[u32]) -> String {
    match pids {
        [] => "none".to_owned(),
        [first] => first.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}
