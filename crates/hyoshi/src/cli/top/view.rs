//! The text of `hyoshi top`, computed from samples and keys.

use std::collections::BTreeMap;

use clap::ValueEnum;
use hyoshi_broker::idl::cpu_broker::{BrokerStatus, Reservation, TaskStatus};
use hyoshi_model::{Instant, Reservation as Reserved, Span};
use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{nanos, percent, printable};
use hyoshi_report::terminal::cut;
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column, grid};

use crate::cli::broker::share;

/// A sample of the broker.
#[derive(Debug)]
pub(super) struct BrokerSample {
    pub at: Instant,
    /// The status, or why the broker did not answer.
    pub seen: Result<(BrokerStatus, Vec<TaskStatus>), String>,
}

/// A task, and how much of a CPU it uses, in millionths, once that is known.
#[derive(Debug)]
pub(super) struct Using {
    pub task: TaskStatus,
    pub cpu: Option<u64>,
}

/// The column to sort by: names ascending, figures descending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum SortKey {
    /// Name
    Name,
    /// Importance
    Importance,
    /// Period, the longest first
    Period,
    /// Requested share
    Requested,
    /// Reserved share
    Reserved,
    /// Use of a CPU
    #[default]
    Cpu,
    /// Reports
    Reports,
}

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    place: String,
    order: SortKey,
    reversed: bool,
    looked: Result<BrokerStatus, String>,
    tasks: Vec<Using>,
    /// By name: the last report of each task.
    before: BTreeMap<String, PreviousSample>,
}

#[derive(Clone, Copy, Debug)]
struct PreviousSample {
    at: Instant,
    total: u64,
    reports: u64,
    cpu: Option<u64>,
}

const COLUMNS: [Column; 10] = [
    column("task"),
    column("processes").spare(6),
    column("importance").spare(4),
    column("period").spare(3),
    column("deadline").if_any().spare(7),
    column("requested").spare(2),
    column("reserved"),
    column("cpu"),
    column("reports").spare(5),
    column("because").if_any().spare(1),
];

const KEYS: &str = "q quit  n name  i importance  p period  r requested  s reserved  c cpu  t reports";

impl View {
    /// Before the first sample.
    pub fn new(place: &str, order: SortKey) -> View {
        let looked = Err("no answer yet".to_owned());
        View { place: place.to_owned(), order, reversed: false, looked, tasks: Vec::new(), before: BTreeMap::new() }
    }

    /// Where the broker is.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// True if the broker answered the last request.
    pub fn is_there(&self) -> bool {
        self.looked.is_ok()
    }

    /// The last sample, or why there is none.
    pub fn seen(&self) -> Result<(&BrokerStatus, &[Using]), &str> {
        self.looked.as_ref().map(|status| (status, &self.tasks[..])).map_err(String::as_str)
    }

    /// A sample of the broker.
    pub fn take(&mut self, looked: BrokerSample) {
        self.tasks.clear();
        self.looked = looked.seen.map(|(status, tasks)| {
            let known = std::mem::take(&mut self.before);
            for task in tasks {
                let before = before(&task, looked.at, known.get(&task.name));
                self.before.insert(task.name.clone(), before);
                self.tasks.push(Using { task, cpu: before.cpu });
            }
            status
        });
        self.sort();
    }

    /// Handles a key; false to quit. Control-C arrives as a key.
    pub fn key(&mut self, key: u8) -> bool {
        let order = match key {
            b'q' | b'Q' | 0x03 => return false,
            b'n' => SortKey::Name,
            b'i' => SortKey::Importance,
            b'p' => SortKey::Period,
            b'r' => SortKey::Requested,
            b's' => SortKey::Reserved,
            b'c' => SortKey::Cpu,
            b't' => SortKey::Reports,
            _ => return true,
        };
        self.reversed = self.order == order && !self.reversed;
        self.order = order;
        self.sort();
        true
    }

    fn sort(&mut self) {
        let by = |Using { task, cpu }: &Using| match self.order {
            SortKey::Name => 0,
            SortKey::Importance => u64::from(task.importance),
            SortKey::Period => task.period,
            SortKey::Requested => millionths(&task.granted.requested),
            SortKey::Reserved => millionths(&task.granted.reserved),
            SortKey::Cpu => cpu.unwrap_or(0),
            SortKey::Reports => task.reports,
        };
        self.tasks.sort_by(|one, other| by(other).cmp(&by(one)).then_with(|| one.task.name.cmp(&other.task.name)));
        if self.reversed {
            self.tasks.reverse();
        }
    }

