//! Identifiers: newtypes, so that a take is never passed for a group.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }
    };
}

number! {
    /// One take of a prompt group. A group that is recycled is taken again under a new id.
    TakeId(u64)
}

number! {
    /// A prompt group: the n-th that the data set gave out, counted over all epochs. Kept over retakes.
    GroupIndex(u64)
}

number! {
    /// One rollout of the job, from 0.
    Step(u32)
}

/// One execution of one sample: slot `slot` of a take; `attempt` grows with every refill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SampleKey {
    /// The take.
    pub take: TakeId,
    /// Position in the group, from 0.
    pub slot: u32,
    /// 0 for the first execution.
    pub attempt: u32,
}

impl fmt::Display for SampleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.take, self.slot, self.attempt)
    }
}
