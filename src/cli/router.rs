//! `rollout-operator router`.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use rollout_router::{Config, Listeners, Router};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::engine_ca::CaFile;

/// How long a Service still sends clients to a router that leaves.
const QUIET: Duration = Duration::from_secs(5);

/// Runs the session router in front of the engines of one pool.
///
/// Prints one line of JSON, `{"agents_url": "...", "control_url": "..."}`, once it listens.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// YAML file with the same settings as the flags (`engines`, `agentsListen`, ...). A flag wins.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    settings: Settings,

    /// Stop when standard input is closed, so that the router does not outlive whoever started it.
    #[arg(long)]
    exit_with_stdin: bool,
}

/// Settings, from flags or from the file.
#[derive(Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Settings {
    /// Base URL of an engine, such as `http://10.0.0.7:30000`. Can be given several times.
    #[arg(long = "engine", value_name = "URL", num_args = 1..)]
    engines: Vec<String>,

    /// Service behind which engines are, such as `qwen-engines.rl.svc.cluster.local.:30000`: every address of the name is one. It is looked
    /// up every 2 s; an engine whose address is gone gets nothing new and ends what it has.
    #[arg(long, value_name = "HOST:PORT")]
    engine_service: Option<String>,

    /// Port of the sidecar beside each engine of that service: it says which ones are paused or about to leave.
    #[arg(long, value_name = "PORT")]
    engine_state_port: Option<NonZero<u16>>,

    /// Address of the agents' port [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDRESS")]
    agents_listen: Option<SocketAddr>,

    /// Address of the control port; without a control token it must be a loopback address [default: 127.0.0.1:0].
    #[arg(long, value_name = "ADDRESS")]
    control_listen: Option<SocketAddr>,

    /// File with the bearer token of the control port.
    #[arg(long, value_name = "FILE")]
    control_token_file: Option<PathBuf>,

    /// File with the secret that the claim tokens of agent pods are derived from.
    #[arg(long, value_name = "FILE")]
    claim_secret_file: Option<PathBuf>,

    /// File with the bearer token that the engines want.
    #[arg(long, value_name = "FILE")]
    engine_key_file: Option<PathBuf>,

    /// File with the CAs that may vouch for engines behind https, as PEM text; read again when it changes [default: those that browsers
    /// trust].
    #[arg(long, value_name = "FILE")]
    engine_ca_file: Option<PathBuf>,

    /// What agents put before `/sessions/<id>` [default: the address of the agents' port].
    #[arg(long, value_name = "URL")]
    advertise_url: Option<String>,

    /// Job of the sessions that name none.
    #[arg(long, value_name = "NAME")]
    job: Option<String>,

    /// Accept chat requests only with the session's token.
    #[arg(long)]
    require_session_token: bool,

    /// Most live sessions.
    #[arg(long, value_name = "COUNT")]
    max_sessions: Option<usize>,

    /// Most turns of a session.
    #[arg(long, value_name = "COUNT")]
    max_turns: Option<usize>,

    /// Turns in a row that engines may fail before their session ends as an infrastructure failure [default: 16].
    #[arg(long, value_name = "COUNT")]
    engine_faults: Option<NonZero<usize>>,

    /// Most bytes of a session's records.
    #[arg(long, value_name = "BYTES")]
    max_session_bytes: Option<usize>,

    /// Most bytes of all records.
    #[arg(long, value_name = "BYTES")]
    max_total_bytes: Option<usize>,

    /// Most bytes of a request.
    #[arg(long, value_name = "BYTES")]
    max_body_bytes: Option<usize>,

    /// Seconds without a request after which a session is removed.
    #[arg(long, value_name = "SECONDS")]
    session_idle_seconds: Option<u64>,

    /// Seconds between two heartbeats of a launcher; three missed ones end its sessions.
    #[arg(long, value_name = "SECONDS")]
    heartbeat_seconds: Option<u64>,

    /// Seconds until the first byte of an engine's answer [default: no limit].
    #[arg(long, value_name = "SECONDS")]
    first_byte_seconds: Option<u64>,

    /// Seconds after which an engine that has work and answers no probe is given up, with the requests that it has [default: 60].
    #[arg(long, value_name = "SECONDS")]
    engine_silence_seconds: Option<NonZero<u64>>,

    /// Seconds in which a router that gets SIGTERM goes on, until nothing is in flight, while others stay in front of the same engines
    /// [default: 0].
    #[arg(long, value_name = "SECONDS")]
    leave_seconds: Option<u64>,

    /// Seconds in which everything is ended and answered when the router is told to stop [default: 10].
    #[arg(long, value_name = "SECONDS")]
    shutdown_seconds: Option<u64>,
}

