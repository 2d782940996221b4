//! Replay rows: full, additional, of an indexer, and such that do not fit.

use rollout_session::{
    ChatReply, CollectOptions, Collected, Forest, Generation, ReplayPayload, ReplayRows,
    RoutedExperts, SampleStatus, TurnContext, codec, plan,
};
use serde_json::json;

use crate::support::{generation, join};

const LAYERS: usize = 2;
const PER_LAYER: usize = 3;

/// Rows `from..to`: every integer names its row.
fn rows(from: usize, to: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for row in from..to {
        for value in 0..LAYERS * PER_LAYER {
            let number = i32::try_from(row * 100 + value).unwrap();
            bytes.extend(number.to_le_bytes());
        }
    }
    bytes
}

fn options(additional: bool) -> CollectOptions {
    CollectOptions {
        routed_experts: Some(RoutedExperts {
            layers: LAYERS,
            additional,
        }),
        ..CollectOptions::default()
    }
}

fn collect(forest: &Forest, options: CollectOptions) -> Collected {
    let collected = plan(forest, options).assemble(forest, &[]);
    for sample in &collected.samples {
        sample.validate().unwrap();
    }
    let decoded = codec::decode(&codec::encode(&collected).unwrap()).unwrap();
    for (decoded, sample) in decoded.samples.iter().zip(&collected.samples) {
        assert_eq!(
            decoded.rollout_routed_experts,
            sample.rollout_routed_experts
        );
        assert_eq!(decoded.rollout_indexer_topk, sample.rollout_indexer_topk);
    }
    let viewed = codec::from_json(&codec::to_json(collected.clone()).unwrap()).unwrap();
    assert_eq!(viewed.samples.len(), collected.samples.len());
    for (viewed, sample) in viewed.samples.iter().zip(&collected.samples) {
        assert_eq!(viewed.rollout_routed_experts, sample.rollout_routed_experts);
    }
    collected
}

/// The rows of the first sample.
fn experts(collected: &Collected) -> &ReplayRows {
    let rows = &collected.samples[0].rollout_routed_experts;
    rows.as_ref().unwrap()
}

/// Three turns: 3 + 2, 7 + 2, 11 + 2 tokens. `payload` answers what each turn's engine sends.
fn session(payload: impl Fn(usize, usize) -> (Option<ReplayPayload>, Option<usize>)) -> Forest {
    let mut forest = Forest::new(0);
    let mut prompt: Vec<u32> = vec![1, 2, 3];
    for turn in 0..3 {
        let answer = [(50, -0.5), (51, -0.25)];
        let total = prompt.len() + answer.len();
        let (routed_experts, experts_start) = payload(turn, total);
        let generation = Generation {
            routed_experts,
            ..generation(&prompt, &answer)
        };
        let context = TurnContext {
            messages: Some(1 + 2 * turn),
            experts_start,
            ..TurnContext::default()
        };
        forest.commit(forest.epoch(), generation, context).unwrap();
        prompt = join(&[&prompt, &[50, 51], &[60, 61]]);
    }
    forest
}

fn full(_: usize, total: usize) -> (Option<ReplayPayload>, Option<usize>) {
    (Some(ReplayPayload::Rows(rows(0, total - 1))), None)
}

fn additional(turn: usize, total: usize) -> (Option<ReplayPayload>, Option<usize>) {
    let start = if turn == 0 { 0 } else { total - 5 };
    (
        Some(ReplayPayload::Rows(rows(start, total - 1))),
        Some(start),
    )
}

