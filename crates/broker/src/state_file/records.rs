//! The format of the state file: one line of text for each change.
//!
//! ```text
//! hyoshi-touched 2 BOOT-ID                             a file of another boot is obsolete
//! SUM thread PID START TID START CLASS RESET CPUS CPU  a thread before its first change; the CPU of its window, or -
//! SUM moved PID START FROM                             the previous control group of a process
//! SUM group PATH<tab>HOME                              a new control group, and where its remaining processes move to
//! SUM done TID START                                   restored, or ended
//! ```
//!
//! `SUM` is the CRC-32 of the boot id and the rest of the line, in 8 hexadecimal digits. Damage loses only the damaged
//! lines, and lines of another boot do not count. Version 1 had no sums and no window CPU; it is still readable. Lines
//! that no broker can have written count as damaged: a broker changes only ordinary threads, makes groups named
//! `hyoshi-PID-NUMBER`, and uses no group outside the mounted hierarchies.

use std::path::{Path, PathBuf};

use hyoshi_os::cpu::{cpu_list, parse_cpu_list};
use hyoshi_os::process::{ProcessIdentity, boot_id};
use hyoshi_os::scheduling::{Affinity, Scheduling, SchedulingClass};

use super::SavedThread;

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StateRecord {
    /// A thread before its change.
    Thread(SavedThread),
    /// A process and its previous control group.
    Moved(ProcessIdentity, PathBuf),
    /// A control group, and where its remaining processes move to.
    Group(PathBuf, PathBuf),
    /// A restored thread or process.
    Done(ProcessIdentity),
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParsedRecords {
    /// The readable lines, in their order.
    pub lines: Vec<StateRecord>,
    /// Number of unreadable lines.
    pub unreadable: usize,
}

const NAME: &str = "hyoshi-touched";
const VERSION: u32 = 2;

/// Parses a file of this boot; `is_group` decides whether a path can be a control group. A truncated last line is
/// ignored, because its change was never made. The error is an unknown version.
pub(super) fn read(text: &str, is_group: &dyn Fn(&Path) -> bool) -> Result<ParsedRecords, u32> {
    let boot = boot_id();
    let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", text));
    let mut lines = whole.split('\n');
    let first = lines.next().unwrap_or_default();
    let head = parse_head(first);
    let parsed = |sums: bool, lines: &mut dyn Iterator<Item = &str>| {
        let mut parsed_records = ParsedRecords::default();
        for line in lines {
            let line = if sums { checked(line, &boot) } else { Some(line) };
            match line.and_then(|line| parse(line, is_group)) {
                Some(line) => parsed_records.lines.push(line),
                None => parsed_records.unreadable += 1,
            }
        }
        parsed_records.unreadable += usize::from(!is_cut_off(rest));
        parsed_records
    };
    let is_whole = head == Some((VERSION, &boot));
    let mut parsed_records = parsed(true, &mut lines.clone());
    // Correct sums outrank the first line, which may be damaged.
    match head {
        _ if !parsed_records.lines.is_empty() || is_whole => parsed_records.unreadable += usize::from(!is_whole),
        Some((1, of)) if of == boot => return Ok(parsed(false, &mut lines)),
        Some((version, of)) if of == boot => return Err(version),
        // Of another boot, or truncated in its first line.
        Some(_) => return Ok(ParsedRecords::default()),
        None if whole.is_empty() && is_cut_off(rest) => {}
        None => parsed_records.unreadable += 1,
    }
    Ok(parsed_records)
}

/// The version and the boot id. An id has 36 digits and hyphens (random(4)), or is `unknown` on a kernel without one.
fn parse_head(line: &str) -> Option<(u32, &str)> {
    let (version, boot) = line.strip_prefix(NAME)?.strip_prefix(' ')?.split_once(' ')?;
    let is_id = boot == "unknown" || boot.len() == 36 && boot.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_id.then_some((version.parse().ok()?, boot))
}

/// Whether it can be the start of a truncated line.
fn is_cut_off(rest: &str) -> bool {
    !rest.contains(|c: char| c.is_control() && c != '\t' || c == char::REPLACEMENT_CHARACTER)
}

/// The first line.
pub(super) fn head() -> String {
    format!("{NAME} {VERSION} {}\n", boot_id())
}

fn sum(line: &str, boot: &str) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(boot.as_bytes());
    sum.update(line.as_bytes());
    sum.finalize()
}

fn summed(line: &str) -> String {
    format!("{:08x} {line}\n", sum(line, &boot_id()))
}

/// A line without its sum, if the sum is correct.
fn checked<'a>(line: &'a str, boot: &str) -> Option<&'a str> {
    let (recorded_sum, line) = line.split_once(' ')?;
    // Compared as text: a parser of numbers also accepts other digits and a sign.
    (recorded_sum == format!("{:08x}", sum(line, boot))).then_some(line)
}

