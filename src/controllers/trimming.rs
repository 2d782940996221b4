//! What caches keep of objects that there are thousands of: what a look reads of them.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// Of a Pod: its metadata and status, its node, and of its containers names, resources and whether they start again.
///
/// Pods are made and deleted, never applied, so that nobody asks whose fields they are.
pub(super) fn pod(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    let Some(spec) = pod.spec.take() else { return };
    pod.spec = Some(PodSpec {
        node_name: spec.node_name,
        containers: spec.containers.into_iter().map(container).collect(),
        init_containers: spec
            .init_containers
            .map(|all| all.into_iter().map(container).collect()),
        ..PodSpec::default()
    });
}

fn container(whole: Container) -> Container {
    Container {
        name: whole.name,
        resources: whole.resources,
        restart_policy: whole.restart_policy,
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    #[test]
    fn a_pod_keeps_what_says_how_it_is() {
        let whole = json!({
            "metadata": {
                "name": "job-driver-1", "annotations": {"rollout-operator.dev/settings": "a1"}, "finalizers": ["f"],
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {
                "nodeName": "n1",
                "volumes": [{"name": "settings", "configMap": {"name": "job-driver-1"}}],
                "initContainers": [{"name": "router", "image": "i", "restartPolicy": "Always", "env": [{"name": "A", "value": "1"}]}],
                "containers": [{"name": "driver", "image": "i", "resources": {"limits": {"memory": "1Gi"}}, "args": ["driver"]}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        });
        let mut pod: Pod = serde_json::from_value(whole).unwrap();
        super::pod(&mut pod);
        assert_eq!(
            json!(pod),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "job-driver-1", "annotations": {"rollout-operator.dev/settings": "a1"}, "finalizers": ["f"],
                },
                "spec": {
                    "nodeName": "n1",
                    "initContainers": [{"name": "router", "restartPolicy": "Always"}],
                    "containers": [{"name": "driver", "resources": {"limits": {"memory": "1Gi"}}}],
                },
                "status": {"phase": "Running", "podIP": "10.0.0.1"},
            })
        );
    }
}
