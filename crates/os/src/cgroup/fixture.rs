//! A folder that represents a control group, removed with its test.

use std::fs;
use std::path::PathBuf;

pub(super) struct Fixture(pub PathBuf);

impl Fixture {
    /// Tests that run at the same time have different names.
    pub fn new(name: &str) -> Fixture {
        let folder = std::env::temp_dir().join(format!("hyoshi-cgroup-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Fixture(folder)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
