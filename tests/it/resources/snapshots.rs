//! The objects as YAML. They are reviewed like code, and are what the real API server is asked about.

use rollout_operator::resources::Object;

use super::{spec_job, spec_pool};

/// Several documents of YAML, as `kubectl apply` takes them.
fn yaml(objects: &[Object]) -> String {
    let documents = objects
        .iter()
        .map(|object| serde_yaml::to_string(&object.value).unwrap());
    documents.collect::<Vec<_>>().join("---\n")
}

macro_rules! pools {
    ($($test:ident: $name:literal,)*) => {$(
        #[test]
        fn $test() {
            let objects = spec_pool($name).pool_objects().unwrap().into_objects();
            insta::assert_snapshot!(concat!("pool-", $name), yaml(&objects));
        }
    )*};
}

pools! {
    a_pool_with_its_model_on_a_volume: "from-claim",
    a_pool_with_its_model_in_an_image: "from-image",
    a_pool_with_its_model_on_a_hub: "from-hub",
    a_pool_of_simulated_engines: "simulated",
    a_pool_of_engines_that_run_already: "outside",
}

macro_rules! jobs {
    ($($test:ident: $name:literal,)*) => {$(
        #[test]
        fn $test() {
            insta::assert_snapshot!(concat!("job-", $name), yaml(&spec_job($name).all()));
        }
    )*};
}

jobs! {
    a_job_with_everything: "everything",
    a_job_with_a_container_and_a_sandbox: "any-harness",
    a_job_with_its_own_pool: "own-pool",
}
