//! An adapter's objects: the servant for a request, activation and deactivation.
//!
//! Requests look objects up without a lock. `changing` is locked to make or end an object, never while user code runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use hyoshi_os::PiMutex;
use hyoshi_wire::{SystemException, SystemKind};

use super::gate::{Gate, Passage};
use super::servant::{ActiveObject, Entered, Servant};
use super::source::{Activator, Elsewhere, Locator};
use super::turn::{Turn, TurnLimits};
use super::{AdapterError, ByOctets};
use crate::key::ObjectKey;
use crate::rt::AdapterRt;
use crate::{current, minor};

/// Requests that wait for an adapter, or for an object to be made.
const HELD: usize = 16;

/// An adapter, as requests use it.
pub(crate) struct Core {
    pub(crate) name: Box<[u8]>,
    /// None if its objects outlive the server.
    pub(crate) incarnation: Option<u64>,
    pub(crate) objects: ByOctets<Arc<ActiveObject>>,
    pub(crate) default: Option<Servant>,
    pub(crate) activator: Option<Arc<dyn Activator>>,
    pub(crate) locator: Option<Arc<dyn Locator>>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) turns: TurnLimits,
    pub(super) changing: PiMutex<Changing>,
    pub(crate) next: AtomicU64,
    /// Its Real-time CORBA policies, if it has any.
    pub(crate) rt: Option<Arc<AdapterRt>>,
}

/// The part that is locked while objects change.
#[derive(Debug, Default)]
pub(super) struct Changing {
    /// Objects that an activator makes or ends now. They are not active.
    turns: HashMap<Box<[u8]>, Arc<Turn>>,
    destroyed: bool,
}

/// The servant for one request.
pub(super) enum Found {
    Active(Entered),
    Default(Servant),
    /// Must be returned to its locator.
    Located(Arc<dyn Locator>, Servant),
}

impl Found {
    pub(super) fn servant(&self) -> &Servant {
        match self {
            Found::Active(entered) => entered.servant(),
            Found::Default(servant) | Found::Located(_, servant) => servant,
        }
    }
}

/// The right to make or end an object, until it is dropped.
struct MyTurn {
    core: Arc<Core>,
    id: Box<[u8]>,
    turn: Arc<Turn>,
}

impl Drop for MyTurn {
    fn drop(&mut self) {
        let mut changing = self.core.changing.lock();
        // Another thread's turn may have begun already.
        if changing.turns.get(&self.id).is_some_and(|turn| Arc::ptr_eq(turn, &self.turn)) {
            changing.turns.remove(&self.id);
        }
        drop(changing);
        self.turn.ended.keep(());
    }
}

impl Core {
    pub(crate) fn new(name: &str, incarnation: u64) -> Self {
        Core {
            name: name.as_bytes().into(),
            incarnation: Some(incarnation),
            objects: ByOctets::default(),
            default: None,
            activator: None,
            locator: None,
            gate: Arc::new(Gate::new(HELD)),
            turns: TurnLimits::new(HELD),
            changing: PiMutex::default(),
            next: AtomicU64::new(0),
            rt: None,
        }
    }

    pub(crate) fn name(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default()
    }

    pub(crate) fn key(&self, id: &[u8]) -> Vec<u8> {
        ObjectKey { adapter: &self.name, incarnation: self.incarnation, id }.octets()
    }

    /// The active object with this id.
    #[inline]
    pub(crate) fn active(&self, id: &[u8]) -> Option<Arc<ActiveObject>> {
        self.objects.pin().get(id).cloned()
    }

    /// The object's binding to an order, if the operation is one of its own.
    pub(crate) fn binding(&self, id: &[u8], operation: &str) -> Option<u32> {
        let objects = self.objects.pin();
        let slot = objects.get(id)?;
        slot.binding.filter(|_| slot.servant.operation(operation).is_some())
    }

    /// True if there is a servant for the object, or may be one.
    pub(crate) fn has(&self, id: &[u8]) -> bool {
        let found = self.default.is_some() || self.activator.is_some() || self.locator.is_some();
        found || self.objects.pin().contains_key(id)
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.changing.lock().destroyed
    }

    /// The active object with this id, if requests pass now.
    #[inline]
    pub(crate) fn enter(&self, id: &[u8]) -> Option<Entered> {
        self.active(id).and_then(Entered::if_passing)
    }

    /// The servant for a request to this object.
    pub(super) fn find(self: &Arc<Self>, id: &[u8], operation: &str) -> Result<Found, Elsewhere> {
        self.gate.pass()?;
        if let Some(entered) = self.active(id).and_then(Entered::new) {
            return Ok(Found::Active(entered));
        }
        if let Some(activator) = &self.activator {
            return self.activated(activator, id).map(Found::Active);
        }
        if let Some(locator) = &self.locator {
            let servant = locator.before(id, operation)?;
            return Ok(Found::Located(locator.clone(), servant));
        }
        self.default.clone().map(Found::Default).ok_or_else(|| no_object().into())
    }

