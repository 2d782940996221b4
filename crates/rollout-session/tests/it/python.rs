//! Python, for what is compared with it: an interpreter with `tests/python/requirements.txt`, installed once per machine.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rollout_session::{Collected, ReplayRows, Sample, SampleStatus, codec};
use serde_json::{Value, json};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/python")
        .join(name)
}

/// The interpreter: `ROLLOUT_TEST_SAFETENSORS_PYTHON`, or one that is made as `./test` makes its own.
fn interpreter() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        if let Ok(python) = std::env::var("ROLLOUT_TEST_SAFETENSORS_PYTHON") {
            return python;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c"])
            .arg("source scripts/setup.sh && need_toolchain && python_env crates/rollout-session/tests/python/requirements.txt")
            .current_dir(root)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "no Python with safetensors: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

/// Runs a script with lines on its standard input.
pub(crate) fn run(name: &str, arguments: &[&Path], input: &str) -> String {
    let mut child = Command::new(interpreter())
        .arg(script(name))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    writer.join().unwrap().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_safetensors_of_pypi_reads_and_writes_the_same_samples() {
    let rows = |values: &[i32]| {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect()
    };
    let sample = Sample {
        tokens: vec![1, i64::from(u32::MAX), 3],
        response: "é\u{0}😀".to_owned(),
        response_length: 2,
        loss_mask: Some(vec![1, 0]),
        rollout_log_probs: Some(vec![-1.0e300, -0.0]),
        rollout_routed_experts: Some(
            ReplayRows::new([2, 1, 2], rows(&[0, -1, i32::MAX, i32::MIN])).unwrap(),
        ),
        rollout_indexer_topk: Some(ReplayRows::new([0, 4, 0], Vec::new()).unwrap()),
        status: SampleStatus::Truncated,
        ..Sample::default()
    };
    let collected = Collected {
        samples: vec![sample, Sample::default()],
        session_metadata: json!({"max_trim_tokens": 1}).as_object().unwrap().clone(),
        empty_reason: None,
    };
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (
        directory.path().join("ours"),
        directory.path().join("theirs"),
    );
    std::fs::write(&ours, codec::encode(&collected).unwrap()).unwrap();
    let shown: Value =
        serde_json::from_str(&run("read_samples.py", &[&ours, &theirs], "")).unwrap();
    let names: Vec<&String> = shown.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "_samples_meta",
            "loss_mask.0",
            "rollout_indexer_topk.0",
            "rollout_log_probs.0",
            "rollout_routed_experts.0",
            "tokens.0",
            "tokens.1"
        ]
    );
    for (name, dtype, shape, values) in [
        (
            "tokens.0",
            "int64",
            json!([3]),
            json!([1, 4_294_967_295_u64, 3]),
        ),
        ("tokens.1", "int64", json!([0]), json!([])),
        ("loss_mask.0", "uint8", json!([2]), json!([1, 0])),
        (
            "rollout_log_probs.0",
            "float64",
            json!([2]),
            json!([(-1.0e300f64).to_bits(), (-0.0f64).to_bits()]),
        ),
        (
            "rollout_routed_experts.0",
            "int32",
            json!([2, 1, 2]),
            json!([0, -1, i32::MAX, i32::MIN]),
        ),
        (
            "rollout_indexer_topk.0",
            "int32",
            json!([0, 4, 0]),
            json!([]),
        ),
    ] {
        let expected = json!({"dtype": dtype, "shape": shape, "values": values});
        assert_eq!(shown[name], expected, "{name}");
    }
    let back = codec::decode(&std::fs::read(&theirs).unwrap()).unwrap();
    assert_eq!(back, collected);
}
