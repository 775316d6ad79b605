//! Real environments, as Slurm 22.05, Open MPI 4.1, MPICH 4.0 and Kubernetes' jobs set them, and what is to be found in
//! them; and each known trap, by its name.

use std::ffi::OsString;

use proptest::prelude::*;

use super::*;

/// `ask` in an environment of `NAME=value` words, on a host of these names.
fn with<T>(variables: &str, names: &[&str], ask: impl Fn(&Surroundings<'_>) -> T) -> T {
    let value = |name: &str| {
        let mut pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
        // What is said last is in force.
        pairs.rfind(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
    };
    let names = || names.iter().map(|name| (*name).to_owned()).collect();
    ask(&Surroundings::new(&value, &names))
}

fn task(variables: &str, names: &[&str]) -> Detected<ClusterTask> {
    with(variables, names, ClusterTask::detect)
}

fn hosts(variables: &str, names: &[&str]) -> Detected<ClusterHosts> {
    with(variables, names, ClusterHosts::detect)
}

/// A task without a doubt.
#[track_caller]
fn sure_task(variables: &str, names: &[&str]) -> ClusterTask {
    let detected = task(variables, names);
    assert_eq!(detected.doubts, Vec::<String>::new(), "{variables}");
    detected.found.unwrap_or_else(|| panic!("nothing in {variables}"))
}

#[track_caller]
fn sure_hosts(variables: &str, names: &[&str]) -> ClusterHosts {
    let detected = hosts(variables, names);
    assert_eq!(detected.doubts, Vec::<String>::new(), "{variables}");
    detected.found.unwrap_or_else(|| panic!("nothing in {variables}"))
}

/// Nothing, for a reason that has these words.
#[track_caller]
fn no_task(variables: &str, names: &[&str], why: &str) {
    let detected = task(variables, names);
    assert_eq!(detected.found, None, "{variables}");
    assert!(detected.doubts.iter().any(|doubt| doubt.contains(why)), "{:?}", detected.doubts);
}

#[track_caller]
fn no_hosts(variables: &str, names: &[&str], why: &str) {
    let detected = hosts(variables, names);
    assert_eq!(detected.found, None, "{variables}");
    assert!(detected.doubts.iter().any(|doubt| doubt.contains(why)), "{:?}", detected.doubts);
}

/// Of `srun -N 2 --ntasks-per-node 2`, but for what tells tasks from each other.
const SRUN: &str = "SLURM_JOB_ID=2 SLURM_JOBID=2 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_NTASKS=4 \
    SLURM_NPROCS=4 SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=4 \
    SLURM_NTASKS_PER_NODE=2 SLURM_TASKS_PER_NODE=2(x2) SLURM_STEP_TASKS_PER_NODE=2(x2) \
    SLURM_JOB_NODELIST=h[1-2] SLURM_NODELIST=h[1-2] SLURM_STEP_NODELIST=h[1-2] SLURM_CPUS_ON_NODE=2 \
    SLURM_JOB_CPUS_PER_NODE=2(x2) SLURM_LAUNCH_NODE_IPADDR=10.77.0.9 SLURM_SRUN_COMM_HOST=10.77.0.9 \
    SLURM_SRUN_COMM_PORT=40001 SLURM_STEP_LAUNCHER_PORT=40002 SLURM_SUBMIT_HOST=login \
    SLURM_CLUSTER_NAME=lab SLURM_TOPOLOGY_ADDR=h1 SLURM_UMASK=0022";

/// Of `srun -N 2` with a launcher on each.
const SRUN_HOSTS: &str = "SLURM_JOB_ID=2 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_NNODES=2 \
    SLURM_STEP_NUM_NODES=2 SLURM_STEP_NUM_TASKS=2 SLURM_TASKS_PER_NODE=1(x2) \
    SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=h[1-2] SLURM_LAUNCH_NODE_IPADDR=10.77.0.9";

/// What a batch script's own shell has of these.
const BATCH: &str = "SLURM_JOB_ID=2 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4 \
    SLURM_NNODES=2 SLURM_TASKS_PER_NODE=2(x2) SLURM_JOB_NODELIST=h[1-2] SLURMD_NODENAME=h1";

/// Of `mpirun --host h1:2,h2:2` of Open MPI 4.
const OPEN_MPI: &str = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_UNIVERSE_SIZE=4 \
    OMPI_COMMAND=./train OMPI_MCA_ess_base_jobid=2573729793 PMIX_NAMESPACE=2573729793 PMIX_VERSION=4.2.2 \
    OMPI_MCA_orte_hnp_uri=2573729792.0;tcp://10.77.0.1:48551";

#[test]
fn tasks_of_srun_know_their_place() {
    for (rank, local, node) in [(0, 0, 0), (1, 1, 0), (2, 0, 1), (3, 1, 1)] {
        let host = format!("h{}", node + 1);
        let own = format!(
            "{SRUN} SLURM_PROCID={rank} SLURM_LOCALID={local} SLURM_NODEID={node} SLURMD_NODENAME={host}"
        );
        let task = sure_task(&own, &[&host]);
        assert_eq!((task.starter, task.rank, task.size), ("srun", rank, Some(4)));
        assert_eq!((task.local_rank, task.local_size), (Some(local), Some(2)));
        assert_eq!(
            (task.node_rank, task.nodes, task.on_one_host),
            (Some(node), Some(2), Some(false))
        );
        assert_eq!((task.leader.as_deref(), task.job_id.as_deref()), (Some("h1"), Some("2.0")));
        assert_eq!(task.meeting_port(), Some(61_442));
        assert_eq!(sure_task(&own, &[]), task);
    }
    let own = format!("{SRUN} SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=h2");
    assert_eq!(
        sure_task(&own, &["h2.lab.org"]).to_string(),
        "srun: task 3 of 4, local rank 1 of 2, host 1 of 2, first host h1, job 2.0 (SLURM_PROCID=3, \
         SLURM_STEP_NUM_TASKS=4, SLURM_LOCALID=1, SLURM_NODEID=1, SLURM_STEP_NUM_NODES=2, \
         SLURM_STEP_NODELIST=h[1-2], SLURM_JOB_ID=2)"
    );
    no_hosts(&own, &["h2"], "start one on each host");
}

#[test]
fn one_task_per_node_is_a_host_for_a_launcher() {
    for (rank, host) in [(0, "h1"), (1, "h2")] {
        let own = format!(
            "{SRUN_HOSTS} SLURM_PROCID={rank} SLURM_LOCALID=0 SLURM_NODEID={rank} SLURMD_NODENAME={host}"
        );
        let found = sure_hosts(&own, &[host]);
        assert_eq!((found.hosts, found.min_hosts, found.index), (2, 2, Some(rank)));
        assert_eq!((found.leader.as_deref(), found.port), (Some("h1"), Some(61_442)));
        let line = format!(
            "srun: host {rank} of 2, meeting at h1 port 61442, job 2.0 (SLURM_PROCID={rank}, "
        );
        assert!(found.to_string().starts_with(&line), "{found}");
        let task = sure_task(&own, &[host]);
        assert_eq!(
            (task.local_rank, task.local_size, task.node_rank),
            (Some(0), Some(1), Some(rank))
        );
    }
}

#[test]
fn uneven_tasks_per_node_give_each_node_its_own_number() {
    let step = "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=5 SLURM_STEP_NUM_NODES=3 \
                SLURM_STEP_TASKS_PER_NODE=2(x2),1 SLURM_STEP_NODELIST=n[09-10],m";
    for (rank, local, node, host, size) in
        [(0, 0, 0, "n09", 2), (3, 1, 1, "n10", 2), (4, 0, 2, "m", 1)]
    {
        let own = format!(
            "{step} SLURM_PROCID={rank} SLURM_LOCALID={local} SLURM_NODEID={node} SLURMD_NODENAME={host}"
        );
        let task = sure_task(&own, &[host]);
        assert_eq!((task.local_size, task.node_rank), (Some(size), Some(node)), "{rank}");
        assert_eq!(task.leader.as_deref(), Some("n09"));
        // The only task of its host is no host's launcher while others have two.
        no_hosts(&own, &[host], "on 3 hosts");
    }
}

#[test]
fn with_a_cyclic_distribution_slurms_local_rank_counts() {
    // Task 1 is the first on the second node, task 2 the second on the first.
    for (rank, local, node) in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)] {
        let own = format!(
            "{SRUN} SLURM_DISTRIBUTION=cyclic SLURM_PROCID={rank} SLURM_LOCALID={local} \
             SLURM_NODEID={node} SLURMD_NODENAME=h{}",
            node + 1
        );
        let task = sure_task(&own, &[]);
        assert_eq!((task.local_rank, task.local_size), (Some(local), Some(2)), "{rank}");
        assert_eq!((task.node_rank, task.leader.as_deref()), (Some(node), Some("h1")), "{rank}");
    }
}