    /// The text; with a `height`, at most that many lines. The last one lists the keys.
    pub fn text(&self, look: TerminalStyle, height: Option<usize>) -> String {
        let text = match &self.looked {
            Err(why) => format!("waiting for the broker at {}: {}\n", printable(&self.place), printable(why)),
            Ok(status) => format!("{}\n{}", self.head(status, look, height), self.table(look, height)),
        };
        let Some(height) = height else { return text };
        let fits = |line: &str| look.width.map_or(line.to_owned(), |width| cut(line, width.into()));
        let mut lines: Vec<String> = text.lines().take(height.saturating_sub(1)).map(str::to_owned).collect();
        // The table fits already, and escape sequences must not be cut.
        lines.iter_mut().filter(|line| !line.contains('\x1b')).for_each(|line| *line = fits(line));
        lines.push(look.quiet(&fits(KEYS)));
        lines.join("\n")
    }

    fn head(&self, status: &BrokerStatus, look: TerminalStyle, height: Option<usize>) -> String {
        let tasks = if status.tasks == 1 { "task" } else { "tasks" };
        let used: Vec<_> = status.proxies.iter().filter(|proxy| proxy.used).map(|proxy| proxy.name.as_str()).collect();
        let cpu = self.tasks.iter().filter_map(|using| using.cpu).sum();
        let text = format!(
            "broker {}  policy {}  scheduler {}\n{} {tasks}  reserved {} of {}  used {}",
            status.process,
            status.policy,
            used.join(", "),
            status.tasks,
            share(status.reserved),
            share(status.cap),
            percent(cpu),
        );
        let lines = text.lines().map(|line| format!(" {}\n", printable(line)));
        // On a screen each line is one.
        lines.map(|line| if height.is_some() { line } else { look.wrap(&line) }).collect()
    }

    fn table(&self, look: TerminalStyle, height: Option<usize>) -> String {
        if self.tasks.is_empty() {
            return " no tasks: start one with `hyoshi exec` or `hyoshi attach`\n".to_owned();
        }
        // Three lines of the head, two of the table's, one of columns without room, and one of keys.
        let most = height.map_or(usize::MAX, |height| height.saturating_sub(8).max(1));
        let rows: Vec<_> = self.tasks.iter().map(|using| row(&using.task, using.cpu)).collect();
        grid(look, &COLUMNS, &rows, most)
    }
}

/// The use of CPU since the last report; unchanged without a new report.
fn before(task: &TaskStatus, at: Instant, known: Option<&PreviousSample>) -> PreviousSample {
    let now = PreviousSample { at, total: task.total, reports: task.reports, cpu: None };
    match known {
        Some(before) if before.reports == task.reports && before.total == task.total => *before,
        // A lower count is of another broker.
        Some(before) if before.reports < task.reports && before.total <= task.total => {
            let used =
                u128::from(task.total - before.total) * 1_000_000 / u128::from(at.since(before.at).as_nanos().max(1));
            PreviousSample { cpu: Some(u64::try_from(used).unwrap_or(u64::MAX)), ..now }
        }
        _ => now,
    }
}

fn row(task: &TaskStatus, cpu: Option<u64>) -> Vec<CellValue> {
    let (asked, held) = (&task.granted.requested, &task.granted.reserved);
    let tone = match held.budget {
        0 if asked.budget > 0 => Tone::Bad,
        budget if budget < asked.budget => Tone::Worry,
        _ => Tone::Plain,
    };
    let deadline = (held.deadline < held.period).then_some(held.deadline);
    vec![
        CellValue::words(&task.name),
        CellValue::Count(task.processes.len() as u64, Tone::Plain),
        CellValue::Count(task.importance.into(), Tone::Plain),
        CellValue::time(task.period),
        CellValue::time_if_known(deadline),
        CellValue::figure(reserved(asked)),
        CellValue::Figure(reserved(held), tone),
        CellValue::figure(cpu.map_or(String::new(), percent)),
        CellValue::Count(task.reports, Tone::Plain),
        CellValue::words(&task.granted.reason),
    ]
}

fn millionths(one: &Reservation) -> u64 {
    let reserved = Reserved::new(Span::from_nanos(one.budget), Span::from_nanos(one.period));
    reserved.map_or(0, |reserved| reserved.share().as_millionths())
}

