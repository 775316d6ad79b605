//! A launcher that was started once on each of several hosts: this host's place among them. Each kind of starter has a
//! file of its own; here is which of them counts.

use std::fmt;

use super::surroundings::{Detected, Surroundings};
use super::{ClusterTask, kubeflow, kubernetes};
use crate::ranks::MAX_WORLD_SIZE;

/// This host's place among the hosts of a job, for a launcher that was started on each of them: by `srun` or
/// `mpirun` with one task per host, or in a pod each.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterHosts {
    /// What started the launchers.
    pub starter: &'static str,
    /// How many hosts there are, or may be at most.
    pub hosts: usize,
    /// The number of hosts with which the job may run: below `hosts` for an elastic job.
    pub min_hosts: usize,
    /// This host's number. An elastic job gives it in its rendezvous.
    pub index: Option<usize>,
    /// A name of the host at which the launchers meet. A pod's name may be known to others only after a while. MPI's
    /// starters tell none.
    pub leader: Option<String>,
    /// The port there: one that is told, or [`meeting_port`](super::meeting_port) of the job's id.
    pub port: Option<u16>,
    /// What tells this job from others, the same on all hosts.
    pub job_id: Option<String>,
    /// What may be wrong where `leader` cannot be reached by its name.
    pub hint: Option<String>,
    /// The variables that were used, as `NAME=value`.
    pub(super) told_by: Vec<String>,
}

impl ClusterHosts {
    /// From the process's environment and its host's names. Nothing is found where there is one host only.
    /// Options of the launcher, where they are given, win over what it finds.
    ///
    /// Of several starters, one inside the other, it is the one of most hosts.
    ///
    /// ```
    /// use torchrs_job::cluster::{ClusterHosts, Surroundings};
    /// let variables = [
    ///     ("SLURM_JOB_ID", "2"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "2"),
    ///     ("SLURM_STEP_NUM_NODES", "2"), ("SLURM_STEP_NODELIST", "h[1-2]"), ("SLURMD_NODENAME", "h2"),
    /// ];
    /// let value = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
    /// let hosts = ClusterHosts::detect(&Surroundings::new(&value, &|| vec!["h2".into()])).found.unwrap();
    /// assert_eq!((hosts.hosts, hosts.index, hosts.leader.as_deref()), (2, Some(1), Some("h1")));
    /// assert_eq!(hosts.port, Some(61442));
    /// ```
    pub fn detect(around: &Surroundings<'_>) -> Detected<Self> {
        let Detected { found: task, mut doubts } = ClusterTask::detect(around);
        let all = [
            kubeflow::hosts(around, &mut doubts),
            task.and_then(|task| of_task(task).map_err(|why| doubts.push(why)).ok()),
            kubernetes::hosts(around, &mut doubts),
        ];
        // The first of those with the same number.
        let best = |best: Self, other: Self| if other.hosts > best.hosts { other } else { best };
        let several = all.into_iter().flatten().filter(|found| found.hosts > 1);
        Detected { found: several.reduce(best), doubts }
    }

    /// The variables that say so, as in `SLURM_PROCID=1, SLURM_STEP_NUM_TASKS=4`.
    pub fn evidence(&self) -> String {
        self.told_by.join(", ")
    }
}

/// All that was detected, and by what, on one line.
impl fmt::Display for ClusterHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.starter)?;
        match self.index {
            Some(index) => write!(f, "host {index} of ")?,
            None => f.write_str("one host of ")?,
        }
        match self.min_hosts {
            min if min < self.hosts => write!(f, "{min} to {}", self.hosts)?,
            _ => write!(f, "{}", self.hosts)?,
        }
        match (&self.leader, self.port) {
            (Some(leader), Some(port)) => write!(f, ", meeting at {leader} port {port}")?,
            (Some(leader), None) => write!(f, ", meeting at {leader}")?,
            _ => {}
        }
        if let Some(job) = &self.job_id {
            write!(f, ", job {job}")?;
        }
        write!(f, " ({})", self.evidence())
    }
}

/// The hosts of a launcher that is a task, if each host has one; else why it is no host's only task.
fn of_task(task: ClusterTask) -> Result<ClusterHosts, String> {
    let started = format!(
        "{} has started this launcher as {} ({})",
        task.starter,
        task.place(),
        task.evidence()
    );
    let Some(hosts) = task.size else {
        return Err(format!("{started}, and does not say how many tasks there are"));
    };
    // Beside hosts of several tasks there may be some of one.
    let all_have_one = task.nodes.is_none_or(|nodes| nodes == hosts);
    match task.local_size {
        _ if hosts > MAX_WORLD_SIZE => {
            return Err(format!("{started}: a job has at most {MAX_WORLD_SIZE}"));
        }
        Some(1) if all_have_one => {}
        Some(local) => {
            let several = task.nodes.filter(|nodes| *nodes > 1);
            let nodes = several.map(|nodes| format!(" on {nodes} hosts")).unwrap_or_default();
            return Err(format!(
                "{started}{nodes}, {local} of them on this host: start one on each host"
            ));
        }
        None => return Err(format!("{started}, and does not say how many are on this host")),
    }
    Ok(ClusterHosts {
        starter: task.starter,
        hosts,
        min_hosts: hosts,
        // The leader is number 0 of the hosts, and its task may have another number.
        index: task.nodes.and(task.node_rank).or(Some(task.rank)),
        port: task.meeting_port(),
        hint: None,
        leader: task.leader,
        job_id: task.job_id,
        told_by: task.told_by,
    })
}
