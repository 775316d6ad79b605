//! From one rank to another by NCCL.

use std::time::Duration;

use torchrs::cuda::{self, Priority, Stream};
use torchrs::distributed::{P2POp, ReduceOp};
use torchrs::{Device, Dtype, Error, Result, Tensor};

use super::job::{ADVERSARY, FAULT, Job, gpu, join_job, run, run_with};
use super::message_checks;

fn turns_a_ring(_: ()) -> Result<()> {
    message_checks::turns_a_ring(&join_job()?, gpu())
}

#[test]
fn a_ring_turns_on_gpus() {
    run_with(3, [&[(ADVERSARY, "5")], &[]], turns_a_ring);
}

fn learns_in_stages(_: ()) -> Result<()> {
    message_checks::learns_in_stages(&join_job()?, gpu())
}

#[test]
fn two_stages_learn_as_one_model() {
    run(2, learns_in_stages);
}

fn disagrees(on_both: bool) -> Result<()> {
    let group = join_job()?;
    let rank = group.rank();
    let device = if rank == 0 || on_both { gpu() } else { Device::Cpu };
    let x = Tensor::zeros([3 + rank], (Dtype::F32, device));
    let error = match rank {
        0 => group.send(&x, 1, 7),
        _ => group.recv(&x, 0, 7),
    };
    let error = error.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Mismatch(_)), "{text}");
    assert!(text.contains("rank 0 called send/recv(f32, [3], cuda)"), "{text}");
    assert!(text.contains("of the messages from rank 0 to rank 1 with tag 7"), "{text}");
    Ok(())
}

#[test]
fn messages_that_differ_are_an_error_and_no_hang() {
    run(2, |_| disagrees(true));
    run_with(2, [&[("TORCHRS_TIMEOUT_S", "2")], &[]], |_| disagrees(false));
}

fn hangs(_: ()) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::zeros([3], (Dtype::F32, gpu()));
    if group.rank() == 0 {
        group.send(&x, 1, 0)?;
    } else {
        group.with_timeout(Duration::from_millis(300)).recv(&x, 0, 0)?;
        assert!(cuda::device::synchronize(1).is_err());
        assert!(group.check().is_err());
    }
    let error = group.barrier().unwrap_err().to_string();
    assert!(error.contains("rank 1 was in send/recv(f32, [3], cuda)"), "{error}");
    Ok(())
}

#[test]
fn a_message_that_never_ends_is_the_groups_failure() {
    run_with(2, [&[], &[(FAULT, "nccl-hang@1")]], hangs);
}

fn leaves_the_pool_alone(_: ()) -> Result<()> {
    let group = join_job()?;
    let (rank, peer) = (group.rank(), 1 - group.rank());
    let at = |value: f64| Tensor::full([10], value, (Dtype::F32, gpu()));
    // The pool is gone through more than once.
    for tag in 0..40 {
        let (mine, theirs) = (at(rank as f64), at(-1.0));
        let ops = [P2POp::isend(&mine, peer, tag % 20), P2POp::irecv(&theirs, peer, tag % 20)];
        group.batch_isend_irecv(&ops)?.iter().try_for_each(|work| work.wait())?;
        assert_eq!(theirs.to_vec::<f32>(), [peer as f32; 10]);
    }
    // Neither a message nor a collective that lasts keeps up a stream of the program's.
    let works = [
        group.isend(&at(0.0), peer, 0)?,
        group.irecv(&at(0.0), peer, 0)?,
        group.all_reduce_async(&at(0.0), ReduceOp::Sum)?,
    ];
    // Behind it all of them are on their streams.
    group.barrier()?;
    assert!(works.iter().any(|work| !work.is_completed()));
    for _ in 0..32 {
        assert!(Stream::new(rank, Priority::High)?.query()?);
    }
    group.barrier()?;
    group.abort("seen enough");
    Ok(())
}

/// NCCL's 81st call is the first of the last ones.
#[test]
fn messages_and_collectives_have_streams_of_their_own() {
    run_with(2, [&[(FAULT, "nccl-hang@81")], &[]], leaves_the_pool_alone);
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
        job.ranks[0].join_timeout(super::job::LONG).unwrap();
    }
}
