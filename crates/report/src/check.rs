//! The result of `check`, as tables and as JSON.
//!
//! The tables show each operation and chain once, in its worst region or change of regions; JSON has every scene.

use std::collections::BTreeSet;

use crossterm::style::Color;
use hyoshi_control::file::HostAdmission;
use hyoshi_model::{OperationId, System, Trigger};
use hyoshi_sched::analysis::{
    CarrierReport, ChainReport, CountedFrom, Missing, OperationReport, Outcome, OutcomeScope, Report, Requirement,
    SceneReport, Sensitivity, UtilisationBound, Verdict,
};
use serde::Serialize;

pub mod contracts;
pub mod feedback;
pub mod groups;
mod levels;
mod margins;
mod programs;

use crate::figures::{counted, nanos, percent, printable};
use crate::input::ReportNote;
use crate::names::{label, template};
use crate::summary::{Head, SCHEMA};
use crate::terminal::grid::{CellValue, Tone, column, grid};
use crate::terminal::{Detail, MOST_ROWS, TerminalStyle, notes};

/// A checked system, and the result.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    /// The command line.
    pub command: &'a str,
    /// The system.
    pub system: &'a System,
    /// The report of the analysis.
    pub report: &'a Report,
    /// Notes, such as the scheduling costs in use.
    pub notes: &'a [ReportNote],
    /// If a requirement fails: a behaviour in which it misses.
    pub counterexample: Option<&'a CounterexampleSummary>,
    /// The margins, if requested.
    pub sensitivity: Option<&'a Sensitivity>,
    /// The admission of programs under the CPU broker, host by host.
    pub admissions: &'a [HostAdmission],
    /// In a terminal: the analyses and their assumptions.
    pub explain: bool,
    /// In a terminal: how many notes.
    pub detail: Detail,
}

/// A behaviour with a miss.
#[derive(Clone, Debug, Serialize)]
pub struct CounterexampleSummary {
    /// The operation, processor or chain that misses.
    pub of: String,
    /// `operation`, `processor` or `chain`.
    pub kind: &'static str,
    /// The region of the system's file that it is of.
    pub region: String,
    /// How it fails.
    pub reason: String,
    /// How long it is simulated.
    pub duration_ns: u64,
    /// Its file, if it was written.
    pub file: Option<String>,
    /// The job that misses, if it was simulated.
    pub job: Option<String>,
    /// The time of the miss.
    pub at_ns: Option<u64>,
}

/// The JSON form: the analysis's own report, with a head.
#[derive(Serialize)]
struct Json<'a> {
    hyoshi: Head,
    holds: bool,
    verdict: String,
    notes: &'a [ReportNote],
    #[serde(skip_serializing_if = "Option::is_none")]
    counterexample: Option<&'a CounterexampleSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sensitivity: Option<&'a Sensitivity>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reservations: Vec<programs::HostJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    feedback: Vec<feedback::LoopCheck>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<groups::GroupCheck>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    contract_regions: Vec<contracts::RegionCheck>,
    #[serde(flatten)]
    report: Report,
}

impl std::fmt::Display for CounterexampleSummary {
    /// How to see it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.file, &self.job, self.at_ns) {
            (Some(file), Some(job), Some(at)) => {
                write!(f, "See it: {job} misses at {}: hyoshi sim {file}", nanos(at))
            }
            _ => write!(f, "See it: --counterexample miss.toml writes a system in which {} misses", self.of),
        }
    }
}

/// An operation or chain in its worst scene.
struct WorstScene<'a, T> {
    scene: &'a SceneReport,
    judged: &'a T,
    instances: BTreeSet<&'a str>,
}

/// Operations and chains.
trait CheckedRequirement {
    fn verdict(&self) -> &Verdict;
    fn slack_ns(&self) -> Option<i64>;

    /// Greater is worse: failed, then not proved, then the least slack.
    fn badness(&self) -> (u8, i64) {
        let rank = match self.verdict() {
            Verdict::Fails { .. } => 2,
            Verdict::Unknown { .. } => 1,
            Verdict::Proved => 0,
        };
        (rank, self.slack_ns().map_or(i64::MAX, i64::saturating_neg))
    }
}

impl CheckedRequirement for OperationReport {
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
    fn slack_ns(&self) -> Option<i64> {
        self.slack_ns
    }
}

impl CheckedRequirement for ChainReport {
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
    fn slack_ns(&self) -> Option<i64> {
        self.slack_ns
    }
}

