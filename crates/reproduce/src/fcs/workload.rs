//! The system of section 4.1 as data: twelve tasks under RMS on one processor, with a loop or with fixed rates. With
//! hosts, each task has a client on another host, which invokes it at its rate.

use std::borrow::Cow;

use hyoshi_model::{
    Contents, Deadline, Epoch, ExecutionTime, FeedbackAlgorithm, FeedbackLoop, HardCap, Instant, JobId, OperationId,
    Setting, Span, System, read,
};
use serde::Serialize;

/// The tasks of table 1, and the settings of table 2.
const FILE: &str = include_str!("workload.toml");

/// A method of table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodRow {
    /// The tasks that invoke it.
    pub tasks: usize,
    /// The lowest rate of each is drawn between these, in millihertz.
    pub least_mhz: (u64, u64),
}

/// Table 1; estimates and highest rates are in the file.
pub const METHODS: [MethodRow; 3] = [
    MethodRow { tasks: 6, least_mhz: (1_100, 2_100) },
    MethodRow { tasks: 2, least_mhz: (1_300, 1_900) },
    MethodRow { tasks: 4, least_mhz: (1_200, 2_200) },
];

/// The sampling period of table 2.
pub const SAMPLING_PERIOD: Span = Span::from_secs(4);

/// The number of tasks.
pub const TASKS: usize = 12;

/// The execution time of a client.
const CLIENT: Span = Span::from_micros(20);

/// Execution times vary by this much around their mean, in percent: repeated runs differ.
const VARIATION_PERCENT: u64 = 5;

/// A loop holds fixed rates within this part of themselves.
const HELD_WITHIN: u64 = 1_000;

/// How the rates are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FcsVariant {
    /// Fixed rates: the paper's open loop.
    Open,
    /// Holds 70 % of utilisation.
    FcU,
    /// Holds a miss ratio of 1.5 %.
    FcM,
    /// Holds 75 % of utilisation, or a miss ratio of 1.5 %.
    FcUm,
    /// FC-UM that rises as fast as FC-U; not in the paper.
    FcUmFast,
}

impl FcsVariant {
    /// All, in the order of tables.
    pub const ALL: [FcsVariant; 5] =
        [FcsVariant::Open, FcsVariant::FcU, FcsVariant::FcM, FcsVariant::FcUm, FcsVariant::FcUmFast];

    /// The algorithm; `None` with fixed rates.
    pub const fn algorithm(self) -> Option<FeedbackAlgorithm> {
        match self {
            FcsVariant::Open => None,
            FcsVariant::FcU => Some(FeedbackAlgorithm::FcU),
            FcsVariant::FcM => Some(FeedbackAlgorithm::FcM),
            FcsVariant::FcUm => Some(FeedbackAlgorithm::FcUm),
            FcsVariant::FcUmFast => Some(FeedbackAlgorithm::FcUmFast),
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        self.algorithm().map_or("OPEN", FeedbackAlgorithm::name)
    }

    /// Us, in parts per million, if it controls the utilisation.
    pub const fn utilisation_ppm(self) -> Option<u32> {
        match self {
            FcsVariant::Open | FcsVariant::FcM => None,
            FcsVariant::FcU => Some(700_000),
            FcsVariant::FcUm | FcsVariant::FcUmFast => Some(750_000),
        }
    }
}

/// Ms of table 2, in parts per million.
pub const MISS_RATIO_PPM: u32 = 15_000;

/// From an instant on, execution times are another part of the first ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExecutionStep {
    /// When.
    pub at_ns: u64,
    /// The part by method, in percent.
    pub percent: [u64; 3],
}

/// The hosts of a run in two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcsHosts {
    /// The ports of server and client.
    pub ports: [u16; 2],
    /// Their CPUs.
    pub cpus: [u32; 2],
}

impl FcsHosts {
    /// Their names.
    pub const NAMES: [&str; 2] = ["server", "client"];

