//! Maps urgencies to levels. Levels are numbered once for all epochs, and again, without allocating, when a rate is
//! adapted.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::{fmt, ops::Range};

use hyoshi_model::OperationId;

use crate::strategy::{Discipline, Strategy, Traits, Urgency};

/// The most levels of a processor: lanes have the real-time priorities 40 to 79. Beyond that, the least urgent levels
/// of the largest classes are merged.
pub const MOST_LEVELS: usize = 40;

/// A level, and the order among jobs of equal key within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelPosition {
    /// Index into [`ProcessorPlan::levels`](crate::ProcessorPlan::levels).
    pub level: u8,
    /// Smaller first.
    pub tie: u16,
}

/// The levels of a processor under its strategy, class by class. Each class keeps its levels, whatever the ranks of its
/// operations.
#[derive(Clone)]
pub struct Ranking {
    strategy: &'static dyn Strategy,
    /// In the order of their numbers.
    classes: Vec<Class>,
    /// How many levels were merged to fit.
    pub(crate) merged: usize,
}

#[derive(Clone, Debug)]
struct Class {
    number: u8,
    discipline: Discipline,
    levels: Range<u8>,
    /// Jobs of one operation can be at any of them: its rate is adapted, or requests set their urgency.
    varies: bool,
    /// Distinct, most urgent first.
    ranks: Vec<u64>,
    /// Distinct, in order.
    ties: Vec<u32>,
}

/// One operation's jobs of one kind in one epoch: an input of a [`Ranking`].
pub(crate) struct RankingInput {
    pub urgency: Urgency,
    pub critical: bool,
    /// The root that changes this rank by its adapted rate. Each such root gets one level.
    pub adapted_by: Option<OperationId>,
    /// Requests: each has its own rank, and adds no level.
    pub requested: bool,
}

/// The ranks that jobs of an operation can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RankRange {
    /// The root that changes it. Operations of one root with equal ranks always have the same rank.
    pub root: Option<OperationId>,
    /// By period of the root; not empty.
    pub ranks: Vec<u64>,
    /// Any rank between them is possible, too.
    pub between: bool,
}

impl RankRange {
    fn least(&self) -> u64 {
        self.ranks.iter().copied().min().unwrap_or_default()
    }

    fn most(&self) -> u64 {
        self.ranks.iter().copied().max().unwrap_or_default()
    }
}

/// The requirements of one class.
struct ClassRequirements {
    discipline: Discipline,
    /// It has critical jobs.
    critical: bool,
    varies: bool,
    ranks: BTreeSet<u64>,
    /// Ranks that do not change.
    fixed: BTreeSet<u64>,
    /// Roots that change ranks by their adapted rates.
    roots: BTreeSet<OperationId>,
    ties: BTreeSet<u32>,
}

impl ClassRequirements {
    fn new(discipline: Discipline) -> ClassRequirements {
        let (ranks, fixed) = (BTreeSet::new(), BTreeSet::new());
        let (roots, ties) = (BTreeSet::new(), BTreeSet::new());
        ClassRequirements { discipline, critical: false, varies: false, ranks, fixed, roots, ties }
    }

    fn level_count(&self) -> usize {
        self.ranks.len().max(self.fixed.len() + self.roots.len())
    }
}

impl Ranking {
    /// Creates the levels. If there are too many, merges the least urgent levels of the largest class, repeatedly. If
    /// there is room, the levels of the last classes without critical jobs begin at `other`. `ties` are further ones that
    /// jobs of a class can have.
    pub(crate) fn new(
        strategy: &'static dyn Strategy,
        wanted: impl Iterator<Item = RankingInput>,
        ties: impl Iterator<Item = (u8, u32)>,
        other: usize,
    ) -> Ranking {
        let mut classes: BTreeMap<u8, ClassRequirements> = BTreeMap::new();
        for RankingInput { urgency, critical, adapted_by, requested } in wanted {
            let asked = classes.entry(urgency.class).or_insert_with(|| ClassRequirements::new(urgency.discipline));
            asked.critical |= critical;
            asked.varies |= adapted_by.is_some() || requested;
            asked.ranks.insert(urgency.rank);
            asked.ties.insert(urgency.tie);
            match adapted_by {
                Some(root) => asked.roots.insert(root),
                None => asked.fixed.insert(urgency.rank),
            };
        }
        for (class, tie) in ties {
            classes.get_mut(&class).into_iter().for_each(|asked| _ = asked.ties.insert(tie));
        }
        let mut counts: Vec<usize> = classes.values().map(ClassRequirements::level_count).collect();
        let merged = counts.iter().sum::<usize>().saturating_sub(MOST_LEVELS);
        for _ in 0..merged {
            // Of equal classes the least urgent one; each keeps a level.
            let largest = counts.iter_mut().filter(|count| **count > 1).max_by_key(|count| **count);
            largest.into_iter().for_each(|count| *count -= 1);
        }
        let critical = classes.values().rposition(|class| class.critical).map_or(0, |last| last + 1);
        let spare = MOST_LEVELS.saturating_sub(counts.iter().sum());
        let spare = spare.min(other.saturating_sub(counts[..critical].iter().sum()));
        let mut next = 0;
        let classes = classes.into_iter().zip(counts).enumerate().map(|(index, ((number, asked), count))| {
            next += if index == critical { spare } else { 0 };
            // More classes than levels: the rest share the last.
            let levels = next.min(MOST_LEVELS - 1) as u8..(next + count).min(MOST_LEVELS) as u8;
            next += count;
            let ClassRequirements { discipline, varies, ranks, ties, .. } = asked;
            Class {
                number,
                discipline,
                levels,
                varies,
                ranks: ranks.into_iter().collect(),
                ties: ties.into_iter().collect(),
            }
        });
        Ranking { strategy, classes: classes.collect(), merged }
    }

