//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod common;

mod behaves;
mod gaps;
mod served;

#[test]
#[ignore = "a role that other tests start"]
fn role() {
    match std::env::var("HYOSHI_ROLE").as_deref() {
        Ok(role) if role.starts_with("broker:") => behaves::broker(),
        Ok(role) if role.starts_with("swap:") => behaves::swap(),
        _ => common::play(),
    }
}
