//! Why an output directory has no samples. Pure.

use std::path::Path;

use rollout_driver::output::{JobStamp, ResultEntry};

/// What is said, and whether it is no failure.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Nothing {
    pub(super) text: String,
    pub(super) ended_well: bool,
}

/// Why a directory without kept samples has none.
pub(super) fn of(
    directory: &Path,
    job: Option<&JobStamp>,
    result: Option<&ResultEntry>,
) -> Nothing {
    let directory = directory.display();
    let Some(JobStamp {
        namespace, name, ..
    }) = job
    else {
        return Nothing {
            text: format!("{directory} is no output directory: nothing in it is of a job"),
            ended_well: false,
        };
    };
    let job = format!("job {namespace}/{name}");
    let Some(ResultEntry { result, .. }) = result else {
        return Nothing {
            text: format!(
                "{directory}: no step of {job} is finished: it was interrupted, has crashed, or still runs; the same job started again goes on where it was"
            ),
            ended_well: false,
        };
    };
    Nothing {
        text: format!(
            "{directory}: {job} ended with {:?} and kept no samples: {}",
            result.reason, result.message
        ),
        ended_well: result.success,
    }
}
