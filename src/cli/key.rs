//! `rollout-operator key`: the key that the operator derives the tokens of every job from, made once and kept in a Secret.
//!
//! It runs before the controller, in its pod. Of many that run at once the first one's key stays and the others read it, so that every
//! replica has the same. Nothing but this Secret is read, and the key goes to the file alone.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use serde_json::json;

/// The entry of the Secret, and what a key has at least.
const ENTRY: &str = "key";
const BYTES: usize = 32;

/// Longest time for all of it: whoever started us tries again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the operator's own key, or reads the one that there is.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Secret that keeps the key, in the pod's own namespace.
    #[arg(long, value_name = "NAME")]
    secret: String,
    /// File that the key is written to.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = tokio::time::timeout(PATIENCE, keep(&args.secret))
        .await
        .with_context(|| {
            format!(
                "the API server did not answer about Secret {} within {} s",
                args.secret,
                PATIENCE.as_secs()
            )
        })??;
    write(&args.file, &key)?;
    Ok(ExitCode::SUCCESS)
}

/// The key in the Secret, which is made when there is none.
async fn keep(name: &str) -> anyhow::Result<Vec<u8>> {
    let client = Client::try_default()
        .await
        .context("no way to the API server: this command runs in a pod, or where KUBECONFIG leads to a cluster")?;
    let secrets: Api<Secret> = Api::default_namespaced(client);
    let fresh = secret(name, &random_key()).context("a Secret")?;
    let kept = match secrets.create(&PostParams::default(), &fresh).await {
        Ok(kept) => kept,
        Err(Error::Api(status)) if status.code == 409 => secrets
            .get(name)
            .await
            .with_context(|| format!("cannot read Secret {name}"))?,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot make Secret {name}"));
        }
    };
    key_of(name, &kept)
}

fn secret(name: &str, key: &str) -> serde_json::Result<Secret> {
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "rollout-operator", "app.kubernetes.io/part-of": "rollout-operator"},
        },
        "stringData": {ENTRY: key},
        // An edit would end the trust of everything that runs.
        "immutable": true,
    }))
}

fn random_key() -> String {
    rand::random::<[u8; BYTES]>()
        .iter()
        .fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

fn key_of(name: &str, secret: &Secret) -> anyhow::Result<Vec<u8>> {
    let Some(key) = secret.data.as_ref().and_then(|data| data.get(ENTRY)) else {
        bail!(
            "Secret {name} has no entry '{ENTRY}': delete it, and a new one is made, or add the entry"
        );
    };
    if key.0.len() < BYTES {
        bail!(
            "the entry '{ENTRY}' of Secret {name} has {} bytes: a key has {BYTES} or more",
            key.0.len()
        );
    }
    Ok(key.0.clone())
}

/// The whole file or none, for its owner alone.
fn write(path: &Path, key: &[u8]) -> anyhow::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let write = || {
        let mut file = tempfile::Builder::new()
            .permissions(std::fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)?;
        std::io::Write::write_all(&mut file, key)?;
        file.persist(path)?;
        std::io::Result::Ok(())
    };
    write().with_context(|| format!("cannot write the key to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{BYTES, key_of, random_key, secret, write};

    fn stored(data: &serde_json::Value) -> k8s_openapi::api::core::v1::Secret {
        serde_json::from_value(serde_json::json!({"data": data})).unwrap()
    }

    #[test]
    fn a_key_is_random_and_kept_as_it_is() {
        let (one, other) = (random_key(), random_key());
        assert_ne!(one, other);
        assert_eq!(one.len(), 2 * BYTES);
        let secret = secret("s", &one).unwrap();
        assert_eq!(secret.string_data.unwrap()["key"], one);
        assert_eq!(secret.immutable, Some(true));
    }

    #[test]
    fn a_secret_without_a_key_is_said_and_never_taken() {
        let long = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
        let key = key_of("s", &stored(&serde_json::json!({"key": long}))).unwrap();
        assert_eq!(key, b"01234567890123456789012345678901");
        for (data, said) in [
            (
                serde_json::json!({"other": long}),
                "Secret s has no entry 'key'",
            ),
            (
                serde_json::json!({"key": "c2hvcnQ="}),
                "the entry 'key' of Secret s has 5 bytes",
            ),
            (serde_json::json!(null), "Secret s has no entry 'key'"),
        ] {
            let error = key_of("s", &stored(&data)).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn the_file_is_for_its_owner_alone_and_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for key in [b"one".as_slice(), b"other"] {
            write(&path, key).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), key);
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        let error = write(&folder.path().join("none/key"), b"k").unwrap_err();
        assert!(
            format!("{error:#}").starts_with("cannot write the key to"),
            "{error:#}"
        );
    }
}
