//! The timeline: windows of the run as a picture that a script lets move. Without the script the
//! first window stands there as it is.

use std::fmt::Write;

use hyoshi_model::{Instant, ProcessorId, System};
use hyoshi_replay::timeline::{JobLine, OtherUse, TimelineWindow, WindowReason};
use hyoshi_trace::JobOutcome;
use maud::{Markup, PreEscaped, html};

use crate::account::ReportInput;
use crate::blamed::name_of;
use crate::figures::{nanos, printable};
use crate::names::template;
use crate::{blamed, terminal};

const SCRIPT: &str = include_str!("timeline.js");

/// Rows of a picture; of more operations, one row for each lane.
const MOST_ROWS: usize = 48;

/// Sizes that the script knows too.
const ROW: f64 = 22.0;
const TOP: f64 = 24.0;
const LEFT: f64 = 150.0;
const WIDTH: f64 = 1140.0;

/// A row of the picture.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaneRow {
    processor: ProcessorId,
    /// `None`: what is no job.
    lane: Option<u8>,
    /// Of one operation or template; `None` where a lane has one row for all.
    name: Option<String>,
}

/// The section, or nothing if there is no window.
pub(super) fn timeline(account: &ReportInput<'_>) -> Markup {
    let Some(first) = account.windows().first() else { return html! {} };
    let (system, windows) = (account.system, account.windows());
    let titles: Vec<(String, String)> = windows.iter().map(|window| title(system, window)).collect();
    let rows: Vec<Vec<LaneRow>> = windows.iter().map(|window| rows(system, window)).collect();
    html! {
        section {
            h2 { "Timeline" }
            p {
                "Windows of the run: who had the CPU, who waited, and when deadlines were. "
                span class="scripted" {
                    "Zoom with the wheel and Ctrl, a pinch or " kbd { "+" } " " kbd { "−" } "; move by dragging or with "
                    kbd { "←" } " " kbd { "→" } "; " kbd { "0" } " shows all; " kbd { "j" } " " kbd { "k" } " step through jobs."
                }
            }
            div id="timeline" {
                h3 { (titles[0].0) }
                p class="detail" { (titles[0].1) }
                div class="wide" { (PreEscaped(picture(account, first, &rows[0]))) }
            }
            (legend(windows.iter().any(|window| !window.second_strategy.is_empty())))
            script id="timeline-data" type="application/json" { (PreEscaped(data(account, &titles, &rows))) }
            script { (PreEscaped(SCRIPT)) }
        }
    }
}

fn legend(reigned: bool) -> Markup {
    html! {
        ul class="legend" {
            li { i style="background:var(--critical)" {} "runs, critical" }
            li { i style="background:var(--non-critical)" {} "runs, not critical" }
            li { i style="background:var(--missed)" {} "runs, and will miss" }
            li { i class="thin" style="background:var(--wait)" {} "waits" }
            li { i class="thin" style="background:var(--held)" {} "preempted or blocked" }
            li { i class="tick" style="background:var(--soft)" {} "released" }
            li { i class="tick" style="background:var(--missed)" {} "deadline missed" }
            @if reigned { li { i style="background:var(--second)" {} "the second strategy in force" } }
            li { b class="cross" { "×" } "cancelled or dropped" }
        }
    }
}

fn title(system: &System, window: &TimelineWindow) -> (String, String) {
    let span = nanos(window.until.since(window.from).as_nanos());
    let from = terminal::seconds(window.from.as_nanos());
    match window.reason {
        WindowReason::Latest { critical, job: id, lateness } => {
            let class = if critical { "critical" } else { "non-critical" };
            let late = lateness.as_nanos() > 0;
            let title = if late { format!("Latest {class} job") } else { format!("Closest {class} job") };
            let what = if late { "after its deadline" } else { "before its deadline" };
            let detail = format!(
                "{}: {} {what}; {span} from {from} on",
                name_of(system, id),
                nanos(lateness.as_nanos().unsigned_abs())
            );
            (title, detail)
        }
        WindowReason::Start => ("Start".into(), format!("the first {span}")),
        WindowReason::Region(index) => {
            let name = system.epochs.get(index).map_or("?", |epoch| &epoch.name);
            (format!("Into {}", printable(name)), format!("{span} from {from} on"))
        }
    }
}

fn row_of(system: &System, line: &JobLine, by_lane: bool) -> LaneRow {
    let name = system.operations.get(line.job.operation.index()).map_or("?", |operation| &operation.name);
    LaneRow { processor: line.processor, lane: Some(line.lane), name: (!by_lane).then(|| template(name).to_string()) }
}

