//! `rollout-operator simulate-engine`: one simulated engine on a socket.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use serde_json::json;
use sglang_simulator::{Config, FaultKind, Lengths, Oracle, Profile, Script, Simulator};
use tokio::{net::TcpListener, time::timeout};

/// How long requests in flight may take to end after SIGTERM.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs a simulated SGLang engine.
///
/// Prints one line of JSON, `{"url": "..."}`, once it listens. A flag wins over the same field of the configuration file.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Configuration: the `engine.simulator` object of a `SGLangPool`, with files in place of `ConfigMap`s.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    model: Model,
    /// Also end when standard input closes: then whoever started this is gone.
    #[arg(long)]
    exit_with_stdin: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
struct Server {
    /// Address to listen on [default: 127.0.0.1].
    #[arg(long)]
    host: Option<String>,
    /// Port to listen on; 0 takes any [default: 30000].
    #[arg(long)]
    port: Option<u16>,
    /// Path of the model, as `/model_info` shows it.
    #[arg(long)]
    model_path: Option<String>,
    /// Name of the model on the wire [default: the path].
    #[arg(long)]
    served_model_name: Option<String>,
    /// Directory with a `tokenizer.json` [default: a small one that is built in].
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Most tokens of prompt and answer.
    #[arg(long, value_name = "TOKENS")]
    context_length: Option<u32>,
    /// Weight version at the start.
    #[arg(long)]
    weight_version: Option<String>,
    /// Form of tool calls; `none` leaves them in the text [default: qwen25].
    #[arg(long, value_name = "NAME")]
    tool_call_parser: Option<String>,
    /// Form of reasoning: with any, `<think>` parts become `reasoning_content`.
    #[arg(long, value_name = "NAME")]
    reasoning_parser: Option<String>,
    /// Memory can be released; without it such a call ends the server, as the real one on the CPU.
    #[arg(long)]
    enable_memory_saver: bool,
    /// Wire of which SGLang: `stock` or `miles-fork`.
    #[arg(long, value_parser = profile)]
    profile: Option<Profile>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
struct Model {
    /// Seed of the replies.
    #[arg(long)]
    seed: Option<u64>,
    /// How much faster than real time.
    #[arg(long)]
    time_scale: Option<u32>,
    /// Prompt tokens per second.
    #[arg(long, value_name = "TOKENS")]
    prefill_tokens_per_second: Option<u32>,
    /// Tokens per second of one request alone.
    #[arg(long, value_name = "TOKENS")]
    decode_tokens_per_second: Option<u32>,
    /// How much every further running request lengthens a step.
    #[arg(long, value_name = "PERCENT")]
    decode_slowdown_percent: Option<u32>,
    /// Most requests that run at once; the rest waits.
    #[arg(long, value_name = "COUNT")]
    max_running_requests: Option<u32>,
    /// Most requests that wait; 0: no limit.
    #[arg(long, value_name = "COUNT")]
    max_queued_requests: Option<u32>,
    /// Tokens of the prefix cache.
    #[arg(long, value_name = "TOKENS")]
    kv_cache_tokens: Option<u32>,
    /// Answer this data set's prompts (JSONL with `prompt` and `label`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["script", "lengths"])]
    oracle: Option<PathBuf>,
    /// How often the oracle is right.
    #[arg(long, value_name = "PERCENT", requires = "oracle")]
    correct_percent: Option<u32>,
    /// Key of the prompt in the data set.
    #[arg(long, value_name = "KEY", requires = "oracle")]
    prompt_key: Option<String>,
    /// Key of the label in the data set.
    #[arg(long, value_name = "KEY", requires = "oracle")]
    label_key: Option<String>,
    /// Fewest words before the oracle's answer.
    #[arg(long, value_name = "COUNT", requires = "oracle")]
    min_words: Option<u32>,
    /// Most words before the oracle's answer.
    #[arg(long, value_name = "COUNT", requires = "oracle")]
    max_words: Option<u32>,
    /// Answer by the rules of this YAML file.
    #[arg(long, value_name = "FILE", conflicts_with = "lengths")]
    script: Option<PathBuf>,
    /// Answer with random tokens of heavy-tailed lengths, of this median.
    #[arg(long, value_name = "TOKENS")]
    lengths: Option<u32>,
    /// Standard deviation of the logarithm of the lengths.
    #[arg(long, value_name = "PERCENT", requires = "lengths")]
    sigma_percent: Option<u32>,
    /// How many answers are stragglers.
    #[arg(long, value_name = "PERCENT", requires = "lengths")]
    tail_percent: Option<u32>,
    /// How many times longer a straggler is.
    #[arg(long, value_name = "TIMES", requires = "lengths")]
    tail_factor: Option<u32>,
    /// A fault, as `KIND` or `KIND@PATH`, on every request; repeat it for several. Shares and counts are for the configuration file.
    #[arg(long = "fault", value_name = "KIND[@PATH]", value_parser = fault)]
    faults: Vec<sglang_simulator::Fault>,
}

fn profile(text: &str) -> Result<Profile, String> {
    match text {
        "stock" | "Stock" => Ok(Profile::Stock),
        "miles-fork" | "MilesFork" => Ok(Profile::MilesFork),
        _ => Err("write stock or miles-fork".to_owned()),
    }
}

fn fault(text: &str) -> Result<sglang_simulator::Fault, String> {
    let (kind, path) = match text.split_once('@') {
        Some((kind, path)) => (kind, json!(path)),
        None => (text, json!(null)),
    };
    let kind: FaultKind = serde_json::from_value(json!(kind)).map_err(|error| error.to_string())?;
    let mut fault = json!({"kind": kind});
    if !path.is_null() {
        fault["path"] = path;
    }
    serde_json::from_value(fault).map_err(|error| error.to_string())
}

/// Runs the sub-command until SIGTERM; 1 when the simulated process died.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args {
        config,
        server,
        model,
        exit_with_stdin,
    } = args;
    let mut settings = match &config {
        None => Config::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            serde_yaml::from_str(&text).with_context(|| path.display().to_string())?
        }
    };
    server.overlay(&mut settings);
    model.overlay(&mut settings);
    let address = (settings.server.host.clone(), settings.server.port);
    let simulator = Simulator::new(settings)?;
    let listener = TcpListener::bind(&address)
        .await
        .with_context(|| format!("listen on {}:{}", address.0, address.1))?;
    let url = format!("http://{}", listener.local_addr()?);
    super::data::line(json!({ "url": url }))?;
    let stop = super::agent::stop_on_signal()?;
    if exit_with_stdin {
        super::agent::stop_with_stdin(&stop);
    }
    let serving = simulator.serve(listener, stop.clone());
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => ended?,
        () = stop.cancelled() => {
            if let Ok(ended) = timeout(DRAIN, &mut serving).await {
                ended?;
            }
        }
    }
    Ok(if simulator.is_dead() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

impl Server {
    fn overlay(self, config: &mut Config) {
        let Self {
            host,
            port,
            model_path,
            served_model_name,
            tokenizer,
            context_length,
            weight_version,
            tool_call_parser,
            reasoning_parser,
            enable_memory_saver,
            profile,
        } = self;
        let server = &mut config.server;
        set(&mut server.host, host);
        set(&mut server.port, port);
        set(&mut server.model_path, model_path);
        set(&mut server.context_length, context_length);
        set(&mut server.weight_version, weight_version);
        set(&mut config.profile, profile);
        server.served_model_name = served_model_name.or(server.served_model_name.take());
        server.tokenizer = tokenizer.or(server.tokenizer.take());
        server.tool_call_parser = tool_call_parser
            .or(server.tool_call_parser.take())
            .filter(|parser| parser != "none");
        server.reasoning_parser = reasoning_parser.or(server.reasoning_parser.take());
        server.memory_saver |= enable_memory_saver;
    }
}

impl Model {
    fn overlay(self, config: &mut Config) {
        set(&mut config.seed, self.seed);
        set(&mut config.time_scale, self.time_scale);
        set(
            &mut config.prefill_tokens_per_second,
            self.prefill_tokens_per_second,
        );
        set(
            &mut config.decode_tokens_per_second,
            self.decode_tokens_per_second,
        );
        set(
            &mut config.decode_slowdown_percent,
            self.decode_slowdown_percent,
        );
        set(&mut config.max_running_requests, self.max_running_requests);
        set(&mut config.max_queued_requests, self.max_queued_requests);
        set(&mut config.kv_cache_tokens, self.kv_cache_tokens);
        if let Some(path) = self.oracle {
            let mut oracle = Oracle::default();
            oracle.dataset.path = Some(path);
            set(&mut oracle.correct_percent, self.correct_percent);
            set(&mut oracle.dataset.prompt_key, self.prompt_key);
            set(&mut oracle.dataset.label_key, self.label_key);
            set(&mut oracle.words.min, self.min_words);
            set(&mut oracle.words.max, self.max_words);
            config.replies = sglang_simulator::Replies {
                oracle: Some(oracle),
                ..Default::default()
            };
        }
        if let Some(path) = self.script {
            let script = Script {
                path: Some(path),
                ..Script::default()
            };
            config.replies = sglang_simulator::Replies {
                script: Some(script),
                ..Default::default()
            };
        }
        if let Some(median_tokens) = self.lengths {
            let mut lengths = Lengths {
                median_tokens,
                ..Lengths::default()
            };
            set(&mut lengths.sigma_percent, self.sigma_percent);
            set(&mut lengths.tail_percent, self.tail_percent);
            set(&mut lengths.tail_factor, self.tail_factor);
            config.replies = sglang_simulator::Replies {
                lengths: Some(lengths),
                ..Default::default()
            };
        }
        config.faults.extend(self.faults);
    }
}
