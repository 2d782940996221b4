//! Which weights an engine should have when it begins. Pure: what was seen and the time are passed in.
//!
//! An engine that starts again has the weights of its command line, whatever was loaded into it before. SGLang names the last checkpoint in
//! `/model_info`, so the sidecar takes note of it and has it loaded again; an engine that is new in its pool has none, and takes the latest one
//! of its peers.
//!
//! Caveats: weights that came without a checkpoint (over NCCL, say) change the version alone, and nobody can load them again: then the checkpoint
//! that is loaded has its own version, so that an engine never claims weights that it does not have. Who loads the weights of the command line
//! again names a version with them, since an engine with both its first path and its first version counts as one that has just begun.

use serde::{Deserialize, Serialize};

/// How long after an update its version may be set by a call of its own.
const NAMING_SECONDS: u64 = 30;

/// Weights, as an engine names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Weights {
    pub(super) path: String,
    pub(super) version: Option<String>,
}

/// What was loaded from disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) weights: Weights,
    /// When, in seconds since 1970.
    pub(super) at: u64,
    /// Whether its version is its own for good: another one after that came without a checkpoint.
    pub(super) named: bool,
}

/// What is known beyond the life of an engine's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    /// What the engine has when it begins.
    pub(super) launch: Weights,
    /// What was loaded into it last.
    pub(super) checkpoint: Option<Checkpoint>,
}

/// A checkpoint as sidecars tell each other (`checkpoint` of `/state`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    /// What its engine has when it begins: the checkpoints of another model are of no use.
    pub(super) base: String,
    pub(super) path: String,
    pub(super) version: Option<String>,
    /// How long ago it was loaded.
    pub(super) seconds: u64,
}

/// What the sidecars of an engine's peers said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Peers {
    pub(super) told: Vec<Told>,
    /// Whether some of them, or the name service, are still waited for.
    pub(super) awaited: bool,
}

/// What to do with an engine that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It has the weights that it should have.
    Open,
    /// It has to load these first.
    Load(Checkpoint),
    /// It is not known yet what its peers have.
    Wait,
}

impl Memory {
    /// Takes note of what an engine has at `now`; answers what is known from then on, if that is something else.
    pub(super) fn after(
        before: Option<&Self>,
        seen: &Weights,
        paused: bool,
        now: u64,
    ) -> Option<Self> {
        let Some(before) = before else {
            return Some(Self {
                launch: seen.clone(),
                checkpoint: None,
            });
        };
        if *seen == before.launch {
            // It has just begun: what was loaded before is to be loaded again.
            return None;
        }
        let checkpoint = next(before, seen, paused, now);
        (checkpoint != before.checkpoint).then(|| Self {
            launch: before.launch.clone(),
            checkpoint,
        })
    }

    /// What an engine that begins has to load, of its own and of what its peers have: the latest one.
    pub(super) fn start(&self, seen: &Weights, peers: &Peers, now: u64) -> Start {
        if *seen != self.launch {
            // Somebody has loaded these since it began.
            return Start::Open;
        }
        if peers.awaited {
            return Start::Wait;
        }
        let theirs = peers
            .told
            .iter()
            .filter(|told| told.base == self.launch.path);
        let theirs = theirs.map(|told| Checkpoint {
            weights: Weights {
                path: told.path.clone(),
                version: told.version.clone(),
            },
            at: now.saturating_sub(told.seconds),
            named: true,
        });
        let all = theirs.chain(self.checkpoint.clone());
        all.max_by_key(|checkpoint| checkpoint.at)
            .map_or(Start::Open, Start::Load)
    }

    /// The checkpoint, as it is told.
    pub(super) fn told(&self, now: u64) -> Option<Told> {
        let checkpoint = self.checkpoint.as_ref()?;
        Some(Told {
            base: self.launch.path.clone(),
            path: checkpoint.weights.path.clone(),
            version: checkpoint.weights.version.clone(),
            seconds: now.saturating_sub(checkpoint.at),
        })
    }
}

fn next(before: &Memory, seen: &Weights, paused: bool, now: u64) -> Option<Checkpoint> {
    let known = before.checkpoint.as_ref();
    let path = known.map_or(&before.launch.path, |known| &known.weights.path);
    if seen.path != *path {
        return Some(Checkpoint {
            weights: seen.clone(),
            at: now,
            named: false,
        });
    }
    let known = known?;
    if known.named {
        return Some(known.clone());
    }
    Some(Checkpoint {
        weights: seen.clone(),
        at: known.at,
        // A trainer updates all engines, names the version, and lets them go on.
        named: !paused && now.saturating_sub(known.at) >= NAMING_SECONDS,
    })
}

#[cfg(test)]
mod tests {
    use super::{Checkpoint, Memory, NAMING_SECONDS, Peers, Start, Told, Weights};

    fn weights(path: &str, version: &str) -> Weights {
        Weights {
            path: path.to_owned(),
            version: Some(version.to_owned()),
        }
    }

    fn launch() -> Weights {
        weights("/models/base", "default")
    }

    /// What is known after an engine was seen like this, one look after another: path, version, whether it is paused, when.
    fn after(looks: &[(&str, &str, bool, u64)]) -> Memory {
        let mut memory = Memory::after(None, &launch(), false, 0).unwrap();
        for (path, version, paused, now) in looks {
            let seen = weights(path, version);
            memory = Memory::after(Some(&memory), &seen, *paused, *now).unwrap_or(memory);
        }
        memory
    }

    fn said(told: &[Told]) -> Peers {
        Peers {
            told: told.to_vec(),
            awaited: false,
        }
    }

