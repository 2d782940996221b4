//! Probes. Numbers are seconds and times.

use serde_json::{Value, json};

/// How often and how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) period: i32,
    pub(super) timeout: i32,
    pub(super) failures: i32,
}

/// A request.
pub(super) fn http(port: u16, path: &str, pace: Pace) -> Value {
    let mut probe = json!({"httpGet": {"path": path, "port": port, "scheme": "HTTP"}});
    set(&mut probe, pace);
    probe
}

/// A connection.
pub(super) fn tcp(port: u16, pace: Pace) -> Value {
    let mut probe = json!({"tcpSocket": {"port": port}});
    set(&mut probe, pace);
    probe
}

fn set(probe: &mut Value, pace: Pace) {
    let Pace {
        period,
        timeout,
        failures,
    } = pace;
    probe["periodSeconds"] = json!(period);
    probe["timeoutSeconds"] = json!(timeout);
    probe["failureThreshold"] = json!(failures);
}
