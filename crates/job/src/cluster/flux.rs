//! Flux: `flux run`.

use super::starter::Starter;

pub(super) const FLUX: Starter = Starter {
    name: "flux run",
    rank: "FLUX_TASK_RANK",
    size: &["FLUX_JOB_SIZE"],
    local_rank: &["FLUX_TASK_LOCAL_ID"],
    nodes: &["FLUX_JOB_NNODES"],
    job_id: &["FLUX_JOB_ID"],
    ..Starter::SILENT
};
