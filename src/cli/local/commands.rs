//! The commands of a run: what each child process is started with.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use rollout_driver::config::{DriverConfig, engine_config};
use serde_json::{Value, json};

use super::{
    agents::RouterUrls,
    control::Control,
    engines::{simulator_config, simulator_spec},
    inputs::{Content, Place},
    last_word::LastWord,
    patience,
    service::Spec,
    setup::Setup,
    workplace,
};

/// Directory of the driver's ledger, below `.rollout`.
pub(super) const LEDGER: &str = "ledger";
/// File of the driver's last word, below `.rollout`.
pub(super) const LAST_WORD: &str = "last-word.json";

impl Setup {
    /// The router's control port.
    pub(super) fn control(&self, router: &RouterUrls) -> anyhow::Result<Control> {
        let token = &self.secrets.control_token;
        Ok(Control::new(&router.control_url, token, &self.inputs.name)?)
    }

    /// The command of simulated engine `index`, built from what it announced before.
    pub(super) fn engine_spec(
        &self,
        index: u32,
    ) -> anyhow::Result<impl Fn(&Value) -> Spec + Send + Sync + 'static> {
        let config = simulator_config(&self.inputs, &self.files, index.into());
        let path = self.work.write(
            &format!("engine-{index}.json"),
            &serde_json::to_vec_pretty(&config)?,
        )?;
        let (program, logs) = (self.program.clone(), self.logs.clone());
        Ok(move |announced: &Value| {
            simulator_spec(&program, index as usize, &path, &logs, announced)
        })
    }

    /// The command of the router. After a restart it takes its old ports again: driver and agents know it by those.
    pub(super) fn router_spec(
        &self,
        engines: &[String],
    ) -> impl Fn(&Value) -> Spec + Send + Sync + 'static {
        let run = self.work.run.path().to_owned();
        let (program, log) = (self.program.clone(), self.logs.join("router.log"));
        let job = self.inputs.name.clone();
        let engines = engines.to_owned();
        let engine_ca = self.engine_ca.clone();
        move |announced: &Value| {
            let address = |name: &str| {
                let url = announced[name]
                    .as_str()
                    .and_then(|url| url.strip_prefix("http://"));
                url.map_or_else(
                    || "127.0.0.1:0".to_owned(),
                    |address| address.trim_end_matches('/').to_owned(),
                )
            };
            let file = |name: &str| run.join(name).display().to_string();
            let mut args: Vec<String> = ["router", "--exit-with-stdin", "--job", &job]
                .map(str::to_owned)
                .to_vec();
            args.extend(["--agents-listen".to_owned(), address("agents_url")]);
            args.extend(["--control-listen".to_owned(), address("control_url")]);
            args.extend(["--control-token-file".to_owned(), file("control-token")]);
            args.extend(["--claim-secret-file".to_owned(), file("claim-secret")]);
            for engine in &engines {
                args.extend(["--engine".to_owned(), engine.clone()]);
            }
            if let Some(file) = &engine_ca {
                args.extend(["--engine-ca-file".to_owned(), file.display().to_string()]);
            }
            Spec {
                name: "router".to_owned(),
                program: program.clone(),
                args,
                first_line: None,
                environment: None,
                directory: None,
                log: log.clone(),
                announces: true,
            }
        }
    }

    /// The command of the plug-in host, when the job has plug-ins.
    pub(super) fn plugin_host(&self) -> Option<Spec> {
        let plugins = self.inputs.plugin_process.as_ref()?;
        let mut args: Vec<String> = [
            "plugins",
            "--exit-with-stdin",
            "--inherit-environment",
            "--socket",
        ]
        .map(str::to_owned)
        .to_vec();
        args.push(self.plugin_socket().display().to_string());
        args.extend(["--python".to_owned(), self.python.display().to_string()]);
        if let Some(code) = &self.plugin_code {
            args.extend(["--code".to_owned(), code.display().to_string()]);
        }
        Some(Spec {
            name: "plug-in host".to_owned(),
            program: self.program.clone(),
            args,
            first_line: None,
            environment: Some(plugins.environment.clone()),
            directory: Some(match &plugins.place {
                Place::Given(directory) => directory.clone(),
                Place::Own { .. } => self.work.state.join(workplace::PLUGINS),
            }),
            log: self.logs.join("plugins.log"),
            announces: false,
        })
    }

    fn plugin_socket(&self) -> PathBuf {
        self.work.run.path().join("plugins.sock")
    }

    fn last_word_path(&self) -> PathBuf {
        self.work.state.join(LAST_WORD)
    }

    /// Writes the driver's configuration, now that the router is known.
    pub(super) fn write_driver_config(&self, router: &RouterUrls) -> anyhow::Result<PathBuf> {
        let simulated = self.engine_urls.is_empty();
        let config = json!({
            "version": 1,
            "job": {
                "name": self.inputs.name,
                "namespace": self.inputs.namespace,
                "uid": self.work.uid,
                "attempt": self.work.attempt,
            },
            "spec": self.spec,
            // What was fetched is where the driver would have put it.
            "dataset_path": (!matches!(self.inputs.dataset, Content::Url { .. })).then_some(&self.dataset),
            "ledger_dir": self.work.directory(LEDGER)?,
            "output_dir": self.work.output,
            "router_url": router.control_url,
            "control_token_file": self.work.run.path().join("control-token"),
            "plugin_socket": self.inputs.spec.plugins.as_ref().map(|_| self.plugin_socket()),
            "tokenizer": (simulated && self.tokenizer.is_none()).then_some("builtin"),
            "tokenizer_dir": self.tokenizer,
            "status_listen": "127.0.0.1:0",
            "termination_message_path": self.last_word_path(),
        });
        Ok(self
            .work
            .write("driver.json", &serde_json::to_vec_pretty(&config)?)?)
    }

    /// The command of the driver.
    pub(super) fn driver_spec(&self, config: &Path) -> Spec {
        let config = config.display().to_string();
        Spec {
            name: "driver".to_owned(),
            program: self.program.clone(),
            args: ["driver", "--exit-with-stdin", "--config", &config]
                .map(str::to_owned)
                .to_vec(),
            first_line: None,
            environment: None,
            directory: None,
            log: self.logs.join("driver.log"),
            announces: true,
        }
    }

    /// How long the driver may take after SIGTERM, by its own configuration.
    pub(super) fn driver_patience(config: &Path) -> anyhow::Result<Duration> {
        let config = DriverConfig::load(config).context("the driver's configuration")?;
        // Neither the rows nor the engines change the ladder.
        Ok(patience::of(&engine_config(&config, 1, 1).ladder))
    }

    /// How the job ended, in the driver's word.
    pub(super) fn last_word(&self) -> anyhow::Result<LastWord> {
        let path = self.last_word_path();
        let text = fs::read_to_string(&path).with_context(|| {
            format!("the driver ended without a last word in {}", path.display())
        })?;
        LastWord::read(&text)
    }

    /// The last word of an earlier run, if the driver has only repeated its decision: a driver that found everything decided tells nothing of
    /// the teardown, so the earlier word is put back as well.
    pub(super) fn earlier_word(&self, now: &LastWord) -> anyhow::Result<Option<LastWord>> {
        let Some(text) = &self.earlier else {
            return Ok(None);
        };
        let Some(earlier) = LastWord::read(text)
            .ok()
            .filter(|earlier| earlier.outcome == now.outcome)
        else {
            return Ok(None);
        };
        self.work.write(LAST_WORD, text.as_bytes())?;
        Ok(Some(earlier))
    }
}
