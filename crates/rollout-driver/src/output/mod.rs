//! Output files: kept samples reach the disk as they are kept, and appear as whole files when a step ends.
//!
//! **Purpose.** [`Writer`] writes a job's samples; [`verify()`] checks what was written; [`Manifest`] says what is there.
//!
//! ```text
//!   keep(group) ---> .rollout/parts/<step>/kept-<group>.jsonl      durable when the call returns
//!   finish_step ---> samples-<step>.jsonl, extra-<step>.jsonl      sorted by index
//!                    manifest.json                                 counts, hashes, ledger, metrics
//!                    parts are forgotten
//!   decide ----------> manifest.json                               how the job ended: without it, it has not
//! ```
//!
//! **Guarantees.** A file is whole or absent, whatever crashes. A crash between any two writes is repaired by doing the same
//! again, with the same content. A directory belongs to one job; a writer of an older attempt is refused before its file appears. Every row
//! passed the sample's invariants. No space left is an error that names the file, and leaves nothing half-written.
//!
//! **Caveats.** Calls block. A group has to fit into memory, a step does not.

mod error;
mod layout;
mod manifest;
mod metrics;
mod restore;
mod rows;
mod stamp;
#[cfg(test)]
mod tests;
mod verify;
mod whole;
mod writer;

pub use error::{OutputError, is_out_of_space};
pub use manifest::{
    BUILTIN_TOKENIZER, FileEntry, MANIFEST_VERSION, Manifest, ResultEntry, RewardInfo, StepEntry,
    TokenCounts, tokenizer_name,
};
pub use restore::{Damage, Part};
pub use rows::{INVALID, NOT_KEPT, decode, encode};
pub use stamp::JobStamp;
pub use verify::{Note, Problem, Report, Scope, StepReport, verify};
pub use writer::{KeptPart, NotKept, OutputConfig, Recovered, StepSummary, Writer};
