//! The files that were read, and places in them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A range of a file's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceSpan {
    /// The index in [`Sources`]; 0 is the requested file.
    pub file: u32,
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl SourceSpan {
    /// From the start of this to the end of the other; only this if they are in two files.
    pub(crate) fn to(self, other: SourceSpan) -> SourceSpan {
        if self.file == other.file && other.end >= self.start { SourceSpan { end: other.end, ..self } } else { self }
    }
}

/// A place in readable form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePosition {
    /// The file, as it was named or found.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

/// Every file that was read, the requested one first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    files: Vec<File>,
}

/// A text without line splices, and the positions after which bytes were removed, with their number so far.
type Joined = (Arc<str>, Vec<(u32, u32)>);

#[derive(Clone, Debug, PartialEq)]
struct File {
    name: String,
    path: Option<PathBuf>,
    /// As in the file.
    original: Arc<str>,
    /// Without line splices, if there are any.
    joined: Option<Joined>,
    /// The starts of the original's lines.
    starts: Vec<u32>,
}

impl Sources {
    /// The files that were read, for a build to watch; texts without a file are omitted.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().filter_map(|file| file.path.as_deref())
    }

    /// Adds a file; its length was checked. Octets that are not UTF-8 are read as ISO 8859-1, the standard's set.
    pub(crate) fn add(&mut self, name: String, path: Option<PathBuf>, octets: Vec<u8>) -> u32 {
        let original = match String::from_utf8(octets) {
            Ok(text) => text,
            Err(not) => not.into_bytes().into_iter().map(char::from).collect(),
        };
        let starts = std::iter::once(0).chain(original.match_indices('\n').map(|(at, _)| at as u32 + 1)).collect();
        let joined = join_lines(&original);
        self.files.push(File { name, path, original: original.into(), joined, starts });
        self.files.len() as u32 - 1
    }

    pub(crate) fn find(&self, path: &Path) -> Option<u32> {
        self.files.iter().position(|file| file.path.as_deref() == Some(path)).map(|index| index as u32)
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn name(&self, file: u32) -> &str {
        &self.files[file as usize].name
    }

    pub(crate) fn path(&self, file: u32) -> Option<&Path> {
        self.files[file as usize].path.as_deref()
    }

    /// The text of a file as the lexer sees it, without line splices.
    pub(crate) fn whole(&self, file: u32) -> &Arc<str> {
        let file = &self.files[file as usize];
        file.joined.as_ref().map_or(&file.original, |(text, _)| text)
    }

    /// The text at a place.
    pub fn text(&self, at: SourceSpan) -> &str {
        self.whole(at.file).get(at.start as usize..at.end as usize).unwrap_or("")
    }

    /// The start of a place, in readable form.
    pub fn place(&self, at: SourceSpan) -> SourcePosition {
        let file = &self.files[at.file as usize];
        let start = file.original_offset(at.start, false);
        let line = file.line_of(start);
        let column = file.original[file.starts[line] as usize..start].chars().count() + 1;
        SourcePosition { file: file.name.clone(), line: line + 1, column }
    }

    /// The line (from 0) of a byte of the lexer's text.
    pub(crate) fn line(&self, file: u32, byte: u32) -> usize {
        let file = &self.files[file as usize];
        file.line_of(file.original_offset(byte, false))
    }

    /// Its name, the lines, and the part of the text on the first of them: for reports.
    pub(crate) fn excerpt(&self, at: SourceSpan) -> SourceLine<'_> {
        let file = &self.files[at.file as usize];
        let start = file.original_offset(at.start, false);
        let end = file.original_offset(at.end, true).max(start);
        let line = file.line_of(start);
        let from = file.starts[line] as usize;
        let to = file.starts.get(line + 1).map_or(file.original.len(), |next| *next as usize);
        let whole = from + file.original[from..to].trim_end_matches(['\n', '\r']).len();
        // A text over several lines is marked only on its first.
        SourceLine {
            file: at.file,
            name: &file.name,
            text: &file.original,
            line,
            whole: from..whole,
            marked: start.min(whole)..end.clamp(start.min(whole), whole),
        }
    }
}

/// One line of a file and its marked part.
pub(crate) struct SourceLine<'a> {
    pub file: u32,
    pub name: &'a str,
    /// The whole file.
    pub text: &'a str,
    /// From 0.
    pub line: usize,
    pub whole: std::ops::Range<usize>,
    pub marked: std::ops::Range<usize>,
}

impl File {
    /// The byte of the original for one of the joined text; an end stays before a splice that follows it.
    fn original_offset(&self, byte: u32, end: bool) -> usize {
        let text = &self.original;
        let left_out = match &self.joined {
            Some((_, splices)) => {
                let before = splices.partition_point(|(at, _)| if end { *at < byte } else { *at <= byte });
                before.checked_sub(1).map_or(0, |index| splices[index].1)
            }
            None => 0,
        };
        let mut byte = ((byte + left_out) as usize).min(text.len());
        while !text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }

    fn line_of(&self, original: usize) -> usize {
        self.starts.partition_point(|start| *start as usize <= original).saturating_sub(1)
    }
}

/// Removes every backslash before a line's end together with that end.
fn join_lines(text: &str) -> Option<Joined> {
    let (mut joined, mut splices, mut left_out) = (String::new(), Vec::new(), 0);
    let mut rest = text;
    while let Some(at) = rest.find("\\\n").into_iter().chain(rest.find("\\\r\n")).min() {
        let length = if rest[at + 1..].starts_with('\n') { 2 } else { 3 };
        joined.push_str(&rest[..at]);
        left_out += length as u32;
        splices.push((joined.len() as u32, left_out));
        rest = &rest[at + length..];
    }
    if splices.is_empty() {
        return None;
    }
    joined.push_str(rest);
    Some((joined.into(), splices))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_after_spliced_lines_are_those_of_the_file() {
        let mut sources = Sources::default();
        let file = sources.add("a.idl".into(), None, b"ab\\\ncd\\\r\nef\ngh".to_vec());
        assert_eq!(&**sources.whole(file), "abcdef\ngh");
        let at = |start, end| SourceSpan { file, start, end };
        assert_eq!(sources.place(at(1, 2)), SourcePosition { file: "a.idl".into(), line: 1, column: 2 });
        assert_eq!(sources.place(at(2, 3)), SourcePosition { file: "a.idl".into(), line: 2, column: 1 });
        assert_eq!(sources.place(at(4, 6)), SourcePosition { file: "a.idl".into(), line: 3, column: 1 });
        assert_eq!(sources.place(at(8, 9)), SourcePosition { file: "a.idl".into(), line: 4, column: 2 });
        assert_eq!(sources.excerpt(at(0, 6)).marked, 0..3);
    }

    #[test]
    fn octets_that_are_not_utf_8_are_latin_1() {
        let mut sources = Sources::default();
        let file = sources.add("a.idl".into(), None, b"// caf\xe9".to_vec());
        assert_eq!(&**sources.whole(file), "// café");
    }
}
