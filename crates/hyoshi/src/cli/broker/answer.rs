//! What brokers answer: one, or several beside each other.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use crate::cli::{Failure, Format, Held, head, streams};

/// What a verb has to tell.
pub(super) struct Answer {
    /// To people.
    pub told: Told,
    /// To programs: an object's members.
    pub json: Json,
}

/// See [`Answer`].
pub(super) enum Told {
    /// It was done.
    Nothing,
    /// Lines.
    Lines(String),
    /// Rows of as many words as there are heads.
    Table(Table),
}

/// See [`Told`].
pub(super) struct Table {
    pub heads: &'static [&'static str],
    pub rows: Vec<Vec<String>>,
    /// What is said when there are none.
    pub empty: &'static str,
}

impl Answer {
    /// As one broker's.
    pub fn print(self, verb: &str, format: Format) -> Result<Held, Failure> {
        match (format, self.told) {
            (Format::Json, _) => streams::out(format_args!("{:#}\n", with("hyoshi", head(verb), self.json)))?,
            (Format::Text, Told::Nothing) => {}
            (Format::Text, Told::Lines(lines)) => streams::out(lines)?,
            (Format::Text, Told::Table(table)) if table.rows.is_empty() => streams::out(table.empty)?,
            (Format::Text, Told::Table(table)) => streams::out(columns(table.heads, &table.rows))?,
        }
        Ok(Held::Yes)
    }
}

/// Several brokers' answers, each with the name of whose it is in the first column.
pub(super) fn beside(answers: Vec<(&str, Told)>) -> String {
    let width = answers.iter().map(|(host, _)| host.chars().count()).max().unwrap_or(0);
    let (mut text, mut heads, mut rows) = (String::new(), Vec::new(), Vec::new());
    for (host, told) in answers {
        match told {
            Told::Nothing => {}
            Told::Lines(lines) => {
                for line in lines.lines() {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{host:<width$}  {line}");
                }
            }
            Told::Table(table) => {
                heads = [&["HOST"], table.heads].concat();
                if table.rows.is_empty() {
                    rows.push(vec![host.to_owned(), "none".to_owned()]);
                }
                rows.extend(table.rows.into_iter().map(|row| [vec![host.to_owned()], row].concat()));
            }
        }
    }
    if !rows.is_empty() {
        text += &columns(&heads, &rows);
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

/// Words below each other.
fn columns(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads = heads.iter().map(|head| (*head).to_owned()).collect();
    let rows: Vec<&Vec<String>> = std::iter::once(&heads).chain(rows).collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row: &&Vec<String>| row.get(column)).map(|word| word.chars().count()).max()
    };
    let widths: Vec<_> = (0..heads.len()).map(|column| width(column).unwrap_or(0)).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 2]]) -> Told {
        let rows = rows.iter().map(|row| row.iter().map(|word| (*word).to_owned()).collect()).collect();
        Told::Table(Table { heads: &["TASK", "HOLDS"], rows, empty: "no tasks\n" })
    }

    #[test]
    fn several_answers_have_a_column_for_the_host() {
        let told = beside(vec![("yard", table(&[["player", "a third"], ["map", "nothing"]])), ("b", table(&[]))]);
        assert_eq!(told, "HOST  TASK    HOLDS\nyard  player  a third\nyard  map     nothing\nb     none\n");
        let lines = |text: &str| Told::Lines(text.to_owned());
        assert_eq!(beside(vec![("yard", lines("one\ntwo\n")), ("b", Told::Nothing)]), "yard  one\nyard  two\n");
    }
}
