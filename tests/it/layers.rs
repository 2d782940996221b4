//! Who may import whom (docs/architecture.md): held against the manifests and the sources themselves.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

/// Crates that must stay pure: no IO, no clock, no randomness.
const CORES: [&str; 2] = ["rollout-session", "rollout-engine"];

/// Crates that no core may depend on.
const BANNED_IN_CORES: [&str; 14] = [
    "tokio",
    "tokio-util",
    "futures-util",
    "hyper",
    "hyper-util",
    "reqwest",
    "axum",
    "http",
    "kube",
    "k8s-openapi",
    "rand",
    "rusqlite",
    "nix",
    "tracing",
];

/// Text that no core may contain outside of its tests.
const BANNED_TEXT_IN_CORES: [&str; 6] = [
    "SystemTime::now",
    "Instant::now",
    "std::net",
    "std::fs",
    "std::env::var",
    "std::process",
];

fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .map(|package| {
            let normal = package["dependencies"]
                .as_array()
                .expect("dependencies")
                .iter()
                .filter(|d| d["kind"].is_null());
            (
                package["name"].as_str().expect("name").to_owned(),
                normal
                    .map(|d| d["name"].as_str().expect("dependency name").to_owned())
                    .collect(),
            )
        })
        .collect()
}

fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
    {
        let path = entry.expect("directory entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            let text = fs::read_to_string(&path).expect("source is text");
            let code = text
                .split("#[cfg(test)]")
                .next()
                .unwrap_or_default()
                .to_owned();
            found.push((path.display().to_string(), code));
        }
    }
}

fn sources_of(relative: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join(relative);
    let mut found = Vec::new();
    if directory.exists() {
        sources(&directory, &mut found);
    }
    found
}

#[test]
fn cores_depend_on_nothing_that_does_io() {
    let dependencies = dependencies();
    for core in CORES {
        let banned: Vec<_> = dependencies[core]
            .iter()
            .filter(|name| BANNED_IN_CORES.contains(&name.as_str()))
            .collect();
        assert!(banned.is_empty(), "{core} depends on {banned:?}");
        for (path, code) in sources_of(&format!("crates/{core}/src")) {
            for text in BANNED_TEXT_IN_CORES {
                assert!(!code.contains(text), "{path} uses {text}: pass it in");
            }
        }
    }
}

#[test]
fn only_the_root_package_knows_kubernetes() {
    for (package, names) in dependencies() {
        if package != "rollout-operator" {
            assert!(
                !names
                    .iter()
                    .any(|name| name == "kube" || name == "k8s-openapi"),
                "{package} depends on Kubernetes"
            );
        }
    }
}

#[test]
fn router_and_driver_meet_on_the_wire_only() {
    let dependencies = dependencies();
    assert!(
        !dependencies["rollout-router"]
            .iter()
            .any(|name| name == "rollout-driver" || name == "rollout-engine")
    );
    assert!(
        !dependencies["rollout-driver"]
            .iter()
            .any(|name| name == "rollout-router")
    );
    assert!(
        !dependencies["rollout-agent"]
            .iter()
            .any(|name| name == "rollout-driver" || name == "rollout-router")
    );
}

#[test]
fn api_resources_and_plan_do_no_io() {
    for folder in ["src/api", "src/resources", "src/plan"] {
        for (path, code) in sources_of(folder) {
            for text in [
                "kube::Client",
                "kube::Api",
                "tokio::",
                "reqwest::",
                "crate::cli",
            ] {
                assert!(!code.contains(text), "{path} uses {text}");
            }
        }
    }
}

#[test]
fn only_the_command_line_imports_the_command_line() {
    for (path, code) in sources_of("src") {
        if !path.contains("/src/cli/") && !path.ends_with("main.rs") {
            assert!(!code.contains("cli::"), "{path} imports the command line");
        }
    }
}
