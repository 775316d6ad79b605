//! Starters that speak PMI: MPICH's and Intel's Hydra, `srun --mpi=pmi2`, Cray's, PALS, MVAPICH. None names the host of
//! a rank: rank 0's address goes by PMI.

use super::starter::Starter;

/// Hydra and all that set PMI's own variables only. `srun --mpi=pmi2` sets them beside Slurm's.
pub(super) const HYDRA: Starter = Starter {
    name: "MPI's mpiexec",
    rank: "PMI_RANK",
    size: &["PMI_SIZE"],
    local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
    local_size: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    job_id: &["PMI_JOBID"],
    ..Starter::SILENT
};

/// HPE's (Cray's) PALS.
pub(super) const PALS: Starter = Starter {
    name: "PALS' mpiexec",
    rank: "PALS_RANKID",
    size: &["PALS_SIZE", "PMI_SIZE"],
    local_rank: &["PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"],
    local_size: &["PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"],
    node_rank: &["PALS_NODEID"],
    job_id: &["PALS_APID"],
    ..Starter::SILENT
};

/// MVAPICH2, whose Hydra has names of its own.
pub(super) const MVAPICH: Starter = Starter {
    name: "MVAPICH's mpirun",
    rank: "MV2_COMM_WORLD_RANK",
    size: &["MV2_COMM_WORLD_SIZE"],
    local_rank: &["MV2_COMM_WORLD_LOCAL_RANK"],
    local_size: &["MV2_COMM_WORLD_LOCAL_SIZE"],
    ..Starter::SILENT
};
