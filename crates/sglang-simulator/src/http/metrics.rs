//! `/metrics`: the families of a real server in its order; those that the simulator knows have values, the others are 0.

use std::fmt::Write;

use axum::response::Response;
use http::StatusCode;

use super::App;
use super::reply;
use crate::clock::seconds;
use crate::engine::report::Counts;
use crate::scheduler::Load;

const FAMILIES: &str = include_str!("data/metrics.tsv");

/// Answers with all families.
pub(super) fn metrics(app: &App) -> Response {
    let mut page = String::with_capacity(32 << 10);
    http_families(app, &mut page);
    let facts = Facts {
        load: app.engine.load(),
        counts: app.engine.counts(),
        app,
    };
    let model = app.engine.identity().served_model_name;
    for line in FAMILIES.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap_or_default();
        let kind = columns.next().unwrap_or_default();
        let common = common_labels(columns.next().unwrap_or_default(), &model);
        let series = columns.next().unwrap_or_default();
        // writing to a text cannot fail
        let _ = writeln!(
            page,
            "# HELP sglang:{name} {}\n# TYPE sglang:{name} {kind}",
            facts.help(name)
        );
        for own in series.split(';') {
            let labels = labels(own, &common);
            let (value, count) = facts.value(name, own);
            if kind == "histogram" {
                let bucket = if labels.is_empty() {
                    "le=\"+Inf\"".to_owned()
                } else {
                    format!("le=\"+Inf\",{labels}")
                };
                let _ = writeln!(page, "sglang:{name}_sum{{{labels}}} {value:?}");
                let _ = writeln!(page, "sglang:{name}_bucket{{{bucket}}} {count:?}");
                let _ = writeln!(page, "sglang:{name}_count{{{labels}}} {count:?}");
            } else if labels.is_empty() {
                let _ = writeln!(page, "sglang:{name} {value:?}");
            } else {
                let _ = writeln!(page, "sglang:{name}{{{labels}}} {value:?}");
            }
        }
    }
    // the real server sends it in chunks
    let chunks = futures_util::stream::once(async { Ok::<_, std::io::Error>(page) });
    reply::with_type(
        StatusCode::OK,
        "text/plain; version=0.0.4; charset=utf-8",
        axum::body::Body::from_stream(chunks),
    )
}

fn common_labels(scope: &str, model: &str) -> Vec<(&'static str, String)> {
    let server = [
        ("engine_type", "unified".to_owned()),
        ("model_name", model.to_owned()),
    ];
    let rank = ["moe_ep_rank", "pp_rank", "tp_rank"].map(|name| (name, "0".to_owned()));
    match scope {
        "server" => server.to_vec(),
        "rank" => [server.to_vec(), rank.to_vec()].concat(),
        "process" => {
            let process = vec![("pid", std::process::id().to_string())];
            [server.to_vec(), rank.to_vec(), process].concat()
        }
        _ => Vec::new(),
    }
}

/// Labels in the order of their names, as Python's client writes them.
fn labels(own: &str, common: &[(&str, String)]) -> String {
    let own = own.split(',').filter_map(|pair| pair.split_once('='));
    let mut all: Vec<(&str, &str)> = own
        .chain(common.iter().map(|(name, value)| (*name, value.as_str())))
        .collect();
    all.sort_unstable();
    let shown: Vec<_> = all
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    shown.join(",")
}

fn http_families(app: &App, page: &mut String) {
    let paths = app.activity.snapshot();
    let mut family = |name: &str, kind: &str, help: &str| {
        let _ = writeln!(
            page,
            "# HELP sglang:{name} {help}\n# TYPE sglang:{name} {kind}"
        );
        for ((path, method), counts) in &paths {
            let labels = format!("endpoint=\"{path}\",method=\"{method}\"");
            match name {
                "http_requests_active" => {
                    let _ = writeln!(page, "sglang:{name}{{{labels}}} {}.0", counts.active);
                }
                "http_requests_total" => {
                    let _ = writeln!(page, "sglang:{name}{{{labels}}} {}.0", counts.requests);
                }
                _ => {
                    for (status, count) in &counts.statuses {
                        let _ = writeln!(
                            page,
                            "sglang:{name}{{{labels},status_code=\"{status}\"}} {count}.0"
                        );
                    }
                }
            }
        }
    };
    family(
        "http_requests_active",
        "gauge",
        "HTTP requests without a complete answer.",
    );
    family(
        "http_requests_total",
        "counter",
        "HTTP requests by path and method.",
    );
    family(
        "http_responses_total",
        "counter",
        "HTTP answers by path, method and status.",
    );
}

