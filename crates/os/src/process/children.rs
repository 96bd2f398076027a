//! The children of a process.

use std::cell::OnceCell;
use std::fs;
use std::io;

use super::{MOST_THREADS, Process, identity_of_thread, stat_of};

/// Children of processes, for several queries: if the kernel does not list them (CONFIG_PROC_CHILDREN), the parents of
/// all processes of the machine are read, once, for some 10 us each.
#[derive(Debug, Default)]
pub struct Children {
    by_parent: OnceCell<Vec<(u32, u32)>>,
}

impl Children {
    /// The processes that this one has started and that still have it as their parent, except for the calling process:
    /// a broker started from a task's shell is not part of the task.
    pub fn of(&self, process: &Process) -> Vec<u32> {
        let mut children = from_kernel(process).unwrap_or_else(|_| {
            let all = self.by_parent.get_or_init(by_parent).iter();
            all.filter(|(parent, _)| *parent == process.identity().number).map(|(_, child)| *child).collect()
        });
        children.retain(|child| *child != std::process::id());
        children
    }
}

/// The kernel's lists of the children of each of its threads.
fn from_kernel(process: &Process) -> io::Result<Vec<u32>> {
    let (mut threads, mut children) = (Vec::new(), Vec::new());
    process.threads(&mut threads);
    let pid = process.identity().number;
    for thread in threads {
        match fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok())),
            // This thread has ended since; another's missing list is the kernel's configuration.
            Err(_) if identity_of_thread(pid, thread).is_none() => {}
            Err(error) => return Err(error),
        }
        if children.len() >= MOST_THREADS {
            break;
        }
    }
    Ok(children)
}

/// Every process with its parent.
fn by_parent() -> Vec<(u32, u32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((stat_of(pid).ok()?.parent, pid))).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::super::end_group;
    use super::*;

    #[test]
    fn children_are_those_that_were_started() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 600 >/dev/null & echo $!; wait"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut shell = shell.process_group(0).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let sleep: u32 = line.trim().parse().unwrap();
        let (process, own) = (Process::open(shell.id()).unwrap(), Process::open(std::process::id()).unwrap());
        assert_eq!(Children::default().of(&process), [sleep]);
        assert!(Children::default().of(&own).contains(&shell.id()));
        let parent = Process::open(own.parent().unwrap()).unwrap();
        assert!(!Children::default().of(&parent).contains(&own.identity().number), "the caller is left out");
        let all = by_parent();
        assert!(all.contains(&(shell.id(), sleep)) && all.contains(&(std::process::id(), shell.id())));
        end_group(shell.id(), true).unwrap();
        shell.wait().unwrap();
    }
}
