//! The quickstart as README has it: the chart, then a directory of examples applied unchanged, then its samples.

use super::tools::{file, helm_install, kubectl, nothing_installed, object};

#[tokio::test]
async fn the_quickstart_ends_with_samples() {
    nothing_installed().await;
    helm_install(&[]).await;
    kubectl(&["apply", "-f", &file("examples/quickstart")]).await;
    kubectl(&[
        "wait",
        "--for=condition=Complete",
        "rj/quickstart",
        "--timeout=150s",
    ])
    .await;
    let job = object(&["rj/quickstart"]).await;
    let status = &job["status"];
    assert_eq!(status["phase"], "Succeeded", "{status}");
    assert_eq!(status["progress"]["groups"]["kept"], 8, "{status}");
    assert_eq!(status["output"]["samples"], 32, "{status}");

    kubectl(&["apply", "-f", &file("examples/show-samples")]).await;
    kubectl(&[
        "wait",
        "--for=jsonpath={.status.phase}=Succeeded",
        "pod/quickstart-samples",
        "--timeout=60s",
    ])
    .await;
    let said = kubectl(&["logs", "quickstart-samples", "--all-containers"]).await;
    assert!(
        said.contains("the samples of job default/quickstart, attempt 1 are sound"),
        "{said}"
    );
    assert!(said.contains("31 more; --limit 0 prints all"), "{said}");
    assert!(said.contains("\\boxed{"), "{said}");

    // The job goes, its samples stay until their claim goes.
    kubectl(&["delete", "-f", &file("examples/show-samples")]).await;
    kubectl(&["delete", "rj/quickstart", "--timeout=60s"]).await;
    let claim = object(&["pvc/quickstart-samples"]).await;
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    kubectl(&[
        "delete",
        "--ignore-not-found",
        "--timeout=90s",
        "-f",
        &file("examples/quickstart"),
    ])
    .await;
    nothing_installed().await;
}
