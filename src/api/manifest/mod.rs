//! Manifest files: read as `kubectl` reads them, checked, and handed on as typed objects.
//!
//! [`read`] gives documents with the lines of their fields; [`examine`] says what is wrong in them, one by one and together; [`load`] does
//! both and gives [`Manifests`], or every error at once.

mod check;
mod document;
mod finding;
mod lines;
pub(crate) mod path;
mod read;
mod scalar;
mod set;
mod yaml;

pub use check::{Purpose, examine, in_order};
pub use document::{Document, Identity};
pub use finding::{Finding, Severity};
pub use lines::Lines;
pub use read::{Sources, read, read_text};
pub use set::{Loaded, Manifests, Other, Rejected, load, load_sources};
