//! Launcher, shim and Python host as real processes, before a router of the test's own.

mod cancel;
mod command;
mod crash;
mod function;
mod hook;
mod pod;
mod process;
mod router;
