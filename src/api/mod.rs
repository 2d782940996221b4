//! The two custom resources, `SGLangPool` and `RolloutJob`: types, schema, rules, and the checks that need no cluster.
//!
//! - [`pool`] and [`job`]: the types, one file per subject. What a field means is its doc comment, which is also its description in the
//!   schema; what a valid object looks like is said by bounds on the field and by CEL rules beside the type.
//! - [`crd`]: the `CustomResourceDefinition` objects, checked in as `crds/*.yaml`.
//! - [`manifest`]: reads YAML and JSON files the way `kubectl` does, with line numbers.
//! - [`validate`]: the same verdict offline as the API server's, plus what CEL cannot see.
//! - [`support`]: the one list of what is in the API and not built yet.
//! - [`without_cluster`]: what of a job `rollout-operator local` does not do.
//! - [`meta`] and [`conditions`]: every name that other programs can rely on.
//!
//! Nothing here talks to a cluster.

pub mod conditions;
pub mod crd;
pub mod job;
pub mod manifest;
pub mod meta;
pub mod pool;
pub mod references;
pub mod support;
pub mod validate;
pub mod values;
pub mod without_cluster;
pub mod yaml_text;

mod rules;
