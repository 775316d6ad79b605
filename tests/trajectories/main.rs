//! Training runs of PyTorch, replayed step by step from its initial weights on its batches, in f64
//! and f32: in one process, and as data-parallel jobs of 2 and 4 ranks under the launcher, with batch
//! norms of their own and synchronised ones; and sharded over every mesh of up to 8 ranks. Losses, rates, gradient norms, final weights and buffers
//! must be PyTorch's. The runs lie in `tests/golden/e2e`, or in `e2e` of the folder that
//! `TORCHRS_GOLDEN_DIR` names.
//!
//! The program has a `main` of its own, since the launcher starts it as the worker of a job.

mod models;
mod recipe;

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use torchrs::checkpoint::{TensorMap, load_file};
use torchrs::distributed::{self, DeviceMesh, DistributedDataParallel, ProcessGroup};
use torchrs::models::{ActivationCheckpointing, LlamaConfig};
use torchrs::nn::{Module, SyncBatchNorm, functional as F};
use torchrs::{Dtype, Tensor};

use models::Model;
use recipe::Training;

#[torchrs::main]
fn main() -> torchrs::Result<()> {
    if env::var_os("RANK").is_some() {
        let group = distributed::init_process_group(Default::default())?;
        models::NAMES.iter().for_each(|name| in_parallel(name, &group));
        models::SHARDED.iter().for_each(|name| sharded(name, &group));
        return group.barrier();
    }
    let all: [(&str, fn()); 9] = [
        ("the_mlp_trains_as_in_pytorch", || alone("mlp")),
        ("the_lenet_with_batch_norm_trains_as_in_pytorch", || alone("lenet_bn")),
        ("the_tiny_gpt_with_a_tied_head_trains_as_in_pytorch", || alone("tiny_gpt")),
        ("the_tiny_llama_trains_as_in_pytorch", || alone("tiny_llama")),
        ("the_tiny_llama_computes_blocks_again", || {
            alone_with("tiny_llama", ActivationCheckpointing::Full)
        }),
        ("the_tiny_llama_computes_parts_of_blocks_again", || {
            alone_with("tiny_llama", ActivationCheckpointing::Selective)
        }),
        ("two_ranks_train_as_in_pytorch", || launched(2)),
        ("four_ranks_train_as_in_pytorch", || launched(4)),
        ("sharded_over_up_to_eight_ranks_they_train_as_in_pytorch", || {
            [1, 3, 5, 6, 7, 8].into_iter().for_each(launched);
        }),
    ];
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|a| a == flag);
    let names: Vec<_> = arguments.iter().filter(|a| !a.starts_with('-') && *a != "terse").collect();
    for (name, test) in all {
        let named = names
            .iter()
            .any(|n| if has("--exact") { *n == name } else { name.contains(n.as_str()) });
        if has("--ignored") || !(names.is_empty() || named) {
            continue;
        }
        if has("--list") {
            println!("{name}: test");
            continue;
        }
        test();
        println!("test {name} ... ok");
    }
    Ok(())
}

/// The launcher with this program as its workers.
fn launched(ranks: usize) {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let build = ["build", "--quiet", "--package", "torchrs-launcher", "--profile", profile];
    let mut cargo = Command::new(env!("CARGO"));
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(build).status();
    assert!(built.expect("cargo runs").success(), "the launcher is built");
    let own = env::current_exe().expect("its own path");
    let launcher = own.ancestors().nth(2).expect("target/<profile>").join("torchrs-launch");
    let mut job = Command::new(launcher);
    job.args(["--nproc", &ranks.to_string(), "--no-build"]).arg(own);
    let status = job.stdout(Stdio::null()).status().expect("the launcher starts");
    assert!(status.success(), "{ranks} ranks: {status}");
}

/// What PyTorch left of a model's runs.
struct Recorded {
    model: &'static str,
    runs: Value,
    init: TensorMap,
    batches: TensorMap,
    results: TensorMap,
}

