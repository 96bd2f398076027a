//! Rust from the nodes' interfaces.

fn main() {
    hyoshi_idl::Build::new("idl/node.idl").root("::hyoshi_orb").run();
}
