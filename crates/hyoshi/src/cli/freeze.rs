//! `hyoshi run --freeze FILE`: the system with the rates that its feedback loops have found, and without the loops.

use std::collections::BTreeMap;
use std::path::Path;

use hyoshi_model::{Deadline, Setting, Span, System, write};
use hyoshi_report::save;
use hyoshi_trace::FeedbackHistory;

use super::CliError;
use super::output::cannot_write;

/// Writes the system with fixed rates.
pub(super) fn freeze(path: &Path, system: &System, histories: &[FeedbackHistory]) -> Result<(), CliError> {
    let frozen = write(&frozen(system, histories));
    save(path, &frozen).map_err(|error| cannot_write("the frozen rates", &error.path, &error.source))
}

fn frozen(system: &System, histories: &[FeedbackHistory]) -> System {
    let mut rates: Vec<Option<Span>> = vec![None; system.operations.len()];
    for one in &system.feedback {
        let found: BTreeMap<_, _> = histories
            .get(one.processor.index())
            .map_or_else(BTreeMap::new, |found| found.periods().map(|(root, period, _)| (root, period)).collect());
        for (place, adapted) in system.adapted_on(one.processor).into_iter().enumerate() {
            let start = one.start.period_of(place, system.setting(0, adapted.root));
            let period = found.get(&adapted.root).copied().unwrap_or(start);
            adapted.here.iter().chain(&adapted.elsewhere).for_each(|id| rates[id.index()] = Some(period));
        }
    }
    system.clone().with(|contents| {
        contents.feedback.clear();
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
    use hyoshi_model::{Instant, OperationId, ProcessorId, read};
    use hyoshi_trace::{DispatchDecision, FeedbackHistories, TraceEvent};

    #[test]
    fn found_rates_are_fixed_and_the_loop_is_gone() {
        let text = "name = 'one'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
            [operation.a]\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.b]\nafter = { all = ['a'] }\nwcet = '1ms'\n\
            [operation.c]\nrate = ['2Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.d]\nrate = '5Hz'\nwcet = '1ms'\n";
        let system = read(text, "one.toml", None).unwrap().system;
        let mut histories = FeedbackHistories::new(&system);
        let retime = DispatchDecision::Retime { operation: OperationId(0), period: Span::from_millis(250) };
        histories.event(ProcessorId(0), Instant::ZERO, &TraceEvent::Decision(retime));
        let written = write(&frozen(&system, histories.all()));
        let again = read(&written, "frozen.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}"));
        assert!(again.warnings.is_empty(), "{:?}", again.warnings);
        let period = |id: u32| again.system.setting(0, OperationId(id)).period;
        assert_eq!([0, 1, 2, 3].map(period), [250, 250, 500, 200].map(Span::from_millis));
        assert!(again.system.feedback.is_empty());
    }
}
