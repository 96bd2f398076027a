//! The handles of a run, for operators and for threads of the program.

use crate::admissions::AdmissionControl;
use crate::chain_threads::ChainThreads;
use crate::contract_control::ContractControl;
use crate::link_monitor::LinkAccessSlot;
use crate::machine_load::MachineLoad;

/// The handles of a run. Clones share the run.
#[derive(Clone, Debug)]
pub struct RunHandles {
    /// The distributable threads of its chains.
    pub threads: ChainThreads,
    /// Its operations on standby.
    pub admissions: AdmissionControl,
    /// Its contracts.
    pub contracts: ContractControl,
    /// For the connections to the nodes of other hosts.
    pub links: LinkAccessSlot,
    /// The load of the machine.
    pub machine: MachineLoad,
}