/// The rows of a window: by processor, lane, and the system's order of operations.
fn rows(system: &System, window: &TimelineWindow) -> Vec<LaneRow> {
    let of = |by_lane: bool| {
        let mut rows: Vec<(u32, Option<u8>, u32, LaneRow)> = Vec::new();
        for line in &window.jobs {
            let row = row_of(system, line, by_lane);
            match rows.iter_mut().find(|(.., known)| *known == row) {
                Some((_, _, operation, _)) => *operation = (*operation).min(line.job.operation.0),
                None => rows.push((line.processor.0, Some(line.lane), line.job.operation.0, row)),
            }
        }
        for other in &window.others {
            let row = LaneRow { processor: other.processor, lane: None, name: None };
            if !rows.iter().any(|(.., known)| *known == row) {
                rows.push((other.processor.0, None, 0, row));
            }
        }
        rows.sort_by_key(|(processor, lane, operation, _)| (*processor, *lane, *operation));
        rows.into_iter().map(|(.., row)| row).collect::<Vec<LaneRow>>()
    };
    let rows = of(false);
    if rows.len() > MOST_ROWS { of(true) } else { rows }
}

fn label(account: &ReportInput<'_>, row: &LaneRow) -> String {
    let processor = &account.system.processor(row.processor).name;
    let several = account.system.processors.len() > 1;
    match (&row.name, row.lane) {
        (Some(name), _) => printable(name),
        (None, Some(lane)) => format!("{} lane {lane}", printable(processor)),
        (None, None) if several => format!("{}: other", printable(processor)),
        (None, None) => "not jobs".into(),
    }
}

/// Everything that the script draws. Instants are nanoseconds since the start of the run.
fn data(account: &ReportInput<'_>, titles: &[(String, String)], rows: &[Vec<LaneRow>]) -> String {
    let system = account.system;
    let at =
        |instant: Instant| if instant == Instant::NEVER { serde_json::Value::Null } else { instant.as_nanos().into() };
    let window = |(index, window): (usize, &TimelineWindow)| {
        let rows = &rows[index];
        let by_lane = rows.iter().any(|row| row.lane.is_some() && row.name.is_none());
        let place = |row: &LaneRow| rows.iter().position(|known| known == row).unwrap_or(0);
        let jobs = window.jobs.iter().map(|line| {
            let ran: Vec<u64> = line.ran.iter().flat_map(|(from, to)| [from.as_nanos(), to.as_nanos()]).collect();
            let end = line.end.map_or(Instant::NEVER, |(_, end)| end);
            let why = line.chief.map(|(kind, span)| {
                format!("{} {}", nanos(span.as_nanos()), blamed::words(system, kind, account.threads))
            });
            serde_json::json!([
                place(&row_of(system, line, by_lane)),
                printable(&name_of(system, line.job)),
                state(line),
                u8::from(line.critical),
                at(line.release),
                at(line.ready),
                at(line.deadline),
                at(end),
                ran,
                line.consumed.as_nanos(),
                why,
            ])
        });
        let others = window.others.iter().map(|other| {
            let row = LaneRow { processor: other.processor, lane: None, name: None };
            serde_json::json!([place(&row), stranger(other.who), other.from.as_nanos(), other.to.as_nanos()])
        });
        let regions = system.epochs.iter().skip(1).filter(|epoch| epoch.at > window.from && epoch.at < window.until);
        let chosen = match window.reason {
            WindowReason::Latest { job, .. } => window.jobs.iter().position(|line| line.job == job),
            _ => None,
        };
        serde_json::json!({
            "title": titles[index].0, "detail": titles[index].1,
            "from": window.from.as_nanos(), "until": window.until.as_nanos(),
            "rows": rows.iter().map(|row| serde_json::json!([
                label(account, row), printable(&system.processor(row.processor).name), row.lane
            ])).collect::<Vec<_>>(),
            "jobs": jobs.collect::<Vec<_>>(), "others": others.collect::<Vec<_>>(),
            "regions": regions.map(|epoch| serde_json::json!([epoch.at.as_nanos(), printable(&epoch.name)])).collect::<Vec<_>>(),
            "bands": bands(account, window, rows).into_iter().map(|(first, after, from, to, strategy)| {
                serde_json::json!([first, after, from.as_nanos(), to.as_nanos(), strategy])
            }).collect::<Vec<_>>(),
            "chosen": chosen,
        })
    };
    let all: Vec<serde_json::Value> = account.windows().iter().enumerate().map(window).collect();
    // Nothing in it may end the script's element.
    serde_json::Value::from(all).to_string().replace('<', "\\u003c").replace('&', "\\u0026")
}

fn state(line: &JobLine) -> &'static str {
    match line.end {
        None => "unfinished",
        Some((JobOutcome::Made, _)) => "made",
        Some((JobOutcome::Missed, _)) => "missed",
        Some((JobOutcome::Cancelled, _)) => "cancelled",
        Some((JobOutcome::Stopped, _)) => "stopped",
        Some((JobOutcome::DroppedBusy | JobOutcome::DroppedFull, _)) => "dropped",
    }
}

fn stranger(who: Option<OtherUse>) -> &'static str {
    match who {
        Some(OtherUse::Overhead(_)) => "scheduling",
        Some(OtherUse::Dispatch) => "a lane on its way to a job",
        Some(OtherUse::Other(_)) => "another thread of the machine",
        None => "somebody, not told who",
    }
}

