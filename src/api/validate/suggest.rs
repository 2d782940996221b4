//! "Did you mean".

/// The candidate that is the written name but for its case, its separators or a plural.
pub(super) fn same<'a>(written: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| {
        let text: String = text
            .chars()
            .filter(|c| !"_-".contains(*c))
            .flat_map(char::to_lowercase)
            .collect();
        text.strip_suffix('s').map(str::to_owned).unwrap_or(text)
    };
    let written = plain(written);
    candidates
        .iter()
        .copied()
        .find(|candidate| plain(candidate) == written)
}

/// The candidate that a person most likely meant, if one is close.
pub(super) fn closest<'a>(
    written: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let written = written.replace(['_', '-'], "").to_lowercase();
    let allowed = written.chars().count().div_ceil(3).clamp(1, 3);
    let apart = |candidate: &str| {
        let candidate = candidate.to_lowercase();
        // The beginning of a longer name is that name: secret, secretRef.
        if written.len() >= 4 && candidate.starts_with(&written) {
            return 1;
        }
        distance(&written, &candidate)
    };
    candidates
        .map(|candidate| (apart(candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours from one text to the other.
fn distance(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut rows = [
        vec![0; right.len() + 1],
        (0..=right.len()).collect(),
        vec![0; right.len() + 1],
    ];
    for (i, a) in left.iter().enumerate() {
        rows[2][0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let replaced = rows[1][j] + usize::from(a != b);
            let mut best = replaced.min(rows[1][j + 1] + 1).min(rows[2][j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[0][j - 1] + 1);
            }
            rows[2][j + 1] = best;
        }
        rows.rotate_left(1);
    }
    rows[1][right.len()]
}
