//! EUCON: utilisation control of several processors that end-to-end tasks couple, by model-predictive control.
//!
//! After Lu, Wang and Koutsoukos, "Feedback Utilization Control in Distributed Real-Time Systems with End-to-End Tasks",
//! IEEE Transactions on Parallel and Distributed Systems 16(6), 2005, pages 550-561.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use clarabel::algebra::CscMatrix;
use clarabel::solver::{DefaultSettings, DefaultSolver, IPSolver, NonnegativeConeT, SolverStatus};
use hyoshi_model::{MOST_CONTROLLED_PROCESSORS, MOST_CONTROLLED_TASKS, Share, Span};

use super::assign::{AdaptiveTask, AdaptiveTaskError};
use super::law::{MeasuredVariable, MonitorFault};
use super::settings::number;
use super::{StartRates, start_periods};

/// A task with an adjustable rate and stages on several processors. All stages have the rate of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndToEndTask {
    task: AdaptiveTask,
    demand: Vec<Span>,
}

impl EndToEndTask {
    /// A task whose job is estimated to run for `demand[i]` on processor `i`, with periods from `shortest` to
    /// `longest`. An absent processor has a demand of 0; the sum is above 0.
    pub fn new(demand: Vec<Span>, shortest: Span, longest: Span) -> Result<EndToEndTask, AdaptiveTaskError> {
        let sum = demand.iter().fold(0u64, |sum, each| sum.saturating_add(each.as_nanos()));
        Ok(EndToEndTask { task: AdaptiveTask::new(Span::from_nanos(sum), shortest, longest, 0)?, demand })
    }

    /// The range of its rate, with the sum of all stages as its estimate.
    pub fn task(&self) -> &AdaptiveTask {
        &self.task
    }

    /// The estimated execution time of one job on this processor.
    pub fn demand(&self, processor: usize) -> Span {
        self.demand.get(processor).copied().unwrap_or(Span::ZERO)
    }
}

/// The controller's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct EuconSettings {
    /// B, the utilisation to hold on each processor, such as the bound of its analysis: above 0, at most one CPU.
    pub utilisations: Vec<Share>,
    /// P, the prediction horizon: for how many sampling periods the cost is predicted. At least `control`.
    pub prediction: usize,
    /// M, the control horizon: for how many sampling periods changes of the rates are planned. Only the first change is
    /// carried out. At least 1.
    pub control: usize,
    /// The part of an error that the reference trajectory leaves after each sampling period, 0 to 1 without 1:
    /// `exp(-Ts / Tref)` in the paper. More is slower, and stable with greater execution times.
    pub decay: f64,
    /// R, the weight of the difference between successive changes of a task's rate, as a change of its utilisation.
    /// Above 0: it selects one of the many rates with the same utilisations. The weight of errors is 1.
    pub smoothing: f64,
    /// If several controllers share the processors: the part of each processor's error that this controller corrects,
    /// above 0. The parts of all controllers sum up to 1. See [`deucon`](super::deucon).
    pub shares: Option<Vec<f64>>,
}

impl EuconSettings {
    /// The largest horizon.
    pub const LONGEST_HORIZON: usize = 32;

    /// The paper's settings for four processors: horizons of 4 and 2 periods, and a reference trajectory with
    /// `Tref = 4 Ts`. The smoothing of 0.1 is ours, because its unit is.
    pub fn new(utilisations: Vec<Share>) -> Self {
        EuconSettings { utilisations, prediction: 4, control: 2, decay: 0.778_800_783, smoothing: 0.1, shares: None }
    }
}

/// Why a controller cannot begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum EuconError {
    /// A horizon of 0, above [`EuconSettings::LONGEST_HORIZON`], or a control horizon above the prediction horizon.
    Horizons {
        /// P.
        prediction: usize,
        /// M.
        control: usize,
    },
    /// A number outside its range.
    Number {
        /// `decay` or `smoothing`.
        name: &'static str,
        /// The value.
        value: f64,
    },
    /// A set point of 0, or above one CPU.
    Utilisation {
        /// The processor.
        processor: usize,
        /// The set point.
        utilisation: Share,
    },
    /// A task with a demand on a processor that has no set point.
    NoSetPoint {
        /// The task.
        task: usize,
        /// The processor.
        processor: usize,
    },
    /// More tasks or processors than a step can compute in time.
    Size {
        /// The tasks.
        tasks: usize,
        /// The processors.
        processors: usize,
    },
    /// There is not one share of the error above 0, at most 1, for each processor.
    Shares,
    /// Start rates that do not fit the tasks.
    Start(super::FeedbackError),
    /// The solver refused the problem.
    Solver,
}

