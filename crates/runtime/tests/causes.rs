//! `hyoshi why` names the right culprit: causes of lateness that are provoked on the kernel, in runs of real bodies.
//! Causes that cannot be provoked (a hypervisor that uses the CPU, a late timer) are scripted in `hyoshi-replay`.
//!
//! In each run an ordinary thread spins on the lanes' CPU: it must never be blamed.

use crate::common;
#[path = "../../os/tests/common/cold.rs"]
mod cold;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cold::Cold;
use common::{Ran, missing, privileged, run_beside, undisturbed::undisturbed, work};
use hyoshi_model::{Span, System};
use hyoshi_os::{Spawn, SpawnedThread, SwitchVisibility, ThreadPolicy, allowed_cpus};
use hyoshi_replay::blame::{Blame, Interest, ResponseBreakdown, ResponsePart};
use hyoshi_runtime::{Node, SharedValue};
use hyoshi_trace::Wait;

/// The name, policy and repeated action of another thread.
type Other = (&'static str, ThreadPolicy, Box<dyn FnMut() + Send>);

fn other(name: &'static str, policy: ThreadPolicy, body: impl FnMut() + Send + 'static) -> Other {
    (name, policy, Box::new(body))
}

/// The breakdowns of an operation's jobs, and the names of other threads in the recording.
struct Explained {
    ran: Ran,
    accounts: Vec<ResponseBreakdown>,
}

/// The other threads; they end when this is dropped.
struct Others {
    over: Arc<AtomicBool>,
    threads: Vec<SpawnedThread<()>>,
}

impl Others {
    fn start(cpu: u32, others: Vec<Other>) -> Others {
        let over = Arc::new(AtomicBool::new(false));
        let start = |(name, policy, mut body): Other| {
            let over = over.clone();
            let again_and_again = move || {
                while !over.load(Ordering::Relaxed) {
                    body();
                }
            };
            let thread = Spawn::new(name).policy(policy).cpu(cpu).spawn(again_and_again).unwrap();
            thread.granted.refused.iter().for_each(missing);
            thread
        };
        let threads = others.into_iter().map(start).collect();
        Others { over, threads }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Runs one processor for a second while other threads run `meanwhile` on its CPU; `None` without privileges.
fn explained(text: &str, prepare: impl FnOnce(Node, &System) -> Node, mut meanwhile: Vec<Other>) -> Option<Explained> {
    let cpu = *allowed_cpus().last().unwrap();
    meanwhile.push(other("spinner", ThreadPolicy::Other, || work(Span::from_micros(100))));
    let text = format!("duration = \"1s\"\n[processor.main]\ncpu = {cpu}\nstrategy = \"DM\"\n{text}");
    let ran = run_beside(&text, |node, system| (prepare(node.watch(true), system), Others::start(cpu, meanwhile)));
    if !privileged(&ran) {
        return None;
    }
    if ran.visibility != SwitchVisibility::Everything {
        missing("every switch of a CPU");
        return None;
    }
    let plan = &ran.plan.processors[0];
    let mut law = Blame::new(&ran.system, plan, false, Interest::All);
    let accounts = ran.events.iter().filter_map(|(_, at, event)| law.event(*at, event)).collect();
    Some(Explained { ran, accounts })
}

impl Explained {
    fn is_thread(&self, kind: ResponsePart, name: &str) -> bool {
        matches!(kind, ResponsePart::Other(number) if self.ran.names.get(number as usize).is_some_and(|known| known == name))
    }

    /// Checks that at least three of four jobs, and at least five, lost most of their time to the expected cause, and
    /// that the spinning thread caused almost no delay.
    #[track_caller]
    fn blames(&self, operation: &str, expected: impl Fn(ResponsePart) -> bool) {
        let id = self.ran.id(operation);
        let accounts =
            self.accounts.iter().filter(|account| account.end.job.operation == id && !account.end.consumed.is_zero());
        let accounts: Vec<_> = accounts.collect();
        let right = accounts.iter().filter(|account| account.chief().is_some_and(|(kind, _)| expected(kind))).count();
        let why = || accounts.iter().map(|account| format!("{:?}\n", account.parts)).collect::<String>();
        println!("{operation}: {right} of {}", accounts.len());
        assert!(
            right >= 5 && right * 4 >= accounts.len() * 3,
            "{right} of {}, {:?}\n{}",
            accounts.len(),
            self.ran.names,
            why()
        );
        let total =
            |wanted: &dyn Fn(ResponsePart) -> bool| accounts.iter().map(|account| account.total(wanted)).sum::<Span>();
        let (right, spinner) = (total(&expected), total(&|kind| self.is_thread(kind, "spinner")));
        assert!(spinner * 10 <= right, "{spinner} beside {right}:\n{}", why());
    }
}

/// One operation with a body.
fn body(text: &str, body: impl FnMut() + Send + 'static) -> Option<Explained> {
    body_beside(text, body, vec![])
}

fn body_beside(text: &str, mut body: impl FnMut() + Send + 'static, meanwhile: Vec<Other>) -> Option<Explained> {
    explained(
        &format!("[operation.late]\nevery = \"50ms\"\n{text}"),
        |node, _| node.body("late", move |_| body()),
        meanwhile,
    )
}

#[test]
fn a_body_that_sleeps() {
    undisturbed(|| {
        let Some(seen) = body("wcet = \"1ms\"", || std::thread::sleep(Duration::from_millis(8))) else { return };
        seen.blames("late", |kind| kind == ResponsePart::Asleep(Some(Wait::Sleep)));
    });
}

#[test]
fn a_body_that_waits_for_a_lock_of_another_thread() {
    undisturbed(|| {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone();
        // It holds the lock most of the time, and for much longer than jobs run.
        let holder = other("holder", ThreadPolicy::Other, move || {
            let held = held.lock();
            std::thread::sleep(Duration::from_millis(30));
            drop(held);
            std::thread::sleep(Duration::from_millis(1));
        });
        let Some(seen) = body_beside("wcet = \"1ms\"", move || drop(lock.lock()), vec![holder]) else { return };
        seen.blames("late", |kind| kind == ResponsePart::Asleep(Some(Wait::Lock)));
    });
}

#[test]
fn a_body_that_waits_for_pages() {
    undisturbed(|| {
        let cold = Cold::new("pages", 4 << 20);
        let Some(seen) = body("wcet = \"20ms\"", move || assert_eq!(cold.sum_by_page_faults(), (4 << 20) / 512)) else {
            return;
        };
        seen.blames("late", |kind| kind == ResponsePart::Asleep(Some(Wait::Page)));
    });
}

#[test]
fn a_body_that_reads_from_the_disk() {
    undisturbed(|| {
        let cold = Cold::new("octets", 4 << 20);
        let mut octets = vec![0; 4 << 20];
        let read = move || cold.dropped().read_exact_at(&mut octets, 0).unwrap();
        let Some(seen) = body("wcet = \"20ms\"", read) else { return };
        seen.blames("late", |kind| kind == ResponsePart::Asleep(Some(Wait::Io)));
    });
}

#[test]
fn a_body_that_writes_to_the_disk() {
    undisturbed(|| {
        let cold = Cold::new("written", 4 << 10);
        let write = move || {
            cold.dropped().write_all(&[2; 4 << 10]).unwrap();
            cold.dropped().sync_all().unwrap();
        };
        let Some(seen) = body("wcet = \"20ms\"", write) else { return };
        seen.blames("late", |kind| kind == ResponsePart::Asleep(Some(Wait::Io)));
    });
}

#[test]
fn a_thread_above_the_lanes() {
    undisturbed(|| {
        let intruder = other("intruder", ThreadPolicy::Fifo(99), || {
            work(Span::from_millis(10));
            std::thread::sleep(Duration::from_millis(10));
        });
        let Some(seen) = body_beside("wcet = \"20ms\"", || work(Span::from_millis(15)), vec![intruder]) else { return };
        seen.blames("late", |kind| seen.is_thread(kind, "intruder"));
    });
}

#[test]
fn a_thread_above_the_lanes_does_not_lengthen_the_sleep_of_a_body() {
    undisturbed(|| {
        let (begins, begun) = std::sync::mpsc::channel();
        // It has the CPU when the body wakes up.
        let intruder = other("intruder", ThreadPolicy::Fifo(99), move || {
            if begun.recv_timeout(Duration::from_millis(100)).is_ok() {
                std::thread::sleep(Duration::from_millis(4));
                work(Span::from_millis(20));
            }
        });
        let sleep = move || {
            begins.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(8));
        };
        let Some(seen) = body_beside("wcet = \"1ms\"", sleep, vec![intruder]) else { return };
        let slept =
            |account: &&ResponseBreakdown| account.total(|kind| kind == ResponsePart::Asleep(Some(Wait::Sleep)));
        let longer = seen.accounts.iter().filter(|account| slept(account) > Span::from_millis(12)).count();
        let unknown = |account: &&ResponseBreakdown| {
            account.total(|kind| kind == ResponsePart::Unexplained) > Span::from_millis(10)
        };
        let (jobs, unknown) = (seen.accounts.len(), seen.accounts.iter().filter(unknown).count());
        assert!(
            longer * 4 <= jobs && unknown * 4 >= jobs * 3,
            "{longer} longer, {unknown} unknown of {:?}",
            seen.accounts
        );
    });
}

#[test]
fn a_body_that_runs_longer_than_declared() {
    undisturbed(|| {
        let Some(seen) = body("wcet = \"2ms\"", || work(Span::from_millis(10))) else { return };
        seen.blames("late", |kind| kind == ResponsePart::Overran);
    });
}

const TWO: &str = "
    [operation.low]
    every = \"100ms\"
    wcet = \"25ms\"
    USES
    [operation.high]
    every = \"100ms\"
    deadline = \"20ms\"
    phase = \"4ms\"
    wcet = \"2ms\"
    USES
";

#[test]
fn a_declared_resource() {
    undisturbed(|| {
        let text = format!("[resource.bus]{}", TWO.replace("USES", "uses = { bus = \"1ms\" }"));
        let prepare = |node: Node, system: &System| {
            let (low, high) =
                (SharedValue::new(system, "bus", ()).unwrap(), SharedValue::new(system, "bus", ()).unwrap());
            node.body("low", move |job| low.lock(job, |()| work(Span::from_millis(20))).unwrap())
                .body("high", move |job| high.lock(job, |()| work(Span::from_millis(1))).unwrap())
        };
        let Some(seen) = explained(&text, prepare, vec![]) else { return };
        let low = seen.ran.id("low");
        seen.blames("high", |kind| matches!(kind, ResponsePart::Resource { by: Some(by), .. } if by.operation == low));
    });
}

#[test]
fn a_predecessor_in_its_chain() {
    undisturbed(|| {
        let text = "
        [operation.first]
        every = \"50ms\"
        wcet = \"20ms\"
        [operation.late]
        after = { all = [\"first\"] }
        wcet = \"1ms\"
        deadline = { end_to_end = \"30ms\" }
    ";
        let prepare = |node: Node, _: &System| {
            node.body("first", |_| std::thread::sleep(Duration::from_millis(10)))
                .body("late", |_| work(Span::from_micros(500)))
        };
        let Some(seen) = explained(text, prepare, vec![]) else { return };
        seen.blames("late", |kind| kind == ResponsePart::Upstream);
        seen.blames("first", |kind| kind == ResponsePart::Asleep(Some(Wait::Sleep)));
    });
}

#[test]
fn the_cap_of_the_processor() {
    undisturbed(|| {
        let text = "
        cap = \"30%\"
        cap_window = \"20ms\"
        [operation.first]
        every = \"100ms\"
        wcet = \"10ms\"
        deadline = \"50ms\"
        [operation.late]
        every = \"100ms\"
        phase = \"7ms\"
        wcet = \"5ms\"
    ";
        // The first job needs a second window, or a fourth on a machine that is three times slower; then the other one
        // runs.
        let prepare = |node: Node, _: &System| {
            node.body("first", |_| work(Span::from_millis(7))).body("late", |_| work(Span::from_millis(1)))
        };
        let Some(seen) = explained(text, prepare, vec![]) else { return };
        seen.blames("late", |kind| matches!(kind, ResponsePart::Cap { .. }));
    });
}
