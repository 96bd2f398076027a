//! What a host's CPUs admit of its programs.

use alloc::string::String;
use alloc::vec::Vec;

use hyoshi_model::{HostId, Instant, ProgramId, Reservation, Share, Span, System};

use super::{joining, most, open, order, promises, task};
use crate::Chain;
use crate::task::Reason;
use crate::window::placement::{Promise, Seat};

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
    /// Whether that is known: the file says what the program takes, or what its advocates ask does not go by that.
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
pub enum Verdict {
    /// All of it.
    Admitted,
    /// Less, but no less than it says is of use to it.
    Cut,
    /// Less than it needs, or nothing.
    Refused,
}

impl Admitted {
    /// Whether it can rely on what it asks.
    pub fn verdict(&self) -> Verdict {
        match (self.held, self.least) {
            (Some(held), _) if held.budget() >= self.asked.budget() => Verdict::Admitted,
            (Some(held), Some(least)) if held.budget() >= least => Verdict::Cut,
            _ => Verdict::Refused,
        }
    }
}

/// What a host's CPUs admit when all of its programs ask the most that they come to ask, by the laws by which the broker
/// grants it and by response time on each CPU; `None` for a host without programs.
pub fn admit(system: &System, host: HostId) -> Option<HostAdmission> {
    system.programs_on(host).next()?;
    let broker = system.brokered.brokers.get(host.index())?;
    let (mut admission, groups) = open(system, host, |cpu| promises(system, host, cpu))?;
    let asked: Vec<(ProgramId, Reservation)> =
        order(system, host).into_iter().filter_map(|id| Some((id, most(system.program(id))?))).collect();
    for (id, asked) in &asked {
        let program = system.program(*id);
        let Some(mut joining) = joining(program, &groups, Chain::default()) else { continue };
        joining.declared = *asked;
        // A file has no more programs than there can be tasks, and its names and weights are good.
        let _ = admission.join(task(*id), joining, Instant::ZERO);
    }
    admission.reconsider(Instant::ZERO);
    let mut programs: Vec<Admitted> = asked
        .into_iter()
        .filter_map(|(id, asked)| {
            let explained = admission.arbiter().explain(task(id), Instant::ZERO)?;
            let grant = explained.grant;
            let mut because: Vec<(ProgramId, Share)> =
                explained.because.iter().map(|holder| (ProgramId(holder.task.0), holder.share)).collect();
            let held = grant.reservation.filter(|_| admission.placement().seat(task(id)).is_some());
            let ceiling = explained.ceiling.is_some() || (held.is_none() && grant.reservation.is_some());
            let reason = if ceiling && held != Some(asked) { Reason::Scheduler } else { grant.reason };
            if reason == Reason::Scheduler && because.is_empty() {
                let others = admission.seats().filter(|(other, _)| *other != task(id));
                let share = |other| admission.arbiter().held(other).map_or(Share::ZERO, Reservation::share);
                because = others.map(|(other, _)| (ProgramId(other.0), share(other))).collect();
                because.sort_by_key(|(other, share)| (core::cmp::Reverse(*share), *other));
            }
            Some(Admitted {
                program: id,
                asked,
                known: system.program(id).longest().is_some(),
                held,
                least: system.program(id).least,
                seat: admission.placement().seat(task(id)),
                response: admission.placement().response(task(id)),
                reason,
                because,
            })
        })
        .collect();
    programs.sort_by_key(|one| one.program);
    let lanes = broker.cpus.iter().map(|cpu| (*cpu, taken(&promises(system, host, *cpu))));
    Some(HostAdmission {
        host,
        policy: broker.policy.clone(),
        cap: broker.cap,
        reserved: programs.iter().filter_map(|one| one.held).map(Reservation::share).sum(),
        lanes: lanes.collect(),
        programs,
    })
}

fn taken(promises: &[Promise]) -> Share {
    promises.iter().map(|promise| Share::CPU.scaled(promise.budget.as_nanos(), promise.period.as_nanos())).sum()
}