impl<'a> Checked<'a> {
    /// A check without notes.
    pub fn new(command: &'a str, system: &'a System, report: &'a Report) -> Self {
        Checked {
            command,
            system,
            report,
            notes: &[],
            counterexample: None,
            sensitivity: None,
            admissions: &[],
            explain: false,
            detail: Detail::Brief,
        }
    }

    /// Whether all requirements that count are proved, and every program has what it needs.
    pub fn holds(&self) -> bool {
        self.outcome() == Outcome::Holds
    }

    /// The outcome of the analysis (none for programs alone), and of the admission of programs.
    fn outcome(&self) -> Outcome {
        match self.report.outcome {
            Outcome::Holds => self.admitted(),
            _ if self.programs_alone() => self.admitted(),
            other => other,
        }
    }

    fn admitted(&self) -> Outcome {
        match programs::refused(self.system, self.admissions) {
            None => Outcome::Holds,
            Some(_) => Outcome::DoesNotHold,
        }
    }

    fn programs_alone(&self) -> bool {
        self.system.operations.is_empty() && !self.admissions.is_empty()
    }

    /// The JSON form; `docs/json.md` describes every field.
    pub fn json(&self) -> String {
        let json = Json {
            hyoshi: Head {
                schema: SCHEMA,
                version: env!("CARGO_PKG_VERSION"),
                verb: "check".into(),
                command: self.command.into(),
                started_unix_ns: None,
            },
            holds: self.holds(),
            verdict: self.sentence(),
            notes: self.notes,
            counterexample: self.counterexample,
            sensitivity: self.sensitivity,
            reservations: programs::json(self.system, self.admissions),
            feedback: feedback::loops(self.system, self.report),
            groups: groups::groups(self.system, self.report),
            contract_regions: contracts::regions(self.system),
            report: Report { outcome: self.outcome(), ..self.report.clone() },
        };
        // As of a run: nothing in it can fail to be written.
        let mut text = serde_json::to_string_pretty(&json).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The check for a terminal.
    pub fn terminal(&self, look: TerminalStyle) -> String {
        let colour = match self.outcome() {
            Outcome::Holds => Color::Green,
            Outcome::DoesNotHold => Color::Red,
            Outcome::Unknown => Color::Yellow,
        };
        let mut about = format!("check: {}", counted(self.system.operations.len() as u64, "operation", "operations"));
        if !self.admissions.is_empty() {
            about += &format!(", {}", counted(self.system.brokered.programs.len() as u64, "program", "programs"));
        }
        let title = format!("{}  {}\n", look.bold(&printable(&self.report.system)), look.quiet(&about));
        let mut text = look.wrap(&title) + "\n";
        text.push_str(&look.wrap(&format!("  {}\n", look.toned(&printable(&self.sentence()), colour))));
        if let Some(seen) = self.counterexample {
            text.push_str(&look.wrap(&format!("  {}\n", printable(&seen.to_string()))));
        }
        text.push_str(&notes(self.notes, look, self.detail));
        let mut section = |title: &str, body: Option<String>| {
            if let Some(body) = body {
                text.push_str(&format!("\n{}\n{body}", look.bold(title)));
            }
        };
        section("Operations, in their worst region", (!self.programs_alone()).then(|| self.operation_table(look)));
        section("Two strategies, each alone and across switches", self.strategy_table(look));
        section("Chains, in their worst region", self.chain_table(look));
        section("Processors", Some(self.processor_table(look) + &look.wrap(&self.utilisation_bounds())));
        section("Feedback loops", feedback::table(self.system, self.report, look));
        section("Groups of feedback loops", groups::table(self.system, self.report, look));
        section("Regions of contracts", contracts::table(self.system, look));
        section("Programs under the CPU broker", programs::table(self.system, self.admissions, look));
        if let Some(sensitivity) = self.sensitivity {
            section("Margins", Some(margins::table(sensitivity, look)));
        }
        if self.explain {
            section("Assumptions", Some(look.wrap(&self.assumptions())));
            section("Analyses", Some(look.wrap(&self.methods())));
        } else {
            let assumptions = counted(self.assumptions().lines().count() as u64, "assumption", "assumptions");
            let analyses = counted(self.methods().lines().count() as u64 / 2, "analysis", "analyses");
            let more = format!("This rests on {assumptions} and {analyses}: --explain lists them, with sources.");
            text.push_str(&look.wrap(&format!("\n{}\n", look.quiet(&more))));
        }
        text
    }

    /// The outcome, and the first thing that decided it.
    pub fn sentence(&self) -> String {
        let everything = self.report.counted == OutcomeScope::Everything;
        let what = if everything { "operation" } else { "critical operation and chain" };
        let (word, decides): (_, fn(&Verdict) -> bool) = match self.outcome() {
            Outcome::Holds if self.admissions.is_empty() => {
                return format!("Holds: every {what} is proved, in every region and change between them.");
            }
            Outcome::Holds if self.programs_alone() => return "Holds: every reservation is admitted.".to_string(),
            Outcome::Holds => {
                return format!(
                    "Holds: every {what} is proved, in every region and change between them, and every reservation admitted."
                );
            }
            Outcome::DoesNotHold => ("Does not hold", Verdict::fails),
            Outcome::Unknown => ("Unknown", |verdict| !verdict.is_proved()),
        };
        let operations = self.report.operations().filter(|(_, _, operation)| everything || operation.critical);
        let operations = operations.map(|(scene, _, operation)| (scene, &operation.name, &operation.verdict));
        let chains = self.report.scenes.iter().flat_map(|scene| scene.chains.iter().map(move |chain| (scene, chain)));
        let chains = chains.map(|(scene, chain)| (scene, &chain.name, &chain.verdict));
        // Whichever operation it is that is late where all of them count.
        let scenes = self.report.scenes.iter();
        let processors = scenes.flat_map(|scene| scene.processors.iter().map(move |one| (scene, one)));
        let processors = processors.filter(|(_, processor)| processor.counts(self.report.counted));
        let processors = processors.map(|(scene, processor)| (scene, &processor.name, &processor.verdict));
        match operations.chain(chains).chain(processors).find(|(_, _, verdict)| decides(verdict)) {
            Some((scene, name, verdict)) => {
                let why = reason(verdict).unwrap_or_default();
                let place =
                    if self.report.scenes.len() > 1 { format!(" in {}", scene_name(scene)) } else { String::new() };
                format!("{word}: {name}{place}: {why}.")
            }
            None => match programs::refused(self.system, self.admissions) {
                Some(refused) => format!("{word}: {refused}."),
                None => format!("{word}."),
            },
        }
    }

    fn operation_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("operation"),
            column("processor").if_any().spare(9),
            column("class"),
            column("level").spare(8),
            column("worst case").spare(7),
            column("period").spare(6),
            column("deadline").spare(2),
            column("bound"),
            column("counted from").if_any().spare(1),
            column("slack"),
            column("verdict"),
            column("region").if_any().spare(3),
            column("because").if_any(),
        ];
        let all = self.report.operations().map(|(scene, _, operation)| (scene, operation));
        let key = |operation: &OperationReport| (template(&operation.name).to_string(), operation.critical);
        let mut worst = worst(all, key, |operation| operation.name.as_str());
        if worst.len() > MOST_ROWS {
            worst.sort_by_key(|worst| core::cmp::Reverse(worst.judged.badness()));
        }
        let (regions, several) = (self.report.scenes.len() > 1, self.system.processors.len() > 1);
        let on = |name: &&str| self.system.operations.iter().find(|one| one.name == **name).map(|one| one.on);
        let processor = |worst: &WorstScene<'_, OperationReport>| {
            let all: BTreeSet<_> = worst.instances.iter().filter_map(on).collect();
            all.iter().map(|id| self.system.processor(*id).name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let rows = worst.iter().map(|worst| {
            let operation = worst.judged;
            let name = if worst.instances.len() > 1 { template(&operation.name) } else { &operation.name };
            vec![
                CellValue::words(label(name, worst.instances.len())),
                CellValue::words(if several { processor(worst) } else { String::new() }),
                CellValue::words(if operation.critical { "critical" } else { "" }),
                CellValue::figure(operation.level.to_string()),
                CellValue::time(operation.wcet_ns),
                CellValue::time(operation.period_ns),
                CellValue::time(operation.deadline_ns),
                CellValue::time_if_known(operation.bound_ns),
                CellValue::words(self.counted_from(operation)),
                slack(operation.slack_ns, operation.critical),
                CellValue::words(operation.verdict.word()),
                CellValue::words(place(worst.scene, &operation.verdict, regions)),
                CellValue::words(reason(&operation.verdict).unwrap_or_default()),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    /// The start of the deadline and bound of a triggered operation.
    fn counted_from(&self, one: &OperationReport) -> String {
        let operation = self.system.operation(one.operation);
        let root = |id: &OperationId| self.system.operation(*id).name.as_str();
        match (&operation.trigger, one.counted_from, &operation.roots[..]) {
            (Trigger::Periodic, ..) => String::new(),
            (_, CountedFrom::Release, _) => "its release".into(),
            (_, CountedFrom::Root, [only]) => root(only).into(),
            (Trigger::Any(_) | Trigger::Chosen(_), CountedFrom::Root, _) => "its root".into(),
            (_, CountedFrom::Root, [one, other]) => format!("{} or {}", root(one), root(other)),
            (_, CountedFrom::Root, _) => "its first root".into(),
        }
    }

    /// With two strategies: what is proved for each alone, and across switches.
    fn strategy_table(&self, look: TerminalStyle) -> Option<String> {
        let columns = [
            column("operation"),
            column("class"),
            column("first alone"),
            column("last alone"),
            column("across switches"),
        ];
        let both = |operation: &&OperationReport| operation.alone.len() == 2;
        let all = || self.report.operations().map(|(_, _, operation)| operation).filter(both);
        let mut groups: Vec<(&str, bool)> = Vec::new();
        for operation in all() {
            let group = (template(&operation.name), operation.critical);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        let rows: Vec<_> = groups
            .iter()
            .map(|(name, critical)| {
                let alike = || all().filter(|one| (template(&one.name), one.critical) == (*name, *critical));
                let alone = |index: usize| {
                    at_worst(alike().map(|one| (&one.alone[index].verdict, one.alone[index].bound_ns)), *critical)
                };
                let names: BTreeSet<&str> = alike().map(|one| one.name.as_str()).collect();
                let across = at_worst(alike().map(|one| (&one.verdict, one.bound_ns)), *critical);
                let shown = if names.len() > 1 { name } else { names.first().copied().unwrap_or(name) };
                vec![
                    CellValue::words(label(shown, names.len())),
                    CellValue::words(if *critical { "critical" } else { "" }),
                    alone(0),
                    alone(1),
                    across,
                ]
            })
            .collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }

    fn chain_table(&self, look: TerminalStyle) -> Option<String> {
        let columns = [
            column("chain"),
            column("demand"),
            column("limit"),
            column("bound"),
            column("slack"),
            column("verdict"),
            column("carried by").if_any().spare(2),
            column("region").if_any().spare(1),
            column("because").if_any(),
        ];
        let scenes = self.report.scenes.iter();
        let all = scenes.flat_map(|scene| scene.chains.iter().map(move |chain| (scene, chain)));
        let key = |chain: &ChainReport| (chain.name.clone(), demand(chain.requirement));
        let worst = worst(all, key, |chain| chain.name.as_str());
        let regions = self.report.scenes.len() > 1;
        let rows: Vec<_> = worst
            .iter()
            .map(|worst| {
                let chain = worst.judged;
                vec![
                    CellValue::words(&chain.name),
                    CellValue::words(demand(chain.requirement)),
                    CellValue::time(chain.limit_ns),
                    CellValue::time_if_known(chain.bound_ns),
                    slack(chain.slack_ns, true),
                    CellValue::words(chain.verdict.word()),
                    CellValue::words(if chain.carried_by == CarrierReport::Thread { "thread" } else { "" }),
                    CellValue::words(place(worst.scene, &chain.verdict, regions)),
                    CellValue::words(reason(&chain.verdict).unwrap_or_default()),
                ]
            })
            .collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }

    fn processor_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("processor"),
            column("region").if_any(),
            column("strategy").spare(3),
            column("utilisation"),
            column("critical").spare(2),
            column("verdict"),
            column("first").if_any(),
            column("because").if_any().spare(1),
        ];
        let regions = self.report.scenes.len() > 1;
        let scenes = self.report.scenes.iter();
        let rows = scenes.flat_map(|scene| scene.processors.iter().map(move |processor| (scene, processor)));
        let rows = rows.map(|(scene, processor)| {
            let over = |ppm: u64| if ppm > 1_000_000 { Tone::Worry } else { Tone::Plain };
            let (all, critical) = (processor.utilisation_ppm, processor.critical_utilisation_ppm);
            vec![
                CellValue::words(&processor.name),
                CellValue::words(if regions { scene_name(scene) } else { String::new() }),
                CellValue::words(match &processor.overload {
                    Some(overload) => format!("{}, {overload}", processor.strategy),
                    None => processor.strategy.clone(),
                }),
                CellValue::Figure(percent(all), over(all)),
                CellValue::Figure(percent(critical), over(critical)),
                CellValue::words(processor.verdict.word()),
                CellValue::words(processor.first.as_deref().unwrap_or_default()),
                // The columns before it name an operation that is not proved.
                CellValue::words(match &processor.verdict {
                    Verdict::Unknown { missing: Missing::Operation { .. } } => String::new(),
                    verdict => reason(verdict).unwrap_or_default(),
                }),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    /// The utilisation bounds of processors that they apply to, once for all scenes.
    fn utilisation_bounds(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for one in self.report.scenes.iter().flat_map(|scene| &scene.processors) {
            let test = |bound: &UtilisationBound| match bound {
                UtilisationBound::Yes { bound_ppm, met, .. } => Some((*bound_ppm, *met)),
                UtilisationBound::No { .. } => None,
            };
            let (Some((bound, liu_layland)), Some((_, hyperbolic))) = (test(&one.liu_layland), test(&one.hyperbolic))
            else {
                continue;
            };
            let word = |met: bool| if met { "proves it" } else { "is inconclusive" };
            let line = format!(
                "  {}: Liu and Layland's bound, {}, {}; the hyperbolic bound {}\n",
                printable(&one.name),
                percent(bound),
                word(liu_layland),
                word(hyperbolic)
            );
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let more = lines.len().saturating_sub(4);
        lines.truncate(4);
        lines.extend((more > 0).then(|| format!("  … and {more} more: --format json lists all\n")));
        lines.concat()
    }

    fn assumptions(&self) -> String {
        let all = self.report.scenes.iter().flat_map(|scene| &scene.processors);
        let all: BTreeSet<_> = all.flat_map(|processor| &processor.assumptions).collect();
        all.iter().map(|assumption| format!("  {assumption}\n")).collect()
    }

    fn methods(&self) -> String {
        let named = self.report.methods.iter().filter(|method| !method.source.is_empty());
        named.map(|method| format!("  {}\n    {}\n", method.name, method.source)).collect()
    }
}

/// Each group's worst member, in the order of first appearance.
fn worst<'a, T: CheckedRequirement, K: Ord>(
    all: impl Iterator<Item = (&'a SceneReport, &'a T)>,
    key: impl Fn(&T) -> K,
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<WorstScene<'a, T>> {
    let mut groups: Vec<WorstScene<'a, T>> = Vec::new();
    let mut place = std::collections::BTreeMap::new();
    for (scene, judged) in all {
        let place = *place.entry(key(judged)).or_insert_with(|| {
            groups.push(WorstScene { scene, judged, instances: BTreeSet::new() });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.instances.insert(name(judged));
        if judged.badness() > group.judged.badness() {
            (group.scene, group.judged) = (scene, judged);
        }
    }
    groups
}

/// The worst verdict of several, and the longest bound if all have one.
fn at_worst<'a>(all: impl Iterator<Item = (&'a Verdict, Option<u64>)>, counts: bool) -> CellValue {
    let badness = |verdict: &Verdict| (verdict.fails(), !verdict.is_proved());
    let worst = all.reduce(|one, other| {
        let verdict = if badness(other.0) > badness(one.0) { other.0 } else { one.0 };
        (verdict, one.1.zip(other.1).map(|(one, other)| one.max(other)))
    });
    let Some((verdict, bound)) = worst else { return CellValue::words("") };
    let tone = match verdict {
        Verdict::Fails { .. } if counts => Tone::Bad,
        Verdict::Fails { .. } => Tone::Worry,
        Verdict::Proved | Verdict::Unknown { .. } => Tone::Plain,
    };
    CellValue::Figure(format!("{} {}", verdict.word(), bound.map_or(String::new(), nanos)).trim_end().into(), tone)
}

fn slack(slack_ns: Option<i64>, counts: bool) -> CellValue {
    let tone = match slack_ns {
        Some(..0) if counts => Tone::Bad,
        Some(..0) => Tone::Worry,
        _ => Tone::Plain,
    };
    slack_ns.map_or(CellValue::figure(""), CellValue::signed_time).in_tone(tone)
}

fn reason(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Proved => None,
        Verdict::Fails { why } => Some(why.to_string()),
        Verdict::Unknown { missing } => Some(missing.to_string()),
    }
}

fn scene_name(scene: &SceneReport) -> String {
    if scene.change { format!("{} ending", scene.name) } else { scene.name.clone() }
}

/// The region, where there is more than one and it matters.
fn place(scene: &SceneReport, verdict: &Verdict, regions: bool) -> String {
    if regions && !verdict.is_proved() { scene_name(scene) } else { String::new() }
}

fn demand(requirement: Requirement) -> &'static str {
    match requirement {
        Requirement::Deadline => "deadline",
        Requirement::MaxAge => "max_age",
        Requirement::MaxReaction => "max_reaction",
    }
}
