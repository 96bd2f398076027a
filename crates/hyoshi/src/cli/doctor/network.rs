//! Whether a run can set classes of traffic here.

use hyoshi_net::probe;
use hyoshi_os::doctor::{DoctorFinding, DoctorVerdict};

/// A run without `network` in its file does not need them: a refusal is information.
pub(super) fn finding() -> DoctorFinding {
    let consequence = "files with `network` run without classes of traffic".to_owned();
    let (verdict, found, remedy) = match probe() {
        Ok(()) => (DoctorVerdict::Granted, "permitted here".to_owned(), None),
        Err(error) => (DoctorVerdict::Info, error.to_string(), Some(error.remedy())),
    };
    DoctorFinding { topic: "traffic classes", found, verdict, consequence, remedy }
}