fn reasons(collected: &Collected) -> Vec<(u64, String)> {
    let list = collected.session_metadata.get("shortened");
    let entries = list.and_then(|list| list.as_array()).into_iter().flatten();
    entries
        .map(|entry| {
            (
                entry["turn"].as_u64().unwrap(),
                entry["reason"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[test]
fn full_rows_are_those_of_the_last_turn() {
    let collected = collect(&session(full), options(false));
    let rows_of = experts(&collected);
    assert_eq!(collected.samples[0].tokens.len(), 13);
    assert_eq!(rows_of.shape, [12, LAYERS, PER_LAYER]);
    assert_eq!(rows_of.bytes, rows(0, 12));
    // A sample that the budget cuts has as many rows fewer.
    let cut = CollectOptions {
        max_seq_len: Some(12),
        ..options(false)
    };
    let collected = collect(&session(full), cut);
    let rows_of = experts(&collected);
    assert_eq!((rows_of.shape[0], &rows_of.bytes), (11, &rows(0, 11)));
    assert_eq!(collected.samples[0].status, SampleStatus::Truncated);
}

#[test]
fn rows_that_turns_repeat_are_held_once() {
    let with = session(full).heap_bytes();
    let without = session(|_, _| (None, None)).heap_bytes();
    assert_eq!(with - without, rows(0, 12).len());
}

#[test]
fn nobody_who_does_not_want_rows_gets_them() {
    let collected = collect(&session(full), CollectOptions::default());
    assert_eq!(collected.samples[0].rollout_routed_experts, None);
}

#[test]
fn a_turn_without_rows_after_one_with_rows_begins_no_part_of_the_sample() {
    let lacking = session(|turn, total| {
        if turn == 1 {
            (None, None)
        } else {
            full(turn, total)
        }
    });
    let collected = collect(&lacking, options(false));
    assert_eq!(collected.samples[0].tokens.len(), 5);
    assert_eq!(experts(&collected).shape[0], 4);
    assert_eq!(reasons(&collected), []);
    // The other way round the later rows cover everything.
    let late = session(|turn, total| {
        if turn == 0 {
            (None, None)
        } else {
            full(turn, total)
        }
    });
    let collected = collect(&late, options(false));
    assert_eq!(experts(&collected).shape[0], 12);
}

#[test]
fn rows_that_do_not_fit_shorten_the_sample_and_say_why() {
    let bad = |payload: ReplayPayload| {
        session(move |turn, total| {
            if turn == 2 {
                (Some(payload.clone()), None)
            } else {
                full(turn, total)
            }
        })
    };
    for (payload, reason) in [
        (
            ReplayPayload::Rows(vec![0; 4]),
            "routed_experts has 1 values, which are not 12 rows of 2 layers",
        ),
        (
            ReplayPayload::Rows(Vec::new()),
            "routed_experts has 0 values, which are not 12 rows of 2 layers",
        ),
        (
            ReplayPayload::Broken("is not base64"),
            "routed_experts is not base64",
        ),
    ] {
        let collected = collect(&bad(payload), options(false));
        assert_eq!(collected.samples[0].tokens.len(), 9);
        assert_eq!(experts(&collected).bytes, rows(0, 8));
        assert_eq!(reasons(&collected), [(3, reason.to_owned())]);
    }
    let none = session(|_, _| (Some(ReplayPayload::Rows(vec![0; 4])), None));
    let collected = collect(&none, options(false));
    assert_eq!(collected.samples, []);
    assert_eq!(reasons(&collected)[0].0, 1);
}

#[test]
fn additional_rows_are_put_together() {
    let collected = collect(&session(additional), options(true));
    let rows_of = experts(&collected);
    assert_eq!(rows_of.shape, [12, LAYERS, PER_LAYER]);
    assert_eq!(rows_of.bytes, rows(0, 12));
    let cut = CollectOptions {
        max_seq_len: Some(12),
        ..options(true)
    };
    let collected = collect(&session(additional), cut);
    assert_eq!(experts(&collected).bytes, rows(0, 11));
    let collected = collect(&session(|_, _| (None, Some(0))), options(true));
    assert_eq!(collected.samples[0].rollout_routed_experts, None);
    assert_eq!(collected.samples[0].tokens.len(), 13);
}

#[test]
fn additional_rows_with_a_hole_shorten_the_sample() {
    type Payload = (Option<ReplayPayload>, Option<usize>);
    let rows_from = |start: usize, end: usize| Some(ReplayPayload::Rows(rows(start, end)));
    let cases: Vec<(Payload, &str)> = vec![
        (
            (rows_from(5, 8), Some(5)),
            "additional R3: record 1 starts at row 5; expected 4",
        ),
        (
            (None, Some(4)),
            "additional R3: record 1 has no routed_experts payload",
        ),
        (
            (rows_from(4, 8), None),
            "additional R3: record 1 carries no routed_experts_start_len",
        ),
        (
            (rows_from(4, 4), Some(4)),
            "additional R3: record 1 payload presence does not match 4 rows",
        ),
        (
            (Some(ReplayPayload::Rows(vec![0; 12])), Some(4)),
            "additional R3: record 1 routed_experts has 3 values, which are not 4 rows of 2 layers",
        ),
        (
            (Some(ReplayPayload::Rows(vec![0; 32])), Some(4)),
            "additional R3: record 1 has 1 experts per layer; expected 3",
        ),
    ];
    for (payload, reason) in cases {
        let forest = session(|turn, total| {
            if turn == 1 {
                payload.clone()
            } else {
                additional(turn, total)
            }
        });
        let collected = collect(&forest, options(true));
        assert_eq!(collected.samples[0].tokens, [1, 2, 3, 50, 51], "{reason}");
        assert_eq!(collected.samples[0].status, SampleStatus::Completed);
        assert_eq!(experts(&collected).bytes, rows(0, 4));
        assert_eq!(reasons(&collected), [(2, reason.to_owned())]);
    }
}

#[test]
fn indexer_rows_have_the_engines_number_of_layers() {
    let turn = |layers| {
        let mut forest = Forest::new(0);
        let generation = Generation {
            indexer_topk: Some(ReplayPayload::Rows(rows(0, 4))),
            indexer_layers: layers,
            ..generation(&[1, 2, 3], &[(50, -0.5), (51, -0.25)])
        };
        forest
            .commit(0, generation, TurnContext::default())
            .unwrap();
        let wanted = CollectOptions {
            indexer_topk: true,
            ..CollectOptions::default()
        };
        collect(&forest, wanted)
    };
    let collected = turn(Some(LAYERS));
    let rows_of = collected.samples[0].rollout_indexer_topk.as_ref().unwrap();
    assert_eq!(
        (rows_of.shape, &rows_of.bytes),
        ([4, LAYERS, PER_LAYER], &rows(0, 4))
    );
    let collected = turn(None);
    assert_eq!(collected.samples, []);
    assert_eq!(
        reasons(&collected),
        [(
            1,
            "indexer_topk comes without its number of layers".to_owned()
        )]
    );
}

#[test]
fn a_reply_gives_its_payloads_as_bytes_and_loses_none_of_its_turn_for_a_bad_one() {
    let reply = |experts: serde_json::Value| {
        json!({"choices": [{"message": {"content": "x"}, "prompt_token_ids": [1], "finish_reason": "stop",
            "meta_info": {"output_token_logprobs": [[-0.5, 7, null]], "completion_tokens": 1,
                "routed_experts": experts, "indexer_topk": "AQAAAA==", "indexer_topk_num_layers": 4}}]})
        .to_string()
    };
    let parse = |body: &str| ChatReply::parse(body.as_bytes(), None, None).unwrap();
    let body = reply(json!("AAAAAAEAAAA="));
    let parsed = parse(&body);
    assert_eq!(
        parsed.generation.routed_experts,
        Some(ReplayPayload::Rows(vec![0, 0, 0, 0, 1, 0, 0, 0]))
    );
    assert_eq!(
        parsed.generation.indexer_topk,
        Some(ReplayPayload::Rows(vec![1, 0, 0, 0]))
    );
    assert_eq!(parsed.generation.indexer_layers, Some(4));
    let client = parsed.client_body(body.as_bytes()).unwrap();
    assert!(
        !String::from_utf8(client)
            .unwrap()
            .contains("routed_experts")
    );
    for (experts, expected) in [
        (json!(null), None),
        (json!("AAA"), Some(ReplayPayload::Broken("is not base64"))),
        (
            json!("AAAA"),
            Some(ReplayPayload::Broken(
                "is not a whole number of 32-bit integers",
            )),
        ),
        (json!([1]), Some(ReplayPayload::Broken("is not a text"))),
    ] {
        let parsed = parse(&reply(experts));
        assert_eq!(parsed.generation.routed_experts, expected);
        assert_eq!(parsed.generation.output_ids, [7]);
    }
}
