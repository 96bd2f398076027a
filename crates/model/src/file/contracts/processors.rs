//! Settings of a processor that a region sets: the set points of its feedback loop, and one of two strategies.

use super::{Addressed, ContractReader};
use crate::contract::{ContractAction, ContractSetting};
use crate::file::log::{AtPlace, Log};
use crate::file::names::Names;
use crate::file::table::Table;
use crate::file::value::{InputValue, shortened};
use crate::ids::ProcessorId;

impl ContractReader<'_, '_> {
    /// `feedback.NAME.utilisation` or `miss_ratio`.
    pub(super) fn set_point(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        address: &Addressed<'_>,
    ) -> Option<ContractAction> {
        let contents = self.contents;
        let of_loop = |one: &crate::FeedbackLoop| contents.processor(one.processor).name.as_str();
        let names = Names::new("feedback", contents.feedback.iter().map(of_loop));
        let found = names.find(log, AtPlace::new(address.name, address.place))?;
        let one = &contents.feedback[found as usize];
        let setting = match address.key {
            "utilisation" => ContractSetting::Utilisation(one.processor),
            _ => ContractSetting::MissRatio(one.processor),
        };
        if !setting.is_controlled_by(one.algorithm) {
            let (key, algorithm) = (address.key, one.algorithm.name());
            let (message, help) = match one.algorithm.is_of_group() {
                true => {
                    let name = shortened(address.name);
                    (format!("`{name}` is in a group, which has its set points"), "use a loop of one processor")
                }
                false => (
                    format!("{algorithm} does not control `{key}`"),
                    "choose an algorithm that controls it, or set another set point",
                ),
            };
            log.error(address.place, message).label("a contract cannot set it").help(help);
            return None;
        }
        let to = table.required(log, "to", InputValue::share_ppm)?;
        if to.value == 0 || to.value > 1_000_000 {
            log.error(to.place, format!("`{}` must be above 0% and at most 100%", address.key))
                .help("for example, write to = \"60%\"");
            return None;
        }
        self.sets_on(one.processor);
        Some(ContractAction::Set { setting, to: to.value })
    }

    /// `processor.NAME.strategy`: one of its two.
    pub(super) fn strategy(
        &mut self,
        log: &mut Log,
        table: &Table<'_>,
        address: &Addressed<'_>,
    ) -> Option<ContractAction> {
        let contents = self.contents;
        let names = Names::new("processor", contents.processors.iter().map(|one| one.name.as_str()));
        let id = ProcessorId(names.find(log, AtPlace::new(address.name, address.place))?);
        let processor = contents.processor(id);
        let name = shortened(address.name);
        let Some(second) = &processor.overload else {
            log.error(address.place, format!("`{name}` has one strategy"))
                .label("nothing to choose")
                .help("write two for the processor, such as strategy = [\"RMS\", \"RMS+MLF\"]");
            return None;
        };
        let to = table.required(log, "to", InputValue::text)?;
        let both = [&processor.strategy, &second.strategy];
        let Some(place) = both.iter().position(|one| one.eq_ignore_ascii_case(to.value)) else {
            log.error(to.place, format!("`{}` is not a strategy of `{name}`", shortened(to.value)))
                .help(format!("write \"{}\" or \"{}\"", both[0], both[1]));
            return None;
        };
        self.sets_on(id);
        Some(ContractAction::Set { setting: ContractSetting::Strategy(id), to: place as u32 })
    }

    fn sets_on(&mut self, processor: ProcessorId) {
        self.processor = self.processor.or(Some(processor));
    }
}
