//! Values that both kinds use: references to other objects, quantities, pod templates, environment variables.

mod defaults;
mod env;
mod network;
mod quantity;
mod reference;
mod template;

pub(crate) use defaults::{int, long, yes};
pub use env::EnvVar;
pub use network::{EgressRule, NetworkPeer};
pub use quantity::{Quantity, Resources};
pub use reference::{
    ClaimPath, ClaimRef, CodeSource, ConfigMapKeyRef, ConfigMapRef, HuggingFaceHub, SecretKeyRef,
    SecretRef,
};
pub use template::{Parameters, Template};
