//! Strategies assign urgencies: each operation gets a level, each level a queue discipline, and jobs of equal key a
//! tie-break. They are independent of threads and queues.
//!
//! A new strategy is one implementation of [`Strategy`] and one line in `TABLE`; users add their
//! own to a [`Strategies`] without touching this crate.

use alloc::{string::String, vec::Vec};
use core::fmt;

use hyoshi_model::{OperationId, Span};

/// The inputs of a strategy: one operation, in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// The operation.
    pub operation: OperationId,
    /// Whether the jobs are critical (of a load chain the first legs may be).
    pub critical: bool,
    /// Period of releases.
    pub period: Span,
    /// Relative deadline, whatever its start.
    pub deadline: Span,
    /// Declared worst case.
    pub wcet: Span,
    /// Rank among non-critical operations; higher is more important.
    pub importance: u32,
}

/// The urgency of an operation's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// Static level: operations of equal `(class, rank)` share one; smaller is more urgent.
    pub class: u8,
    /// Order of levels within a class; smaller is more urgent.
    pub rank: u64,
    /// Order within the level. Levels of one class must agree on it.
    pub discipline: Discipline,
    /// Order among waiting jobs of equal key; smaller first. Ignored by FIFO levels.
    pub tie: u32,
}

/// The order of waiting jobs within a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discipline {
    /// The earlier enqueued first.
    Fifo,
    /// The earlier absolute deadline first.
    Deadline,
    /// The least laxity first: deadline - now - remaining worst case.
    Laxity,
}

impl Discipline {
    /// Every discipline.
    pub const ALL: [Discipline; 3] = [Discipline::Fifo, Discipline::Deadline, Discipline::Laxity];
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Discipline::Fifo => "FIFO",
            Discipline::Deadline => "earliest deadline",
            Discipline::Laxity => "least laxity",
        })
    }
}

/// A scheduling strategy.
pub trait Strategy: Send + Sync {
    /// The name a file uses, such as `RMS+MLF`.
    fn name(&self) -> &str;

    /// One line: its rule and its source.
    fn summary(&self) -> &str;

    /// The urgency of an operation's jobs. It must depend only on `operation`. Class and discipline must not depend on
    /// period or deadline: adapted rates change both.
    fn urgency(&self, operation: &Traits) -> Urgency;
}

/// A built-in strategy, defined by its entry in the table.
struct BuiltIn {
    name: &'static str,
    summary: &'static str,
    urgency: fn(&Traits) -> Urgency,
}

impl Strategy for BuiltIn {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn urgency(&self, operation: &Traits) -> Urgency {
        (self.urgency)(operation)
    }
}

/// The built-in strategies.
static TABLE: [BuiltIn; 7] = [
    BuiltIn {
        name: "RMS",
        summary: "rate monotonic: a level for each period, FIFO within (Liu and Layland 1973)",
        urgency: |operation| fixed(0, operation.period),
    },
    BuiltIn {
        name: "DM",
        summary: "deadline monotonic: a level for each relative deadline, FIFO within (Leung and Whitehead 1982)",
        urgency: |operation| fixed(0, operation.deadline),
    },
    BuiltIn {
        name: "EDF",
        summary: "earliest deadline first: one level by absolute deadline (Liu and Layland 1973)",
        urgency: |operation| dynamic(0, Discipline::Deadline, operation),
    },
    BuiltIn {
        name: "MLF",
        summary: "minimum laxity first: one level by laxity (Stewart and Khosla 1992)",
        urgency: |operation| dynamic(0, Discipline::Laxity, operation),
    },
    BuiltIn {
        name: "MUF",
        summary: "maximum urgency first: critical above non-critical, each by laxity (Stewart and Khosla 1992)",
        urgency: |operation| dynamic(u8::from(!operation.critical), Discipline::Laxity, operation),
    },
    BuiltIn {
        name: "RMS+MLF",
        summary: "critical by rate, non-critical below them in one level by laxity (Chung, Liu and Lin 1990; Kokyu)",
        urgency: |operation| critical_by_rate(Discipline::Laxity, operation),
    },
    BuiltIn {
        name: "RMS+EDF",
        summary: "critical by rate, non-critical below them in one level by deadline",
        urgency: |operation| critical_by_rate(Discipline::Deadline, operation),
    },
];

fn fixed(class: u8, by: Span) -> Urgency {
    Urgency { class, rank: by.as_nanos(), discipline: Discipline::Fifo, tie: 0 }
}

fn dynamic(class: u8, discipline: Discipline, operation: &Traits) -> Urgency {
    Urgency { class, rank: 0, discipline, tie: u32::MAX - operation.importance }
}

fn critical_by_rate(discipline: Discipline, operation: &Traits) -> Urgency {
    if operation.critical { fixed(0, operation.period) } else { dynamic(1, discipline, operation) }
}

/// The strategies that a program knows: the built-in ones and the user's own.
#[derive(Clone, Default)]
pub struct Strategies {
    own: Vec<&'static dyn Strategy>,
}

impl Strategies {
    /// The built-in strategies only.
    pub fn built_in() -> Self {
        Strategies::default()
    }

    /// Adds a strategy; it replaces an earlier one of the same name.
    pub fn with(mut self, strategy: &'static dyn Strategy) -> Self {
        self.own.push(strategy);
        self
    }

    /// The strategy of that name, in any case of letters.
    pub fn find(&self, name: &str) -> Option<&'static dyn Strategy> {
        let own = self.own.iter().rev().copied();
        own.chain(TABLE.iter().map(|strategy| strategy as &'static dyn Strategy))
            .find(|strategy| strategy.name().eq_ignore_ascii_case(name))
    }

    /// Every name, built-in ones first.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = TABLE.iter().map(|strategy| strategy.name.into()).collect();
        for strategy in &self.own {
            if !names.iter().any(|name| name.eq_ignore_ascii_case(strategy.name())) {
                names.push(strategy.name().into());
            }
        }
        names
    }
}

impl fmt::Debug for Strategies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
