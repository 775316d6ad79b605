//! Collectives of NCCL against those in shared memory. Ranks may share the one GPU that there is, which says
//! whether calls are right, never how fast they are.

use std::time::Duration;

use torchrs::distributed::{InitOptions, ProcessGroup, ReduceOp, StoreServer, init_process_group};
use torchrs::multiprocessing::Process;
use torchrs::{Device, Dtype, Error, Result, Tensor, cuda};

/// No wait is longer.
const LONG: Duration = Duration::from_secs(60);
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

/// Runs the ranks, each in a process.
pub fn check(ranks: usize) -> Result<()> {
    cuda::device::check_available()?;
    let devices = cuda::device_count();
    let share = devices < ranks;
    println!("{ranks} rank(s) on {} GPU(s)", devices.min(ranks));
    let server = StoreServer::start()?;
    let start = |rank: usize| {
        let mut process = Process::builder()
            .name(format!("rank {rank}"))
            .env("RANK", rank.to_string())
            .env("LOCAL_RANK", (rank % devices).to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("TORCHRS_TIMEOUT_S", "30")
            .inherit("TORCHRS_STORE_FD", server.connect()?);
        if share {
            process = process.env("NCCL_HOSTID", format!("rank{rank}"));
            for (name, value) in SHARED {
                process = process.env(name, value);
            }
        }
        process.spawn(rank_of, ())
    };
    let all: Vec<Process> = (0..ranks).map(start).collect::<Result<_>>()?;
    all.iter().try_for_each(|rank| rank.join_timeout(LONG))
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
