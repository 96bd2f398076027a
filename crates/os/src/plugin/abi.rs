//! The C interface as Rust has it: `crates/broker/include/hyoshi-plugin.h`, which tells what each is for, word by word.
//! A plug-in in Rust may use these types.

use std::ffi::{c_char, c_int, c_void};

/// Of the interface. A library that was made for another is refused.
pub const VERSION: u32 = 1;

/// `budget` of CPU time in each `period`, within `deadline`; in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginReservation {
    /// In ns; 0 for nothing.
    pub budget: u64,
    /// In ns.
    pub period: u64,
    /// In ns.
    pub deadline: u64,
}

/// How a task did since its last report.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginStatus {
    /// When, in ns on the broker's clock.
    pub at: u64,
    /// CPU time, in ns.
    pub consumed: u64,
    /// What is reserved for it now.
    pub held: PluginReservation,
    /// What the program says it is doing; -1 if it says nothing.
    pub mode: i64,
    /// Cycles of its work; 0 when nobody reported.
    pub cycles: u32,
    /// How many of the numbers there are.
    pub count: u32,
    /// The program's own.
    pub numbers: [i64; 8],
}

/// A parameter as it was written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PluginParameter {
    /// Empty where none was written.
    pub name: *const c_char,
    /// What was written.
    pub value: *const c_char,
}

/// Words of an instance about itself.
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
    /// Makes one for a task.
    pub create: Option<unsafe extern "C" fn(*const c_char, *const PluginParameter, usize, *mut c_char, usize) -> *mut c_void>,
    /// What is to be asked for instead.
    pub advise: Option<unsafe extern "C" fn(*mut c_void, *const PluginStatus, *const PluginReservation, *mut PluginReservation) -> c_int>,
    /// What was granted.
    pub granted: Option<unsafe extern "C" fn(*mut c_void, *const PluginReservation, *const PluginReservation)>,
    /// What it does now.
    pub describe: Option<Describe>,
    /// The last call.
    pub destroy: Option<Destroy>,
}

/// What one task asks of a policy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PluginAsk {
    /// The task's.
    pub name: *const c_char,
    /// What its advocates ask for.
    pub asked: PluginReservation,
    /// The least that is of use to it, in millionths of a CPU.
    pub least: u64,
    /// The broker's number of it.
    pub task: u32,
    /// The larger, the more important.
    pub importance: u32,
    /// The larger, the less it should give way.
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
    /// Makes one.
    pub create: Option<unsafe extern "C" fn(*const PluginParameter, usize, *mut c_char, usize) -> *mut c_void>,
    /// Writes a budget for each ask.
    pub arbitrate: Option<unsafe extern "C" fn(*mut c_void, u64, *const PluginAsk, usize, *mut u64) -> c_int>,
    /// What it does now.
    pub describe: Option<Describe>,
    /// The last call.
    pub destroy: Option<Destroy>,
}
