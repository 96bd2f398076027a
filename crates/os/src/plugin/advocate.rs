//! An advocate from a shared library.

use std::ffi::{CString, c_int, c_void};
use std::path::Path;
use std::ptr::NonNull;

use super::abi::{self, AdvocateTable, PluginReservation, PluginStatus};
use super::library::Library;
use super::{Instance, LoadError, Parameters, words};

/// An instance that a library created for one task; destroyed when it is dropped.
#[derive(Debug)]
pub struct AdvocatePlugin {
    advise: unsafe extern "C" fn(
        *mut c_void,
        *const PluginStatus,
        *const PluginReservation,
        *mut PluginReservation,
    ) -> c_int,
    granted: Option<unsafe extern "C" fn(*mut c_void, *const PluginReservation, *const PluginReservation)>,
    instance: Instance,
}

impl AdvocatePlugin {
    /// Loads the library at this path, which then creates one for a task.
    ///
    /// # Errors
    ///
    /// If others could write to the path, if the library has another version, and if it refuses.
    pub fn load(path: &Path, task: &str, parameters: &[(String, String)]) -> Result<AdvocatePlugin, LoadError> {
        let (task, given) = (CString::new(task).map_err(|_| LoadError::Nul)?, Parameters::new(parameters)?);
        let library = Library::open(path)?;
        let table: AdvocateTable = library.table(c"hyoshi_advocate_plugin")?;
        let (Some(create), Some(advise)) = (table.create, table.advise) else {
            return Err(LoadError::NoTable { path: library.path().to_owned() });
        };
        let given = given.table();
        let mut state = std::ptr::null_mut();
        let why = words(|why, room| {
            // SAFETY: all texts end with a zero and outlive the call; there are as many parameters and as much room as
            // passed.
            state = unsafe { create(task.as_ptr(), given.as_ptr(), given.len(), why, room) };
        });
        let Some(state) = NonNull::new(state) else {
            return Err(LoadError::Unwilling { path: library.path().to_owned(), why });
        };
        let AdvocateTable { granted, describe, destroy, .. } = table;
        Ok(AdvocatePlugin { advise, granted, instance: Instance { state, describe, destroy, _library: library } })
    }

    /// Returns another request.
    ///
    /// # Errors
    ///
    /// With the number that it returned, if that is not 0.
    pub fn advise(&mut self, how: &PluginStatus, asked: &PluginReservation) -> Result<PluginReservation, i32> {
        let mut wanted = *asked;
        // SAFETY: the instance exists, and all pointers are to values of this function.
        match unsafe { (self.advise)(self.instance.state.as_ptr(), how, asked, &raw mut wanted) } {
            0 => Ok(wanted),
            failed => Err(failed),
        }
    }

    /// Passes the grant.
    pub fn granted(&mut self, asked: &PluginReservation, held: &PluginReservation) {
        if let Some(granted) = self.granted {
            // SAFETY: as above.
            unsafe { granted(self.instance.state.as_ptr(), asked, held) };
        }
    }

    /// Its description of itself, if it has one.
    pub fn words(&self) -> Option<String> {
        self.instance.words()
    }
}

const _: () = assert!(size_of::<abi::PluginStatus>() == 8 * 6 + 8 + 64, "as the header has it");
