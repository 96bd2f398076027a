//! What was changed, by whom, and whether it was allowed: a line of JSON each.
//!
//! Written as [`Lines`] are: a change waits for no disk. Of what somebody says it has the first [`MOST`] octets: nobody pushes
//! others' changes out of the log with long words.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::access::Caller;
use crate::lines::Lines;

/// Octets of a task's name, of what it is changed to, and of why not.
pub const MOST: usize = 256;

/// Where changes are told.
#[derive(Debug)]
pub struct Audit {
    lines: Option<Lines>,
}

/// A change, or an attempt.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Milliseconds since 1970, UTC.
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Whose certificate it was, over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<&'a str>,
    change: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    to: &'a str,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
}

impl Audit {
    /// Tells nobody.
    pub fn none() -> Audit {
        Audit { lines: None }
    }

    /// Appends to a file, which only the broker's user may read.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn to(path: &Path) -> io::Result<Audit> {
        Ok(Audit { lines: Some(Lines::to(path)?) })
    }

    /// Tells of a change.
    pub fn tell(&self, caller: &Caller, change: &str, task: Option<&str>, to: &str, refused: Option<&str>) {
        let Some(lines) = &self.lines else { return };
        let (uid, pid, certificate) = match caller {
            Caller::Known(who) => (Some(who.uid), Some(who.pid), None),
            Caller::Certified(who) => (who.user, None, Some(who.name.as_str())),
            Caller::Broker | Caller::Unknown => (None, None, None),
        };
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (certificate, task, to) = (certificate.map(cut), task.map(cut), cut(to));
        let refused = refused.map(cut);
        let line = Line {
            at_ms,
            uid,
            pid,
            certificate: certificate.as_deref(),
            change,
            task: task.as_deref(),
            to: &to,
            refused: refused.as_deref(),
        };
        // Numbers and text: there is nothing in it that JSON does not have.
        lines.push(serde_json::to_string(&line).unwrap_or_default());
    }

    /// Why it is incomplete, if that has not been told yet.
    pub fn trouble(&self) -> Option<String> {
        self.lines.as_ref()?.trouble()
    }
}

/// As much of a text as the log has.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    match text.len() <= MOST {
        true => Cow::Borrowed(text),
        false => {
            let end = (0..=MOST - '…'.len_utf8()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            Cow::Owned(format!("{}…", &text[..end]))
        }
    }
}

/// Several things, as many as the log has room for.
pub(crate) fn listed(things: impl IntoIterator<Item = impl Display>) -> String {
    let mut told = String::new();
    for thing in things {
        if told.len() > MOST {
            break;
        }
        let comma = if told.is_empty() { "" } else { ", " };
        told.push_str(&format!("{comma}{thing}"));
    }
    told
}

#[cfg(test)]
mod tests {
    use hyoshi_os::Credentials;

    use super::*;

    fn ann() -> Caller {
        Caller::Known(Credentials { pid: 7, uid: 1000, gid: 1000, groups: vec![] })
    }

    #[test]
    fn a_line_says_who_did_what_and_hostile_words_stay_within_it() {
        let place = std::env::temp_dir().join(format!("hyoshi-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir(&place).unwrap();
        let path = place.join("log");
        let audit = Audit::to(&path).unwrap();
        audit.tell(&ann(), "importance", Some("player"), "9", None);
        audit.tell(&ann(), "join", Some("x\n{\"uid\":0}"), "", Some("no such \"thing\""));
        drop(audit);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(
            (&lines[0]["uid"], &lines[0]["change"], &lines[0]["to"]),
            (&1000.into(), &"importance".into(), &"9".into())
        );
        assert!(lines[0].get("refused").is_none());
        assert_eq!(lines[1]["task"], "x\n{\"uid\":0}");
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn of_long_words_the_log_has_the_beginning() {
        for letter in ["x", "ß", "€", "𝄞"] {
            for length in 0..2 * MOST {
                let (text, short) = (letter.repeat(length), letter.repeat(length.min(MOST / letter.len())));
                let cut = cut(&text);
                assert!(cut.len() <= MOST, "{length} {letter}");
                match text.len() <= MOST {
                    true => assert_eq!(cut, short),
                    false => assert!(short.starts_with(cut.strip_suffix('…').unwrap())),
                }
            }
        }
        assert_eq!(listed(["a", "b"]), "a, b");
        assert!(listed(std::iter::repeat("0123456789")).len() < MOST + 20);
        let place = std::env::temp_dir().join(format!("hyoshi-audit-long-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join("log");
        let audit = Audit::to(&path).unwrap();
        let long = "\u{1}".repeat(1 << 20);
        audit.tell(&ann(), "join", Some(&long), &long, Some(&long));
        drop(audit);
        // An octet is six in JSON at most.
        assert!(std::fs::metadata(&path).unwrap().len() < 3 * 6 * MOST as u64 + 200);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
