//! What the run shows: the board, and the metrics that are no property of samples.

use rollout_engine::TeardownSummary;
use serde_json::{Map, Value, json};

use super::rebuild::CURSOR;
use super::shell::Shell;

impl Shell {
    /// Brings the board up to date.
    pub(super) fn show(&mut self) {
        let engine = &self.setup.engine;
        let progress = engine.progress();
        if progress.tearing_down {
            self.teardown = TeardownSummary::of(&engine.book().rungs);
        }
        self.setup.board.show(
            &progress,
            &engine.book().current(),
            &self.counters,
            &self.teardown,
        );
    }

    /// Metrics of the current step.
    pub(super) fn metrics(&self) -> Map<String, Value> {
        let progress = self.setup.engine.progress();
        let mut metrics = Map::new();
        let mut put = |name: &str, value: Value| {
            metrics.insert(name.to_owned(), value);
        };
        put(
            "perf/rollout_time",
            json!(self.step_began.elapsed().as_secs_f64()),
        );
        put(
            "rollout/generated_tokens",
            json!(self.counters.generated_tokens),
        );
        put("rollout/discarded_tokens", json!(progress.discarded_tokens));
        put("rollout/infra_failures", json!(progress.infra_failures));
        put(
            "teardown/aborted_requests",
            json!(self.teardown.aborted_requests),
        );
        put("teardown/drain_millis", json!(self.teardown.drain_millis));
        put("teardown/millis", json!(self.teardown.millis));
        put("teardown/stragglers", json!(self.teardown.stragglers));
        put(CURSOR, json!(self.setup.engine.book().next_group.0));
        metrics
    }
}
