//! The race between a request and a fence.

use std::sync::Arc;

use super::{FenceScope, Flights, Scope};
use crate::config::Config;
use crate::engines::{Engine, Engines, Outstanding};
use crate::error::ApiError;

fn engine() -> Arc<Engine> {
    let engines = Engines::new(&Config::new(["http://127.0.0.1:1"])).unwrap();
    engines.pick(&[]).unwrap()
}

fn place() -> Outstanding {
    Outstanding::at(&engine()).unwrap()
}

fn of_job(job: &str) -> Scope {
    Scope {
        job: Some(Arc::from(job)),
        ..Scope::default()
    }
}

fn fence_of(job: &str) -> FenceScope {
    FenceScope::Job {
        job: Arc::from(job),
        rollout_id: None,
        sessions: None,
    }
}

fn rids() -> Arc<[String]> {
    Arc::from(["rid".to_owned()])
}

#[test]
fn a_request_that_was_admitted_before_a_fence_is_not_sent_after_it() {
    let flights = Arc::new(Flights::default());
    let mut ticket = flights.admit(of_job("a")).unwrap();
    let mut other = flights.admit(of_job("b")).unwrap();
    let (requests, sent) = flights.fence(fence_of("a"));
    assert_eq!((requests, sent.len()), (1, 0));
    let refused = ticket.dispatch(place(), &rids()).unwrap_err();
    assert!(matches!(refused, ApiError::RolloutClosed(_)));
    other.dispatch(place(), &rids()).unwrap();
    assert!(flights.admit(of_job("a")).is_err());
}

#[test]
fn a_request_that_was_sent_is_listed_and_not_sent_again() {
    let flights = Arc::new(Flights::default());
    let mut ticket = flights.admit(of_job("a")).unwrap();
    ticket.dispatch(place(), &rids()).unwrap();
    let (requests, sent) = flights.fence(fence_of("a"));
    assert_eq!((requests, sent.len()), (1, 1));
    // Its engine could not be reached after all.
    ticket.recall();
    assert!(ticket.dispatch(place(), &rids()).is_err());
}

#[test]
fn an_end_without_a_terminal_reply_is_unproven() {
    let flights = Arc::new(Flights::default());
    let mut proven = flights.admit(of_job("a")).unwrap();
    let mut lost = flights.admit(of_job("a")).unwrap();
    let unsent = flights.admit(of_job("a")).unwrap();
    proven.dispatch(place(), &rids()).unwrap();
    lost.dispatch(place(), &rids()).unwrap();
    proven.prove();
    let numbers = [proven.number(), lost.number(), unsent.number()];
    drop((proven, lost, unsent));
    assert_eq!(numbers.map(|number| flights.is_open(number)), [false; 3]);
    let unproven = numbers.map(|number| flights.is_unproven(number));
    assert_eq!(unproven, [false, true, false]);
}

#[test]
fn outstanding_work_is_counted_while_it_lasts() {
    let flights = Arc::new(Flights::default());
    let engine = engine();
    let mut ticket = flights.admit(Scope::default()).unwrap();
    let place = || Outstanding::at(&engine).unwrap();
    ticket.dispatch(place(), &rids()).unwrap();
    assert_eq!(engine.in_flight(), 1);
    ticket.recall();
    assert_eq!(engine.in_flight(), 0);
    ticket.dispatch(place(), &rids()).unwrap();
    drop(ticket);
    assert_eq!(engine.in_flight(), 0);
}
