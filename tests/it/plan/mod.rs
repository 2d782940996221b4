//! What is decided about a job, from what was observed.

mod agents;
mod ends;
mod job;
mod progress;
mod report;
mod scene;
