//! Generates Rust from the interfaces of nodes and of OMG's event service.

fn main() {
    for name in ["node", "CosEvent", "rates"] {
        hyoshi_idl::Build::new(format!("idl/{name}.idl")).root("::hyoshi_orb").run();
    }
}
