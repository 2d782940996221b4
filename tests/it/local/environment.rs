//! What a manifest says about the processes of the user's code: variables from its Secrets and `ConfigMap`s, and where they run.

use std::path::{Path, PathBuf};

use super::run::{self, AGENT, Run, tempdir};

const OBJECTS: &str = r#"  rewards.py: |
    import os

    def score(args, sample):
        assert os.environ["PLAIN"] == "of sesame"
        assert "AGENT_KEY" not in os.environ
        return len(sample.response) % 2
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {api: sesame}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: "3"}
"#;

/// The agent's job with plug-ins, variables and a working directory; `change` is done to its text.
fn manifest(home: &Path, change: impl Fn(String) -> String) -> PathBuf {
    let work = home.join("work");
    std::fs::create_dir(&work).unwrap();
    let text = std::fs::read_to_string(AGENT).unwrap();
    let text = text
        .replace(
            "  reward:\n    type: Math\n",
            "  reward: {type: Plugin, plugin: {path: rewards.score}}\n  plugins:\n    image: example.dev/rewards:1\n    code: {configMap: {name: files}}\n    env:\n    - {name: KEY, valueFrom: {secretKeyRef: {name: keys, key: api}}}\n    - {name: PLAIN, value: of $(KEY)}\n",
        )
        .replace(
            "          code: {configMap: {name: files}}\n",
            &format!(
                "          code: {{configMap: {{name: files}}}}\n          template:\n            spec:\n              nodeSelector: {{disk: fast}}\n              containers:\n              - name: agent\n                workingDir: {}\n                envFrom: [{{configMapRef: {{name: settings}}, prefix: OF_}}]\n                env: [{{name: AGENT_KEY, valueFrom: {{secretKeyRef: {{name: keys, key: api}}}}}}]\n",
                work.display()
            ),
        )
        .replace(
            "        messages = list(prompt)\n",
            "        import os\n        assert os.environ[\"AGENT_KEY\"] == \"sesame\" and os.environ[\"OF_level\"] == \"3\"\n        assert os.path.basename(os.getcwd()) == \"work\", os.getcwd()\n        messages = list(prompt)\n",
        );
    let path = home.join("job.yaml");
    let text = change(text.trim_end().to_owned() + "\n" + OBJECTS);
    std::fs::write(&path, text).unwrap();
    path
}

#[tokio::test]
async fn agents_and_plugins_get_their_variables_and_directory() {
    let home = tempdir();
    let output = home.path().join("out");
    let manifest = manifest(home.path(), |text| text);
    let ended = Run::start(manifest.to_str().unwrap(), &output).end().await;
    assert_eq!(
        ended.code,
        Some(0),
        "{}\n{}",
        ended.talk,
        run::logs(&output)
    );
    let left_out = "template.spec.nodeSelector: has no meaning without a cluster";
    assert_eq!(ended.talk.matches(left_out).count(), 1, "{}", ended.talk);
    assert!(!ended.talk.contains("sesame"), "{}", ended.talk);
}

#[tokio::test]
async fn what_is_missing_is_said_before_anything_starts() {
    for (old, new, problem) in [
        (
            "key: api}}}\n    - {name: PLAIN",
            "key: gone}}}\n    - {name: PLAIN",
            "spec.plugins.env[0].valueFrom.secretKeyRef: Secret/keys has no key gone",
        ),
        (
            "{configMapRef: {name: settings}",
            "{configMapRef: {name: gone}",
            "envFrom[0].configMapRef: ConfigMap/gone is not in these files",
        ),
        (
            "workingDir: ",
            "workingDir: /no/such",
            "containers[0].workingDir: there is no directory /no/such",
        ),
        (
            "  poolRef:\n",
            "  suspend: true\n  poolRef:\n",
            "a suspended job does not run; remove suspend: true",
        ),
    ] {
        let home = tempdir();
        let output = home.path().join("out");
        let manifest = manifest(home.path(), |text| text.replace(old, new));
        let ended = Run::start(manifest.to_str().unwrap(), &output).end().await;
        assert_eq!(ended.code, Some(1), "{}", ended.talk);
        assert!(ended.talk.contains(problem), "{problem}: {}", ended.talk);
        assert!(!output.exists(), "{}", ended.talk);
    }
}