pub(super) fn thread(before: &SavedThread) -> String {
    let SavedThread { process, thread, scheduling, affinity, window } = before;
    let class = match scheduling.class {
        SchedulingClass::Fair(number) => number,
        // Only ordinary threads are changed.
        SchedulingClass::Fifo(_) | SchedulingClass::RoundRobin(_) | SchedulingClass::Deadline(_) => 0,
    };
    let reset = u8::from(scheduling.reset_on_fork);
    let cpus = cpu_list(&affinity.cpus().collect::<Vec<_>>());
    let [p, t] = [process, thread].map(|identity| format!("{} {}", identity.number, identity.start));
    let window = window.map_or("-".to_owned(), |cpu| cpu.to_string());
    summed(&format!("thread {p} {t} fair:{class} {reset} {cpus} {window}"))
}

pub(super) fn moved(process: ProcessIdentity, from: &Path) -> String {
    summed(&format!("moved {} {} {}", process.number, process.start, from.display()))
}

pub(super) fn group(group: &Path, home: &Path) -> String {
    summed(&format!("group {}\t{}", group.display(), home.display()))
}

pub(super) fn done(identity: ProcessIdentity) -> String {
    summed(&format!("done {} {}", identity.number, identity.start))
}

fn parse(line: &str, is_group: &dyn Fn(&Path) -> bool) -> Option<StateRecord> {
    let (kind, rest) = line.split_once(' ')?;
    let place = |path: &str| Some(PathBuf::from(path)).filter(|path| is_group(path));
    match kind {
        "thread" => parse_thread(rest).map(StateRecord::Thread),
        "moved" => {
            let (number, rest) = rest.split_once(' ')?;
            let (start, from) = rest.split_once(' ')?;
            Some(StateRecord::Moved(identity(number, start)?, place(from)?))
        }
        "group" => {
            let (group, home) = rest.split_once('\t')?;
            let group = place(group).filter(|group| is_own_group(group))?;
            Some(StateRecord::Group(group, place(home)?))
        }
        "done" => rest.split_once(' ').and_then(|(number, start)| identity(number, start)).map(StateRecord::Done),
        _ => None,
    }
}

fn parse_thread(rest: &str) -> Option<SavedThread> {
    let fields: Vec<&str> = rest.split(' ').collect();
    let (fields, window) = match fields.split_at_checked(7)? {
        (fields, [] | ["-"]) => (fields, None),
        (fields, [window]) => (fields, Some(parse_cpu_list(window).filter(|cpus| cpus.len() == 1)?[0])),
        _ => return None,
    };
    let [pid, start, tid, tid_start, class, reset, cpus] = *fields else { return None };
    let class: u32 = class.strip_prefix("fair:")?.parse().ok()?;
    let reset_on_fork = match reset {
        "0" => false,
        "1" => true,
        _ => return None,
    };
    let cpus = parse_cpu_list(cpus).filter(|cpus| !cpus.is_empty())?;
    Some(SavedThread {
        process: identity(pid, start)?,
        thread: identity(tid, tid_start)?,
        scheduling: Scheduling {
            class: Some(SchedulingClass::Fair(class)).filter(SchedulingClass::is_known)?,
            reset_on_fork,
        },
        affinity: Affinity::to(cpus),
        window,
    })
}

fn identity(number: &str, start: &str) -> Option<ProcessIdentity> {
    Some(ProcessIdentity { number: number.parse().ok()?, start: start.parse().ok()? }).filter(|who| who.is_possible())
}

