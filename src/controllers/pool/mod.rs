//! `SGLangPool`: engines, their list, their policy and budget, and the pool's router.
//!
//! Observe (caches only) -> validate -> build (pure) -> apply, in the order in which Pods need things -> prune -> status. A pool that another
//! controller manages is left alone, its status too.
//!
//! External engines are asked beside it (`external`), and never changed; so are the sidecars of the pool's own (`states`).

mod asked;
mod ca;
mod external;
mod looks;
mod observe;
mod reconciler;
mod states;
mod status;
mod verdict;

pub use external::{Credentials, CredentialsNow, Surveyor, Surveys};
pub use reconciler::{Context, OfPool, PoolReconciler};
pub use states::States;
