//! Numbers that look random and are not: hashes of what they belong to.
//!
//! Draws are addressed, not streamed: the draw for token 17 of a reply needs no earlier draw, so a reply in flight stores its seed
//! and not its tokens.

/// The finalizer of splitmix64: every input bit changes every output bit.
pub(crate) fn scramble(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Combines two numbers; the order matters.
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    scramble(a ^ scramble(b).rotate_left(23))
}

/// Hash of a token sequence.
pub(crate) fn of_tokens(tokens: &[u32]) -> u64 {
    tokens.iter().fold(tokens.len() as u64, |hash, token| {
        mix(hash, u64::from(*token))
    })
}

/// Hash of a text.
pub(crate) fn of_text(text: &str) -> u64 {
    text.as_bytes()
        .chunks(8)
        .fold(text.len() as u64, |hash, chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            mix(hash, u64::from_le_bytes(word))
        })
}

/// A number in `[0, 1)`.
pub(crate) fn unit(hash: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    let bits = (hash >> 11) as f64;
    bits / 9_007_199_254_740_992.0
}

/// An index below `bound`, which must not be 0.
pub(crate) fn below(hash: u64, bound: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder is below a usize"
    )]
    let index = (hash % bound.max(1) as u64) as usize;
    index
}

/// A draw of the standard normal distribution (Box and Muller).
pub(crate) fn normal(hash: u64) -> f64 {
    let radius = (-2.0 * (1.0 - unit(hash)).ln()).sqrt();
    radius * (std::f64::consts::TAU * unit(scramble(hash ^ 1))).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_spread_evenly() {
        let mut buckets = [0_u32; 10];
        for i in 0..10_000 {
            buckets[below(mix(7, i), 10)] += 1;
        }
        assert!(
            buckets.iter().all(|n| (900..1100).contains(n)),
            "{buckets:?}"
        );
    }

    #[test]
    fn order_and_length_matter() {
        assert_ne!(of_tokens(&[1, 2]), of_tokens(&[2, 1]));
        assert_ne!(of_tokens(&[0]), of_tokens(&[0, 0]));
        assert_ne!(of_text("ab"), of_text("ab\0"));
    }
}
