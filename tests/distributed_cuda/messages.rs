//! From one rank to another by NCCL.

use torchrs::cuda;
use torchrs::distributed::P2POp;
use torchrs::nn::{Forward, Linear, Module};
use torchrs::{Dtype, Error, Result, Tensor, autograd};

use crate::job::{ADVERSARY, Job, gpu, join_job, run, run_with};

fn turns_a_ring(_: ()) -> Result<()> {
    let group = join_job()?;
    let (rank, world) = (group.rank(), group.world_size());
    let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
    let mut x = Tensor::full([1000], rank as f64, (Dtype::F32, gpu()));
    let syncs = cuda::synchronisations();
    for _ in 0..world {
        let y = x.zeros_like();
        let ops = [P2POp::irecv(&y, before, 0), P2POp::isend(&x, next, 0)];
        let works = group.batch_isend_irecv(&ops)?;
        works.iter().try_for_each(|work| work.wait())?;
        x = y + 1.0;
    }
    assert_eq!(cuda::synchronisations(), syncs);
    assert!(x.to_vec::<f32>().iter().all(|&value| value == (rank + world) as f32));
    // A collective beside it.
    group.barrier()
}

#[test]
fn a_ring_turns_on_gpus() {
    run_with(3, [&[(ADVERSARY, "5")], &[]], turns_a_ring);
}

/// Two stages of a model exchange activations and gradients, two batches in flight.
fn trains_in_stages(_: ()) -> Result<()> {
    let group = join_job()?;
    let stages = [1, 2].map(|seed| {
        torchrs::manual_seed(seed);
        let mut stage = Linear::new(8, 8);
        stage.to_device(gpu());
        stage
    });
    let input = |batch: usize| Tensor::full([4, 8], 0.1 + batch as f64, (Dtype::F32, gpu()));
    let own = &stages[group.rank()];
    if group.rank() == 0 {
        let y = [0, 1].map(|batch| own.forward(&input(batch)).tanh());
        // The other rank sends a gradient back before it takes the second batch.
        let sent = [group.isend(&y[0], 1, 0)?, group.isend(&y[1], 1, 0)?];
        for y in &y {
            let gradient = y.zeros_like();
            group.recv(&gradient, 1, 0)?;
            autograd::backward(&[y], &[Some(&gradient)], false, false);
        }
        sent.iter().try_for_each(|work| work.wait())?;
    } else {
        for _ in 0..2 {
            let x = Tensor::zeros([4, 8], (Dtype::F32, gpu()));
            group.recv(&x, 0, 0)?;
            let x = x.requires_grad_(true);
            own.forward(&x).square().sum().backward();
            group.send(&x.grad().unwrap(), 0, 0)?;
        }
    }
    let found = own.parameters()[0].grad().unwrap().to_vec::<f32>();
    own.zero_grad();
    for batch in 0..2 {
        let y = stages[0].forward(&input(batch)).tanh();
        stages[1].forward(&y).square().sum().backward();
    }
    assert_eq!(found, own.parameters()[0].grad().unwrap().to_vec::<f32>());
    group.barrier()
}

#[test]
fn two_stages_learn_as_one_model() {
    run(2, trains_in_stages);
}

fn disagrees(_: ()) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::zeros([3 + group.rank()], (Dtype::F32, gpu()));
    let error = match group.rank() {
        0 => group.send(&x, 1, 0),
        _ => group.recv(&x, 0, 0),
    };
    let error = error.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Mismatch(_)), "{text}");
    assert!(text.contains("rank 0 called send/recv(root 0, f32, [3], cuda)"), "{text}");
    Ok(())
}

#[test]
fn shapes_that_differ_are_an_error_and_no_hang() {
    run(2, disagrees);
}

fn dies(_: ()) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::zeros([3], (Dtype::F32, gpu()));
    if group.rank() == 1 {
        group.recv(&x, 0, 0)?;
        std::process::abort();
    }
    group.send(&x, 1, 0)?;
    let error = group.recv(&x, 1, 0).unwrap_err();
    assert!(matches!(error, Error::PeerDied { rank: 1, .. }), "{error}");
    Ok(())
}

#[test]
fn a_dead_sender_is_named() {
    if let Some(job) = Job::start(2, [&[], &[]], dies) {
        job.ranks[0].join_timeout(crate::job::LONG).unwrap();
    }
}
