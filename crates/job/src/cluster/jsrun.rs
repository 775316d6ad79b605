//! `jsrun` of IBM's Spectrum LSF.

use super::starter::Starter;

pub(super) const JSRUN: Starter = Starter {
    name: "jsrun",
    rank: "JSM_NAMESPACE_RANK",
    size: &["JSM_NAMESPACE_SIZE"],
    local_rank: &["JSM_NAMESPACE_LOCAL_RANK"],
    local_size: &["JSM_NAMESPACE_LOCAL_SIZE"],
    job_id: &["LSB_JOBID"],
    ..Starter::SILENT
};
