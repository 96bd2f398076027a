//! Classes in the kernel during a run.

use crate::claim::DeviceClaim;
use crate::error::NetworkError;
use crate::kernel::{DeviceControl, RootQueue};
use crate::message;
use crate::plan::ClassPlan;

/// The classes of a device. They are removed when this is dropped.
///
/// ```text
///   default discipline ── apply ──► ours ── remove, or drop ──► default discipline
///                                     │ the process is killed
///                                     ▼
///                                   left ── apply of a later run, or remove_left ──► ...
/// ```
#[derive(Debug)]
pub struct HeldClasses {
    plan: ClassPlan,
    control: DeviceControl,
    removed: bool,
    /// Dropped after the classes.
    _claim: DeviceClaim,
}

/// A class in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// The guaranteed rate, in octets per second.
    pub rate: u64,
    /// The rate that it may reach, in octets per second.
    pub ceiling: u64,
    /// Octets that it has sent, with Ethernet headers.
    pub octets: u64,
    /// Packets that it has sent; wraps around.
    pub packets: u32,
    /// Packets that were dropped because its queue was full.
    pub dropped: u32,
    /// Packets that wait.
    pub waiting: u32,
}

impl HeldClasses {
    /// Installs the classes of a plan, and reads them back. Replaces those that a killed run has left.
    ///
    /// # Errors
    ///
    /// The device then has its previous discipline, or the kernel's default if classes were left on it.
    pub fn apply(plan: ClassPlan) -> Result<HeldClasses, NetworkError> {
        let device = &plan.device;
        let control = DeviceControl::open(device)?;
        let claim = DeviceClaim::take(device, control.index())?;
        match control.root()? {
            RootQueue::Default => {}
            RootQueue::Ours => control.remove()?,
            RootQueue::Foreign(found) => return Err(NetworkError::Occupied { device: device.clone(), found }),
        }
        if let Err(error) = control.install(&plan) {
            // Remove what was installed before the error.
            if matches!(control.root(), Ok(RootQueue::Ours)) {
                let _ = control.remove();
            }
            return Err(error);
        }
        let held = HeldClasses { plan, control, removed: false, _claim: claim };
        let as_planned = held
            .counts()?
            .iter()
            .zip(&held.plan.classes)
            .all(|(found, planned)| (found.rate, found.ceiling) == (planned.rate, planned.ceiling));
        if as_planned { Ok(held) } else { Err(NetworkError::NotAsPlanned { device: held.plan.device.clone() }) }
    }

    /// The plan.
    pub fn plan(&self) -> &ClassPlan {
        &self.plan
    }

    /// The classes in the kernel, in the order of the plan.
    ///
    /// # Errors
    ///
    /// If the kernel does not answer, or a class is missing.
    pub fn counts(&self) -> Result<Vec<ClassCounts>, NetworkError> {
        let found: Vec<_> = self.control.classes()?.iter().filter_map(message::read).collect();
        let of = |minor: u16| found.iter().find(|(known, _)| *known == minor).map(|(_, counts)| *counts);
        let all: Option<Vec<_>> = self.plan.classes.iter().map(|class| of(class.minor)).collect();
        all.ok_or_else(|| NetworkError::NotAsPlanned { device: self.plan.device.clone() })
    }

    /// Removes the classes: the kernel's default discipline returns.
    ///
    /// # Errors
    ///
    /// The kernel's. If another program has replaced the classes, this does nothing.
    pub fn remove(mut self) -> Result<(), NetworkError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), NetworkError> {
        self.removed = true;
        match self.control.root()? {
            RootQueue::Ours => self.control.remove(),
            RootQueue::Default | RootQueue::Foreign(_) => Ok(()),
        }
    }
}

impl Drop for HeldClasses {
    fn drop(&mut self) {
        if !self.removed {
            // The next run replaces classes that remain.
            let _ = self.undo();
        }
    }
}

/// Removes the classes that a killed run has left on a device. True if the device had some.
///
/// # Errors
///
/// The kernel's, or if another process has claimed the device.
pub fn remove_left(device: &str) -> Result<bool, NetworkError> {
    let control = DeviceControl::open(device)?;
    let _claim = DeviceClaim::take(device, control.index())?;
    let are_ours = control.root()? == RootQueue::Ours;
    if are_ours {
        control.remove()?;
    }
    Ok(are_ours)
}
