//! What differs between the families.

use super::Family;

/// What stands between the ids of a finished turn and what is appended to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Nothing.
    None,
    /// The template writes a line break behind the end token, which no engine generates.
    LineBreakAfter(&'static str),
    /// The end token is the first token of the next message: it is dropped, since the template writes it again.
    DropLast(&'static [&'static str]),
}

/// The rules of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Template arguments that nobody may set to something else.
    pub kwargs: &'static [(&'static str, bool)],
    /// Roles that may be appended to a turn.
    pub append_roles: &'static [&'static str],
    /// What happens at the end of a turn.
    pub boundary: Boundary,
    /// How many ids at the end of a turn the next prompt may lack.
    pub max_trim: usize,
    /// Tokens at the end of a conversation that a comparison leaves out.
    pub trailing: &'static [&'static str],
    /// The text that an assistant's message begins with; without it, no segment counts as an assistant's.
    pub assistant_start: Option<&'static str>,
    /// The special tokens that a comparison splits at, if not all.
    pub specials: Option<&'static [&'static str]>,
    /// SGLang's reasoning parser and tool parser.
    pub parsers: Option<(&'static str, &'static str)>,
    /// Whether the family's models ship a template that only appends: else theirs has to pass the verification.
    pub native: bool,
    /// Names of one template argument: a request that sets one replaces all.
    pub aliases: &'static [&'static str],
}

const ALL_ROLES: &[&str] = &["tool", "user", "system", "assistant"];
const NO_SYSTEM: &[&str] = &["tool", "user", "assistant"];
const LINE_BREAK: &[&str] = &["\n"];

const DEFAULT: Rules = Rules {
    kwargs: &[],
    append_roles: ALL_ROLES,
    boundary: Boundary::None,
    max_trim: 0,
    trailing: &[],
    assistant_start: None,
    specials: None,
    parsers: None,
    native: true,
    aliases: &[],
};

const CHAT_ML: Rules = Rules {
    kwargs: &[("clear_thinking", false)],
    boundary: Boundary::LineBreakAfter("<|im_end|>"),
    trailing: LINE_BREAK,
    assistant_start: Some("<|im_start|>assistant"),
    native: false,
    ..DEFAULT
};

const MINIMAX: Rules = Rules {
    kwargs: &[("clear_thinking", false)],
    append_roles: NO_SYSTEM,
    boundary: Boundary::LineBreakAfter("[e~["),
    trailing: LINE_BREAK,
    assistant_start: Some("]~b]ai"),
    parsers: Some(("minimax-append-think", "minimax-m2")),
    native: false,
    ..DEFAULT
};

const KIMI: Rules = Rules {
    kwargs: &[("preserve_thinking", true)],
    assistant_start: Some("<|im_assistant|>"),
    ..DEFAULT
};

const DEEPSEEK: Rules = Rules {
    kwargs: &[("drop_thinking", false)],
    assistant_start: Some("<｜Assistant｜>"),
    specials: Some(&["<｜User｜>", "<｜Assistant｜>"]),
    native: false,
    aliases: &["thinking_mode", "enable_thinking", "thinking"],
    ..DEFAULT
};

const TURN_ENDS_OF_GLM: &[&str] = &["<|user|>", "<|observation|>"];

impl Family {
    /// The rules of the family.
    pub fn rules(self) -> Rules {
        match self {
            Self::Default => DEFAULT,
            Self::Qwen3 | Self::QwenNext => Rules {
                parsers: Some(("qwen3", "qwen25")),
                ..CHAT_ML
            },
            Self::Qwen35 => Rules {
                append_roles: NO_SYSTEM,
                parsers: Some(("qwen3", "qwen3_coder")),
                ..CHAT_ML
            },
            Self::Nemotron3 => Rules {
                kwargs: &[("truncate_history_thinking", false)],
                assistant_start: Some("<|im_start|>assistant\n"),
                parsers: Some(("nemotron_3", "qwen3_coder")),
                native: true,
                ..CHAT_ML
            },
            Self::Glm47 => Rules {
                kwargs: &[("clear_thinking", false)],
                boundary: Boundary::DropLast(TURN_ENDS_OF_GLM),
                max_trim: 1,
                trailing: TURN_ENDS_OF_GLM,
                assistant_start: Some("<|assistant|>"),
                parsers: Some(("glm45", "glm47")),
                ..DEFAULT
            },
            Self::Kimi25 => Rules {
                native: false,
                ..KIMI
            },
            Self::Kimi26 => Rules {
                parsers: Some(("kimi_k2", "kimi_k2_raw_id")),
                ..KIMI
            },
            Self::MinimaxM25 | Self::MinimaxM27 => MINIMAX,
            Self::DeepseekV32 => Rules {
                parsers: Some(("deepseek-v3", "deepseekv32")),
                ..DEEPSEEK
            },
            Self::DeepseekV4 => Rules {
                append_roles: NO_SYSTEM,
                trailing: &["<｜Assistant｜>", "<think>", "</think>"],
                parsers: Some(("deepseek-v4", "deepseekv4")),
                ..DEEPSEEK
            },
            Self::Inkling => Rules {
                assistant_start: Some("<|message_model|>"),
                parsers: Some(("inkling", "inkling")),
                native: false,
                ..DEFAULT
            },
        }
    }
}
