//! Pods of Kubeflow, one launcher in each: PyTorchJob (training operator, v1) and TrainJob (Kubeflow Trainer,
//! v2). Both set torchrun's `PET_` variables, which whoever else may set too.
//!
//! In a pod of a PyTorchJob `RANK` is the pod's number, and `WORLD_SIZE` the number of pods times the processes
//! of each.

use super::hosts::ClusterHosts;
use super::meeting_port;
use super::surroundings::Surroundings;
use crate::ranks::MAX_WORLD_SIZE;

/// `PET_NNODES`: `4`, or `2:4` for an elastic job.
pub(super) struct Nodes {
    pub least: usize,
    pub most: usize,
    pub told_by: String,
}

impl Nodes {
    pub(super) fn told(around: &Surroundings<'_>) -> Option<Self> {
        let text = around.text("PET_NNODES")?;
        let (least, most) = text.split_once(':').unwrap_or((&text, &text));
        let (least, most) = (least.parse().ok()?, most.parse().ok()?);
        let fits = 1 <= least && least <= most && most <= MAX_WORLD_SIZE;
        fits.then(|| Nodes { least, most, told_by: format!("PET_NNODES={text}") })
    }
}

/// Where to meet, by `PET_MASTER_ADDR` and `PET_MASTER_PORT`, or the same without `PET_`.
pub(super) struct Master {
    pub host: Option<String>,
    pub port: Option<u16>,
    pub told_by: Vec<String>,
}

impl Master {
    pub(super) fn told(around: &Surroundings<'_>) -> Self {
        let host = around.first(&["PET_MASTER_ADDR", "MASTER_ADDR"]);
        let port = around.first(&["PET_MASTER_PORT", "MASTER_PORT"]).filter(|_| host.is_some());
        let told = [&host, &port].into_iter().flatten();
        Master {
            told_by: told.map(|(name, value)| format!("{name}={value}")).collect(),
            host: host.map(|(_, host)| host),
            port: port.and_then(|(_, port)| port.parse().ok()).filter(|port| *port != 0),
        }
    }
}

/// This pod's place, where it is one of several.
pub(super) fn hosts(around: &Surroundings<'_>, doubts: &mut Vec<String>) -> Option<ClusterHosts> {
    let index = around.number::<usize>("PET_NODE_RANK");
    let endpoint = around.text("PET_RDZV_ENDPOINT");
    let Some(nodes) = Nodes::told(around) else {
        if let Some(text) = around.text("PET_NNODES") {
            doubts.push(format!(
                "PET_NNODES={text} is no number of hosts: it is N or MIN:MAX, from 1 to {MAX_WORLD_SIZE}"
            ));
        } else if let Some(index) = index {
            doubts.push(format!("PET_NODE_RANK={index} is set, but PET_NNODES is not"));
        }
        return old_pytorch_job(around);
    };
    let mut told_by = vec![nodes.told_by.clone()];
    let (leader, port) = match (index, &endpoint) {
        (Some(index), _) if index >= nodes.most => {
            let told = nodes.told_by;
            doubts.push(format!("PET_NODE_RANK={index} and {told} contradict each other"));
            return None;
        }
        // An elastic job's rendezvous gives the numbers.
        (_, Some(endpoint)) => {
            told_by.push(format!("PET_RDZV_ENDPOINT={endpoint}"));
            split_endpoint(endpoint)
        }
        (Some(_), None) => {
            let master = Master::told(around);
            told_by.extend(master.told_by);
            (master.host, master.port)
        }
        (None, None) => {
            let of_a_job = around.text("JOB_COMPLETION_INDEX").is_some();
            if nodes.most > 1 && !of_a_job {
                let told = nodes.told_by;
                doubts.push(format!(
                    "{told} is set, but neither PET_NODE_RANK nor PET_RDZV_ENDPOINT: this host's \
                     number is not known"
                ));
            }
            return None;
        }
    };
    told_by.extend(index.map(|index| format!("PET_NODE_RANK={index}")));
    // Without an id the place to meet stands for the job: no two jobs have the same at a time.
    let job_id = around.text("PET_RDZV_ID").or_else(|| leader.clone());
    let starter =
        match (around.text("JOB_COMPLETION_INDEX"), around.text("KUBERNETES_SERVICE_HOST")) {
            (Some(_), _) => "TrainJob",
            (None, Some(_)) => "PyTorchJob",
            (None, None) => "whoever set PET_ variables",
        };
    Some(ClusterHosts {
        starter,
        hosts: nodes.most,
        min_hosts: nodes.least,
        index,
        port: port.or(job_id.as_deref().map(meeting_port)),
        leader,
        job_id,
        hint: None,
        told_by,
    })
}

/// `host:29400`, `[::1]:29400`, or a host alone.
fn split_endpoint(endpoint: &str) -> (Option<String>, Option<u16>) {
    let (host, port) = match endpoint.rsplit_once(':') {
        // The colons of an address without a port.
        Some((host, _)) if host.contains(':') && !host.ends_with(']') => (endpoint, None),
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)),
        None => (endpoint, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ((!host.is_empty()).then(|| host.to_owned()), port)
}

/// The first training operators set no `PET_` variables. Their pods' names tell them from a worker whose rank
/// somebody set: `JOB-master-0` is rank 0 and `JOB-worker-2` rank 3.
fn old_pytorch_job(around: &Surroundings<'_>) -> Option<ClusterHosts> {
    around.text("KUBERNETES_SERVICE_HOST")?;
    let (rank, pods) = (around.number::<usize>("RANK")?, around.number::<usize>("WORLD_SIZE")?);
    let name = match rank.checked_sub(1) {
        None => "-master-0".to_owned(),
        Some(worker) => format!("-worker-{worker}"),
    };
    let own = around.own_names();
    let job = own.iter().find_map(|own| own.split('.').next()?.strip_suffix(&name))?;
    if rank >= pods || pods > MAX_WORLD_SIZE {
        return None;
    }
    let master = Master::told(around);
    let mut told_by = vec![format!("RANK={rank}"), format!("WORLD_SIZE={pods}")];
    told_by.extend(master.told_by);
    Some(ClusterHosts {
        starter: "PyTorchJob",
        hosts: pods,
        min_hosts: pods,
        index: Some(rank),
        leader: Some(master.host?),
        port: Some(master.port.unwrap_or_else(|| meeting_port(job))),
        job_id: Some(job.to_owned()),
        hint: None,
        told_by,
    })
}
