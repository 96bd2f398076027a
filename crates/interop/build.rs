//! Rust from this crate's IDL, as a user's build does it.

use hyoshi_idl::Build;

fn main() {
    for name in ["peers", "ping"] {
        Build::new(format!("idl/{name}.idl")).root("::hyoshi_orb").run();
    }
}
