//! Ids in their short form, for logs and messages.
//!
//! Whoever has a session's id has the session's rights, and more than its agent read logs. So a log has the first digits only: enough
//! to find the session, too few to use it.

use std::borrow::Cow;

/// Digits of the short form. The first four name the router's process, so eight tell its sessions apart; 80 random bits stay unsaid.
const SHORT: usize = 12;

/// From this length on a run of hexadecimal digits counts as an id or a token.
const LONG: usize = 32;

/// The first digits of an id.
pub fn short_id(id: &str) -> &str {
    id.get(..SHORT).unwrap_or(id)
}

/// A text in which every id and token of 32 hexadecimal digits or more is cut to its short form.
pub fn with_short_ids(text: &str) -> Cow<'_, str> {
    let mut short = String::new();
    let mut copied = 0;
    let mut start = None;
    for (position, byte) in text.bytes().chain([0]).enumerate() {
        if byte.is_ascii_hexdigit() {
            start.get_or_insert(position);
            continue;
        }
        if let Some(start) = start.take()
            && position - start >= LONG
        {
            short.push_str(&text[copied..start + SHORT]);
            copied = position;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    short.push_str(&text[copied..]);
    Cow::Owned(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "1a2b3c4d5e6f708192a3b4c5d6e7f809";

    #[test]
    fn an_id_is_cut_to_its_first_digits() {
        assert_eq!(short_id(ID), "1a2b3c4d5e6f");
        assert_eq!(short_id("job-1"), "job-1");
        assert_eq!(short_id("äääääää"), "äääääää".get(..12).unwrap());
    }

    #[test]
    fn ids_and_tokens_are_cut_wherever_they_stand() {
        let token = ID.repeat(2);
        for (text, expected) in [
            (
                format!("http://h/sessions/{ID}/v1: ä {ID}"),
                "http://h/sessions/1a2b3c4d5e6f/v1: ä 1a2b3c4d5e6f",
            ),
            (format!("job/0/1/{token} and"), "job/0/1/1a2b3c4d5e6f and"),
            (ID.to_uppercase(), "1A2B3C4D5E6F"),
        ] {
            assert_eq!(with_short_ids(&text), expected);
        }
    }

    #[test]
    fn other_texts_stay_as_they_are() {
        for text in ["", "a", "7f3a", &ID[1..], "no id: 0123-4567-89ab-cdef"] {
            assert!(matches!(with_short_ids(text), Cow::Borrowed(same) if same == text));
        }
    }
}
