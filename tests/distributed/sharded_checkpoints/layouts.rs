//! A state that is saved in one layout is the same bits when it is loaded in another.

use torchrs::checkpoint::distributed::{self, LoadOptions, Shard, State};
use torchrs::checkpoint::{Checkpoint, CheckpointDir};
use torchrs::distributed::{DeviceMesh, ProcessGroup};
use torchrs::nn::parallel::{DistributedDataParallel, FullyShardOptions, fully_shard};
use torchrs::nn::{self, Forward, Module};
use torchrs::optim::{Adam, Optimizer, ZeroRedundancyOptimizer};
use torchrs::train::TrainState;
use torchrs::{Dtype, Tensor, manual_seed, multiprocessing};

use super::super::job::Job;
use super::bits;

/// Sizes that no number of ranks divides, and a buffer.
#[derive(Module)]
struct Net {
    first: nn::Linear,
    norm: nn::BatchNorm1d,
    second: nn::Linear,
}

impl Net {
    fn new() -> Self {
        let (first, second) = (nn::Linear::new(5, 7), nn::Linear::new(7, 3));
        Net { first, norm: nn::BatchNorm1d::new(7), second }
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.second.forward(&self.norm.forward(&self.first.forward(x)).relu())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    /// Whole, written by rank 0.
    Whole,
    /// Whole, written by all.
    Replicas,
    Zero1,
    /// All in one group, kept until backward.
    Zero2,
    Full,
    /// Two replicas of shards.
    Hybrid,
}

fn full_shard(net: &mut Net, mesh: &DeviceMesh) {
    fully_shard(&mut net.first, mesh, Default::default()).unwrap();
    fully_shard(net, mesh, Default::default()).unwrap();
}

/// A model in a layout, and its optimizer.
struct Run {
    layout: Layout,
    model: Model,
    optimizer: Box<dyn Optimizer>,
}

enum Model {
    Own(Net),
    Ddp(DistributedDataParallel<Net>),
}

impl Run {
    /// With values that depend on `seed` and on the number of steps.
    fn new(layout: Layout, group: &ProcessGroup, seed: u64, steps: usize) -> Self {
        manual_seed(seed);
        let mut net = Net::new();
        match layout {
            Layout::Full => full_shard(&mut net, &DeviceMesh::from(group)),
            Layout::Hybrid => {
                let mesh = DeviceMesh::new(group, [("replicate", 2), ("shard", -1)]).unwrap();
                full_shard(&mut net, &mesh);
            }
            Layout::Zero2 => {
                let keep = Some(false.into());
                let options =
                    FullyShardOptions { reshard_after_forward: keep, ..Default::default() };
                fully_shard(&mut net, group, options).map(drop).unwrap();
            }
            Layout::Whole | Layout::Replicas | Layout::Zero1 => {}
        }
        let parameters = net.parameters();
        let adam = |own: Vec<Tensor>| Adam::new(own, Default::default());
        let optimizer: Box<dyn Optimizer> = match layout {
            Layout::Zero1 => {
                Box::new(ZeroRedundancyOptimizer::new(parameters, group, adam).unwrap())
            }
            _ => Box::new(adam(parameters)),
        };
        let model = match layout {
            Layout::Whole | Layout::Replicas | Layout::Zero1 => {
                Model::Ddp(DistributedDataParallel::new(net, group).unwrap())
            }
            _ => Model::Own(net),
        };
        let mut run = Run { layout, model, optimizer };
        for step in 0..steps {
            let x = Tensor::arange(0.0, 20.0, 1.0, Dtype::F32).reshape([4, 5]).sin()
                * (step as f64 + 1.0);
            run.optimizer.zero_grad();
            let y = match &run.model {
                Model::Own(net) => net.forward(&x),
                Model::Ddp(ddp) => ddp.forward(&x),
            };
            y.square().mean().backward();
            run.optimizer.step();
        }
        run
    }

