//! What is told, once, of ways to shard that save little.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use torchrs::nn::parallel::{FullyShardOptions, fully_shard};
use torchrs::nn::{Forward, Linear, Module, Sequential};
use torchrs::{Dtype, Tensor, multiprocessing};

use crate::job::Job;

const WIDTH: usize = 2048;

/// Which modules are sharded by calls of their own.
fn trains(rank: usize, (job, (blocks, keeps)): (Job, (usize, bool))) {
    let errors = File::create(job.out.join(rank.to_string())).unwrap();
    nix::unistd::dup2_stderr(&errors).unwrap();
    let group = job.join(rank);
    let mut model = (0..3).fold(Sequential::new(), |net, _| net.append(Linear::new(WIDTH, WIDTH)));
    for block in model.iter_mut().take(blocks) {
        fully_shard(block, &group, Default::default()).unwrap();
    }
    let options = FullyShardOptions {
        reshard_after_forward: keeps.then_some(false.into()),
        ..Default::default()
    };
    fully_shard(&mut model, &group, options).unwrap();
    for _ in 0..2 {
        model.forward(&Tensor::ones([1, WIDTH], Dtype::F32)).sum().backward();
        model.zero_grad();
    }
}

fn told(folder: &Path, blocks: usize, keeps: bool) -> [String; 2] {
    let job = Job::new(2, PathBuf::from(folder));
    multiprocessing::spawn(trains, (job, (blocks, keeps)), 2).unwrap();
    [0, 1].map(|rank| {
        let said = fs::read_to_string(folder.join(rank.to_string())).unwrap();
        said.lines().filter(|line| line.contains("fully_shard")).collect::<Vec<_>>().join("\n")
    })
}

#[test]
fn a_wrapping_that_saves_nothing_is_told_once_with_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let [said, other] = told(folder.path(), 0, false);
    assert_eq!((said.lines().count(), other.as_str()), (1, ""), "{said}");
    for part in
        ["torchrs: ", "Sequential", "its 48.02 MiB", "`0` (16.01 MiB)", "reshard_after_forward"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    let [said, other] = told(folder.path(), 1, false);
    assert_eq!((said.lines().count(), other.as_str()), (1, ""), "{said}");
    assert!(said.contains("32.02 MiB of its 48.02 MiB"), "{said}");
    // One call as is usual, and one that is meant.
    for (blocks, keeps) in [(2, false), (0, true)] {
        assert_eq!(told(folder.path(), blocks, keeps), ["", ""]);
    }
}