/// As Slurm 22.05 does: the list is sorted, whatever the hosts' order was.
#[test]
fn with_tasks_laid_out_by_hand_the_lists_order_numbers_the_hosts() {
    // -m arbitrary with the hosts h3, h1, h3.
    let step = "SLURM_JOB_ID=6 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NUM_NODES=2 \
                SLURM_STEP_NODELIST=h[1,3] SLURM_STEP_TASKS_PER_NODE=1,2";
    for (rank, local, node, host, size) in
        [(0, 0, 1, "h3", 2), (1, 0, 0, "h1", 1), (2, 1, 1, "h3", 2)]
    {
        let own = format!(
            "{step} SLURM_PROCID={rank} SLURM_LOCALID={local} SLURM_NODEID={node} SLURMD_NODENAME={host}"
        );
        let task = sure_task(&own, &[host]);
        assert_eq!((task.node_rank, task.local_size), (Some(node), Some(size)), "{rank}");
        assert_eq!(task.leader.as_deref(), Some("h1"));
    }
    // With h2, h1 and a launcher on each.
    for (rank, node, host) in [(0, 1, "h2"), (1, 0, "h1")] {
        let own = format!(
            "{SRUN_HOSTS} SLURM_PROCID={rank} SLURM_LOCALID=0 SLURM_NODEID={node} SLURMD_NODENAME={host}"
        );
        let found = sure_hosts(&own, &[host]);
        assert_eq!((found.index, found.leader.as_deref()), (Some(node), Some("h1")));
    }
}

