//! Open MPI's `mpirun`, versions 4 and 5. It names the host of no rank: rank 0's address goes by MPI.

use super::starter::Starter;

/// `OMPI_COMM_WORLD_NODE_RANK` is no number of a host: it counts the processes of all jobs on one.
pub(super) const OPEN_MPI: Starter = Starter {
    name: "Open MPI's mpirun",
    rank: "OMPI_COMM_WORLD_RANK",
    size: &["OMPI_COMM_WORLD_SIZE"],
    local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    // The second where the PMIx of version 4 does not tell it.
    job_id: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    host: &["PMIX_HOSTNAME"],
    ..Starter::SILENT
};
