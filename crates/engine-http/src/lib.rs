//! HTTP towards engines, plain or encrypted.
//!
//! **Purpose.** Connections to `http://` and `https://` addresses of engines ([`Connector`]), and single questions over them ([`Asker`]). The
//! driver fetches data sets over the same connections.
//!
//! **Guarantees.** A connection has its deadline, the handshake included. A certificate is checked against its host and against the CAs that are
//! trusted ([`Trust`]), always: there is no switch. What is wrong with it is said in words that a person can act on, and that do not change from
//! one try to the next. The plain path is a `TcpStream` behind one `match`.
//!
//! **Caveats.** HTTP/1.1 only, which is what SGLang's server speaks. No client certificates, no proxies. Who has another text of
//! a CA says so ([`Trust::renew`]).

mod ask;
mod connector;
mod stream;
mod trust;
mod words;

pub use ask::{Asker, Problem, Question};
pub use connector::{ConnectError, Connector};
pub use stream::Stream;
pub use trust::{Trust, TrustError};
pub use words::UNKNOWN_CA;
