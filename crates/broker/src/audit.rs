//! The audit log: one JSON line for each change or refused change.
//!
//! A [`LogWriter`] writes the lines, so no change waits for a disk. Each text is cut to [`MOST`] octets, and each user
//! has a budget of lines, one for changes and one for refusals, so that no user can push other lines out of the log.
//! The user's next line counts the dropped ones.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use hyoshi_model::steers_terminal;
use serde::Serialize;

use hyoshi_control::Rate;
use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, PiMutex};

use crate::access::{Access, Caller};
use crate::log_writer::LogWriter;

/// Longest name of a task, new value and reason, in octets.
pub const MOST: usize = 256;

/// The log.
#[derive(Debug)]
pub struct Audit {
    lines: Option<LogWriter>,
    /// Callers that have no budget.
    access: Option<Access>,
    clock: MonotonicClock,
    budgets: PiMutex<BTreeMap<Option<u32>, LineBudget>>,
}

/// Lines for changes: 128 at once, then one a second.
const DONE: (Span, u32) = (Span::from_secs(1), 128);
/// Lines for refusals: 32 at once, then one in ten seconds.
const REFUSED: (Span, u32) = (Span::from_secs(10), 32);
/// Users with budgets of their own; all further users share one.
const USERS: usize = 1_024;

#[derive(Debug)]
struct LineBudget {
    done: Rate,
    refused: Rate,
    dropped: u64,
}

impl LineBudget {
    fn new() -> LineBudget {
        LineBudget { done: Rate::new(DONE.0, DONE.1), refused: Rate::new(REFUSED.0, REFUSED.1), dropped: 0 }
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.done.is_full(now) && self.refused.is_full(now) && self.dropped == 0
    }
}

/// A change or an attempt.
#[derive(Debug, Serialize)]
struct AuditRecord<'a> {
    /// Milliseconds since 1970, UTC.
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// The certificate over TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<&'a str>,
    change: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    to: &'a str,
    /// The reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a str>,
    /// Lines of this user that were dropped since the last written line.
    #[serde(skip_serializing_if = "is_none")]
    dropped: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Audit {
    /// Drops all lines.
    pub fn none() -> Audit {
        Audit::with(None)
    }

    /// Appends to a file that only the broker's user may read.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn to(path: &Path) -> io::Result<Audit> {
        Ok(Audit::with(Some(LogWriter::to(path)?)))
    }

    fn with(lines: Option<LogWriter>) -> Audit {
        Audit { lines, access: None, clock: MonotonicClock::start(), budgets: PiMutex::default() }
    }

    /// Callers who may change all tasks have no budget.
    pub(crate) fn trust(&mut self, access: Access) {
        self.access = Some(access);
    }

    /// Whether the caller has budget for a line; returns the number of lines dropped before it.
    fn room(&self, caller: &Caller, refused: bool, now: Instant) -> Option<u64> {
        let free = match self.access {
            Some(access) => access.is_operator(caller),
            None => *caller == Caller::Broker,
        };
        if free {
            return Some(0);
        }
        let user = match caller {
            Caller::Known(who) => Some(who.uid),
            Caller::Certified(who) => who.user,
            Caller::Broker | Caller::Unknown => None,
        };
        let mut budgets = self.budgets.lock();
        if budgets.len() >= USERS && !budgets.contains_key(&user) {
            budgets.retain(|_, budget| !budget.is_idle(now));
        }
        let user = user.filter(|user| budgets.len() < USERS || budgets.contains_key(&Some(*user)));
        let budget = budgets.entry(user).or_insert_with(LineBudget::new);
        let rate = if refused { &mut budget.refused } else { &mut budget.done };
        if rate.take(now) {
            return Some(std::mem::take(&mut budget.dropped));
        }
        budget.dropped += 1;
        None
    }

    /// Writes a change.
    pub fn record(&self, caller: &Caller, change: &str, task: Option<&str>, to: &str, refused: Option<&str>) {
        let Some(lines) = &self.lines else { return };
        let Some(dropped) = self.room(caller, refused.is_some(), self.clock.now()) else { return };
        let (uid, pid, certificate) = match caller {
            Caller::Known(who) => (Some(who.uid), Some(who.pid), None),
            Caller::Certified(who) => (who.user, None, Some(who.name.as_str())),
            Caller::Broker | Caller::Unknown => (None, None, None),
        };
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (certificate, task, to) = (certificate.map(cut), task.map(cut), cut(to));
        let refused = refused.map(cut);
        let line = AuditRecord {
            at_ms,
            uid,
            pid,
            certificate: certificate.as_deref(),
            change,
            task: task.as_deref(),
            to: &to,
            refused: refused.as_deref(),
            dropped,
        };
        // Numbers and text always serialize.
        lines.push(plain(&serde_json::to_string(&line).unwrap_or_default()));
    }

    /// Why the log is incomplete, once for each failure.
    pub fn take_error(&self) -> Option<String> {
        self.lines.as_ref()?.take_error()
    }
}

