//! `SGLangPool`: engines, their list, their policy and budget, and the pool's router.
//!
//! Observe (caches only) -> validate -> build (pure) -> apply, in the order in which Pods need things -> prune -> status. A pool that another
//! controller manages is left alone, its status too.

mod observe;
mod reconciler;
mod status;

pub use reconciler::{Context, OfPool, PoolReconciler};