fn reserved(one: &Reservation) -> String {
    match one.budget {
        0 => "nothing".to_owned(),
        budget => format!("{} {}", nanos(budget), percent(millionths(one))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn task(name: &str, importance: u32, asked: u64, held: u64) -> TaskStatus {
        let reservation = |budget| Reservation { budget, period: 40_000_000, deadline: 20_000_000 };
        let because = if held < asked { "the cap of 75% leaves no more" } else { "" };
        let granted = hyoshi_broker::idl::cpu_broker::Grant {
            requested: reservation(asked),
            reserved: reservation(held),
            reason: because.to_owned(),
        };
        let (name, period, granted) = (name.to_owned(), 40_000_000, granted);
        TaskStatus { name, importance, period, granted, processes: vec![7], ..TaskStatus::default() }
    }

    fn look(at_ms: u64, tasks: &[TaskStatus]) -> BrokerSample {
        let status = BrokerStatus {
            process: 42,
            policy: "strict".to_owned(),
            cap: 750_000,
            reserved: 500_000,
            tasks: tasks.len() as u32,
            ..BrokerStatus::default()
        };
        BrokerSample { at: Instant::from_nanos(at_ms * 1_000_000), seen: Ok((status, tasks.to_vec())) }
    }

    fn reported(task: TaskStatus, reports: u64, total_ms: u64) -> TaskStatus {
        TaskStatus { reports, total: total_ms * 1_000_000, ..task }
    }

    fn view() -> View {
        View::new("/run/b.sock", SortKey::Name)
    }

    fn cpu(view: &View) -> Vec<Option<u64>> {
        view.tasks.iter().map(|using| using.cpu).collect()
    }

    #[test]
    fn the_use_of_a_task_is_its_consumption_between_reports() {
        let (mut view, slow) = (view(), task("slow", 1, 1, 1));
        view.take(look(1_000, &[reported(slow.clone(), 1, 100)]));
        assert_eq!(cpu(&view), [None]);
        view.take(look(2_000, &[reported(slow.clone(), 2, 350)]));
        assert_eq!(cpu(&view), [Some(250_000)]);
        // It has not reported since: that is not to use nothing.
        view.take(look(3_000, &[reported(slow.clone(), 2, 350)]));
        assert_eq!(cpu(&view), [Some(250_000)]);
        view.take(look(4_000, &[reported(slow.clone(), 3, 350)]));
        assert_eq!(cpu(&view), [Some(0)], "over two seconds");
        // The next broker counts anew.
        view.take(BrokerSample { at: Instant::from_nanos(5_000_000_000), seen: Err("nobody listens".into()) });
        view.take(look(6_000, &[reported(slow.clone(), 1, 10)]));
        assert_eq!(cpu(&view), [None]);
    }

    #[test]
    fn a_key_sorts_by_its_column_and_once_more_the_other_way_round() {
        let mut view = view();
        view.take(look(
            0,
            &[task("b", 1, 20 * MS, 20 * MS), task("a", 1, 15 * MS, 10 * MS), task("c", 9, 10 * MS, 10 * MS)],
        ));
        let mut names = |key: u8| {
            assert!(view.key(key));
            view.tasks.iter().map(|using| using.task.name.clone()).collect::<String>()
        };
        assert_eq!([b'i', b'i', b'n', b'r', b'x', b's'].map(&mut names), ["cab", "bac", "abc", "bac", "bac", "bac"]);
        assert_eq!(names(b'n'), "abc");
        assert_eq!(names(b'n'), "cba");
        assert!(!view.key(b'q') && !view.key(3));
    }

    #[test]
    fn a_table_fits_its_terminal_and_has_reasons() {
        let mut view = view();
        let tasks: Vec<_> = (0..30).map(|n| task(&format!("task-{n:02}"), n, 20_000_000, 10_000_000)).collect();
        view.take(look(0, &tasks));
        let all = view.text(TerminalStyle::PLAIN, None);
        assert!(
            all.starts_with(" broker 42  policy strict  scheduler \n 30 tasks  reserved 50% of 75%  used 0.0 %\n\n"),
            "{all}"
        );
        assert_eq!(all.matches("10ms 25.0 %  ").count(), 30);
        assert_eq!(all.matches("the cap of 75% leaves no more").count(), 30);
        for (width, height) in [(40, 12), (80, 24), (200, 50), (10, 3), (1, 1)] {
            let look = TerminalStyle { colour: false, width: Some(width) };
            let text = view.text(look, Some(height));
            assert!(text.lines().count() <= height, "{width} x {height}:\n{text}");
            assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{width} x {height}:\n{text}");
            assert!(text.lines().last().unwrap().starts_with(['q', '…']));
        }
        view.take(BrokerSample { at: Instant::ZERO, seen: Err("nobody\x1b listens".into()) });
        assert!(!view.is_there());
        let text = view.text(TerminalStyle::PLAIN, None);
        assert_eq!(text, "waiting for the broker at /run/b.sock: nobody\\u{1b} listens\n");
    }
}
