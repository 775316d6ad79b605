//! Ranks that are killed while they save: the last complete checkpoint loads, and nothing else is left.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use torchrs::checkpoint::distributed::{AsyncCheckpointer, Shard, State, save};
use torchrs::checkpoint::{Checkpoint, CheckpointDir};
use torchrs::multiprocessing::{self, Process};
use torchrs::train::TrainState;
use torchrs::{Dtype, Tensor};

use super::super::job::Job;

const WORLD: usize = 3;
const COLUMNS: usize = 1 << 16;

fn folder(out: &Path) -> CheckpointDir {
    CheckpointDir::new(out, 1 << 20)
}

/// The file that says that a rank has joined: one that waits for another to come is a launcher's matter.
fn joined(out: &Path, rank: usize) -> PathBuf {
    out.join(format!("joined-{rank}"))
}

/// A state of which every element, and a value, is the number of its step.
fn state(rank: usize, step: u64) -> State {
    let row = Tensor::full([1, COLUMNS], step as f64, Dtype::F32);
    let shard = Shard::new(row, &[WORLD, COLUMNS], &[rank, 0]).unwrap();
    let all = Tensor::full([COLUMNS], step as f64, Dtype::F32);
    let tensors = [("own".to_owned(), shard), ("all".to_owned(), all.into())];
    State::new().with_group("model", tensors).unwrap().with_value("step", &step).unwrap()
}

/// Saves one step after the other until it is killed, or another is.
fn saves((rank, first, background, job): (usize, u64, bool, Job)) {
    let group = job.join(rank);
    std::fs::write(joined(&job.out, rank), "").unwrap();
    let path = |step| folder(&job.out).at(step);
    let mut checkpointer = AsyncCheckpointer::new(&group).unwrap();
    for step in first.. {
        let saved = match background {
            true => checkpointer.save(&state(rank, step), path(step)),
            false => save(&state(rank, step), path(step), &group),
        };
        if saved.is_err() {
            // Another was killed.
            std::process::exit(0);
        }
    }
}

/// Kills so many times, or some times more where too little was saved meanwhile; gives the steps that were saved.
fn kill(count: u64) -> usize {
    let out = tempfile::tempdir().unwrap();
    let (mut saved, mut slower) = (0, 1);
    for round in 0.. {
        let is_enough = saved as u64 > count / 4;
        if round >= count && (is_enough || round >= 4 * count) {
            break;
        }
        if round % 8 == 7 && !is_enough {
            // A machine with other work saves more slowly.
            slower *= 2;
        }
        let first = folder(out.path()).latest().unwrap().map_or(0, |(step, _)| step + 1);
        let job = Job::new(WORLD, out.path().to_owned());
        let start = |rank| {
            Process::spawn(saves, (rank, first, round % 2 == 1, job.clone()))
                .expect("a rank starts")
        };
        let ranks: Vec<Process> = (0..WORLD).map(start).collect();
        let start = Instant::now();
        while !(0..WORLD).all(|rank| joined(out.path(), rank).exists()) {
            assert!(start.elapsed() < Duration::from_secs(60), "the ranks do not join");
            sleep(Duration::from_millis(1));
        }
        (0..WORLD).for_each(|rank| std::fs::remove_file(joined(out.path(), rank)).unwrap());
        // From before the first save to after several.
        sleep(Duration::from_micros(round * 7_919 % 60_000 * slower));
        match round as usize % (WORLD + 1) {
            WORLD => ranks.iter().for_each(|rank| _ = rank.kill()),
            one => ranks[one].kill().unwrap(),
        }
        for rank in ranks {
            let _ = rank.wait_timeout(Duration::from_secs(20)).expect("no rank waits for ever");
        }
        if let Some((step, path)) = folder(out.path()).latest().unwrap() {
            let checkpoint = Checkpoint::load(&path).unwrap();
            assert_eq!(checkpoint.value::<u64>("step").unwrap(), step);
            for tensor in checkpoint.tensors("model").unwrap().values() {
                let [least, most] = [tensor.min().item(), tensor.max().item()];
                assert_eq!((least, most), (step as f64, step as f64));
            }
            saved = step as usize;
        }
    }
    // The next save of the run removes what killed ones have left.
    multiprocessing::spawn(last, Job::new(1, out.path().to_owned()), 1).unwrap();
    let names = std::fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.as_encoded_bytes()[0] == b'.').collect();
    assert!(left.is_empty(), "{left:?}");
    saved
}

fn last(rank: usize, job: Job) {
    let group = job.join(rank);
    TrainState::new().sharded().save(&folder(&job.out), 1 << 30, &group).unwrap();
}

#[test]
fn the_last_complete_checkpoint_loads_after_kills() {
    let count = std::env::var("TORCHRS_TEST_KILLS").map_or(16, |count| count.parse().unwrap());
    let saved = kill(count);
    assert!(saved as u64 > count / 4, "{saved} saves in {count} rounds");
}
