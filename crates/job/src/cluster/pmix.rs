//! Starters that speak PMIx and set nothing else: `srun --mpi=pmix` outside of Slurm's own variables, `prterun` of a
//! program without Open MPI. How many tasks there are is told by the PMIx server, not by a variable.

use super::starter::Starter;

pub(super) const PMIX: Starter = Starter {
    name: "a PMIx launcher",
    rank: "PMIX_RANK",
    job_id: &["PMIX_NAMESPACE"],
    host: &["PMIX_HOSTNAME"],
    ..Starter::SILENT
};
