//! The file with the CAs of engines, which may be another one later: a `ConfigMap` that is mounted changes below its readers.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use engine_http::Trust;
use tokio::time::MissedTickBehavior;

/// Between two looks; the kubelet itself takes a minute or so to bring a change.
const LOOK: Duration = Duration::from_secs(10);

/// A file of CAs, and the trust that follows it.
#[derive(Debug)]
pub(super) struct CaFile {
    path: PathBuf,
    /// What was read last, good or bad: each is told once.
    last: Result<String, String>,
    trust: Trust,
}

/// What a look at the file brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// It is as it was.
    Same,
    /// Others are trusted from now on.
    Renewed,
    /// It is no CA; those from before are still trusted.
    Bad(String),
}

impl CaFile {
    /// The CAs in a file, and no others.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the CA in {}", path.display()))?;
        let trust = Trust::only(&text).with_context(|| format!("{} is no CA", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            last: Ok(text),
            trust,
        })
    }

    /// Who is trusted, now and later.
    pub(super) fn trust(&self) -> Trust {
        self.trust.clone()
    }

    /// Follows the file.
    pub(super) async fn follow(mut self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.look() {
                Look::Same => {}
                Look::Renewed => {
                    tracing::info!(file = %self.path.display(), "engines have to be known by other CAs from now on");
                }
                Look::Bad(problem) => {
                    tracing::warn!(file = %self.path.display(), problem, "the CAs from before are still trusted");
                }
            }
        }
    }

    fn look(&mut self) -> Look {
        // Half of a large text costs a warning: it is read again.
        let now = std::fs::read_to_string(&self.path).map_err(|error| error.kind().to_string());
        if now == self.last {
            return Look::Same;
        }
        let look = match &now {
            Ok(text) => match self.trust.renew(text) {
                Ok(()) => Look::Renewed,
                Err(problem) => Look::Bad(problem.to_string()),
            },
            Err(problem) => Look::Bad(problem.clone()),
        };
        self.last = now;
        look
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::{CaFile, Look};

    fn ca(name: &str) -> String {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().pem()
    }

    /// As the kubelet brings a change: a directory of its own, and a link that is replaced.
    fn brings(home: &Path, version: &str, text: &str) {
        let data = home.join(version);
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("ca.crt"), text).unwrap();
        let link = home.join("..data_tmp");
        symlink(version, &link).unwrap();
        std::fs::rename(&link, home.join("..data")).unwrap();
    }

    #[test]
    fn another_ca_is_followed_and_what_is_none_is_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let (first, second) = (ca("first"), ca("second"));
        brings(home, "..1", &first);
        symlink("..data/ca.crt", home.join("ca.crt")).unwrap();
        let mut file = CaFile::open(&home.join("ca.crt")).unwrap();
        assert_eq!(file.look(), Look::Same);
        brings(home, "..2", &second);
        assert_eq!(file.look(), Look::Renewed);
        assert_eq!(file.look(), Look::Same);

        brings(home, "..3", "no certificate");
        let told = "there is no certificate in it: give PEM text, which begins with -----BEGIN CERTIFICATE-----";
        assert_eq!(file.look(), Look::Bad(told.to_owned()));
        assert_eq!(file.look(), Look::Same);
        std::fs::remove_file(home.join("..data")).unwrap();
        assert_eq!(file.look(), Look::Bad("entity not found".to_owned()));
        assert_eq!(file.look(), Look::Same);
        brings(home, "..4", &second);
        assert_eq!(file.look(), Look::Renewed);
    }
}
