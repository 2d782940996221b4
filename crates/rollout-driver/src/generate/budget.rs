//! How many tokens a request may still generate. Pure.

/// The budget of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// No limit of ours: the engine's default.
    Unlimited,
    /// At most this many new tokens.
    Tokens(i64),
    /// Nothing is left: no request is made.
    Spent,
}

/// The smaller of what `max_new_tokens` leaves after `generated` tokens and what the context leaves after `input` tokens (prompt and
/// generated ones), as Miles counts it.
pub fn remaining(
    max_new_tokens: Option<i64>,
    max_context: Option<i64>,
    input: Option<i64>,
    generated: i64,
) -> Budget {
    let by_length = max_new_tokens.map(|limit| limit - generated);
    let by_context = max_context
        .zip(input)
        .map(|(context, input)| context - input);
    match (by_length, by_context) {
        (None, None) => Budget::Unlimited,
        (Some(left), None) | (None, Some(left)) => limited(left),
        (Some(a), Some(b)) => limited(a.min(b)),
    }
}

fn limited(left: i64) -> Budget {
    if left > 0 {
        Budget::Tokens(left)
    } else {
        Budget::Spent
    }
}