    /// From ports and the CPUs of this process.
    pub fn new(ports: &[u16], cpus: &[u32]) -> FcsHosts {
        let cpu = |place: usize| cpus.get(place % cpus.len().max(1)).copied().unwrap_or(0);
        FcsHosts { ports: [ports[0], ports[1]], cpus: [cpu(0), cpu(1)] }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcsWorkload {
    /// How the rates are set.
    pub variant: FcsVariant,
    /// Actual over estimated execution times, in percent: the platform.
    pub gain_percent: u64,
    /// Fixed rates instead of the loop's: with this total of estimated utilisation, in parts per million.
    pub held_ppm: Option<u64>,
    /// Whether a loop that can change rates by 0.1 % samples a run with fixed rates.
    pub sampled: bool,
    /// The sampling period, before `scale`.
    pub period: Span,
    /// The length of the run.
    pub duration: Span,
    /// Changes of execution times.
    pub steps: Vec<ExecutionStep>,
    /// The draw of the lowest rates.
    pub rates_seed: u64,
    /// The draw of phases and execution times.
    pub seed: u64,
    /// All times, including those of steps and the duration, are divided by this.
    pub scale: u64,
    /// Whether the usual caps limit the lanes. The paper had none.
    pub capped: bool,
    /// The hosts of server and clients; `None`: the server releases the tasks itself.
    pub hosts: Option<FcsHosts>,
}

impl FcsWorkload {
    /// A run of the paper on the platform with this ratio of execution times to estimates.
    pub fn new(variant: FcsVariant, gain_percent: u64, duration: Span, seed: u64) -> FcsWorkload {
        FcsWorkload {
            variant,
            gain_percent,
            held_ppm: None,
            sampled: true,
            period: SAMPLING_PERIOD,
            duration,
            steps: Vec::new(),
            rates_seed: seed,
            seed,
            scale: 1,
            capped: false,
            hosts: None,
        }
    }

    /// The sampling period of the run.
    pub fn sampling_period(&self) -> Span {
        self.scaled(self.period)
    }

    fn scaled(&self, span: Span) -> Span {
        Span::from_nanos(span.as_nanos() / self.scale)
    }

    /// As a system.
    pub fn system(&self) -> System {
        let contents = match read(&self.file(), "fcs.toml", None) {
            Ok(loaded) => loaded.system.into_contents(),
            Err(errors) => unreachable!("the built-in workload is read by every test: {errors}"),
        };
        let first = self.settings(&contents, [100; 3]);
        let later = self.steps.iter().map(|step| {
            let at = Instant::from_nanos(step.at_ns / self.scale);
            (at, self.settings(&contents, step.percent))
        });
        let later: Vec<_> = later.collect();
        let mut system = contents;
        system.seed = self.seed;
        system.duration = self.scaled(self.duration);
        let environment = system.epochs[0].environment.clone();
        system.epochs = std::iter::once((Instant::ZERO, first))
            .chain(later)
            .enumerate()
            .map(|(index, (at, settings))| Epoch {
                name: index.to_string(),
                at,
                settings: settings.into(),
                environment: environment.clone(),
                admissions: Default::default(),
            })
            .collect();
        if !self.capped {
            for processor in &mut system.processors {
                processor.cap_ppm = 1_000_000;
                processor.hard_cap = HardCap::OFF;
            }
        }
        match self.control(&system.feedback[0]) {
            Some(control) => system.feedback[0] = control,
            None => system.feedback.clear(),
        }
        System::new(system)
    }

    /// The workload as a file, before its rates are drawn.
    fn file(&self) -> Cow<'static, str> {
        let Some(FcsHosts { ports, cpus }) = self.hosts else { return FILE.into() };
        let mut parts = FILE.split("[operation.\"method");
        let mut text = parts.next().unwrap_or_default().to_owned();
        let place = |of: usize| format!("host = \"{}\"\ncpu = {}\n", FcsHosts::NAMES[of], cpus[of]);
        text = text.replace("[processor.server]\n", &format!("[processor.server]\n{}", place(0)));
        text += &format!("[processor.client]\n{}", place(1));
        for (name, port) in FcsHosts::NAMES.iter().zip(ports) {
            text += &format!("[host.{name}]\nendpoints = [\"tcp/127.0.0.1:{port}\"]\n");
        }
        let (mut clients, mut methods) = (String::new(), String::new());
        for part in parts {
            let (name, keys) = part.split_once("\"]\n").unwrap_or_default();
            let (rate, rest) = keys.split_once('\n').unwrap_or_default();
            clients += &format!("[operation.\"client{name}\"]\non = \"client\"\n{rate}\nwcet = \"{CLIENT}\"\n");
            let after = format!("after = {{ all = [\"client{name}\"] }}");
            methods += &format!("[operation.\"method{name}\"]\non = \"server\"\n{after}\n{rest}");
        }
        (text + &clients + &methods).into()
    }

    /// The operation that a task runs at the server.
    pub fn method_of(&self, task: OperationId) -> OperationId {
        OperationId(task.0 + self.hosts.map_or(0, |_| TASKS as u32))
    }

    fn control(&self, declared: &FeedbackLoop) -> Option<FeedbackLoop> {
        let algorithm = match self.variant.algorithm() {
            Some(algorithm) => algorithm,
            None if self.sampled => FeedbackAlgorithm::FcU,
            None => return None,
        };
        let set_points = (self.variant.utilisation_ppm().unwrap_or(1_000_000), MISS_RATIO_PPM);
        Some(FeedbackLoop {
            algorithm,
            utilisation_ppm: set_points.0,
            utilisation_analysed: false,
            miss_ratio_ppm: set_points.1,
            period: self.sampling_period(),
            ..declared.clone()
        })
    }

    /// The settings of all tasks with this part of the first execution times, by method.
    fn settings(&self, contents: &Contents, percent: [u64; 3]) -> Vec<Setting> {
        let lowest = self.lowest_mhz();
        let declared = &contents.epochs[0].settings;
        let total = |of: &dyn Fn(usize) -> f64| (0..TASKS).map(of).sum::<f64>();
        let estimate =
            |task: usize| declared[self.method_of(OperationId(task as u32)).index()].wcet.as_nanos() as f64 / 1e9;
        let start = total(&|task| estimate(task) * lowest[task] as f64 / 1e3);
        let of = |(operation, setting): (usize, &Setting)| {
            let task = operation % TASKS;
            let is_client = self.hosts.is_some() && operation < TASKS;
            let mean = setting.wcet.as_nanos() * self.gain_percent / 100 * percent[method(task)] / 100 / self.scale;
            let varies = mean * VARIATION_PERCENT / 100;
            let mut setting = setting.clone();
            if !is_client {
                let (least, most) = (Span::from_nanos(mean - varies), Span::from_nanos(mean + varies));
                setting.wcet = self.scaled(setting.wcet);
                (setting.bcet, setting.execution_time) = (Span::from_nanos(1), ExecutionTime::Uniform(least, most));
            }
            (setting.period, setting.slowest) = (self.scaled(setting.period), self.scaled(period(lowest[task] as f64)));
            if let Some(held) = self.held_ppm {
                setting.period = self.scaled(period(lowest[task] as f64 * held as f64 / 1e6 / start));
                let loops = self.variant.algorithm().is_some() || self.sampled;
                let width = setting.period.as_nanos() / HELD_WITHIN * u64::from(loops);
                setting.slowest = setting.period + Span::from_nanos(width);
            }
            setting.deadline = match setting.deadline {
                Deadline::Origin(_) => Deadline::Origin(setting.period),
                _ => Deadline::Own(setting.period),
            };
            if operation < TASKS {
                setting.phase = draw(self.seed, task, (0, setting.slowest.as_nanos() - 1));
            }
            setting
        };
        declared.iter().enumerate().map(of).collect()
    }

    /// The lowest rates in millihertz, by task, drawn from the ranges of table 1.
    pub fn lowest_mhz(&self) -> Vec<u64> {
        let of = |task: usize| draw(self.rates_seed, task, METHODS[method(task)].least_mhz).as_nanos();
        (0..TASKS).map(of).collect()
    }
}

/// The period of a rate in millihertz.
fn period(rate_mhz: f64) -> Span {
    Span::from_nanos((1e12 / rate_mhz).round() as u64)
}

/// A uniform draw for a task, by the generator of execution times.
fn draw(seed: u64, task: usize, (least, most): (u64, u64)) -> Span {
    let job = JobId { operation: OperationId(task as u32), number: u64::MAX, leg: 0 };
    ExecutionTime::Uniform(Span::from_nanos(least), Span::from_nanos(most)).draw(seed, job)
}

/// The method of a task.
pub fn method(task: usize) -> usize {
    let mut end = 0;
    let before = METHODS.iter().take_while(|method| {
        end += method.tasks;
        end <= task
    });
    before.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_that_of_tables_1_and_2() {
        let workload = FcsWorkload::new(FcsVariant::FcUm, 200, Span::from_secs(800), 1);
        let system = workload.system();
        assert_eq!(system.operations.len(), TASKS);
        let of = |task: usize| system.epochs[0].settings[task].clone();
        for task in 0..TASKS {
            let setting = of(task);
            let (estimate, highest) = [(8_400, 35), (1_200, 50), (7_000, 40)][method(task)];
            assert_eq!(setting.wcet, Span::from_micros(estimate), "task {task}");
            assert!(setting.period.as_nanos().abs_diff(1_000_000_000 / highest) <= 1, "task {task}");
            let (least, most) = METHODS[method(task)].least_mhz;
            assert!((1_000_000_000_000 / most..=1_000_000_000_000 / least + 1).contains(&setting.slowest.as_nanos()));
            assert!(setting.deadline_adapts());
        }
        assert_eq!([0, 5, 6, 7, 8, 11].map(method), [0, 0, 1, 1, 2, 2]);
        let one = &system.feedback[0];
        assert_eq!((one.utilisation_ppm, one.miss_ratio_ppm, one.period), (750_000, 15_000, SAMPLING_PERIOD));
        assert_eq!((one.gains.ga, one.gains.gm), (2.0, 0.447));
    }

    #[test]
    fn held_rates_have_the_estimated_utilisation_and_the_lowest_rates_ratios() {
        let held = |sampled| FcsWorkload {
            held_ppm: Some(700_000),
            sampled,
            ..FcsWorkload::new(FcsVariant::Open, 200, Span::from_secs(8), 3)
        };
        let system = held(true).system();
        let settings = &system.epochs[0].settings;
        let part = |one: &Setting| one.wcet.as_nanos() as f64 / one.period.as_nanos() as f64;
        let total: f64 = settings.iter().map(part).sum();
        assert!((total - 0.7).abs() < 1e-6, "{total}");
        assert_eq!(held(false).system().feedback.len(), 0);
        let lowest = held(true).lowest_mhz();
        let ratio = |task: usize| settings[task].period.as_nanos() as f64 * lowest[task] as f64;
        assert!((1..TASKS).all(|task| (ratio(task) / ratio(0) - 1.0).abs() < 1e-6));
    }

    #[test]
    fn with_hosts_the_server_has_the_same_tasks_and_the_clients_their_rates() {
        let one = FcsWorkload::new(FcsVariant::FcU, 200, Span::from_secs(800), 1);
        let hosts = Some(FcsHosts::new(&[7001, 7002], &[0]));
        let two = FcsWorkload { hosts, scale: 10, ..one.clone() }.system();
        let one = FcsWorkload { scale: 10, ..one }.system();
        assert_eq!(two.operations.len(), 2 * TASKS);
        let adapted = two.adapted_on(two.feedback[0].processor);
        assert_eq!(adapted.len(), TASKS);
        for (task, adapted) in adapted.iter().enumerate() {
            let id = OperationId(task as u32);
            let method = OperationId((task + TASKS) as u32);
            assert_eq!((adapted.root, adapted.here.as_slice()), (id, &[method][..]));
            let (of_one, client, method) = (one.setting(0, id), two.setting(0, id), two.setting(0, method));
            assert_eq!((client.period, client.slowest, client.phase), (of_one.period, of_one.slowest, of_one.phase));
            assert_eq!((method.wcet, &method.execution_time), (of_one.wcet, &of_one.execution_time));
            assert_eq!(method.deadline, Deadline::Origin(client.period));
            assert!(method.deadline_adapts());
        }
        let text = hyoshi_model::write(&two);
        let again = read(&text, "fcs.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(hyoshi_model::write(&again.system), text);
    }

    #[test]
    fn on_a_shorter_scale_utilisations_are_the_same() {
        let at = |scale| {
            let workload = FcsWorkload::new(FcsVariant::FcU, 130, Span::from_secs(800), 1);
            let system = FcsWorkload { scale, ..workload }.system();
            let settings = system.epochs[0].settings.clone();
            settings.iter().map(|one| one.wcet.as_nanos() as f64 / one.slowest.as_nanos() as f64).sum::<f64>()
        };
        assert!((at(1) - at(40)).abs() < 1e-5);
    }
}