/// jax#30073.
#[test]
fn trap_partial_slurm_variables_after_ssh_do_not_count() {
    let all = format!("{SRUN} SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURMD_NODENAME=h1");
    no_task("SLURM_JOB_ID=2", &["h1"], "a shell beside the job");
    no_task("SLURM_JOB_ID=2 SLURM_NTASKS=4 SLURM_NNODES=2", &["h1"], "SLURM_JOB_ID=2 is set, but");
    no_task(&all, &["login"], "SLURMD_NODENAME=h1 is another host than this, which is login");
    no_hosts(&all, &["login"], "ssh");
    let step_only = "SLURM_JOB_ID=2 SLURM_STEP_ID=0 SLURM_NTASKS=4";
    no_task(step_only, &["h1"], "SLURM_STEP_ID=0 is set, but SLURM_PROCID is not");
    let no_name = all.replace("SLURMD_NODENAME", "X");
    no_task(&no_name, &["h3"], "SLURM_STEP_NODELIST=h[1-2] does not name this host, h3");
    assert_eq!(sure_task(&no_name, &["h1"]).rank, 1);
    no_task(&all.replace("h[1-2]", "h[2-3]"), &["h1"], "does not name this host, h1");
    no_task(&all.replace("h[1-2]", "h[2-3]"), &[], "does not name this host, h1");
}

#[test]
fn trap_a_batch_scripts_own_shell_is_no_task() {
    no_task(
        BATCH,
        &["h1"],
        "SLURM_PROCID=0 is set, but SLURM_STEP_ID is not: this is the batch script",
    );
    no_hosts(BATCH, &["h1"], "batch script");
    let interactive = format!("{BATCH} SLURM_STEP_ID=4294967290");
    no_task(&interactive, &["h1"], "SLURM_STEP_ID=4294967290 is no step of tasks");
    no_task(&format!("{BATCH} SLURM_STEP_ID=x"), &["h1"], "SLURM_STEP_ID=x is no number");
    // A step of one in it is alone, and nothing to speak of.
    let alone = task(&format!("{BATCH} SLURM_STEP_ID=3 SLURM_STEP_NUM_TASKS=1"), &["h1"]);
    assert_eq!(alone, Detected { found: None, doubts: Vec::new() });
}

