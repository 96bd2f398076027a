//! How the controllers of a group settle on a linear model of its processors, before they run.
//!
//! The model is that of EUCON (Lu, Wang and Koutsoukos 2005, section 6): `u(k+1) = u(k) + g F dr(k)`, with one gain `g`
//! of actual to declared execution times. Their proof of stability assumes that no constraint is active: then the law is
//! linear, and a range of gains follows from the eigenvalues of the closed loop. But the constraint `u <= B` is active
//! whenever a utilisation is above its set point. A correction at once then multiplies this error by `1 - g`, and errors
//! below the set point shrink more slowly. So the range of the linear law is not that of the whole law, which is
//! piecewise linear. Therefore the real controllers are tried here on the model, without limits of the rates. As the
//! law is the same for errors of any size, one size is sufficient, but not one direction.

use alloc::vec::Vec;

use hyoshi_model::{Contents, ControlGroup, GroupTask, Instant, Span};

use super::coordinator::Coordinator;

/// A group on a linear model.
#[derive(Debug)]
pub struct GroupModel {
    /// The group with each rate in the middle of a wide range.
    contents: Contents,
    group: ControlGroup,
    /// By member and task: the utilisation at the middle rate, at the declared execution times.
    parts: Vec<Vec<f64>>,
    shares: Vec<Option<Vec<f64>>>,
}

/// The set point of the model, and the greatest error at the start.
const SET_POINT: f64 = 0.5;
const ERROR: f64 = 0.02;
/// The period in the middle of the ranges. They end at this factor.
const MIDDLE: Span = Span::from_secs(1);
const WIDTH: u64 = 1_000;

impl GroupModel {
    /// The longest step, by its estimate, for which a group is tried.
    pub const LONGEST_STEP: Span = Span::from_millis(2);
    /// The most samples in which it may settle.
    pub const LONGEST_SETTLING: u32 = 200;
    /// The largest gain that is tried.
    pub const LARGEST_GAIN: f64 = 20.0;

    /// The model of a group in the first epoch. `None` if its steps are too long to try, if it has no task then, or
    /// without the feature `eucon`.
    pub fn new(contents: &Contents, group: &ControlGroup) -> Option<GroupModel> {
        if !cfg!(feature = "eucon") || group.step_cost() > Self::LONGEST_STEP {
            return None;
        }
        let shares = super::deucon::shares(contents, 0, group, &group.nodes());
        let mut wide = contents.clone();
        let mut settings = wide.epochs.first()?.settings.to_vec();
        for task in &group.tasks {
            let all: u64 = (0..group.loops.len()).map(|at| task.demand(contents, 0, at).as_nanos()).sum();
            for id in task.operations().filter(|_| all > 0) {
                let setting = &mut settings[id.index()];
                let wcet = u128::from(setting.wcet.as_nanos()) * u128::from(MIDDLE.as_nanos()) / u128::from(all);
                setting.wcet = Span::from_nanos(u64::try_from(wcet).ok()?);
                setting.period = Span::from_nanos(MIDDLE.as_nanos() / WIDTH);
                setting.slowest = Span::from_nanos(MIDDLE.as_nanos() * WIDTH);
            }
        }
        wide.epochs.truncate(1);
        wide.epochs[0].settings = settings.into();
        for place in &group.loops {
            wide.feedback[*place].utilisation_ppm = (SET_POINT * 1e6) as u32;
        }
        let part = |at: usize, task: &GroupTask| {
            let processor = wide.processor(wide.feedback[group.loops[at]].processor);
            let of_cap = f64::from(processor.hard_cap.ppm.max(1)) / 1e6;
            task.demand(&wide, 0, at).as_nanos() as f64 / MIDDLE.as_nanos() as f64 / of_cap
        };
        let row = |at: usize| group.tasks.iter().map(|task| part(at, task)).collect();
        let parts: Vec<Vec<f64>> = (0..group.loops.len()).map(row).collect();
        let runs = parts.iter().flatten().any(|part| *part > 0.0);
        runs.then(|| GroupModel { contents: wide, group: group.clone(), parts, shares })
    }

