//! An advocate for the CPU broker as a shared library in Rust: rounds requests up to whole milliseconds, or to
//! multiples of `--step`, so reservations change seldom.
//!
//!     cargo build --release -p hyoshi-os --example steps
//!     hyoshi broker advocate add player library --path $PWD/target/release/examples/libsteps.so --step 5

use std::ffi::{CStr, c_char, c_int, c_void};

use hyoshi_os::plugin::abi::{AdvocateTable, PluginParameter, PluginReservation, PluginStatus, VERSION};

/// In ns.
struct Steps(u64);

unsafe extern "C" fn create(
    _task: *const c_char,
    parameters: *const PluginParameter,
    count: usize,
    why: *mut c_char,
    room: usize,
) -> *mut c_void {
    let mut steps = Steps(1_000_000);
    for index in 0..count {
        // SAFETY: there are `count` of them, and their texts end with a zero.
        let (name, value) = unsafe {
            let parameter = *parameters.add(index);
            (CStr::from_ptr(parameter.name), CStr::from_ptr(parameter.value))
        };
        match value.to_str().ok().and_then(|text| text.parse::<u64>().ok()) {
            Some(millis @ 1..=1_000) if name == c"step" => steps = Steps(millis * 1_000_000),
            _ => {
                let message = c"its one parameter is step, in ms, from 1 to 1000".to_bytes_with_nul();
                if message.len() <= room {
                    // SAFETY: there is room for it.
                    unsafe { why.cast::<u8>().copy_from_nonoverlapping(message.as_ptr(), message.len()) };
                }
                return std::ptr::null_mut();
            }
        }
    }
    Box::into_raw(Box::new(steps)).cast()
}

unsafe extern "C" fn advise(
    this: *mut c_void,
    _how: *const PluginStatus,
    asked: *const PluginReservation,
    wanted: *mut PluginReservation,
) -> c_int {
    // SAFETY: `this` is what `create` returned, and the others hold during the call.
    unsafe {
        let step = (*this.cast::<Steps>()).0;
        (*wanted).budget = (*asked).budget.next_multiple_of(step).min((*asked).deadline);
    }
    0
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    // SAFETY: `this` is what `create` returned, and it is not used afterwards.
    drop(unsafe { Box::from_raw(this.cast::<Steps>()) });
}

/// The function that the broker looks up.
// SAFETY: no other library of this process is asked for this name: each is searched by itself.
#[unsafe(no_mangle)]
pub extern "C" fn hyoshi_advocate_plugin() -> *const AdvocateTable {
    static TABLE: AdvocateTable = AdvocateTable {
        version: VERSION,
        size: size_of::<AdvocateTable>() as u32,
        create: Some(create),
        advise: Some(advise),
        granted: None,
        describe: None,
        destroy: Some(destroy),
    };
    &TABLE
}
