//! What a scraper sees.

use rollout_engine::TakeEnd;
use serde_json::json;

use super::*;

/// The metrics of a job in its second step.
fn shown() -> Metrics {
    let metrics = Metrics::new();
    let mut takes = Tally {
        taken: 9,
        ..Tally::default()
    };
    takes.count(&TakeEnd::Kept, 4);
    takes.count(&TakeEnd::Filtered("zero_std_0.0".into()), 2);
    takes.count(&TakeEnd::Failed("bad_row".into()), 1);
    let mut counters = Counters {
        completed: 8,
        generated_tokens: 640,
        ..Counters::default()
    };
    counters.failed("engine_failed", "silent");
    let progress = Progress {
        samples_in_flight: 3,
        discarded_tokens: 40,
        ..Progress::default()
    };
    let teardown = TeardownSummary {
        millis: 1500,
        drain_millis: 250,
        aborted_requests: 7,
        ..TeardownSummary::default()
    };
    metrics.show(Numbers {
        progress: &progress,
        takes: &takes,
        counters: &counters,
        teardown: &teardown,
        sessions: 3,
        written: 16,
    });
    let step = json!({
        "rollout/step": 1, "rollout/response_len/mean": 3.5, "rollout/raw_reward": 0.5,
        "rollout/zero_std/count_1.0": 2, "rollout/dynamic_filter/drop_zero_std_0.0": 2, "perf/rollout_time": 12.25,
    });
    metrics.step_written(step.as_object().expect("an object"));
    metrics.rewarded(Duration::from_millis(3));
    metrics.queued(Duration::from_millis(20));
    metrics
}

/// The exposition, with the series of each metric in order: they come in any.
fn in_order(text: &str) -> String {
    let is_comment = |line: &&str| line.starts_with('#');
    let mut ordered = Vec::new();
    for block in text
        .lines()
        .collect::<Vec<_>>()
        .chunk_by(|a, b| is_comment(a) == is_comment(b))
    {
        let mut block = block.to_vec();
        // The buckets of a histogram have an order of their own.
        if !block
            .iter()
            .any(|line| is_comment(line) || line.contains("_bucket{"))
        {
            block.sort_unstable();
        }
        ordered.extend(block);
    }
    ordered.join("\n")
}

#[test]
fn the_exposition_is_part_of_the_product() {
    let text = shown().text().expect("text");
    insta::assert_snapshot!("exposition", in_order(&text));
}

#[test]
fn a_count_of_a_run_never_falls() {
    let metrics = shown();
    let numbers = |counters: &Counters| {
        metrics.show(Numbers {
            progress: &Progress::default(),
            takes: &Tally::default(),
            counters,
            teardown: &TeardownSummary::default(),
            sessions: 0,
            written: 0,
        });
    };
    numbers(&Counters::default());
    let text = metrics.text().expect("text");
    assert!(
        text.contains("rollout_samples_total{outcome=\"completed\"} 8"),
        "{text}"
    );
    assert!(text.contains("rollout_sessions 0"), "{text}");
}

#[test]
fn a_step_leaves_nothing_of_the_one_before() {
    let metrics = shown();
    let step = json!({"rollout/step": 2, "rollout/zero_std/count_0.0": 1});
    metrics.step_written(step.as_object().expect("an object"));
    let text = metrics.text().expect("text");
    assert!(text.contains("rollout_step 2.0"), "{text}");
    assert!(text.contains("rollout_raw_reward NaN"), "{text}");
    assert!(
        text.contains("rollout_zero_std_count{reward=\"0.0\"} 1"),
        "{text}"
    );
    assert!(
        !text.contains("rollout_zero_std_count{reward=\"1.0\"}"),
        "{text}"
    );
    assert!(!text.contains("rollout_dynamic_filter_drop{"), "{text}");
}

#[test]
fn every_metric_of_a_step_that_has_a_fixed_name_is_one_of_miles() {
    for (miles, ours) in names::STEP {
        let expected = miles.replace('/', "_");
        let expected = if expected.starts_with("rollout_") {
            expected
        } else {
            format!("rollout_{expected}")
        };
        assert_eq!(ours, expected);
    }
}
