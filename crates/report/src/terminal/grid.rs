//! A table of a report: figures to the right, one unit per column, columns of zeros left out, colour for what is bad.
//! If a terminal is too narrow, whole columns are hidden and named below the table.

use comfy_table::{
    Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, Row, Table, TableStyle, Width,
};

use super::TerminalStyle;
use crate::figures::{Unit, count, printable};

/// The content of a cell.
#[derive(Clone, Debug)]
pub enum CellValue {
    /// Words, to the left.
    Words(String),
    /// A figure with its unit, to the right.
    Figure(String, Tone),
    /// A number; zero is quiet.
    Count(u64, Tone),
    /// A time, in the unit of its column.
    Time(TimeCell, Tone),
}

/// A time in a table, or a range of times.
#[derive(Clone, Debug)]
pub struct TimeCell {
    ns: u64,
    /// The end of a range.
    to: Option<u64>,
    sign: &'static str,
    suffix: String,
}

impl TimeCell {
    fn text(&self, unit: Unit) -> String {
        let to = self.to.map_or(String::new(), |to| format!("–{}", unit.text(to)));
        format!("{}{}{to}{}", self.sign, unit.text(self.ns), self.suffix)
    }
}

/// A single word may wrap beyond this.
const WORDS: usize = 24;

/// Several words may wrap beyond this.
const NARROW_WORDS: usize = 14;

/// How a cell stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// Good.
    Good,
    /// Worth a look.
    Worry,
    /// Bad.
    Bad,
}

impl CellValue {
    /// Words; control characters are made visible.
    pub fn words(words: impl Into<String>) -> CellValue {
        CellValue::Words(printable(&words.into()))
    }

    /// A figure that does not stand out.
    pub fn figure(figure: impl Into<String>) -> CellValue {
        CellValue::Figure(figure.into(), Tone::Plain)
    }

    /// Nanoseconds, shown with three digits.
    pub fn time(ns: u64) -> CellValue {
        CellValue::times(ns, ns)
    }

    /// Nanoseconds; an empty cell if they are unknown.
    pub fn time_if_known(ns: Option<u64>) -> CellValue {
        ns.map_or(CellValue::figure(""), CellValue::time)
    }

    /// One time, or the range of several.
    pub fn times(least: u64, most: u64) -> CellValue {
        let to = (least != most).then_some(most);
        CellValue::Time(TimeCell { ns: least, to, sign: "", suffix: String::new() }, Tone::Plain)
    }

    /// Nanoseconds with their sign.
    pub fn signed_time(ns: i64) -> CellValue {
        let sign = match ns {
            ..0 => "-",
            0 => "",
            1.. => "+",
        };
        CellValue::Time(TimeCell { ns: ns.unsigned_abs(), to: None, sign, suffix: String::new() }, Tone::Plain)
    }

    /// The same figure with a text after it.
    pub fn followed_by(self, text: &str) -> CellValue {
        match self {
            CellValue::Time(cell, tone) => CellValue::Time(TimeCell { suffix: cell.suffix + text, ..cell }, tone),
            CellValue::Figure(figure, tone) => CellValue::Figure(figure + text, tone),
            other => other,
        }
    }

    /// The same figure in another tone.
    pub fn in_tone(self, tone: Tone) -> CellValue {
        match self {
            CellValue::Words(text) => CellValue::Words(text),
            CellValue::Figure(text, _) => CellValue::Figure(text, tone),
            CellValue::Count(number, _) => CellValue::Count(number, tone),
            CellValue::Time(cell, _) => CellValue::Time(cell, tone),
        }
    }

    fn is_nothing(&self) -> bool {
        match self {
            CellValue::Words(text) | CellValue::Figure(text, _) => text.is_empty(),
            CellValue::Count(number, _) => *number == 0,
            CellValue::Time(..) => false,
        }
    }

    fn text(&self, unit: Unit) -> String {
        match self {
            CellValue::Words(text) | CellValue::Figure(text, _) => text.clone(),
            CellValue::Count(number, _) => count(*number),
            CellValue::Time(cell, _) => cell.text(unit),
        }
    }

    /// The least width.
    fn width(&self, unit: Unit) -> usize {
        match self {
            CellValue::Words(text) => longest_word_of(text).max(text.chars().count().min(NARROW_WORDS)),
            _ => self.text(unit).chars().count(),
        }
    }

    fn cell(&self, unit: Unit) -> Cell {
        let (tone, right) = match self {
            CellValue::Words(_) => (Tone::Plain, false),
            CellValue::Figure(_, tone) | CellValue::Count(_, tone) | CellValue::Time(_, tone) => (*tone, true),
        };
        let text = self.text(unit);
        let cell = Cell::new(text).set_alignment(if right { CellAlignment::Right } else { CellAlignment::Left });
        match tone {
            _ if self.is_nothing() => cell.fg(Color::DarkGrey),
            Tone::Plain => cell,
            Tone::Good => cell.fg(Color::Green),
            Tone::Worry => cell.fg(Color::Yellow),
            Tone::Bad => cell.fg(Color::Red),
        }
    }
}

