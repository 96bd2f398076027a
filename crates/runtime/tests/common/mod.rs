//! Runs small systems for real, and looks at what happened. Order and counts only: the machine is
//! shared, so absolute times are nobody's promise.
#![allow(dead_code)]

#[path = "../../../os/tests/common/privileges.rs"]
mod privileges;
#[path = "../../../os/tests/common/steal.rs"]
mod steal;

pub use privileges::missing;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System, read};
use hyoshi_os::SwitchVisibility;
use hyoshi_runtime::{Finished, Node, Note, Running};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{Decision, Event, JobEnd, Outcome};
use steal::stolen;

/// One run at a time: two on one CPU would delay each other.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a test, and again if it fails while a hypervisor took CPU time: it stalls every thread for up to 10 ms. The fifth
/// failure counts in any case, the first one on a machine that nothing is stolen from.
pub fn undisturbed(test: impl Fn()) {
    for attempt in 1.. {
        let before = stolen();
        let Err(failure) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&test)) else { return };
        if attempt == 5 || stolen() == before {
            std::panic::resume_unwind(failure);
        }
        eprintln!("attempt {attempt}: a hypervisor took CPU time");
    }
}

/// What is left of a run.
pub struct Ran {
    pub system: Arc<System>,
    pub plan: Arc<Plan>,
    pub events: Vec<(ProcessorId, Instant, Event)>,
    pub finished: Finished,
    /// How much was seen of the first processor's CPU, and what other threads were called.
    pub visibility: SwitchVisibility,
    pub names: Vec<String>,
}

/// The system that a text describes.
pub fn system(text: &str) -> Arc<System> {
    let text = format!("name = \"test\"\n{text}");
    Arc::new(read(&text, "test.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

pub fn plan(system: &System) -> Arc<Plan> {
    Arc::new(Plan::new(system, &Strategies::built_in()).unwrap())
}

/// Runs a text's system with built-in work.
pub fn run(text: &str) -> Ran {
    run_with(text, |node, _| node)
}

/// Runs built-in work on one processor: what is left of its table, and its operations.
pub fn run_on(strategy: &str, duration: &str, rest: &str) -> Ran {
    run(&format!("duration = \"{duration}\"\n[processor.main]\nstrategy = \"{strategy}\"\n{rest}"))
}

/// Runs a text's system with what `prepare` gives it.
pub fn run_with(text: &str, prepare: impl FnOnce(Node, &System) -> Node) -> Ran {
    run_beside(text, |node, system| (prepare(node, system), ()))
}

/// The same beside something that `prepare` starts, and that ends with the run.
pub fn run_beside<T>(text: &str, prepare: impl FnOnce(Node, &System) -> (Node, T)) -> Ran {
    let _alone = ALONE.lock().unwrap_or_else(|broken| broken.into_inner());
    let system = system(text);
    let plan = plan(&system);
    let (node, _beside) = prepare(Node::new(system.clone(), plan.clone()), &system);
    finish(system, plan, node.start().unwrap())
}

pub fn finish(system: Arc<System>, plan: Arc<Plan>, running: Running) -> Ran {
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

    /// What was decided, in its order, and when.
    pub fn decisions(&self) -> impl Iterator<Item = (Instant, &Decision)> {
        self.events.iter().filter_map(|(_, at, event)| match event {
            Event::Decision(decision) => Some((*at, decision)),
            _ => None,
        })
    }

    pub fn ends(&self) -> impl Iterator<Item = &JobEnd> {
        self.decisions().filter_map(|(_, decision)| match decision {
            Decision::End(end) => Some(end),
            _ => None,
        })
    }

    pub fn ends_of(&self, operation: &str) -> Vec<JobEnd> {
        let id = self.id(operation);
        self.ends().filter(|end| end.job.operation == id).copied().collect()
    }

    pub fn count(&self, operation: &str, outcome: Outcome) -> usize {
        self.ends_of(operation).iter().filter(|end| end.outcome == outcome).count()
    }

    /// How many jobs of an operation ran to their end.
    pub fn finished_jobs(&self, operation: &str) -> usize {
        self.ends_of(operation).iter().filter(|end| end.outcome.finished()).count()
    }

    /// The decisions of one processor, as words: `ready a`, `run b`, `end a`.
    pub fn story(&self, processor: u32) -> Vec<String> {
        let name = |id: OperationId| &self.system.operation(id).name;
        let of = |(on, _, event): &(ProcessorId, Instant, Event)| match event {
            _ if on.0 != processor => None,
            Event::Decision(Decision::Ready { job, .. }) => Some(format!("ready {}", name(job.operation))),
            Event::Decision(Decision::Run { job, resumed: false, .. }) => Some(format!("run {}", name(job.operation))),
            Event::Decision(Decision::Run { job, .. }) => Some(format!("resume {}", name(job.operation))),
            Event::Decision(Decision::Yield { job }) => Some(format!("yield {}", name(job.operation))),
            Event::Decision(Decision::Demote { job }) => Some(format!("demote {}", name(job.operation))),
            Event::Decision(Decision::End(end)) => Some(format!("end {}", name(end.job.operation))),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    /// Feeds each processor's inputs to a fresh dispatcher: its decisions must be identical.
    pub fn replay(&self) {
        for plan in &self.plan.processors {
            let own = self.events.iter().filter(|(processor, ..)| *processor == plan.processor);
            let replayed = hyoshi_replay::replay(&self.system, plan, own.map(|(_, at, event)| (*at, *event)));
            let replayed = replayed.unwrap_or_else(|divergence| panic!("{divergence}"));
            assert!(replayed.inputs > 0);
        }
    }
}

/// True if lanes are what they are meant to be: without privileges these tests prove nothing.
pub fn privileged(ran: &Ran) -> bool {
    let refused = ran.finished.notes.iter().find(|note| matches!(note, Note::Refused { .. }));
    if let Some(note) = refused {
        missing(format_args!("priorities for lanes: {note}"));
    }
    refused.is_none()
}

/// Waits until something has come true, and not for ever.
pub fn until(what: &str, mut has_come: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !has_come() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited for {what} for half a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Uses the CPU for a while, whoever preempts.
pub fn work(span: Span) {
    let until = hyoshi_os::own_cpu_time() + span;
    while hyoshi_os::own_cpu_time() < until {}
}
