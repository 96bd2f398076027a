//! The reservations that a host's CPUs admit for its programs.

use alloc::string::String;
use alloc::vec::Vec;

use hyoshi_model::{HostId, Instant, ProgramId, Reservation, Share, Span, System};

use super::{cpu, has_external_advocate, joining, most, open, order, promises, task};
use crate::task::{Reason, TaskId};
use crate::window::placement::{Cpu, CpuPromise, Seat, WindowPlacement};
use crate::{Admission, AdvocateChain};

/// The admitted reservations of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostAdmission {
    /// The host.
    pub host: HostId,
    /// Its broker's policy.
    pub policy: String,
    /// The limit of all reservations together.
    pub cap: Share,
    /// The sum of all reservations.
    pub reserved: Share,
    /// The share of lanes on each of the broker's CPUs.
    pub lanes: Vec<(u32, Share)>,
    /// In the file's order.
    pub programs: Vec<Admitted>,
}

/// The admitted reservation of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// The program.
    pub program: ProgramId,
    /// The largest request that it makes.
    pub asked: Reservation,
    /// Whether that is known: the file has the program's execution times, and no external advocate is involved.
    pub known: bool,
    /// Its reservation if all programs request their most.
    pub held: Option<Reservation>,
    /// The least useful budget, in each period.
    pub least: Option<Span>,
    /// Its window's seat.
    pub seat: Option<Seat>,
    /// The latest instant after a period's start by which it has had its whole budget.
    pub response: Option<Span>,
    /// The limit of its reservation.
    pub reason: Reason,
    /// The tasks that hold the missing share, the largest first.
    pub because: Vec<(ProgramId, Share)>,
}

/// Whether a program can rely on its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// The whole request.
    Admitted,
    /// Less, but at least the least useful budget.
    Cut,
    /// Less than it needs, or nothing.
    Refused,
}

impl Admitted {
    /// Whether it can rely on its request.
    pub fn verdict(&self) -> AdmissionVerdict {
        match (self.held, self.least) {
            (Some(held), _) if held.budget() >= self.asked.budget() => AdmissionVerdict::Admitted,
            (Some(held), Some(least)) if held.budget() >= least => AdmissionVerdict::Cut,
            _ => AdmissionVerdict::Refused,
        }
    }
}

/// The reservations that a host's CPUs admit if all of its programs request their most; `None` for a host without
/// programs.
///
/// First the broker's own decision without lanes: the grants, and their CPUs. Then the result beside the lanes of each
/// CPU, by response time: if a window would be late, it gets the most that fits, those with shorter deadlines first.
pub fn admit(system: &System, host: HostId) -> Option<HostAdmission> {
    system.programs_on(host).next()?;
    let broker = system.brokered.brokers.get(host.index())?;
    let (mut admission, groups) = open(system, host, false)?;
    let asked: Vec<(ProgramId, Reservation)> =
        order(system, host).into_iter().filter_map(|id| Some((id, most(system.program(id))?))).collect();
    for (id, asked) in &asked {
        let Some(mut joining) = joining(system.program(*id), &groups, AdvocateChain::default()) else { continue };
        joining.declared = *asked;
        // A file has at most as many programs as there can be tasks, with valid names and weights.
        let _ = admission.join(task(*id), joining, Instant::ZERO);
    }
    admission.reconsider(Instant::ZERO);
    let promised: Vec<Cpu> = broker.cpus.iter().map(|number| cpu(*number, promises(system, host, *number))).collect();
    let beside = beside_lanes(&admission, &promised);
    let mut programs: Vec<Admitted> =
        asked.into_iter().filter_map(|(id, asked)| admitted(system, &admission, &beside, id, asked)).collect();
    programs.sort_by_key(|one| one.program);
    Some(HostAdmission {
        host,
        policy: broker.policy.clone(),
        cap: broker.cap,
        reserved: programs.iter().filter_map(|one| one.held).map(Reservation::share).sum(),
        lanes: promised.iter().map(|cpu| (cpu.number, taken(&cpu.promises))).collect(),
        programs,
    })
}

/// A window beside lanes: the largest budget that fits, its seat, and its response.
struct BesideLanes {
    task: TaskId,
    held: Option<Reservation>,
    seat: Option<Seat>,
    response: Option<Span>,
}

/// The windows of each CPU again, with the promises to its lanes.
fn beside_lanes(admission: &Admission, cpus: &[Cpu]) -> Vec<BesideLanes> {
    let mut all = Vec::new();
    for cpu in cpus {
        let here = admission.seats().filter(|(_, seat)| seat.cpu == cpu.number);
        let mut here: Vec<(Span, TaskId, Reservation)> = here
            .filter_map(|(task, _)| admission.arbiter().held(task).map(|held| (held.deadline(), task, held)))
            .collect();
        here.sort_by_key(|(deadline, task, _)| (*deadline, *task));
        let mut placement = WindowPlacement::new([cpu.clone()], WindowPlacement::SWITCHING);
        let fitted = here.into_iter().map(|(_, task, held)| match placement.admit(task, held, &[]) {
            Ok(_) => (task, Some(held)),
            Err(refused) => (task, refused.most.filter(|most| placement.admit(task, *most, &[]).is_ok())),
        });
        let fitted: Vec<(TaskId, Option<Reservation>)> = fitted.collect();
        all.extend(fitted.into_iter().map(|(task, held)| BesideLanes {
            task,
            held,
            seat: placement.seat(task),
            response: placement.response(task),
        }));
    }
    all
}

fn admitted(
    system: &System,
    admission: &Admission,
    beside: &[BesideLanes],
    id: ProgramId,
    asked: Reservation,
) -> Option<Admitted> {
    let explained = admission.arbiter().explain(task(id), Instant::ZERO)?;
    let found = beside.iter().find(|one| one.task == task(id));
    let held = found.and_then(|found| found.held);
    let granted = explained.grant.reservation;
    let refused = explained.ceiling.is_some() || held != granted;
    let reason = if refused && held != Some(asked) { Reason::Scheduler } else { explained.grant.reason };
    let mut because: Vec<(ProgramId, Share)> =
        explained.because.iter().map(|holder| (ProgramId(holder.task.0), holder.share)).collect();
    if reason == Reason::Scheduler {
        let others = beside.iter().filter(|other| other.task != task(id));
        let same = others.filter(|other| match (found.and_then(|found| found.seat), other.seat) {
            (Some(own), Some(other)) => own.cpu == other.cpu,
            _ => true,
        });
        let share = |other: &BesideLanes| other.held.map_or(Share::ZERO, Reservation::share);
        because = same.map(|other| (ProgramId(other.task.0), share(other))).collect();
        because.sort_by_key(|(other, share)| (core::cmp::Reverse(*share), *other));
    }
    let program = system.program(id);
    Some(Admitted {
        program: id,
        asked,
        known: program.longest().is_some() && !has_external_advocate(program),
        held,
        least: program.least,
        seat: found.and_then(|found| found.seat),
        response: found.and_then(|found| found.response),
        reason,
        because,
    })
}

fn taken(promises: &[CpuPromise]) -> Share {
    promises.iter().map(|promise| Share::CPU.scaled(promise.budget.as_nanos(), promise.period.as_nanos())).sum()
}