/// dmlcloud#39.
#[test]
fn trap_tasks_per_node_are_written_as_runs() {
    let own =
        format!("{SRUN_HOSTS} SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURMD_NODENAME=h2");
    assert!(own.contains("SLURM_STEP_TASKS_PER_NODE=1(x2)"));
    assert_eq!(sure_task(&own, &["h2"]).local_size, Some(1));
    // What cannot be read, or is another step's, costs the number and not the rank.
    let step = format!("{SRUN} SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=h2");
    for (counts, why) in [
        ("2(y2)", "is not written like"),
        ("2(x3)", "is not of this step"),
        ("3,1", "no place for SLURM_LOCALID"),
    ] {
        let other = format!("{step} SLURM_STEP_TASKS_PER_NODE={counts}");
        let Detected { found, doubts } = task(&other, &["h2"]);
        let task = found.unwrap();
        assert_eq!((task.rank, task.local_rank, task.local_size), (3, Some(1), None), "{counts}");
        assert!(doubts[0].contains(why), "{doubts:?}");
    }
}

/// pith-train#47.
#[test]
fn trap_the_launch_node_is_not_the_first_host() {
    let own =
        format!("{SRUN_HOSTS} SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME=h1");
    assert!(own.contains("SLURM_LAUNCH_NODE_IPADDR=10.77.0.9"));
    assert_eq!(sure_hosts(&own, &["h1"]).leader.as_deref(), Some("h1"));
    // Without a list nobody is first, for all that the launching host is known.
    let none = own.replace("SLURM_STEP_NODELIST", "X");
    assert_eq!(sure_hosts(&none, &["h1"]).leader, None);
}

/// jax#28194.
#[test]
fn trap_gpus_per_task_hide_other_gpus() {
    let own = format!("{SRUN} SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURMD_NODENAME=h1");
    let gpus = |more: &str| sure_task(&format!("{own} {more}"), &["h1"]).own_gpus;
    assert_eq!(gpus("SLURM_GPUS_PER_TASK=1 CUDA_VISIBLE_DEVICES=0"), Some(1));
    assert_eq!(gpus("SLURM_GPUS_PER_TASK=a100:2 CUDA_VISIBLE_DEVICES=0,1"), Some(2));
    assert_eq!(gpus("SLURM_TRES_PER_TASK=cpu=4,gres/gpu:1 CUDA_VISIBLE_DEVICES=3"), Some(1));
    assert_eq!(
        gpus("SLURM_TRES_PER_TASK=gres/gpu:a100=2 CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"),
        Some(2)
    );
    // --gpu-bind=none; GPUs of the node; none.
    assert_eq!(gpus("SLURM_GPUS_PER_TASK=1 CUDA_VISIBLE_DEVICES=0,1"), None);
    assert_eq!(gpus("SLURM_GPUS_ON_NODE=2 CUDA_VISIBLE_DEVICES=0,1"), None);
    assert_eq!(gpus("SLURM_TRES_PER_TASK=cpu=4"), None);
    assert_eq!(gpus(""), None);
}

/// pt#73656.
#[test]
fn trap_with_one_task_per_node_the_task_numbers_the_node() {
    // SLURM_NODEID as the batch script's shell has it, 0 everywhere.
    for (rank, host) in [(0, "h1"), (1, "h2")] {
        let own = format!(
            "{SRUN_HOSTS} SLURM_PROCID={rank} SLURM_LOCALID=0 SLURM_NODEID=0 SLURMD_NODENAME={host}"
        );
        assert_eq!(sure_hosts(&own, &[host]).index, Some(rank));
        assert_eq!(sure_task(&own, &[host]).node_rank, Some(rank));
        // Without a list too.
        let no_list = own.replace("SLURM_STEP_NODELIST", "X");
        assert_eq!(sure_hosts(&no_list, &[host]).index, Some(rank));
    }
}

/// JAX retries; kubeflow's pytorch-operator#352: a pod must wait for its master.
#[test]
fn trap_a_pod_without_a_service_is_told_what_it_lacks() {
    let pod = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=1 PET_NNODES=2";
    let without = sure_hosts(pod, &["train-1"]);
    assert_eq!(without.leader.as_deref(), Some("train-0"));
    assert!(without.hint.unwrap().contains("publishNotReadyAddresses: true"));
    let with = sure_hosts(pod, &["train-1", "train-1.pods.default.svc.cluster.local"]);
    assert_eq!(with.hint, None);
}

#[test]
fn a_list_that_contradicts_costs_the_leader_and_not_the_rank() {
    let own = format!("{SRUN} SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=h2");
    for (list, why) in [
        ("h[1-", "is no list of hosts: a bracket does not close"),
        ("h[1-3]", "names 3 hosts of 2"),
    ] {
        let Detected { found, doubts } =
            task(&format!("{own} SLURM_STEP_NODELIST={list}"), &["h2"]);
        let task = found.unwrap();
        assert_eq!((task.rank, task.local_size, task.leader), (3, Some(2), None), "{list}");
        assert!(doubts[0].contains(why), "{doubts:?}");
    }
}

