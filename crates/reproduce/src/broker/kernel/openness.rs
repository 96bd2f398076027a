//! Unmodified programs and brokers: a running program that does not know the broker is attached; a broker receives an
//! advocate of another process and other policies.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_broker::client::BrokerClientError;
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::{Advocate, Broker as _, Grant, Reservation, Status};
use hyoshi_orb::{Orb, SystemException};
use serde::Serialize;

use super::host::{BrokerProcess, HourglassProcess, wait_for};
use crate::control::{ExperimentControl, NoResult};

/// The results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Openness {
    /// The broker's reports about the attached program.
    pub reports: u64,
    /// CPU time of the program in a period, as the broker measured it.
    pub consumed_ns: u64,
    /// The request of the broker's own advocate.
    pub asked_ns: u64,
    /// The request after adding an advocate of another process that doubles it.
    pub asked_twice_ns: u64,
    /// The number of calls of that advocate.
    pub advice: u64,
    /// The policies in order, as the broker names them.
    pub policies: Vec<String>,
    /// Whether the program ran all the time.
    pub lived: bool,
}

const PERIOD: &str = "50ms";
const WORK: &str = "5ms";
const POLICIES: [&str; 3] = ["strict", "weighted", "partition(video 40% strict, rest 30% weighted)"];

/// Doubles the request.
#[derive(Debug, Default)]
struct Twice(AtomicU64);

impl Advocate for Twice {
    fn advise(&self, _: &str, _: &Status, asked: &Reservation) -> Result<Reservation, SystemException> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Reservation { budget: (asked.budget * 2).min(asked.deadline), ..*asked })
    }

    fn granted(&self, _: &str, _: &Grant) -> Result<(), SystemException> {
        Ok(())
    }

    fn describe(&self) -> Result<String, SystemException> {
        Ok("twice the request".into())
    }
}

pub(super) fn run(hyoshi: &Path, control: ExperimentControl<'_>) -> Result<Openness, NoResult> {
    // Start the program before the broker.
    let mut program = Command::new(hyoshi);
    program.args(["hourglass", "--period", PERIOD, "--work", WORK, "--for", "2min"]);
    let mut program = HourglassProcess::start(program)?;
    program.listen(|_| ());
    let broker = BrokerProcess::start(hyoshi, &["--policy", POLICIES[0]])?;
    let mut attach = broker.command("attach");
    attach.arg(program.process().to_string()).args(["--name", "program", "--period", PERIOD]).stdout(Stdio::null());
    let attached = attach.stdin(Stdio::null()).stderr(Stdio::piped()).output()?;
    if !attached.status.success() {
        return Err(NoResult::Because(String::from_utf8_lossy(&attached.stderr).trim().replace('\n', "; ")));
    }
    let enough = |least: u64| {
        wait_for("waiting for the broker's reports", control, || {
            let task = broker.task("program")?;
            Ok((task.reports >= least && task.consumed > 0).then_some(task))
        })
    };
    let before = enough(10)?;

    let orb = Orb::builder().listen("iiop://127.0.0.1:0").map_err(because)?.build().map_err(because)?;
    let twice = Arc::new(Twice::default());
    let adapter = orb.adapter("advocates").build().map_err(because)?;
    let reference = adapter.activate::<dyn Advocate>(twice.clone()).map_err(because)?.ior().to_string();
    orb.ready();
    let words = ["external", "--object", &reference, "--timeout", "200ms"].map(String::from);
    let setting = ComponentSpec::from_words(&words).map_err(because)?;
    let added = broker.client.broker().add_advocate("program", &setting.to_wire(), u32::MAX);
    added.map_err(BrokerClientError::from)?;
    let asked_ns = before.granted.requested.budget;
    let doubled = wait_for("waiting for the external advocate", control, || {
        let task = broker.task("program")?;
        let done = task.granted.requested.budget > asked_ns * 3 / 2 && task.reports > before.reports + 4;
        Ok(done.then_some(task))
    })?;

    let mut policies = Vec::new();
    for policy in POLICIES {
        broker.client.broker().set_policy(policy, 0).map_err(BrokerClientError::from)?;
        policies.push(broker.client.broker().status().map_err(BrokerClientError::from)?.policy);
    }
    let advice = twice.0.load(Ordering::Relaxed);
    orb.shutdown();
    Ok(Openness {
        reports: before.reports,
        consumed_ns: before.consumed,
        asked_ns,
        asked_twice_ns: doubled.granted.requested.budget,
        advice,
        policies,
        lived: !program.has_ended(),
    })
}

fn because(error: impl std::fmt::Display) -> NoResult {
    NoResult::Because(error.to_string())
}
