//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod invariants;

mod calls;
mod contract_settings;
mod contracts;
mod diagnostics;
mod hostile;
mod meaning;
mod qoskets;
mod rates;
mod reference;
mod writing;
