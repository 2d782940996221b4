//! One controller process, from its start to its end.
//!
//! ```text
//! start:  serve -> definitions -> watches fill caches (also in standby) -> lease -> reconciles
//! stop:   no new reconcile -> running ones end, then what they told (bounded) -> lease given back -> watches, server
//! lost:   the lease is not ours any more: nothing is written from that moment, and the process ends with an error
//! ```

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::jobs::Jobs;
use super::pools::Pools;
use super::roots::Roots;
use super::runtime::connection;
use super::runtime::election::{Leadership, Timing};
use super::runtime::elector::{Elector, Standing};
use super::runtime::health::Health;
use super::runtime::metrics::Metrics;
use super::runtime::serve;
use super::runtime::telling::{self, Teller, Told, Writer};
use super::runtime::watching::{Reporting, Scope};
use crate::api::job::RolloutJob;
use crate::api::pool::SGLangPool;
use crate::resources::Rendering;
use crate::resources::secrets::OperatorKey;

/// Longest wait for running reconciles and their events during a stop. With the lease's return it fits into a grace period of 30 s.
const DRAIN: Duration = Duration::from_secs(15);
/// Between two looks for definitions that are missing.
const LOOK: Duration = Duration::from_secs(2);
/// Longest wait for the answer to such a look.
const LOOK_LIMIT: Duration = Duration::from_secs(10);
/// What `/readyz` calls the lease.
const LEASE: &str = "lease";

/// How a controller runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it looks.
    pub scope: Scope,
    /// The installation that objects are rendered for.
    pub rendering: Rendering,
    /// What tokens are derived from.
    pub key: OperatorKey,
    /// How it is elected; none: it is alone.
    pub election: Option<Election>,
    /// Name of its pod, in events.
    pub instance: Option<String>,
    /// Reconciles of one kind at once.
    pub concurrency: u16,
}

/// How a controller is elected.
#[derive(Clone, Debug)]
pub struct Election {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub lease: String,
    /// Who we are: unique to this process.
    pub identity: String,
    /// How long a silent leader stays one.
    pub timing: Timing,
}

/// What the parts of a controller share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    pub(super) client: Client,
    pub(super) leadership: Leadership,
    pub(super) metrics: Arc<Metrics>,
    pub(super) reporting: Reporting,
    pub(super) teller: Teller,
}

/// What a leader does.
struct Work {
    pools: Pools,
    jobs: Jobs,
    told: Told,
    writer: Writer,
}

/// Runs a controller until it is told to stop. An error: it could not start, or it led and leads no more.
pub async fn run(
    settings: Settings,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), Error> {
    let metrics = Arc::new(Metrics::default());
    let client = connection::connect(Arc::clone(&metrics))
        .await
        .map_err(|error| Error::call("find", "the API server", error))?;
    let health = Health::default();
    health.missing(LEASE, "not read yet");
    // What goes on until the end, also while a stop is under way.
    let end = CancellationToken::new();
    let mut background = JoinSet::new();
    let routes = serve::routes(health.clone(), Arc::clone(&metrics));
    background.spawn(serve::serve(listener, routes, end.clone()));
    let leadership = match settings.election {
        Some(_) => Leadership::by_election(),
        None => Leadership::always(),
    };
    let (teller, told) = telling::teller(Arc::clone(&metrics));
    let shared = Shared {
        settings: Arc::new(settings),
        client,
        leadership,
        reporting: Reporting {
            health,
            metrics: Arc::clone(&metrics),
            stop: end.clone(),
        },
        metrics,
        teller,
    };
    let outcome = lead(&shared, told, &stop).await;
    end.cancel();
    while let Some(ended) = background.join_next().await {
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the server for health and metrics failed");
        }
    }
    outcome
}

