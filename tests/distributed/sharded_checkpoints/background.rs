//! Saves in the background: what is written is what was there at the call.

use torchrs::checkpoint::distributed::{self, AsyncCheckpointer, Shard, State};
use torchrs::checkpoint::{Checkpoint, CheckpointDir};
use torchrs::nn::parallel::fully_shard;
use torchrs::nn::{self, Forward, Module};
use torchrs::optim::{Adam, Optimizer};
use torchrs::train::TrainState;
use torchrs::{Dtype, Tensor, multiprocessing, no_grad};

use super::super::job::Job;
use super::bits;

fn changed_at_once(rank: usize, job: Job) {
    let world = job.join(rank);
    let mut checkpointer = AsyncCheckpointer::new(&world).unwrap();
    let mut model = nn::Linear::new(300, 500);
    fully_shard(&mut model, &world, Default::default()).unwrap();
    let mut optimizer = Adam::new(model.parameters(), Default::default());
    let train = |model: &nn::Linear, optimizer: &mut Adam| {
        optimizer.zero_grad();
        model.forward(&Tensor::ones([4, 300], Dtype::F32)).square().mean().backward();
        optimizer.step();
    };
    let (kept, background) =
        (CheckpointDir::new(job.out.join("a"), 9), CheckpointDir::new(job.out.join("b"), 2));
    for step in 0..4 {
        train(&model, &mut optimizer);
        TrainState::new()
            .model(&model)
            .optimizer(&mut optimizer)
            .save(&kept, step, &world)
            .unwrap();
        let state = TrainState::new().model(&model).optimizer(&mut optimizer);
        let path = state.async_save(&mut checkpointer, &background, step, &world).unwrap();
        // Everything changes while it is being written.
        train(&model, &mut optimizer);
        no_grad(|| model.parameters().iter().for_each(|p| _ = p.fill_(7.0)));
        if step == 2 {
            checkpointer.wait().unwrap();
            assert!(checkpointer.is_done());
            assert!(bits(&path) == bits(&kept.at(step)));
        }
    }
    checkpointer.wait().unwrap();
    assert_eq!(background.steps().unwrap(), [2, 3]);
    assert!(bits(&background.at(3)) == bits(&kept.at(3)));
    // A new run goes on from what was written in the background.
    let mut other = nn::Linear::new(300, 500);
    fully_shard(&mut other, &world, Default::default()).unwrap();
    let checkpoint = Checkpoint::open(background.at(3)).unwrap();
    let mut fresh = Adam::new(other.parameters(), Default::default());
    TrainState::new().model(&other).optimizer(&mut fresh).load(&checkpoint, &world).unwrap();
    assert!(!other.weight.equal(&model.weight));
    world.barrier().unwrap();
}

#[test]
fn what_changes_after_the_call_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(changed_at_once, Job::new(2, folder.path().to_owned()), 2).unwrap();
}

/// The processes that write for this one.
fn writers() -> Vec<i32> {
    let me = std::process::id().to_string();
    let children = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let after = stat.rsplit(')').next()?;
        (after.split_whitespace().nth(1)? == me).then_some(pid)
    });
    children.collect()
}

fn killed_writer(rank: usize, job: Job) {
    let world = job.join(rank);
    let mut checkpointer = AsyncCheckpointer::new(&world).unwrap();
    let row = Tensor::full([1, 1 << 20], rank as f64, Dtype::F32);
    let state = || {
        let shard = Shard::new(row.clone(), &[2, 1 << 20], &[rank, 0]).unwrap();
        State::new().with_tensor("w", shard).unwrap()
    };
    let path = |name: &str| job.out.join(name);
    checkpointer.save(&state(), path("first")).unwrap();
    checkpointer.wait().unwrap();
    if rank == 1 {
        let writers = writers();
        assert!(!writers.is_empty());
        for pid in writers {
            // SAFETY: a child of this process.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
    checkpointer.save(&state(), path("second")).unwrap();
    let error = checkpointer.wait().unwrap_err().to_string();
    assert!(
        error.contains("rank 1 of 2 has failed") && error.contains("checkpoint writer"),
        "{error}"
    );
    assert!(!error.contains("rank 0:"), "{error}");
    // Neither is there, nor anything left of it; the one after is.
    checkpointer.save(&state(), path("third")).unwrap();
    checkpointer.wait().unwrap();
    world.barrier().unwrap();
    let mut names: Vec<String> = std::fs::read_dir(&job.out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["first", "third"]);
    row.fill_(9.0);
    distributed::load(&state(), path("third"), &world, Default::default()).unwrap();
    assert_eq!(row.select(0, 0).to_vec::<f32>()[5], rank as f32);
    world.barrier().unwrap();
}

#[test]
fn a_writer_that_is_killed_is_an_error_on_all_ranks_and_the_next_save_works() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(killed_writer, Job::new(2, folder.path().to_owned()), 2).unwrap();
}
