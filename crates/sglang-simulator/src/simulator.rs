//! The simulator as a value.

use std::sync::Arc;

use axum::Router;
use parking_lot::Mutex;
use rollout_tokenizer::Tokenizer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::clock::SimClock;
use crate::config::{Config, Server};
use crate::engine::Engine;
use crate::engine::report::StateReport;
use crate::faults::{Fault, Faults};
use crate::http::{App, serve};
use crate::replies::Model;
use crate::scheduler::Limits;

/// Most prompt tokens that SGLang prefills in one batch (`--max-prefill-tokens`).
const MAX_PREFILL_TOKENS: usize = 16_384;

/// A simulated engine. Clones share it; it ends with the last one.
#[derive(Clone)]
pub struct Simulator {
    app: Arc<App>,
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator")
            .field("config", &self.app.config)
            .finish_non_exhaustive()
    }
}

impl Simulator {
    /// Builds a simulator. Files (tokenizer, data set, script) are read here. Needs no runtime; the first request does.
    ///
    /// # Errors
    /// The configuration is out of its bounds, or a file cannot be read or understood.
    pub fn new(config: Config) -> Result<Self, Error> {
        config.validate()?;
        let tokenizer = Arc::new(load_tokenizer(&config.server)?);
        let model = Model::new(config.seed, &config.replies, tokenizer.clone())?;
        let limits = Limits {
            prefill_tokens_per_second: config.prefill_tokens_per_second,
            decode_tokens_per_second: config.decode_tokens_per_second,
            slowdown_percent: config.decode_slowdown_percent,
            max_running: config.max_running_requests as usize,
            max_queued: config.max_queued_requests as usize,
            kv_tokens: config.kv_cache_tokens as usize,
            max_prefill_tokens: MAX_PREFILL_TOKENS,
        };
        let server = &config.server;
        let name = server
            .served_model_name
            .as_ref()
            .unwrap_or(&server.model_path);
        let clock = SimClock::new(config.time_scale);
        let engine = Engine::new(
            clock,
            limits,
            &server.weight_version,
            &server.model_path,
            name,
        );
        // models pad their vocabulary
        let vocab_size = tokenizer.vocab_size().next_multiple_of(64);
        let faults = Mutex::new(Faults::new(config.seed, config.faults.clone()));
        let app = App {
            engine: Arc::new(engine),
            model,
            tokenizer,
            vocab_size,
            faults,
            activity: Arc::default(),
            config,
        };
        Ok(Self { app: Arc::new(app) })
    }

    /// The routes, to be called without a socket or mounted somewhere. A lost client is a dropped call.
    pub fn router(&self) -> Router {
        let app = self.app.clone();
        Router::new()
            .fallback(move |request: axum::extract::Request| serve::call(app.clone(), request))
    }

    /// Serves a socket. After `cancel`, health says no, and the call returns when no request is in flight, as after SIGTERM; a
    /// paused engine never comes to that. When the simulated process dies it returns at once, every connection being closed.
    ///
    /// # Errors
    /// The socket failed.
    pub async fn serve(
        &self,
        listener: TcpListener,
        cancel: CancellationToken,
    ) -> Result<(), Error> {
        serve::serve(self.app.clone(), listener, cancel)
            .await
            .map_err(Error::Serve)
    }

    /// The death of the process: connections close without an answer, [`Simulator::serve`] returns.
    pub fn kill(&self) {
        self.app.engine.die("it was killed");
    }

    /// Whether it died: by [`Simulator::kill`], by a fault, or by what kills a real one.
    pub fn is_dead(&self) -> bool {
        self.app.engine.death().is_cancelled()
    }

    /// Adds a fault.
    pub fn add_fault(&self, fault: Fault) {
        self.app.faults.lock().add(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.app.faults.lock().clear();
    }

    /// Counters, and what is in flight.
    pub fn state(&self) -> StateReport {
        self.app.state()
    }

    /// The tokenizer in use.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.app.tokenizer
    }
}

fn load_tokenizer(server: &Server) -> Result<Tokenizer, Error> {
    let (path, loaded) = match &server.tokenizer {
        Some(path) => (path.clone(), Tokenizer::from_dir(path)),
        None => ("(built in)".into(), Tokenizer::builtin()),
    };
    loaded.map_err(|source| Error::Tokenizer { path, source })
}
