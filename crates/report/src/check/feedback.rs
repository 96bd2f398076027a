//! What analysis says about feedback loops before they run.

use hyoshi_control::feedback::{ControllerGains, FeedbackSettings, LoopModel, RateLimit};
use hyoshi_model::{
    ContractAction, ContractSetting, FeedbackAlgorithm, FeedbackLoop, OperationId, ProcessorId, Setting, Share, Span,
    StartRates, System,
};
use hyoshi_sched::analysis::Report;
use serde::Serialize;

use super::levels::{self, LevelCheck, LoopTask};
use crate::feedback::LatencySummary;
use crate::figures::{count, nanos, percent};
use crate::terminal::TerminalStyle;
use crate::terminal::grid::{CellValue, Tone, column, grid};

/// A loop before it runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoopCheck {
    /// Its processor.
    pub processor: String,
    /// Its algorithm.
    pub algorithm: &'static str,
    /// The utilisation at which it comes to rest, as a part of the hard cap. With a latency it is the upper limit.
    pub target_ppm: u64,
    /// Whether analysis determined the set point of the utilisation.
    pub set_by_analysis: bool,
    /// The utilisation up to which analysis excludes misses at every rate; `None` if no bound applies.
    pub bound_ppm: Option<u64>,
    /// Why no bound applies.
    #[serde(skip)]
    unbounded: Option<String>,
    /// The gain (actual over declared execution time) below which it is stable.
    pub stable_below: f64,
    /// The gain up to which the utilisation does not overshoot.
    pub smooth_up_to: f64,
    /// The settling time in samples, if jobs need `ga` times their declared time; `None` if it does not settle, or if it
    /// depends on a latency.
    pub settles_after: Option<u32>,
    /// The greatest factor by which all execution times can grow at once without overload.
    pub largest_step: f64,
    /// The limit of the rates that keeps it from its set point at the gain `ga`.
    pub unreachable: Option<&'static str>,
    /// With service levels: the declared utilisation at the lowest rates and levels, as a part of the hard cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lowest_ppm: Option<u64>,
    /// The service levels that fit in the set point at the declared times.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelCheck>,
    /// The latency that it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyCheck>,
    /// The operations on standby. The other figures do not include them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standby: Vec<String>,
    /// Those of them that do not fit even alone.
    #[serde(skip)]
    misfits: Vec<String>,
    /// Whether it can fill the processor, so that only the caps leave time for other work.
    pub may_starve: bool,
    /// The greatest ratio of the times in `takes` to the worst case, of an adapted operation in any epoch.
    #[serde(skip)]
    takes: f64,
    /// Operations whose load changes with adapted rates, but that the loop's model omits.
    #[serde(skip)]
    omitted: Vec<String>,
}

/// A latency before the loop runs. How it depends on the load is unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyCheck {
    /// The set point.
    #[serde(flatten)]
    pub set: LatencySummary,
    /// The most by which one sample changes the total of declared utilisation because of the latency.
    pub largest_change_ppm: u64,
    /// The number of latencies in a sampling period at the lowest rates; `None` if requests release the jobs.
    pub least_jobs: Option<u64>,
    /// The longest declared execution time of the jobs that end the latency.
    pub declared_ns: u64,
}

impl LatencyCheck {
    fn new(system: &System, of: &FeedbackLoop, model: &LoopModel, cap: f64) -> Option<LatencyCheck> {
        let (set, band) = (of.latency.as_ref()?, model.latency_band()?);
        let ends = set.ends(system).iter().map(|id| system.setting(0, *id));
        let jobs = |slowest: Span| of.period.as_nanos().checked_div(slowest.as_nanos());
        Some(LatencyCheck {
            set: LatencySummary::new(system, of)?,
            largest_change_ppm: (band * cap * 1e6).round() as u64,
            least_jobs: ends.clone().map(|setting| jobs(setting.slowest)).sum(),
            declared_ns: ends.map(|setting| setting.wcet.as_nanos()).max().unwrap_or(0),
        })
    }

