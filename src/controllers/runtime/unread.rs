//! Objects that the operator may write and not read (Secrets), and settings that nobody watches.
//!
//! A read would show whose an object is; here the write itself asks: a JSON patch that begins with tests of labels and owner is refused as a
//! whole when one does not hold. Guarantees: an object of somebody else is neither changed nor deleted; each is sent once per process and
//! change. Caveat: an edit by hand is repaired by the next process alone.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::apply::{Applier, Outcome};
use super::calls::{Calls, Effect, Identity};
use super::decision::{self, Reason};
use super::memory::Unread;
use super::prune;
use crate::api::meta::labels;
use crate::controllers::{Class, Error};
use crate::resources::Object;

impl Applier {
    /// Makes an object be as wanted without reading it.
    ///
    /// # Errors
    /// [`Error::Foreign`]: there is one of that name that is not its owner's.
    pub async fn apply_unread(&self, desired: &Value) -> Result<Outcome, Error> {
        let identity = Identity::of(desired)?;
        let owner = prune::owner(desired).unwrap_or_default();
        let fingerprint = decision::hash(desired);
        let known = self.memory().unread(owner, &identity);
        if known.as_ref().map(|known| known.fingerprint) == Some(fingerprint) {
            return Ok(Outcome::Settled);
        }
        let uid = if known.is_some() {
            self.change_or_make(&identity, desired).await?
        } else {
            self.make_or_change(&identity, desired).await?
        };
        let unread = Unread { fingerprint, uid };
        self.memory().note_unread(owner, identity, unread);
        self.metrics().applied("unread");
        Ok(Outcome::Sent(Reason::Missing))
    }

    /// Deletes an object, if it is there and of the same owner as `like`.
    pub async fn delete_unread(&self, like: &Value) -> Result<(), Error> {
        let identity = Identity::of(like)?;
        let owner = prune::owner(like).unwrap_or_default();
        // What this process made need not be asked whose it is.
        let known = self.memory().unread(owner, &identity);
        let uid = match known.and_then(|known| known.uid) {
            Some(uid) => Some(uid),
            None => match check(self.calls(), &identity, self.manager(), like).await {
                Ok(uid) => uid,
                Err(error) if matches!(error.class(), Class::NotFound | Class::Foreign) => {
                    return Ok(());
                }
                Err(error) => return Err(error),
            },
        };
        remove(self.calls(), &identity, uid).await?;
        self.memory().forget_unread(owner, &identity);
        Ok(())
    }

    async fn change_or_make(
        &self,
        identity: &Identity,
        desired: &Value,
    ) -> Result<Option<String>, Error> {
        match self.change(identity, desired).await {
            Err(error) if error.class() == Class::NotFound => self.make(identity, desired).await,
            other => other,
        }
    }

    /// What this process has not sent yet is mostly not there. A quota that is used up refuses it also where it is.
    async fn make_or_change(
        &self,
        identity: &Identity,
        desired: &Value,
    ) -> Result<Option<String>, Error> {
        let refused = match self.make(identity, desired).await {
            Err(error) if matches!(error.class(), Class::Conflict | Class::Forbidden) => error,
            other => return other,
        };
        match self.change(identity, desired).await {
            Err(error) if error.class() == Class::NotFound => Err(refused),
            other => other,
        }
    }

