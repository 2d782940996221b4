//! When a status is written.

use std::time::Duration;

use rollout_operator::api::job::{Phase, Progress, RolloutJobStatus};
use rollout_operator::plan::job::{Due, due};

#[test]
fn progress_alone_is_written_at_most_every_five_seconds() {
    let before = RolloutJobStatus {
        progress: Some(Progress::default()),
        ..RolloutJobStatus::default()
    };
    let mut after = before.clone();
    let since = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(due(&before, &after, since(9)), Due::Never);
    after.progress.as_mut().unwrap().step = 1;
    assert_eq!(due(&before, &after, None), Due::Now);
    assert_eq!(
        due(&before, &after, since(2)),
        Due::In(Duration::from_secs(3))
    );
    assert_eq!(due(&before, &after, since(5)), Due::Now);
    after.phase = Some(Phase::TearingDown);
    assert_eq!(due(&before, &after, since(0)), Due::Now);
}