    fn loads(memory: &Memory, peers: &[Told], now: u64) -> Option<(String, String)> {
        match memory.start(&launch(), &said(peers), now) {
            Start::Open => None,
            Start::Wait => panic!("nobody is waited for"),
            Start::Load(Checkpoint { weights, .. }) => {
                Some((weights.path, weights.version.unwrap()))
            }
        }
    }

    fn own(memory: &Memory) -> Option<(String, String)> {
        loads(memory, &[], 1000)
    }

    fn pair(path: &str, version: &str) -> (String, String) {
        (path.to_owned(), version.to_owned())
    }

    fn peer(base: &str, path: &str, seconds: u64) -> Told {
        Told {
            base: base.to_owned(),
            path: path.to_owned(),
            version: Some("of a peer".to_owned()),
            seconds,
        }
    }

    #[test]
    fn an_engine_without_updates_begins_as_it_is() {
        assert_eq!(own(&after(&[])), None);
        assert_eq!(own(&after(&[("/models/base", "default", false, 9)])), None);
    }

    #[test]
    fn the_last_checkpoint_is_loaded_again_until_it_is_there() {
        let memory = after(&[
            ("/c/11", "11", false, 10),
            ("/c/12", "12", false, 100),
            // The engine begins again.
            ("/models/base", "default", false, 110),
        ]);
        assert_eq!(own(&memory), Some(pair("/c/12", "12")));
        let loaded = weights("/c/12", "12");
        assert_eq!(memory.start(&loaded, &said(&[]), 120), Start::Open);
        assert_eq!(Memory::after(Some(&memory), &loaded, false, 120), None);
    }

    #[test]
    fn weights_that_somebody_loaded_meanwhile_stay() {
        let memory = after(&[("/c/12", "12", false, 10)]);
        let newer = weights("/c/13", "13");
        assert_eq!(memory.start(&newer, &said(&[]), 20), Start::Open);
        let memory = Memory::after(Some(&memory), &newer, false, 20).unwrap();
        assert_eq!(own(&memory), Some(pair("/c/13", "13")));
    }

    #[test]
    fn a_version_that_is_set_after_the_update_is_the_checkpoints() {
        let soon = after(&[("/c/12", "11", false, 10), ("/c/12", "12", false, 15)]);
        assert_eq!(own(&soon), Some(pair("/c/12", "12")));
        // The other engines take their time to load, and this one waits for them.
        let later = 10 + 20 * NAMING_SECONDS;
        let paused = after(&[
            ("/c/12", "11", true, 10),
            ("/c/12", "11", true, later),
            ("/c/12", "12", false, later + 1),
        ]);
        assert_eq!(own(&paused), Some(pair("/c/12", "12")));
    }

    #[test]
    fn a_checkpoint_is_never_called_by_the_version_of_weights_that_came_without_one() {
        let named = 10 + NAMING_SECONDS;
        let memory = after(&[
            ("/c/12", "12", false, 10),
            ("/c/12", "12", false, named),
            ("/c/12", "13", true, named + 5),
            ("/c/12", "14", false, named + 50),
        ]);
        assert_eq!(own(&memory), Some(pair("/c/12", "12")));
        let never_from_disk = after(&[("/models/base", "13", false, 10)]);
        assert_eq!(own(&never_from_disk), None);
    }

    #[test]
    fn the_first_weights_can_be_loaded_back_under_a_version() {
        let memory = after(&[
            ("/c/12", "12", false, 10),
            ("/models/base", "13", false, 20),
        ]);
        assert_eq!(own(&memory), Some(pair("/models/base", "13")));
    }

    #[test]
    fn an_engine_that_is_new_takes_the_latest_of_its_peers() {
        let fresh = after(&[]);
        let peers = [
            peer("/models/base", "/c/12", 500),
            peer("/models/base", "/c/13", 20),
            peer("/models/other", "/c/99", 1),
        ];
        assert_eq!(
            loads(&fresh, &peers, 1000),
            Some(pair("/c/13", "of a peer"))
        );
        assert_eq!(loads(&fresh, &peers[2..], 1000), None);
    }

    #[test]
    fn an_engine_waits_for_what_its_peers_have() {
        let awaited = Peers {
            told: vec![peer("/models/base", "/c/12", 500)],
            awaited: true,
        };
        let memory = after(&[("/c/11", "11", false, 10)]);
        for memory in [&memory, &after(&[])] {
            assert_eq!(memory.start(&launch(), &awaited, 1000), Start::Wait);
        }
        // What was loaded by hand needs nobody's word.
        let loaded = weights("/c/13", "13");
        assert_eq!(memory.start(&loaded, &awaited, 1000), Start::Open);
    }

    #[test]
    fn an_engine_that_was_away_during_an_update_takes_what_its_peers_have() {
        let memory = after(&[("/c/12", "12", false, 500)]);
        let newer = peer("/models/base", "/c/13", 100);
        assert_eq!(
            loads(&memory, &[newer], 1000),
            Some(pair("/c/13", "of a peer"))
        );
        let older = peer("/models/base", "/c/11", 900);
        assert_eq!(loads(&memory, &[older], 1000), Some(pair("/c/12", "12")));
    }

    #[test]
    fn what_is_told_has_an_age_and_no_time_of_day() {
        let memory = after(&[("/c/12", "12", false, 400)]);
        let told = memory.told(1000).unwrap();
        assert_eq!((told.base.as_str(), told.seconds), ("/models/base", 600));
        // A clock that was set back.
        assert_eq!(memory.told(0).unwrap().seconds, 0);
        assert_eq!(after(&[]).told(1000), None);
    }
}
