//! Defaults that serde and the schema share.

/// A default of an `int32` field.
pub(crate) fn int<const N: i32>() -> i32 {
    N
}

/// A default of an `int64` field.
pub(crate) fn long<const N: i64>() -> i64 {
    N
}

/// The default of a switch that is on.
pub(crate) fn yes() -> bool {
    true
}
