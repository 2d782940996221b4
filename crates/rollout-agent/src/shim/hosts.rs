//! Runs an agent function: one host process for all sessions, replaced when it dies or when a session does not let go of it.
//!
//! A process with a session that ignores its cancellation gets no new session, and is killed as soon as no other session needs it.
//! While it lives on for the others, a fresh process takes what comes. A session that is to be alone has a process of its own.

mod alone;
mod ends;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinSet, time::sleep};
use tokio_util::task::TaskTracker;

use super::{
    Request,
    aborts::Aborts,
    host::{Host, HostConfig, HostEvent},
    live::Live,
    processes::Processes,
};
use crate::wire::{Abort, Cancel, Ended, FromLauncher, FromShim, LoadFailure, Start, seconds};

/// Time beyond the grace time after which a host that does not answer counts as stuck.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

/// Serves the requests of the shim until they end.
pub(super) async fn serve(
    config: HostConfig,
    mut requests: mpsc::UnboundedReceiver<Request>,
    events: mpsc::UnboundedSender<FromShim>,
) {
    let (host_events, mut from_hosts) = mpsc::unbounded_channel();
    let (timers, mut expired) = mpsc::unbounded_channel();
    let mut hosts = Hosts {
        config: Arc::new(config),
        events,
        host_events,
        timers,
        timer_tasks: JoinSet::new(),
        tasks: TaskTracker::new(),
        live: HashMap::new(),
        current: None,
        next_id: 0,
        waiting: VecDeque::new(),
        aborts: Aborts::default(),
        state: State::Loading,
        idle_deaths: 0,
    };
    hosts.start_host();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => hosts.on_request(request).await,
                None => break,
            },
            Some((id, event)) = from_hosts.recv() => hosts.on_host(id, event).await,
            Some((id, session_id)) = expired.recv() => hosts.on_expired(id, &session_id),
            Some(_) = hosts.timer_tasks.join_next(), if !hosts.timer_tasks.is_empty() => {}
        }
    }
    hosts.end_all().await;
}

/// What the launcher is told when it connects.
#[derive(Debug, Clone)]
enum State {
    Loading,
    Ready,
    Failed(LoadFailure),
}

struct Hosts {
    config: Arc<HostConfig>,
    events: mpsc::UnboundedSender<FromShim>,
    host_events: mpsc::UnboundedSender<(u64, HostEvent)>,
    timers: mpsc::UnboundedSender<(u64, String)>,
    timer_tasks: JoinSet<()>,
    tasks: TaskTracker,
    live: HashMap<u64, Live>,
    /// The one that takes new sessions.
    current: Option<u64>,
    next_id: u64,
    /// Sessions that wait for a process to be ready.
    waiting: VecDeque<Start>,
    aborts: Aborts,
    state: State,
    idle_deaths: u32,
}

impl Hosts {
    async fn on_request(&mut self, request: Request) {
        match request {
            Request::Announce => self.announce(),
            Request::Start(start) => self.start(*start),
            // A function has its hook.
            Request::Terminate(_) => {}
            Request::Cancel(cancel) => self.cancel(cancel),
            Request::Abort(abort) => self.abort(&abort),
            Request::EndAll { again, done } => {
                self.end_all().await;
                if again {
                    self.state = State::Loading;
                    self.idle_deaths = 0;
                    self.start_host();
                }
                let _ = done.send(());
            }
        }
    }

    fn announce(&self) {
        match &self.state {
            State::Loading => {}
            State::Ready => self.tell(FromShim::Ready),
            State::Failed(failure) => self.tell(failure.clone().into()),
        }
    }

    fn tell(&self, event: FromShim) {
        if self.events.send(event).is_err() {
            tracing::debug!("the shim ends: nobody is told");
        }
    }

    fn new_host(&mut self) -> io::Result<Live> {
        let id = self.next_id;
        self.next_id += 1;
        Host::start(&self.config, id, self.host_events.clone(), &self.tasks).map(Live::new)
    }

    fn start_host(&mut self) {
        match self.new_host() {
            Ok(live) => {
                self.current = Some(live.host.id);
                self.live.insert(live.host.id, live);
            }
            Err(error) => {
                let what = format!("the interpreter {}", self.config.python.display());
                self.fail(LoadFailure::of_program(&what, &error));
            }
        }
    }

    fn fail(&mut self, failure: LoadFailure) {
        self.current = None;
        for start in std::mem::take(&mut self.waiting) {
            let ended = Ended::load_failed(&start.session_id, &failure);
            self.tell(FromShim::ended(ended));
        }
        self.state = State::Failed(failure);
        self.announce();
    }

