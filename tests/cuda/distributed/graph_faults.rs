//! Recorded collectives when something breaks, and how groups end whose graphs live. The simulated NCCL ends a
//! communicator, also by an abort, only after all graphs with its calls, as NCCL does.

use std::time::{Duration, Instant};

use torchrs::cuda_graphs::CudaGraph;
use torchrs::distributed::{P2POp, ProcessGroup, ReduceOp};
use torchrs::multiprocessing::ExitStatus;
use torchrs::{Dtype, Error, Result, Tensor, cuda};

use super::job::{ADVERSARY, FAULT, Job, LONG, gpu, join_job, reached, run, run_with, wait_for};

/// Less than what NCCL is given to end in peace.
const SOON: Duration = Duration::from_millis(1500);

/// Two numbers and the graph that replaces them by their sums over the ranks.
fn record(group: &ProcessGroup) -> Result<(Tensor, CudaGraph)> {
    let x = Tensor::ones([2], (Dtype::F32, gpu()));
    group.all_reduce(&x, ReduceOp::Avg)?;
    let (graph, ()) = CudaGraph::capture(|| group.all_reduce(&x, ReduceOp::Sum))?;
    Ok((x, graph))
}

/// What a program keeps: fields are dropped in this order.
struct Trainer {
    group: ProcessGroup,
    graph: CudaGraph,
}

fn ends(_: ()) -> Result<()> {
    let group = join_job()?;
    let part = group.new_group(&[0, 1])?;
    let (x, graph) = record(&group)?;
    let (y, other) = record(&part)?;
    drop(part);
    for _ in 0..3 {
        graph.replay()?;
        other.replay()?;
    }
    assert_eq!((x.to_vec::<f32>(), y.to_vec::<f32>()), (vec![8.0; 2], vec![8.0; 2]));
    let start = Instant::now();
    let trainer = Trainer { group, graph };
    trainer.graph.replay()?;
    trainer.group.barrier()?;
    drop(trainer);
    drop(other);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn groups_end_after_their_graphs() {
    run(2, ends);
    run_with(2, [&[(ADVERSARY, "7")], &[]], ends);
}

/// A replay comes after the collectives that were started before it, and before later ones.
fn in_order(_: ()) -> Result<()> {
    let group = join_job()?;
    let part = group.new_group(&[1, 0])?;
    let (x, graph) = record(&group)?;
    for _ in 0..20 {
        x.fill_(1.0);
        let lots = Tensor::ones([5000], (Dtype::F32, gpu()));
        let others =
            [&part, &group].map(|group| group.all_reduce_async(&lots, ReduceOp::Avg).unwrap());
        let first = group.all_reduce_async(&x, ReduceOp::Sum)?;
        first.wait()?;
        graph.replay()?;
        let last = part.all_reduce_async(&x, ReduceOp::Sum)?;
        last.wait()?;
        graph.replay()?;
        assert_eq!(x.to_vec::<f32>(), [16.0; 2]);
        others.iter().try_for_each(|work| work.wait())?;
    }
    group.barrier()
}

#[test]
fn replays_keep_their_place_among_collectives() {
    run(2, in_order);
    run_with(2, [&[(ADVERSARY, "5")], &[]], in_order);
}

/// The device is free, calls and replays say why, another group goes on, and all ends soon.
fn is_over(group: ProcessGroup, graph: CudaGraph, texts: &[&str]) -> Result<()> {
    let all = [graph.replay(), group.check(), group.barrier()];
    for error in all.map(Result::unwrap_err).map(|error| error.to_string()) {
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    }
    cuda::device::synchronize(cuda::device::current())?;
    let start = Instant::now();
    drop(group);
    drop(graph);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    Ok(())
}

fn outlives_a_peer(_: ()) -> Result<()> {
    let group = join_job()?;
    let alone = [group.new_group(&[0])?, group.new_group(&[1])?];
    let (x, graph) = record(&group)?;
    graph.replay()?;
    assert_eq!(x.to_vec::<f32>(), [2.0; 2]);
    group.barrier()?;
    if group.rank() == 1 {
        wait_for("a replay", [0])?;
        std::process::exit(9);
    }
    let start = Instant::now();
    graph.replay()?;
    reached("a replay", 0)?;
    // The next wait for the GPU tells of it.
    let error = cuda::device::synchronize(0).unwrap_err();
    assert!(matches!(error, Error::PeerDied { rank: 1, .. }), "{error}");
    assert!(error.to_string().contains("rank 0 was in the replay of a graph"), "{error}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    // Once: the host may go on with what is not lost.
    let one = Tensor::ones([3], (Dtype::F32, gpu()));
    alone[0].all_reduce(&one, ReduceOp::Sum)?;
    assert_eq!(one.sum().item(), 3.0);
    is_over(group, graph, &["rank 1"])
}

#[test]
fn a_death_ends_a_replay() {
    let Some(job) = Job::start(2, [&[], &[]], outlives_a_peer) else { return };
    job.ranks[0].join_timeout(LONG).unwrap();
    assert_eq!(job.ranks[1].wait_timeout(LONG).unwrap(), ExitStatus::Exited(9));
}

/// One rank's GPU stays in the recorded collective.
fn hangs(_: ()) -> Result<()> {
    let group = join_job()?.with_timeout(Duration::from_secs(1));
    let (x, graph) = record(&group)?;
    graph.replay()?;
    let error = torchrs::catch(|| x.sum().item()).unwrap_err().to_string();
    assert!(error.contains("was in the replay of a graph"), "{error}");
    is_over(group, graph, &["timed out"])
}

#[test]
fn a_replay_has_a_deadline() {
    run_with(2, [&[], &[(FAULT, "nccl-hang@2")]], hangs);
}

/// One rank replays alone while the other aborts.
fn is_aborted(_: ()) -> Result<()> {
    let group = join_job()?;
    let (x, graph) = record(&group)?;
    graph.replay()?;
    cuda::device::synchronize(group.rank())?;
    group.barrier()?;
    if group.rank() == 0 {
        graph.replay()?;
        reached("a replay", 0)?;
        let error = torchrs::catch(|| x.sum().item()).unwrap_err().to_string();
        assert!(error.contains("rank 0 was in the replay of a graph"), "{error}");
    } else {
        wait_for("a replay", [0])?;
        group.abort("no data left");
    }
    is_over(group, graph, &["no data left"])
}

/// The last collective of a loop ends without a result: whoever reads what came of it hears so.
fn is_aborted_at_work(_: ()) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::ones([4], (Dtype::F32, gpu()));
    group.all_reduce(&x, ReduceOp::Avg)?;
    group.all_reduce_async(&x, ReduceOp::Avg)?.wait()?;
    let y = &x * 2.0;
    group.check()?;
    reached("work", group.rank())?;
    if group.rank() == 0 {
        wait_for("work", [1])?;
        group.abort("no data left");
    }
    let error = torchrs::catch(|| y.cpu()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Aborted(_)) && text.contains("no data left"), "{text}");
    assert!(text.contains("was in all_reduce(avg, f32, [4], cuda)"), "{text}");
    assert!(group.check().is_err());
    assert_eq!(Tensor::ones([4], (Dtype::F32, gpu())).sum().item(), 4.0);
    Ok(())
}

