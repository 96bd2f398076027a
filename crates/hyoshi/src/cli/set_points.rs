//! Set points of feedback loops with `utilisation = "analysis"`: by analysis, or from a recording.

use hyoshi_model::{LawResult, System};
use hyoshi_sched::{Plan, analysis};

/// The name under which a recording stores the utilisations that analysis has determined.
const RECORDED: &str = "utilisations by analysis";

/// For each loop the greatest utilisation without misses, in parts per million of the hard cap; or the reason why there
/// is none, and the remedy.
pub(super) fn by_analysis(system: &System, plan: &Plan) -> Vec<LawResult<u32>> {
    let found = analysis::set_points(system, plan).into_iter().zip(&system.feedback);
    let of_cap = found.map(|(found, one)| {
        let cap = u64::from(system.processor(one.processor).hard_cap.ppm.max(1));
        let bound = found.map_err(|none| {
            let epoch = if system.epochs.len() > 1 { format!("in region `{}`: ", none.epoch) } else { String::new() };
            (format!("{epoch}{}", none.why), format!("{}; or write a percentage", none.why.remedy()))
        })?;
        Ok((bound * 1_000_000 / cap).min(1_000_000) as u32)
    });
    of_cap.collect()
}

/// The utilisations as a named text for a recording: a line for each loop with one.
pub(super) fn to_record(system: &System, found: &[LawResult<u32>]) -> Option<(String, String)> {
    let mut text = String::new();
    for (found, one) in found.iter().zip(&system.feedback).filter(|(_, one)| one.utilisation_analysed) {
        if let Ok(ppm) = found {
            text += &format!("{ppm} {}\n", system.processor(one.processor).name);
        }
    }
    (!text.is_empty()).then(|| (RECORDED.into(), text))
}

/// The utilisations in a recording with these texts.
pub(super) fn recorded(files: &[(String, String)], system: &System) -> Vec<LawResult<u32>> {
    let text = files.iter().find(|(name, _)| name == RECORDED).map_or("", |(_, text)| text);
    let find = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (ppm, _) = lines.find(|(_, of)| *of == name)?;
        ppm.parse().ok().filter(|ppm| *ppm <= 1_000_000)
    };
    let of_loop = |name: &str| {
        find(name).ok_or_else(|| {
            let why = format!("the recording lacks the utilisation of `{name}` by analysis");
            (why, "it was edited or damaged; record again".into())
        })
    };
    system.feedback.iter().map(|one| of_loop(&system.processor(one.processor).name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::{ReadContext, SetPointAnalysis, read_with};
    use hyoshi_sched::Strategies;

    const TEXT: &str = "name = 'loop'\n[processor.my-cpu]\nstrategy = 'EDF'\npreemption = 'full'\ncap = '100%'\n\
        hard_cap = '100%'\n[feedback.my-cpu]\nalgorithm = 'FC-U'\nutilisation = 'analysis'\nmargin = '5%'\n\
        [operation.a]\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n";

    fn read(analysis: &dyn Fn(&System) -> Vec<LawResult<u32>>) -> Result<System, String> {
        let context = ReadContext { set_points: Some(SetPointAnalysis(analysis)), ..ReadContext::default() };
        read_with(TEXT, "loop.toml", None, &context).map(|loaded| loaded.system).map_err(|errors| errors.to_string())
    }

    #[test]
    fn a_recording_has_the_utilisations_of_its_run() {
        let by_analysis = |system: &System| by_analysis(system, &Plan::new(system, &Strategies::built_in()).unwrap());
        let system = read(&by_analysis).unwrap();
        assert_eq!(system.feedback[0].utilisation_ppm, 950_000);
        let files = [to_record(&system, &by_analysis(&system)).unwrap()];
        assert_eq!(files[0].1, "1000000 my-cpu\n");
        assert_eq!(read(&|system| recorded(&files, system)), Ok(system));
        // The recording counts, not what this program would find.
        let other = [(files[0].0.clone(), files[0].1.replace("1000000", "600000"))];
        assert_eq!(read(&|system| recorded(&other, system)).unwrap().feedback[0].utilisation_ppm, 550_000);
        let error = read(&|system| recorded(&[], system)).unwrap_err();
        assert!(error.contains("the recording lacks the utilisation of `my-cpu` by analysis"), "{error}");
    }
}
