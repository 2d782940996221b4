//! Whether two texts are the same Kubernetes quantity: the API server writes `1000m` as `1`, and `1024Mi` as `1Gi`.

use serde_json::Value;

/// Fields below which values are quantities.
const HOLDERS: [&str; 7] = [
    "capacity",
    "divisor",
    "hard",
    "limits",
    "requests",
    "sizeLimit",
    "storage",
];

/// Whether what is below a field is measured in quantities.
pub(super) fn holds(field: &str) -> bool {
    HOLDERS.contains(&field)
}

/// Whether both are the same amount.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (amount(left), amount(right)) {
        (Some(left), Some(right)) => left == right,
        _ => false,
    }
}

/// An amount as mantissa and powers of two and ten, reduced.
#[derive(Debug, PartialEq)]
struct Amount {
    mantissa: i128,
    tens: i32,
}

fn amount(value: &Value) -> Option<Amount> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (mantissa, decimals) = decimal(number)?;
    let (factor, tens) = scale(suffix)?;
    let mut amount = Amount {
        mantissa: mantissa.checked_mul(factor)?,
        tens: tens - decimals,
    };
    if amount.mantissa == 0 {
        amount.tens = 0;
    }
    while amount.mantissa != 0 && amount.mantissa % 10 == 0 {
        amount.mantissa /= 10;
        amount.tens += 1;
    }
    Some(amount)
}

fn decimal(number: &str) -> Option<(i128, i32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 18 || fraction.contains(['+', '-']) {
        return None;
    }
    let mantissa = format!("{whole}{fraction}").parse().ok()?;
    Some((mantissa, i32::try_from(fraction.len()).ok()?))
}

fn scale(suffix: &str) -> Option<(i128, i32)> {
    let binary = |power: u32| Some((1_i128 << (10 * power), 0));
    match suffix {
        "" => Some((1, 0)),
        "n" => Some((1, -9)),
        "u" => Some((1, -6)),
        "m" => Some((1, -3)),
        "k" => Some((1, 3)),
        "M" => Some((1, 6)),
        "G" => Some((1, 9)),
        "T" => Some((1, 12)),
        "P" => Some((1, 15)),
        "E" => Some((1, 18)),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        exponent => {
            let power = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((1, power))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_compared_and_not_texts() {
        for (left, right) in [
            (json!("1000m"), json!("1")),
            (json!(0.5), json!("500m")),
            (json!("1024Mi"), json!("1Gi")),
            (json!(2), json!("2")),
            (json!("0"), json!("0Gi")),
            (json!("1e3"), json!("1k")),
            (json!("1.5Gi"), json!("1536Mi")),
            (json!("+1"), json!("1")),
        ] {
            assert!(same(&left, &right), "{left} {right}");
        }
        for (left, right) in [
            (json!("1G"), json!("1Gi")),
            (json!("100m"), json!("1")),
            (json!("x"), json!("x")),
            (json!(""), json!("0")),
            (json!(true), json!("1")),
            (json!("1.1.1"), json!("1.11")),
        ] {
            assert!(!same(&left, &right), "{left} {right}");
        }
    }
}