    fn start(&mut self, start: Start) {
        if let State::Failed(failure) = &self.state {
            let ended = Ended::load_failed(&start.session_id, failure);
            return self.tell(FromShim::ended(ended));
        }
        if start.alone {
            return self.start_alone(start);
        }
        let killed = self.config.memory.kills();
        match self.current.and_then(|id| self.live.get_mut(&id)) {
            Some(live) if live.ready => live.start(start, killed),
            _ => self.waiting.push_back(start),
        }
    }

    fn cancel(&mut self, cancel: Cancel) {
        let waits = |start: &Start| start.session_id == cancel.session_id;
        let waiting = self.waiting.iter().position(waits);
        if waiting.is_some_and(|index| self.waiting.remove(index).is_some())
            || self.forget_alone(&cancel.session_id)
        {
            let error = Some("the session was cancelled before it started".to_owned());
            let ended = Ended {
                session_id: cancel.session_id,
                error,
                clean: true,
                ..Ended::default()
            };
            return self.tell(FromShim::ended(ended));
        }
        let Some((id, live)) = self
            .live
            .iter()
            .find(|(_, live)| live.sessions.contains(&cancel.session_id))
        else {
            return;
        };
        let (timers, id, session_id) = (self.timers.clone(), *id, cancel.session_id.clone());
        let limit = seconds(cancel.grace_seconds) + ANSWER_TIMEOUT;
        self.timer_tasks.spawn(async move {
            sleep(limit).await;
            let _ = timers.send((id, session_id));
        });
        live.host.tell(FromLauncher::Cancel(cancel));
    }

    /// A host did not end a session in time: its event loop is blocked.
    fn on_expired(&mut self, id: u64, session_id: &str) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        if !live.sessions.remove(session_id) {
            return;
        }
        let error = Some("the agent ignored its cancellation and blocks its event loop".to_owned());
        self.tell(FromShim::ended(Ended {
            session_id: session_id.to_owned(),
            error,
            clean: true,
            ..Ended::default()
        }));
        self.retire(id);
    }

    /// The hook runs once in every process that has had sessions: one that has just ended may have work of its own elsewhere.
    fn abort(&mut self, abort: &Abort) {
        let with_sessions = self
            .live
            .iter()
            .filter(|(_, live)| live.ready && live.worked);
        let hosts: HashSet<u64> = with_sessions.map(|(id, _)| *id).collect();
        for id in &hosts {
            if let Some(live) = self.live.get(id) {
                live.host.tell(FromLauncher::Abort(abort.clone()));
            }
        }
        if let Some(report) = self.aborts.begin(&abort.abort_id, hosts) {
            self.tell(FromShim::AbortDone(report));
        }
    }

    async fn on_host(&mut self, id: u64, event: HostEvent) {
        match event {
            HostEvent::Said(FromShim::Ready) => self.on_ready(id),
            HostEvent::Said(FromShim::Failed { error, fault }) => {
                let failure = LoadFailure { error, fault };
                let start = self.live.remove(&id).and_then(|live| live.meant_for);
                if let Some(start) = start {
                    let ended = Ended::load_failed(&start.session_id, &failure);
                    self.tell(FromShim::ended(ended));
                }
                if self.current == Some(id) {
                    self.fail(failure);
                }
            }
            HostEvent::Said(FromShim::Ended(ended)) => self.on_ended(id, *ended).await,
            HostEvent::Said(FromShim::AbortDone(done)) => {
                if let Some(report) = self.aborts.done(id, &done) {
                    self.tell(FromShim::AbortDone(report));
                }
            }
            HostEvent::Said(FromShim::Stuck { .. }) => self.retire(id),
            HostEvent::Said(message) => {
                tracing::debug!(?message, "a message of the Python host was ignored");
            }
            HostEvent::Exited {
                how,
                signal,
                log_tail,
                clean,
            } => self.on_exited(id, &how, signal, log_tail, clean),
        }
    }

    fn on_ready(&mut self, id: u64) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        live.ready = true;
        live.keep = Processes::below(live.host.pid);
        live.keep.insert(live.host.pid);
        let killed = self.config.memory.kills();
        if let Some(start) = live.meant_for.take() {
            return live.start(start, killed);
        }
        for start in std::mem::take(&mut self.waiting) {
            live.start(start, killed);
        }
        if !matches!(self.state, State::Ready) {
            self.state = State::Ready;
            self.announce();
        }
    }

    /// Ends every process at once. Nobody is told: the launcher is gone, or said so.
    async fn end_all(&mut self) {
        self.current = None;
        self.waiting.clear();
        self.aborts.clear();
        self.live.clear();
        self.timer_tasks.shutdown().await;
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }
}