    /// Reserves memory for `kinds` urgencies, so [`renumber`](Self::renumber) allocates nothing.
    pub fn reserve(&mut self, kinds: usize) {
        self.classes.iter_mut().for_each(|class| class.ranks.reserve_exact(kinds));
    }

    /// True if ranks can change.
    pub fn varies(&self) -> bool {
        self.classes.iter().any(|class| class.varies)
    }

    /// The urgency of jobs with these traits.
    pub fn urgency(&self, traits: &Traits) -> Urgency {
        self.strategy.urgency(traits)
    }

    /// Renumbers the levels for these traits.
    pub fn renumber(&mut self, all: impl Iterator<Item = Traits>) {
        // Fixed classes keep the ranks of all epochs.
        self.classes.iter_mut().filter(|class| class.varies).for_each(|class| class.ranks.clear());
        for traits in all {
            let urgency = self.strategy.urgency(&traits);
            let class = self.classes.iter_mut().find(|class| class.number == urgency.class);
            if let Some(class) = class.filter(|class| class.varies) {
                class.ranks.push(urgency.rank);
            }
        }
        for class in &mut self.classes {
            class.ranks.sort_unstable();
            class.ranks.dedup();
        }
    }

    /// The position of this urgency. An unknown rank gets the next less urgent level of its class, an unknown class the
    /// last level.
    pub fn place(&self, urgency: &Urgency) -> LevelPosition {
        let own = self.classes.iter().find(|class| class.number == urgency.class);
        let Some(class) = own.or(self.classes.last()) else { return LevelPosition::default() };
        let seat = own.map_or(usize::MAX, |own| own.ranks.partition_point(|rank| *rank < urgency.rank));
        let level = usize::from(class.levels.start).saturating_add(seat).min(usize::from(class.levels.end.max(1)) - 1);
        // Known ties are odd, others even.
        let tie = match class.ties.binary_search(&urgency.tie) {
            Ok(known) => 2 * known + 1,
            Err(between) => 2 * between,
        };
        let tie = if class.discipline == Discipline::Fifo { 0 } else { tie.min(usize::from(u16::MAX)) as u16 };
        LevelPosition { level: level as u8, tie }
    }

    /// The position of jobs with these traits, if another importance decides their order within the level.
    pub fn place_with(&self, traits: &Traits, importance: u32) -> LevelPosition {
        let tie = self.urgency(&Traits { importance, ..*traits }).tie;
        self.place(&Urgency { tie, ..self.urgency(traits) })
    }

    /// The most and the least urgent level of jobs with `own` ranks, if all ranks of the class change independently.
    /// `all` contains `own`.
    pub(crate) fn reachable_levels(&self, class: u8, own: &RankRange, all: &[RankRange]) -> (u8, u8) {
        let Some(class) = self.classes.iter().find(|one| one.number == class) else { return (0, u8::MAX) };
        let fixed: BTreeSet<u64> = all.iter().filter(|one| one.least() == one.most()).map(RankRange::least).collect();
        let others = || all.iter().filter(|one| one.least() < one.most() && *one != own);
        // It has a level for itself, whatever its rank is, and those of others.
        let apart = |one: &RankRange| {
            let meets = |two: &RankRange| match one.between || two.between {
                true => two.least() <= one.most() && one.least() <= two.most(),
                false => one.ranks.iter().any(|rank| two.ranks.contains(rank)),
            };
            let ties = |rank: &u64| one.between || one.ranks.contains(rank);
            !fixed.range(one.least()..=one.most()).any(ties) && !others().any(|two| two != one && meets(two))
        };
        let certain: BTreeSet<&RankRange> = others().filter(|one| one.most() < own.least() && apart(one)).collect();
        let possible: BTreeSet<&RankRange> = others().filter(|one| one.least() < own.most()).collect();
        let level = |more_urgent: usize| {
            let last = usize::from(class.levels.end.max(1)) - 1;
            usize::from(class.levels.start).saturating_add(more_urgent).min(last) as u8
        };
        let fixed_below = |rank: u64| fixed.range(..rank).count();
        (level(fixed_below(own.least()) + certain.len()), level(fixed_below(own.most()) + possible.len()))
    }

    /// The levels in which jobs of a level's class can be: several if their urgency varies.
    pub(crate) fn reach(&self, level: u8) -> Range<u8> {
        let class = self.classes.iter().find(|class| class.levels.contains(&level));
        class.filter(|class| class.varies).map_or(level..level + 1, |class| class.levels.clone())
    }

    /// By level, most urgent first.
    pub(crate) fn disciplines(&self) -> Vec<Discipline> {
        let mut disciplines = Vec::new();
        for class in &self.classes {
            disciplines.resize(disciplines.len().max(class.levels.end.into()), class.discipline);
        }
        disciplines
    }
}

/// Two are equal if strategies of one name made the same levels.
impl PartialEq for Ranking {
    fn eq(&self, other: &Self) -> bool {
        let parts = |class: &Class| (class.number, class.discipline, class.levels.clone(), class.ranks.clone());
        self.strategy.name() == other.strategy.name()
            && self.classes.iter().map(parts).eq(other.classes.iter().map(parts))
    }
}

impl fmt::Debug for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranking").field("strategy", &self.strategy.name()).field("classes", &self.classes).finish()
    }
}
