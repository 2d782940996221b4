//! Families of models: how a conversation goes on without tokenizing again what an engine produced.
//!
//! A prompt of a later turn is the exact ids of everything before it, a fix at the boundary where the family's template writes something
//! that an engine does not generate, and the ids of what was appended. The ids of the appended messages are those of the difference of
//! two renders: a short stand-in conversation, and the same with the messages behind it ([`Inheriting::merge`]). That is right for
//! templates that only append; [`verify`] finds out whether one does.
//!
//! The rules by family are those of Miles' table of `--tito-model` (radixark/miles, 2026-08-21). Where Miles ships a corrected
//! template, the model's own is taken here, and has to pass the verification.

mod inherit;
mod rules;
mod verify;

use std::fmt;
use std::str::FromStr;

pub use inherit::{FamilyError, Inheriting, Kwargs};
pub use rules::{Boundary, Rules};
pub use verify::{Break, Verified, verify};

/// A family of models, by the name that `--tito-model` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Any model whose template only appends.
    Default,
    /// Qwen3.
    Qwen3,
    /// Qwen3.5.
    Qwen35,
    /// Qwen3 2507 with thinking, and Qwen3-Next.
    QwenNext,
    /// GLM 4.7.
    Glm47,
    /// Nemotron 3.
    Nemotron3,
    /// Kimi K2.5.
    Kimi25,
    /// Kimi K2.6.
    Kimi26,
    /// `MiniMax` M2.5.
    MinimaxM25,
    /// `MiniMax` M2.7.
    MinimaxM27,
    /// `DeepSeek` V3.2.
    DeepseekV32,
    /// `DeepSeek` V4.
    DeepseekV4,
    /// Inkling.
    Inkling,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 13] = [
        Self::Default,
        Self::Qwen3,
        Self::Qwen35,
        Self::QwenNext,
        Self::Glm47,
        Self::Nemotron3,
        Self::Kimi25,
        Self::Kimi26,
        Self::MinimaxM25,
        Self::MinimaxM27,
        Self::DeepseekV32,
        Self::DeepseekV4,
        Self::Inkling,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Qwen3 => "qwen3",
            Self::Qwen35 => "qwen35",
            Self::QwenNext => "qwennext",
            Self::Glm47 => "glm47",
            Self::Nemotron3 => "nemotron3",
            Self::Kimi25 => "kimi25",
            Self::Kimi26 => "kimi26",
            Self::MinimaxM25 => "minimax_m25",
            Self::MinimaxM27 => "minimax_m27",
            Self::DeepseekV32 => "deepseekv32",
            Self::DeepseekV4 => "deepseekv4",
            Self::Inkling => "inkling",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|family| family.name() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::name).join(", ");
                format!("no family {name:?}: one of {names}")
            })
    }
}
