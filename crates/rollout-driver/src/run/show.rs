//! What the run shows: the board, and the metrics that are no property of samples.

use rollout_engine::{Step, Tally, TeardownSummary};
use serde_json::{Map, Value, json};

use super::rebuild::CURSOR;
use super::shell::Shell;
use crate::status::Numbers;

impl Shell {
    /// Brings the board up to date.
    pub(super) fn show(&mut self) {
        let engine = &self.setup.engine;
        let progress = engine.progress();
        if progress.tearing_down {
            self.teardown = TeardownSummary::of(&engine.book().rungs);
        }
        let current = engine.book().current();
        self.setup
            .board
            .show(&progress, &current, &self.counters, &self.teardown);
        if self.earlier.0 != progress.step {
            let mut earlier = Tally::default();
            for (_, tally) in engine.book().tallies.range(..progress.step) {
                earlier.add(tally);
            }
            self.earlier = (progress.step, earlier);
        }
        let mut takes = self.earlier.1.clone();
        takes.add(&current);
        self.setup.board.metrics().show(Numbers {
            progress: &progress,
            takes: &takes,
            counters: &self.counters,
            teardown: &self.teardown,
            sessions: self.setup.climber.sessions.lock().len() as u64,
            written: self.written,
        });
    }

    /// Takes note of a step that is in the output.
    pub(super) fn show_step(&mut self, step: Step) {
        self.written = self.setup.output.totals().1;
        if let Some(entry) = self.setup.output.finished(step.0) {
            self.setup.board.metrics().step_written(&entry.metrics);
        }
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