/// Writes the numbers of dropped lines that no line has counted yet.
impl Drop for Audit {
    fn drop(&mut self) {
        self.count_dropped();
    }
}

impl Audit {
    /// Writes all queued lines and closes the log.
    pub(crate) fn end(&mut self) {
        self.count_dropped();
        self.lines = None;
    }

    /// Writes one line for each user with dropped lines.
    fn count_dropped(&self) {
        let Some(lines) = &self.lines else { return };
        for (uid, budget) in self.budgets.lock().iter_mut().filter(|(_, budget)| budget.dropped > 0) {
            let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
            let (pid, certificate, task, to, refused) = (None, None, None, "", None);
            let (uid, dropped) = (*uid, std::mem::take(&mut budget.dropped));
            let line = AuditRecord { at_ms, uid, pid, certificate, change: "dropped", task, to, refused, dropped };
            lines.push(plain(&serde_json::to_string(&line).unwrap_or_default()));
        }
    }
}

/// Escapes characters that JSON allows but that could control a terminal (C1, direction marks).
fn plain(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for char in json.chars() {
        match steers_terminal(char) {
            false => plain.push(char),
            true => plain.extend(char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    plain
}

/// Cuts a text to [`MOST`] octets.
pub(crate) fn cut(text: &str) -> Cow<'_, str> {
    match text.len() <= MOST {
        true => Cow::Borrowed(text),
        false => {
            let end = (0..=MOST - '…'.len_utf8()).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            Cow::Owned(format!("{}…", &text[..end]))
        }
    }
}

/// Joins as many items as the log accepts.
pub(crate) fn join_items(things: impl IntoIterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for thing in things {
        if text.len() > MOST {
            break;
        }
        let comma = if text.is_empty() { "" } else { ", " };
        text.push_str(&format!("{comma}{thing}"));
    }
    text
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
        audit.record(&ann(), "importance", Some("player"), "9", None);
        audit.record(&ann(), "join", Some("x\n{\"uid\":0}"), "", Some("no such \"thing\""));
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
    fn refusals_of_one_user_leave_the_lines_of_others_and_are_counted() {
        let folder = std::env::temp_dir().join(format!("hyoshi-audit-flood-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("log");
        let audit = Audit::to(&path).unwrap();
        let bob = Caller::Known(Credentials { pid: 8, uid: 1001, gid: 1001, groups: vec![] });
        for _ in 0..100_000 {
            audit.record(&ann(), "join", Some("x"), "", Some("task `x` already exists"));
        }
        audit.record(&ann(), "importance", Some("y"), "2", None);
        audit.record(&bob, "join", Some("z"), "", None);
        drop(audit);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |uid: u32| lines.iter().filter(move |line| line["uid"] == uid);
        assert!(of(1000).count() < 50, "{}", of(1000).count());
        let (refused, dropped) = (
            of(1000).filter(|line| line["refused"].is_string()).count() as u64,
            of(1000).filter_map(|line| line["dropped"].as_u64()).sum::<u64>(),
        );
        assert_eq!(refused + dropped, 100_000);
        assert!(of(1000).any(|line| line["change"] == "importance"), "what was done has a budget of its own");
        assert_eq!(of(1001).count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
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
        assert_eq!(join_items(["a", "b"]), "a, b");
        assert!(join_items(std::iter::repeat("0123456789")).len() < MOST + 20);
        let place = std::env::temp_dir().join(format!("hyoshi-audit-long-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let path = place.join("log");
        let audit = Audit::to(&path).unwrap();
        let long = "\u{1}".repeat(1 << 20);
        audit.record(&ann(), "join", Some(&long), &long, Some(&long));
        drop(audit);
        // JSON uses at most six octets for one.
        assert!(std::fs::metadata(&path).unwrap().len() < 3 * 6 * MOST as u64 + 200);
        std::fs::remove_dir_all(&place).unwrap();
    }
}