impl EuconError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            EuconError::Horizons { .. } => "use 1 to 32 periods, and a control horizon within the prediction horizon",
            EuconError::Number { .. } => "use a decay from 0 to below 1, and a smoothing above 0",
            EuconError::Utilisation { .. } => "use a set point above 0 and at most one CPU, such as \"70%\"",
            EuconError::NoSetPoint { .. } => "add a set point for each processor with a stage",
            EuconError::Size { .. } => "use DEUCON, which has a controller for each processor",
            EuconError::Shares => "set one share for each processor, above 0 and at most 1",
            EuconError::Start(error) => error.remedy(),
            EuconError::Solver => "reduce the number of tasks, or the horizons",
        }
    }
}

impl fmt::Display for EuconError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EuconError::Horizons { prediction, control } => {
                write!(f, "the prediction horizon is {prediction} periods, the control horizon is {control}")
            }
            EuconError::Number { name, value } => write!(f, "`{name}` is {value}"),
            EuconError::Utilisation { processor, utilisation } => {
                write!(f, "the set point of processor {processor} is {utilisation}")
            }
            EuconError::NoSetPoint { task, processor } => {
                write!(f, "task {task} has a stage on processor {processor}, which has no set point")
            }
            EuconError::Size { tasks, processors } => {
                write!(
                    f,
                    "one controller cannot set the rates of {tasks} tasks on {processors} processors; the limit is \
                     {MOST_CONTROLLED_TASKS} tasks on {MOST_CONTROLLED_PROCESSORS} processors"
                )
            }
            EuconError::Shares => f.write_str("`shares` does not have one valid share for each processor"),
            EuconError::Start(error) => error.fmt(f),
            EuconError::Solver => f.write_str("the solver rejects the control problem"),
        }
    }
}

impl core::error::Error for EuconError {}

/// One decision of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EuconStep {
    /// k, the number of the sampling period that has ended: 1 is the first.
    pub number: u64,
    /// The first processor without a valid sample.
    pub fault: Option<(usize, MonitorFault)>,
    /// False if the solver found no solution; see [`Eucon`].
    pub solved: bool,
}

/// The controller of a set of processors.
///
/// With `u` the utilisations, `r` the rates and `F` the estimated execution times by processor and task, it assumes
/// `u(k+1) = u(k) + F dr(k)`. At the end of a period it plans the changes `dr` for the next `M` periods that minimise
///
/// ```text
/// sum over t = 1..P of |u(k+t) - ref(k+t)|^2  +  R sum over i = 0..M-1 of |dr(k+i) - dr(k+i-1)|^2
/// ref(k+t) = B - decay^t (B - u(k))
/// ```
///
/// with rates within their ranges and predicted utilisations of at most `B`, and carries out the first. Real execution
/// times differ by a gain for each processor; feedback corrects that, as in the laws of one processor.
///
/// Differences to the paper: a change of a rate is weighted as the change of the task's estimated utilisation, so the
/// unit of rates does not matter. The limit `B` is soft, with a penalty above all other costs, so the problem always has
/// a solution: with the lowest rates the utilisation may be above `B`, and is as low as possible. A processor without a
/// valid sample counts as one at its set point, and no rate of a task on it rises.
///
/// Without a solution, or with one that is not finite, no rate rises. Each task keeps its rate, except if it runs on a
/// processor with a utilisation `u` above `B`: its rate is multiplied by the least `B / u` of these processors, down to
/// the range. So if a processor has only such tasks and real times are proportional to the rates, one step leads to `B`.
/// If it has other load, several steps approach `B`.
///
/// A step solves a quadratic program of `M tasks + processors` variables with the interior-point solver Clarabel
/// (Goulart and Chen 2024), in at most 50 iterations. It allocates, so it belongs to a controller's thread, not on the
/// path of a job. The same samples yield the same rates with the same build; another version of the solver may differ
/// in the last digits.
pub struct Eucon {
    settings: EuconSettings,
    tasks: Vec<AdaptiveTask>,
    /// F with each column divided by the task's estimate, row by row: the parts of a task's utilisation, divided by
    /// the shares.
    parts: Vec<f64>,
    /// The tasks' estimated utilisations: rate times estimate.
    rates: Vec<f64>,
    /// dr(k-1), in the same unit.
    last: Vec<f64>,
    periods: Vec<Span>,
    /// By processor: the error of this sample, and what other controllers have planned.
    errors: Vec<f64>,
    offsets: Vec<f64>,
    /// By task: true if one of its processors has no valid sample.
    held: Vec<bool>,
    /// dr(k), in the same unit.
    planned: Vec<f64>,
    solver: DefaultSolver<f64>,
    linear: Vec<f64>,
    bounds: Vec<f64>,
    samples: u64,
}

