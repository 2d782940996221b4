//! Simulated time: tokio's clock times the time scale.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::scheduler::Nanos;

/// Converts between tokio's clock and simulated nanoseconds since the start of the simulator.
#[derive(Debug, Clone)]
pub(crate) struct SimClock {
    start: Instant,
    start_unix: f64,
    scale: u32,
}

impl SimClock {
    pub(crate) fn new(scale: u32) -> Self {
        let start_unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |elapsed| elapsed.as_secs_f64());
        Self {
            start: Instant::now(),
            start_unix,
            scale: scale.max(1),
        }
    }

    /// Simulated time now.
    pub(crate) fn now(&self) -> Nanos {
        let elapsed = self.start.elapsed().as_nanos() * u128::from(self.scale);
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    /// The instant of tokio's clock at which a simulated time is reached, rounded up so that it is reached then.
    pub(crate) fn instant(&self, at: Nanos) -> Instant {
        self.start + Duration::from_nanos(at.div_ceil(u64::from(self.scale)))
    }

    /// Waits for a simulated duration.
    pub(crate) async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration / self.scale).await;
    }

    /// A simulated time as seconds since 1970, as SGLang prints times.
    pub(crate) fn unix(&self, at: Nanos) -> f64 {
        self.start_unix + seconds(at)
    }
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: Nanos) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}
