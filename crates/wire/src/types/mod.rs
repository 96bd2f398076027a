//! IDL types without a counterpart in Rust (CORBA 3.3 part 2, 9.3.1 and 9.3.2): wide characters, `long double`,
//! `fixed`.

mod fixed;
mod long_double;
mod wide;

pub use fixed::{Fixed, FixedDecimal, FixedError};
pub(crate) use fixed::{read_packed, write_packed};
pub use long_double::LongDouble;
pub use wide::{WChar, WString};