impl fmt::Debug for Eucon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eucon")
            .field("settings", &self.settings)
            .field("periods", &self.periods)
            .finish_non_exhaustive()
    }
}

/// The cost of each unit of utilisation above a set point. Errors of all processors together have a slope below it.
const PENALTY: f64 = 1_000.0;
/// Ranges are wider by this for the solver, which needs an interior; periods are clipped exactly.
const WIDENED: f64 = 1e-9;
/// The same for rates that must not rise: with less room the solver fails if they are the lowest ones.
const WIDENED_IF_HELD: f64 = 1e-5;
/// With shares, the cost of the square of utilisation above a set point. The cost of an error is 1 for each predicted
/// period.
const SQUARE_PENALTY: f64 = 16.0;
const MOST_ITERATIONS: u32 = 50;

impl Eucon {
    /// A controller of these tasks.
    pub fn new(settings: EuconSettings, tasks: &[EndToEndTask], start: StartRates) -> Result<Eucon, EuconError> {
        check(&settings, tasks)?;
        let ranges: Vec<AdaptiveTask> = tasks.iter().map(|task| task.task).collect();
        let periods = start_periods(&ranges, start).map_err(EuconError::Start)?;
        let part = |processor: usize, task: &EndToEndTask| {
            let part = task.demand(processor).as_nanos() as f64 / task.task.estimate().as_nanos() as f64;
            part / weight(&settings, processor)
        };
        let processors = settings.utilisations.len();
        let parts: Vec<f64> = (0..processors).flat_map(|at| tasks.iter().map(move |task| part(at, task))).collect();
        let rates: Vec<f64> = ranges.iter().zip(&periods).map(|(task, period)| task.utilisation(*period)).collect();
        let (variables, rows) = (settings.control * tasks.len() + processors, rows(&settings, tasks.len()));
        let (linear, bounds) = (vec![0.0; variables], vec![1.0; rows]);
        let solver = solver(&settings, &parts, (&linear, &bounds), MOST_ITERATIONS)?;
        let (last, planned) = (vec![0.0; tasks.len()], vec![0.0; tasks.len()]);
        let (errors, offsets, held) = (vec![0.0; processors], vec![0.0; processors], vec![false; tasks.len()]);
        Ok(Eucon {
            settings,
            tasks: ranges,
            parts,
            rates,
            last,
            periods,
            errors,
            offsets,
            held,
            planned,
            solver,
            linear,
            bounds,
            samples: 0,
        })
    }

    /// The present period of each task.
    pub fn periods(&self) -> &[Span] {
        &self.periods
    }

    /// Ends a sampling period: decides on the periods of the next. `utilisations` has the busy part, 0 to 1, of each
    /// processor's time; `None` if its monitor has no value.
    pub fn sample(&mut self, utilisations: &[Option<f64>]) -> EuconStep {
        let fault = self.begin(utilisations);
        let solved = self.plan(&vec![0.0; self.errors.len()]);
        if !solved {
            self.plan_without_solution();
        }
        self.carry_out();
        EuconStep { number: self.samples, fault, solved }
    }

