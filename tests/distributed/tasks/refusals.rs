//! Tasks whose variables cannot be right, and jobs that lack something: each is told what, and what would be right.

use std::time::Duration;

use torchrs::Result;
use torchrs::multiprocessing::Channel;

use super::{Job, LONG, Starter, join_job};

/// Says why it cannot join.
fn is_refused(_: (), parent: Channel<String, ()>) -> Result<()> {
    parent.send(&join_job().unwrap_err().to_string())
}

fn why(job: &Job, rank: usize, more: &[(&str, &str)]) -> String {
    let (process, channel) = job.start(rank, more, is_refused, ());
    channel.recv_timeout(LONG).unwrap_or_else(|_| panic!("{:?}", process.join_timeout(LONG)))
}

#[test]
fn what_a_job_over_several_hosts_lacks_is_named() {
    let elsewhere = [("MASTER_ADDR", "192.0.2.1"), ("TORCHRS_JOB_TOKEN", "")];
    let text = why(&Job::new(Starter::Hydra, &[2, 2]), 0, &elsewhere);
    assert!(text.starts_with("TORCHRS_JOB_TOKEN: is not set"), "{text}");
    assert!(text.contains("`export TORCHRS_JOB_TOKEN=$(openssl rand -hex 16)`"), "{text}");
    assert!(!text.contains("-x TORCHRS_JOB_TOKEN"), "{text}");
    let text = why(&Job::new(Starter::OpenMpi, &[2, 2]), 0, &elsewhere);
    assert!(text.contains("`-x TORCHRS_JOB_TOKEN`"), "{text}");
    let text = why(&Job::new(Starter::Hand, &[2, 2]), 0, &elsewhere);
    assert!(text.starts_with("TORCHRS_JOB_TOKEN: is not set"), "{text}");
    let short = [("MASTER_ADDR", "192.0.2.1"), ("TORCHRS_JOB_TOKEN", "short")];
    let text = why(&Job::new(Starter::OpenMpi, &[2, 2]), 0, &short);
    assert!(text.starts_with("TORCHRS_JOB_TOKEN: has 5 characters"), "{text}");
    let text = why(&Job::new(Starter::Hand, &[2, 2]), 0, &[("MASTER_PORT", "")]);
    assert!(text.starts_with("MASTER_PORT: is not set"), "{text}");
    let text = why(&Job::new(Starter::Hand, &[2, 1]), 0, &[("GROUP_WORLD_SIZE", "")]);
    assert!(text.starts_with("GROUP_WORLD_SIZE: is not set"), "{text}");
    let text = why(&Job::new(Starter::OpenMpi, &[2, 2]), 0, &[("MASTER_ADDR", "")]);
    assert!(text.starts_with("MASTER_ADDR: is not set, and Open MPI's mpirun"), "{text}");
}

#[test]
fn hosts_that_do_not_come_are_said_to_be_missing() {
    let job = Job::new(Starter::OpenMpi, &[1, 1]);
    let text = why(&job, 0, &[("TORCHRS_TIMEOUT_S", "1.5")]);
    assert!(text.contains("waits for the other hosts at 127.0.0.1:"), "{text}");
    assert!(text.contains("1 of at least 2 hosts are there"), "{text}");
    assert!(job.is_gone_within(Duration::from_secs(12)));
}

/// Joins, however that ends.
fn joins(_: (), _: Channel<(), ()>) -> Result<()> {
    join_job().map(drop)
}

#[test]
fn ranks_that_do_not_fit_together_are_refused() {
    // The same place twice.
    let job = Job::new(Starter::Slurm, &[3]);
    let first = job.start(1, &[], joins, ());
    let second = job.start(1, &[], joins, ());
    let waited = [first, second].map(|(process, _)| process.wait_timeout(Duration::from_secs(5)));
    let refused = waited.iter().filter(|ended| ended.is_ok()).count();
    assert_eq!(refused, 1, "{waited:?}");

    // Tasks that were dealt to the hosts one by one.
    let job = Job::new(Starter::OpenMpi, &[2, 2]);
    let dealt = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"];
    let text = why(&job, 0, &[(dealt[0], "2"), (dealt[1], "1")]);
    assert!(text.contains("--distribution block") && text.contains("--map-by slot"), "{text}");
    let job = Job::new(Starter::Hand, &[2, 2]);
    let limit = ("TORCHRS_TIMEOUT_S", "2");
    let told = [("RANK", "2"), ("LOCAL_RANK", "1"), limit];
    let both = [job.start(0, &[limit], is_refused, ()), job.start(0, &told, is_refused, ())];
    let texts = both.map(|(_, channel)| channel.recv_timeout(LONG).unwrap());
    // The one that came later.
    assert!(texts.iter().any(|text| text.contains("--distribution block")), "{texts:?}");
}
