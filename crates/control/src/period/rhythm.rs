//! The period of one sequence of instants, if it has one.

use alloc::vec::Vec;

use hyoshi_model::Span;

/// The rhythm of instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// The period.
    pub period: Span,
    /// The part of them that it explains beyond random instants, in thousandths.
    pub confidence: u32,
    /// The number of instants for or against it.
    pub instants: u32,
}

/// A thousandth is the unit of all scores.
const WHOLE: u64 = 1_000;
/// A cycle may contain up to this many wake-ups.
const WAKEUPS_IN_CYCLE: usize = 8;
/// Candidates that are examined closely.
const CANDIDATES: usize = 8;
/// With fewer pairs there is no result.
const LEAST_PAIRS: usize = 9;
/// Further instants are not examined.
const MOST_INSTANTS: usize = 128;
/// An interval is a pause if it is this much longer than the mean.
const PAUSE: u64 = 8;
/// An instant that is off the expected position by this part of the mean interval (one part in ...) counts in full, one
/// that is twice as far off not at all.
const FULL: u64 = 8;
/// What a candidate scores with instants at random: the nearest of a Poisson process with one instant an interval lies
/// within x of any place with probability 1 - exp(-2x); weighed as above, 1 - (exp(-1/4) - exp(-1/2)) / (1/4).
const AT_RANDOM: u64 = 311;

/// Finds periods; keeps its memory from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Rhythms {
    lags: Vec<u64>,
    candidates: Vec<u64>,
}

/// How a candidate fits.
#[derive(Clone, Copy, Debug)]
struct Fit {
    score: u64,
    pairs: usize,
    period: u64,
}

impl Rhythms {
    /// The rhythm of instants in ns, in their order: the shortest period after which an instant has a successor about
    /// as often as after any other. Its multiples explain as much and are longer; parts of it have no successors.
    /// `None` if nothing explains more than chance would.
    pub fn find(&mut self, instants: &[u64]) -> Option<Rhythm> {
        if instants.len() < LEAST_PAIRS + 1 {
            return None;
        }
        let mean = mean(instants)?;
        self.collect(instants, mean);
        let fits = self.candidates.iter().filter_map(|candidate| fit_of(instants, *candidate, mean));
        let best = fits.clone().max_by_key(|fit| fit.score)?;
        // About as often: within the effect of chance with so few pairs. If it depends on how much that is, more
        // instants must decide.
        let shortest =
            |deviations| fits.clone().filter(|fit| near(fit, &best, deviations)).min_by_key(|fit| fit.period);
        let (fit, doubtful) = (shortest(2)?, shortest(4)?);
        let part = |part| fit_of(instants, fit.period / part, mean).is_some_and(|part| near(&part, &fit, 4));
        let doubtful = doubtful.period != fit.period || (2..=WAKEUPS_IN_CYCLE as u64).any(part);
        (!doubtful).then(|| rhythm(&fit, instants, mean))
    }

    /// The intervals of up to [`WAKEUPS_IN_CYCLE`] steps, and the lengths at which most of them are alike.
    fn collect(&mut self, instants: &[u64], mean: u64) {
        self.lags.clear();
        self.candidates.clear();
        for lag in 1..=WAKEUPS_IN_CYCLE.min(instants.len() / 2) {
            self.lags.extend(instants.windows(lag + 1).map(|steps| steps[lag] - steps[0]));
        }
        self.lags.sort_unstable();
        let width = (mean / FULL).max(1);
        for _ in 0..CANDIDATES {
            let Some((from, to)) = densest(&self.lags, width) else { return };
            let alike = &self.lags[from..to];
            self.candidates.push(alike[alike.len() / 2]);
            // Nearer ones would be the same again.
            let near = alike[0].saturating_sub(width)..=alike[alike.len() - 1].saturating_add(width);
            self.lags.retain(|lag| !near.contains(lag));
        }
    }
}

/// How well a roughly known period explains instants, and its exact value; `None` if they are too few.
pub fn explained(instants: &[u64], period: Span) -> Option<Rhythm> {
    let mean = mean(instants)?;
    fit_of(instants, period.as_nanos(), mean).map(|fit| rhythm(&fit, instants, mean))
}

fn rhythm(fit: &Fit, instants: &[u64], mean: u64) -> Rhythm {
    let chance = by_chance(instants, fit.period, mean);
    let confidence = fit.score.saturating_sub(chance) * WHOLE / (WHOLE - chance).max(1);
    let period = Span::from_nanos(fit.period);
    let instants = u32::try_from(instants.len()).unwrap_or(u32::MAX);
    Rhythm { period, confidence: confidence as u32, instants }
}

/// The score of any period of about this length: if instants are in clusters, more than at random.
fn by_chance(instants: &[u64], period: u64, mean: u64) -> u64 {
    let beside = [5, 7, 13, 15].map(|tenths| score_at(instants, (period / 10).saturating_mul(tenths), mean));
    (beside.iter().sum::<u64>() / beside.len() as u64).max(AT_RANDOM)
}