    /// Ends a sampling period: stores the errors, and plans no change yet. Returns the first processor without a valid
    /// sample.
    pub(super) fn begin(&mut self, utilisations: &[Option<f64>]) -> Option<(usize, MonitorFault)> {
        self.samples += 1;
        self.planned.fill(0.0);
        self.held.fill(false);
        let mut fault = None;
        for (processor, set_point) in self.settings.utilisations.iter().enumerate() {
            let value = utilisations.get(processor).copied().flatten();
            let valid = value.filter(|value| (0.0..=1.0).contains(value));
            if valid.is_none() {
                let variable = MeasuredVariable::Utilisation;
                fault.get_or_insert((processor, MonitorFault { variable, value }));
                let parts = &self.parts[processor * self.tasks.len()..];
                self.held.iter_mut().zip(parts).for_each(|(held, part)| *held |= *part > 0.0);
            }
            self.errors[processor] = valid.map_or(0.0, |value| value - number(*set_point));
        }
        fault
    }

    /// Plans the changes of the rates. `changes` has the change of each processor's utilisation that all controllers
    /// have planned so far, including this one. False if the solver found no solution; the plan then stays.
    pub(super) fn plan(&mut self, changes: &[f64]) -> bool {
        // The part of these changes that does not depend on this controller's plan.
        for (processor, change) in changes.iter().enumerate() {
            let own = self.planned_change(processor) / weight(&self.settings, processor);
            self.offsets[processor] = change - own;
        }
        self.write_linear();
        self.write_bounds();
        let updated = self.solver.update_q(&self.linear).is_ok() && self.solver.update_b(&self.bounds).is_ok();
        if updated {
            self.solver.solve();
        }
        let changes = &self.solver.solution.x[..self.tasks.len()];
        let solved = updated
            && matches!(self.solver.solution.status, SolverStatus::Solved | SolverStatus::AlmostSolved)
            && changes.iter().all(|change| change.is_finite());
        if solved {
            for (place, task) in self.tasks.iter().enumerate() {
                let present = self.rates[place];
                let most = most(task, present, self.held[place]);
                self.planned[place] = (present + self.solver.solution.x[place]).max(task.least()).min(most) - present;
            }
        }
        solved
    }

    /// From now on, the solver finds no solution.
    #[cfg(test)]
    pub(super) fn fail(&mut self) {
        self.solver = solver(&self.settings, &self.parts, (&self.linear, &self.bounds), 0).expect("a solver");
    }

    /// Replaces the plan: lowers the rates of tasks on processors above their set points, in proportion. No rate rises.
    pub(super) fn plan_without_solution(&mut self) {
        for (place, task) in self.tasks.iter().enumerate() {
            let excesses = self.errors.iter().zip(&self.settings.utilisations).enumerate();
            let factors = excesses
                .filter(|(at, (error, _))| **error > 0.0 && self.parts[at * self.tasks.len() + place] > 0.0)
                .map(|(_, (error, set_point))| number(*set_point) / (number(*set_point) + error));
            let present = self.rates[place];
            let rate = (present * factors.fold(1.0, f64::min)).max(task.least()).min(present);
            self.planned[place] = rate - present;
        }
    }

    /// The change of a processor's utilisation that its plan causes, by the model.
    pub(super) fn planned_change(&self, processor: usize) -> f64 {
        let row = self.parts[processor * self.tasks.len()..].iter().zip(&self.planned);
        row.map(|(part, change)| part * change).sum::<f64>() * weight(&self.settings, processor)
    }

    /// Carries out the plan.
    pub(super) fn carry_out(&mut self) {
        for (place, task) in self.tasks.iter().enumerate() {
            // Clip again: a sum of rounded numbers may exceed the limits.
            let rate = (self.rates[place] + self.planned[place]).max(task.least()).min(task.most());
            self.last[place] = self.planned[place];
            self.rates[place] = rate;
            self.periods[place] = task.clip(task.estimate().as_nanos() as f64 / rate);
        }
    }

