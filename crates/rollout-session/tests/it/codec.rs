//! The samples buffer.

use std::collections::HashMap;

use rollout_session::{Collected, EmptyReason, Sample, SampleStatus, codec};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

fn sample() -> Sample {
    Sample {
        tokens: vec![1, i64::from(u32::MAX), 3],
        response: "é\u{0}".to_owned(),
        response_length: 2,
        loss_mask: Some(vec![1, 0]),
        rollout_log_probs: Some(vec![-1.0e300, -0.0]),
        status: SampleStatus::Truncated,
        weight_versions: vec!["7".to_owned()],
        metadata: json!({"a": {"b": 1.5}}).as_object().unwrap().clone(),
        ..Sample::default()
    }
}

fn collected(samples: Vec<Sample>) -> Collected {
    Collected {
        samples,
        ..Collected::default()
    }
}

#[test]
fn tensors_have_the_documented_types() {
    let buffer = codec::encode(&collected(vec![sample(), Sample::default()])).unwrap();
    let tensors = SafeTensors::deserialize(&buffer).unwrap();
    let kind = |name: &str| {
        let tensor = tensors.tensor(name).unwrap();
        (tensor.dtype(), tensor.shape().to_vec())
    };
    assert_eq!(kind("tokens.0"), (Dtype::I64, vec![3]));
    assert_eq!(kind("loss_mask.0"), (Dtype::U8, vec![2]));
    assert_eq!(kind("rollout_log_probs.0"), (Dtype::F64, vec![2]));
    assert_eq!(kind("tokens.1"), (Dtype::I64, vec![0]));
    assert!(tensors.tensor("loss_mask.1").is_err());
    let meta: serde_json::Value =
        serde_json::from_slice(tensors.tensor("_samples_meta").unwrap().data()).unwrap();
    assert_eq!(
        meta["samples"][1]["nulls"],
        json!([
            "loss_mask",
            "rollout_log_probs",
            "rollout_routed_experts",
            "rollout_indexer_topk"
        ])
    );
}

#[test]
fn null_and_empty_are_different() {
    let empty = Sample {
        loss_mask: Some(Vec::new()),
        rollout_log_probs: None,
        ..Sample::default()
    };
    let decoded = codec::decode(&codec::encode(&collected(vec![empty])).unwrap()).unwrap();
    assert_eq!(decoded.samples[0].loss_mask, Some(Vec::new()));
    assert_eq!(decoded.samples[0].rollout_log_probs, None);
}

#[test]
fn bits_survive() {
    let decoded = codec::decode(&codec::encode(&collected(vec![sample()])).unwrap()).unwrap();
    assert_eq!(decoded.samples, [sample()]);
    let log_probs = decoded.samples[0].rollout_log_probs.as_ref().unwrap();
    assert_eq!(log_probs[1].to_bits(), (-0.0f64).to_bits());
}

#[test]
fn an_empty_reason_has_its_name() {
    let empty = Collected {
        empty_reason: Some(EmptyReason::AllTruncated),
        ..Collected::default()
    };
    let buffer = codec::encode(&empty).unwrap();
    assert!(buffer.ends_with(br#""empty_reason":"all_truncated"}"#));
}

#[test]
fn a_buffer_that_lies_is_refused() {
    let meta = |nulls: &str| {
        format!(
            r#"{{"samples":[{{"response":"","response_length":0,"status":"completed","nulls":[{nulls}]}}],"session_metadata":{{}},"empty_reason":null}}"#
        )
    };
    let build = |meta: &str, tensors: &[(&str, Dtype, &[u8])]| {
        let mut views = HashMap::new();
        let bytes = meta.as_bytes();
        views.insert(
            "_samples_meta",
            TensorView::new(Dtype::U8, vec![bytes.len()], bytes).unwrap(),
        );
        for (name, dtype, bytes) in tensors {
            let length = bytes.len() * 8 / dtype.bitsize();
            views.insert(name, TensorView::new(*dtype, vec![length], bytes).unwrap());
        }
        safetensors::serialize(views, None).unwrap()
    };
    let error = |buffer: &[u8]| codec::decode(buffer).unwrap_err().to_string();
    let nulls =
        r#""loss_mask","rollout_log_probs","rollout_routed_experts","rollout_indexer_topk""#;
    let missing = build(&meta(nulls), &[]);
    assert!(error(&missing).contains("tokens.0"), "{}", error(&missing));
    let wrong = build(&meta(nulls), &[("tokens.0", Dtype::I32, &[0; 4])]);
    assert!(error(&wrong).contains("expected I64"), "{}", error(&wrong));
    let extra = build(
        &meta(nulls),
        &[
            ("tokens.0", Dtype::I64, &[0; 8]),
            ("tokens.1", Dtype::I64, &[0; 8]),
        ],
    );
    assert_eq!(error(&extra), "tensor tokens.1 belongs to no sample");
    assert!(codec::decode(b"").is_err());
    let whole = codec::encode(&collected(vec![sample()])).unwrap();
    for end in 0..whole.len() {
        assert!(codec::decode(&whole[..end]).is_err());
    }
}