#[test]
fn tasks_of_open_mpi_know_all_but_the_first_host() {
    let own = format!(
        "{OPEN_MPI} OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_NODE_RANK=1 \
         PMIX_RANK=3 PMIX_HOSTNAME=h2"
    );
    let task = sure_task(&own, &["h2"]);
    assert_eq!((task.starter, task.rank, task.size), ("Open MPI's mpirun", 3, Some(4)));
    assert_eq!((task.local_rank, task.local_size, task.nodes), (Some(1), Some(2), None));
    assert_eq!((task.node_rank, task.leader.as_deref()), (None, None));
    assert_eq!((task.job_id.as_deref(), task.on_one_host), (Some("2573729793"), Some(false)));
    no_task(&own, &["h3"], "PMIX_HOSTNAME=h2 is another host than this, which is h3");
    // On one host all is known.
    let one = sure_task(
        &format!("{own} OMPI_COMM_WORLD_LOCAL_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=3"),
        &["h2"],
    );
    assert_eq!((one.nodes, one.node_rank, one.local_rank), (Some(1), Some(0), Some(3)));
    // Version 5.
    let five =
        format!("{own} PRTE_LAUNCHED=1 PMIX_NAMESPACE=prterun-h1-4711@1 OMPI_MCA_ess_base_jobid=");
    assert_eq!(sure_task(&five, &["h2"]).job_id.as_deref(), Some("prterun-h1-4711@1"));
    // A launcher on each host.
    let launcher = format!("{own} OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0");
    let found = sure_hosts(&launcher, &["h2"]);
    assert_eq!((found.hosts, found.index, found.leader), (4, Some(3), None));
}

#[test]
fn tasks_of_mpich_and_of_srun_by_pmi_know_their_place() {
    let hydra = "PMI_RANK=2 PMI_SIZE=3 PMI_FD=8 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=1 HYDI_CONTROL_FD=7 \
                 MPIR_CVAR_CH3_INTERFACE_HOSTNAME=h2";
    let task = sure_task(hydra, &["h2"]);
    assert_eq!((task.starter, task.rank, task.size), ("MPI's mpiexec", 2, Some(3)));
    assert_eq!(task.meeting_port(), None);
    assert_eq!((task.local_rank, task.local_size, task.leader), (Some(0), Some(1), None));
    // srun --mpi=pmi2 sets both, and Slurm tells more.
    let both = format!(
        "{SRUN} SLURM_PROCID=3 SLURM_LOCALID=1 SLURM_NODEID=1 SLURMD_NODENAME=h2 PMI_FD=9 PMI_RANK=3 \
         PMI_SIZE=4 PMI_JOBID=2.0"
    );
    assert_eq!(sure_task(&both, &["h2"]).leader.as_deref(), Some("h1"));
    // Cray's, alone and by PALS.
    let cray = "PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4";
    assert_eq!(sure_task(cray, &["x"]).local_size, Some(4));
    let pals = format!("{cray} PALS_RANKID=5 PALS_LOCAL_RANKID=1 PALS_NODEID=1 PALS_APID=a-b");
    let task = sure_task(&pals, &["x"]);
    assert_eq!((task.starter, task.node_rank), ("PALS' mpiexec", Some(1)));
    assert_eq!((task.local_size, task.job_id.as_deref()), (Some(4), Some("a-b")));
}

