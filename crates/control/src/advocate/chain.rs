//! A chain of advocates.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use hyoshi_model::{Instant, Reservation};

use super::{Advocate, Emission};
use crate::task::{Grant, Status};

/// A task's advocates. The input of the first is the declared reservation, that of each other the request of the one
/// before; the last one's request is the policy's input. Grants are passed back up.
///
/// An empty chain requests the declared reservation.
#[derive(Debug, Default)]
pub struct AdvocateChain {
    links: Vec<ChainLink>,
}

#[derive(Debug)]
struct ChainLink {
    advocate: Box<dyn Advocate>,
    asked: Option<Reservation>,
}

/// Why an advocate cannot be added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// The chain has [`AdvocateChain::LONGEST`] advocates.
    Full,
    /// No advocate has this position.
    NoSuch {
        /// The position, from 0.
        position: usize,
        /// How many there are.
        of: usize,
    },
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChainError::Full => {
                write!(f, "the chain has {} advocates, which is the limit: remove one first", AdvocateChain::LONGEST)
            }
            ChainError::NoSuch { position, of: 0 } => {
                write!(f, "there is no advocate {position}: the chain is empty")
            }
            ChainError::NoSuch { position, of: 1 } => {
                write!(f, "there is no advocate {position}: the only one has the number 0")
            }
            ChainError::NoSuch { position, of } => {
                write!(f, "there is no advocate {position}: they are numbered 0 to {}", of - 1)
            }
        }
    }
}

impl core::error::Error for ChainError {}

impl AdvocateChain {
    /// The most advocates of one task.
    pub const LONGEST: usize = 16;

    /// A chain of one.
    pub fn of(advocate: impl Advocate + 'static) -> Self {
        AdvocateChain { links: alloc::vec![ChainLink { advocate: Box::new(advocate), asked: None }] }
    }

    /// Adds an advocate at `position`, or at the end.
    pub fn insert(&mut self, advocate: Box<dyn Advocate>, position: Option<usize>) -> Result<(), ChainError> {
        let position = position.unwrap_or(self.links.len());
        if self.links.len() == AdvocateChain::LONGEST {
            return Err(ChainError::Full);
        }
        if position > self.links.len() {
            return Err(ChainError::NoSuch { position, of: self.links.len() });
        }
        self.links.insert(position, ChainLink { advocate, asked: None });
        Ok(())
    }

    /// Removes the advocate at `position`.
    pub fn remove(&mut self, position: usize) -> Result<Box<dyn Advocate>, ChainError> {
        if position >= self.links.len() {
            return Err(ChainError::NoSuch { position, of: self.links.len() });
        }
        Ok(self.links.remove(position).advocate)
    }

    /// Replaces the advocate at `position`.
    pub fn replace(&mut self, advocate: Box<dyn Advocate>, position: usize) -> Result<(), ChainError> {
        let of = self.links.len();
        let link = self.links.get_mut(position).ok_or(ChainError::NoSuch { position, of })?;
        *link = ChainLink { advocate, asked: None };
        Ok(())
    }

    /// Passes a status down the chain and returns its last advocate's request; pushes at most
    /// [`AdvocateChain::LONGEST`] emissions.
    pub fn advise(&mut self, status: &Status, declared: Reservation, mut emit: impl FnMut(Emission)) -> Reservation {
        let mut asked = declared;
        for (position, link) in self.links.iter_mut().enumerate() {
            let advice = link.advocate.advise(status, asked);
            asked = advice.ask;
            link.asked = Some(asked);
            if let Some(mut emission) = advice.emitted {
                let (Emission::Log { position: at, .. } | Emission::Conditions { position: at, .. }) = &mut emission;
                *at = position as u8; // the chain has at most 16
                emit(emission);
            }
        }
        asked
    }

    /// Passes a grant up the chain.
    pub fn granted(&mut self, grant: &Grant) {
        for link in self.links.iter_mut().rev() {
            link.advocate.granted(grant);
        }
    }

    /// The earliest instant at which one of the advocates needs a status without a report.
    pub fn next_check(&self) -> Instant {
        self.links.iter().map(|link| link.advocate.next_check()).min().unwrap_or(Instant::NEVER)
    }

    /// The advocates in their order, each with its last request.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&dyn Advocate, Option<Reservation>)> {
        self.links.iter().map(|link| (&*link.advocate, link.asked))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}