    /// The linear part of the cost: errors, and the last change.
    fn write_linear(&mut self) {
        let EuconSettings { prediction, control, decay, smoothing, .. } = self.settings;
        let tasks = self.tasks.len();
        self.linear.fill(0.0);
        let mut left = 1.0; // decay^t
        for ahead in 1..=prediction {
            left *= decay;
            for step in 0..ahead.min(control) {
                for (processor, (error, offset)) in self.errors.iter().zip(&self.offsets).enumerate() {
                    let error = weight(&self.settings, processor) * ((1.0 - left) * error + offset);
                    for task in 0..tasks {
                        let part = self.parts[processor * tasks + task];
                        self.linear[step * tasks + task] += 2.0 * part * error;
                    }
                }
            }
        }
        for (linear, last) in self.linear.iter_mut().zip(&self.last) {
            *linear -= 2.0 * smoothing * last;
        }
        if self.settings.shares.is_none() {
            self.linear[control * tasks..].fill(PENALTY);
        }
    }

    /// The right sides of the constraints, in the order of [`constraints`].
    fn write_bounds(&mut self) {
        let mut bounds = self.bounds.iter_mut();
        for _ in 0..self.settings.control {
            for ((task, rate), held) in self.tasks.iter().zip(&self.rates).zip(&self.held) {
                let widened = if *held { WIDENED_IF_HELD } else { WIDENED };
                for room in [most(task, *rate, *held) - rate, rate - task.least()] {
                    bounds.next().into_iter().for_each(|bound| *bound = room + widened);
                }
            }
            for (error, offset) in self.errors.iter().zip(&self.offsets) {
                bounds.next().into_iter().for_each(|bound| *bound = -error - offset);
            }
        }
        bounds.for_each(|bound| *bound = 0.0);
    }
}

fn check(settings: &EuconSettings, tasks: &[EndToEndTask]) -> Result<(), EuconError> {
    let EuconSettings { prediction, control, decay, smoothing, .. } = *settings;
    if control == 0 || control > prediction || prediction > EuconSettings::LONGEST_HORIZON {
        return Err(EuconError::Horizons { prediction, control });
    }
    let processors = settings.utilisations.len();
    if tasks.len() > MOST_CONTROLLED_TASKS || processors > MOST_CONTROLLED_PROCESSORS {
        return Err(EuconError::Size { tasks: tasks.len(), processors });
    }
    let is_part = |share: &f64| *share > 0.0 && *share <= 1.0;
    if settings.shares.as_ref().is_some_and(|shares| shares.len() != processors || !shares.iter().all(is_part)) {
        return Err(EuconError::Shares);
    }
    if !(0.0..1.0).contains(&decay) {
        return Err(EuconError::Number { name: "decay", value: decay });
    }
    if !(smoothing > 0.0 && smoothing.is_finite()) {
        return Err(EuconError::Number { name: "smoothing", value: smoothing });
    }
    for (processor, utilisation) in settings.utilisations.iter().copied().enumerate() {
        if utilisation.is_zero() || utilisation > Share::CPU {
            return Err(EuconError::Utilisation { processor, utilisation });
        }
    }
    for (place, task) in tasks.iter().enumerate() {
        let runs = |processor: &usize| !task.demand(*processor).is_zero();
        if let Some(processor) = (settings.utilisations.len()..task.demand.len()).find(runs) {
            return Err(EuconError::NoSetPoint { task: place, processor });
        }
    }
    Ok(())
}

/// The solver of the problem with these linear costs and bounds.
fn solver(
    settings: &EuconSettings,
    parts: &[f64],
    (linear, bounds): (&[f64], &[f64]),
    max_iter: u32,
) -> Result<DefaultSolver<f64>, EuconError> {
    let tasks = (linear.len() - settings.utilisations.len()) / settings.control;
    let (cost, constraints) = (cost(settings, parts, tasks), constraints(settings, parts, tasks));
    let options = DefaultSettings { verbose: false, presolve_enable: false, max_iter, ..DefaultSettings::default() };
    DefaultSolver::new(&cost, linear, &constraints, bounds, &[NonnegativeConeT(bounds.len())], options)
        .map_err(|_| EuconError::Solver)
}

