//! Slurm: the tasks of `srun`. A shell in an allocation has most of the same variables and is no task.
//!
//! `SLURM_LAUNCH_NODE_IPADDR` is not read: it is the host of `srun` itself, often a login node.

use super::ClusterTask;
use super::names::is_same_host;
use super::node_list::{TaskCounts, expand_node_list, shortened};
use super::starter::Starter;
use super::surroundings::Surroundings;

pub(super) const SRUN: Starter = Starter {
    name: "srun",
    rank: "SLURM_PROCID",
    size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
    local_rank: &["SLURM_LOCALID"],
    node_rank: &["SLURM_NODEID"],
    nodes: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES"],
    host: &["SLURMD_NODENAME"],
    ..Starter::SILENT
};

const JOB: [&str; 2] = ["SLURM_JOB_ID", "SLURM_JOBID"];
const STEP: [&str; 2] = ["SLURM_STEP_ID", "SLURM_STEPID"];
/// The hosts of the step, or of the job where Slurm does not tell the step's.
const LIST: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
const TASKS: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];

/// Slurm numbers the steps that are no tasks of srun from here on: the batch script, the interactive shell
/// of an allocation, its external container.
const FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

/// The task of srun that this process is.
pub(super) fn task(around: &Surroundings<'_>, doubts: &mut Vec<String>) -> Option<ClusterTask> {
    let step = step(around).map_err(|why| doubts.extend(why)).ok()?;
    let mut task = SRUN.task(around, doubts)?;
    task.job_id = around.first(&JOB).map(|(_, job)| format!("{job}.{step}"));
    // SLURM_NODEID may be left from the batch script's shell, where it is 0.
    if task.has_one_task_per_host() {
        task.node_rank = Some(task.rank);
    }
    match first_host(around, &task) {
        // The list's order is that of the hosts' numbers. With tasks laid out by hand (-m arbitrary) task 0 is
        // not always on the first of them.
        Ok(Some((leader, place))) => {
            task.leader = Some(leader);
            task.node_rank = place.or(task.node_rank);
        }
        Ok(None) => {}
        Err(Wrong::Hosts(why)) => {
            doubts.push(why);
            return None;
        }
        Err(Wrong::List(why)) => doubts.push(format!("{why}; the first host is not known")),
    }
    if task.local_size.is_none() {
        task.local_size = tasks_on_this_host(around, &task).unwrap_or_else(|why| {
            doubts.push(format!("{why}; the number of tasks on this host is not known"));
            None
        });
    }
    task.own_gpus = own_gpus(around);
    for names in [&LIST[..], &JOB] {
        let told = around.first(names).map(|(name, text)| format!("{name}={}", shortened(&text)));
        task.told_by.extend(told);
    }
    task.conclude();
    Some(task)
}

/// The step that srun made, or why this process is in none, which is nothing to speak of outside of Slurm.
fn step(around: &Surroundings<'_>) -> Result<u64, Option<String>> {
    let job = around.first(&JOB);
    let rank = around.first(&[SRUN.rank]);
    let step = around.first(&STEP);
    let set = |variable: &Option<(&str, String)>| {
        variable.as_ref().map(|(name, value)| format!("{name}={value}"))
    };
    match (&step, &rank) {
        (None, None) => Err(set(&job).map(|job| {
            format!(
                "{job} is set, but SLURM_STEP_ID and SLURM_PROCID are not: this is a shell beside \
                 the job (of salloc, or by ssh), and srun has not started it"
            )
        })),
        (None, Some(_)) => Err(set(&rank).map(|rank| {
            format!(
                "{rank} is set, but SLURM_STEP_ID is not: this is the batch script's own shell, or \
                 its variables came along; srun starts tasks"
            )
        })),
        (Some(_), None) => Err(set(&step).map(|step| {
            format!("{step} is set, but SLURM_PROCID is not: srun sets both for a task")
        })),
        (Some((name, id)), Some(_)) => match id.parse::<u64>() {
            Ok(id) if id < FIRST_SPECIAL_STEP => Ok(id),
            Ok(id) => Err(Some(format!(
                "{name}={id} is no step of tasks: it is the batch script, or the interactive shell \
                 of an allocation"
            ))),
            Err(_) => Err(Some(format!("{name}={} is no number", shortened(id)))),
        },
    }
}

enum Wrong {
    /// The list is not of this host.
    Hosts(String),
    /// The list does not say who is first.
    List(String),
}

/// The first host of the step's list, and this host's place in it where this host's names are known.
fn first_host(
    around: &Surroundings<'_>,
    task: &ClusterTask,
) -> Result<Option<(String, Option<usize>)>, Wrong> {
    let Some((name, list)) = around.first(&LIST) else { return Ok(None) };
    let shown = format!("{name}={}", shortened(&list));
    let hosts = expand_node_list(&list)
        .map_err(|why| Wrong::List(format!("{shown} is no list of hosts: {why}")))?;
    let own = around.text("SLURMD_NODENAME").map_or_else(|| around.own_names(), |own| vec![own]);
    let place = hosts.iter().position(|host| own.iter().any(|own| is_same_host(own, host)));
    if place.is_none() && !own.is_empty() {
        return Err(Wrong::Hosts(format!(
            "{shown} does not name this host, {}: the variables are of another host or step",
            own.join(", ")
        )));
    }
    if let Some(nodes) = task.nodes.filter(|nodes| *nodes != hosts.len()) {
        return Err(Wrong::List(format!("{shown} names {} hosts of {nodes}", hosts.len())));
    }
    Ok(hosts.into_iter().next().map(|first| (first, place)))
}

/// By `2(x3),1`: with tasks that do not divide evenly each host has its own number.
fn tasks_on_this_host(
    around: &Surroundings<'_>,
    task: &ClusterTask,
) -> Result<Option<usize>, String> {
    let Some(((name, text), node)) = around.first(&TASKS).zip(task.node_rank) else {
        return Ok(None);
    };
    let shown = format!("{name}={}", shortened(&text));
    let counts = TaskCounts::parse(&text).map_err(|why| format!("{shown}: {why}"))?;
    if task.size.is_some_and(|size| size != counts.tasks)
        || task.nodes.is_some_and(|nodes| nodes != counts.hosts)
    {
        return Err(format!("{shown} is not of this step: {}", task.evidence()));
    }
    let own = counts.on(node);
    if own.zip(task.local_rank).is_some_and(|(own, local)| local >= own) {
        return Err(format!("{shown} has no place for SLURM_LOCALID on host {node}"));
    }
    Ok(own)
}

/// With `--gpus-per-task` a task sees its own GPUs only, and their numbers begin at 0 in every task.
fn own_gpus(around: &Surroundings<'_>) -> Option<usize> {
    // `2`, `a100:2`; among others in `cpu=4,gres/gpu:2` or `gres/gpu:a100=2`.
    let last_number = |text: &str| text.rsplit([':', '=']).next()?.parse::<usize>().ok();
    let asked = around.text("SLURM_GPUS_PER_TASK").and_then(|text| last_number(&text));
    let asked = asked.or_else(|| {
        let all = around.text("SLURM_TRES_PER_TASK")?;
        all.split(',').filter(|one| one.contains("gres/gpu")).find_map(last_number)
    })?;
    let visible = around.text("CUDA_VISIBLE_DEVICES")?.split(',').count();
    // With --gpu-bind=none all are visible.
    (visible == asked).then_some(visible)
}
