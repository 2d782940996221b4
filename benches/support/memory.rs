//! Memory and end of a measured process.

use crate::process::Process;

impl Process {
    /// Highest resident memory so far, in MiB. `None` when it has ended.
    pub(crate) fn peak_mebibytes(&self) -> Option<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kibibytes / 1024.0)
    }

    /// Whether it has ended. It is not reaped, so that its CPU time can still be read.
    pub(crate) fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        stat.rsplit_once(')')
            .unwrap()
            .1
            .trim_start()
            .starts_with('Z')
    }
}