    fn remarks(&self) -> Vec<String> {
        let set = &self.set;
        let mut remarks = vec![
            format!(
                "the utilisation is lower if the quantile {} is above {}; analysis does not know at which load",
                set.name(),
                nanos(set.at_ns)
            ),
            format!(
                "because of the latency the total changes by at most {} in a sample; if it swings, raise `gl`",
                percent(self.largest_change_ppm)
            ),
        ];
        if let Some(jobs) =
            self.least_jobs.filter(|jobs| jobs.saturating_mul(u64::from(1_000_000 - set.quantile_ppm)) < 1_000_000)
        {
            let ends = if jobs == 1 { "job ends" } else { "jobs end" };
            remarks.push(format!(
                "at the lowest rates {} {ends} in a sampling period: then the quantile is the longest latency",
                count(jobs)
            ));
        }
        if self.declared_ns > set.at_ns {
            let declared = nanos(self.declared_ns);
            remarks.push(format!("a worst case of {declared} is above the latency {}: raise `at`", nanos(set.at_ns)));
        }
        remarks
    }
}

/// All loops of one processor each.
pub(super) fn loops(system: &System, report: &Report) -> Vec<LoopCheck> {
    of_one_processor(system).filter_map(|one| check(system, report, one)).collect()
}

fn of_one_processor(system: &System) -> impl Iterator<Item = &FeedbackLoop> {
    system.feedback.iter().filter(|one| !one.algorithm.is_of_group())
}

fn check(system: &System, report: &Report, of: &FeedbackLoop) -> Option<LoopCheck> {
    let analysed = report.scenes.first()?.processors.iter().find(|one| one.processor == of.processor)?;
    // The loop measures parts of the hard cap, so its model has these, too.
    let cap = f64::from(system.processor(of.processor).hard_cap.ppm) / 1e6;
    let bounded = bound(system, report, of.processor);
    let bound = bounded.as_ref().ok().copied();
    let part = |work: f64, period: u64| work / period.max(1) as f64 / cap;
    // The loop begins without those on standby.
    let (standby, tasks): (Vec<_>, Vec<_>) =
        LoopTask::all(system, of).into_iter().partition(|one| one.standby.is_some());
    let sum = |tasks: &[LoopTask], part: fn(&LoopTask) -> f64| tasks.iter().map(part).sum::<f64>() / cap;
    let mut range = [sum(&tasks, |one| one.task.least()), sum(&tasks, |one| one.task.most())];
    let mut start = sum(&tasks, LoopTask::start);
    // The load that the loop does not adapt, at the declared times.
    let one_client = |id| part(system.work_of_request(0, id) as f64, system.setting(0, id).period.as_nanos());
    let counted: f64 = system.with_clients_on(of.processor).map(one_client).sum();
    let waiting = sum(&standby, |one| one.task.most());
    let fixed = (analysed.utilisation_ppm as f64 / 1e6 / cap - range[1] - waiting - counted).max(0.0);
    // As many registered clients as the file allows.
    for id in system.with_clients_on(of.processor) {
        let Some(clients) = system.operation(id).clients else { continue };
        let work = system.work_of_request(0, id) as f64 * f64::from(clients.most);
        let highest = of.start == StartRates::Highest;
        range[0] += part(work, clients.longest.as_nanos());
        range[1] += part(work, clients.shortest.as_nanos());
        start += part(work, if highest { clients.shortest } else { clients.longest }.as_nanos());
    }
    let settings = FeedbackSettings::of(of).ok()?;
    let above = |part: f64| (part - fixed).max(1e-6);
    let gains = ControllerGains {
        utilisation: settings.gains.utilisation / cap,
        miss_ratio: settings.gains.miss_ratio / cap,
        latency: settings.gains.latency / cap,
    };
    let model = LoopModel {
        settings: FeedbackSettings {
            utilisation: Share::from_millionths((above(f64::from(of.utilisation_ppm) / 1e6) * 1e6).ceil() as u64),
            gains,
            ..settings
        },
        range,
        start,
        bound: above(bound.map_or(1.0, |ppm| ppm as f64 / 1e6)),
        slope: of.gains.gm * cap,
    };
    let target = model.target() + fixed;
    let levels = levels::fitting(system, &tasks, model.target() * cap);
    Some(LoopCheck {
        processor: analysed.name.clone(),
        algorithm: of.algorithm.name(),
        target_ppm: (target * 1e6).round() as u64,
        set_by_analysis: of.utilisation_analysed,
        bound_ppm: bound,
        unbounded: bounded.err(),
        stable_below: model.stable_below(),
        smooth_up_to: model.smooth_up_to(),
        settles_after: model.settling(of.gains.ga).ok().flatten().filter(|_| of.latency.is_none()),
        largest_step: 1.0 / target,
        unreachable: model.unreachable(of.gains.ga).map(|limit| match limit {
            RateLimit::Lowest => "lowest",
            RateLimit::Highest => "highest",
        }),
        may_starve: model.may_starve(of.gains.ga),
        takes: greatest_ratio(system, of),
        omitted: omitted(system, of),
        standby: standby.iter().filter_map(|one| Some(system.operation(one.standby?).name.clone())).collect(),
        misfits: misfits(system, of, &standby),
        latency: LatencyCheck::new(system, of, &model, cap),
        lowest_ppm: (!levels.is_empty()).then(|| ((range[0] + fixed) * 1e6).round() as u64),
        levels,
    })
}