    /// The number of its rates.
    pub fn rates(&self) -> usize {
        self.group.tasks.len()
    }

    /// The number of the first sample from which on each error is within 1 % of the greatest one at the start. Sample 1
    /// is that of the start rates. At the start the rate of each task is too high in proportion to `excess`, negative if
    /// it is too low. `None` if it does not settle within [`LONGEST_SETTLING`](Self::LONGEST_SETTLING) samples.
    pub fn settling(&self, gain: f64, excess: &[f64]) -> Option<u32> {
        let errors = |rates: &[f64]| -> Vec<f64> {
            let error = |row: &Vec<f64>| gain * row.iter().zip(rates).map(|(part, rate)| part * rate).sum::<f64>();
            self.parts.iter().map(error).collect()
        };
        let greatest = |errors: &[f64]| errors.iter().fold(0.0, |most: f64, one| most.max(one.abs()));
        let unit = greatest(&errors(excess));
        if unit.is_nan() || unit <= 0.0 {
            return Some(1);
        }
        let middle = MIDDLE.as_nanos() as f64;
        let start = excess.iter().map(|one| Span::from_nanos((middle / (1.0 + one * ERROR / unit) + 0.5) as u64));
        let mut coordinator =
            Coordinator::around(&self.contents, self.group.clone(), &self.shares, start.collect()).ok()?;
        let processors = coordinator.processors().to_vec();
        let (mut since, now) = (None, Instant::ZERO);
        for number in 1..=Self::LONGEST_SETTLING {
            let rates = coordinator.periods().iter().map(|period| middle / period.as_nanos() as f64 - 1.0);
            let errors = errors(&rates.collect::<Vec<_>>());
            match greatest(&errors) {
                // It could only become greater.
                error if error >= 0.9 * SET_POINT => return None,
                error if error <= 0.01 * ERROR => {
                    let since = *since.get_or_insert(number);
                    if number >= since + 3 {
                        return Some(since);
                    }
                }
                _ => since = None,
            }
            for (processor, error) in processors.iter().zip(errors) {
                coordinator.collect(now, *processor, Some(((SET_POINT + error) * 1e6 + 0.5) as u32));
            }
            coordinator.step(&self.contents, now, |_, _, _| ());
        }
        None
    }

    /// The longest settling time at this gain of three starts: all rates too low, all too high, each second one too low.
    pub fn longest_settling(&self, gain: f64) -> Option<u32> {
        let mixed = |place: usize| if place % 2 == 0 { 1.0 } else { -1.0 };
        let starts: [&dyn Fn(usize) -> f64; 3] = [&|_| -1.0, &|_| 1.0, &mixed];
        let settling =
            |start: &dyn Fn(usize) -> f64| self.settling(gain, &(0..self.rates()).map(start).collect::<Vec<_>>());
        starts.into_iter().try_fold(0, |longest: u32, start| Some(longest.max(settling(start)?)))
    }

    /// The gain below which it settles, of those from 1 on; at most [`LARGEST_GAIN`](Self::LARGEST_GAIN). `None` if it
    /// does not settle at 1.
    pub fn stable_below(&self) -> Option<f64> {
        let settles = |gain: f64| self.longest_settling(gain).is_some();
        if !settles(1.0) {
            return None;
        }
        let (mut stable, mut unstable) = (1.0, 1.25);
        while settles(unstable) {
            (stable, unstable) = (unstable, unstable * 1.25);
            if unstable > Self::LARGEST_GAIN {
                return Some(Self::LARGEST_GAIN);
            }
        }
        for _ in 0..5 {
            let middle = (stable + unstable) / 2.0;
            *(if settles(middle) { &mut stable } else { &mut unstable }) = middle;
        }
        Some(stable)
    }
}
