//! Why an output directory has no samples. Pure.
//!
//! None is ever fine: a job that reached its target kept some.

use std::path::Path;

use rollout_driver::output::{JobStamp, ResultEntry};

/// Why a directory without kept samples has none.
pub(super) fn of(directory: &Path, job: Option<&JobStamp>, result: Option<&ResultEntry>) -> String {
    let directory = directory.display();
    let Some(JobStamp {
        namespace, name, ..
    }) = job
    else {
        return format!("{directory} is no output directory: nothing in it is of a job");
    };
    let job = format!("job {namespace}/{name}");
    let Some(ResultEntry { result, .. }) = result else {
        return format!(
            "{directory}: no step of {job} is finished: it was interrupted, has crashed, or still runs; the same job started again goes on where it was"
        );
    };
    format!(
        "{directory}: {job} ended with {:?} and kept no samples: {}",
        result.reason, result.message
    )
}
