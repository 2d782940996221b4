//! A job in some state, from the spec that a user could write.

use k8s_openapi::jiff::Timestamp;
use rollout_operator::api::conditions::reasons;
use rollout_operator::api::job::{RolloutJobSpec, RolloutJobStatus};
use rollout_operator::plan::job::{
    AgentLife, AgentPod, DriverLife, DriverPod, Facts, Input, Observed, Plan, PoolView, Report,
    decide,
};
use rollout_operator::plan::pool::Trouble;
use serde_json::{Value, json};

/// Version of the operator.
pub(super) const VERSION: &str = "1.2.3";

/// Everything that a plan is made from.
pub(super) struct Scene {
    pub(super) spec: RolloutJobSpec,
    pub(super) before: RolloutJobStatus,
    pub(super) observed: Observed,
    pub(super) refusal: Option<Trouble>,
    pub(super) hindrance: Option<Trouble>,
    pub(super) deleted: bool,
    pub(super) held: bool,
    pub(super) now: i64,
}

impl Scene {
    /// A job that was just made, with a pool that takes work.
    pub(super) fn new(more: &Value) -> Self {
        let mut spec = json!({
            "poolRef": {"name": "pool"},
            "dataset": {"inline": [{"prompt": "One?"}]},
            "rollout": {"batchSize": 2},
            "generate": {"singleTurn": {}},
            "output": {"persistentVolumeClaim": {"claimName": "out"}},
        });
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        Self {
            spec: serde_json::from_value(spec).unwrap(),
            before: RolloutJobStatus::default(),
            observed: Observed {
                pool: PoolView::Ready(1),
                ..Observed::default()
            },
            refusal: None,
            hindrance: None,
            deleted: false,
            held: false,
            now: 0,
        }
    }

    /// One whose first driver generates.
    pub(super) fn running(more: &Value) -> Self {
        let mut scene = Self::new(more);
        scene.step();
        scene.held = true;
        scene.observed.drivers = vec![driver(1, DriverLife::Running)];
        scene.observed.report = Some(Report::default());
        scene.step();
        scene
    }

    pub(super) fn plan(&self) -> Plan {
        decide(&Input {
            name: "job",
            spec: &self.spec,
            before: &self.before,
            version: VERSION,
            generation: 1,
            created: Timestamp::UNIX_EPOCH,
            deletion: self.deleted.then(|| at(self.now)),
            is_held: self.held,
            refusal: self.refusal.as_ref(),
            hindrance: self.hindrance.as_ref(),
            observed: &self.observed,
            now: at(self.now),
        })
    }

    /// Takes over the status of the plan, as the controller does.
    pub(super) fn step(&mut self) -> Plan {
        let plan = self.plan();
        self.before = plan.status.clone();
        plan
    }

    pub(super) fn ends(&mut self, word: Option<&Value>) {
        let facts = word.map(|word| Facts::of_last_word(&word.to_string()).unwrap());
        self.observed.drivers[0].life = DriverLife::Ended(facts.map(Box::new));
        self.observed.report = None;
    }
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

pub(super) fn driver(attempt: i32, life: DriverLife) -> DriverPod {
    DriverPod {
        name: format!("job-driver-{attempt}"),
        uid: format!("driver-{attempt}"),
        attempt,
        version: Some(VERSION.to_owned()),
        address: Some("10.0.0.7".to_owned()),
        created: Timestamp::UNIX_EPOCH,
        leaving: None,
        is_disrupted: false,
        is_held: true,
        restarts: 0,
        crash: None,
        life,
        trouble: None,
    }
}

pub(super) fn agent(slot: u32, generation: u32, life: AgentLife) -> AgentPod {
    AgentPod {
        name: format!("job-agent-{slot}-{generation}"),
        uid: format!("agent-{slot}-{generation}"),
        attempt: 1,
        holder: (slot, generation),
        leaving: None,
        life,
        fault: None,
        trouble: None,
    }
}

pub(super) fn word(reason: &str, success: bool) -> Value {
    json!({"version": 1, "result": {"reason": reason, "message": "as told", "success": success}})
}

pub(super) fn trouble() -> Trouble {
    Trouble {
        reason: reasons::QUOTA_EXCEEDED,
        message: "exceeded quota".to_owned(),
    }
}

/// `type=status/reason` of each condition, but for those that are False as expected.
pub(super) fn conditions(status: &RolloutJobStatus) -> Vec<String> {
    let conditions = status.conditions.iter();
    conditions
        .filter(|condition| condition.status != "False" || condition.reason != reasons::AS_EXPECTED)
        .map(|condition| {
            format!(
                "{}={}/{}",
                condition.type_, condition.status, condition.reason
            )
        })
        .collect()
}

/// What a plan does, in words.
pub(super) fn acts(plan: &Plan) -> String {
    let mut acts = Vec::new();
    for (does, act) in [
        (plan.hold, "hold"),
        (plan.pool, "pool"),
        (plan.objects, "objects"),
        (plan.driver, "driver"),
        (plan.clear, "clear"),
        (plan.delete, "delete"),
    ] {
        if does {
            acts.push(act.to_owned());
        }
    }
    acts.extend(plan.stop.iter().map(|(name, _)| format!("stop {name}")));
    acts.extend(
        plan.release
            .iter()
            .map(|(name, _)| format!("release {name}")),
    );
    let agents = &plan.agents;
    acts.extend(
        agents
            .create
            .iter()
            .map(|(slot, generation)| format!("create {slot}-{generation}")),
    );
    acts.extend(
        agents
            .tell
            .keys()
            .map(|(slot, generation)| format!("tell {slot}-{generation}")),
    );
    acts.extend(
        agents
            .delete
            .iter()
            .map(|(name, _)| format!("delete {name}")),
    );
    acts.join(", ")
}
