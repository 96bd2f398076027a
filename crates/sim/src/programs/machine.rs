//! One host: its broker, its programs, and the time that lanes leave of its CPUs.

use std::collections::VecDeque;

use hyoshi_control::file::{self, chain, cpus, joining, open, order};
use hyoshi_control::window::placement::{Seat, sliced};
use hyoshi_control::{Admission, ReservationChange, Status, TaskId, Window, WindowStep};
use hyoshi_model::{
    HostId, Instant, JobId, OperationId, ProcessorId, ProgramId, Reservation, ReservationSetting, Span, System,
};

use super::cpu_sharing::{CpuDemand, first_end, paces};
use super::results::{Period, ProgramResults};

/// A host with its programs.
#[derive(Debug)]
pub(super) struct SimulatedHost<'a> {
    system: &'a System,
    host: HostId,
    admission: Admission,
    cpus: Vec<HostCpu>,
    /// In the order in which they joined.
    tasks: Vec<ProgramTask>,
    now: Instant,
    raises: u64,
}

/// A CPU of the broker, and the times at which lanes use it.
#[derive(Debug)]
struct HostCpu {
    number: u32,
    processors: Vec<(ProcessorId, VecDeque<(Instant, Instant)>)>,
}

/// What a task of a broker requests, gets and has used, as parts of one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskLoad {
    pub program: ProgramId,
    pub asked: f64,
    pub granted: f64,
    /// The CPU time that it has reported.
    pub used: Span,
    /// Its last report.
    pub reported: Instant,
}

#[derive(Debug)]
struct ProgramTask {
    program: ProgramId,
    reservation: Option<Reservation>,
    /// Serves it, in slices.
    window: Option<Window>,
    /// The next check of the window.
    look: Instant,
    seat: Option<Seat>,
    raised_since: u64,
    /// CPU time that it has used.
    meter: Span,
    /// The meter's reading at the last report.
    reported: Span,
    /// Its present period.
    begun: Instant,
    number: u64,
    /// The rest of its present cycle.
    left: Span,
    /// Whether that ended in time; `None` while it has not ended, and without one.
    met: Option<bool>,
    asked: Span,
    held: Span,
    played: ProgramResults,
}

impl HostCpu {
    /// Whether lanes use it at `now`, and when that changes.
    fn at(&mut self, now: Instant) -> (bool, Instant) {
        let (mut taken, mut changes) = (false, Instant::NEVER);
        for (_, busy) in &mut self.processors {
            while busy.front().is_some_and(|(_, to)| *to <= now) {
                busy.pop_front();
            }
            match busy.front() {
                Some((from, to)) if *from <= now => (taken, changes) = (true, changes.min(*to)),
                Some((from, _)) => changes = changes.min(*from),
                None => {}
            }
        }
        (taken, changes)
    }
}

impl<'a> SimulatedHost<'a> {
    pub fn new(system: &'a System, host: HostId) -> Option<Self> {
        system.programs_on(host).next()?;
        let broker = system.brokered.brokers.get(host.index())?;
        let (admission, groups) = open(system, host, true)?;
        let placed = cpus(system, host);
        let cpu = |number: &u32| {
            let here = placed.iter().filter(|(_, cpu)| cpu == number);
            HostCpu { number: *number, processors: here.map(|(processor, _)| (*processor, VecDeque::new())).collect() }
        };
        let cpus = broker.cpus.iter().map(cpu).collect();
        let mut machine =
            SimulatedHost { system, host, admission, cpus, tasks: Vec::new(), now: Instant::ZERO, raises: 0 };
        for id in order(system, host) {
            let program = system.program(id);
            machine.tasks.push(ProgramTask::new(id));
            let Some(joining) = joining(program, &groups, chain(program)) else { continue };
            let changes =
                machine.admission.join(file::task(id), joining, Instant::ZERO).map(<[ReservationChange]>::to_vec);
            machine.changed(&changes.unwrap_or_default(), Instant::ZERO);
        }
        for place in 0..machine.tasks.len() {
            machine.begin(place, Instant::ZERO);
        }
        Some(machine)
    }

    pub fn host(&self) -> HostId {
        self.host
    }

