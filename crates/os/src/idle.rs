//! Idle states: a CPU in deep sleep needs tens of microseconds to wake up.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

/// The kernel's file for the request (Documentation/power/pm_qos_interface.rst).
pub const CPU_DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// Keeps every CPU of the machine out of idle states that are slow to leave, until it is dropped.
///
/// It costs energy, not CPU time. cyclictest makes the same request.
#[derive(Debug)]
pub struct AwakeCpus(#[allow(dead_code)] File);

impl AwakeCpus {
    /// Requests a wake-up latency of 0 us.
    ///
    /// # Errors
    ///
    /// If the file is missing (many virtual machines and containers), or this user may not write to it.
    pub fn hold() -> io::Result<AwakeCpus> {
        let mut file =
            File::options().write(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(CPU_DMA_LATENCY)?;
        // Microseconds, in the machine's byte order.
        file.write_all(&0i32.to_ne_bytes())?;
        Ok(AwakeCpus(file))
    }
}
