//! The bytes that one token stands for.

/// How the model's vocabulary writes bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// GPT-2's: every byte is one printable character.
    ByteLevel,
    /// SentencePiece's: text with `▁` for a space, and `<0x0A>` for a byte that has no token.
    Metaspace,
    /// The text itself.
    Plain,
}

impl Spelling {
    /// Told by the decoder that the tokenizer has.
    pub(crate) fn of_decoder(decoder: &str) -> Self {
        if decoder.contains("ByteLevel") {
            Self::ByteLevel
        } else if decoder.contains("ByteFallback") || decoder.contains('▁') {
            Self::Metaspace
        } else {
            Self::Plain
        }
    }

    /// The bytes of a token of the model's vocabulary.
    pub(crate) fn bytes(self, token: &str) -> Vec<u8> {
        match self {
            Self::ByteLevel => token
                .chars()
                .flat_map(|character| match byte_of(character) {
                    Some(byte) => vec![byte],
                    None => character.to_string().into_bytes(),
                })
                .collect(),
            Self::Metaspace => match fallback_byte(token) {
                Some(byte) => vec![byte],
                None => token.replace('▁', " ").into_bytes(),
            },
            Self::Plain => token.as_bytes().to_vec(),
        }
    }
}

fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that a character of the byte-level alphabet stands for.
///
/// Printable Latin-1 characters stand for themselves; the other bytes follow in order from U+0100 on.
fn byte_of(character: char) -> Option<u8> {
    let code = u32::from(character);
    if let Ok(byte) = u8::try_from(code) {
        return is_printable(byte).then_some(byte);
    }
    // The gaps in the printable ones: 0x00 to 0x20, 0x7f to 0xa0, and 0xad.
    match code.checked_sub(0x100)? {
        rank @ 0..33 => u8::try_from(rank).ok(),
        rank @ 33..67 => u8::try_from(rank - 33 + 0x7f).ok(),
        67 => Some(0xad),
        _ => None,
    }
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}
