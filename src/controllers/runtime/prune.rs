//! What is removed: objects with our labels and our owner that nobody wants any more. Never what another owner has.

use std::collections::BTreeSet;

use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use serde_json::Value;

use super::calls::{Calls, Effect, Identity};
use crate::api::meta::labels;
use crate::controllers::{Class, Error};

/// An object to delete: this one, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Victim {
    /// Which one.
    pub identity: Identity,
    /// Its UID: another object of the same name is not it.
    pub uid: String,
    /// Its version: who changed it in between may have taken it over.
    pub resource_version: String,
}

impl Victim {
    /// The object as it was seen.
    fn of(object: &Value, identity: &Identity) -> Option<Self> {
        let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
        Some(Self {
            identity: identity.clone(),
            uid: text("uid")?,
            resource_version: text("resourceVersion")?,
        })
    }
}

/// What of an owner's objects is no longer wanted.
pub fn unwanted<'a>(
    owner_uid: &str,
    wanted: &BTreeSet<Identity>,
    found: impl IntoIterator<Item = &'a Value>,
) -> Vec<Victim> {
    let mut victims: Vec<_> = found
        .into_iter()
        .filter(|object| is_ours(object) && owner(object) == Some(owner_uid))
        .filter(|object| object["metadata"]["deletionTimestamp"].is_null())
        .filter_map(|object| Victim::of(object, &Identity::of(object).ok()?))
        .filter(|victim| !wanted.contains(&victim.identity))
        .collect();
    victims.sort();
    victims
}

/// Deletes these, as they were seen.
pub async fn delete(calls: &Calls, victims: &[Victim]) -> Result<(), Error> {
    for victim in victims {
        let as_seen = Preconditions {
            uid: Some(victim.uid.clone()),
            resource_version: Some(victim.resource_version.clone()),
        };
        remove(calls, &victim.identity, as_seen).await?;
    }
    Ok(())
}

/// Deletes an object as it was seen. One that changed or went in between is left for the next look.
pub(super) async fn remove(
    calls: &Calls,
    identity: &Identity,
    as_seen: Preconditions,
) -> Result<(), Error> {
    let params = DeleteParams {
        preconditions: Some(as_seen),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let api = identity.api(calls.client());
    let call = api.delete(&identity.name, &params);
    let text = identity.to_string();
    match calls.call(Effect::Write, "delete", &text, call).await {
        Ok(_) => tracing::info!(object = %identity, "deleted"),
        Err(error) if matches!(error.class(), Class::NotFound | Class::Conflict) => {
            tracing::debug!(object = %identity, %error, "changed before it was deleted");
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Whose a live object of a wanted name is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The owner's who wants it now.
    Ours,
    /// The owner's, and on its way out.
    Leaving,
    /// That of an owner who was deleted and made again under the same name.
    LeftOver(Victim),
    /// Somebody else's.
    Foreign {
        /// Who that is.
        owner: String,
    },
}

/// Whose the live object is. Two owners of one kind, namespace and name are not there at once: if the UID is another, the one of that UID is gone.
pub fn standing(desired: &Value, live: &Value, identity: &Identity) -> Standing {
    let is_leaving = !live["metadata"]["deletionTimestamp"].is_null();
    if is_ours(live) && owner(live) == owner(desired) {
        return if is_leaving {
            Standing::Leaving
        } else {
            Standing::Ours
        };
    }
    if is_ours(live) && is_of_one_name(live, desired) {
        return match Victim::of(live, identity) {
            Some(victim) if !is_leaving => Standing::LeftOver(victim),
            _ => Standing::Leaving,
        };
    }
    let owner = controller(live).map(|owner| {
        let word = |field: &str| owner[field].as_str().unwrap_or("?").to_owned();
        format!("{} {}", word("kind"), word("name"))
    });
    Standing::Foreign {
        owner: owner.unwrap_or_else(|| "nobody that the operator knows".to_owned()),
    }
}

/// Whether the owners of two objects have the same name.
fn is_of_one_name(live: &Value, desired: &Value) -> bool {
    match (controller(live), controller(desired)) {
        (Some(live), Some(desired)) => {
            live["kind"] == desired["kind"] && live["name"] == desired["name"]
        }
        // A job's objects name it by label.
        (None, None) => {
            let job = |object: &Value| object["metadata"]["labels"][labels::JOB].clone();
            !job(live).is_null() && job(live) == job(desired)
        }
        _ => false,
    }
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"][labels::APP_MANAGED_BY] == labels::OPERATOR
}

/// Whose an object is: its controller's UID, or the job's that it is labelled with.
pub(super) fn owner(object: &Value) -> Option<&str> {
    controller(object)
        .and_then(|owner| owner["uid"].as_str())
        .or_else(|| object["metadata"]["labels"][labels::JOB_UID].as_str())
}

fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}
