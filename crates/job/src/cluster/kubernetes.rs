//! Pods of an Indexed Job, or of a JobSet, one launcher in each.
//!
//! Kubernetes tells a pod its number and nothing of the others: the manifest sets `PET_NNODES` to the number of
//! pods. The first pod's name follows from this pod's: `JOB-3` is number 3 of `JOB`. The manifest of a JobSet
//! with several jobs also sets `JOB_INDEX` and `PROCESSES_IN_JOB`.

use super::hosts::ClusterHosts;
use super::kubeflow::{Master, Nodes};
use super::meeting_port;
use super::surroundings::Surroundings;

const INDEX: &str = "JOB_COMPLETION_INDEX";
const API: &str = "KUBERNETES_SERVICE_HOST";
/// Of a JobSet: which of its jobs this is, and how many pods each has.
const JOB: &str = "JOB_INDEX";
const PODS: &str = "PROCESSES_IN_JOB";

/// What may be wrong where pods do not find each other.
const NO_SERVICE: &str = "pods have names for each other only by a headless service: a Service with \
                          `clusterIP: None` and `publishNotReadyAddresses: true`, whose name is the \
                          pods' `subdomain`";

/// This pod's place, where it is one of several of a job.
pub(super) fn hosts(around: &Surroundings<'_>, doubts: &mut Vec<String>) -> Option<ClusterHosts> {
    let Some(own) = around.number::<usize>(INDEX) else {
        // Every pod has the address of the API. Those of Kubeflow are told their places by other variables.
        let others = ["PET_NODE_RANK", "PET_RDZV_ENDPOINT", "MASTER_ADDR"];
        let api = around.text(API).filter(|_| around.first(&others).is_none());
        doubts.extend(api.map(|api| {
            format!("{API}={api} is set, but {INDEX} is not: this is a pod of no Indexed Job")
        }));
        return None;
    };
    let Some(nodes) = Nodes::told(around) else {
        // TrainJob's pods have both.
        doubts.push(format!(
            "{INDEX}={own} is set, but PET_NNODES is not a number of pods: Kubernetes does not tell \
             it, the manifest has to"
        ));
        return None;
    };
    let mut told_by = vec![format!("{INDEX}={own}"), nodes.told_by];
    let job = around.number::<usize>(JOB);
    let index = match (job, around.number::<usize>(PODS)) {
        (None, _) => own,
        (Some(job), Some(pods)) => {
            told_by.extend([format!("{JOB}={job}"), format!("{PODS}={pods}")]);
            job.saturating_mul(pods).saturating_add(own)
        }
        (Some(job), None) => {
            doubts.push(format!(
                "{JOB}={job} is set, but {PODS}, the number of pods in each job of the JobSet, is not"
            ));
            return None;
        }
    };
    if index >= nodes.most {
        let told = told_by.join(" and ");
        doubts.push(format!("{told} contradict each other: pods are 0 to {}", nodes.most - 1));
        return None;
    }
    let mut names = around.own_names();
    // A full name is found without a list of domains to search.
    names.sort_by_key(|name| !name.contains('.'));
    let first = names.iter().find_map(|name| FirstPod::beside(name, own, job));
    let master = Master::told(around);
    if first.is_none() && master.host.is_none() {
        doubts.push(format!(
            "{INDEX}={own} is set, but this host's name ({}) does not end with it, as a pod's does \
             unless it has `hostNetwork: true`: the first pod's name is not known; PET_MASTER_ADDR \
             says it",
            names.join(", ")
        ));
    }
    let is_short = first.as_ref().is_some_and(|first| !first.name.contains('.'));
    let (job_id, first) = first.map(|first| (first.job, first.name)).unzip();
    told_by.extend(master.told_by);
    Some(ClusterHosts {
        starter: "Kubernetes",
        hosts: nodes.most,
        min_hosts: nodes.least,
        index: Some(index),
        hint: (is_short && master.host.is_none()).then(|| NO_SERVICE.to_owned()),
        leader: master.host.or(first),
        port: master.port.or(job_id.as_deref().map(meeting_port)),
        job_id,
        told_by,
    })
}

/// The pod at which the others meet.
struct FirstPod {
    /// The name of the job, or of the JobSet and its part.
    job: String,
    name: String,
}

impl FirstPod {
    /// From the name of pod `own`, which is `JOB-OWN`, or `SET-JOB-OWN` in a JobSet; a domain may follow.
    fn beside(name: &str, own: usize, job: Option<usize>) -> Option<Self> {
        let end = name.find('.').unwrap_or(name.len());
        let (label, domain) = name.split_at(end);
        let stem = label.strip_suffix(&format!("-{own}"))?;
        let (stem, zeros) = match job {
            Some(job) => (stem.strip_suffix(&format!("-{job}"))?, "-0-0"),
            None => (stem, "-0"),
        };
        let name = format!("{stem}{zeros}{domain}");
        (!stem.is_empty()).then(|| FirstPod { job: stem.to_owned(), name })
    }
}
