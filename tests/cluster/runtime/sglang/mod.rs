//! A real SGLang on the CPU as the engine of a pool.
//!
//! `tests/sglang/install.sh` has installed it. The engine's image is empty: `engine.template` mounts the machine's own libraries, its Python and
//! the installation where they are. An engine takes 2.2 GB and about 40 s to start, so that the jobs share one.

mod engine;
mod jobs;
mod sources;
