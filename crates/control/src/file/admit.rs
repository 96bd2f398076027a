//! What a host's CPUs admit of its programs.

use alloc::string::String;
use alloc::vec::Vec;

use hyoshi_model::{HostId, Instant, ProgramId, Reservation, Share, Span, System};

use super::{asks_elsewhere, cpu, joining, most, open, order, promises, task};
use crate::task::{Reason, TaskId};
use crate::window::placement::{Cpu, WindowPlacement, Promise, Seat};
use crate::{Admission, AdvocateChain};

/// What is admitted on a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostAdmission {
    /// The host.
    pub host: HostId,
    /// Its broker's policy.
    pub policy: String,
    /// How much may be reserved altogether.
    pub cap: Share,
    /// How much is.
    pub reserved: Share,
    /// What lanes take of each of the broker's CPUs.
    pub lanes: Vec<(u32, Share)>,
    /// In the file's order.
    pub programs: Vec<Admitted>,
}

/// What is admitted of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Admitted {
    /// Which.
    pub program: ProgramId,
    /// The most that it comes to ask.
    pub asked: Reservation,
    /// Whether that is known: the file says what the program takes, and no advocate from elsewhere has its say.
    pub known: bool,
    /// What it holds when all ask their most.
    pub held: Option<Reservation>,
    /// The least that is of use to it, in each period.
    pub least: Option<Span>,
    /// Where.
    pub seat: Option<Seat>,
    /// How long after a period's begin it has its whole budget, at the latest.
    pub response: Option<Span>,
    /// Why it holds no more.
    pub reason: Reason,
    /// Who holds what it lacks, the largest first.
    pub because: Vec<(ProgramId, Share)>,
}

/// Whether a program can rely on what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionVerdict {
    /// All of it.
    Admitted,
    /// Less, but no less than it says is of use to it.
    Cut,
    /// Less than it needs, or nothing.
    Refused,
}

impl Admitted {
    /// Whether it can rely on what it asks.
    pub fn verdict(&self) -> AdmissionVerdict {
        match (self.held, self.least) {
            (Some(held), _) if held.budget() >= self.asked.budget() => AdmissionVerdict::Admitted,
            (Some(held), Some(least)) if held.budget() >= least => AdmissionVerdict::Cut,
            _ => AdmissionVerdict::Refused,
        }
    }
}

/// What a host's CPUs admit when all of its programs ask the most that they come to ask; `None` for a host without
/// programs.
///
/// First the broker's own decision, as before any run has told it of lanes: whom it grants how much, on which CPU. Then what is
/// true of it beside the lanes of that CPU, by response time: where a window would be late, the most that fits counts,
/// those with shorter deadlines first.
pub fn admit(system: &System, host: HostId) -> Option<HostAdmission> {
    system.programs_on(host).next()?;
    let broker = system.brokered.brokers.get(host.index())?;
    let (mut admission, groups) = open(system, host, false)?;
    let asked: Vec<(ProgramId, Reservation)> =
        order(system, host).into_iter().filter_map(|id| Some((id, most(system.program(id))?))).collect();
    for (id, asked) in &asked {
        let Some(mut joining) = joining(system.program(*id), &groups, AdvocateChain::default()) else { continue };
        joining.declared = *asked;
        // A file has no more programs than there can be tasks, and its names and weights are good.
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

/// A window beside lanes: what fits, where, and its response.
struct Beside {
    task: TaskId,
    held: Option<Reservation>,
    seat: Option<Seat>,
    response: Option<Span>,
}

/// The windows of each CPU once more, with what its lanes were promised.
fn beside_lanes(admission: &Admission, cpus: &[Cpu]) -> Vec<Beside> {
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
        all.extend(fitted.into_iter().map(|(task, held)| Beside {
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
    beside: &[Beside],
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
        let share = |other: &Beside| other.held.map_or(Share::ZERO, Reservation::share);
        because = same.map(|other| (ProgramId(other.task.0), share(other))).collect();
        because.sort_by_key(|(other, share)| (core::cmp::Reverse(*share), *other));
    }
    let program = system.program(id);
    Some(Admitted {
        program: id,
        asked,
        known: program.longest().is_some() && !asks_elsewhere(program),
        held,
        least: program.least,
        seat: found.and_then(|found| found.seat),
        response: found.and_then(|found| found.response),
        reason,
        because,
    })
}

fn taken(promises: &[Promise]) -> Share {
    promises.iter().map(|promise| Share::CPU.scaled(promise.budget.as_nanos(), promise.period.as_nanos())).sum()
}