    async fn change(&self, identity: &Identity, desired: &Value) -> Result<Option<String>, Error> {
        let mut steps = tests(desired);
        steps.extend(changes(desired));
        match patch(self.calls(), identity, self.manager(), steps).await {
            Ok(changed) => Ok(changed.metadata.uid),
            Err(error) if error.class() == Class::Invalid => {
                // Either it is not ours, or what we sent is refused.
                match check(self.calls(), identity, self.manager(), desired).await {
                    Ok(_) => Err(error),
                    Err(foreign) => {
                        self.make_way_unread(identity, desired).await?;
                        Err(foreign)
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes what an owner of the same name left, who was deleted and made again; then the caller has to come again.
    async fn make_way_unread(&self, identity: &Identity, desired: &Value) -> Result<(), Error> {
        let calls = self.calls();
        let Some(steps) = left_over(desired) else {
            return Ok(());
        };
        match patch(calls, identity, self.manager(), steps).await {
            Ok(found) => {
                remove(calls, identity, found.metadata.uid).await?;
                Err(Error::Leaving {
                    object: identity.to_string(),
                })
            }
            Err(error) if error.class() == Class::Invalid => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn make(&self, identity: &Identity, desired: &Value) -> Result<Option<String>, Error> {
        let text = identity.to_string();
        let object: DynamicObject = serde_json::from_value(desired.clone())
            .map_err(|error| Error::call("create", &text, kube::Error::SerdeError(error)))?;
        let params = PostParams {
            field_manager: Some(self.manager().to_owned()),
            ..PostParams::default()
        };
        let api = identity.api(self.calls().client());
        let call = api.create(&params, &object);
        self.calls()
            .call(Effect::Write, "create", &text, call)
            .await
            .map(|made| made.metadata.uid)
    }
}

/// A hash of objects, to be noted where it can be read, by whoever may not read the objects.
pub fn fingerprint<'a>(objects: impl Iterator<Item = &'a Object>) -> String {
    let digest = objects.fold(Sha256::new(), |digest, object| {
        digest.chain_update(object.value.to_string())
    });
    digest
        .finalize()
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

async fn remove(calls: &Calls, identity: &Identity, uid: Option<String>) -> Result<(), Error> {
    // No version: it was not read, and only its UID says that it is still the one that was tested.
    let as_seen = Preconditions {
        uid,
        resource_version: None,
    };
    prune::remove(calls, identity, as_seen).await
}

/// Answers the UID of an object of the same owner; changes nothing.
async fn check(
    calls: &Calls,
    identity: &Identity,
    manager: &'static str,
    like: &Value,
) -> Result<Option<String>, Error> {
    match patch(calls, identity, manager, tests(like)).await {
        Ok(found) => Ok(found.metadata.uid),
        Err(error) if error.class() == Class::Invalid => Err(Error::Foreign {
            object: identity.to_string(),
            owner: "somebody else".to_owned(),
        }),
        Err(error) => Err(error),
    }
}

async fn patch(
    calls: &Calls,
    identity: &Identity,
    manager: &'static str,
    steps: Vec<Value>,
) -> Result<DynamicObject, Error> {
    let text = identity.to_string();
    let steps = serde_json::from_value(Value::Array(steps))
        .map_err(|error| Error::call("apply", &text, kube::Error::SerdeError(error)))?;
    let patch: Patch<()> = Patch::Json(steps);
    let params = PatchParams {
        field_manager: Some(manager.to_owned()),
        ..PatchParams::default()
    };
    let api = identity.api(calls.client());
    let call = api.patch(&identity.name, &params, &patch);
    calls.call(Effect::Write, "apply", &text, call).await
}

/// What only an object of the same owner has.
fn tests(desired: &Value) -> Vec<Value> {
    let metadata = &desired["metadata"];
    let mut steps = vec![test(
        &label_path(labels::APP_MANAGED_BY),
        &json!(labels::OPERATOR),
    )];
    if let Some(owner) = metadata["ownerReferences"][0]["uid"].as_str() {
        steps.push(test("/metadata/ownerReferences/0/uid", &json!(owner)));
    }
    if let Some(job) = metadata["labels"][labels::JOB_UID].as_str() {
        steps.push(test(&label_path(labels::JOB_UID), &json!(job)));
    }
    steps
}

/// What an object has whose owner is of the same kind and name, whatever its UID; none: that cannot be told of this one.
fn left_over(desired: &Value) -> Option<Vec<Value>> {
    let metadata = &desired["metadata"];
    let mut steps = vec![test(
        &label_path(labels::APP_MANAGED_BY),
        &json!(labels::OPERATOR),
    )];
    let owner = &metadata["ownerReferences"][0];
    if owner.is_object() {
        for field in ["kind", "name"] {
            let path = format!("/metadata/ownerReferences/0/{field}");
            steps.push(test(&path, &owner[field]));
        }
    } else {
        let job = metadata["labels"][labels::JOB].as_str()?;
        steps.push(test(&label_path(labels::JOB), &json!(job)));
    }
    Some(steps)
}

/// What it is to have: its labels, and its contents as a whole.
fn changes(desired: &Value) -> Vec<Value> {
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let set = |path: String, value: Value| json!({"op": "add", "path": path, "value": value});
    let mut steps: Vec<_> = members(&desired["metadata"]["labels"])
        .into_iter()
        .map(|(name, value)| set(label_path(&name), value))
        .collect();
    let contents = members(desired)
        .into_iter()
        .filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind" | "metadata"));
    steps.extend(contents.map(|(name, value)| set(format!("/{}", escape(&name)), value)));
    steps
}

fn test(path: &str, value: &Value) -> Value {
    json!({"op": "test", "path": path, "value": value})
}

fn label_path(name: &str) -> String {
    format!("/metadata/labels/{}", escape(name))
}

/// A name in a JSON pointer.
fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{changes, left_over, tests};

    #[test]
    fn a_patch_asks_whose_it_is_before_it_changes_anything() {
        let desired = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": "job-rollout", "namespace": "rl",
                "labels": {"app.kubernetes.io/managed-by": "rollout-operator", "rollout-operator.dev/job-uid": "u-1"},
                "ownerReferences": [{"uid": "o-1"}],
            },
            "data": {"k": "dg=="},
        });
        assert_eq!(
            json!(tests(&desired)),
            json!([
                {"op": "test", "path": "/metadata/labels/app.kubernetes.io~1managed-by", "value": "rollout-operator"},
                {"op": "test", "path": "/metadata/ownerReferences/0/uid", "value": "o-1"},
                {"op": "test", "path": "/metadata/labels/rollout-operator.dev~1job-uid", "value": "u-1"},
            ])
        );
        assert_eq!(
            json!(changes(&desired)),
            json!([
                {"op": "add", "path": "/metadata/labels/app.kubernetes.io~1managed-by", "value": "rollout-operator"},
                {"op": "add", "path": "/metadata/labels/rollout-operator.dev~1job-uid", "value": "u-1"},
                {"op": "add", "path": "/data", "value": {"k": "dg=="}},
            ])
        );
    }

    #[test]
    fn what_a_former_owner_left_is_told_by_the_owners_name() {
        let owned = json!({"metadata": {"ownerReferences": [{"kind": "SGLangPool", "name": "a", "uid": "u-2"}]}});
        assert_eq!(
            json!(left_over(&owned)),
            json!([
                {"op": "test", "path": "/metadata/labels/app.kubernetes.io~1managed-by", "value": "rollout-operator"},
                {"op": "test", "path": "/metadata/ownerReferences/0/kind", "value": "SGLangPool"},
                {"op": "test", "path": "/metadata/ownerReferences/0/name", "value": "a"},
            ])
        );
        let labelled = json!({"metadata": {"labels": {"rollout-operator.dev/job": "b", "rollout-operator.dev/job-uid": "u-2"}}});
        assert_eq!(
            json!(left_over(&labelled)),
            json!([
                {"op": "test", "path": "/metadata/labels/app.kubernetes.io~1managed-by", "value": "rollout-operator"},
                {"op": "test", "path": "/metadata/labels/rollout-operator.dev~1job", "value": "b"},
            ])
        );
        assert_eq!(left_over(&json!({"metadata": {}})), None);
    }
}