#[test]
fn tasks_of_flux_jsrun_mvapich_and_pmix() {
    let flux = "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_JOB_NNODES=2 FLUX_TASK_LOCAL_ID=0 FLUX_JOB_ID=99 \
                PMI_RANK=1 PMI_SIZE=2 PMI_FD=4";
    let found = sure_hosts(flux, &["x"]);
    assert_eq!((found.starter, found.hosts, found.index), ("flux run", 2, Some(1)));
    let jsrun = "JSM_NAMESPACE_RANK=7 JSM_NAMESPACE_SIZE=8 JSM_NAMESPACE_LOCAL_RANK=3 \
                 JSM_NAMESPACE_LOCAL_SIZE=4 LSB_JOBID=12 PMIX_RANK=7 PMIX_NAMESPACE=1";
    let task = sure_task(jsrun, &["x"]);
    assert_eq!((task.starter, task.local_rank, task.local_size), ("jsrun", Some(3), Some(4)));
    let mvapich = "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=1 \
                   MV2_COMM_WORLD_LOCAL_SIZE=2 PMI_RANK=1 PMI_SIZE=2";
    let task = sure_task(mvapich, &["x"]);
    assert_eq!((task.starter, task.nodes), ("MVAPICH's mpirun", Some(1)));
    let pmix = sure_task("PMIX_RANK=3 PMIX_NAMESPACE=n PMIX_HOSTNAME=x", &["x"]);
    assert_eq!((pmix.starter, pmix.size), ("a PMIx launcher", None));
    no_hosts("PMIX_RANK=3", &["x"], "does not say how many tasks there are");
    no_hosts("PMI_RANK=1 PMI_SIZE=2", &["x"], "does not say how many are on this host");
    no_task("PMI_RANK=4 PMI_SIZE=4", &["x"], "contradict each other: ranks are 0 to 3");
    let many = "PMI_RANK=4 PMI_SIZE=100001 PMI_LOCAL_SIZE=1";
    no_hosts(many, &["x"], "a job has at most 100000");
    assert_eq!(sure_task(many, &["x"]).size, Some(100_001));
    let odd = task_of("PMI_RANK=1 PMI_SIZE=4 PMI_LOCAL_RANK=2 PMI_LOCAL_SIZE=2");
    assert_eq!((odd.0, odd.1.len()), (Some(None), 1));
}

/// Local rank of the task that is found, and the doubts.
fn task_of(variables: &str) -> (Option<Option<usize>>, Vec<String>) {
    let detected = task(variables, &[]);
    (detected.found.map(|task| task.local_rank), detected.doubts)
}

#[test]
fn of_nested_starters_the_one_of_most_tasks_or_hosts_counts() {
    // mpirun has started its daemons by srun, one on each other host.
    let daemon = "SLURM_JOB_ID=2 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 \
                  SLURM_STEP_NUM_NODES=2 SLURMD_NODENAME=h2";
    let nested = format!("{daemon} {OPEN_MPI} OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1");
    let task = sure_task(&nested, &["h2"]);
    assert_eq!((task.starter, task.rank, task.size), ("Open MPI's mpirun", 3, Some(4)));
    // A pod of two, in which one of three hosts of Slurm runs.
    let pod = format!("{} SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NUM_NODES=3", daemon);
    let pod = format!("{pod} JOB_COMPLETION_INDEX=0 PET_NNODES=2");
    assert_eq!(sure_hosts(&pod, &["h2", "pod-0"]).starter, "srun");
}

#[test]
fn pods_of_an_indexed_job_know_their_place() {
    let pod =
        "KUBERNETES_SERVICE_HOST=10.0.0.1 HOSTNAME=train-3 JOB_COMPLETION_INDEX=3 PET_NNODES=4";
    let names = ["train-3", "train-3.pods.default.svc.cluster.local"];
    let found = sure_hosts(pod, &names);
    assert_eq!((found.starter, found.hosts, found.index), ("Kubernetes", 4, Some(3)));
    assert_eq!(found.leader.as_deref(), Some("train-0.pods.default.svc.cluster.local"));
    assert_eq!((found.job_id.as_deref(), found.port), (Some("train"), Some(meeting_port("train"))));
    let first = sure_hosts(&format!("{pod} JOB_COMPLETION_INDEX=0"), &["train-0"]);
    assert_eq!((first.index, first.port), (Some(0), found.port));
    // Two or more of four.
    let elastic = sure_hosts(&format!("{pod} PET_NNODES=2:4"), &names);
    assert_eq!((elastic.min_hosts, elastic.hosts), (2, 4));
    // A JobSet of one job; its names are the same.
    let set = sure_hosts(pod, &["run-workers-0-3", "run-workers-0-3.run.ml.svc.cluster.local"]);
    assert_eq!(set.leader.as_deref(), Some("run-workers-0-0.run.ml.svc.cluster.local"));
    // The host's own network has the host's name.
    let Detected { found, doubts } = hosts(pod, &["gpu-node-12"]);
    assert_eq!(found.unwrap().leader, None);
    assert!(doubts[0].contains("hostNetwork: true"), "{doubts:?}");
    let told =
        sure_hosts(&format!("{pod} PET_MASTER_ADDR=a PET_MASTER_PORT=29500"), &["gpu-node-12"]);
    assert_eq!((told.leader.as_deref(), told.port), (Some("a"), Some(29_500)));
}