    /// The object, made by the activator if need be.
    fn activated(self: &Arc<Self>, activator: &Arc<dyn Activator>, id: &[u8]) -> Result<Entered, Elsewhere> {
        let until = self.turns.until();
        loop {
            let turn = {
                let mut changing = self.changing.lock();
                match changing.turns.get(id) {
                    Some(turn) => Err(turn.clone()),
                    None => match self.active(id).and_then(Entered::new) {
                        Some(entered) => return Ok(entered),
                        None => Ok(self.take_turn(&mut changing, id)),
                    },
                }
            };
            let mine = match turn {
                Ok(mine) => mine,
                Err(turn) => {
                    self.turns.wait(&turn, until)?;
                    // The adapter may accept no requests any more.
                    self.gate.pass()?;
                    continue;
                }
            };
            let servant = {
                let _making = current::making(self.key(id));
                activator.incarnate(id)?
            };
            let slot = ActiveObject::new(servant, None, self.rt.clone(), self.gate.clone());
            let mut changing = self.changing.lock();
            if changing.destroyed {
                drop(changing);
                activator.etherealize(id, slot.servant.clone());
                return Err(SystemKind::ObjAdapter.not_done(minor::INACTIVE).into());
            }
            // Counted before it is visible: it may be deactivated at once.
            let entered = Entered::new(slot.clone());
            self.objects.pin().insert(id.into(), slot);
            // Within one lock: a request that finds no turn finds the object.
            changing.turns.remove(id);
            drop(changing);
            drop(mine);
            return entered.ok_or_else(|| no_object().into());
        }
    }

    fn take_turn(self: &Arc<Self>, changing: &mut Changing, id: &[u8]) -> MyTurn {
        let turn = Turn::begin();
        changing.turns.insert(id.into(), turn.clone());
        MyTurn { core: self.clone(), id: id.into(), turn }
    }

    /// Makes an object active.
    pub(crate) fn activate(&self, id: &[u8], servant: Servant, binding: Option<u32>) -> Result<(), AdapterError> {
        let changing = self.changing.lock();
        if changing.destroyed {
            return Err(AdapterError::Gone);
        }
        if changing.turns.contains_key(id) {
            return Err(AdapterError::Changing(id.to_vec()));
        }
        match self
            .objects
            .pin()
            .try_insert(id.into(), ActiveObject::new(servant, binding, self.rt.clone(), self.gate.clone()))
        {
            Ok(_) => Ok(()),
            Err(_) => Err(AdapterError::ObjectActive(id.to_vec())),
        }
    }

    /// Ends an object. Waits, up to `until`, for running calls except those of the calling thread. The activator is
    /// called after the last of all.
    pub(crate) fn deactivate(self: &Arc<Self>, id: &[u8], until: Option<Instant>) -> Result<(), AdapterError> {
        let (slot, mine) = {
            let mut changing = self.changing.lock();
            let slot = self.objects.pin().remove(id).cloned();
            let slot = slot.filter(|slot| slot.close()).ok_or_else(|| AdapterError::NotActive(id.to_vec()))?;
            // References to objects that can be made again keep their priority.
            if let (Some(rt), None, None, None) = (&self.rt, &self.activator, &self.locator, &self.default) {
                rt.forget(id);
            }
            let mine = self.activator.as_ref().map(|_| self.take_turn(&mut changing, id));
            (slot, mine)
        };
        let own = current::depth_within(self.key(id));
        let quiet = slot.wait_until_quiet(own, until);
        let (Some(activator), Some(mine)) = (self.activator.clone(), mine) else { return Ok(()) };
        let (turn, servant) = (mine.turn.clone(), slot.servant.clone());
        slot.when_quiet(Box::new(move || {
            mine.turn.take_over();
            let _ending = current::making(mine.core.key(&mine.id));
            activator.etherealize(&mine.id, servant);
        }));
        if quiet && own == 0 {
            // Another thread, whose call found the object closed, may be the one that calls the activator.
            let _ = turn.ended.wait(until);
        }
        Ok(())
    }

    /// Ends all objects and accepts no others.
    pub(crate) fn end(self: &Arc<Self>, until: Option<Instant>) {
        self.gate.set(Passage::Inactive);
        self.changing.lock().destroyed = true;
        let ids: Vec<_> = self.objects.pin().keys().cloned().collect();
        for id in ids {
            // Another thread may have deactivated it.
            let _ = self.deactivate(&id, until);
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adapter").field("name", &self.name()).field("active", &self.objects.len()).finish()
    }
}

fn no_object() -> SystemException {
    SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT)
}
