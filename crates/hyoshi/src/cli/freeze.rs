//! `hyoshi run --freeze FILE`: the system with the rates that its feedback loops have found, and without the loops.

use std::collections::BTreeMap;
use std::path::Path;

use hyoshi_model::{Deadline, FeedbackLoop, HostId, OperationId, Setting, Span, System, write};
use hyoshi_report::save;

use super::CliError;
use super::output::cannot_write;

/// Writes the system with the rates that the loops of a host, or of all hosts, have found.
pub(super) fn freeze(
    path: &Path,
    system: &System,
    host: Option<HostId>,
    periods: &BTreeMap<OperationId, Span>,
) -> Result<(), CliError> {
    let frozen = write(&frozen(system, host, periods));
    save(path, &frozen).map_err(|error| cannot_write("the frozen rates", &error.path, &error.source))
}

/// Refuses a run without a loop: it finds no rates.
pub(super) fn can_freeze(file: &str, system: &System, host: Option<HostId>) -> Result<(), CliError> {
    if system.feedback.is_empty() {
        let error = CliError::new(format!("no rates to freeze: `{file}` has no feedback loop"));
        return Err(error.help("add [feedback.PROCESSOR], or omit --freeze"));
    }
    if let Some(host) = host
        && !system.feedback.iter().any(|one| runs(system, Some(host), one))
    {
        let name = &system.hosts[host.index()].name;
        let error = CliError::new(format!("no rates to freeze: no feedback loop runs on host `{name}`"));
        let there = &system.hosts[system.processor(system.computed_on(&system.feedback[0])).host.index()].name;
        return Err(error.help(format!("use --freeze in the process with `--host {there}`, which has a loop")));
    }
    if let Some(one) = system.operations.iter().find(|operation| operation.clients.is_some()) {
        let error = CliError::new(format!("cannot freeze the rates of the clients of `{}`", one.name));
        return Err(error.help("omit --freeze, or replace `clients` by `min_interval` in the file"));
    }
    if let Some(one) = system.operations.iter().find_map(|operation| operation.home) {
        let error = CliError::new(format!(
            "cannot freeze the rate of `{}`, which has several processors",
            system.operation(one).name
        ));
        return Err(error.help("omit --freeze, or name one processor in `on`"));
    }
    if let Some(one) = system.operations.iter().find(|operation| operation.standby) {
        let error = CliError::new(format!("cannot freeze the rate of `{}`, which is on standby", one.name));
        return Err(error.help("omit --freeze, or remove `standby` from the file"));
    }
    if let Some(one) = system.operations.iter().find(|operation| !operation.levels.is_empty()) {
        let error = CliError::new(format!("`{}` has service levels, which cannot be frozen", one.name));
        return Err(error.help("omit --freeze, or replace `levels` by `wcet` in the file"));
    }
    if let Some(one) = system.contracts.first() {
        let error = CliError::new(format!("contract `{}` changes settings, which cannot be frozen", one.name));
        return Err(error.help("omit --freeze, or remove the contracts from the file"));
    }
    Ok(())
}

/// Whether a host computes the rates of a loop.
fn runs(system: &System, host: Option<HostId>, one: &FeedbackLoop) -> bool {
    host.is_none_or(|host| system.processor(system.computed_on(one)).host == host)
}

/// `periods` has those found, by root.
fn frozen(system: &System, host: Option<HostId>, periods: &BTreeMap<OperationId, Span>) -> System {
    let mut rates: Vec<Option<Span>> = vec![None; system.operations.len()];
    let setters = system.rate_setters();
    for id in system.operation_ids() {
        let Some(root) = system.adapted_by(id) else { continue };
        let setter = setters.get(&root).map(|place| &system.feedback[*place]);
        let Some(one) = setter.filter(|one| runs(system, host, one)) else { continue };
        let period = periods.get(&root).copied();
        rates[id.index()] = Some(period.unwrap_or_else(|| one.start_of(system, root)));
    }
    system.clone().with(|contents| {
        contents.feedback.retain(|one| !runs(system, host, one));
        for epoch in &mut contents.epochs {
            let settings = epoch.settings.iter().zip(&rates);
            epoch.settings =
                settings.map(|(setting, rate)| rate.map_or(setting.clone(), |rate| fixed(setting, rate))).collect();
        }
    })
}