/// When second strategies were in force: the processor's first row and the one after its last, from when,
/// until when, and the strategy.
fn bands(
    account: &ReportInput<'_>,
    window: &TimelineWindow,
    rows: &[LaneRow],
) -> Vec<(usize, usize, Instant, Instant, String)> {
    let band = |(processor, from, to): &(ProcessorId, Instant, Instant)| {
        let first = rows.iter().position(|row| row.processor == *processor)?;
        let after = 1 + rows.iter().rposition(|row| row.processor == *processor)?;
        let second = account.plan.processors.get(processor.index())?.overload.as_ref()?;
        Some((first, after, *from, *to, printable(&second.strategy)))
    };
    window.second_strategy.iter().filter_map(band).collect()
}

/// One window as a picture, in the same places as the script's.
fn picture(account: &ReportInput<'_>, window: &TimelineWindow, rows: &[LaneRow]) -> String {
    let system = account.system;
    let height = TOP + rows.len() as f64 * ROW + 6.0;
    let length = window.until.since(window.from).as_nanos().max(1) as f64;
    let x = |at: Instant| {
        let since = at.as_nanos() as f64 - window.from.as_nanos() as f64;
        (LEFT + (since / length).clamp(0.0, 1.0) * (WIDTH - LEFT)).round().max(LEFT)
    };
    let by_lane = rows.iter().any(|row| row.lane.is_some() && row.name.is_none());
    let mut svg = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"timeline of jobs\">"
    );
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // Writing to a string does not fail.
    let mut draw = |part: std::fmt::Arguments<'_>| svg.write_fmt(part).unwrap_or_default();
    for (first, after, from, to, _) in bands(account, window, rows) {
        let (left, right, top) = (x(from), x(to), TOP + first as f64 * ROW);
        let wide = (right - left).max(1.0);
        draw(format_args!(
            "<rect class=\"second\" x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"{}\"/><rect class=\"second edge\" x=\"{left}\" y=\"{top}\" width=\"{wide}\" height=\"3\"/>",
            (after - first) as f64 * ROW
        ));
    }
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + index as f64 * ROW;
        let text = label(account, row);
        let text: String =
            if text.chars().count() > 20 { text.chars().take(19).chain(['…']).collect() } else { text };
        draw(format_args!("<line class=\"grid\" x1=\"0\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>"));
        draw(format_args!("<text x=\"4\" y=\"{}\">{}</text>", y + 15.0, escaped(&text)));
    }
    for step in 0..=5u64 {
        let at = Instant::from_nanos(window.from.as_nanos() + (length as u64) / 5 * step);
        let anchor = if step == 5 { "end" } else { "start" };
        draw(format_args!(
            "<line class=\"grid\" x1=\"{0}\" x2=\"{0}\" y1=\"{TOP}\" y2=\"{height}\"/><text class=\"at\" x=\"{0}\" y=\"15\" text-anchor=\"{anchor}\">{1}</text>",
            x(at),
            terminal::seconds(at.as_nanos()),
        ));
    }
    for line in &window.jobs {
        let row = row_of(system, line, by_lane);
        let Some(place) = rows.iter().position(|known| *known == row) else { continue };
        let y = TOP + place as f64 * ROW;
        let end = line.end.map_or(window.until, |(_, end)| end);
        let begun = line.ran.first().map_or(end, |(from, _)| *from);
        let mut bar = |class: &str, from: Instant, to: Instant, top: f64, high: f64| {
            let (left, right) = (x(from), x(to));
            draw(format_args!(
                "<rect class=\"{class}\" x=\"{left}\" y=\"{}\" width=\"{}\" height=\"{high}\"/>",
                y + top,
                (right - left).max(1.0),
            ));
        };
        if line.ready < begun {
            bar("wait", line.ready, begun, 9.0, 4.0);
        }
        if !line.ran.is_empty() && line.end.is_some() {
            bar("held", begun, end, 9.0, 4.0);
        }
        let class = match (state(line), line.critical) {
            ("missed", _) => "run missed",
            (_, true) => "run critical",
            (_, false) => "run",
        };
        for (from, to) in &line.ran {
            bar(class, *from, *to, 5.0, 12.0);
        }
        if line.release >= window.from && line.release <= window.until {
            bar("release", line.release, line.release, 2.0, 18.0);
        }
        if state(line) == "missed" && line.deadline >= window.from && line.deadline <= window.until {
            bar("late", line.deadline, line.deadline, 1.0, 20.0);
        }
        if matches!(state(line), "cancelled" | "dropped") && end >= window.from && end <= window.until {
            draw(format_args!("<text class=\"cross\" x=\"{}\" y=\"{}\">×</text>", x(end) - 4.0, y + 16.0));
        }
    }
    svg.push_str("</svg>");
    svg
}
