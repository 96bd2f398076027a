//! Operations as written: the form that is read, expanded, resolved and checked in turn.

use super::log::{AtPlace, Place};
use crate::execution_time::ExecutionTime;
use crate::feedback::ServiceLevel;
use crate::ids::{HostId, ProcessorId, ResourceId};
use crate::object::ClientRates;
use crate::system::{Deadline, FlushPoint, Guard, OnBusy, OnMiss, OnOverrun, QueueLimit};
use crate::time::Span;

/// An operation or a template of operations.
#[derive(Clone)]
pub(super) struct DeclaredOperation<'a> {
    pub name: AtPlace<&'a str>,
    pub on: ProcessorId,
    /// Further processors to which a loop may move it, with their names.
    pub further: Vec<AtPlace<(ProcessorId, &'a str)>>,
    /// `None` for a periodic operation.
    pub after: Option<After<'a>>,
    pub reads: AtPlace<Vec<AtPlace<&'a str>>>,
    /// The positions of the events that it supplies.
    pub supplies: Vec<u32>,
    /// Calls or requests release it.
    pub called: bool,
    /// The least time between two requests.
    pub min_interval: Option<AtPlace<Span>>,
    /// Its clients, if a loop sets their rates.
    pub clients: Option<AtPlace<ClientRates>>,
    /// Its service levels, the shortest worst case first.
    pub levels: AtPlace<Vec<ServiceLevel>>,
    /// It waits for its admission. The place of the key.
    pub standby: Option<Place>,
    pub calls: Option<DeclaredCall<'a>>,
    /// Its body may call any object.
    pub calls_any: bool,
    /// Its part, if the operation calls another.
    pub part: CallPhase,
    /// If it is an instance of a method: the method, by its name in the file.
    pub method: Option<&'a str>,
    /// The position of the last part of the periodic operation to which it belongs.
    pub within: Option<usize>,
    /// Part of the table is malformed.
    pub misread: bool,
    pub phase: Span,
    pub phase_given: bool,
    pub offset: Span,
    pub stagger: DeclaredStagger,
    /// `None` if it is not a template.
    pub count: Option<AtPlace<u32>>,
    pub critical: bool,
    pub importance: u32,
    pub uses: Vec<(ResourceId, Span)>,
    pub uses_place: Place,
    pub queue: QueueLimit,
    pub on_overrun: OnOverrun,
    pub on_busy: OnBusy,
    pub on_miss: OnMiss,
    /// `None` when the file has no value.
    pub guard: Option<AtPlace<Guard>>,
    /// The longest time without a trigger.
    pub timeout: Option<Span>,
    /// The greatest age of a job's origin at its start.
    pub lifespan: Option<Span>,
    pub payload: u32,
    pub replicate: Option<DeclaredReplicas<'a>>,
    pub written: Written,
}

#[derive(Clone)]
pub(super) struct After<'a> {
    pub kind: AfterKind,
    /// The operations that it names; with `all`, each is required.
    pub names: AtPlace<Vec<AtPlace<&'a str>>>,
    /// With `all`, one completion of each group is required.
    pub groups: Vec<TriggerGroup<'a>>,
    /// The largest difference between the origins of joined completions.
    pub within: Option<AtPlace<Span>>,
}

/// Which completions trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterKind {
    /// All together.
    All,
    /// Each one.
    Any,
    /// The first of each release.
    First,
    /// Each that chooses so; built-in work does with this probability, in parts per million.
    Chosen(u32),
}

/// Operations of which any one is sufficient.
#[derive(Clone)]
pub(super) struct TriggerGroup<'a> {
    pub names: AtPlace<Vec<AtPlace<&'a str>>>,
    pub events: Vec<SelectedEvents<'a>>,
}

/// `event`, `from` and `except`.
#[derive(Clone)]
pub(super) struct SelectedEvents<'a> {
    pub patterns: AtPlace<Vec<AtPlace<&'a str>>>,
    /// The suppliers, if not all.
    pub from: Option<Vec<AtPlace<&'a str>>>,
    /// Events or suppliers that it omits; only suppliers after `events::resolve`.
    pub except: AtPlace<Vec<AtPlace<&'a str>>>,
    /// The suppliers, including those in `except`, known after `events::resolve`.
    pub suppliers: AtPlace<Vec<AtPlace<&'a str>>>,
    /// The positions of the events, known after `events::resolve`.
    pub positions: Vec<u32>,
}

impl<'a> After<'a> {
    /// After these operations.
    pub fn operations(kind: AfterKind, names: AtPlace<Vec<AtPlace<&'a str>>>) -> Self {
        After { kind, names, groups: Vec::new(), within: None }
    }

    pub fn events(&self) -> impl Iterator<Item = &SelectedEvents<'a>> {
        self.groups.iter().flat_map(|group| &group.events)
    }
}

/// `replicate` as written.
#[derive(Clone)]
pub(super) struct DeclaredReplicas<'a> {
    pub place: Place,
    pub to: Vec<AtPlace<&'a str>>,
    pub flush: FlushPoint,
    /// Known after `replicas::resolve`.
    pub hosts: Vec<HostId>,
}

/// The phase between instances of a template.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DeclaredStagger {
    Even,
    By(AtPlace<Span>),
}

impl DeclaredOperation<'_> {
    /// The number of its operations: the instances of a template, or one for each processor of `on`.
    pub fn instances(&self) -> u32 {
        self.count.map_or(1 + self.further.len() as u32, |count| count.value)
    }

    pub fn periodic(&self) -> bool {
        match self.part {
            CallPhase::Rest { periodic, .. } => periodic,
            _ => self.after.is_none() && !self.called,
        }
    }

    /// Whether it is the part of an operation before a call.
    pub fn is_before_call(&self) -> bool {
        matches!(self.part, CallPhase::Before { .. })
    }

    /// Whether requests from outside release it: nothing in the file calls it.
    pub fn requested(&self) -> bool {
        self.called && self.after.is_none()
    }
}

/// A call as written.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeclaredCall<'a> {
    pub method: AtPlace<&'a str>,
    /// The caller's own work before it.
    pub after: AtPlace<Span>,
    pub oneway: bool,
    /// The place of `divide = true`.
    pub divide: Option<Place>,
}

/// The part of an operation that this is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum CallPhase {
    #[default]
    Whole,
    /// Up to the call; the rest of the operation is at the position.
    Before { rest: usize, after: AtPlace<Span> },
    /// From the call on, under the operation's own name.
    Rest { before: usize, periodic: bool },
}

/// Settings that epochs can change, as written so far; instances of a template share it.
#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The shortest and the longest; `None` for triggered operations.
    pub period: Option<AtPlace<(Span, Span)>>,
    pub jitter: Option<AtPlace<Span>>,
    /// `None` only in a rejected file.
    pub wcet: Option<AtPlace<Span>>,
    pub bcet: Option<AtPlace<Span>>,
    pub execution_time: Option<AtPlace<Drawn>>,
    pub deadline: Option<AtPlace<Deadline>>,
    pub legs: Option<AtPlace<u16>>,
    pub critical_legs: Option<AtPlace<u16>>,
    pub enabled: bool,
}

/// Execution times with their extremes, computed once: lists may be long, and many operations share one.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub execution_time: ExecutionTime,
    pub shortest: Span,
    pub longest: Span,
}

impl From<ExecutionTime> for Drawn {
    fn from(takes: ExecutionTime) -> Self {
        Drawn { shortest: takes.shortest(), longest: takes.longest(), execution_time: takes }
    }
}
