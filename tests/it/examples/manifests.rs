//! The examples hold what they say they hold.

use std::process::Command;

#[test]
fn manifests_embed_their_files_as_they_are() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/embed-examples");
    let output = Command::new(script)
        .arg("--check")
        .output()
        .expect("the script runs");
    assert!(
        output.status.success(),
        "run scripts/embed-examples: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn manifests_are_valid_here_and_on_a_cluster() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for arguments in [
        &["validate", examples][..],
        &["validate", "--local", examples],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_rollout-operator"))
            .args(arguments)
            .output()
            .expect("the command runs");
        assert!(
            output.status.success(),
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
