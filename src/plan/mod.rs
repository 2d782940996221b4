//! What is decided about an object: pure. What was observed, what is wanted and the time go in; conditions and status come out.

pub mod conditions;
pub mod job;
pub mod pool;
