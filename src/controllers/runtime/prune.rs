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
        .filter_map(|object| {
            let identity = Identity::of(object).ok()?;
            let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
            (!wanted.contains(&identity)).then_some(Victim {
                identity,
                uid: text("uid")?,
                resource_version: text("resourceVersion")?,
            })
        })
        .collect();
    victims.sort();
    victims
}

/// Deletes what is no longer wanted. One that changed or went in between is left for the next look.
pub async fn delete(calls: &Calls, victims: &[Victim]) -> Result<(), Error> {
    for victim in victims {
        let identity = &victim.identity;
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(victim.uid.clone()),
                resource_version: Some(victim.resource_version.clone()),
            }),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let api = identity.api(calls.client());
        let answer = calls
            .call(
                Effect::Write,
                "delete",
                &identity.to_string(),
                api.delete(&identity.name, &params),
            )
            .await;
        match answer {
            Ok(_) => tracing::info!(object = %identity, "deleted: no longer wanted"),
            Err(error) if matches!(error.class(), Class::NotFound | Class::Conflict) => {
                tracing::debug!(object = %identity, %error, "changed before it was deleted");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Refuses to write over an object of somebody else.
pub(super) fn check_owner(desired: &Value, live: &Value, identity: &Identity) -> Result<(), Error> {
    if is_ours(live) && owner(live) == owner(desired) {
        return if live["metadata"]["deletionTimestamp"].is_null() {
            Ok(())
        } else {
            Err(Error::Leaving {
                object: identity.to_string(),
            })
        };
    }
    // An owner of the same name that was deleted and made again: garbage collection takes the old one's objects away.
    let same_name = controller(live)
        .zip(controller(desired))
        .is_some_and(|(live, desired)| {
            live["kind"] == desired["kind"] && live["name"] == desired["name"]
        });
    if is_ours(live) && same_name {
        return Err(Error::Leaving {
            object: identity.to_string(),
        });
    }
    let owner = controller(live).map(|owner| {
        let word = |field: &str| owner[field].as_str().unwrap_or("?").to_owned();
        format!("{} {}", word("kind"), word("name"))
    });
    Err(Error::Foreign {
        object: identity.to_string(),
        owner: owner.unwrap_or_else(|| "nobody that the operator knows".to_owned()),
    })
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
