//! Second phase: samples from a plan and the decoded texts.

use serde_json::{Map, Value, json};

use super::CollectPlan;
use super::merge::{PlannedSample, PlannedTurn};
use super::replay::Planned;
use super::{Collected, EmptyReason};
use crate::forest::{Forest, Leaf, Replay, Shape, Turn, TurnId};
use crate::sample::{PrefixCacheInfo, Sample, SpecInfo};

impl CollectPlan {
    /// Builds the samples. `texts` answers [`CollectPlan::decode`], `None` where a text could not be had.
    pub fn assemble(&self, forest: &Forest, texts: &[Option<String>]) -> Collected {
        let samples: Vec<Sample> = self
            .samples
            .iter()
            .map(|planned| self.sample(forest, planned, texts))
            .collect();
        let empty_reason = match (samples.is_empty(), forest.is_empty()) {
            (false, _) => None,
            (true, true) => Some(EmptyReason::NoRecords),
            (true, false) => Some(EmptyReason::AllTruncated),
        };
        Collected {
            samples,
            session_metadata: self.session_metadata(forest),
            empty_reason,
        }
    }

    fn sample(&self, forest: &Forest, planned: &PlannedSample, texts: &[Option<String>]) -> Sample {
        let mut sample = Sample {
            status: planned.status,
            metadata: self.options.metadata.clone(),
            ..Sample::default()
        };
        let mut mask: Vec<u8> = Vec::new();
        let mut log_probs: Vec<f64> = Vec::new();
        let mut missing_texts = 0usize;
        let mut prompt_len = 0;
        for (position, part) in planned.turns.iter().enumerate() {
            let Some(turn) = forest.turn(part.turn) else {
                continue;
            };
            if position == 0 {
                prompt_len = turn.prompt_len();
            }
            let gap = turn.prompt_len() - prompt_len - mask.len();
            mask.extend(std::iter::repeat_n(0, gap));
            log_probs.extend(std::iter::repeat_n(0.0, gap));
            if part.trained_elsewhere {
                mask.extend(std::iter::repeat_n(0, part.kept));
                log_probs.extend(std::iter::repeat_n(0.0, part.kept));
            } else {
                mask.extend(std::iter::repeat_n(1, part.kept));
                log_probs.extend_from_slice(&turn.log_probs()[..part.kept]);
            }
            missing_texts += append_text(&mut sample.response, turn, part, texts);
            add_counters(&mut sample, turn);
        }
        if let Some(last) = planned.turns.last() {
            let length = prompt_len + mask.len();
            let ids = forest.ids(last.turn);
            sample.tokens = ids[..length].iter().map(|id| i64::from(*id)).collect();
        }
        sample.response_length = mask.len();
        sample.loss_mask = Some(mask);
        sample.rollout_log_probs = Some(log_probs);
        sample.metadata.insert(
            "lifecycle".to_owned(),
            lifecycle(forest, planned.first, &planned.turns),
        );
        let rows = &planned.rows;
        let assemble = |rows: &Planned, replay| rows.assemble(forest, replay);
        sample.rollout_routed_experts = rows
            .experts
            .as_ref()
            .map(|rows| assemble(rows, Replay::RoutedExperts));
        sample.rollout_indexer_topk = rows
            .indexer
            .as_ref()
            .map(|rows| assemble(rows, Replay::IndexerTopK));
        if let (true, Some(last)) = (self.options.messages, planned.turns.last()) {
            let messages = messages(forest, last.turn);
            sample.metadata.insert("messages".to_owned(), messages);
        }
        if let Some(leaf) = &planned.leaf {
            self.describe_leaf(forest, leaf, &mut sample);
        }
        if missing_texts > 0 {
            sample
                .metadata
                .insert("response_gaps_missing".to_owned(), json!(missing_texts));
        }
        sample
    }

    fn describe_leaf(&self, forest: &Forest, leaf: &Leaf, sample: &mut Sample) {
        let path: Vec<usize> = leaf.path.iter().map(|id| id.index()).collect();
        let parent = path.len().checked_sub(2).map(|at| path[at]);
        let metadata = &mut sample.metadata;
        // The router's word, not the agent's.
        metadata.remove("tito_session_mismatch");
        metadata.insert(
            "accumulated_token_ids".to_owned(),
            json!(forest.ids(leaf.turn)),
        );
        metadata.insert(
            "leaf".to_owned(),
            json!({
                "node_id": leaf.turn.index(),
                "parent": parent,
                "path_node_ids": path,
                "response_id": forest.response_id(leaf.turn),
            }),
        );
        let reward = self.options.metadata.get("reward");
        sample.reward = reward.cloned().unwrap_or_default();
    }