/// From the first look to the last reconcile.
async fn lead(shared: &Shared, told: Told, stop: &CancellationToken) -> Result<(), Error> {
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = definitions(shared) => {}
    }
    let mut watches = JoinSet::new();
    let roots = Roots::of(shared);
    let pools = Pools::start(shared, &mut watches, &roots);
    let jobs = Jobs::start(shared, &mut watches, &roots)?;
    roots.watch(shared, &mut watches, pools.queues(), jobs.queues());
    let work = Work {
        pools,
        jobs,
        told,
        writer: Writer::new(
            shared.client.clone(),
            shared.settings.instance.clone(),
            shared.leadership.clone(),
            Arc::clone(&shared.metrics),
        ),
    };
    let outcome = match shared.settings.election.clone() {
        None => {
            shared.reporting.health.found(LEASE);
            shared.metrics.leads(true);
            reconcile(work, stop).await;
            Ok(())
        }
        Some(election) => elected(shared, election, work, stop).await,
    };
    shared.metrics.leads(false);
    shared.reporting.stop.cancel();
    while watches.join_next().await.is_some() {}
    outcome
}

/// Stands for election, and reconciles while it leads. The lease is given back last.
async fn elected(
    shared: &Shared,
    election: Election,
    work: Work,
    stop: &CancellationToken,
) -> Result<(), Error> {
    let elector = Elector::new(
        shared.client.clone(),
        (&election.namespace, &election.lease),
        election.identity,
        election.timing,
        shared.leadership.clone(),
    );
    let mut standing = elector.standing();
    let done = CancellationToken::new();
    let work = async {
        let leads = async {
            loop {
                let now = standing.borrow_and_update().clone();
                announce(shared, &now);
                if now == Standing::Leading || standing.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = leads => reconcile(work, stop).await,
        }
        done.cancel();
    };
    let election = elector.run(done.clone());
    tokio::pin!(work, election);
    tokio::select! {
        // Lost: the reconciles are dropped where they are; nothing of them can be written any more.
        ended = &mut election => ended,
        () = &mut work => election.await,
    }
}

fn announce(shared: &Shared, standing: &Standing) {
    match standing {
        Standing::Unknown => return,
        // A standby is as ready as it can be: with it unready, a Deployment of two would never be available.
        Standing::Standby { holder } => tracing::info!(holder, "standing by"),
        Standing::Leading => {}
    }
    shared.reporting.health.found(LEASE);
    shared.metrics.leads(*standing == Standing::Leading);
}

/// Reconciles until told to stop, then until what runs has ended and what it told is written, or not for ever.
async fn reconcile(work: Work, stop: &CancellationToken) {
    let Work {
        pools,
        jobs,
        told,
        writer,
    } = work;
    let end = CancellationToken::new();
    // Ends with this function, however that ends.
    let mut telling = JoinSet::new();
    telling.spawn(told.write(end.clone(), move |word| {
        let writer = writer.clone();
        async move { writer.write(word).await }
    }));
    let running = async {
        tokio::join!(pools.run(stop.clone()), jobs.run(stop.clone()));
        end.cancel();
        telling.join_next().await;
    };
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => return,
        () = stop.cancelled() => tracing::info!("stopping"),
    }
    if tokio::time::timeout(DRAIN, running).await.is_err() {
        tracing::warn!(
            "reconciles and events did not end in time; the next controller goes on with them"
        );
    }
}

/// Waits until both definitions are there (P24). No right to read definitions is needed: objects are listed.
async fn definitions(shared: &Shared) {
    let part = shared.settings.scope.parts().into_iter().next().flatten();
    for resource in [
        ApiResource::erase::<SGLangPool>(&()),
        ApiResource::erase::<RolloutJob>(&()),
    ] {
        let what = format!("definition {}.{}", resource.plural, resource.group);
        let api: Api<DynamicObject> = match &part {
            None => Api::all_with(shared.client.clone(), &resource),
            Some(namespace) => Api::namespaced_with(shared.client.clone(), namespace, &resource),
        };
        let mut told = false;
        while let Err(why) = listed(&api).await {
            if !told {
                tracing::warn!(
                    what,
                    why,
                    "waiting; the definitions come with `rollout-operator crds`"
                );
                told = true;
            }
            shared.reporting.health.missing(&what, why);
            tokio::time::sleep(LOOK).await;
        }
        shared.reporting.health.found(&what);
    }
}

async fn listed(api: &Api<DynamicObject>) -> Result<(), String> {
    let params = ListParams::default().limit(1);
    match tokio::time::timeout(LOOK_LIMIT, api.list(&params)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(super::error::words(&error)),
        Err(_) => Err("no answer from the API server".to_owned()),
    }
}
