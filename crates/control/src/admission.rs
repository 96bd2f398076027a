//! The arbiter's decisions, carried out only by placement: the reservations that a machine with these CPUs would hold.

use alloc::vec::Vec;

use hyoshi_model::{Instant, Reservation, ReservationSetting, Share, Span};

use crate::advocate::Spec;
use crate::arbiter::{Arbiter, Joining, Refusal, ReservationChange};
use crate::backlog::{Backlog, ChangeResult};
use crate::policy::AnyPolicy;
use crate::task::{Confirmation, Status, TaskId};
use crate::window::placement::{Cpu, Seat, WindowPlacement};

/// An [`Arbiter`] with a [`WindowPlacement`] as scheduler: reservations that fit its CPUs are held, the others are
/// refused and arbitrated again, as the broker does with its machine.
///
/// `check` admits a file's reservations with it, and simulation uses it.
#[derive(Debug)]
pub struct Admission {
    arbiter: Arbiter,
    placement: WindowPlacement,
    backlog: Backlog,
    done: Vec<ReservationChange>,
}

impl Admission {
    /// The name of its scheduler in explanations.
    pub const PROXY: &'static str = "window";

    /// Nothing is reserved yet.
    pub fn new(policy: AnyPolicy, cap: Share, cpus: impl IntoIterator<Item = Cpu>) -> Self {
        let placement = WindowPlacement::new(cpus, WindowPlacement::SWITCHING);
        Admission { arbiter: Arbiter::new(policy, cap), placement, backlog: Backlog::default(), done: Vec::new() }
    }

    /// A task joins. Returns the changes in the order in which they were carried out.
    pub fn join(&mut self, task: TaskId, joining: Joining, now: Instant) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.join(task, joining, now)?);
        Ok(self.carry_out(now))
    }

    /// A task's report, or a check between reports.
    pub fn report(&mut self, task: TaskId, status: Status) -> Result<&[ReservationChange], Refusal> {
        self.backlog.add(self.arbiter.report(task, status)?);
        Ok(self.carry_out(status.at))
    }

    /// A setting of a task gets another value, in the unit of the setting. A task without an advocate of the kind keeps
    /// its chain.
    pub fn set(
        &mut self,
        task: TaskId,
        setting: ReservationSetting,
        to: u64,
        now: Instant,
    ) -> Result<&[ReservationChange], Refusal> {
        let arbiter = &mut self.arbiter;
        let joining = arbiter.joining(task).ok_or(Refusal::Unknown(task))?;
        let decision = match setting {
            ReservationSetting::Importance => arbiter.set_importance(task, to as u32)?,
            ReservationSetting::Weight => arbiter.set_weight(task, to as u32)?,
            ReservationSetting::Least => {
                let least = Reservation::new(Span::from_nanos(to), joining.declared.period());
                arbiter.set_least(task, least.map_or(Share::ZERO, Reservation::share))?
            }
            ReservationSetting::Rate | ReservationSetting::Cap | ReservationSetting::Floor => {
                let place = joining.chain.iter().position(|(advocate, _)| advocate.name() == setting.key());
                let advocate = Spec::new(setting.key(), [("", setting.text(to).as_str())]).ok();
                let (Some(place), Some(advocate)) = (place, advocate) else { return Ok(&[]) };
                arbiter.replace_advocate(task, advocate.build(), place, now)?
            }
        };
        self.backlog.add(decision);
        Ok(self.carry_out(now))
    }

    /// Tries everything that was refused again.
    pub fn reconsider(&mut self, now: Instant) -> &[ReservationChange] {
        self.backlog.add(self.arbiter.reconsider(|_| ()));
        self.carry_out(now)
    }

    /// The arbiter, for its decisions and explanations.
    pub fn arbiter(&self) -> &Arbiter {
        &self.arbiter
    }

    /// The placement of the windows.
    pub fn placement(&self) -> &WindowPlacement {
        &self.placement
    }

    /// The seats of all windows.
    pub fn seats(&self) -> impl Iterator<Item = (TaskId, Seat)> {
        self.placement.seats()
    }

    fn carry_out(&mut self, now: Instant) -> &[ReservationChange] {
        let Admission { arbiter, placement, backlog, done } = self;
        done.clear();
        backlog.carry_out(arbiter, |change| {
            match change.to {
                None => drop(placement.release(change.task)),
                Some(reservation) => {
                    if let Err(refused) = placement.admit(change.task, reservation, &[]) {
                        return ChangeResult::Refused(refused.most);
                    }
                }
            }
            done.push(change);
            ChangeResult::Held(Confirmation { at: now, proxy: Admission::PROXY, held: change.to })
        });
        done
    }
}
