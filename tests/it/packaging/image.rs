//! The two ways to the image make the same one. Whether it runs is seen on a real cluster.

use super::text;

/// What comes after the last `start` of a text, to the end of its line.
fn after<'a>(text: &'a str, start: &str) -> &'a str {
    let at = text.rfind(start).unwrap_or_else(|| panic!("no {start}"));
    text[at + start.len()..].lines().next().unwrap()
}

#[test]
fn containerfile_and_script_agree() {
    let file = text("Containerfile");
    let script = text("scripts/build-image");
    assert_eq!(after(&file, "USER "), "65532:65532");
    assert!(script.contains("--user 65532:65532"));
    let entrypoint = after(&file, "ENTRYPOINT ");
    assert_eq!(entrypoint, r#"["/usr/bin/rollout-operator"]"#);
    assert!(script.contains(&format!("'{entrypoint}'")));
    assert!(script.contains("=/usr/bin/rollout-operator\""));
    for label in ["title", "description", "licenses", "version"] {
        assert!(file.contains(&format!("org.opencontainers.image.{label}=")));
        assert!(script.contains(&format!("org.opencontainers.image.{label}=")));
    }
    for linked in [&file, &script] {
        assert!(linked.contains("-C target-feature=+crt-static"));
    }
}

#[test]
fn containerfile_has_the_versions_of_the_workspace() {
    let file = text("Containerfile");
    let version = env!("CARGO_PKG_VERSION");
    assert!(file.contains(&format!("image.version=\"{version}\"")));
    assert!(file.contains(&format!("localhost/rollout-operator:{version} ")));
    let rust = env!("CARGO_PKG_RUST_VERSION");
    assert!(
        file.contains(&format!("FROM docker.io/library/rust:{rust}-")),
        "another Rust than {rust}"
    );
}

/// What the build reads is not left out of it.
#[test]
fn nothing_that_is_compiled_is_ignored() {
    let ignored = text(".dockerignore");
    let folders = ignored.lines().filter_map(|line| line.strip_prefix('/'));
    let needed = [
        "src",
        "crates",
        "tests",
        "benches",
        "Cargo.toml",
        "Cargo.lock",
        "rust-toolchain.toml",
    ];
    for folder in folders {
        assert!(!needed.contains(&folder), "{folder} is ignored");
    }
}
