//! Settings of a router.

use std::time::Duration;

use engine_http::Trust;

use crate::engines::{EngineService, Resolver};

/// Everything that a router is built from.
#[derive(Debug, Clone)]
pub struct Config {
    /// Base URLs of the engines, such as `http://10.0.0.7:30000`.
    pub engines: Vec<String>,
    /// A service whose addresses are engines too.
    pub engine_service: Option<EngineService>,
    /// How it is looked up.
    pub resolver: Resolver,
    /// Port of the sidecar beside each engine of the service; none: they have none.
    pub engine_state_port: Option<u16>,
    /// Bearer of the control port. Without it the control port must be a loopback address.
    pub control_token: Option<String>,
    /// Secret that claim tokens are derived from. Without it no claim is accepted.
    pub claim_secret: Option<String>,
    /// What agents put before `/sessions/<id>`. Defaults to the address of the agents' listener.
    pub advertise_url: Option<String>,
    /// Sessions that name no job belong to this one.
    pub job: Option<String>,
    /// Bearer that the engines want.
    pub engine_key: Option<String>,
    /// Who may vouch for engines behind https.
    pub engine_trust: Trust,
    /// Chat requests of a session must carry the session's token.
    pub require_session_token: bool,
    /// Bounds.
    pub limits: Limits,
    /// Deadlines and periods.
    pub times: Times,
}

impl Config {
    /// The defaults, in front of these engines.
    pub fn new(engines: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            engines: engines.into_iter().map(Into::into).collect(),
            engine_service: None,
            resolver: Resolver::system(),
            engine_state_port: None,
            control_token: None,
            claim_secret: None,
            advertise_url: None,
            job: None,
            engine_key: None,
            engine_trust: Trust::public(),
            require_session_token: false,
            limits: Limits::default(),
            times: Times::default(),
        }
    }
}

/// Bounds on what clients may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Live sessions.
    pub sessions: usize,
    /// Turns of a session.
    pub turns: usize,
    /// Turns in a row that engines may fail; then the session ends as an infrastructure failure.
    pub engine_faults: usize,
    /// Bytes of records of a session.
    pub session_bytes: usize,
    /// Bytes of records of all sessions.
    pub total_bytes: usize,
    /// Bytes of a request body.
    pub body_bytes: usize,
    /// Bytes of an engine's reply within a session.
    pub reply_bytes: usize,
    /// Bytes of a request's headers.
    pub header_bytes: usize,
    /// Open connections of a listener.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 20_000,
            turns: 1_024,
            engine_faults: 16,
            session_bytes: 512 << 20,
            total_bytes: 16 << 30,
            body_bytes: 64 << 20,
            reply_bytes: 256 << 20,
            header_bytes: 64 << 10,
            connections: 20_000,
        }
    }
}

/// Deadlines and periods.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// To send the headers of a request.
    pub header_read: Duration,
    /// To send the body of a request.
    pub body_read: Duration,
    /// To connect to an engine.
    pub connect: Duration,
    /// Until the first byte of an engine's answer; `None` waits as long as the client does.
    pub first_byte: Option<Duration>,
    /// Between two pieces of an engine's answer.
    pub idle_body: Duration,
    /// For one control call to an engine.
    pub control_call: Duration,
    /// For a call that goes to every engine, such as an update of the weights.
    pub every_engine: Duration,
    /// Between two abort calls for a request that has not ended.
    pub abort_repeat: Duration,
    /// For an aborted request of a client that is gone to end.
    pub orphan: Duration,
    /// A session without a request for so long ends.
    pub session_idle: Duration,
    /// Between two heartbeats of a claimed session; three missed ones end it.
    pub heartbeat: Duration,
    /// How long a session may outlive its deadline, which the launcher enforces.
    pub deadline_grace: Duration,
    /// How long a deleted session can be deleted again.
    pub tombstone: Duration,
    /// Between two comments in a stream that has nothing to say.
    pub keep_alive: Duration,
    /// Between two lookups of the engines' service.
    pub lookup: Duration,
    /// Between two health probes of an engine.
    pub probe: Duration,
    /// An engine that has work and answers no probe for so long is given up, with the requests that it has.
    pub engine_silence: Duration,
    /// For the engines to decode the texts of one collection.
    pub decode: Duration,
    /// For everything to end and to be answered after the router was told to stop.
    pub shutdown: Duration,
    /// How long a router that stops still listens, after the last call of a client that is connected.
    pub linger: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            header_read: seconds(30),
            body_read: seconds(60),
            connect: seconds(2),
            first_byte: None,
            idle_body: seconds(120),
            control_call: seconds(5),
            every_engine: seconds(600),
            abort_repeat: seconds(1),
            orphan: seconds(10),
            session_idle: seconds(3_600),
            heartbeat: seconds(10),
            deadline_grace: seconds(10),
            tombstone: seconds(300),
            keep_alive: seconds(5),
            lookup: seconds(2),
            probe: seconds(2),
            engine_silence: seconds(60),
            decode: seconds(10),
            shutdown: seconds(10),
            linger: Duration::from_millis(250),
        }
    }
}