/// A column, and when it is left out.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    optional: bool,
    spare: u8,
}

/// A column that is always there.
pub const fn column(title: &'static str) -> Column {
    Column { title, optional: false, spare: 0 }
}

impl Column {
    /// Left out if all its cells are empty or zero.
    pub const fn if_any(self) -> Column {
        Column { optional: true, ..self }
    }

    /// Left out in a narrow terminal; the greatest rank first.
    pub const fn spare(self, rank: u8) -> Column {
        Column { spare: rank, ..self }
    }
}

/// Draws the rows, indented by one; at most `most` of them, and how many there are besides.
pub fn grid(look: TerminalStyle, columns: &[Column], rows: &[Vec<CellValue>], most: usize) -> String {
    let units: Vec<Unit> = (0..columns.len()).map(|place| unit(rows, place)).collect();
    let shown = shown(look, columns, rows, &units);
    let mut table = Table::new();
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─')));
    match look.width {
        Some(width) => {
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width.saturating_sub(INDENT))
        }
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    match look.colour {
        true => table.enforce_styling(),
        false => table.force_no_tty(),
    };
    let title = |place: &usize| {
        let alignment = if is_figures(rows, *place) { CellAlignment::Right } else { CellAlignment::Left };
        Cell::new(columns[*place].title).set_alignment(alignment)
    };
    table.set_header(Row::from(shown.iter().map(title).collect::<Vec<_>>()));
    for row in rows.iter().take(most) {
        table.add_row(Row::from(shown.iter().map(|place| row[*place].cell(units[*place])).collect::<Vec<_>>()));
    }
    if let Some(width) = look.width {
        let widths = widths(usize::from(width.saturating_sub(INDENT)), columns, rows, &units, &shown);
        for (position, width) in widths.into_iter().enumerate() {
            if let Some(column) = table.column_mut(position) {
                let width = u16::try_from(width).unwrap_or(u16::MAX);
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            }
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(&format!("{:indent$}{}\n", "", line.trim_end(), indent = usize::from(INDENT)));
    }
    if rows.len() > most {
        text.push_str(&format!("  … and {} more: --format json lists all\n", count((rows.len() - most) as u64)));
    }
    text + &hidden(look, columns, &shown, rows)
}

fn is_figures(rows: &[Vec<CellValue>], place: usize) -> bool {
    rows.first().is_some_and(|row| !matches!(row[place], CellValue::Words(_)))
}

/// The unit of a column.
fn unit(rows: &[Vec<CellValue>], place: usize) -> Unit {
    let times = rows.iter().filter_map(|row| match &row[place] {
        CellValue::Time(cell, _) => Some([cell.ns, cell.to.unwrap_or(cell.ns)]),
        _ => None,
    });
    Unit::of(times.flatten())
}

/// A line that names the columns without room, and where they are shown.
fn hidden(look: TerminalStyle, columns: &[Column], shown: &[usize], rows: &[Vec<CellValue>]) -> String {
    let Some(width) = look.width else { return String::new() };
    let hidden = not_empty(columns, rows).filter(|place| !shown.contains(place));
    let titles: Vec<&str> = hidden.map(|place| columns[place].title).collect();
    match titles.is_empty() {
        true => String::new(),
        false => look.wrap(&format!("  hidden at {width} columns: {} (`| less -S` shows all)\n", titles.join(", "))),
    }
}

/// Columns that are not left out for having nothing in them.
fn not_empty(columns: &[Column], rows: &[Vec<CellValue>]) -> impl Iterator<Item = usize> {
    (0..columns.len())
        .filter(|place| !columns[*place].optional || rows.iter().any(|row| !row[*place].is_nothing()))
        .collect::<Vec<_>>()
        .into_iter()
}

const INDENT: u16 = 1;

/// Columns that are not empty, as many as fit. Spare columns are left out first, then figures from the right.
fn shown(look: TerminalStyle, columns: &[Column], rows: &[Vec<CellValue>], units: &[Unit]) -> Vec<usize> {
    let mut shown: Vec<usize> = not_empty(columns, rows).collect();
    let Some(width) = look.width.map(|width| usize::from(width.saturating_sub(INDENT))) else { return shown };
    while shown.iter().map(|place| least_width(columns, rows, units, *place)).sum::<usize>() > width {
        let spare = shown.iter().enumerate().max_by_key(|(_, place)| columns[**place].spare);
        let spare = spare.filter(|(_, place)| columns[**place].spare > 0).map(|(position, _)| position);
        let figures = || shown.iter().rposition(|place| is_figures(rows, *place)).filter(|position| *position > 0);
        match spare.or_else(figures) {
            Some(position) => drop(shown.remove(position)),
            None => break,
        }
    }
    shown
}

/// The width without which a column's figures or single words do not fit, with padding.
fn least_width(columns: &[Column], rows: &[Vec<CellValue>], units: &[Unit], place: usize) -> usize {
    let cells = rows.iter().map(|row| row[place].width(units[place]));
    let title = columns[place].title.split(' ').map(|word| word.chars().count());
    cells.chain(title).max().unwrap_or(0) + 2
}

/// The widths of the shown columns, with padding. Texts and titles wrap between words if they must, the longest first;
/// figures and words stay whole.
fn widths(room: usize, columns: &[Column], rows: &[Vec<CellValue>], units: &[Unit], shown: &[usize]) -> Vec<usize> {
    let least = |place: &usize| least_width(columns, rows, units, *place);
    let mut widths: Vec<usize> = shown.iter().map(least).collect();
    if widths.iter().sum::<usize>() > room {
        // Texts at the width of their longest words.
        let narrow = |place: &usize| match is_figures(rows, *place) {
            true => least(place),
            false => longest_word(columns, rows, *place),
        };
        widths = shown.iter().map(narrow).collect();
    }
    let whole = |place: &usize| {
        let cells = rows.iter().map(|row| row[*place].text(units[*place]).chars().count());
        cells.chain([columns[*place].title.chars().count()]).max().unwrap_or(0) + 2
    };
    let mut missing: Vec<(bool, usize, usize)> = shown
        .iter()
        .enumerate()
        .map(|(position, place)| (is_figures(rows, *place), whole(place).saturating_sub(widths[position]), position))
        .collect();
    missing.sort_unstable();
    let mut spare = room.saturating_sub(widths.iter().sum());
    for (_, more, position) in missing {
        let more = more.min(spare);
        widths[position] += more;
        spare -= more;
    }
    widths
}

/// The width of a text column's longest word, with padding.
fn longest_word(columns: &[Column], rows: &[Vec<CellValue>], place: usize) -> usize {
    let words = rows.iter().filter_map(|row| match &row[place] {
        CellValue::Words(text) => Some(longest_word_of(text)),
        _ => None,
    });
    let title = columns[place].title.split(' ').map(|word| word.chars().count());
    words.chain(title).max().unwrap_or(0) + 2
}

fn longest_word_of(text: &str) -> usize {
    text.split(' ').map(|word| word.chars().count()).max().unwrap_or(0).min(WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_one_unit() {
        let row = |bound: u64, slack: i64| {
            vec![
                CellValue::words("a"),
                CellValue::time(bound).followed_by(" !"),
                CellValue::signed_time(slack),
                CellValue::times(bound, 2 * bound),
            ]
        };
        let rows = [row(14_312_000, -500), row(1_000, 30_000), row(0, 0)];
        let columns = [column("name"), column("bound"), column("slack"), column("period")];
        let text = grid(TerminalStyle::PLAIN, &columns, &rows, 9);
        let cells: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[0], ["a", "14.3ms", "!", "-0.5us", "14.3ms–28.6ms"]);
        assert_eq!(cells[1], ["a", "0.001ms", "!", "+30us", "0.001ms–0.002ms"]);
        assert_eq!(cells[2], ["a", "0", "!", "0", "0"]);
    }

    #[test]
    fn figures_are_never_cut() {
        let columns = [column("name"), column("first"), column("second"), column("why")];
        let row = vec![
            CellValue::words("a-long-name"),
            CellValue::time(1_230_000),
            CellValue::figure("4,560,000"),
            CellValue::words("it is"),
        ];
        for width in 20..60 {
            let text =
                grid(TerminalStyle { colour: false, width: Some(width) }, &columns, std::slice::from_ref(&row), 9);
            let hidden = text.split("hidden at").nth(1).unwrap_or_default();
            for (title, figure) in [("first", "1.23ms"), ("second", "4,560,000")] {
                assert!(text.contains(figure) || hidden.contains(title), "{width}:\n{text}");
            }
        }
    }

    #[test]
    fn columns_without_room_are_named_below_the_table() {
        let columns =
            [column("name"), column("first").spare(2), column("second").spare(1), column("none").if_any().spare(9)];
        let row = vec![
            CellValue::words("a"),
            CellValue::figure("1.23ms"),
            CellValue::figure("4.56ms"),
            CellValue::figure(""),
        ];
        let at = |width| grid(TerminalStyle { colour: false, width }, &columns, std::slice::from_ref(&row), 9);
        assert!(!at(None).contains("hidden") && !at(Some(40)).contains("hidden"));
        let words = |width| at(Some(width)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(20).ends_with("hidden at 20 columns: first (`| less -S` shows all)"), "{}", words(20));
        assert!(
            words(12).contains("columns: first, second (") || words(12).contains("columns: second ("),
            "{}",
            words(12)
        );
    }
}
