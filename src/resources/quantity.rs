//! Half of a quantity.

/// Half of a whole number of bytes with a binary suffix or none; none for other quantities.
pub(super) fn half(text: &str) -> Option<String> {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
    let suffix = &text[digits.len()..];
    let rank = SUFFIXES.iter().position(|known| *known == suffix)?;
    let number: u64 = digits.parse().ok()?;
    if number.is_multiple_of(2) {
        return Some(format!("{}{suffix}", number / 2));
    }
    match rank.checked_sub(1) {
        Some(lower) => Some(format!("{}{}", number.checked_mul(512)?, SUFFIXES[lower])),
        None => Some((number / 2).to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::half;

    #[test]
    fn halves() {
        for (whole, expected) in [
            ("64Gi", Some("32Gi")),
            ("1Gi", Some("512Mi")),
            ("3Ki", Some("1536")),
            ("1001", Some("500")),
            ("500m", None),
            ("1.5Gi", None),
            ("2G", None),
            ("18446744073709551615Gi", None),
        ] {
            assert_eq!(half(whole).as_deref(), expected, "{whole}");
        }
    }
}
