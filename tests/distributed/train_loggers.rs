//! `train::Loggers` over ranks: rank 0 alone writes.

use torchrs::train::{Loggers, RunDir, RunDirOptions};
use torchrs::{Dtype, Tensor, multiprocessing};

use super::job::Job;

fn logs(rank: usize, job: Job) {
    let group = job.join(rank);
    let options = RunDirOptions { path: Some(job.out.clone()), ..Default::default() };
    let run = RunDir::agree("net", &options, &group).unwrap();
    let mut log = Loggers::new(&run, &group).json_lines().unwrap().csv().unwrap();
    log.scalars(1, &[("loss", 0.5)]).unwrap();
    // No logger takes images: rank 0 says so.
    let image = log.image(1, "x", &Tensor::zeros([1, 2, 2], Dtype::F32));
    assert_eq!(image.is_err(), rank == 0);
    group.barrier().unwrap();
    let read = |name: &str| std::fs::read_to_string(job.out.join(name)).unwrap();
    assert_eq!(read("metrics.jsonl"), "{\"step\":1,\"loss\":0.5}\n");
    assert_eq!(read("metrics.csv"), "step,loss\n1,0.5\n");
}

#[test]
fn rank_0_writes() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(2, folder.path().to_owned());
    multiprocessing::spawn(logs, job, 2).unwrap();
}
