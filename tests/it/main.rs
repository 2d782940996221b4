//! Integration tests of the whole package, one module per area.

mod api;
mod layers;
#[cfg(test)]
mod samples;
