//! A file that is on the disk but not in memory. Other crates' tests include this file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};

/// A file of the test, removed with this value.
pub struct Cold {
    file: File,
    path: PathBuf,
    octets: usize,
}

impl Cold {
    /// In the build's directory: a temporary one may be in memory.
    pub fn new(name: &str, octets: usize) -> Cold {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(&vec![1; octets]).unwrap();
        file.sync_all().unwrap();
        Cold { file, path, octets }
    }

    /// The file, with none of its pages in memory.
    pub fn dropped(&self) -> &File {
        fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
        &self.file
    }

    /// The sum of all octets, read through a mapping of pages that are not in memory.
    pub fn sum_by_page_faults(&self) -> u64 {
        use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
        let file = self.dropped();
        // SAFETY: a new private mapping of the whole file, which nothing else writes or truncates; the slice ends before
        // the mapping does.
        unsafe {
            let at = mmap(std::ptr::null_mut(), self.octets, ProtFlags::READ, MapFlags::PRIVATE, file, 0).unwrap();
            let octets = std::slice::from_raw_parts(at.cast::<u8>(), self.octets);
            let sum = octets.iter().step_by(512).map(|octet| u64::from(*octet)).sum();
            munmap(at, self.octets).unwrap();
            sum
        }
    }
}

impl Drop for Cold {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