impl Settings {
    fn or(self, file: Self) -> Self {
        Self {
            engines: if self.engines.is_empty() {
                file.engines
            } else {
                self.engines
            },
            engine_service: self.engine_service.or(file.engine_service),
            engine_state_port: self.engine_state_port.or(file.engine_state_port),
            agents_listen: self.agents_listen.or(file.agents_listen),
            control_listen: self.control_listen.or(file.control_listen),
            control_token_file: self.control_token_file.or(file.control_token_file),
            claim_secret_file: self.claim_secret_file.or(file.claim_secret_file),
            engine_key_file: self.engine_key_file.or(file.engine_key_file),
            engine_ca_file: self.engine_ca_file.or(file.engine_ca_file),
            advertise_url: self.advertise_url.or(file.advertise_url),
            job: self.job.or(file.job),
            require_session_token: self.require_session_token || file.require_session_token,
            max_sessions: self.max_sessions.or(file.max_sessions),
            max_turns: self.max_turns.or(file.max_turns),
            engine_faults: self.engine_faults.or(file.engine_faults),
            max_session_bytes: self.max_session_bytes.or(file.max_session_bytes),
            max_total_bytes: self.max_total_bytes.or(file.max_total_bytes),
            max_body_bytes: self.max_body_bytes.or(file.max_body_bytes),
            session_idle_seconds: self.session_idle_seconds.or(file.session_idle_seconds),
            heartbeat_seconds: self.heartbeat_seconds.or(file.heartbeat_seconds),
            first_byte_seconds: self.first_byte_seconds.or(file.first_byte_seconds),
            engine_silence_seconds: self.engine_silence_seconds.or(file.engine_silence_seconds),
            leave_seconds: self.leave_seconds.or(file.leave_seconds),
            shutdown_seconds: self.shutdown_seconds.or(file.shutdown_seconds),
        }
    }

    /// The settings of the router, and the file of CAs that it is to follow.
    fn to_config(&self) -> anyhow::Result<(Config, Option<CaFile>)> {
        let mut config = Config::new(&self.engines);
        let service = self.engine_service.as_deref();
        config.engine_service = service.map(str::parse).transpose()?;
        config.engine_state_port = self.engine_state_port.map(NonZero::get);
        let secret = |file: &Option<PathBuf>| file.as_deref().map(read_secret).transpose();
        config.control_token = secret(&self.control_token_file)?;
        config.claim_secret = secret(&self.claim_secret_file)?;
        config.engine_key = secret(&self.engine_key_file)?;
        let ca = self
            .engine_ca_file
            .as_deref()
            .map(CaFile::open)
            .transpose()?;
        if let Some(ca) = &ca {
            config.engine_trust = ca.trust();
        }
        config.advertise_url.clone_from(&self.advertise_url);
        config.job.clone_from(&self.job);
        config.require_session_token = self.require_session_token;
        let limits = &mut config.limits;
        set(&mut limits.sessions, self.max_sessions);
        set(&mut limits.turns, self.max_turns);
        set(
            &mut limits.engine_faults,
            self.engine_faults.map(NonZero::get),
        );
        set(&mut limits.session_bytes, self.max_session_bytes);
        set(&mut limits.total_bytes, self.max_total_bytes);
        set(&mut limits.body_bytes, self.max_body_bytes);
        let seconds = |count: Option<u64>| count.map(std::time::Duration::from_secs);
        let times = &mut config.times;
        set(&mut times.session_idle, seconds(self.session_idle_seconds));
        set(&mut times.heartbeat, seconds(self.heartbeat_seconds));
        set(&mut times.shutdown, seconds(self.shutdown_seconds));
        set(
            &mut times.engine_silence,
            seconds(self.engine_silence_seconds.map(NonZero::get)),
        );
        times.first_byte = seconds(self.first_byte_seconds);
        Ok((config, ca))
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn read_secret(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the secret in {}", file.display()))?;
    let secret = text.trim().to_owned();
    anyhow::ensure!(!secret.is_empty(), "{} is empty", file.display());
    Ok(secret)
}

/// Runs the sub-command.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let settings = match &args.config {
        None => args.settings,
        Some(file) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let file_settings: Settings = serde_yaml::from_str(&text)
                .with_context(|| format!("{} is not a router configuration", file.display()))?;
            args.settings.or(file_settings)
        }
    };
    let (config, ca) = settings.to_config()?;
    let router = Router::new(config)?;
    let listeners = Listeners {
        agents: bind(settings.agents_listen).await?,
        control: bind(settings.control_listen).await?,
    };
    router.check(&listeners)?;
    let agents = listeners.agents.local_addr()?;
    let control = listeners.control.local_addr()?;
    announce(agents, control)?;
    let cancel = CancellationToken::new();
    let leave = Duration::from_secs(settings.leave_seconds.unwrap_or_default());
    tokio::select! {
        served = router.serve(listeners, cancel.clone()) => served?,
        () = stop(args.exit_with_stdin, leave, &router, &cancel) => {}
        () = follow(ca) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Never ends.
async fn follow(ca: Option<CaFile>) {
    match ca {
        Some(ca) => ca.follow().await,
        None => std::future::pending().await,
    }
}

async fn bind(address: Option<SocketAddr>) -> anyhow::Result<TcpListener> {
    let address = address.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)));
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
}