/// The highest next rate of a task, as its utilisation: if it is held, its present one.
fn most(task: &AdaptiveTask, present: f64, held: bool) -> f64 {
    if held { present } else { task.most() }
}

/// The weight of a processor's errors: the controller's share.
fn weight(settings: &EuconSettings, processor: usize) -> f64 {
    settings.shares.as_ref().map_or(1.0, |shares| shares[processor])
}

fn rows(settings: &EuconSettings, tasks: usize) -> usize {
    let processors = settings.utilisations.len();
    settings.control * (2 * tasks + processors) + processors
}

/// The quadratic part of the cost, twice, its upper triangle. Variables: the changes of all tasks for each step of the
/// control horizon, then the excess of each processor.
fn cost(settings: &EuconSettings, parts: &[f64], tasks: usize) -> CscMatrix<f64> {
    let EuconSettings { ref utilisations, prediction, control, smoothing, .. } = *settings;
    let size = control * tasks + utilisations.len();
    let mut matrix = vec![vec![0.0; size]; size];
    for ahead in 1..=prediction {
        let steps = ahead.min(control);
        for (one, other) in (0..steps).flat_map(|one| (0..steps).map(move |other| (one, other))) {
            for (at, row) in parts.chunks(tasks.max(1)).take(utilisations.len()).enumerate() {
                let weight = 2.0 * weight(settings, at);
                for (left, right) in (0..tasks).flat_map(|left| (0..tasks).map(move |right| (left, right))) {
                    matrix[one * tasks + left][other * tasks + right] += weight * row[left] * row[right];
                }
            }
        }
    }
    for step in 0..control {
        for task in 0..tasks {
            let at = step * tasks + task;
            matrix[at][at] += 2.0 * smoothing;
            if step > 0 {
                let before = at - tasks;
                matrix[before][before] += 2.0 * smoothing;
                matrix[before][at] -= 2.0 * smoothing;
            }
        }
    }
    if settings.shares.is_some() {
        for processor in 0..utilisations.len() {
            let at = control * tasks + processor;
            matrix[at][at] = 2.0 * SQUARE_PENALTY * weight(settings, processor);
        }
    }
    sparse(&matrix, |row, column| row <= column)
}

/// The left sides of the constraints `A x <= b`. For each step of the control horizon: the highest and the lowest rate
/// of each task, and the utilisation of each processor less its excess; last, the excesses are not negative.
fn constraints(settings: &EuconSettings, parts: &[f64], tasks: usize) -> CscMatrix<f64> {
    let (processors, control) = (settings.utilisations.len(), settings.control);
    let size = control * tasks + processors;
    let mut matrix = Vec::with_capacity(rows(settings, tasks));
    for step in 0..control {
        for task in 0..tasks {
            for sign in [1.0, -1.0] {
                let mut row = vec![0.0; size];
                (0..=step).for_each(|at| row[at * tasks + task] = sign);
                matrix.push(row);
            }
        }
        for processor in 0..processors {
            let mut row = vec![0.0; size];
            for at in 0..=step {
                row[at * tasks..][..tasks].copy_from_slice(&parts[processor * tasks..][..tasks]);
            }
            row[control * tasks + processor] = -1.0;
            matrix.push(row);
        }
    }
    for processor in 0..processors {
        let mut row = vec![0.0; size];
        row[control * tasks + processor] = -1.0;
        matrix.push(row);
    }
    sparse(&matrix, |_, _| true)
}

/// The matrix column by column, without zeros.
fn sparse(matrix: &[Vec<f64>], is_kept: impl Fn(usize, usize) -> bool) -> CscMatrix<f64> {
    let columns = matrix.first().map_or(0, Vec::len);
    let (mut starts, mut rows, mut values) = (vec![0], Vec::new(), Vec::new());
    for column in 0..columns {
        for (row, value) in matrix.iter().map(|row| row[column]).enumerate() {
            if value != 0.0 && is_kept(row, column) {
                rows.push(row);
                values.push(value);
            }
        }
        starts.push(rows.len());
    }
    CscMatrix::new(matrix.len(), columns, starts, rows, values)
}
