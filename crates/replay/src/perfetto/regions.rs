//! The tracks of contracts: one for the regions of each level, so that slices of one track never overlap.

use std::io::Write;

use hyoshi_model::{Contract, Instant, ProcessorId};

use super::wire::{event, track};
use super::{Export, NAMES, REGION, process};

impl<W: Write> Export<'_, W> {
    /// A track for the top level of each contract, and one for each region that contains others.
    pub(super) fn contract_tracks(&mut self) {
        let system = self.system;
        for (place, contract) in (0..).zip(&system.contracts) {
            let mut levels: Vec<Option<u16>> = contract.regions.iter().map(|region| region.rules.parent).collect();
            levels.sort_unstable();
            levels.dedup();
            for parent in levels {
                let within =
                    parent.map_or(String::new(), |parent| format!("/{}", contract.regions[usize::from(parent)].name));
                let name = format!("contract {}{within}", contract.name);
                self.track(level(place, parent), &name, |descriptor| {
                    descriptor.number(track::PARENT, process(contract.processor));
                });
            }
        }
    }

    /// A level of a contract changes its active region.
    pub(super) fn region(
        &mut self,
        processor: ProcessorId,
        now: Instant,
        contract: u16,
        from: Option<u16>,
        to: Option<u16>,
    ) {
        if let Some(from) = from.filter(|from| self.regions.remove(&(contract, *from)).is_some()) {
            self.region_ends(now, contract, from);
        }
        let system = self.system;
        let Some(declared) = system.contracts.get(usize::from(contract)) else { return };
        let Some((to, region)) = to.and_then(|to| Some((to, declared.regions.get(usize::from(to))?))) else { return };
        if self.regions.insert((contract, to), processor).is_some() {
            return;
        }
        let before: usize = system.contracts.iter().take(usize::from(contract)).map(regions_of).sum();
        let name = NAMES.len() + 1 + system.operations.len() + before + usize::from(to);
        self.slice(now, level(contract, region.rules.parent), event::BEGIN, |event| {
            event.number(event::NAME_IID, name as u64).number(event::CATEGORY_IID, REGION);
        });
    }

    /// Ends the slices of regions that are active at the end.
    pub(super) fn close_regions(&mut self) {
        for ((contract, region), processor) in std::mem::take(&mut self.regions) {
            self.ahead = self.processors[processor.index()].ahead;
            self.region_ends(self.last, contract, region);
        }
    }

    fn region_ends(&mut self, now: Instant, contract: u16, region: u16) {
        let parent = self.system.contracts[usize::from(contract)].regions[usize::from(region)].rules.parent;
        self.slice(now, level(contract, parent), event::END, |_| ());
    }
}

fn regions_of(contract: &Contract) -> usize {
    contract.regions.len()
}

/// The track of a level.
fn level(contract: u16, parent: Option<u16>) -> u64 {
    6 << 56 | u64::from(contract) << 32 | parent.map_or(0, |parent| u64::from(parent) + 1)
}