impl Recorded {
    fn read(model: &'static str) -> Self {
        let folders: Vec<PathBuf> = match env::var_os("TORCHRS_GOLDEN_DIR") {
            Some(folders) => env::split_paths(&folders).collect(),
            None => vec![PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")],
        };
        let mut folders = folders.iter().map(|folder| folder.join("e2e").join(model));
        let folder =
            folders.find(|folder| folder.is_dir()).expect("a folder with the model's runs");
        let runs = std::fs::read_to_string(folder.join("runs.json")).expect("runs.json");
        let runs = serde_json::from_str(&runs).expect("runs.json is JSON");
        let load = |part: &str| load_file(folder.join(format!("{part}.safetensors"))).expect(part);
        let (init, batches, results) = (load("init"), load("batches"), load("results"));
        Recorded { model, runs, init, batches, results }
    }

    /// Runs of a kind, in both types.
    fn runs(&self, kind: &str) -> impl Iterator<Item = (&Value, Dtype)> {
        let runs = self.runs[kind].as_array().into_iter().flatten();
        runs.flat_map(|run| [(run, Dtype::F64), (run, Dtype::F32)])
    }

    /// The model with the initial weights.
    fn fresh(&self, dtype: Dtype) -> Box<dyn Model> {
        let mut net = models::make(self.model);
        if let Some(config) = self.runs.get("config") {
            let config: LlamaConfig = serde_json::from_value(config.clone()).expect("its settings");
            let same = |config: LlamaConfig| serde_json::to_value(config).expect("JSON");
            assert_eq!(same(config), same(models::tiny_llama()), "{}", self.model);
        }
        net.to(dtype);
        net.load_state_dict(&self.init, true).expect("PyTorch's names and shapes");
        net
    }

    /// Rows of batch `t`, and their classes.
    fn batch(&self, t: u64, dtype: Dtype) -> (Tensor, Tensor) {
        let (x, y) = (&self.batches["x"], &self.batches["y"]);
        let x = x.select(0, t as i64);
        let x = if x.dtype().is_floating_point() { x.to_dtype(dtype) } else { x };
        (x, y.select(0, t as i64))
    }

    /// Parameters and buffers after a run, where they were kept.
    fn check_final(&self, net: &dyn Model, run: &Value, dtype: Dtype) {
        let prefix = run["final_weights"]["float64"].as_str().unwrap_or("");
        for (name, tensor) in net.state_dict().iter() {
            if let Some(want) = self.results.get(&format!("{prefix}{name}")) {
                let what = format!("{}, final {name}", self.label(run, dtype));
                close(tensor, want, tolerance(run, dtype, "weights"), &what);
            }
        }
    }

    fn label(&self, run: &Value, dtype: Dtype) -> String {
        format!("{} {} {dtype}", self.model, run["run"])
    }
}

fn tolerance(run: &Value, dtype: Dtype, of: &str) -> f64 {
    let name = if dtype == Dtype::F64 { "float64" } else { "float32" };
    run["tol"][name][of].as_f64().expect("a tolerance")
}

fn close(got: &Tensor, want: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(got.shape(), want.shape(), "{what}");
    let (got, want) = (got.to_vec::<f64>(), want.to_vec::<f64>());
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        assert!((a - b).abs() <= tolerance, "{what}[{i}]: {a}, PyTorch has {b}");
    }
}

fn close_number(got: f64, want: &Value, tolerance: f64, what: &str) {
    let want = want.as_f64().unwrap_or_else(|| panic!("{what}: nothing recorded"));
    assert!((got - want).abs() <= tolerance, "{what}: {got}, PyTorch has {want}");
}

fn loss(net: &dyn Model, x: &Tensor, y: &Tensor) -> Tensor {
    let scores = net.logits(x);
    let classes = scores.size(-1) as i64;
    F::cross_entropy(&scores.reshape([-1, classes]), &y.reshape([-1]))
}

/// All recipes in this process.
fn alone(model: &'static str) {
    alone_with(model, ActivationCheckpointing::None);
}

fn alone_with(model: &'static str, checkpointing: ActivationCheckpointing) {
    let recorded = Recorded::read(model);
    for (run, dtype) in recorded.runs("runs") {
        let label = recorded.label(run, dtype);
        let mut net = recorded.fresh(dtype);
        net.set_activation_checkpointing(checkpointing);
        let mut training = Training::new(&*net, &run["recipe"]);
        let k = training.accumulate;
        for t in 0..run["batches"].as_u64().expect("a number of batches") {
            let what = format!("{label}, batch {t}");
            let (x, y) = recorded.batch(t, dtype);
            if t == 0 && dtype == Dtype::F64 {
                close(&net.logits(&x), &recorded.results["step0/logits"], 1e-9, &what);
                recorded.fresh(dtype).state_dict().iter().for_each(|(name, before)| {
                    // Statistics of the look above do not count.
                    torchrs::no_grad(|| _ = net.state_dict()[name].copy_(before));
                });
            }
            let loss = loss(&*net, &x, &y);
            let want = &run["losses"]["float64"][t as usize];
            close_number(loss.item(), want, tolerance(run, dtype, "loss"), &what);
            (loss / k as f64).backward();
            if t == 0 && dtype == Dtype::F64 && k == 1 {
                for (name, parameter) in net.named_parameters() {
                    let want = &recorded.results[&format!("step0/grad/{name}")];
                    close(&parameter.grad().unwrap(), want, 1e-9, &format!("{what}, {name}"));
                }
            }
            if (t + 1) % k == 0 {
                let step = (t / k) as usize;
                close_number(training.lr(), &run["lr_per_step"][step], 1e-12, &what);
                if let Some(norm) = training.step(&*net) {
                    let want = &run["grad_norm_before_clip"]["float64"][step];
                    let most = if dtype == Dtype::F64 { 1e-7 } else { 1e-4 };
                    close_number(norm, want, most, &what);
                }
            }
        }
        recorded.check_final(&*net, run, dtype);
        if let Some(want) = run["eval_logits"]["float64"].as_str() {
            net.eval();
            let got = net.logits(&recorded.batch(0, dtype).0);
            // Small differences of weights add up.
            let most = 100.0 * tolerance(run, dtype, "weights");
            if let Some(want) = recorded.results.get(want) {
                close(&got, want, most, &format!("{label}, evaluated"));
            }
        }
    }
}

