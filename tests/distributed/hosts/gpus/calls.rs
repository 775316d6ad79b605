//! All calls over several layouts, and that none of them waits for another host.

use std::time::{Duration, Instant};

use torchrs::cuda_graphs::CudaGraph;
use torchrs::distributed::ReduceOp;
use torchrs::multiprocessing::Channel;
use torchrs::{Device, Dtype, Result, Tensor, cuda};

use super::super::collectives::{check_on, groups_on, messages_on};
use super::super::{gpu, join_job, run_on_gpus, start_on_gpus};

fn everything(dtypes: Vec<u8>, _parent: Channel<(), ()>) -> Result<()> {
    use ReduceOp::{Avg, Max, Min, Product, Sum};
    let group = join_job()?;
    for dtype in dtypes.iter().map(|&dtype| Dtype::ALL[usize::from(dtype)]) {
        check_on(gpu(), &group, dtype, 7, &[Sum, Avg, Product, Min, Max])?;
    }
    check_on(gpu(), &group, Dtype::F32, 0, &[Sum])?;
    // Between them the CPU's.
    check_on(Device::Cpu, &group, Dtype::F32, 1003, &[Sum])?;
    check_on(gpu(), &group, Dtype::F32, 100_001, &[Sum])
}

#[test]
fn all_collectives_over_hosts() {
    let all = [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::Bool];
    let dtypes = |all: &[Dtype]| all.iter().map(|&dtype| dtype as u8).collect();
    run_on_gpus(&[2, 2], everything, &dtypes(&all));
    for layout in [&[1, 1, 1, 1][..], &[2, 1]] {
        run_on_gpus(layout, everything, &dtypes(&all[..1]));
    }
}

/// As parts of a group that has used GPUs, and of one that has not.
fn groups(first: bool, _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    if first {
        group.all_reduce(&Tensor::ones([3], (Dtype::F32, gpu())), ReduceOp::Sum)?;
    }
    groups_on(gpu(), &group)
}

#[test]
fn sub_groups_on_one_host_and_over_several() {
    for first in [true, false] {
        run_on_gpus(&[2, 2], groups, &first);
    }
}

fn messages(_: (), _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    messages_on(gpu(), &group)?;
    group.barrier()
}

#[test]
fn messages_between_hosts() {
    for layout in [&[2, 2][..], &[1, 1]] {
        run_on_gpus(layout, messages, &());
    }
}

/// The second host comes late to its calls. The first one's calls return at once nevertheless, and are done when it
/// has come.
fn waits_for_nobody(_: (), _parent: Channel<(), ()>) -> Result<()> {
    const LATE: Duration = Duration::from_millis(700);
    let group = join_job()?;
    let x = Tensor::ones([1000], (Dtype::F32, gpu()));
    group.all_reduce(&x, ReduceOp::Avg)?;
    cuda::device::synchronize(cuda::device::current())?;
    group.barrier()?;
    let start = Instant::now();
    let is_late = group.rank() >= 2;
    if is_late {
        std::thread::sleep(LATE);
    }
    for _ in 0..50 {
        group.all_reduce(&x, ReduceOp::Sum)?;
        group.all_reduce(&x, ReduceOp::Avg)?;
    }
    let called = start.elapsed();
    cuda::device::synchronize(cuda::device::current())?;
    let done = start.elapsed();
    assert!(is_late || called < LATE / 2, "the calls alone took {called:?}");
    assert!(done >= LATE, "done after {done:?}");
    // Each round multiplies by the number of ranks, and infinity is the same on all ranks.
    assert!(x.cpu().to_vec::<f32>().iter().all(|v| *v == 4f32.powi(50)));
    group.barrier()
}

#[test]
fn no_call_waits_for_another_host() {
    run_on_gpus(&[2, 2], waits_for_nobody, &());
}

/// A graph with collectives, recorded once and replayed; the first collective of a group cannot be recorded.
fn records(_: (), _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::ones([1000], (Dtype::F32, gpu()));
    let record = || CudaGraph::capture(|| group.all_reduce(&x, ReduceOp::Sum));
    let Err(error) = record() else { panic!("nobody can join in a capture") };
    assert!(error.to_string().contains("the first collective of a process group"), "{error}");
    group.all_reduce(&x, ReduceOp::Avg)?;
    let (graph, ()) = record()?;
    for _ in 0..3 {
        graph.replay()?;
    }
    group.all_reduce(&x, ReduceOp::Avg)?;
    assert_eq!(x.cpu().to_vec::<f32>()[999], (group.world_size() as f32).powi(3));
    group.barrier()
}

#[test]
fn graphs_replay_collectives_over_hosts() {
    run_on_gpus(&[2, 2], records, &());
}

/// How long a call takes until it is on its way, and until it is done, in microseconds: medians.
fn times(_: (), parent: Channel<[f64; 2], ()>) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::ones([1], (Dtype::F32, gpu()));
    let device = cuda::device::current();
    let (mut on_its_way, mut done) = (Vec::new(), Vec::new());
    for _ in 0..300 {
        let start = Instant::now();
        group.all_reduce(&x, ReduceOp::Avg)?;
        on_its_way.push(start.elapsed().as_secs_f64() * 1e6);
        cuda::device::synchronize(device)?;
        done.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    parent.send(&[median(&mut on_its_way), median(&mut done)])
}

/// A figure, for those who ask for it: `cargo nextest run --run-ignored only --no-capture how_long`.
#[test]
#[ignore = "a measurement"]
fn how_long_a_small_all_reduce_takes() {
    for layout in [&[4][..], &[2, 2], &[1, 1, 1, 1]] {
        let Some((_hosts, ranks)) = start_on_gpus(layout, 60.0, times, &()) else { return };
        for (rank, (_, channel)) in ranks.iter().enumerate() {
            let [on_its_way, done] = channel.recv_timeout(super::super::LONG).unwrap();
            println!(
                "{layout:?}, rank {rank}: on its way after {on_its_way:.0} us, done after {done:.0} us"
            );
        }
    }
}
