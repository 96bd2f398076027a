//! Rust from the broker's interfaces, as every program that talks to it can make it.

fn main() {
    hyoshi_idl::Build::new("idl/broker.idl").root("::hyoshi_orb").run();
}
