//! Generates Rust from the broker's IDL, as any client can.

fn main() {
    hyoshi_idl::Build::new("idl/broker.idl").root("::hyoshi_orb").run();
}
