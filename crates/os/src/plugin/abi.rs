//! The C interface in Rust: `crates/broker/include/hyoshi-plugin.h` documents each type and field. A plug-in in Rust
//! may use these types.

use std::ffi::{c_char, c_int, c_void};

/// The version of the interface. A library built for another is refused.
pub const VERSION: u32 = 1;

/// `budget` of CPU time in each `period`, within `deadline`; in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginReservation {
    /// In ns; 0 for none.
    pub budget: u64,
    /// In ns.
    pub period: u64,
    /// In ns.
    pub deadline: u64,
}

/// A task's status since its last report.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginStatus {
    /// When, in ns on the broker's clock.
    pub at: u64,
    /// CPU time, in ns.
    pub consumed: u64,
    /// Its present reservation.
    pub held: PluginReservation,
    /// The program's mode; -1 if it reports none.
    pub mode: i64,
    /// Cycles of its work; 0 without a report.
    pub cycles: u32,
    /// How many of the numbers there are.
    pub count: u32,
    /// The program's own.
    pub numbers: [i64; 8],
}

/// A parameter as written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PluginParameter {
    /// Empty if it was omitted.
    pub name: *const c_char,
    /// The written value.
    pub value: *const c_char,
}

/// A description by an instance of itself.
pub type Describe = unsafe extern "C" fn(*const c_void, *mut c_char, usize);
/// The last call of an instance.
pub type Destroy = unsafe extern "C" fn(*mut c_void);

/// An advocate's functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AdvocateTable {
    /// [`VERSION`].
    pub version: u32,
    /// Of this, in octets.
    pub size: u32,
    /// Creates one for a task.
    pub create:
        Option<unsafe extern "C" fn(*const c_char, *const PluginParameter, usize, *mut c_char, usize) -> *mut c_void>,
    /// Returns another request.
    pub advise: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const PluginStatus,
            *const PluginReservation,
            *mut PluginReservation,
        ) -> c_int,
    >,
    /// Receives the grant.
    pub granted: Option<unsafe extern "C" fn(*mut c_void, *const PluginReservation, *const PluginReservation)>,
    /// Describes the present state.
    pub describe: Option<Describe>,
    /// The last call.
    pub destroy: Option<Destroy>,
}

/// The request of one task to a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PluginAsk {
    /// The task's name.
    pub name: *const c_char,
    /// The request of its advocates.
    pub asked: PluginReservation,
    /// The least useful share, in millionths of a CPU.
    pub least: u64,
    /// The broker's number of the task.
    pub task: u32,
    /// A larger value is more important.
    pub importance: u32,
    /// A task with a larger value is reduced less.
    pub weight: u32,
    /// 0.
    pub unused: u32,
}

/// A policy's functions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PolicyTable {
    /// [`VERSION`].
    pub version: u32,
    /// Of this, in octets.
    pub size: u32,
    /// Creates one.
    pub create: Option<unsafe extern "C" fn(*const PluginParameter, usize, *mut c_char, usize) -> *mut c_void>,
    /// Writes a budget for each request.
    pub arbitrate: Option<unsafe extern "C" fn(*mut c_void, u64, *const PluginAsk, usize, *mut u64) -> c_int>,
    /// Describes the present state.
    pub describe: Option<Describe>,
    /// The last call.
    pub destroy: Option<Destroy>,
}
