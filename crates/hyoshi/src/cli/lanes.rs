//! Promises to this machine's CPU broker how much of each CPU a run's lanes use at most: the broker's windows run below
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::{Broker, LanePromise};
use hyoshi_control::file::promises_of_run;
use hyoshi_model::hard_cap::WINDOW;
use hyoshi_model::{ProcessorId, Share, Span, System};
use hyoshi_os::{Spawn, ThreadPolicy, priority};
use hyoshi_report::{NoteLevel, ReportNote};

use super::notes::note;

/// The promise is repeated this often, because a new broker does not know it.
const AGAIN: Duration = Duration::from_secs(2);
/// How long a run waits for the broker at its start and end: a stopped broker does not stop a run.
const PATIENCE: Duration = Duration::from_millis(500);

/// The promise of a run to the broker. Dropping it withdraws the promise.
#[derive(Default)]
pub(super) struct LanePromises {
    /// CPUs whose lanes the hard cap has paused: they use more than they declare.
    paused: Arc<Mutex<BTreeMap<u32, Span>>>,
    promise: Option<PromiseThread>,
    notes: Vec<ReportNote>,
}

/// The thread that calls the broker; only it waits for answers.
struct PromiseThread {
    /// Closed at the end of the lanes.
    over: Sender<()>,
    /// Closed after the broker knows of the end.
    answers: Receiver<PromiseAnswer>,
}

type PromiseAnswer = Result<(String, bool), BrokerClientError>;

impl LanePromises {
    /// Sends the promise to the broker at the socket, or at the default place. Waits a moment for the answer.
    pub fn send(system: &System, placed: &[(ProcessorId, u32)], socket: Option<&Path>) -> LanePromises {
        let promises = promises_of_run(system, placed);
        if promises.is_empty() || !above_windows() {
            return LanePromises::default();
        }
        let named = socket.is_some();
        let socket = socket.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let paused: Arc<Mutex<BTreeMap<u32, Span>>> = Arc::default();
        let beyond = paused.clone();
        let sender =
            PromiseSender { name: named_as(&system.name), what: wire(&promises), beyond, socket, client: None };
        let (over, is_over) = channel();
        let (sender_of_answer, answers) = channel();
        let thread =
            thread::Builder::new().name("lanes".into()).spawn(move || sender.send(&sender_of_answer, &is_over));
        let answer = match thread {
            Ok(_) => answers.recv_timeout(PATIENCE).ok(),
            Err(error) => {
                let notes = vec![not_counted(format_args!("no thread: {error}"))];
                return LanePromises { paused, promise: None, notes };
            }
        };
        let notes = match answer {
            Some(answer) => answer_note(answer, &promises, named).into_iter().collect(),
            None => {
                let late = format_args!("no answer within {} ms; the report is repeated", PATIENCE.as_millis());
                let remedy = "check the broker with `hyoshi broker show`".to_owned();
                vec![ReportNote { remedy: Some(remedy), ..not_counted(late) }]
            }
        };
        LanePromises { paused, promise: Some(PromiseThread { over, answers }), notes }
    }

    /// The hard cap has paused the lanes of a CPU: report the full hard cap to the broker from now on.
    pub fn paused(&self, cpu: u32, budget: Span) {
        self.paused.lock().unwrap_or_else(PoisonError::into_inner).insert(cpu, budget);
    }

    /// Withdraws the promise. Returns notes for the report.
    pub fn end(mut self) -> Vec<ReportNote> {
        std::mem::take(&mut self.notes)
    }
}

impl Drop for LanePromises {
    fn drop(&mut self) {
        if let Some(PromiseThread { over, answers }) = self.promise.take() {
            drop(over);
            // If the broker does not answer, the promise ends with this process.
            while answers.recv_timeout(PATIENCE).is_ok() {}
        }
    }
}

/// Whether this process may use real-time priorities: without them its lanes are not above windows.
fn above_windows() -> bool {
    let probe = Spawn::new("lanes").policy(ThreadPolicy::Fifo(priority::RELEASE)).spawn(|| ());
    probe.is_ok_and(|probe| {
        let granted = probe.granted.in_full();
        // The thread cannot panic.
        drop(probe.join());
        granted
    })
}

