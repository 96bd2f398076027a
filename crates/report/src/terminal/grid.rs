//! A table of a report: figures to the right, columns of nothing but zeros left out, colour for
//! what is bad.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Row, Table, TableStyle};

use super::TerminalStyle;
use crate::figures::{count, printable};

/// What a cell says.
#[derive(Clone, Debug)]
pub enum CellValue {
    /// Words, to the left.
    Words(String),
    /// A figure with its unit, to the right.
    Figure(String, Tone),
    /// A number; zero is quiet.
    Count(u64, Tone),
}

/// Words may wrap beyond this.
const WORDS: usize = 24;

/// How a cell stands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    Plain,
    /// What was hoped for.
    Good,
    /// Worth a look.
    Worry,
    /// What should not be.
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

    fn is_nothing(&self) -> bool {
        match self {
            CellValue::Words(text) | CellValue::Figure(text, _) => text.is_empty(),
            CellValue::Count(number, _) => *number == 0,
        }
    }

    /// What it needs at least.
    fn width(&self) -> usize {
        match self {
            CellValue::Words(text) => text.chars().count().min(WORDS),
            CellValue::Figure(text, _) => text.chars().count(),
            CellValue::Count(number, _) => count(*number).chars().count(),
        }
    }

    fn cell(&self) -> Cell {
        let (text, tone, right) = match self {
            CellValue::Words(text) => (text.clone(), Tone::Plain, false),
            CellValue::Figure(text, tone) => (text.clone(), *tone, true),
            CellValue::Count(number, tone) => (count(*number), *tone, true),
        };
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

/// A column, and what becomes of it where there is too little to say or to say it in.
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
    let shown = shown(look, columns, rows);
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
        let right = rows.first().is_some_and(|row| !matches!(row[*place], CellValue::Words(_)));
        let alignment = if right { CellAlignment::Right } else { CellAlignment::Left };
        Cell::new(columns[*place].title).set_alignment(alignment)
    };
    table.set_header(Row::from(shown.iter().map(title).collect::<Vec<_>>()));
    for row in rows.iter().take(most) {
        table.add_row(Row::from(shown.iter().map(|place| row[*place].cell()).collect::<Vec<_>>()));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(&format!("{:indent$}{}\n", "", line.trim_end(), indent = usize::from(INDENT)));
    }
    if rows.len() > most {
        text.push_str(&format!("  … and {} more: --format json has all of them\n", count((rows.len() - most) as u64)));
    }
    text + &left_out(look, columns, &shown, rows)
}

/// A line that names the columns that had no room.
fn left_out(look: TerminalStyle, columns: &[Column], shown: &[usize], rows: &[Vec<CellValue>]) -> String {
    let mut titles: Vec<&str> = Vec::new();
    for place in with_something_to_say(columns, rows).filter(|place| !shown.contains(place)) {
        if !titles.contains(&columns[place].title) {
            titles.push(columns[place].title);
        }
    }
    match titles.is_empty() {
        true => String::new(),
        false => look.wrap(&format!("  no room for: {}\n", titles.join(", "))),
    }
}

/// Columns that are not left out for having nothing in them.
fn with_something_to_say(columns: &[Column], rows: &[Vec<CellValue>]) -> impl Iterator<Item = usize> {
    (0..columns.len())
        .filter(|place| !columns[*place].optional || rows.iter().any(|row| !row[*place].is_nothing()))
        .collect::<Vec<_>>()
        .into_iter()
}

const INDENT: u16 = 1;

/// Columns with something to say, as many as fit.
fn shown(look: TerminalStyle, columns: &[Column], rows: &[Vec<CellValue>]) -> Vec<usize> {
    let mut shown: Vec<usize> = with_something_to_say(columns, rows).collect();
    let Some(width) = look.width.map(|width| usize::from(width.saturating_sub(INDENT))) else { return shown };
    let needed = |place: &usize| {
        let cells = rows.iter().map(|row| row[*place].width());
        // Title and padding; words may wrap, figures must not.
        cells.chain([columns[*place].title.chars().count()]).max().unwrap_or(0) + 2
    };
    while shown.iter().map(needed).sum::<usize>() > width {
        let spare = shown.iter().enumerate().max_by_key(|(_, place)| columns[**place].spare);
        match spare {
            Some((position, place)) if columns[*place].spare > 0 => drop(shown.remove(position)),
            _ => break,
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(!at(None).contains("no room") && !at(Some(40)).contains("no room"));
        assert!(at(Some(20)).ends_with("no room for: first\n"), "{}", at(Some(20)));
        assert!(
            at(Some(12)).contains("no room for: first, second") || at(Some(12)).contains("second\n"),
            "{}",
            at(Some(12))
        );
    }
}