#[test]
fn pods_of_a_job_set_of_several_jobs_know_their_place() {
    let pod = "JOB_COMPLETION_INDEX=1 JOB_INDEX=2 PROCESSES_IN_JOB=2 PET_NNODES=6";
    let names = ["run-slice-2-1", "run-slice-2-1.run.ml.svc.cluster.local"];
    let found = sure_hosts(pod, &names);
    assert_eq!(
        (found.hosts, found.index, found.job_id.as_deref()),
        (6, Some(5), Some("run-slice"))
    );
    assert_eq!(found.leader.as_deref(), Some("run-slice-0-0.run.ml.svc.cluster.local"));
    no_hosts("JOB_COMPLETION_INDEX=1 JOB_INDEX=2 PET_NNODES=6", &names, "PROCESSES_IN_JOB");
    no_hosts(&format!("{pod} PET_NNODES=4"), &names, "pods are 0 to 3");
}

#[test]
fn a_pod_of_no_several_is_none() {
    no_hosts("KUBERNETES_SERVICE_HOST=10.0.0.1", &["web-5f"], "a pod of no Indexed Job");
    no_hosts("JOB_COMPLETION_INDEX=3", &["train-3"], "PET_NNODES is not a number of pods");
    let one = hosts("JOB_COMPLETION_INDEX=0 PET_NNODES=1", &["train-0"]);
    assert_eq!(one, Detected { found: None, doubts: Vec::new() });
    // Where there is one launcher per pod, no worker is a task.
    assert_eq!(task("JOB_COMPLETION_INDEX=1 PET_NNODES=4", &["train-1"]).found, None);
}

#[test]
fn pods_of_kubeflow_know_their_place() {
    let train_job = "KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=1 PET_NNODES=2 \
                     PET_NPROC_PER_NODE=4 PET_NODE_RANK=1 PET_MASTER_ADDR=gpt-node-0-0.gpt PET_MASTER_PORT=29500";
    let found = sure_hosts(train_job, &["gpt-node-0-1", "gpt-node-0-1.gpt.ml.svc.cluster.local"]);
    assert_eq!((found.starter, found.hosts, found.index), ("TrainJob", 2, Some(1)));
    assert_eq!((found.leader.as_deref(), found.port), (Some("gpt-node-0-0.gpt"), Some(29_500)));

    let v1 = "KUBERNETES_SERVICE_HOST=10.0.0.1 MASTER_ADDR=gpt-master-0 MASTER_PORT=23456 WORLD_SIZE=6 RANK=2";
    let pytorch_job = format!(
        "{v1} PET_NNODES=3 PET_NPROC_PER_NODE=2 PET_NODE_RANK=2 \
                               PET_MASTER_ADDR=gpt-master-0 PET_MASTER_PORT=23456"
    );
    let found = sure_hosts(&pytorch_job, &["gpt-worker-1"]);
    assert_eq!((found.starter, found.hosts, found.index), ("PyTorchJob", 3, Some(2)));
    assert_eq!((found.leader.as_deref(), found.port), (Some("gpt-master-0"), Some(23_456)));
    // The first operators set no PET_ variables; WORLD_SIZE is the number of pods there.
    let old = sure_hosts(v1, &["gpt-worker-1"]);
    assert_eq!((old.hosts, old.index, old.job_id.as_deref()), (6, Some(2), Some("gpt")));
    assert_eq!(hosts(v1, &["somebody"]).found, None);

    let elastic = "KUBERNETES_SERVICE_HOST=10.0.0.1 PET_NNODES=1:3 PET_RDZV_BACKEND=c10d \
                   PET_RDZV_ENDPOINT=gpt-worker-0:23456 PET_RDZV_ID=gpt PET_MAX_RESTARTS=3";
    let found = sure_hosts(elastic, &["gpt-worker-1"]);
    assert_eq!((found.min_hosts, found.hosts, found.index), (1, 3, None));
    assert_eq!((found.leader.as_deref(), found.port), (Some("gpt-worker-0"), Some(23_456)));
    assert_eq!(
        found.to_string(),
        "PyTorchJob: one host of 1 to 3, meeting at gpt-worker-0 port 23456, job gpt (PET_NNODES=1:3, \
         PET_RDZV_ENDPOINT=gpt-worker-0:23456)"
    );
}

