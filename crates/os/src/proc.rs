//! A process or thread in one line of /proc (proc_pid_stat(5)), and its CPU time (the kernel's sched-stats.rst).

use std::fs;
use std::io;

use hyoshi_model::{Span, printable};

/// The line `stat`, as far as it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The program's name, printable.
    pub name: String,
    /// `Z` for a zombie, or `X` for a moment.
    pub state: u8,
    pub parent: u32,
    pub session: u32,
    pub flags: u64,
    pub start: u64,
    pub threads: usize,
    /// The priority of a thread at SCHED_FIFO or SCHED_RR.
    pub real_time: Option<u8>,
}

impl Stat {
    /// From the folder in /proc of a process or thread; `None` if the line has an unknown form.
    pub fn read(folder: &str) -> io::Result<Option<Self>> {
        Ok(Stat::parse(&line(folder)?))
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    fn parse(line: &str) -> Option<Self> {
        let (name, rest) = name_and_rest(line)?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let state = *fields.first()?.as_bytes().first()?;
        let (parent, session) = (number(4)? as u32, number(6)? as u32);
        let threads = number(20)? as usize;
        let (priority, policy) = (number(40).unwrap_or(0), number(41).unwrap_or(0));
        // SCHED_FIFO is 1, SCHED_RR is 2 (include/uapi/linux/sched.h).
        let real_time = u8::try_from(priority).ok().filter(|priority| matches!(policy, 1 | 2) && *priority > 0);
        let (flags, start) = (number(9)?, number(22)?);
        Some(Stat { name: printable(name), state, parent, session, flags, start, threads, real_time })
    }
}

/// Whether it is ready to run, or runs; `None` after it has ended.
pub(crate) fn wants_to_run(folder: &str) -> Option<bool> {
    let line = line(folder).ok()?;
    name_and_rest(&line).map(|(_, rest)| rest.starts_with('R'))
}

/// How long it has run, as of the kernel's last tick or, if it has stopped, exactly; `None` after it has ended, or if
/// the kernel does not report it (CONFIG_SCHED_INFO). 2.2 us.
pub(crate) fn ran(folder: &str) -> Option<Span> {
    let text = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok().map(Span::from_nanos)
}

/// How long it has waited for a CPU although it could run; `None` as above.
pub(crate) fn waited(folder: &str) -> Option<Span> {
    let text = fs::read_to_string(format!("{folder}/schedstat")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse().ok().map(Span::from_nanos)
}

fn line(folder: &str) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(format!("{folder}/stat"))?).into_owned())
}

/// `pid (name) state ppid ...`; the name may contain spaces and parentheses, so the last one ends it.
fn name_and_rest(line: &str) -> Option<(&str, &str)> {
    let (head, rest) = line.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    Some((name, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_form_do_not_move_the_fields() {
        let line = "7 (a) (b c) S 3 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4711 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent, stat.flags, stat.start), ("a) (b c", 3, 4_194_560, 4711));
        assert_eq!(stat.session, 7);
        let with = |policy: u8| format!("{line} {} 55 {policy} 0", (24..40).map(|_| "0").collect::<Vec<_>>().join(" "));
        let [fifo, round_robin, batch] = [1, 2, 3].map(|policy| Stat::parse(&with(policy)).unwrap().real_time);
        assert_eq!((stat.real_time, fifo, round_robin, batch), (None, Some(55), Some(55), None));
        assert_eq!(Stat::parse("7 (x) S 3"), None);
        assert_eq!(Stat::parse(""), None);
    }
}
