//! `[mode.NAME]`: actions under a name. `{ mode = "NAME" }` in a region stands for all of them.

use std::cell::Cell;

use super::ContractReader;
use crate::contract::ContractAction;
use crate::file::expand::Operations;
use crate::file::limits;
use crate::file::log::{AtPlace, Log};
use crate::file::names::Names;
use crate::file::table::Table;
use crate::file::value::shortened;
use crate::ids::ProcessorId;
use crate::system::Contents;

/// A mode of the system.
pub(super) struct Mode<'a> {
    name: AtPlace<&'a str>,
    /// `None`, logged, if one is wrong.
    actions: Option<Vec<ContractAction>>,
    /// The processor of its first action.
    processor: Option<ProcessorId>,
    is_used: Cell<bool>,
}

/// The modes of a file. `None`, logged, if there are too many.
pub(super) fn read<'a>(
    log: &mut Log,
    top: &Table<'a>,
    contents: &Contents,
    operations: &Operations<'_>,
) -> Option<Vec<Mode<'a>>> {
    let tables = top.named(log, "mode");
    if let Some((name, _)) = tables.get(limits::MODES) {
        log.error(name.place, "too many modes").help(format!("a system has at most {}", limits::MODES));
        return None;
    }
    let mode = |(name, table): (AtPlace<&'a str>, Table<'a>)| {
        let mut reader = ContractReader { contents, operations, modes: None, processor: None, sound: true };
        let mut actions = reader.actions(log, &table).filter(|_| !table.misread);
        if actions.as_ref().is_some_and(Vec::is_empty) {
            log.error(name.place, format!("mode `{}` has no action", shortened(name.value)))
                .help("write do = [{ set = \"operation.NAME.enabled\", to = false }]");
            actions = None;
        }
        Mode { name, actions, processor: reader.processor, is_used: Cell::new(false) }
    };
    Some(tables.into_iter().map(mode).collect())
}

/// True if all are valid.
pub(super) fn are_sound(modes: &[Mode<'_>]) -> bool {
    modes.iter().all(|mode| mode.actions.is_some())
}

/// Warns about modes that no region uses.
pub(super) fn warn_unused(log: &mut Log, modes: &[Mode<'_>]) {
    for mode in modes.iter().filter(|mode| !mode.is_used.get()) {
        let name = shortened(mode.name.value);
        log.warn(mode.name.place, format!("no region uses mode `{name}`"))
            .help(format!("write do = [{{ mode = \"{name}\" }}] in a region, or remove the mode"));
    }
}

impl ContractReader<'_, '_> {
    /// The actions of `{ mode = "NAME" }`.
    pub(super) fn mode(&mut self, log: &mut Log, name: AtPlace<&str>) -> Option<Vec<ContractAction>> {
        let Some(modes) = self.modes else {
            log.error(name.place, "a mode cannot use another one").help("write the actions of the other mode");
            return None;
        };
        let found = Names::new("mode", modes.iter().map(|mode| mode.name.value)).find(log, name)?;
        let mode = &modes[found as usize];
        mode.is_used.set(true);
        self.processor = self.processor.or(mode.processor);
        mode.actions.clone()
    }
}