/// See [`LoopCheck::misfits`].
fn misfits(system: &System, of: &FeedbackLoop, standby: &[LoopTask]) -> Vec<String> {
    let most = of.most_load_ppm(system.processor(of.processor).hard_cap.ppm);
    let others = (0..system.epochs.len()).map(|epoch| system.least_load_ppm(epoch, of.processor)).min().unwrap_or(0);
    let exceeds = |one: &&LoopTask| others + (one.task.least() * 1e6) as u64 > most;
    standby.iter().filter(exceeds).filter_map(|one| Some(system.operation(one.standby?).name.clone())).collect()
}

/// See [`LoopCheck::takes`].
fn greatest_ratio(system: &System, of: &FeedbackLoop) -> f64 {
    let adapted: Vec<_> = system.adapted_on(of.processor).into_iter().flat_map(|one| one.here).collect();
    let settings = system.epochs.iter().flat_map(|epoch| adapted.iter().map(|id| &epoch.settings[id.index()]));
    let ratio =
        |setting: &Setting| setting.execution_time.longest().as_nanos() as f64 / setting.wcet.as_nanos().max(1) as f64;
    settings.map(ratio).fold(0.0, f64::max)
}

/// See [`LoopCheck::omitted`]. Several roots release them, at least one of them at an adapted rate.
fn omitted(system: &System, of: &FeedbackLoop) -> Vec<String> {
    let has_rate = |root: &OperationId| system.adapted_by(*root).is_some() || system.operation(*root).clients.is_some();
    let is_omitted = |id: &OperationId| {
        let one = system.operation(*id);
        one.on == of.processor && one.roots.len() > 1 && one.roots.iter().any(has_rate)
    };
    system.operation_ids().filter(is_omitted).map(|id| system.operation(id).name.clone()).collect()
}

/// The utilisation up to which analysis excludes misses at every rate, as a part of the hard cap; or why there is none.
pub(super) fn bound(system: &System, report: &Report, processor: ProcessorId) -> Result<u64, String> {
    let cap = u64::from(system.processor(processor).hard_cap.ppm.max(1));
    let bound = report.miss_free_ppm(processor).map_err(|none| none.why.to_string())?;
    Ok((bound * 1_000_000 / cap).min(1_000_000))
}

