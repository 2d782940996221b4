//! What a controller costs that has nothing to do, and what it does when it starts anew.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::audit::{self, Audit, End};
use crate::controller::Controller;
use crate::node::Played;
use crate::population::Population;
use crate::{count, plane};

/// Nothing is written for so long: it has settled.
const A_WHILE: Duration = Duration::from_secs(15);

pub(crate) async fn run(settled: bool, restart: bool) {
    let client = plane::client().await;
    let mut controller = Controller::leading().await;
    let _node = Played::new(&client).await;
    let population = Population::of(count("BENCH_JOBS", 1_000), count("BENCH_POOLS", 100));
    let audit = Audit::from_now();
    let started = Instant::now();
    population.make(&client).await;
    audit.quiet(A_WHILE).await;
    let Population {
        pools,
        finished,
        suspended,
        waiting,
    } = population;
    println!(
        "{} jobs ({finished} ended, {suspended} suspended, {waiting} with a driver that no node takes), {pools} pools of one engine: \
         there after {:.0} s, {} writes",
        population.jobs(),
        started.elapsed().as_secs_f64(),
        audit::count(&audit.writes(), End::Written),
    );
    let (now, peak) = controller.mebibytes();
    println!("  the controller that made them: {now:.0} MiB, at its highest {peak:.0} MiB");
    if settled {
        quiet(&controller).await;
    }
    if restart {
        controller = again(controller, population, Signal::SIGTERM).await;
        quiet(&controller).await;
        controller = again(controller, population, Signal::SIGKILL).await;
    }
    controller.end(Signal::SIGTERM).await;
}

/// A while in which nothing happens.
async fn quiet(controller: &Controller) {
    let seconds = count("BENCH_SECONDS", 60);
    let audit = Audit::from_now();
    let (before, cpu) = (controller.figures().await, controller.cpu());
    let from = Instant::now();
    tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
    let cpu = (controller.cpu() - cpu).total().as_secs_f64() / from.elapsed().as_secs_f64();
    let after = controller.figures().await;
    let writes = audit.writes();
    let (now, peak) = controller.mebibytes();
    let looks = |kind| after.reconciles(kind) - before.reconciles(kind);
    println!(
        "  settled: {} writes in {seconds} s, {:.2} % of a core, {now:.0} MiB (at its highest {peak:.0}); {} looks at jobs, {} at pools, {} reads",
        writes.len(),
        cpu * 100.0,
        looks(crate::controller::JOB),
        looks(crate::controller::POOL),
        after.calls("get") - before.calls("get"),
    );
    if !writes.is_empty() {
        println!("    {:?}", audit::by_kind(&writes, End::Written));
    }
}

async fn again(controller: Controller, population: Population, signal: Signal) -> Controller {
    controller.end(signal).await;
    let audit = Audit::from_now();
    let started = Instant::now();
    let controller = Controller::start();
    let led = async {
        plane::until("it leads", async || controller.figures().await.leads()).await;
        started.elapsed()
    };
    let led = led.await;
    let took = controller
        .all_reconciled(population.jobs(), population.pools, started)
        .await;
    let cpu = controller.cpu().total();
    audit.quiet(A_WHILE).await;
    let figures = controller.figures().await;
    let writes = audit.writes();
    let objects = population.jobs() + population.pools;
    let (now, peak) = controller.mebibytes();
    println!(
        "  restart after {signal}: leads after {:.1} s, all reconciled after {:.1} s ({:.1} s of CPU); {} writes and {} reads for {objects} objects, \
         {} pages of lists; {} looks at jobs, {} at pools, {} failed; {now:.0} MiB, at its highest {peak:.0}",
        led.as_secs_f64(),
        took.as_secs_f64(),
        cpu.as_secs_f64(),
        writes.len(),
        figures.calls("get"),
        figures.calls("list"),
        figures.reconciles(crate::controller::JOB),
        figures.reconciles(crate::controller::POOL),
        figures.failed_reconciles(),
    );
    if !writes.is_empty() {
        println!(
            "    written {:?}, refused {:?}",
            audit::by_kind(&writes, End::Written),
            audit::by_kind(&writes, End::Refused)
        );
    }
    controller
}