/// Calls the broker, if there is one.
struct PromiseSender {
    name: String,
    what: Vec<LanePromise>,
    beyond: Arc<Mutex<BTreeMap<u32, Span>>>,
    socket: Option<PathBuf>,
    client: Option<BrokerClient>,
}

impl PromiseSender {
    /// Repeats the promise until `over` is closed. Sends the first answer.
    fn send(mut self, first: &Sender<PromiseAnswer>, over: &Receiver<()>) {
        let answer = self.promise().and_then(|()| self.answer());
        let refused = matches!(answer, Err(BrokerClientError::Request(_)));
        // The receiver does not wait for a late answer.
        let _ = first.send(answer);
        if refused {
            return;
        }
        // A broker that starts later does not know the promise.
        while over.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
            drop(self.promise());
        }
        self.what.clear();
        self.beyond.lock().unwrap_or_else(PoisonError::into_inner).clear();
        drop(self.promise());
    }

    fn promise(&mut self) -> Result<(), BrokerClientError> {
        let sent = self.try_promise();
        if sent.as_ref().is_err_and(|error| !matches!(error, BrokerClientError::Request(_))) {
            self.client = None;
        }
        sent
    }

    fn try_promise(&mut self) -> Result<(), BrokerClientError> {
        let beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut what: Vec<LanePromise> =
            self.what.iter().filter(|promise| !beyond.contains_key(&promise.cpu)).cloned().collect();
        what.extend(beyond.into_iter().map(|(cpu, budget)| LanePromise {
            cpu,
            budget: budget.as_nanos(),
            period: WINDOW.as_nanos(),
            jitter: 0,
        }));
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(BrokerClient::connect(self.socket.as_deref())?),
        };
        Ok(client.broker().promise_lanes(&self.name, &what)?)
    }

    /// The broker's address, and whether it observes the promise.
    fn answer(&self) -> PromiseAnswer {
        let Some(client) = &self.client else { return Ok((String::new(), false)) };
        let (runs, own) = (client.broker().status()?.runs, std::process::id());
        Ok((client.place().to_owned(), runs.iter().any(|run| run.process == own && run.counted)))
    }
}

/// A note on the broker's answer; none if there is no broker and none was named.
fn answer_note(answer: PromiseAnswer, promises: &Promises, named: bool) -> Option<ReportNote> {
    Some(match answer {
        Ok((place, true)) => {
            let takes: Vec<String> =
                promises.iter().map(|(cpu, lanes)| format!("{} of CPU {cpu}", share(lanes))).collect();
            let text = format!("the broker at {place} leaves room for them: {}", takes.join(", "));
            note(NoteLevel::Info, "lanes", text)
        }
        Ok((place, false)) => {
            let text = format!("the broker at {place} leaves no room for them, because it does not reserve by windows");
            note(NoteLevel::Info, "lanes", text)
        }
        Err(BrokerClientError::NoBroker { .. }) if !named => return None,
        Err(error) => {
            let remedy = error.remedy();
            ReportNote { remedy: Some(remedy), ..not_counted(format_args!("{error}")) }
        }
    })
}

fn not_counted(why: fmt::Arguments<'_>) -> ReportNote {
    let text = format!("the broker leaves no room for them, so its windows may get less than reserved: {why}");
    note(NoteLevel::Info, "lanes", text)
}

type Promises = BTreeMap<u32, Vec<hyoshi_control::window::placement::CpuPromise>>;

fn wire(promises: &Promises) -> Vec<LanePromise> {
    let all = promises.iter().flat_map(|(cpu, lanes)| lanes.iter().map(|lane| (*cpu, lane)));
    let wire = all.map(|(cpu, lane)| LanePromise {
        cpu,
        budget: lane.budget.as_nanos(),
        period: lane.period.as_nanos(),
        jitter: lane.jitter.as_nanos(),
    });
    wire.collect()
}

fn share(lanes: &[hyoshi_control::window::placement::CpuPromise]) -> Share {
    lanes.iter().map(|lane| lane.share()).sum()
}

/// A name that the broker accepts.
fn named_as(name: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "run".to_owned() } else { name }
}
