//! A folder that stands for a control group, and goes with its test.

use std::fs;
use std::path::PathBuf;

pub(super) struct Fixture(pub PathBuf);

impl Fixture {
    /// Of tests that run at one time none has another's name.
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
