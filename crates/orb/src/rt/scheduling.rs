//! The scheduling service: priorities by name, from a table that the program provides (Real-time CORBA 1.2, chapter 6).

use std::collections::HashMap;
use std::fmt;

use super::{Priority, PriorityModel, SetPriorityError, current};
use crate::adapter::{Adapter, AdapterBuilder};
use crate::interface::{Interface, Reference};
use crate::objects::AdapterError;
use crate::orb::Orb;

/// The reason why an activity or object was not scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The table has no such name (`RTCosScheduling::UnknownName`).
    UnknownName(String),
    /// The thread does not get the priority.
    Priority(SetPriorityError),
    /// The object does not get it.
    Object(AdapterError),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScheduleError::UnknownName(name) => write!(f, "the table of priorities has no name \"{name}\": add it"),
            ScheduleError::Priority(error) => error.fmt(f),
            ScheduleError::Object(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ScheduleError {}

#[derive(Clone, Debug)]
struct PriorityNames(HashMap<String, Priority>);

impl PriorityNames {
    fn new(names: impl IntoIterator<Item = (impl Into<String>, Priority)>) -> Self {
        PriorityNames(names.into_iter().map(|(name, priority)| (name.into(), priority)).collect())
    }

    fn priority(&self, name: &str) -> Result<Priority, ScheduleError> {
        self.0.get(name).copied().ok_or_else(|| ScheduleError::UnknownName(name.to_owned()))
    }
}

/// Sets the priorities of a client's threads (`RTCosScheduling::ClientScheduler`).
#[derive(Clone, Debug)]
pub struct ClientScheduler {
    table: PriorityNames,
}

impl ClientScheduler {
    /// With a table of activities and their priorities.
    pub fn new(activities: impl IntoIterator<Item = (impl Into<String>, Priority)>) -> Self {
        ClientScheduler { table: PriorityNames::new(activities) }
    }

    /// The calling thread carries out this activity from now on: it gets its priority
    /// ([`set_priority`](current::set_priority)).
    ///
    /// # Errors
    ///
    /// If the table has no such name, or the thread does not get the priority.
    pub fn schedule_activity(&self, name: &str) -> Result<(), ScheduleError> {
        current::set_priority(self.table.priority(name)?).map_err(ScheduleError::Priority)
    }
}

/// Sets the priorities of a server's objects (`RTCosScheduling::ServerScheduler`).
#[derive(Clone, Debug)]
pub struct ServerScheduler {
    orb: Orb,
    table: PriorityNames,
}

impl ServerScheduler {
    /// With a table of objects and their priorities.
    pub fn new(orb: &Orb, objects: impl IntoIterator<Item = (impl Into<String>, Priority)>) -> Self {
        ServerScheduler { orb: orb.clone(), table: PriorityNames::new(objects) }
    }

    /// Begins an adapter (`create_POA`) whose objects [`schedule_object`](Self::schedule_object) schedules. The others
    /// have the table's lowest priority.
    pub fn create_adapter(&self, name: &str) -> AdapterBuilder {
        let priority = self.table.0.values().min().copied().unwrap_or_default();
        self.orb.adapter(name).priority_model(PriorityModel::ServerDeclared { priority })
    }

    /// Gives an object of such an adapter the priority of this name, active or not. Returns a stub whose reference has it;
    /// requests through earlier references run at this priority, too, but on the lane of the earlier one.
    ///
    /// # Errors
    ///
    /// If the table has no such name, the adapter has no such object or no lane for the priority.
    pub fn schedule_object<T: Interface + ?Sized>(
        &self,
        adapter: &Adapter,
        object: &impl AsRef<Reference<T>>,
        name: &str,
    ) -> Result<T::Stub, ScheduleError> {
        let priority = self.table.priority(name)?;
        let ior = object.as_ref().ior();
        let id = adapter.id_of(ior).ok_or_else(|| ScheduleError::Object(AdapterError::NotActive(Vec::new())))?;
        adapter.schedule(&id, priority).map_err(ScheduleError::Object)?;
        adapter.reference::<T>(id).map_err(ScheduleError::Object)
    }
}
