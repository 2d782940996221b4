//! The outcome feed.

use serde_json::json;
use tokio::sync::oneshot::error::TryRecvError;

use super::{OutcomeFeed, OutcomePage, SessionEnd};

fn page(instance: &str, next: u64, sessions: &[&str]) -> OutcomePage {
    let outcomes: Vec<_> = sessions
        .iter()
        .map(|id| json!({"seq": 1, "session_id": id, "outcome": "completed"}))
        .collect();
    serde_json::from_value(json!({
        "session_server_instance_id": instance, "next": next, "outcomes": outcomes,
    }))
    .unwrap()
}

fn session(end: SessionEnd) -> String {
    match end {
        SessionEnd::Outcome(outcome) => outcome.session_id,
        SessionEnd::Lost(cause) => cause.to_owned(),
    }
}

#[test]
fn each_session_gets_its_own_outcome() {
    let feed = OutcomeFeed::default();
    let mut a = feed.wait_for("a", Some("one".into()));
    let mut b = feed.wait_for("b", Some("one".into()));
    assert_eq!(feed.take_in(page("one", 5, &["b"]), 0), 5);
    assert_eq!(session(b.try_recv().unwrap()), "b");
    assert_eq!(a.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn an_outcome_that_comes_before_its_waiter_is_kept() {
    let feed = OutcomeFeed::default();
    feed.take_in(page("one", 1, &["fast"]), 0);
    let mut fast = feed.wait_for("fast", Some("one".into()));
    assert_eq!(session(fast.try_recv().unwrap()), "fast");
}

#[test]
fn when_the_router_restarts_its_sessions_are_lost_and_the_feed_begins_anew() {
    let feed = OutcomeFeed::default();
    feed.take_in(page("one", 7, &[]), 0);
    let mut old = feed.wait_for("old", Some("one".into()));
    let mut unsaid = feed.wait_for("unsaid", None);
    // Created by the new process before the feed has heard of it.
    let mut new = feed.wait_for("new", Some("two".into()));
    assert_eq!(
        feed.take_in(page("two", 3, &[]), 7),
        0,
        "asked with the old number"
    );
    assert_eq!(session(old.try_recv().unwrap()), "router_restarted");
    assert_eq!(session(unsaid.try_recv().unwrap()), "router_restarted");
    assert_eq!(new.try_recv(), Err(TryRecvError::Empty));
    feed.take_in(page("two", 3, &["new"]), 0);
    assert_eq!(session(new.try_recv().unwrap()), "new");
}

#[test]
fn a_session_of_a_process_that_is_gone_is_lost_at_the_next_page() {
    let feed = OutcomeFeed::default();
    feed.take_in(page("two", 1, &[]), 0);
    let mut late = feed.wait_for("late", Some("one".into()));
    feed.take_in(page("two", 1, &[]), 1);
    assert_eq!(session(late.try_recv().unwrap()), "router_restarted");
}

#[test]
fn nobody_waits_for_a_forgotten_session() {
    let feed = OutcomeFeed::default();
    let mut waiter = feed.wait_for("a", None);
    feed.forget("a");
    assert_eq!(waiter.try_recv(), Err(TryRecvError::Closed));
}
