//! The identity of a pool's Pods: without rights, and without a token in any of them.

use serde_json::json;

use super::PoolInput;
use crate::resources::{Kind, Object, names};

pub(super) fn build(input: PoolInput<'_>) -> Object {
    let owner = input.owner;
    let name = names::account(&owner.name);
    let body = json!({"automountServiceAccountToken": false});
    Object::new(Kind::ServiceAccount, owner, name, input.labels(None), body).owned_by(owner)
}