/// `hyoshi-PID-NUMBER`: no other group is removed.
fn is_own_group(group: &Path) -> bool {
    let numbers = group.file_name().and_then(|name| name.to_str()?.strip_prefix("hyoshi-")?.split_once('-'));
    numbers.is_some_and(|(pid, number)| pid.parse::<u32>().is_ok() && number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_group(path: &Path) -> bool {
        path.starts_with("/groups")
    }

    fn parsed_records(text: &str) -> ParsedRecords {
        read(text, &any_group).unwrap()
    }

    const PROCESS: ProcessIdentity = ProcessIdentity { number: 7, start: 11 };

    fn before(class: u32, window: Option<u32>) -> SavedThread {
        let scheduling = Scheduling { class: SchedulingClass::Fair(class), reset_on_fork: class == 3 };
        let thread = ProcessIdentity { number: 8, ..PROCESS };
        SavedThread { process: PROCESS, thread, scheduling, affinity: Affinity::to([0, 2, 3]), window }
    }

    /// A file and its records.
    fn all() -> (String, Vec<StateRecord>) {
        let (from, home) = (PathBuf::from("/groups/with space"), PathBuf::from("/groups/a home"));
        let own = PathBuf::from("/groups/hyoshi-7-0");
        let threads = [before(0, None), before(3, Some(5)), before(5, Some(0))];
        let mut text = head();
        threads.iter().for_each(|before| text += &thread(before));
        text += &(moved(PROCESS, &from) + &group(&own, &home) + &done(PROCESS));
        let lines = threads.map(StateRecord::Thread).into_iter();
        let more = [StateRecord::Moved(PROCESS, from), StateRecord::Group(own, home), StateRecord::Done(PROCESS)];
        (text, lines.chain(more).collect())
    }

    #[test]
    fn lines_read_as_they_were_written_and_of_another_boot_not_at_all() {
        let (text, lines) = all();
        assert_eq!(parsed_records(&text), ParsedRecords { lines: lines.clone(), unreadable: 0 });
        let cut = parsed_records(text.trim_end());
        assert_eq!(
            cut,
            ParsedRecords { lines: lines[..lines.len() - 1].to_vec(), unreadable: 0 },
            "the last is cut off"
        );
        let other = "00000000-0000-0000-0000-000000000000";
        let boot = boot_id();
        let mut before = text.replacen(&boot, other, 1);
        assert_eq!(parsed_records(&before).lines, lines, "the sums are this boot's");
        for line in text.lines().skip(1) {
            let rest = line.split_once(' ').unwrap().1;
            before = before.replacen(line, &format!("{:08x} {rest}", sum(rest, other)), 1);
        }
        assert_eq!(parsed_records(&before), ParsedRecords::default());
        assert_eq!(parsed_records(""), ParsedRecords::default());
    }

    #[test]
    fn the_first_version_is_read_and_a_later_one_is_named() {
        let text = format!(
            "hyoshi-touched 1 {}\nthread 7 11 8 11 fair:0 0 0,2-3\nthread 7 11 8 11 fair:5 0 0,2-3 0\ndone 7 11\nnonsense\n",
            boot_id()
        );
        let lines = vec![
            StateRecord::Thread(before(0, None)),
            StateRecord::Thread(before(5, Some(0))),
            StateRecord::Done(PROCESS),
        ];
        assert_eq!(parsed_records(&text), ParsedRecords { lines, unreadable: 1 });
        assert_eq!(read(&text.replacen(" 1 ", " 3 ", 1), &any_group), Err(3));
    }

    #[test]
    fn what_no_broker_has_written_is_unreadable_though_its_sum_is_right() {
        for forged in [
            "thread 7 11 8 11 fifo:99 0 0 0",
            "thread 7 11 8 11 fair:1 0 0 0",
            "thread 7 11 8 11 fair:0 2 0 0",
            "thread 0 11 8 11 fair:0 0 0 0",
            "thread 7 11 4294967295 11 fair:0 0 0 0",
            "thread 7 18446744073709551615 8 11 fair:0 0 0 0",
            "thread 7 11 8 11 fair:0 0 0 99999",
            "thread 7 11 8 11 fair:0 0 - 0",
            "moved 7 11 /etc",
            "moved 7 11 relative",
            "group /groups/system.slice/sshd.service\t/groups",
            "group /elsewhere/hyoshi-1-0\t/groups",
            "group /groups/hyoshi-1-0\t/elsewhere",
            "group /groups/hyoshi-x-0\t/groups",
            "done 7",
            "done 0 11",
            "whatever",
        ] {
            let found = parsed_records(&(head() + &summed(forged)));
            assert_eq!(found, ParsedRecords { lines: vec![], unreadable: 1 }, "{forged}");
        }
    }

    proptest! {
        #[test]
        fn damage_loses_the_lines_that_it_is_in_and_is_counted(at in 0..500usize, octet: u8) {
            let (text, lines) = all();
            let mut octets = text.clone().into_bytes();
            let at = at % octets.len();
            let same = octets[at] == octet;
            octets[at] = octet;
            let damaged = parsed_records(&String::from_utf8_lossy(&octets));
            // A missing or additional line end damages two lines.
            let lost = lines.len() - damaged.lines.len();
            prop_assert!(lost <= 2 && damaged.lines.iter().all(|line| lines.contains(line)), "{damaged:?}");
            let cut_off = at == text.len() - 1;
            prop_assert_eq!(damaged.unreadable > 0, !(same || cut_off && is_cut_off(&String::from_utf8_lossy(&octets[at..]))));
        }

        #[test]
        fn nothing_that_is_read_does_harm(octets in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = String::from_utf8_lossy(&octets).into_owned();
            let found = read(&(head() + &text + "\n"), &any_group).unwrap();
            prop_assert_eq!(found.lines, vec![]);
        }
    }
}
