//! Runs small systems on real threads. The tests check order and counts only: the machine is shared, so absolute times
//! are not reliable.
#![allow(dead_code)]

#[path = "../../../os/tests/common/privileges.rs"]
mod privileges;
#[path = "../../../os/tests/common/steal.rs"]
mod steal;
#[path = "../../../os/tests/common/undisturbed.rs"]
pub mod undisturbed;

pub use privileges::missing;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System, read};
use hyoshi_os::SwitchVisibility;
use hyoshi_runtime::{Finished, Node, RunNote, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, JobEnd, JobOutcome, TraceEvent};

/// One run at a time: two runs on one CPU would delay each other.
static ALONE: Mutex<()> = Mutex::new(());

/// The results of a run.
pub struct Ran {
    pub system: Arc<System>,
    pub plan: Arc<Plan>,
    pub events: Vec<(ProcessorId, Instant, TraceEvent)>,
    pub finished: Finished,
    /// The visibility of the first processor's CPU, and the names of other threads.
    pub visibility: SwitchVisibility,
    pub names: Vec<String>,
}

/// The system of a file's text.
pub fn system(text: &str) -> Arc<System> {
    let text = format!("name = \"test\"\n{text}");
    Arc::new(read(&text, "test.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

pub fn plan(system: &System) -> Arc<Plan> {
    Arc::new(Plan::new(system, &Strategies::built_in()).unwrap())
}

/// Runs a system with built-in work.
pub fn run(text: &str) -> Ran {
    run_with(text, |node, _| node)
}

/// Runs built-in work on one processor: `rest` is the rest of its table, and its operations.
pub fn run_on(strategy: &str, duration: &str, rest: &str) -> Ran {
    run(&format!("duration = \"{duration}\"\n[processor.main]\nstrategy = \"{strategy}\"\n{rest}"))
}

/// Runs a system with the node that `prepare` returns.
pub fn run_with(text: &str, prepare: impl FnOnce(Node, &System) -> Node) -> Ran {
    run_beside(text, |node, system| (prepare(node, system), ()))
}

/// The same beside something that `prepare` starts and that ends with the run.
pub fn run_beside<T>(text: &str, prepare: impl FnOnce(Node, &System) -> (Node, T)) -> Ran {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    let system = system(text);
    let plan = plan(&system);
    let (node, _beside) = prepare(Node::new(system.clone(), plan.clone()), &system);
    finish(system, plan, node.start().unwrap())
}

pub fn finish(system: Arc<System>, plan: Arc<Plan>, running: RunningNode) -> Ran {
    let (visibility, names) = (running.visibility(ProcessorId(0)), running.names());
    let mut events = Vec::new();
    let finished = running.wait(&mut |processor, at, event| events.push((processor, at, event)));
    assert_eq!(finished.lost.events, 0, "the test looks at every event");
    Ran { system, plan, events, finished, visibility, names: names.since(0) }
}

impl Ran {
    pub fn id(&self, operation: &str) -> OperationId {
        let position = self.system.operations.iter().position(|known| known.name == operation);
        OperationId(position.unwrap_or_else(|| panic!("no operation {operation}")) as u32)
    }

    /// The decisions in order, with their times.
    pub fn decisions(&self) -> impl Iterator<Item = (Instant, &DispatchDecision)> {
        self.events.iter().filter_map(|(_, at, event)| match event {
            TraceEvent::Decision(decision) => Some((*at, decision)),
            _ => None,
        })
    }

    pub fn ends(&self) -> impl Iterator<Item = &JobEnd> {
        self.decisions().filter_map(|(_, decision)| match decision {
            DispatchDecision::End(end) => Some(end),
            _ => None,
        })
    }

    pub fn ends_of(&self, operation: &str) -> Vec<JobEnd> {
        let id = self.id(operation);
        self.ends().filter(|end| end.job.operation == id).copied().collect()
    }

    pub fn count(&self, operation: &str, outcome: JobOutcome) -> usize {
        self.ends_of(operation).iter().filter(|end| end.outcome == outcome).count()
    }

    /// The number of an operation's jobs that ran to their end.
    pub fn finished_jobs(&self, operation: &str) -> usize {
        self.ends_of(operation).iter().filter(|end| end.outcome.finished()).count()
    }

    /// The decisions of one processor, as words: `ready a`, `run b`, `end a`.
    pub fn story(&self, processor: u32) -> Vec<String> {
        let name = |id: OperationId| &self.system.operation(id).name;
        let of = |(on, _, event): &(ProcessorId, Instant, TraceEvent)| match event {
            _ if on.0 != processor => None,
            TraceEvent::Decision(DispatchDecision::Ready { job, .. }) => Some(format!("ready {}", name(job.operation))),
            TraceEvent::Decision(DispatchDecision::Run { job, resumed: false, .. }) => {
                Some(format!("run {}", name(job.operation)))
            }
            TraceEvent::Decision(DispatchDecision::Run { job, .. }) => Some(format!("resume {}", name(job.operation))),
            TraceEvent::Decision(DispatchDecision::Yield { job }) => Some(format!("yield {}", name(job.operation))),
            TraceEvent::Decision(DispatchDecision::Demote { job }) => Some(format!("demote {}", name(job.operation))),
            TraceEvent::Decision(DispatchDecision::End(end)) => Some(format!("end {}", name(end.job.operation))),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    /// Feeds each processor's inputs to a new dispatcher: its decisions must be identical.
    pub fn replay(&self) {
        for plan in &self.plan.processors {
            let own = self.events.iter().filter(|(processor, ..)| *processor == plan.processor);
            let replayed = hyoshi_replay::replay(&self.system, plan, own.map(|(_, at, event)| (*at, *event)));
            let replayed = replayed.unwrap_or_else(|divergence| panic!("{divergence}"));
            assert!(replayed.inputs > 0);
        }
    }
}

/// True if lanes have their priorities: without privileges these tests prove nothing.
pub fn privileged(ran: &Ran) -> bool {
    let refused = ran.finished.notes.iter().find(|note| matches!(note, RunNote::Refused { .. }));
    if let Some(note) = refused {
        missing(format_args!("priorities for lanes: {note}"));
    }
    refused.is_none()
}

/// Waits until a condition holds, with a time limit.
pub fn until(what: &str, mut has_come: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !has_come() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited for {what} for half a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Uses the CPU for this time, regardless of preemption.
pub fn work(span: Span) {
    let until = hyoshi_os::own_cpu_time() + span;
    while hyoshi_os::own_cpu_time() < until {}
}
