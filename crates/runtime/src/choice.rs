//! The hops that a body chooses (`after = { chosen = [...] }` of the operations that it may trigger).

use std::fmt;

use hyoshi_model::{HopChoice, OperationId};

/// The choice of the job that runs, among the hops of its operation.
#[derive(Debug, Default)]
pub(crate) struct ChosenBits {
    /// In the order of the bits.
    targets: Vec<OperationId>,
    bits: u64,
}

impl ChosenBits {
    pub fn new(choices: &[HopChoice]) -> ChosenBits {
        ChosenBits { targets: choices.iter().map(|choice| choice.to).collect(), bits: 0 }
    }

    /// Adds the hop to the operation that `is_meant`. False if there is none.
    pub fn choose(&mut self, is_meant: impl Fn(OperationId) -> bool) -> bool {
        let bits = self.targets.iter().zip(0..).filter(|(to, _)| is_meant(**to)).map(|(_, bit)| 1 << bit);
        let chosen = bits.fold(0, |chosen, bit: u64| chosen | bit);
        self.bits |= chosen;
        chosen != 0
    }

    /// The choice, as in [`Input::Choose`](hyoshi_trace::Input::Choose). The next job begins with none.
    pub fn take(&mut self) -> u64 {
        std::mem::take(&mut self.bits)
    }
}

/// A body chose an operation that the system file does not let it choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChooseError {
    /// The operation of the body.
    pub operation: String,
    /// The name that it chose.
    pub name: String,
}

impl fmt::Display for ChooseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChooseError { operation, name } = self;
        write!(
            f,
            "`{operation}` cannot choose `{name}`: write after = {{ chosen = [\"{operation}\"] }} in \
             [operation.{name}] of the system file"
        )
    }
}

impl std::error::Error for ChooseError {}
