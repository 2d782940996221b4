//! Reasoning in the text of a model: `<think>...</think>` before the answer.

/// A text in its two parts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parted {
    pub(crate) reasoning: Option<String>,
    pub(crate) content: String,
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Parts a text. Reasoning that is not closed is reasoning to the end.
pub(crate) fn part(text: &str) -> Parted {
    let Some(rest) = text.trim_start().strip_prefix(OPEN) else {
        return Parted {
            reasoning: None,
            content: text.to_owned(),
        };
    };
    let (reasoning, content) = rest.split_once(CLOSE).unwrap_or((rest, ""));
    let content = content.trim_start();
    Parted {
        reasoning: Some(reasoning.trim().to_owned()).filter(|reasoning| !reasoning.is_empty()),
        content: content.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasoning_is_parted_from_the_answer() {
        let parted = part("<think>\nhm\n</think>\n\nfour");
        assert_eq!(
            (parted.reasoning.as_deref(), parted.content.as_str()),
            (Some("hm"), "four")
        );
        assert_eq!(part("four").content, "four");
        assert_eq!(part("<think>\nhm").reasoning.as_deref(), Some("hm"));
    }
}
