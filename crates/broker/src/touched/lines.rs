//! The state file's form: one line a change, in text.
//!
//! ```text
//! hyoshi-touched 1 BOOT-ID                         another boot's file means nothing any more
//! thread PID START TID START CLASS RESET CPUS [AT] as it was before the first change, and the CPU of its window
//! moved PID START FROM                             the control group it was taken from
//! group PATH<tab>HOME                              a control group that was made, and where who is left in it goes
//! done TID START                                   put back, or ended
//! ```

use std::path::{Path, PathBuf};

use hyoshi_os::cpu::{cpu_list, parse_cpu_list};
use hyoshi_os::process::{Identity, boot_id};
use hyoshi_os::scheduling::{Affinity, Bandwidth, Class, Scheduling};

use super::Before;

/// A line, as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A thread as it was.
    Thread(Before),
    /// A process, and the control group that it was in.
    Moved(Identity, PathBuf),
    /// A control group, and where whoever is left in it goes.
    Group(PathBuf, PathBuf),
    /// A thread or process that is as it was.
    Done(Identity),
}

/// The lines of a file of this boot that are understood: the others are passed over, so that these are put back all the
/// same. A line that was cut off is none.
pub(super) fn read(text: &str) -> impl Iterator<Item = Line> {
    let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let ours = lines.next().is_some_and(|line| line == head().trim_end());
    lines.take_while(move |_| ours).filter_map(parse)
}

/// The first line.
pub(super) fn head() -> String {
    format!("hyoshi-touched 1 {}\n", boot_id())
}

pub(super) fn thread(before: &Before) -> String {
    let Before { process, thread, scheduling, affinity, window } = before;
    let class = match scheduling.class {
        Class::Fair(number) => format!("fair:{number}"),
        Class::Fifo(priority) => format!("fifo:{priority}"),
        Class::RoundRobin(priority) => format!("rr:{priority}"),
        Class::Deadline(Bandwidth { runtime, deadline, period, flags }) => {
            format!("deadline:{runtime}:{deadline}:{period}:{flags}")
        }
    };
    let reset = u8::from(scheduling.reset_on_fork);
    let cpus = cpu_list(&affinity.cpus().collect::<Vec<_>>());
    let [p, t] = [process, thread].map(|identity| format!("{} {}", identity.number, identity.start));
    let window = window.map_or(String::new(), |cpu| format!(" {cpu}"));
    format!("thread {p} {t} {class} {reset} {cpus}{window}\n")
}

pub(super) fn moved(process: Identity, from: &Path) -> String {
    format!("moved {} {} {}\n", process.number, process.start, from.display())
}

pub(super) fn group(group: &Path, home: &Path) -> String {
    format!("group {}\t{}\n", group.display(), home.display())
}

pub(super) fn done(whose: Identity) -> String {
    format!("done {} {}\n", whose.number, whose.start)
}

fn parse(line: &str) -> Option<Line> {
    let (kind, rest) = line.split_once(' ')?;
    match kind {
        "thread" => parse_thread(rest).map(Line::Thread),
        "moved" => parse_moved(rest).map(|(process, from)| Line::Moved(process, from)),
        "group" => rest.split_once('\t').map(|(group, home)| Line::Group(group.into(), home.into())),
        "done" => parse_identity(rest).map(Line::Done),
        _ => None,
    }
}

fn parse_thread(rest: &str) -> Option<Before> {
    let fields: Vec<&str> = rest.split(' ').collect();
    let (fields, window) = match fields.split_at_checked(7)? {
        (fields, []) => (fields, None),
        (fields, [window]) => (fields, Some(window.parse().ok()?)),
        _ => return None,
    };
    let [pid, start, tid, tid_start, class, reset, cpus] = *fields else { return None };
    let identity =
        |number: &str, start: &str| Some(Identity { number: number.parse().ok()?, start: start.parse().ok()? });
    let (kind, numbers) = class.split_once(':')?;
    let class = match kind {
        "fair" => Class::Fair(numbers.parse().ok()?),
        "fifo" => Class::Fifo(numbers.parse().ok()?),
        "rr" => Class::RoundRobin(numbers.parse().ok()?),
        "deadline" => {
            let numbers: Vec<u64> = numbers.split(':').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            let [runtime, deadline, period, flags] = numbers[..] else { return None };
            Class::Deadline(Bandwidth { runtime, deadline, period, flags })
        }
        _ => return None,
    };
    let cpus = parse_cpu_list(cpus).filter(|cpus| !cpus.is_empty())?;
    Some(Before {
        process: identity(pid, start)?,
        thread: identity(tid, tid_start)?,
        scheduling: Scheduling { class, reset_on_fork: reset == "1" },
        affinity: Affinity::to(cpus),
        window,
    })
}

fn parse_moved(rest: &str) -> Option<(Identity, PathBuf)> {
    let mut fields = rest.splitn(3, ' ');
    let (number, start) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((Identity { number, start }, fields.next()?.into()))
}

fn parse_identity(rest: &str) -> Option<Identity> {
    let (number, start) = rest.split_once(' ')?;
    Some(Identity { number: number.parse().ok()?, start: start.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_as_they_were_written() {
        let process = Identity { number: 7, start: 11 };
        let affinity = Affinity::to([0, 2, 3]);
        let bandwidth = Bandwidth { runtime: 1, deadline: 2, period: 3, flags: 4 };
        let mut text = head();
        let mut written = Vec::new();
        for class in [Class::Fair(3), Class::Fifo(9), Class::RoundRobin(1), Class::Deadline(bandwidth)] {
            let scheduling = Scheduling { class, reset_on_fork: class == Class::Fair(3) };
            let window = (class == Class::Fair(3)).then_some(5);
            let before = Before { process, thread: Identity { number: 8, ..process }, scheduling, affinity, window };
            text += &thread(&before);
            written.push(Line::Thread(before));
        }
        let (from, home) = (PathBuf::from("/sys/fs/cgroup/with space"), PathBuf::from("/sys/fs/cgroup/a home"));
        text += &(moved(process, &from) + "of another version\n" + &group(&from, &home) + &done(process));
        written.extend([Line::Moved(process, from.clone()), Line::Group(from, home), Line::Done(process)]);
        assert_eq!(read(&text).collect::<Vec<_>>(), written);
        assert_eq!(read(text.trim_end()).collect::<Vec<_>>(), written[..written.len() - 1], "the last is cut off");
        assert_eq!(read(&text.replacen(&boot_id(), "another", 1)).next(), None);
    }
}
