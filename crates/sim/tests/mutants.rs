//! One deliberate error in each analysis, and the soundness test has to find it:
//! `cargo test -p hyoshi-sim --test suite mutants:: -- --ignored --nocapture`, half an hour; `MUTANTS=join.rs,merge.rs` tries those
//! of these files.
//!
//! Each is made in a copy of the sources; a test that would let one live shows less than it seems to. Errors known to
//! escape ten thousand systems of each strategy, and so not listed: one place too few in a join's queue, half the wait
//! at a sampled join, no blocking in a bound from an operation's own release, levels that a switch brings with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the analysis, what it says, what it is made to say, and what error that is.
struct Mutant {
    file: &'static str,
    says: &'static str,
    instead: &'static str,
    error: &'static str,
}

const fn mutant(error: &'static str, file: &'static str, says: &'static str, instead: &'static str) -> Mutant {
    Mutant { file, says, instead, error }
}

const MUTANTS: &[Mutant] = &[
    mutant(
        "no blocking by less urgent levels",
        "blocking.rs",
        "below.map(|part| self.kept(part, level, self.plan.preemption == Preemption::None)).max().unwrap_or(0)",
        "below.map(|part| self.kept(part, level, false)).max().unwrap_or(0)",
    ),
    mutant(
        "no blocking by sections",
        "blocking.rs",
        "ceiling.is_some_and(|ceiling| ceiling <= level)",
        "ceiling.is_some_and(|ceiling| ceiling < level)",
    ),
    mutant(
        "no blocking within a level by key",
        "blocking.rs",
        "self.kept(part, part.level, self.plan.preemption != Preemption::Full)",
        "self.kept(part, part.level, false)",
    ),
    mutant(
        "jobs rounded down, not up",
        "fixed.rs",
        "Ok(early) => u128::from(early.div_ceil(self.period)),",
        "Ok(early) => u128::from(early / self.period),",
    ),
    mutant(
        "no jitter in FIFO levels",
        "fixed.rs",
        "Duration::from(self.burst));",
        "Duration::from(self.burst / 1_000_000_000));",
    ),
    mutant(
        "the own jitter of a periodic operation forgotten",
        "release.rs",
        "Source::Periodic => Release { latest: late, counted: late, burst: late, ..Release::default() }",
        "Source::Periodic => Release { latest: late, counted: late, burst: Some(0), ..Release::default() }",
    ),
    mutant(
        "no jitter by the response of what triggers",
        "release.rs",
        "let burst = if guarded { late } else { spread };",
        "let burst = if guarded { late } else { late.or(spread) };",
    ),
    mutant(
        "more urgent levels left out of a level by key",
        "lateness.rs",
        "            for demand in self.higher {\n                next = next.saturating_add(released_by",
        "            for demand in &self.higher[..0] {\n                next = next.saturating_add(released_by",
    ),
    mutant(
        "plus for minus in keys by laxity",
        "processor.rs",
        "            key: nearest - after,",
        "            key: nearest + after,",
    ),
    mutant(
        "more urgent levels left out of a FIFO level",
        "processor.rs",
        "self.above.iter().chain(&self.all[..self.start]).copied().collect()",
        "self.above.iter().chain(&self.all[..self.start / 2]).copied().collect()",
    ),
    mutant(
        "half of what is beside a chain",
        "processor.rs",
        "(if mine { &mut own } else { &mut others }).push(*demand);",
        "(if mine { &mut own } else { &mut others }).push(Demand { cost: demand.cost / if mine { 1 } else { 2 }, ..*demand });",
    ),
    mutant(
        "nothing above the lanes",
        "overhead.rs",
        "let release = self.costs.timer.as_nanos().saturating_add(self.costs.enqueue.as_nanos());",
        "let release = self.costs.enqueue.as_nanos();",
    ),
    mutant(
        "one switch a job, not two",
        "overhead.rs",
        "{ costs.switch.as_nanos().saturating_mul(2) }",
        "{ costs.switch.as_nanos() }",
    ),
    mutant(
        "no enqueue for what a job triggers",
        "overhead.rs",
        "costs.enqueue.as_nanos().saturating_mul(triggers)",
        "costs.enqueue.as_nanos().saturating_mul(triggers / 2)",
    ),
    mutant(
        "the cap never acts",
        "cap.rs",
        "    if !may_act(site, releases) {",
        "    if may_act(site, releases) || true {",
    ),
    mutant(
        "worst cases of one region only across its end",
        "workload.rs",
        "worse.wcet = before.wcet.max(after.wcet);",
        "worse.wcet = before.wcet.min(after.wcet);",
    ),
    mutant("a change of region left out", "mod.rs", "if before != after {", "if before != after && epoch > 99 {"),
    mutant(
        "half of the busy window searched for too much demand",
        "demand.rs",
        "let mut end = self.window.saturating_add(1).saturating_sub(after.0);",
        "let mut end = (self.window / 2).saturating_add(1).saturating_sub(after.0);",
    ),
    mutant(
        "the quick search jumps over windows that fail",
        "demand.rs",
        "x = if demand < window { demand - least } else { x - 1 };",
        "x = if demand < window { demand / 2 - least } else { x - 1 };",
    ),
    mutant(
        "half of more urgent levels in demand",
        "demand.rs",
        "sum.saturating_add(jobs.saturating_mul(i128::from(demand.cost)))",
        "sum.saturating_add(jobs.saturating_mul(i128::from(demand.cost / 2)))",
    ),
    mutant(
        "nothing carried in across a switch",
        "across.rs",
        "let reach = u128::from(since) + u128::from(*carried);",
        "let reach = u128::from(since) + u128::from(*carried / 1_000);",
    ),
    mutant(
        "no job that was started under the other strategy",
        "across.rs",
        "self.blocked_from_below(level, above, releases).saturating_add(started);",
        "self.blocked_from_below(level, above, releases).saturating_add(started / 1_000);",
    ),
    mutant(
        "a stream of a merge forgotten",
        "merge.rs",
        "let rate = several.iter().fold(",
        "let rate = several.iter().skip(1).fold(",
    ),
    mutant(
        "no common release of merged streams",
        "merge.rs",
        "merged.checked_mul(u128::from(spread) + period - 1)?",
        "merged.checked_mul(u128::from(spread))?",
    ),
    mutant(
        "origins within a window rounded down",
        "merge.rs",
        "sum.saturating_add(span.div_ceil((*period).max(1)))",
        "sum.saturating_add(span / (*period).max(1))",
    ),
    mutant(
        "a join in step waits for the longest response, whatever the phases",
        "join.rs",
        "Ok(Joined { latest: last.saturating_sub(streams[reference].phase), older: oldest, oldest })",
        "Ok(Joined { latest: streams.iter().map(|one| one.most).max().unwrap_or(last), older: oldest, oldest })",
    ),
    mutant("a join takes the newest of a fast predecessor", "join.rs", "room.saturating_mul(one.gap)", "one.gap"),
    mutant(
        "what is lost before a join changes nothing",
        "join.rs",
        "if lost[hop.from] {",
        "if lost[hop.from] && hop.from > 99 {",
    ),
];

