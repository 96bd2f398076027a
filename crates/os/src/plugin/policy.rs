//! A policy from a shared library.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use super::abi::{self, PluginReservation, PolicyTable};
use super::library::Library;
use super::{Instance, LoadError, Parameters, words};

/// An instance of a library; destroyed when it is dropped.
#[derive(Debug)]
pub struct PolicyPlugin {
    arbitrate: unsafe extern "C" fn(*mut c_void, u64, *const abi::PluginAsk, usize, *mut u64) -> c_int,
    instance: Instance,
}

/// The request of one task, with its name.
#[derive(Clone, Copy, Debug)]
pub struct NamedAsk<'a> {
    /// Its name.
    pub name: &'a CStr,
    /// Its request.
    pub asked: PluginReservation,
    /// The least useful share, in millionths of a CPU.
    pub least: u64,
    /// Its number.
    pub task: u32,
    /// A larger value is more important.
    pub importance: u32,
    /// A task with a larger value is reduced less.
    pub weight: u32,
}

impl PolicyPlugin {
    /// Loads the library at this path, which then creates one.
    ///
    /// # Errors
    ///
    /// If others could write to the path, if the library has another version, and if it refuses.
    pub fn load(path: &Path, parameters: &[(String, String)]) -> Result<PolicyPlugin, LoadError> {
        let given = Parameters::new(parameters)?;
        let library = Library::open(path)?;
        let table: PolicyTable = library.table(c"hyoshi_policy_plugin")?;
        let (Some(create), Some(arbitrate)) = (table.create, table.arbitrate) else {
            return Err(LoadError::NoTable { path: library.path().to_owned() });
        };
        let given = given.table();
        let mut state = std::ptr::null_mut();
        let why = words(|why, room| {
            // SAFETY: all texts end with a zero and outlive the call; there are as many parameters and as much room as
            // passed.
            state = unsafe { create(given.as_ptr(), given.len(), why, room) };
        });
        let Some(state) = NonNull::new(state) else {
            return Err(LoadError::Unwilling { path: library.path().to_owned(), why });
        };
        let PolicyTable { describe, destroy, .. } = table;
        Ok(PolicyPlugin { arbitrate, instance: Instance { state, describe, destroy, _library: library } })
    }

    /// A budget in ns for each of the asks, in their order.
    ///
    /// # Errors
    ///
    /// With the number that it returned, if that is not 0.
    pub fn arbitrate(&mut self, cap: u64, asks: &[NamedAsk<'_>]) -> Result<Vec<u64>, i32> {
        let one = |ask: &NamedAsk<'_>| {
            let NamedAsk { name, asked, least, task, importance, weight } = *ask;
            abi::PluginAsk { name: name.as_ptr(), asked, least, task, importance, weight, unused: 0 }
        };
        let asks: Vec<abi::PluginAsk> = asks.iter().map(one).collect();
        let mut budgets = vec![0; asks.len()];
        let state = self.instance.state.as_ptr();
        // SAFETY: the instance exists; there are as many asks, and as many places for budgets, as passed.
        match unsafe { (self.arbitrate)(state, cap, asks.as_ptr(), asks.len(), budgets.as_mut_ptr()) } {
            0 => Ok(budgets),
            failed => Err(failed),
        }
    }

    /// Its description of itself, if it has one.
    pub fn words(&self) -> Option<String> {
        self.instance.words()
    }
}
