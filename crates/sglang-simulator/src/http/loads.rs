//! `/v1/loads`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use serde_json::{Value, json};

use super::App;
use super::reply;

/// Answers with the last published snapshot. The parts that `include` names are all there anyway.
pub(super) fn loads(app: &App, query: Option<&str>) -> Response {
    let rank = App::query(query, "dp_rank");
    let here = rank.is_none_or(|rank| rank == "0");
    let list: Vec<Value> = if here { vec![load(app)] } else { Vec::new() };
    let now = UNIX_EPOCH + Duration::from_secs_f64(app.engine.clock.unix(app.engine.clock.now()));
    reply::ok(&json!({
        "timestamp": iso(now),
        "version": super::info::VERSION,
        "accelerator": null,
        "num_accelerators": 1,
        "loads": list,
    }))
}

fn load(app: &App) -> Value {
    let load = app.engine.load();
    let capacity = app.config.kv_cache_tokens;
    let waiting_total = load.used_tokens + load.waiting_tokens;
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let usage = round(load.used_tokens as f64 / f64::from(capacity), 4);
    json!({
        "timestamp": app.engine.clock.unix(load.at),
        "dp_rank": 0,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": load.waiting_tokens,
        "num_used_tokens": load.used_tokens,
        "num_total_tokens": waiting_total,
        "num_active_tokens": waiting_total,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": capacity,
        "max_running_requests": app.config.max_running_requests,
        "token_usage": usage,
        "gen_throughput": round(load.throughput, 2),
        "cache_hit_rate": round(load.cache_hit_rate, 4),
        "utilization": 0.0,
        "total_prefill_uncached_tokens": load.prefilled_tokens,
        "total_prefill_busy_us": load.prefill_busy / 1000,
        "decode_moments": load.decode_moments.map(|moment| round(moment, 0)),
        "memory": {
            "weight_gb": 0.0,
            "kv_cache_gb": 0.0,
            "graph_gb": 0.0,
            "token_capacity": capacity,
        },
        "disaggregation": {
            "mode": "null",
            "prefill_bootstrap_queue_reqs": 0,
            "prefill_inflight_queue_reqs": 0,
            "decode_prealloc_queue_reqs": 0,
            "decode_transfer_queue_reqs": 0,
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        },
        "queues": {
            "waiting": load.waiting,
            "grammar": 0,
            "paused": 0,
            "retracted": 0,
            "prealloc_ready": 0,
        },
    })
}

fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

/// Time as Python's `isoformat` prints it in UTC.
fn iso(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}+00:00",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_micros()
    )
}

/// Year, month and day of a count of days since 1970 (Howard Hinnant's algorithm).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_as_python_does() {
        let time = UNIX_EPOCH + Duration::from_micros(1_796_018_987_750_397);
        assert_eq!(iso(time), "2026-11-30T06:09:47.750397+00:00");
    }
}
