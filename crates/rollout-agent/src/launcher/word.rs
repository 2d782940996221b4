//! The word of whoever watches the pod: some ends look like the agent's, and are its pod's.
//!
//! An agent whose sandbox died fails like any other, and one whose container was killed at once says nothing at all; the kubelet knows, and
//! a controller that reads its status ends the session at the router (docs/protocol.md section 1, pod-ended). The launcher gives that word
//! a moment before it reports what it saw itself. Caveat: a word that takes longer comes too late.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::life::Event;
use crate::wire::{Ended, Fault};

/// What the agent works in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Surroundings {
    /// Its own container.
    #[default]
    Own,
    /// Other containers too, which can fail it.
    Sandbox,
}

/// How long which ends wait for a word.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PodWord {
    /// Zero: nobody watches the pod.
    pub(super) patience: Duration,
    pub(super) surroundings: Surroundings,
    /// The longest wait once the pod is told to end.
    pub(super) at_the_end: Duration,
}

impl PodWord {
    /// Whether somebody else may know better how a session ended that nobody ended.
    fn may_know_better(&self, ended: &Ended) -> bool {
        if self.patience.is_zero() {
            return false;
        }
        let is_failure = ended.fault == Fault::Agent && !ended.is_well();
        ended.lost || (is_failure && self.surroundings == Surroundings::Sandbox)
    }

    /// Waits for a word on an end; answers whether the session was ended by it.
    pub(super) async fn on(&self, ended: &Ended, inbox: &mut mpsc::Receiver<Event>) -> bool {
        if !self.may_know_better(ended) {
            return false;
        }
        let mut until = Instant::now() + self.patience;
        loop {
            tokio::select! {
                event = inbox.recv() => match event {
                    Some(Event::Gone) => return true,
                    // The kubelet ends the launcher when the agent's container is gone: the word is on its way.
                    Some(Event::Stop { .. }) => until = until.min(Instant::now() + self.at_the_end),
                    Some(Event::HookDone(_)) => {}
                    Some(Event::Abort(_) | Event::RouterLost(_)) | None => return false,
                },
                () = sleep_until(until) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::wire::Abort;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn word(surroundings: Surroundings) -> PodWord {
        PodWord {
            patience: PATIENCE,
            surroundings,
            at_the_end: Duration::from_secs(1),
        }
    }

    fn failed() -> Ended {
        Ended {
            exit_code: Some(70),
            error: Some("exit code 70".to_owned()),
            clean: true,
            ..Ended::default()
        }
    }

    fn well() -> Ended {
        Ended {
            exit_code: Some(0),
            clean: true,
            ..Ended::default()
        }
    }

    fn lost() -> Ended {
        Ended::lost("s")
    }

    fn stop() -> Event {
        let abort = Abort {
            abort_id: "own".to_owned(),
            timeout_seconds: 1.0,
            args: Map::new(),
        };
        Event::Stop {
            abort,
            shim: Duration::ZERO,
        }
    }

    /// How an end fares with these events: whether the session was ended by a word, and after how long.
    async fn fares(word: PodWord, ended: &Ended, events: Vec<Event>) -> (bool, Duration) {
        let (sender, mut inbox) = mpsc::channel(8);
        for event in events {
            sender.send(event).await.unwrap();
        }
        let began = Instant::now();
        let told = word.on(ended, &mut inbox).await;
        (told, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn only_ends_that_may_be_the_pods_wait() {
        use Surroundings::{Own, Sandbox};
        for (surroundings, ended, waits) in [
            (Own, well(), false),
            (Own, failed(), false),
            (Own, lost(), true),
            (Own, Ended::infra("s", "no file"), false),
            (Sandbox, well(), false),
            (Sandbox, failed(), true),
            (Sandbox, lost(), true),
        ] {
            let (told, after) = fares(word(surroundings), &ended, Vec::new()).await;
            assert!(!told);
            let expected = if waits { PATIENCE } else { Duration::ZERO };
            assert_eq!(after, expected, "{surroundings:?} {ended:?}");
            let nobody_watches = PodWord::default();
            assert_eq!(
                fares(nobody_watches, &ended, Vec::new()).await.1,
                Duration::ZERO
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_ends_the_wait_at_once_also_of_a_pod_that_ends() {
        for events in [vec![Event::Gone], vec![stop(), Event::Gone]] {
            let (told, after) = fares(word(Surroundings::Sandbox), &failed(), events).await;
            assert_eq!((told, after), (true, Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_ends_waits_no_longer_than_it_may() {
        let (told, after) = fares(word(Surroundings::Own), &lost(), vec![stop()]).await;
        assert_eq!((told, after), (false, Duration::from_secs(1)));
    }
}
