//! The answer of a broker or a node as text and JSON, or those of several in one table.

use std::fmt::Write;

use hyoshi_model::printable_lines;
use hyoshi_report::terminal::TerminalStyle;
use hyoshi_report::terminal::grid::{CellValue, Column, column, grid};
use serde_json::{Value as Json, json};

use crate::cli::{CliError, Format, VerbOutcome, head, streams};

/// The output of a verb.
pub(super) struct VerbOutput {
    /// For people.
    pub text: OutputText,
    /// For programs: an object's members.
    pub json: Json,
}

/// See [`VerbOutput`].
pub(super) enum OutputText {
    /// No output: the request was executed.
    Nothing,
    /// Lines.
    Lines(String),
    /// Text in its final form: foreign parts are printable, and it may have colours.
    Styled(String),
    /// Rows of as many cells as there are columns.
    Table(OutputTable),
}

/// A table for people.
pub(super) struct OutputTable {
    pub columns: &'static [Column],
    pub rows: Vec<Vec<CellValue>>,
    /// Printed instead of a table without rows.
    pub empty: &'static str,
}

impl VerbOutput {
    /// Prints the answer of one broker.
    pub fn print(self, verb: &str, format: Format) -> Result<VerbOutcome, CliError> {
        match (format, self.text) {
            (Format::Json, _) => streams::out(format_args!("{:#}\n", with("hyoshi", head(verb), self.json)))?,
            (Format::Text, OutputText::Nothing) => {}
            (Format::Text, OutputText::Lines(lines)) => {
                streams::out(TerminalStyle::of_stdout().wrap(&printable_lines(&lines)))?
            }
            (Format::Text, OutputText::Styled(text)) => streams::out(text)?,
            (Format::Text, OutputText::Table(table)) if table.rows.is_empty() => streams::out(table.empty)?,
            (Format::Text, OutputText::Table(table)) => {
                streams::out(grid(TerminalStyle::of_stdout(), table.columns, &table.rows, usize::MAX))?;
            }
        }
        Ok(VerbOutcome::Success)
    }
}

/// The answers of several brokers, with the host's name in the first column.
pub(super) fn beside(answers: Vec<(&str, OutputText)>, look: TerminalStyle) -> String {
    let width = answers.iter().map(|(host, _)| host.chars().count()).max().unwrap_or(0);
    let (mut text, mut columns, mut rows) = (String::new(), Vec::new(), Vec::new());
    for (host, answer) in answers {
        match answer {
            OutputText::Nothing => {}
            OutputText::Lines(lines) => {
                for line in printable_lines(&lines).lines() {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{host:<width$}  {line}");
                }
            }
            OutputText::Styled(styled) => {
                for line in styled.lines() {
                    let _ = writeln!(text, "{host:<width$}  {line}");
                }
            }
            OutputText::Table(table) => {
                columns = [&[column("host")], table.columns].concat();
                if table.rows.is_empty() {
                    let none = table.columns.iter().enumerate();
                    let none = none.map(|(place, _)| CellValue::words(if place == 0 { "none" } else { "" }));
                    rows.push([CellValue::words(host)].into_iter().chain(none).collect());
                }
                rows.extend(table.rows.into_iter().map(|row| [vec![CellValue::words(host)], row].concat()));
            }
        }
    }
    if !rows.is_empty() {
        text += &grid(look, &columns, &rows, usize::MAX);
    }
    text
}

/// An object with a further member.
pub(super) fn with(name: &str, value: impl Into<Json>, mut object: Json) -> Json {
    if !object.is_object() {
        object = json!({});
    }
    object[name] = value.into();
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 2] = [column("task"), column("holds")];

    fn table(rows: &[[&str; 2]]) -> OutputText {
        let rows = rows.iter().map(|row| row.iter().map(|word| CellValue::words(*word)).collect()).collect();
        OutputText::Table(OutputTable { columns: &COLUMNS, rows, empty: "no tasks\n" })
    }

    #[test]
    fn several_answers_have_a_column_for_the_host() {
        let answer = vec![("yard", table(&[["player", "a third"], ["map", "nothing"]])), ("b", table(&[]))];
        let answer = beside(answer, TerminalStyle::PLAIN);
        let rows: Vec<Vec<&str>> = answer.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
        assert_eq!(rows[0], ["host", "task", "holds"]);
        assert_eq!(rows[2..], [vec!["yard", "player", "a"], vec!["yard", "map", "nothing"], vec!["b", "none"]]);
        let lines = |text: &str| OutputText::Lines(text.to_owned());
        let answer = beside(vec![("yard", lines("one\ntwo\n")), ("b", OutputText::Nothing)], TerminalStyle::PLAIN);
        assert_eq!(answer, "yard  one\nyard  two\n");
    }
}