    fn session_metadata(&self, forest: &Forest) -> Map<String, Value> {
        let mut versions: Vec<&str> = Vec::new();
        for (_, turn) in forest.turns() {
            if let Some(version) = turn.generation.weight_version.as_deref()
                && !versions.contains(&version)
            {
                versions.push(version);
            }
        }
        let accumulated = forest.head().map(|head| forest.ids(head));
        let mut metadata = Map::new();
        let mut set = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
        set(
            "accumulated_token_ids",
            json!(accumulated.unwrap_or_default()),
        );
        set("max_trim_tokens", json!(forest.max_trim()));
        set("turns", json!(forest.len()));
        set("breaks", json!(self.line.breaks));
        set("superseded_turns", json!(self.line.superseded));
        set("weight_versions", json!(versions));
        if !self.shortened.is_empty() {
            set("shortened", json!(self.shortened));
        }
        if forest.shape() == Shape::Tree {
            set("tree", forest.tree_metadata());
        }
        metadata
    }
}

/// Appends what lies before a turn, and its output. Answers how many texts are missing.
fn append_text(
    response: &mut String,
    turn: &Turn,
    part: &PlannedTurn,
    texts: &[Option<String>],
) -> usize {
    let decoded = |entry: usize| texts.get(entry).and_then(Option::as_deref);
    let mut missing = 0;
    if let Some(entry) = part.gap_text {
        match decoded(entry) {
            Some(text) => response.push_str(text),
            None => missing += 1,
        }
    }
    let pieces = turn.pieces().map(|pieces| pieces.first(part.kept));
    match part.output_text.and_then(decoded).or(pieces) {
        Some(text) => response.push_str(text),
        None if part.kept > 0 => missing += 1,
        None => {}
    }
    missing
}

fn add_counters(sample: &mut Sample, turn: &Turn) {
    let generation = &turn.generation;
    sample
        .weight_versions
        .extend(generation.weight_version.clone());
    let PrefixCacheInfo {
        cached_tokens,
        total_prompt_tokens,
    } = &mut sample.prefix_cache_info;
    *cached_tokens += generation.cached_tokens;
    *total_prompt_tokens += generation.prompt_tokens;
    let SpecInfo {
        spec_accept_token_num,
        spec_draft_token_num,
        spec_verify_ct,
        completion_token_num,
    } = &mut sample.spec_info;
    *spec_accept_token_num += generation.spec.spec_accept_token_num;
    *spec_draft_token_num += generation.spec.spec_draft_token_num;
    *spec_verify_ct += generation.spec.spec_verify_ct;
    *completion_token_num += generation.spec.completion_token_num;
}

/// Times of the turns of a sample: an object for one turn, a list for several.
fn lifecycle(forest: &Forest, first: usize, turns: &[PlannedTurn]) -> Value {
    let mut entries: Vec<Value> = turns
        .iter()
        .enumerate()
        .filter_map(|(at, part)| {
            let number = match forest.shape() {
                Shape::Recorded => part.turn.index(),
                // Of one conversation, whatever else the session has.
                Shape::Line | Shape::Tree => first + at,
            };
            turn_times(forest, part.turn, number + 1)
        })
        .collect();
    if entries.len() == 1 {
        entries.remove(0)
    } else {
        Value::Array(entries)
    }
}

fn turn_times(forest: &Forest, id: TurnId, number: usize) -> Option<Value> {
    let turn = forest.turn(id)?;
    let started = turn
        .generation
        .engine_seconds
        .map(|seconds| turn.answered_at - seconds);
    let mut entry = json!({
        "t0": started,
        "t1": turn.answered_at,
        "turn": number,
        "req_ts": turn.requested_at,
    });
    if let Some(parent) = turn.parent().and_then(|parent| forest.turn(parent.turn)) {
        entry["prev_t1"] = json!(parent.answered_at);
    }
    Some(entry)
}

/// The messages of a turn's request as they were sent, and the generated one.
fn messages(forest: &Forest, id: TurnId) -> Value {
    let request: Value = serde_json::from_slice(&forest.request(id)).unwrap_or(Value::Null);
    let asked = request.get("messages").and_then(Value::as_array);
    let reply = forest.turn(id).map(Turn::response).unwrap_or_default();
    let reply: Value = serde_json::from_slice(reply).unwrap_or(Value::Null);
    let answer = reply.pointer("/choices/0/message").cloned();
    asked.into_iter().flatten().cloned().chain(answer).collect()
}
