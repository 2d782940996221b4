//! Every call that a controller makes: with a deadline of its own (P4), and for writes only while this process leads (P9).

use std::future::Future;
use std::time::Duration;

use kube::Api;
use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::election::Leadership;
use crate::controllers::Error;

/// Longest wait for the answer to one call.
pub const CALL_LIMIT: Duration = Duration::from_secs(15);

/// The way to the API server.
#[derive(Clone)]
pub struct Calls {
    client: Client,
    leadership: Leadership,
    limit: Duration,
}

/// Whether a call changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It reads.
    Read,
    /// It writes: only the leader may.
    Write,
}

impl Calls {
    /// Calls by a client, as long as its process leads.
    pub fn new(client: Client, leadership: Leadership) -> Self {
        Self {
            client,
            leadership,
            limit: CALL_LIMIT,
        }
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Makes one call. `object` is what it is about, for the error's text.
    pub async fn call<T>(
        &self,
        effect: Effect,
        verb: &'static str,
        object: &str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        if effect == Effect::Write && !self.leadership.is_held() {
            return Err(Error::NotLeading {
                verb,
                object: object.to_owned(),
            });
        }
        match tokio::time::timeout(self.limit, call).await {
            Ok(answer) => answer.map_err(|error| Error::call(verb, object, error)),
            Err(_) => Err(Error::NoAnswer {
                verb,
                object: object.to_owned(),
                limit: self.limit,
            }),
        }
    }
}

/// Which object a raw object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// `group/version`, or the version alone.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Identity {
    /// Of a raw object, which must be complete.
    pub fn of(object: &Value) -> Result<Self, Error> {
        let text = |value: &Value, what| {
            let text = value.as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).ok_or(Error::Incomplete { what })
        };
        let metadata = &object["metadata"];
        Ok(Self {
            api_version: text(&object["apiVersion"], "apiVersion")?,
            kind: text(&object["kind"], "kind")?,
            namespace: text(&metadata["namespace"], "metadata.namespace")?,
            name: text(&metadata["name"], "metadata.name")?,
        })
    }

    /// The interface to objects of its kind in its namespace.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), &self.namespace, &self.resource())
    }

    fn resource(&self) -> ApiResource {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        // All of our kinds have the plural that the rule gives; a test holds it against the API server.
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &self.kind))
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}
