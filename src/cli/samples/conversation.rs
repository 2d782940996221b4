//! From the pieces of a sample's text to who said what. Pure.
//!
//! Chat templates in the ChatML family wrap each message in `<|im_start|>role\n` and `<|im_end|>`; a text without these marks is one
//! block. Only what is not trained loses its marks: a trained `<|im_end|>` is what the model learns to stop with, so it stays visible.

const START: &str = "<|im_start|>";
const END: &str = "<|im_end|>";
const TOOL_ANSWER: &str = "<tool_response>";

/// A stretch of text whose tokens are all trained, or all not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) trained: bool,
}

/// What one role said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// `None` where the template does not say.
    pub(super) role: Option<String>,
    pub(super) pieces: Vec<Piece>,
}

/// Splits pieces into blocks.
pub(super) fn blocks(pieces: &[Piece]) -> Vec<Block> {
    let mut blocks = vec![Block {
        role: None,
        pieces: Vec::new(),
    }];
    for piece in pieces {
        if piece.trained {
            push(&mut blocks, piece.text.clone(), true);
        } else {
            split_context(&mut blocks, &piece.text);
        }
    }
    blocks.retain(|block| {
        block
            .pieces
            .iter()
            .any(|piece| !piece.text.trim().is_empty())
    });
    for block in &mut blocks {
        name_tool_answers(block);
    }
    blocks
}

/// Text between generations: message marks become blocks.
fn split_context(blocks: &mut Vec<Block>, text: &str) {
    let mut parts = text.split(START);
    if let Some(before) = parts.next() {
        push(
            blocks,
            before.replace(&format!("{END}\n"), "").replace(END, ""),
            false,
        );
    }
    for part in parts {
        let (role, said) = part.split_once('\n').unwrap_or((part, ""));
        blocks.push(Block {
            role: Some(role.to_owned()),
            pieces: Vec::new(),
        });
        push(
            blocks,
            said.replace(&format!("{END}\n"), "").replace(END, ""),
            false,
        );
    }
}

fn push(blocks: &mut [Block], text: String, trained: bool) {
    if let Some(block) = blocks.last_mut()
        && !text.is_empty()
    {
        block.pieces.push(Piece { text, trained });
    }
}

/// Templates give tool answers the role of the user.
fn name_tool_answers(block: &mut Block) {
    if block
        .pieces
        .first()
        .is_some_and(|piece| !piece.trained && piece.text.trim_start().starts_with(TOOL_ANSWER))
    {
        block.role = Some("tool".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(text: &str, trained: bool) -> Piece {
        Piece {
            text: text.into(),
            trained,
        }
    }

    fn shown(pieces: &[Piece]) -> Vec<String> {
        let text = |block: &Block| {
            let marked = |piece: &Piece| {
                if piece.trained {
                    format!("[{}]", piece.text)
                } else {
                    piece.text.clone()
                }
            };
            let said: String = block.pieces.iter().map(marked).collect();
            format!("{}: {said}", block.role.as_deref().unwrap_or("-"))
        };
        blocks(pieces).iter().map(text).collect()
    }

    #[test]
    fn chatml_is_split_by_role() {
        let pieces = [
            piece(
                "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n",
                false,
            ),
            piece("<tool_call>add</tool_call><|im_end|>", true),
            piece(
                "\n<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
                false,
            ),
            piece("\\boxed{4}<|im_end|>", true),
        ];
        assert_eq!(
            shown(&pieces),
            [
                "system: Be short.",
                "user: 2+2?",
                "assistant: [<tool_call>add</tool_call><|im_end|>]\n",
                "tool: <tool_response>\n4\n</tool_response>",
                "assistant: [\\boxed{4}<|im_end|>]",
            ]
        );
    }

    #[test]
    fn other_texts_are_one_block() {
        assert_eq!(
            shown(&[piece("What is 2+2? ", false), piece("4", true)]),
            ["-: What is 2+2? [4]"]
        );
        assert!(shown(&[piece("\n", false)]).is_empty());
    }
}