/// An epoch may have a narrower range.
fn fixed(setting: &Setting, period: Span) -> Setting {
    let period = period.clamp(setting.period, setting.slowest.max(setting.period));
    let deadline = match setting.deadline {
        Deadline::Own(_) if setting.deadline_adapts() => Deadline::Own(period),
        Deadline::Origin(_) if setting.deadline_adapts() => Deadline::Origin(period),
        declared => declared,
    };
    Setting { period, slowest: period, deadline, ..setting.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::read;

    #[test]
    fn found_rates_are_fixed_and_the_loop_is_gone() {
        let text = "name = 'one'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
            [operation.a]\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.b]\nafter = { all = ['a'] }\nwcet = '1ms'\n\
            [operation.c]\nrate = ['2Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.d]\nrate = '5Hz'\nwcet = '1ms'\n";
        let system = read(text, "one.toml", None).unwrap().system;
        let found = BTreeMap::from([(OperationId(0), Span::from_millis(250))]);
        let written = write(&frozen(&system, None, &found));
        let again = read(&written, "frozen.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}"));
        assert!(again.warnings.is_empty(), "{:?}", again.warnings);
        let period = |id: u32| again.system.setting(0, OperationId(id)).period;
        assert_eq!([0, 1, 2, 3].map(period), [250, 250, 500, 200].map(Span::from_millis));
        assert!(again.system.feedback.is_empty());
    }

    #[test]
    fn a_host_freezes_the_rates_of_its_own_loops() {
        let part = |name: &str| {
            format!(
                "[host.{name}]\nendpoints = ['tcp/127.0.0.1:7{}']\n[processor.{name}]\nhost = '{name}'\n\
                [feedback.{name}]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
                [operation.of_{name}]\non = '{name}'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n",
                name.len()
            )
        };
        let text = format!("name = 'two'\n[host.none]\n{}{}", part("one"), part("other"));
        let system = read(&text, "two.toml", None).unwrap().system;
        let found = BTreeMap::from([(OperationId(1), Span::from_millis(250))]);
        let [none, one, other] = [0, 1, 2].map(HostId);
        assert!(system.hosts[other.index()].name == "other" && can_freeze("two.toml", &system, Some(one)).is_ok());
        let refused = can_freeze("two.toml", &system, Some(none)).unwrap_err().message();
        assert!(refused.contains("no feedback loop runs on host `none`"), "{refused}");
        let frozen = frozen(&system, Some(other), &found);
        let range = |id: u32| {
            let setting = frozen.setting(0, OperationId(id));
            [setting.period, setting.slowest]
        };
        assert_eq!(range(0), [100, 1_000].map(Span::from_millis));
        assert_eq!(range(1), [250, 250].map(Span::from_millis));
        assert_eq!(frozen.feedback.len(), 1);
    }

    #[test]
    fn the_host_of_its_first_processor_freezes_all_rates_of_a_group() {
        let part = |name: &str| {
            format!(
                "[host.{name}]\n[processor.{name}]\nhost = '{name}'\n\
                [feedback.{name}]\nalgorithm = 'EUCON'\nutilisation = '70%'\n\
                [operation.of_{name}]\non = '{name}'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n"
            )
        };
        let after = "[operation.after]\non = 'other'\nafter = { all = ['of_one'] }\nwcet = '1ms'\n";
        let text = format!("name = 'two'\n{}{}{after}", part("one"), part("other"));
        let system = read(&text, "two.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let [one, other] = [0, 1].map(HostId);
        let refused = can_freeze("two.toml", &system, Some(other)).unwrap_err().message();
        assert!(refused.contains("no feedback loop runs on host `other`"), "{refused}");
        assert!(can_freeze("two.toml", &system, Some(one)).is_ok());
        let found = BTreeMap::from([0, 1].map(|root| (OperationId(root), Span::from_millis(250))));
        let frozen = frozen(&system, Some(one), &found);
        let periods = [0, 1, 2].map(|id| frozen.setting(0, OperationId(id)).period);
        assert_eq!((periods, frozen.feedback.len()), ([Span::from_millis(250); 3], 0));
    }
}