    fn state(&mut self) -> TrainState<'_> {
        let net: &Net = match &self.model {
            Model::Own(net) => net,
            Model::Ddp(ddp) => ddp,
        };
        let state = TrainState::new().model(net).optimizer(&mut self.optimizer);
        match self.layout {
            Layout::Replicas | Layout::Zero1 => state.sharded(),
            _ => state,
        }
    }
}

const NODES: [(Layout, usize); 13] = [
    (Layout::Whole, 1),
    (Layout::Whole, 2),
    (Layout::Replicas, 1),
    (Layout::Replicas, 3),
    (Layout::Zero1, 2),
    (Layout::Zero1, 3),
    (Layout::Zero2, 4),
    (Layout::Full, 1),
    (Layout::Full, 2),
    (Layout::Full, 3),
    (Layout::Full, 4),
    (Layout::Full, 8),
    (Layout::Hybrid, 4),
];

fn all_pairs(rank: usize, job: Job) {
    let world = job.join(rank);
    let groups: Vec<ProcessGroup> = (0..NODES.len())
        .map(|node| world.new_group(&(0..NODES[node].1).collect::<Vec<_>>()).unwrap())
        .collect();
    let folder = |name: String| CheckpointDir::new(job.out.join(name), 9);
    for (node, (layout, _)) in
        NODES.iter().enumerate().filter(|(node, _)| groups[*node].is_member())
    {
        let mut run = Run::new(*layout, &groups[node], 1, 3);
        run.state().save(&folder(node.to_string()), 5, &groups[node]).unwrap();
    }
    world.barrier().unwrap();
    let of = |name: String| bits(&folder(name).at(5));
    if rank == 0 {
        // What sharded ranks save is what a rank of a data-parallel job saves.
        for (ours, theirs) in [(7, 0), (2, 0), (8, 1), (4, 1)] {
            let same = of(ours.to_string()) == of(theirs.to_string());
            assert!(same, "{:?} and {:?}", NODES[ours], NODES[theirs]);
        }
        let index = |node: usize| folder(node.to_string()).at(5).join("index.json");
        assert!(index(8).exists() && !index(1).exists());
    }
    for from in 0..NODES.len() {
        let saved = of(from.to_string());
        for to in (0..NODES.len()).filter(|to| groups[*to].is_member()) {
            let ((layout, _), group) = (NODES[to], &groups[to]);
            let mut run = Run::new(layout, group, 2, 1);
            let checkpoint = Checkpoint::open(folder(from.to_string()).at(5)).unwrap();
            let resumed = run.state().load(&checkpoint, group).unwrap();
            assert_eq!((resumed.step, resumed.world_size), (5, NODES[from].1));
            let name = format!("{from}-{to}");
            run.state().save(&folder(name.clone()), 5, group).unwrap();
            if group.rank() == 0 {
                assert!(of(name) == saved, "from {:?} to {:?}", NODES[from], NODES[to]);
            }
        }
        world.barrier().unwrap();
    }
}

#[test]
fn any_layout_loads_what_any_other_has_saved_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(all_pairs, Job::new(8, folder.path().to_owned()), 8).unwrap();
}

