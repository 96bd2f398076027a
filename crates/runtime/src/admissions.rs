//! Operations on standby: operators and programs admit and withdraw them during a run.

use std::fmt;
use std::sync::Arc;

use hyoshi_model::{Instant, OperationId, Span};
use hyoshi_trace::{AdmissionOutcome, AdmissionRefusal, Input};

use crate::common::CommonState;
use crate::processor::ProcessorState;

/// Admits and withdraws the operations on standby of a run. Each call locks a processor for a short section. Clones share
/// the run.
///
/// ```
/// use std::sync::Arc;
/// use hyoshi_model::read;
/// use hyoshi_runtime::Node;
/// use hyoshi_sched::{Plan, Strategies};
///
/// let text = r#"
///     name     = "rover"
///     duration = "1s"
///     [feedback.main]
///     algorithm   = "FC-U"
///     utilisation = "60%"
///     [processor.main]
///     [operation.track]
///     standby = true
///     rate    = ["1Hz", "10Hz"]
///     wcet    = "1ms"
/// "#;
/// let system = Arc::new(read(text, "rover.toml", None)?.system);
/// let plan = Arc::new(Plan::new(&system, &Strategies::built_in())?);
/// let prepared = Node::new(system, plan).prepare()?;
/// let admissions = prepared.handles().admissions;
/// // Before the run begins, nothing is admitted.
/// assert!(admissions.admit("track").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AdmissionControl {
    common: Arc<CommonState>,
    processors: Vec<Arc<ProcessorState>>,
}

/// An operation that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmittedOperation {
    /// Its period until the next sample.
    pub period: Span,
    /// Why it is below its highest rate; `None` if it is not.
    pub lower_because: Option<&'static str>,
}

/// Why an operation was not admitted or withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionError {
    /// The system has no such operation.
    Unknown {
        /// The name.
        operation: String,
    },
    /// It is not on standby in the file.
    NotOnStandby {
        /// The name.
        operation: String,
    },
    /// Another process runs its processor.
    Elsewhere {
        /// The name.
        operation: String,
        /// Its host.
        host: String,
    },
    /// The run has not begun, or is over.
    Idle,
    /// The loop of its processor refuses.
    Refused(AdmissionRefusal),
}

impl AdmissionError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            AdmissionError::Unknown { .. } => "name an operation with `standby = true` in the system file".into(),
            AdmissionError::NotOnStandby { .. } => {
                "write `standby = true` in its table; without it, it always releases jobs".into()
            }
            AdmissionError::Elsewhere { host, .. } => format!("ask the node of host `{host}`, with --at"),
            AdmissionError::Idle => "request it again during the run".into(),
            AdmissionError::Refused(refusal) => refusal.remedy().into(),
        }
    }
}

impl fmt::Display for AdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdmissionError::Unknown { operation } => write!(f, "the system has no operation `{operation}`"),
            AdmissionError::NotOnStandby { operation } => {
                write!(f, "operation `{operation}` is not on standby in the system file")
            }
            AdmissionError::Elsewhere { operation, host } => {
                write!(f, "operation `{operation}` runs on host `{host}`, in another process")
            }
            AdmissionError::Idle => f.write_str("the run has not begun, or has ended"),
            AdmissionError::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for AdmissionError {}

impl AdmissionControl {
    pub(crate) fn new(common: Arc<CommonState>, processors: Vec<Arc<ProcessorState>>) -> AdmissionControl {
        AdmissionControl { common, processors }
    }

    /// Admits an operation: the loop of its processor decides. The other tasks of the loop make room at once.
    ///
    /// # Errors
    ///
    /// If the loop refuses it, it is not on standby here, or there is no run.
    pub fn admit(&self, operation: &str) -> Result<AdmittedOperation, AdmissionError> {
        let outcome = self.request(operation, |operation| Input::Admit { operation })?;
        match outcome {
            AdmissionOutcome::Admitted { period, .. } => {
                Ok(AdmittedOperation { period, lower_because: outcome.lower_because() })
            }
            AdmissionOutcome::Refused(refusal) => Err(AdmissionError::Refused(refusal)),
            AdmissionOutcome::Withdrawn => Err(AdmissionError::Refused(AdmissionRefusal::Withdrawn)),
        }
    }

    /// Withdraws an operation: it ends its present jobs, and releases no more.
    ///
    /// # Errors
    ///
    /// If it is not admitted, not on standby here, or there is no run.
    pub fn withdraw(&self, operation: &str) -> Result<(), AdmissionError> {
        match self.request(operation, |operation| Input::Withdraw { operation })? {
            AdmissionOutcome::Refused(refusal) => Err(AdmissionError::Refused(refusal)),
            AdmissionOutcome::Withdrawn | AdmissionOutcome::Admitted { .. } => Ok(()),
        }
    }

    fn request(
        &self,
        operation: &str,
        input: impl FnOnce(OperationId) -> Input,
    ) -> Result<AdmissionOutcome, AdmissionError> {
        let (system, named) = (&self.common.system, || operation.to_owned());
        let found = system.operation_ids().find(|id| system.operation(*id).name == operation);
        let id = found.ok_or_else(|| AdmissionError::Unknown { operation: named() })?;
        if !system.operation(id).standby {
            return Err(AdmissionError::NotOnStandby { operation: named() });
        }
        let on = system.operation(id).on;
        let processor = self.processors.iter().find(|processor| processor.id == on).ok_or_else(|| {
            let host = system.hosts[system.processor(on).host.index()].name.clone();
            AdmissionError::Elsewhere { operation: named(), host }
        })?;
        if !self.common.has_begun() || self.common.now() == Instant::ZERO {
            return Err(AdmissionError::Idle);
        }
        // Created before the lock for which lanes may wait.
        let mut wakeups = processor.wakeups();
        let outcome = processor.section(|crew, now| crew.request_admission(now, input(id), &mut wakeups));
        wakeups.deliver();
        outcome.ok_or(AdmissionError::Idle)
    }
}