struct Facts<'a> {
    load: Load,
    counts: Counts,
    app: &'a App,
}

impl Facts<'_> {
    fn help(&self, name: &str) -> &'static str {
        match name {
            "num_running_reqs" => "Requests in the running batch.",
            "num_queue_reqs" => "Requests in the waiting queue.",
            "num_retracted_reqs" => "Retractions so far.",
            "token_usage" | "full_token_usage" => "Share of the token memory in use.",
            "num_used_tokens" | "kv_used_tokens" => "Tokens in use by running requests.",
            "kv_available_tokens" => "Free places in the token memory.",
            "kv_evictable_tokens" => "Tokens that the prefix cache keeps.",
            "max_total_num_tokens" => "Size of the token memory.",
            "gen_throughput" => "Generated tokens per second.",
            "cache_hit_rate" => "Share of the last prompts found in the prefix cache.",
            "prompt_tokens_total" => "Prompt tokens of ended requests.",
            "generation_tokens_total" => "Generated tokens of ended requests.",
            "num_requests_total" => "Ended requests.",
            _ if self.value(name, "").0 == 0.0 => "Not simulated, or nothing yet.",
            _ => "As SGLang counts it.",
        }
    }

    /// Value, or sum and count of a histogram.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
    fn value(&self, name: &str, own: &str) -> (f64, f64) {
        let (load, counts) = (&self.load, &self.counts);
        let capacity = f64::from(self.app.config.kv_cache_tokens);
        let used = load.used_tokens as f64;
        let ended = (counts.finished + counts.aborted) as f64;
        let plain = |value: f64| (value, 0.0);
        match (name, own) {
            ("num_running_reqs", _) => plain(load.running as f64),
            ("num_queue_reqs", _) => plain(load.waiting as f64),
            ("num_retracted_reqs", _) => plain(counts.retractions as f64),
            ("token_usage" | "full_token_usage", _) => plain(used / capacity),
            ("num_used_tokens" | "kv_used_tokens" | "decode_sum_seq_lens", _) => plain(used),
            ("kv_evictable_tokens", _) => plain(load.evictable_tokens as f64),
            ("kv_available_tokens", _) => plain(capacity - used - load.evictable_tokens as f64),
            ("max_total_num_tokens" | "num_pages", _) => plain(capacity),
            ("page_size", _) => plain(1.0),
            ("context_len", _) => plain(self.app.context_length() as f64),
            ("gen_throughput", _) => plain(load.throughput),
            ("cache_hit_rate", _) => plain(load.cache_hit_rate),
            ("prefill_effective_tokens_total", "mode=input")
            | ("realtime_tokens_total", "mode=prefill_compute") => {
                plain(load.prefilled_tokens as f64)
            }
            ("prefill_effective_tokens_total", "mode=device_hit") => {
                plain(load.cached_tokens as f64)
            }
            ("realtime_tokens_total", "mode=decode") => plain(load.decode_moments[1]),
            ("cuda_graph_passes_total", "mode=decode_none") => plain(load.steps as f64),
            ("prompt_tokens_total", _) => plain(counts.prompt_tokens as f64),
            ("generation_tokens_total", _) => plain(counts.generated_tokens as f64),
            ("num_requests_total", _) => plain(ended),
            ("time_to_first_token_seconds", _) => (seconds(counts.first_token_nanos), ended),
            ("e2e_request_latency_seconds", _) => (seconds(counts.latency_nanos), ended),
            ("queue_time_seconds", _) => (seconds(counts.queue_nanos), ended),
            ("prompt_tokens_histogram", _) => (counts.prompt_tokens as f64, ended),
            ("generation_tokens_histogram", _) => (counts.generated_tokens as f64, ended),
            _ => (0.0, 0.0),
        }
    }
}
