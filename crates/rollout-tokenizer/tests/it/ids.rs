//! Text to ids and back.

use std::sync::LazyLock;

use proptest::prelude::*;
use rollout_tokenizer::Tokenizer;

fn builtin() -> &'static Tokenizer {
    static BUILTIN: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::builtin().unwrap());
    &BUILTIN
}

#[test]
fn the_builtin_tokenizer_has_1024_ids_and_ends_at_im_end() {
    let tokenizer = builtin();
    assert_eq!(tokenizer.vocab_size(), 1024);
    assert_eq!(
        tokenizer.eos_ids(),
        [
            tokenizer.token_id("<|im_end|>").unwrap(),
            tokenizer.token_id("<|endoftext|>").unwrap()
        ]
    );
    let size: usize = Tokenizer::builtin_files()
        .iter()
        .map(|(_, text)| text.len())
        .sum();
    assert!(size < 100_000, "{size} bytes");
}

#[test]
fn the_text_of_a_special_token_becomes_its_id() {
    let tokenizer = builtin();
    let ids = tokenizer.encode("<|im_start|>user\nhi<|im_end|>").unwrap();
    assert_eq!(ids.first(), tokenizer.token_id("<|im_start|>").as_ref());
    assert_eq!(ids.last(), tokenizer.token_id("<|im_end|>").as_ref());
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "user\nhi");
    assert_eq!(
        tokenizer.decode(&ids, false).unwrap(),
        "<|im_start|>user\nhi<|im_end|>"
    );
}

#[test]
fn the_markup_of_thoughts_and_tools_survives_skipping_special_tokens() {
    let tokenizer = builtin();
    let text = "<think>\nso\n</think>\n\n<tool_call>\n{}\n</tool_call>";
    let ids = tokenizer.encode(text).unwrap();
    assert!(ids.contains(&tokenizer.token_id("<tool_call>").unwrap()));
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
}

#[test]
fn common_words_are_one_token_and_digits_are_single() {
    let tokenizer = builtin();
    assert_eq!(tokenizer.encode(" answer").unwrap().len(), 1);
    assert_eq!(tokenizer.encode("1024").unwrap().len(), 4);
}

#[test]
fn a_token_of_half_a_character_keeps_its_byte() {
    let tokenizer = builtin();
    let ids = tokenizer.encode("é").unwrap();
    assert_eq!(ids.len(), 2);
    let bytes: Vec<u8> = ids
        .iter()
        .flat_map(|id| tokenizer.token_bytes(*id).unwrap())
        .collect();
    assert_eq!(bytes, "é".as_bytes());
    assert_eq!(tokenizer.token_text(ids[0]).unwrap(), "\u{fffd}");
}

#[test]
fn every_byte_has_a_token() {
    let tokenizer = builtin();
    let mut bytes: Vec<u8> = (0..1024)
        .filter_map(|id| tokenizer.token_bytes(id))
        .filter(|bytes| bytes.len() == 1)
        .flatten()
        .collect();
    bytes.sort_unstable();
    assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<_>>());
}

#[test]
fn ids_outside_the_vocabulary_have_no_text() {
    let tokenizer = builtin();
    assert_eq!(tokenizer.token_text(1024), None);
    assert_eq!(tokenizer.token_bytes(u32::MAX), None);
    assert_eq!(tokenizer.decode(&[1024, u32::MAX], false).unwrap(), "");
}

proptest! {
    #[test]
    fn decode_gives_back_what_was_encoded(text in "(\\PC|\\s|<think>|<\\|im_end\\|>){0,60}") {
        let tokenizer = builtin();
        let ids = tokenizer.encode(&text).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids, false).unwrap(), text.as_str());
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id).unwrap()).collect();
        prop_assert_eq!(bytes, text.as_bytes());
    }
}
