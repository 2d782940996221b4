//! Memory of a measured process.

use crate::process::Process;

impl Process {
    /// Highest resident memory so far, in MiB. `None` when it has ended.
    pub(crate) fn peak_mebibytes(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kibibytes / 1024.0)
    }
}
