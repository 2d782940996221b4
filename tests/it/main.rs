//! Integration tests of the whole package, one module per area.

#[cfg(test)]
mod api;
mod layers;
#[cfg(test)]
mod samples;
