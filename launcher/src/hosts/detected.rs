//! Options that nobody gave, from what started the launchers: `srun` or `mpirun` with one task per host, pods.

use torchrs_job::cluster::{ClusterHosts, ClusterTask, Surroundings};
use torchrs_rendezvous::driver::{DEFAULT_PORT, Endpoint};

use crate::cli::Options;
use crate::console::say;

/// Sets how many hosts there are, where they meet, and this one's place. What was given stays.
///
/// # Errors
/// Why the launchers cannot be those of one job, though several were started.
pub fn fill(options: &mut Options) -> Result<(), String> {
    let around = Surroundings::of_this_process();
    let detected = ClusterHosts::detect(&around);
    let Some(hosts) = detected.found else {
        // Several tasks that are not one for each host.
        return ClusterTask::from_env().map_or(Ok(()), |task| Err(refusal(&task)));
    };
    let met = options.rdzv_endpoint.is_some() || options.master_addr.is_some();
    if !met {
        let Some(host) = hosts.leader.clone() else {
            return Err(format!(
                "{} has started this launcher on one of {} hosts ({}) and does not say where they can meet: give all \
                 the same --rdzv-endpoint HOST:PORT, or --standalone if separate jobs are meant",
                hosts.starter,
                hosts.hosts,
                hosts.evidence()
            ));
        };
        let port = hosts.port.unwrap_or(DEFAULT_PORT);
        options.rdzv_endpoint = Some(Endpoint { host, port });
    }
    options.nnodes = Some((hosts.min_hosts as u32, hosts.hosts as u32));
    options.node_rank = options.node_rank.or(hosts.index.map(|index| index as u32));
    options.run_id = options.run_id.take().or(hosts.job_id.clone());
    if hosts.index.is_none_or(|index| index == 0) {
        say(&format!("torchrs-launch: {hosts}\n"));
        if let Some(hint) = &hosts.hint {
            say(&format!("torchrs-launch: {hint}\n"));
        }
    }
    Ok(())
}

fn refusal(task: &ClusterTask) -> String {
    format!(
        "{} has started this launcher as {} ({}), and not as the only one on its host: start one on each host (srun: \
         --ntasks-per-node 1), or say --standalone if separate jobs are meant",
        task.starter,
        task.place(),
        task.evidence()
    )
}