#[test]
fn an_abort_ends_collectives_and_replays() {
    run(2, is_aborted);
    run_with(2, [&[], &[(FAULT, "nccl-hang@2")]], is_aborted_at_work);
}

fn refuses(_: ()) -> Result<()> {
    let group = join_job()?;
    let part = group.new_group(&[0, 1])?;
    let x = Tensor::ones([2], (Dtype::F32, gpu()));
    let peer = 1 - group.rank();
    let refused = |work: &dyn Fn() -> Result<()>| {
        let error = CudaGraph::capture(work).unwrap_err().to_string();
        assert!(error.contains("cannot be captured in a graph"), "{error}");
    };
    refused(&|| group.all_reduce(&x, ReduceOp::Sum));
    refused(&|| group.all_reduce_async(&x, ReduceOp::Sum)?.wait());
    group.all_reduce(&x, ReduceOp::Sum)?;
    refused(&|| group.new_group(&[0]).map(drop));
    refused(&|| part.all_reduce(&x, ReduceOp::Sum));
    let ops = [P2POp::isend(&x, peer, 0), P2POp::irecv(&x.zeros_like(), peer, 0)];
    refused(&|| group.batch_isend_irecv(&ops).map(drop));
    refused(&|| if peer == 1 { group.send(&x, 1, 0) } else { group.recv(&x, 0, 0) });
    // The program is as it was before.
    for work in group.batch_isend_irecv(&ops)? {
        work.wait()?;
    }
    part.all_reduce(&x, ReduceOp::Sum)?;
    let (graph, ()) = CudaGraph::capture(|| part.all_reduce(&x, ReduceOp::Sum))?;
    graph.replay()?;
    assert_eq!(x.to_vec::<f32>(), [8.0; 2]);
    group.new_group(&[0])?;
    group.barrier()
}

#[test]
fn what_a_graph_cannot_have_is_refused_and_nothing_is_lost() {
    run(2, refuses);
}
