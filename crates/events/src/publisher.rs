//! A registered publisher: a feedback loop sets its rate (`clients` of the operation that supplies the event).
//!
//! ```text
//!              publisher                    drop; silent for too long
//!   (unknown) ──────────► registered ───────────────────────────────► ended
//!                            │ ▲
//!                            └─┘ publish: admitted at its rate; returns the present period
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::time::LONGEST_SPAN;
use hyoshi_model::{OperationId, Span, System};
use hyoshi_os::clock::monotonic;
use hyoshi_runtime::{ClientMeter, ClientRateControl, JoinLoopError, JoinedClient, Rejected};
use hyoshi_trace::{ClientLabel, RatedClient};

use crate::channel::{ChannelState, PublishError};

/// A request of a publisher for a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The period of its highest rate. The loop uses the part of the range that the file allows.
    pub shortest: Span,
    /// The period of its lowest rate.
    pub longest: Span,
    /// The worth of a publication to the application, at most the importance of the supplier. Loops with
    /// `divide = "value"` use it.
    pub value: u32,
    /// Its name in reports.
    pub label: String,
    /// The registration ends after this time plus three periods without a publication.
    pub idle: Option<Span>,
}

impl Default for Registration {
    /// The range of the file, the importance of the supplier, and no limit of the time without publications.
    fn default() -> Self {
        let label = "this process".to_owned();
        Registration { shortest: Span::from_nanos(1), longest: LONGEST_SPAN, value: u32::MAX, label, idle: None }
    }
}

/// The reason why a publisher is not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// The file has no such event.
    Unknown {
        /// Its name.
        name: String,
    },
    /// No supplier of the event on this node has `clients`.
    NoClients {
        /// Its name.
        name: String,
    },
    /// The loop refuses it.
    Refused(JoinLoopError),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Unknown { name } => write!(f, "unknown event `{name}`"),
            RegisterError::NoClients { name } => {
                write!(f, "no feedback loop sets rates for event `{name}`: no supplier on this node has `clients`")
            }
            RegisterError::Refused(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RegisterError {}

impl RegisterError {
    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            RegisterError::Unknown { .. } => "`hyoshi events list` lists the events",
            RegisterError::NoClients { .. } => "publish without a rate, or add `clients` to a supplier in the file",
            RegisterError::Refused(error) => error.remedy(),
        }
    }
}

/// A registered publisher of an event. If it is dropped, it leaves the loop.
#[derive(Debug)]
pub struct Publisher {
    pub(crate) state: Arc<PublisherState>,
    pub(crate) channel: Arc<ChannelState>,
}

/// The registration of a publisher.
#[derive(Debug)]
pub(crate) struct PublisherState {
    event: String,
    /// For reports.
    shown: String,
    idle: Option<Span>,
    control: ClientRateControl,
    joined: JoinedClient,
    meter: ClientMeter,
    has_left: AtomicBool,
}

impl Publisher {
    /// Publishes the event at the present rate. Returns the period until the next publication, which the loop may have
    /// changed.
    ///
    /// # Errors
    ///
    /// If a burst above the rate exceeds three publications, the registration has ended, or the node rejects the
    /// publication.
    pub fn publish(&self, payload: &[u8]) -> Result<Span, PublishError> {
        let admitted = self.state.meter.admit(monotonic().as_nanos());
        let published = match admitted {
            Ok(period) => self.channel.publish(&self.state.event, payload, Some(period)),
            Err(Rejected::Unregistered) => Err(PublishError::Ended { name: self.state.event.clone() }),
            Err(because) => Err(self.channel.refusal(&self.state.event, self.state.joined.task.operation, because)),
        };
        let period = self.period();
        published.map(|()| period)
    }

    /// The present period. From now on the publisher knows it.
    pub fn period(&self) -> Span {
        let PublisherState { control, joined, meter, .. } = &*self.state;
        let period = control.period(joined.client).unwrap_or(joined.period);
        meter.set_period(period);
        period
    }

    /// Whether it has not been removed for silence.
    pub fn is_registered(&self) -> bool {
        !self.state.has_left.load(Ordering::Acquire)
    }

    /// The periods of the highest and the lowest rate that the loop may set.
    pub fn range(&self) -> (Span, Span) {
        (self.state.joined.task.shortest, self.state.joined.task.longest)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.channel.end_publisher(&self.state, None);
    }
}

impl PublisherState {
    /// Joins the loop.
    pub fn join(
        (event, shown): (&str, &dyn Fn(u16) -> String),
        control: &ClientRateControl,
        (claim, idle): (&RatedClient, Option<Span>),
    ) -> Result<PublisherState, JoinLoopError> {
        let joined = control.join(claim, None)?;
        let meter = ClientMeter::default();
        meter.begin(joined.period, monotonic().as_nanos());
        let (event, shown) = (event.to_owned(), shown(joined.client));
        Ok(PublisherState {
            event,
            shown,
            idle,
            control: control.clone(),
            joined,
            meter,
            has_left: AtomicBool::new(false),
        })
    }

    /// Leaves the loop; once. Returns reports about it: the reason for its removal, and publications above its rate.
    pub fn leave(&self, why: Option<String>) -> Vec<String> {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        self.meter.end();
        self.control.leave(self.joined.client);
        let removed = why.map(|why| format!("{} was removed: {why}", self.shown));
        let refused = Some(self.meter.refused()).filter(|count| *count > 0);
        let refused = refused.map(|count| format!("{}: {count} publications above its rate were rejected", self.shown));
        removed.into_iter().chain(refused).collect()
    }

    /// How long it has not published, if that is too long.
    pub fn silence(&self) -> Option<Span> {
        let silent = Span::from_nanos(monotonic().as_nanos().saturating_sub(self.meter.last()));
        let periods = self.meter.period().as_nanos().saturating_mul(3);
        self.idle.filter(|idle| silent.as_nanos() > idle.as_nanos().saturating_add(periods)).map(|_| silent)
    }
}

/// The claim of a publisher for the loop.
pub(crate) fn claim(system: &System, supplier: OperationId, asked: &Registration) -> RatedClient {
    RatedClient {
        operation: supplier,
        // Unknown: the loop uses the mean execution time, or the worst case.
        estimate: Span::from_nanos(1),
        shortest: asked.shortest,
        longest: asked.longest,
        value: asked.value.min(system.operation(supplier).importance),
        label: ClientLabel::new(&asked.label),
    }
}

/// The latest reports about publishers.
#[derive(Debug, Default)]
pub(crate) struct PublisherReports(VecDeque<String>);

impl PublisherReports {
    /// The most reports that are kept.
    const MOST: usize = 64;

    pub fn add(&mut self, reports: Vec<String>) {
        self.0.extend(reports);
        let excess = self.0.len().saturating_sub(PublisherReports::MOST);
        self.0.drain(..excess);
    }

    pub fn all(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