/// The mean fit of the instants this much later, of all with a successor that could have been recorded.
fn score_at(instants: &[u64], lag: u64, mean: u64) -> u64 {
    let full = (mean / FULL).max(1);
    let (Some(last), mut next, mut score, mut count) = (instants.last(), 0, 0, 0) else { return 0 };
    for wanted in instants.iter().map(|instant| instant.saturating_add(lag)).take_while(|wanted| wanted <= last) {
        next = nearest(instants, next, wanted);
        score += weight(instants[next].abs_diff(wanted), full);
        count += 1;
    }
    score / count.max(1)
}

/// The instant nearest to `wanted`, not before the one nearest to `from`.
fn nearest(instants: &[u64], mut from: usize, wanted: u64) -> usize {
    while from + 1 < instants.len() && instants[from + 1].abs_diff(wanted) <= instants[from].abs_diff(wanted) {
        from += 1;
    }
    from
}

fn weight(beside: u64, full: u64) -> u64 {
    (2 * full).saturating_sub(beside).min(full) * WHOLE / full
}

/// Whether it explains as much as `best`, except for this many deviations of chance.
fn near(fit: &Fit, best: &Fit, deviations: u64) -> bool {
    fit.score + (deviations * deviation(fit)).max(best.score / 10) >= best.score
}

impl Rhythm {
    /// Whether it is more than chance can produce in repeated checks: the fewer the instants, the better it must fit.
    /// Instants without any period pass in less than one of 100,000 checks.
    pub fn is_certain(&self) -> bool {
        u64::from(self.confidence) >= certain(u64::from(self.instants))
    }
}

fn certain(instants: u64) -> u64 {
    // 0.45 + 2 / sqrt(n): 12 instants must fit perfectly, 24 to 86 %, 128 to 63 %.
    450 + 2 * WHOLE * WHOLE / (WHOLE * WHOLE * instants.max(1)).isqrt()
}

/// The mean interval; pauses, far longer than the others, do not count.
fn mean(instants: &[u64]) -> Option<u64> {
    let intervals = || instants.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    let mut longest = u64::MAX;
    for _ in 0..3 {
        let (sum, count) =
            intervals().filter(|one| *one <= longest).fold((0, 0), |(sum, count), one| (sum + one, count + 1));
        longest = PAUSE.saturating_mul(sum / u64::max(count, 1));
    }
    (longest > 0).then_some(longest / PAUSE)
}

/// The range of sorted lags within `width` of each other that holds most of them; the shortest lags among equals.
fn densest(lags: &[u64], width: u64) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut to = 0;
    for from in 0..lags.len() {
        while to < lags.len() && lags[to] - lags[from] <= width {
            to += 1;
        }
        if best.is_none_or(|(first, end)| to - from > end - first) {
            best = Some((from, to));
        }
    }
    best.filter(|(from, to)| to - from >= 4)
}

/// Each instant with a predecessor, and with a successor that could have been recorded, is compared with the nearest
/// recorded one: of two interleaved rhythms the members of one continue with certainty, in a pattern within a cycle
/// they do not.
fn fit_of(instants: &[u64], period: u64, mean: u64) -> Option<Fit> {
    let full = (mean / FULL).max(1);
    let last = *instants.last()?;
    if period < mean / 2 || instants.len() > MOST_INSTANTS {
        return None;
    }
    let (mut pairs, mut score, mut matched, mut sum, mut next) = (0, 0, 0, 0, 0);
    // One bit for each instant that has a predecessor.
    let mut follows = 0_u128;
    for (at, instant) in instants.iter().enumerate() {
        let wanted = instant.saturating_add(period);
        if wanted > last {
            break;
        }
        next = nearest(instants, next, wanted);
        let beside = if next > at { instants[next].abs_diff(wanted) } else { u64::MAX };
        if follows & (1 << at) != 0 {
            pairs += 1;
            score += weight(beside, full);
        }
        if beside <= 2 * full {
            if follows & (1 << at) != 0 {
                matched += 1;
                sum += instants[next] - instant;
            }
            follows |= 1 << next;
        }
    }
    let belong =
        u64::from(follows.count_ones()) * 2 >= instants.iter().filter(|at| **at - instants[0] >= period).count() as u64;
    if pairs < LEAST_PAIRS || matched == 0 || !belong {
        return None;
    }
    // Steps from one to the next add up: the longer the chain, the less one instant's delay matters.
    Some(Fit { score: score / pairs as u64, pairs, period: sum / matched })
}

/// Of a score that is the mean of this many yes and no.
fn deviation(fit: &Fit) -> u64 {
    (fit.score * (WHOLE.saturating_sub(fit.score)) / fit.pairs.max(1) as u64).isqrt()
}
