//! `[a:b]`: the part of a data set that a job uses.

use std::str::FromStr;

/// Rows `start..end` of a data set, counted without blank lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    /// First row.
    pub start: u64,
    /// One past the last row; `None` is the end of the file.
    pub end: Option<u64>,
}

/// Why a text is not a slice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SliceError {
    /// Not of the form `[a:b]`.
    #[error(
        "`{0}` is not a slice: write [a:b] with row numbers from 0, for example [0:1000], [100:] or [:100]"
    )]
    Syntax(String),
    /// A bound counts from the end, as in Python.
    #[error("`{0}` counts from the end of the file: write the row number instead")]
    Negative(String),
    /// Nothing lies between the bounds.
    #[error("`{0}` holds no row: the end must be greater than the start")]
    Empty(String),
}

impl FromStr for Slice {
    type Err = SliceError;

    fn from_str(text: &str) -> Result<Self, SliceError> {
        let syntax = || SliceError::Syntax(text.to_owned());
        let inner = text
            .trim()
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or_else(syntax)?;
        let (start, end) = inner.split_once(':').ok_or_else(syntax)?;
        if start.trim().starts_with('-') || end.trim().starts_with('-') {
            return Err(SliceError::Negative(text.to_owned()));
        }
        let bound = |part: &str| match part.trim() {
            "" => Ok(None),
            digits => digits.parse::<u64>().map(Some).map_err(|_| syntax()),
        };
        let slice = Self {
            start: bound(start)?.unwrap_or(0),
            end: bound(end)?,
        };
        if slice.end.is_some_and(|end| end <= slice.start) {
            return Err(SliceError::Empty(text.to_owned()));
        }
        Ok(slice)
    }
}

impl std::fmt::Display for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.end {
            Some(end) => write!(f, "[{}:{end}]", self.start),
            None => write!(f, "[{}:]", self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<Slice>().expect_err("a bad slice").to_string()
    }

    #[test]
    fn either_side_may_be_empty() {
        let slice = |start, end| Slice { start, end };
        assert_eq!("[3:7]".parse(), Ok(slice(3, Some(7))));
        assert_eq!("[3:]".parse(), Ok(slice(3, None)));
        assert_eq!("[:7]".parse(), Ok(slice(0, Some(7))));
        assert_eq!("[:]".parse(), Ok(Slice::default()));
        assert_eq!(" [ 3 : 7 ] ".parse(), Ok(slice(3, Some(7))));
    }

    #[test]
    fn a_bad_slice_says_what_to_write() {
        insta::assert_snapshot!(refused("0:10"), @"`0:10` is not a slice: write [a:b] with row numbers from 0, for example [0:1000], [100:] or [:100]");
        insta::assert_snapshot!(refused("[a:b]"), @"`[a:b]` is not a slice: write [a:b] with row numbers from 0, for example [0:1000], [100:] or [:100]");
        insta::assert_snapshot!(refused("[-5:]"), @"`[-5:]` counts from the end of the file: write the row number instead");
        insta::assert_snapshot!(refused("[7:7]"), @"`[7:7]` holds no row: the end must be greater than the start");
    }
}
