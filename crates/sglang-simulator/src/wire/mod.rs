//! Bodies: what requests say, and the exact form of replies. Nothing here does IO or knows the time.

pub(crate) mod logprobs;
pub(crate) mod meta_info;
pub(crate) mod python;
pub(crate) mod reasoning;
pub(crate) mod sampling;
pub(crate) mod sampling_checks;
pub(crate) mod text;
pub(crate) mod tool_calls;