#[test]
fn pet_variables_that_are_half_there_are_not_believed() {
    no_hosts("PET_NNODES=2", &["a"], "neither PET_NODE_RANK nor PET_RDZV_ENDPOINT");
    no_hosts("PET_NODE_RANK=1", &["a"], "PET_NODE_RANK=1 is set, but PET_NNODES is not");
    no_hosts("PET_NNODES=2 PET_NODE_RANK=2", &["a"], "contradict each other");
    for wrong in ["two", "0", "3:2", "2:", "1:100001", "-1"] {
        no_hosts(&format!("PET_NNODES={wrong} PET_NODE_RANK=0"), &["a"], "is no number of hosts");
    }
    let endpoint = |text: &str| {
        let found =
            sure_hosts(&format!("PET_NNODES=2 PET_RDZV_ENDPOINT={text} PET_RDZV_ID=j"), &["a"]);
        (found.leader.unwrap_or_default(), found.port)
    };
    let derived = Some(meeting_port("j"));
    assert_eq!(endpoint("[fd00::1]:29400"), ("fd00::1".into(), Some(29_400)));
    assert_eq!(endpoint("fd00::1"), ("fd00::1".into(), derived));
    assert_eq!(endpoint("[fd00::1]"), ("fd00::1".into(), derived));
    assert_eq!(endpoint("a"), ("a".into(), derived));
    assert_eq!(endpoint("a:0"), ("a".into(), derived));
}

#[test]
fn nothing_is_found_where_nothing_is() {
    assert_eq!(task("", &["h"]), Detected { found: None, doubts: Vec::new() });
    assert_eq!(hosts("PATH=/bin HOME=/root", &["h"]), Detected { found: None, doubts: Vec::new() });
    // Ranks of torchrun's kind are read elsewhere.
    let workers = hosts("RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500", &["h"]);
    assert_eq!(workers, Detected { found: None, doubts: Vec::new() });
}

const NAMES: [&str; 36] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "SLURMD_NODENAME",
    "SLURM_GPUS_PER_TASK",
    "CUDA_VISIBLE_DEVICES",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_LOCAL_RANK",
    "PMI_LOCAL_SIZE",
    "PALS_RANKID",
    "PALS_NODEID",
    "FLUX_TASK_RANK",
    "FLUX_JOB_SIZE",
    "FLUX_JOB_NNODES",
    "FLUX_TASK_LOCAL_ID",
    "PMIX_RANK",
    "JOB_COMPLETION_INDEX",
    "JOB_INDEX",
    "PROCESSES_IN_JOB",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_RDZV_ENDPOINT",
    "RANK",
    "WORLD_SIZE",
    "KUBERNETES_SERVICE_HOST",
];

proptest! {
    /// Whatever the variables are: no number that is found contradicts another.
    #[test]
    fn what_is_found_is_consistent(
        set in prop::collection::vec(
            (
                prop::sample::select(&NAMES[..]),
                "0|1|1|2|2|4|[0-9]{1,20}|h1|h\\[1-2\\]|2\\(x2\\)|1:4|\\PC{0,8}",
            ),
            0..30,
        ),
        is_named in any::<bool>(),
    ) {
        let value = |name: &str| {
            set.iter().rfind(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        };
        let names = || if is_named { vec!["h1".to_owned(), "p-1".to_owned()] } else { Vec::new() };
        let around = Surroundings::new(&value, &names);
        let below = |a: Option<usize>, b: Option<usize>| a.zip(b).is_none_or(|(a, b)| a < b);
        if let Some(task) = ClusterTask::detect(&around).found {
            prop_assert!(below(Some(task.rank), task.size), "{:?}", task);
            prop_assert!(below(task.local_rank, task.local_size), "{:?}", task);
            prop_assert!(below(task.node_rank, task.nodes), "{:?}", task);
            let local = task.local_size.unwrap_or(1);
            prop_assert!(local >= 1 && local <= task.size.unwrap_or(usize::MAX), "{:?}", task);
        }
        if let Some(hosts) = ClusterHosts::detect(&around).found {
            prop_assert!(below(hosts.index, Some(hosts.hosts)), "{:?}", hosts);
            prop_assert!(hosts.hosts > 1 && (1..=hosts.hosts).contains(&hosts.min_hosts), "{:?}", hosts);
        }
    }
}