fn announce(agents: SocketAddr, control: SocketAddr) -> anyhow::Result<()> {
    let line = serde_json::json!({
        "agents_url": format!("http://{agents}"),
        "control_url": format!("http://{control}"),
    });
    super::data::line(line)
}

/// Cancels when somebody asks for it. Never ends by itself: the server ends.
async fn stop(with_stdin: bool, leave: Duration, router: &Router, cancel: &CancellationToken) {
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    let stdin_closed = async {
        if !with_stdin {
            std::future::pending::<()>().await;
        }
        // A thread, because a read of the terminal cannot be cancelled and would hold up the end of the runtime.
        let (closed, wait) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            drop(closed);
        });
        let _ = wait.await;
    };
    tokio::select! {
        () = terminate => router.leave(QUIET.min(leave), leave).await,
        _ = tokio::signal::ctrl_c() => {}
        () = stdin_closed => {}
    }
    tracing::info!("stopping");
    cancel.cancel();
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn service(settings: &str) -> Result<String, String> {
        let settings: Settings = serde_yaml::from_str(settings).unwrap();
        let (config, _) = settings.to_config().map_err(|error| error.to_string())?;
        Ok(config.engine_service.unwrap().to_string())
    }

    #[test]
    fn engines_are_found_by_the_name_in_the_file() {
        let name = "qwen-engines.rl.svc.cluster.local.:30000";
        assert_eq!(service(&format!("engineService: {name}")).unwrap(), name);
        let wrong = service("engineService: http://engines:30000").unwrap_err();
        assert!(wrong.contains("write HOST:PORT"), "{wrong}");
    }

    #[test]
    fn a_file_that_is_no_ca_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let settings = |path: &std::path::Path| Settings {
            engines: vec!["https://engine".to_owned()],
            engine_ca_file: Some(path.to_owned()),
            ..Settings::default()
        };
        let told =
            |path: &std::path::Path| format!("{:#}", settings(path).to_config().unwrap_err());
        let empty = told(file.path());
        assert!(
            empty.contains("is no CA: there is no certificate in it"),
            "{empty}"
        );
        let gone = told(std::path::Path::new("/no/such/file"));
        assert!(
            gone.starts_with("cannot read the CA in /no/such/file"),
            "{gone}"
        );
    }

    #[test]
    fn the_flag_wins_over_the_file() {
        let of = |name: &str| Settings {
            engine_service: Some(name.to_owned()),
            ..Settings::default()
        };
        let settings = of("flag:1").or(of("file:1"));
        assert_eq!(settings.engine_service.as_deref(), Some("flag:1"));
        let settings = Settings::default().or(of("file:1"));
        assert_eq!(settings.engine_service.as_deref(), Some("file:1"));
    }
}