    /// The tasks of the host's broker: requests, grants, and the CPU time and periods that they have reported.
    pub fn tasks(&self) -> impl Iterator<Item = TaskLoad> {
        self.tasks.iter().map(|task| {
            let grant = self.admission.arbiter().grant(file::task(task.program));
            let share = |of: Option<Reservation>| of.map_or(0.0, |of| of.share().as_millionths() as f64 / 1e6);
            TaskLoad {
                program: task.program,
                asked: share(grant.as_ref().map(|grant| grant.asked)),
                granted: share(grant.and_then(|grant| grant.reservation)),
                used: task.reported,
                reported: task.begun,
            }
        })
    }

    /// A setting of a program gets another value now.
    pub fn set(&mut self, program: ProgramId, setting: ReservationSetting, to: u64) {
        let changes = self.admission.set(file::task(program), setting, to, self.now);
        let changes = changes.map(<[ReservationChange]>::to_vec).unwrap_or_default();
        self.changed(&changes, self.now);
    }

    pub fn taken(&mut self, processor: ProcessorId, from: Instant, to: Instant) {
        for cpu in &mut self.cpus {
            let Some((_, busy)) = cpu.processors.iter_mut().find(|(id, _)| *id == processor) else { continue };
            match busy.back_mut() {
                Some((_, until)) if *until == from => *until = to,
                _ => busy.push_back((from, to)),
            }
        }
    }

    pub fn play_until(&mut self, end: Instant) {
        while self.now < end {
            self.handle_due();
            let wants = self.wants();
            let (free, changes) = self.free();
            let paces = paces(&free, &wants);
            let next = first_end(self.now, &paces, &wants).min(changes).min(self.next_event()).min(end);
            let span = next.since(self.now);
            for pace in &paces {
                self.tasks[pace.place].run(pace.after(span), next, self.system);
            }
            self.now = next;
        }
    }

    /// Periods that end with the simulation count.
    pub fn close(mut self) -> impl Iterator<Item = ProgramResults> {
        self.handle_due();
        self.tasks.into_iter().map(|task| task.played)
    }

    /// All events of this instant: periods end with their reports, advocates and windows are checked.
    fn handle_due(&mut self) {
        let now = self.now;
        for place in 0..self.tasks.len() {
            if self.ends(place) <= now {
                self.end_period(place, now);
            }
        }
        while let Some(id) = self.admission.arbiter().due(now) {
            let Some(place) = self.place(id) else { break };
            let consumed = self.tasks[place].meter.saturating_sub(self.tasks[place].reported);
            self.report(id, Status::overdue(now, consumed));
        }
        for place in 0..self.tasks.len() {
            if self.tasks[place].look <= now {
                self.look(place, now);
            }
        }
    }

    fn ends(&self, place: usize) -> Instant {
        let task = &self.tasks[place];
        task.begun.saturating_add(self.system.program(task.program).period)
    }

    fn next_event(&self) -> Instant {
        let tasks = (0..self.tasks.len()).map(|place| self.ends(place).min(self.tasks[place].look)).min();
        tasks.unwrap_or(Instant::NEVER).min(self.admission.arbiter().next_check())
    }

    fn end_period(&mut self, place: usize, now: Instant) {
        let task = &mut self.tasks[place];
        let consumed = task.meter.saturating_sub(task.reported);
        task.reported = task.meter;
        let (at, asked, held) = (task.begun, task.asked, task.held);
        let met = task.met.or((!task.left.is_zero()).then_some(false));
        task.played.add(Period { at, until: now, met, asked, held, consumed });
        let id = file::task(task.program);
        (task.begun, task.number) = (now, task.number + 1);
        self.report(id, Status::of_cycle(now, consumed));
        self.begin(place, now);
    }

    /// A period begins, and with it a cycle. The rest of the last one is dropped.
    fn begin(&mut self, place: usize, now: Instant) {
        let task = &mut self.tasks[place];
        let grant = self.admission.arbiter().grant(file::task(task.program));
        (task.asked, task.held) = grant.map_or((Span::ZERO, Span::ZERO), |grant| {
            (grant.asked.budget(), grant.reservation.map_or(Span::ZERO, Reservation::budget))
        });
        (task.met, task.left) = (None, Span::ZERO);
        if let Some(takes) = self.system.program(task.program).execution_time_at(now) {
            // Draws for programs use indices after those of all operations.
            let operation = OperationId(self.system.operations.len() as u32 + task.program.0);
            task.left = takes.draw(self.system.seed, JobId { operation, number: task.number, leg: 0 });
        }
    }

