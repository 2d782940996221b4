//! The agents' side of a rollout: what runs in an agent pod around the user's code.
//!
//! ```text
//!  router  <---- HTTP ----  launcher  <---- launcher.sock ----  shim  <---- standard input ----  host.py: many sessions
//!                           (claim token)                           \---- one process per session (a command)
//! ```
//!
//! - [`launcher`] claims sessions from the router, keeps their heartbeats and deadlines, relays aborts and posts results. It holds the
//!   pod's claim token and runs no user code.
//! - [`shim`] runs the user's code: a command per session, or the Python host for an agent function. It knows its sessions and nothing
//!   else, and kills every process that a session leaves behind.
//! - [`install`] puts this program into a volume, for the container with the agent's image.
//! - [`plugins`] runs the Python host as the driver's plug-in host.
//!
//! The wire is `docs/protocol.md`, sections 2 to 4. A crash of either part is normal: a launcher that loses the shim reports its
//! sessions as infrastructure failures; a shim that loses the launcher ends its sessions.

mod echo;
pub mod install;
pub mod launcher;
pub mod plugins;
mod private;
mod python;
pub mod shim;
mod socket;
pub mod wire;
