//! Whether a run can set traffic classes on this machine.

use hyoshi_net::probe;
use hyoshi_os::doctor::{DoctorFinding, DoctorVerdict};

/// Only files with `network` need traffic classes, so a refusal is information.
pub(super) fn finding() -> DoctorFinding {
    let consequence = "files with `network` run without traffic classes".to_owned();
    let (verdict, found, remedy) = match probe() {
        Ok(()) => (DoctorVerdict::Granted, "permitted here".to_owned(), None),
        Err(error) => (DoctorVerdict::Info, error.to_string(), Some(error.remedy())),
    };
    DoctorFinding { topic: "traffic classes", found, verdict, consequence, remedy }
}