    fn report(&mut self, id: TaskId, status: Status) {
        let changes = self.admission.report(id, status).map(<[ReservationChange]>::to_vec);
        self.changed(&changes.unwrap_or_default(), status.at);
    }

    /// Applies the broker's changes to windows.
    fn changed(&mut self, changes: &[ReservationChange], now: Instant) {
        if changes.is_empty() {
            return;
        }
        for change in changes {
            if let Some(place) = self.place(change.task) {
                self.tasks[place].reservation = change.to;
            }
        }
        self.tasks.iter_mut().for_each(|task| task.seat = None);
        for (id, seat) in self.admission.seats() {
            if let Some(task) = self.tasks.iter_mut().find(|one| file::task(one.program) == id) {
                task.seat = Some(seat);
            }
        }
        // Others' windows may have other slices now.
        for place in 0..self.tasks.len() {
            let task = &mut self.tasks[place];
            let Some(reservation) = task.reservation else {
                (task.window, task.look) = (None, Instant::NEVER);
                continue;
            };
            let served = sliced(reservation, task.seat.map_or(1, |seat| seat.slices));
            let step = match &mut task.window {
                Some(window) if window.reservation() == served => continue,
                Some(window) => window.reserve(served, now, task.meter),
                none => none.insert(Window::new(served)).check(now, task.meter, None),
            };
            self.stepped(place, step);
        }
    }

    fn look(&mut self, place: usize, now: Instant) {
        let task = &mut self.tasks[place];
        let Some(window) = &mut task.window else { return };
        let step = window.check(now, task.meter, None);
        self.stepped(place, step);
    }

    fn stepped(&mut self, place: usize, step: WindowStep) {
        let task = &mut self.tasks[place];
        if let WindowStep::Raise(_) = step {
            self.raises += 1;
            task.raised_since = self.raises;
        }
        task.look = step.at();
    }

    fn place(&self, id: TaskId) -> Option<usize> {
        self.tasks.iter().position(|one| file::task(one.program) == id)
    }

    fn wants(&self) -> Vec<CpuDemand> {
        let wanting = self.tasks.iter().enumerate().filter(|(_, task)| !task.left.is_zero());
        let wants = wanting.map(|(place, task)| {
            let window = task.window.as_ref().filter(|window| window.is_raised());
            let raised = window.and(task.seat).map(|seat| (seat.cpu, seat.level, task.raised_since));
            CpuDemand { place, left: task.left, raised }
        });
        wants.collect()
    }

    /// The CPUs that lanes leave, and when that changes.
    fn free(&mut self) -> (Vec<u32>, Instant) {
        let (mut free, mut changes) = (Vec::new(), Instant::NEVER);
        for cpu in &mut self.cpus {
            let (taken, until) = cpu.at(self.now);
            changes = changes.min(until);
            if !taken {
                free.push(cpu.number);
            }
        }
        (free, changes)
    }
}

impl ProgramTask {
    fn new(program: ProgramId) -> Self {
        ProgramTask {
            program,
            reservation: None,
            window: None,
            look: Instant::NEVER,
            seat: None,
            raised_since: 0,
            meter: Span::ZERO,
            reported: Span::ZERO,
            begun: Instant::ZERO,
            number: 0,
            left: Span::ZERO,
            met: None,
            asked: Span::ZERO,
            held: Span::ZERO,
            played: ProgramResults::new(program),
        }
    }

    /// It used this much of a CPU until `now`.
    fn run(&mut self, span: Span, now: Instant, system: &System) {
        let span = span.min(self.left);
        self.meter += span;
        self.left = self.left.saturating_sub(span);
        if self.left.is_zero() && !span.is_zero() {
            let deadline = self.begun.saturating_add(system.program(self.program).deadline);
            self.met = Some(now <= deadline);
        }
    }
}