/// The table of loops, and what follows from it in words.
pub(super) fn table(system: &System, report: &Report, look: TerminalStyle) -> Option<String> {
    let loops = loops(system, report);
    if loops.is_empty() {
        return None;
    }
    let columns = [
        column("processor"),
        column("algorithm"),
        column("rests at"),
        column("no miss up to"),
        column("stable below gain"),
        column("settles after").spare(1),
        column("step without overload").spare(2),
    ];
    let rows = loops.iter().map(|one| {
        let above = one.bound_ppm.is_none_or(|bound| one.target_ppm > bound);
        vec![
            CellValue::words(&one.processor),
            CellValue::words(one.algorithm),
            CellValue::figure(percent(one.target_ppm)).in_tone(if above { Tone::Worry } else { Tone::Plain }),
            CellValue::figure(one.bound_ppm.map_or("unknown".into(), percent)),
            CellValue::figure(format!("{:.2}", one.stable_below)),
            CellValue::figure(match (one.settles_after, &one.latency) {
                (Some(samples), _) => format!("{samples} samples"),
                (None, Some(_)) => "unknown".into(),
                (None, None) => "never".into(),
            }),
            CellValue::figure(format!("x {:.2}", one.largest_step)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let mut text = grid(look, &columns, &rows, crate::terminal::MOST_ROWS);
    for (one, of) in loops.iter().zip(of_one_processor(system)) {
        for line in remarks(one, of).into_iter().chain(set_by_regions(system, one, of)) {
            text.push_str(&look.wrap(&format!("  {}: {line}\n", one.processor)));
        }
    }
    Some(text)
}

/// Set points of regions with which misses are possible.
fn set_by_regions(system: &System, one: &LoopCheck, of: &FeedbackLoop) -> Vec<String> {
    let Some(bound) = one.bound_ppm else { return Vec::new() };
    let mut remarks = Vec::new();
    for contract in &system.contracts {
        for (region, action) in contract.regions.iter().flat_map(|one| one.actions.iter().map(move |to| (one, to))) {
            match action {
                ContractAction::Set { setting, to }
                    if *setting == ContractSetting::Utilisation(of.processor) && u64::from(*to) > bound =>
                {
                    remarks.push(format!(
                        "misses are possible at the set point of region `{}` of `{}`, {}; analysis excludes them up to {}",
                        region.name,
                        contract.name,
                        percent((*to).into()),
                        percent(bound)
                    ));
                }
                _ => {}
            }
        }
    }
    remarks.truncate(MOST_REMARKS);
    remarks
}

/// Remarks about set points of regions.
const MOST_REMARKS: usize = 8;

/// What a user should know about a loop.
fn remarks(one: &LoopCheck, of: &FeedbackLoop) -> Vec<String> {
    let mut remarks = Vec::new();
    let ga = of.gains.ga;
    if one.set_by_analysis {
        remarks.push(format!("the set point of {} is from this analysis", percent(of.utilisation_ppm.into())));
    }
    match one.bound_ppm {
        Some(bound) if one.target_ppm > bound && of.algorithm != FeedbackAlgorithm::FcM => {
            remarks.push(format!(
                "misses are possible at {}; analysis excludes them up to {}",
                percent(one.target_ppm),
                percent(bound)
            ));
        }
        Some(_) => {}
        None => remarks.push(format!(
            "no utilisation bound applies, so analysis cannot exclude misses: {}",
            one.unbounded.as_deref().unwrap_or_default()
        )),
    }
    if let Some(bound) = one.bound_ppm.filter(|bound| of.algorithm.uses_miss_ratio() && one.target_ppm > *bound) {
        remarks.push(format!(
            "the table assumes that misses begin at {}, the bound of the analysis; if they begin at a higher utilisation, \
             the loop rests above {} and settles later, and the step without overload is smaller: simulate it",
            percent(bound),
            percent(one.target_ppm)
        ));
    }
    if one.may_starve {
        remarks.push("FC-M can fill the CPU: only `cap` and `hard_cap` leave time for other work".into());
    }
    if ga.max(one.takes) >= one.stable_below {
        let (times, why) = if ga >= one.stable_below { (ga, "") } else { (one.takes, ", as in `takes`") };
        remarks.push(format!("unstable if jobs need {times:.2} times their worst case{why}: raise `ga`"));
    }
    if let [first, rest @ ..] = &one.omitted[..] {
        let rest = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        remarks.push(format!(
            "several operations with adapted rates lead to {first}{rest}: the loop's model omits this load, and may be \
             unstable; let one operation lead to it, or fix a rate"
        ));
    }
    if let (Some(lowest), false) = (one.lowest_ppm, one.levels.is_empty()) {
        let fit = one.levels.iter().map(|one| format!("{} {}", one.operation, one.level)).collect::<Vec<_>>();
        remarks.push(format!("levels that fit if jobs need their worst case: {}", fit.join(", ")));
        remarks.push(format!("{} at the lowest levels and rates", percent(lowest)));
    }
    if !one.standby.is_empty() {
        remarks.push(format!(
            "on standby: {}; proofs count their jobs, the load at the lowest rates does not",
            one.standby.join(", ")
        ));
    }
    if !one.misfits.is_empty() {
        remarks.push(format!(
            "the loop can never admit {}: at the lowest rates the load would be above the set point",
            one.misfits.join(", ")
        ));
    }
    match one.unreachable {
        Some("lowest") => remarks.push(format!(
            "overloaded even at the lowest rates if jobs need {ga} times their worst case: lower the rates"
        )),
        Some(_) => {
            remarks.push(format!("the highest rates stay below the set point if jobs need {ga} times their worst case"))
        }
        None => {}
    }
    remarks.extend(one.latency.iter().flat_map(LatencyCheck::remarks));
    let reaches = one.unreachable != Some("lowest") && one.omitted.is_empty();
    if let Some(samples) = one.settles_after.filter(|_| reaches) {
        let time = u64::from(samples).saturating_mul(of.period.as_nanos());
        remarks.push(format!("settles within {} if jobs need {ga} times their worst case", nanos(time)));
    }
    remarks
}