#[test]
#[ignore = "builds the analysis once for each of its errors"]
fn every_deliberate_error_in_an_analysis_is_found() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let copy = std::env::temp_dir().join(format!("hyoshi-mutants-{}", std::process::id()));
    copy_tree(&workspace, &copy);
    let mut alive = Vec::new();
    println!("unchanged: {}", soundness(&copy).map_or("not killed".to_owned(), |by| format!("KILLED by {by}")));
    let wanted = std::env::var("MUTANTS").unwrap_or_default();
    let asked = |mutant: &&Mutant| wanted.split(',').any(|file| mutant.file.contains(file));
    for mutant in MUTANTS.iter().filter(asked) {
        let path = copy.join("crates/sched/src/analysis").join(mutant.file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(mutant.says).count(), 1, "{}: the source has changed: {}", mutant.file, mutant.says);
        fs::write(&path, text.replace(mutant.says, mutant.instead)).unwrap();
        match soundness(&copy) {
            Some(by) => println!("{:<14} {:<60} killed by {by}", mutant.file, mutant.error),
            None => {
                println!("{:<14} {:<60} ALIVE", mutant.file, mutant.error);
                alive.push(mutant.error);
            }
        }
        fs::write(&path, text).unwrap();
    }
    fs::remove_dir_all(&copy).unwrap();
    assert!(alive.is_empty(), "not found: {alive:?}");
}

/// The first system that shows an error, if one does.
fn soundness(copy: &Path) -> Option<String> {
    let test = "no_response_exceeds_its_bound_in_ten_thousand_systems_of_each_strategy";
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "test",
        "--offline",
        "--quiet",
        "-p",
        "hyoshi-sim",
        "--test",
        "suite",
        "--",
        "--ignored",
        "--nocapture",
        test,
    ]);
    cargo.env("SOUNDNESS_SYSTEMS", "4000").current_dir(copy);
    if std::env::var_os("CARGO_TARGET_DIR").is_none() {
        cargo.env("CARGO_TARGET_DIR", std::env::temp_dir().join("hyoshi-mutants-target"));
    }
    let output = cargo.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("could not compile"), "{text}");
    let line = text.lines().find(|line| line.starts_with("system "));
    let by = line.map(|line| line.chars().take(90).collect());
    assert_eq!(by.is_none(), output.status.success(), "{text}");
    by
}

/// The sources, without what is built from them.
fn copy_tree(from: &Path, to: &PathBuf) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if name == "target" || name.to_string_lossy().starts_with(".git") {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &to.join(name));
        } else {
            fs::copy(entry.path(), to.join(name)).unwrap();
        }
    }
}