/// Three ranks have columns each, two others rows; one has both whole.
fn columns_to_rows(rank: usize, job: Job) {
    let world = job.join(rank);
    let whole = |seed: f64| Tensor::arange(0.0, 70.0, 1.0, Dtype::F32).reshape([7, 10]) + seed;
    let path = job.out.join("columns");
    let cut = |tensor: &Tensor, dim: i64, from: usize, to: usize| {
        let part = tensor.narrow(dim, from, to - from).clone_contiguous();
        let offsets = if dim == 0 { [from, 0] } else { [0, from] };
        Shard::new(part, &[7, 10], &offsets).unwrap()
    };
    let bounds = [0, 4, 8, 10];
    let state = State::new()
        .with_tensor("w", cut(&whole(0.0), 1, bounds[rank], bounds[rank + 1]))
        .unwrap()
        .with_tensor("scalar", Tensor::scalar(3.5f32))
        .unwrap()
        .with_value("step", &rank)
        .unwrap();
    distributed::save(&state, &path, &world).unwrap();
    let rows = [0, 5, 7, 7];
    let mine = cut(&whole(100.0), 0, rows[rank], rows[rank + 1]);
    let (scalar, half) = (Tensor::scalar(0f32), Tensor::zeros([7, 10], Dtype::F64));
    let state = State::new().with_tensor("w", mine.clone()).unwrap();
    let strict =
        distributed::load(&state, &path, &world, Default::default()).unwrap_err().to_string();
    assert!(strict.contains("has scalar, which the state does not have"), "{strict}");
    let partly = LoadOptions { strict: false };
    let state = state.with_tensor("none", Tensor::scalar(1f32)).unwrap();
    let loaded = distributed::load(&state, &path, &world, partly).unwrap();
    assert_eq!(
        (loaded.missing, loaded.unexpected),
        (vec!["none".to_owned()], vec!["scalar".to_owned()])
    );
    assert_eq!(loaded.world_size, Some(3));
    let expected = cut(&whole(0.0), 0, rows[rank], rows[rank + 1]);
    assert!(mine.tensor().equal(expected.tensor()));
    // Another dtype, and a tensor that is not contiguous.
    let state = State::new().with_tensor("w", half.t().clone_contiguous().t()).unwrap();
    let state = state.with_tensor("scalar", scalar.clone()).unwrap();
    let loaded = distributed::load(&state, &path, &world, Default::default()).unwrap();
    assert!(state.tensor("w").unwrap().tensor().equal(&whole(0.0).to_dtype(Dtype::F64)));
    assert_eq!((scalar.item(), loaded.value::<usize>("step").unwrap()), (3.5, 0));
    assert!(
        loaded.value::<usize>("stop").unwrap_err().to_string().contains("there are [\"step\"]")
    );
}

#[test]
fn parts_along_any_dimension_are_cut_anew() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(columns_to_rows, Job::new(3, folder.path().to_owned()), 3).unwrap();
}

/// Bytes that this process has read from files and sockets so far.
fn bytes_read() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok()).unwrap()
}

fn read_once(rank: usize, job: Job) {
    let world = job.join(rank);
    let path = job.out.join("large");
    let size = 1 << 21;
    let tensors = |seed: f64| -> Vec<Tensor> {
        (0..5).map(|i| Tensor::full([size / 8, 8], i as f64 + seed, Dtype::F32)).collect()
    };
    let state = |tensors: &[Tensor]| {
        let named = tensors.iter().enumerate();
        named.fold(State::new(), |s, (i, t)| s.with_tensor(&i.to_string(), t.clone()).unwrap())
    };
    distributed::save(&state(&tensors(1.0)), &path, &world).unwrap();
    let nbytes = 5 * size as u64 * 4;
    let sizes =
        std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    let written: u64 = sizes.sum();
    assert!((nbytes..nbytes + nbytes / 50).contains(&written), "{written} bytes for {nbytes}");
    let loaded = tensors(0.0);
    let before = bytes_read();
    distributed::load(&state(&loaded), &path, &world, Default::default()).unwrap();
    let read = world.all_gather_object(&(bytes_read() - before)).unwrap();
    let all: u64 = read.iter().sum();
    assert!((nbytes..nbytes + nbytes / 20).contains(&all), "{read:?} bytes read of {nbytes}");
    // Each has read its share.
    assert!(read.iter().all(|read| (nbytes / 5..nbytes / 2).contains(read)), "{read:?}");
    assert!(loaded.iter().zip(tensors(1.0)).all(|(a, b)| a.equal(&b)));
}

#[test]
fn each_byte_is_written_once_and_read_once_on_a_host() {
    let folder = tempfile::tempdir().unwrap();
    multiprocessing::spawn(read_once, Job::new(3, folder.path().to_owned()), 3).unwrap();
}
