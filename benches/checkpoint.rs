//! Saving and loading a state that two ranks have together: 32 float32 tensors, each cut along dimension 0. Rows have the
//! names that PyTorch's side of the benchmarks has (`tools/bench/peer_dcp.py`).
//!
//! `cargo bench --bench checkpoint [-- MIB]` prints a JSON line per row. It writes into the folder for temporary files.

#[path = "common/ranks.rs"]
mod ranks;

use std::path::PathBuf;
use std::time::Instant;

use torchrs::checkpoint::distributed::{self, AsyncCheckpointer, Shard, State};
use torchrs::distributed::{ProcessGroup, ReduceOp, init_process_group};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

const TENSORS: usize = 32;
const WORLD: usize = 2;
const REPEAT: usize = 3;

fn main() -> Result<()> {
    torchrs::init();
    ranks::spawn_with(WORLD, measure, ranks::asked().unwrap_or(1024))
}

fn measure(mib: usize) -> Result<()> {
    set_num_threads(1);
    manual_seed(0);
    let group = init_process_group(Default::default())?;
    let folder = std::env::temp_dir().join("torchrs-bench-checkpoint");
    let rows = (mib << 20) / 4 / TENSORS / 1024;
    let own = rows / WORLD;
    let mut state = State::new();
    let mut tensors = Vec::new();
    for i in 0..TENSORS {
        let own = Tensor::randn([own, 1024], Dtype::F32);
        let shard = Shard::new(
            own.clone(),
            &[own.shape()[0] * WORLD, 1024],
            &[group.rank() * own.shape()[0], 0],
        )?;
        state = state.with_tensor(&format!("layer{i}.weight"), shard)?;
        tensors.push(own);
    }
    let bench = Bench { group: &group, gigabytes: (TENSORS * own * WORLD * 4096) as f64 / 1e9 };
    let path = folder.join("checkpoint");
    let copies: Vec<Tensor> = tensors.iter().map(Tensor::zeros_like).collect();
    bench.row(
        "memcpy_own_half",
        || {},
        || {
            copies.iter().zip(&tensors).for_each(|(copy, tensor)| _ = copy.copy_(tensor));
            Ok(())
        },
    )?;
    drop(copies);
    let clean = || {
        if group.rank() == 0 {
            let _ = std::fs::remove_dir_all(&folder);
            nix::unistd::sync();
        }
    };
    bench.row("dcp_save2", clean, || distributed::save(&state, &path, &group))?;
    bench.row(
        "dcp_load2",
        || {},
        || distributed::load(&state, &path, &group, Default::default()).map(drop),
    )?;
    background(&bench, &state, &path, clean)?;
    clean();
    Ok(())
}

/// Until the call returns, and until the state is on disk; the first call makes the memory for the copy.
fn background(bench: &Bench, state: &State, path: &PathBuf, clean: impl Fn()) -> Result<()> {
    let mut checkpointer = AsyncCheckpointer::new(bench.group)?;
    let (mut blocking, mut total) = (Vec::new(), Vec::new());
    for _ in 0..=REPEAT {
        clean();
        bench.group.barrier()?;
        let start = Instant::now();
        checkpointer.save(state, path)?;
        let returned = start.elapsed().as_secs_f64();
        checkpointer.wait()?;
        blocking.push(bench.slowest(returned)?);
        total.push(bench.slowest(start.elapsed().as_secs_f64())?);
    }
    bench.print("dcp_async_blocking2_first", blocking[..1].to_vec());
    bench.print("dcp_async_blocking2", blocking[1..].to_vec());
    bench.print("dcp_async_total2", total[1..].to_vec());
    Ok(())
}

struct Bench<'a> {
    group: &'a ProcessGroup,
    /// Of the whole state.
    gigabytes: f64,
}

impl Bench<'_> {
    fn row(
        &self,
        name: &str,
        before: impl Fn(),
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut seconds = Vec::new();
        for _ in 0..REPEAT {
            before();
            self.group.barrier()?;
            let start = Instant::now();
            work()?;
            seconds.push(self.slowest(start.elapsed().as_secs_f64())?);
        }
        self.print(name, seconds);
        Ok(())
    }

    fn slowest(&self, seconds: f64) -> Result<f64> {
        let seconds = Tensor::scalar(seconds);
        self.group.all_reduce(&seconds, ReduceOp::Max)?;
        Ok(seconds.item())
    }

    fn print(&self, name: &str, mut seconds: Vec<f64>) {
        seconds.sort_by(f64::total_cmp);
        if self.group.rank() == 0 {
            let row = serde_json::json!({
                "name": name, "threads": WORLD, "median_s": seconds[seconds.len() / 2],
                "min_s": seconds[0], "unit": "GB/s", "rate": self.gigabytes / seconds[0],
            });
            println!("{row}");
        }
    }
}
