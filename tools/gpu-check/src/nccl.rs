//! Collectives of NCCL against those in shared memory. Ranks may share the one GPU that there is, which says
//! whether calls are right, never how fast they are. Then a split communicator, data-parallel training, a
//! recorded all-reduce, and an abort while that graph lives and one rank is in it.

use std::time::{Duration, Instant};

use torchrs::cuda_graphs::CudaGraph;
use torchrs::distributed::{
    DistributedDataParallel, InitOptions, ProcessGroup, ReduceOp, StoreServer, init_process_group,
};
use torchrs::multiprocessing::Process;
use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Device, Dtype, Error, Result, Tensor, cuda};

/// No wait is longer: less than `scripts/gpu-check` waits.
const LONG: Duration = Duration::from_secs(15);
/// With these NCCL takes ranks on one GPU for ranks on several hosts.
const SHARED: [(&str, &str); 9] = [
    ("NCCL_SOCKET_IFNAME", "lo"),
    ("NCCL_IB_DISABLE", "1"),
    ("NCCL_P2P_DISABLE", "1"),
    ("NCCL_SHM_DISABLE", "1"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_MAX_CTAS", "2"),
    ("NCCL_ALGO", "Ring"),
    ("NCCL_PROTO", "Simple"),
    ("NCCL_MULTI_RANK_GPU_ENABLE", "1"),
];

/// All that is asked of collectives.
pub fn check(ranks: usize) -> Result<()> {
    println!("{ranks} rank(s) on {} GPU(s)", cuda::device_count().min(ranks));
    run(ranks, LONG, rank_of)
}

/// In a rank: calls `body` with the group of all ranks and this one's GPU.
pub fn in_group(body: impl FnOnce(&ProcessGroup, Device) -> Result<()>) -> Result<()> {
    let group = init_process_group(InitOptions::default())?;
    body(&group, Device::Cuda(cuda::device::current()))?;
    group.barrier()
}

/// Runs `rank` in as many processes, none for longer than `limit`.
pub fn run<F>(ranks: usize, limit: Duration, rank: F) -> Result<()>
where
    F: Fn(()) -> Result<()> + Copy + 'static,
{
    cuda::device::check_available()?;
    let devices = cuda::device_count();
    let share = devices < ranks;
    let server = StoreServer::start()?;
    let start = |index: usize| {
        let mut process = Process::builder()
            .name(format!("rank {index}"))
            .env("RANK", index.to_string())
            .env("LOCAL_RANK", (index % devices).to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("TORCHRS_TIMEOUT_S", "8")
            .inherit("TORCHRS_STORE_FD", server.connect()?);
        if share {
            process = process.env("NCCL_HOSTID", format!("rank{index}"));
            for (name, value) in SHARED {
                process = process.env(name, value);
            }
        }
        process.spawn(rank, ())
    };
    let all: Vec<Process> = (0..ranks).map(start).collect::<Result<_>>()?;
    all.iter().try_for_each(|process| process.join_timeout(limit))
}

fn rank_of(_: ()) -> Result<()> {
    let group = init_process_group(InitOptions::default())?;
    let gpu = Device::Cuda(cuda::device::current());
    let mut calls = 0;
    for dtype in [Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16, Dtype::I64, Dtype::U8] {
        let (there, here) =
            (collectives(&group, gpu, dtype)?, collectives(&group, Device::Cpu, dtype)?);
        for (k, (a, b)) in there.iter().zip(&here).enumerate() {
            if a.to_vec::<f64>() != b.to_vec::<f64>() {
                return Err(Error::Other(format!(
                    "result {k} of {dtype}: {a} by NCCL, {b} by the host"
                )));
            }
        }
        calls += there.len();
    }
    group.barrier()?;
    if group.rank() == 0 {
        println!("{calls} results of collectives agree with the host's");
    }
    split(&group, gpu)?;
    train(&group, gpu)?;
    abort(group, gpu)
}

/// An error unless the numbers are all `want`.
fn expect(what: &str, numbers: &Tensor, want: f32) -> Result<()> {
    let numbers = numbers.to_vec::<f32>();
    match numbers.iter().all(|&number| number == want) {
        true => Ok(()),
        false => Err(Error::Other(format!("{what}: {numbers:?}, not {want}"))),
    }
}

/// Groups of all ranks and of one rank each, split from the communicator; calls in turns.
fn split(group: &ProcessGroup, gpu: Device) -> Result<()> {
    let world = group.world_size();
    let all = group.new_group(&(0..world).collect::<Vec<_>>())?;
    let alone = (0..world).map(|rank| group.new_group(&[rank])).collect::<Result<Vec<_>>>()?;
    for _ in 0..10 {
        let [a, b, c] = [(); 3].map(|()| Tensor::ones([1000], (Dtype::F32, gpu)));
        let works = [
            group.all_reduce_async(&a, ReduceOp::Sum)?,
            all.all_reduce_async(&b, ReduceOp::Sum)?,
            alone[group.rank()].all_reduce_async(&c, ReduceOp::Sum)?,
        ];
        works.iter().try_for_each(|work| work.wait())?;
        expect("a group", &a, world as f32)?;
        expect("a split of all ranks", &b, world as f32)?;
        expect("a split of one rank", &c, 1.0)?;
    }
    say(group, "splits agree")
}

/// The same steps by all ranks on parts of a batch and by one rank on all of it.
fn train(group: &ProcessGroup, gpu: Device) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let steps = |model: &dyn Forward, parameters: Vec<Tensor>, part: &dyn Fn(&Tensor) -> Tensor| {
        let mut optimizer =
            SGD::new(parameters.iter().cloned(), SGDOptions { lr: 0.05, ..Default::default() });
        torchrs::manual_seed(5);
        for _ in 0..5 {
            let x = Tensor::randn([8 * world, 16], Dtype::F32);
            optimizer.zero_grad();
            (model.forward(&part(&x).to_device(gpu)) - 1.0).square().mean().backward();
            optimizer.step();
        }
        parameters.iter().map(|p| p.detach().cpu()).collect::<Vec<_>>()
    };
    let make = || {
        torchrs::manual_seed(3);
        let mut model =
            Sequential::new().append(Linear::new(16, 64)).append(ReLU).append(Linear::new(64, 4));
        model.to_device(gpu);
        model
    };
    let alone = make();
    let want = steps(&alone, alone.parameters(), &Tensor::clone);
    let together = DistributedDataParallel::new(make(), group)?;
    let got = steps(&*together, together.parameters(), &|x| x.narrow(0, rank * 8, 8));
    let difference = |(a, b): (&Tensor, &Tensor)| (a - b).abs().max().item();
    let most = want.iter().zip(&got).map(difference).fold(0.0, f64::max);
    if most > 1e-4 {
        return Err(Error::Other(format!("data-parallel training differs by {most}")));
    }
    say(group, "data-parallel training agrees")
}

/// A recorded all-reduce, which at last not all ranks replay: the abort ends it while the graph lives.
fn abort(group: ProcessGroup, gpu: Device) -> Result<()> {
    let (rank, world) = (group.rank(), group.world_size());
    let x = Tensor::ones([1000], (Dtype::F32, gpu));
    group.all_reduce(&x, ReduceOp::Avg)?;
    let (graph, ()) = CudaGraph::capture(|| group.all_reduce(&x, ReduceOp::Sum))?;
    graph.replay()?;
    graph.replay()?;
    expect("a recorded all-reduce", &x, (world * world) as f32)?;
    group.barrier()?;
    let start = Instant::now();
    if rank == 0 {
        graph.replay()?;
    } else {
        std::thread::sleep(Duration::from_millis(200));
    }
    if rank > 0 || world == 1 {
        group.abort("enough");
    }
    let seen = torchrs::catch(|| x.to_vec::<f32>());
    if rank == 0 && world > 1 && seen.is_ok() {
        return Err(Error::Other("a replay without its peers gave a result".into()));
    }
    if group.check().is_ok() || graph.replay().is_ok() || group.barrier().is_ok() {
        return Err(Error::Other("calls after an abort succeed".into()));
    }
    drop(group);
    drop(graph);
    println!("rank {rank}: an abort with a live graph took {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Once all ranks are there.
fn say(group: &ProcessGroup, what: &str) -> Result<()> {
    group.barrier()?;
    if group.rank() == 0 {
        println!("{what}");
    }
    Ok(())
}

/// Every kind of call; the results on the host.
fn collectives(group: &ProcessGroup, device: Device, dtype: Dtype) -> Result<Vec<Tensor>> {
    let (rank, world) = (group.rank(), group.world_size());
    let mine = |shape: &[usize]| {
        // Sums and products of these are exact in every dtype.
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| ((rank * 5 + i * 3) % 4) as f32).collect();
        Tensor::from_slice(&values, shape).to_dtype(dtype).to_device(device)
    };
    let mut results = Vec::new();
    for len in [1usize, 5, 40_000] {
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max] {
            let x = mine(&[len]);
            group.all_reduce(&x, op)?;
            results.push(x);
            let part = mine(&[len]);
            group.reduce_scatter_tensor(&part, &mine(&[world, len]), op)?;
            results.push(part);
        }
        let x = mine(&[len]);
        group.broadcast(&x, world - 1)?;
        results.push(x);
        results.extend(group.all_gather(&mine(&[len]))?);
        results.extend(group.gather(&mine(&[len]), 0)?.unwrap_or_default());
        let y = mine(&[world, len]);
        group.all_to_all_single(&y, &mine(&[world, len]))?;
        results.push(y);
    }
    Ok(results.iter().map(Tensor::cpu).collect())
}