/// All runs of this world's size, as one of its ranks.
fn in_parallel(model: &'static str, group: &ProcessGroup) {
    let (rank, world) = (group.rank(), group.world_size());
    let recorded = Recorded::read(model);
    for (run, dtype) in recorded.runs("data_parallel") {
        if run["world_size"].as_u64() != Some(world as u64) {
            continue;
        }
        let shards: Vec<usize> = serde_json::from_value(run["shards"].clone()).expect("shards");
        let start: usize = shards[..rank].iter().sum();
        let net = recorded.fresh(dtype);
        let net = match run["sync_batchnorm"] == true {
            true => SyncBatchNorm::convert_sync_batchnorm(net, None),
            false => net,
        };
        let net = DistributedDataParallel::new(net, group).expect("all ranks have the same model");
        let mut training = Training::new(&**net, &run["recipe"]);
        for t in 0..run["steps"].as_u64().expect("steps") {
            let what = format!("{}, step {t} on rank {rank}", recorded.label(run, dtype));
            let (x, y) = recorded.batch(t, dtype);
            let rows = |all: &Tensor| all.narrow(0, start, shards[rank]);
            let loss = loss(&**net, &rows(&x), &rows(&y));
            let want = &run["rank_losses"]["float64"][t as usize][rank];
            close_number(loss.item(), want, tolerance(run, dtype, "loss"), &what);
            loss.backward();
            training.step(&**net);
        }
        recorded.check_final(&**net, run, dtype);
    }
}

/// All meshes of the group's ranks: shards alone, and replicas of shards.
fn meshes(group: &ProcessGroup) -> Vec<DeviceMesh> {
    let world = group.world_size();
    let replicas = (2..world).filter(|&replicas| world.is_multiple_of(replicas));
    let hybrid = replicas.map(|replicas| {
        DeviceMesh::new(group, [("replicate", replicas as isize), ("shard", -1)]).expect("a mesh")
    });
    std::iter::once(DeviceMesh::from(group)).chain(hybrid).collect()
}

/// All recipes on sharded models: each rank has the whole batch, so that the mean of their gradients is its gradient.
fn sharded(model: &'static str, group: &ProcessGroup) {
    let recorded = Recorded::read(model);
    for (mesh, (run, dtype)) in
        meshes(group).iter().flat_map(|mesh| recorded.runs("runs").map(move |run| (mesh, run)))
    {
        let label = format!("{} on rank {} of\n{mesh}", recorded.label(run, dtype), group.rank());
        let mut net = recorded.fresh(dtype);
        net.shard(mesh);
        let mut training = Training::new(&*net, &run["recipe"]);
        let k = training.accumulate;
        for t in 0..run["batches"].as_u64().expect("a number of batches") {
            let what = format!("{label}, batch {t}");
            let (x, y) = recorded.batch(t, dtype);
            let loss = loss(&*net, &x, &y);
            let want = &run["losses"]["float64"][t as usize];
            close_number(loss.item(), want, tolerance(run, dtype, "loss"), &what);
            (loss / k as f64).backward();
            if (t + 1) % k == 0
                && let Some(norm) = training.step(&*net)
            {
                let want = &run["grad_norm_before_clip"]["float64"][(t / k) as usize];
                let most = if dtype == Dtype::F64 { 1e-7 } else { 1e-4 };
                close_number(norm, want, most, &what);
            }
        }
        recorded.check_final(&*net, run, dtype);
    }
}
