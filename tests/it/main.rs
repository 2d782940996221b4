//! Integration tests of the whole package, one module per area.

mod layers;
