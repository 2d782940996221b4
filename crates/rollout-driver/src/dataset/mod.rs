//! Prompt data sets.
