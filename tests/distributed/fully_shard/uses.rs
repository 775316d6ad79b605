//! What users do with a sharded model beside training it.

use torchrs::amp::GradScaler;
use torchrs::distributed::{DeviceMesh, DistributedDataParallel};
use torchrs::nn::parallel::{FullyShardOptions, MixedPrecisionPolicy, fully_shard};
use torchrs::nn::{self, Forward, Linear, Module, Sequential, init};
use torchrs::optim::{Adam, Muon, Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Tensor, autograd, catch};

use super::on;
use crate::job::Job;

fn model() -> Sequential {
    Sequential::new().append(Linear::new(6, 5)).append(nn::ReLU).append(Linear::new(5, 3))
}

fn ones() -> Tensor {
    Tensor::ones([2, 6], Dtype::F32)
}

/// Values may be set after sharding: each rank writes the whole and keeps its part.
fn written(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut layer = Linear::new(4, 5);
    fully_shard(&mut layer, &group, Default::default()).unwrap();
    autograd::no_grad(|| {
        layer.weight.copy_(&Tensor::arange(0, 20, 1, Dtype::F32).reshape([5, 4]));
        init::constant_(layer.bias.as_ref().unwrap(), 2.5);
    });
    // Three rows on rank 0, two on rank 1; read before anything else gives the whole back.
    let own = layer.parameters();
    let first = [0.0, 12.0][rank];
    assert_eq!(own[0].shape(), [[3, 4], [2, 4]][rank]);
    assert_eq!(own[0].to_vec::<f32>()[0], first);
    assert_eq!(own[1].to_vec::<f32>(), vec![2.5; own[1].numel()]);
    // And back: what is written to shards is in the whole.
    autograd::no_grad(|| own[1].fill_(rank as f64 + 1.0));
    assert_eq!(layer.bias.as_ref().unwrap().to_vec::<f32>(), [1.0, 1.0, 1.0, 2.0, 2.0]);
    // A state dict of the whole is loaded by all ranks.
    let other = Linear::new(4, 5);
    group.broadcast(&other.weight.detach(), 0).unwrap();
    group.broadcast(&other.bias.as_ref().unwrap().detach(), 0).unwrap();
    layer.load_state_dict(&other.state_dict(), true).unwrap();
    assert_eq!(layer.weight.to_vec::<f32>(), other.weight.to_vec::<f32>());
    // Copies of the values are each rank's own.
    let copies = layer.state_dict();
    let copies: Vec<Tensor> = copies.iter().map(|(_, t)| t.detach().clone_contiguous()).collect();
    if rank == 0 {
        assert_eq!(copies[0].to_vec::<f32>(), other.weight.to_vec::<f32>());
    }
    let rows = [0..3, 3..5][rank].clone();
    let expected = other.weight.narrow(0, rows.start, rows.len()).to_vec::<f32>();
    assert_eq!(layer.parameters()[0].to_vec::<f32>(), expected);
}

#[test]
fn what_is_written_to_one_side_is_read_from_the_other() {
    on(2, written, &());
}

/// One rank looks at its shards between forwards: that changes nothing for the others.
fn read_by_one(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut net = model();
    fully_shard(&mut net, &group, Default::default()).unwrap();
    let before = autograd::no_grad(|| net.forward(&ones()));
    if rank == 1 {
        net.parameters().iter().for_each(|p| _ = std::hint::black_box(p.to_vec::<f32>()));
    }
    let after = autograd::no_grad(|| net.forward(&ones()));
    assert_eq!(before.to_vec::<f32>(), after.to_vec::<f32>());
    // All change their shards: the next forward sees it.
    for p in net.parameters() {
        autograd::no_grad(|| p.fill_(0.0));
    }
    assert_eq!(autograd::no_grad(|| net.forward(&ones())).to_vec::<f32>(), [0.0; 6]);
}

#[test]
fn one_rank_may_read_its_shards() {
    on(2, read_by_one, &());
}

/// A part that only some ranks use, a frozen one, a module used twice, a parameter in two modules.
fn unusual(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    torchrs::manual_seed(1);
    let (first, second) = (Linear::new(6, 6), Linear::new(6, 6));
    let mut tied = Linear::no_bias(6, 6);
    tied.weight = first.weight.clone();
    second.bias.as_ref().unwrap().requires_grad_(false);
    let plain: Vec<Vec<f32>> = {
        let loss = {
            let x = first.forward(&ones()).tanh();
            (tied.forward(&first.forward(&x)) + second.weight.sum()).square().mean()
        };
        loss.backward();
        let all = [&first.weight, first.bias.as_ref().unwrap(), &second.weight];
        let grads = all.map(|p| p.grad().unwrap().to_vec());
        all.iter().for_each(|p| p.set_grad(None));
        grads.into()
    };
    first.bias.as_ref().unwrap().requires_grad_(true);
    let mut net =
        Sequential::new().append(first.clone()).append(second.clone()).append(tied.clone());
    fully_shard(&mut net, &group, Default::default()).unwrap();
    let loss = {
        let x = first.forward(&ones()).tanh();
        (tied.forward(&first.forward(&x)) + second.weight.sum()).square().mean()
    };
    loss.backward();
    let own = net.parameters();
    assert_eq!(own.len(), 4, "the tied parameter is there once");
    assert!(own[3].grad().is_none() && !own[3].requires_grad());
    for (place, whole) in plain.iter().enumerate() {
        let grad = own[place].grad().unwrap().to_vec::<f32>();
        let half = whole.len() / 2;
        assert_eq!(grad, whole[rank * half..][..half], "parameter {place}");
    }
    // A parameter that this backward does not reach gets zeros where the group is reduced.
    net.zero_grad();
    (second.forward(&ones()).sum()).backward();
    assert!(own[0].grad().is_some_and(|g| g.abs().max().item() == 0.0));
    // Frozen and unfrozen by the shard.
    own[3].requires_grad_(true);
    net.zero_grad();
    second.forward(&ones()).sum().backward();
    assert_eq!(own[3].grad().unwrap().to_vec::<f32>(), [2.0; 3]);
}

#[test]
fn tied_frozen_unused_and_reused_parameters() {
    on(2, unusual, &());
}

/// bf16 for computing, f32 for shards.
fn mixed(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    torchrs::manual_seed(4);
    let mut net = model();
    let mp_policy = MixedPrecisionPolicy { param_dtype: Some(Dtype::BF16), ..Default::default() };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    fully_shard(&mut net, &group, options).unwrap();
    let mut optimizer = SGD::new(net.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..20 {
        let y = net.forward(&ones().to_dtype(Dtype::BF16));
        assert_eq!(y.dtype(), Dtype::BF16);
        let loss = (y.to_dtype(Dtype::F32) - 1.0).square().mean();
        loss.backward();
        losses.push(loss.item());
        assert!(
            net.parameters()
                .iter()
                .all(|p| { p.dtype() == Dtype::F32 && p.grad().unwrap().dtype() == Dtype::F32 })
        );
        optimizer.step();
        optimizer.zero_grad();
    }
    assert!(losses[19] < losses[0] * 0.1, "{losses:?}");
}

#[test]
fn half_precision_trains_shards_of_full_precision() {
    on(2, mixed, &());
}

/// What cannot work says why.
fn refused(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut net = model();
    let mut early = Adam::new(net.parameters(), Default::default());
    fully_shard(&mut net, &group, Default::default()).unwrap();
    net.forward(&ones()).sum().backward();
    let error = catch(|| early.step()).unwrap_err().to_string();
    assert!(error.contains("`0.weight`") && error.contains("after `fully_shard`"), "{error}");
    let again = fully_shard(&mut net, &group, Default::default()).unwrap_err().to_string();
    assert!(again.contains("an earlier call has not sharded; shard each module once"), "{again}");
    let wrapped = DistributedDataParallel::new(net, &group).err().expect("it is sharded");
    assert!(wrapped.to_string().contains("averages its gradients already"), "{wrapped}");
    let mut net = model();
    fully_shard(&mut net, &group, Default::default()).unwrap();
    let muon = catch(|| Muon::new([net.parameters().remove(0)], Default::default()));
    let muon = muon.err().expect("it needs the whole").to_string();
    assert!(muon.contains("parameter 0") && muon.contains("needs the whole"), "{muon}");
    let moved = catch(|| net.to(Dtype::F64)).unwrap_err().to_string();
    assert!(moved.contains("move the module first"), "{moved}");

    #[derive(Module)]
    struct Scale {
        factor: nn::Parameter,
    }
    let mut scale = Scale { factor: nn::Parameter::new(Tensor::scalar(1.0f32)) };
    let error = fully_shard(&mut scale, &group, Default::default()).unwrap_err().to_string();
    assert!(error.contains("`factor`") && error.contains("scalar"), "{error}");
}

#[test]
fn what_cannot_work_is_refused() {
    on(2, refused, &());
}

/// Rank 1 does not use the second layer: both get an error that names what each was doing.
fn differ(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let (mut first, mut second) = (Linear::new(6, 6), Linear::new(6, 6));
    fully_shard(&mut first, &group, Default::default()).unwrap();
    fully_shard(&mut second, &group, Default::default()).unwrap();
    let error = catch(|| {
        let x = first.forward(&ones());
        let x = if rank == 0 { second.forward(&x) } else { x };
        x.sum().backward();
        group.barrier().unwrap_or_else(|e| std::panic::panic_any(e));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("fully_shard's group 2") && error.contains("rank 1"), "{error}");
}

/// Rank 0 alone reads a parameter: the error has its name in the whole model.
fn reads_alone(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut net = model();
    for layer in net.iter_mut().filter(|layer| !layer.parameters().is_empty()) {
        fully_shard(layer, &group, Default::default()).unwrap();
    }
    let _optimizer = Adam::new(net.parameters(), Default::default());
    let error = catch(|| {
        if rank == 0 {
            net.state_dict().iter().for_each(|(_, whole)| _ = whole.sum().item());
        }
        group.barrier().unwrap_or_else(|e| std::panic::panic_any(e));
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("the values of `0.weight`, `0.bias`"), "{error}");
}

#[test]
fn whoever_reads_a_parameter_alone_is_told_of_it_by_its_full_name() {
    on(2, reads_alone, &());
}

#[test]
fn ranks_that_use_other_modules_are_told_of_both() {
    on(2, differ, &());
}

/// A gradient overflows on one rank alone: no rank steps.
fn overflows(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mut net = Linear::no_bias(2, 2);
    fully_shard(&mut net, &group, Default::default()).unwrap();
    let mut optimizer = SGD::new(net.parameters(), SGDOptions { lr: 0.5, ..Default::default() });
    let mut scaler = GradScaler::new(Default::default());
    let before = net.weight.to_vec::<f32>();
    for bad in [true, false] {
        // The first row, which is rank 0's.
        let factor = if bad { f32::INFINITY } else { 1.0 };
        let factor = Tensor::from([factor, 1.0]);
        let y = net.forward(&Tensor::ones([1, 2], Dtype::F32)) * factor;
        scaler.scale(&y.sum()).backward();
        assert_eq!(scaler.step(&mut optimizer), !bad, "rank {rank}");
        scaler.update();
        assert_eq!(net.weight.to_vec::<f32>() == before, bad, "rank {rank}");
        optimizer.zero_grad();
    }
}

#[test]
fn an_overflow_on_one_rank_keeps_all_from_stepping() {
    on(2, overflows, &());
}

/// A backward that fails leaves nothing for the next one, and a gradient of one's own counts whole.
fn goes_on(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    torchrs::manual_seed(2);
    let (mut net, plain) = (model(), {
        torchrs::manual_seed(2);
        model()
    });
    for layer in net.iter_mut().filter(|layer| !layer.parameters().is_empty()) {
        fully_shard(layer, &group, Default::default()).unwrap();
    }
    let loss = |net: &Sequential| net.forward(&ones()).square().mean();
    loss(&plain).backward();
    let failed = catch(|| {
        let hidden = net.get(0).unwrap().forward(&ones());
        // The last layer's gradients are on their way by then.
        hidden.register_hook(|_| panic!("in the middle"));
        net.get(2).unwrap().forward(&hidden.relu()).square().mean().backward();
    });
    assert!(failed.is_err());
    net.zero_grad();
    loss(&net).backward();
    for (own, whole) in net.parameters().iter().zip(plain.parameters()) {
        let first = whole.shape()[0].div_ceil(2) * rank;
        let expected = whole.grad().unwrap().narrow(0, first, own.shape()[0]);
        assert_eq!(own.grad().unwrap().to_vec::<f32>(), expected.to_vec::<f32>());
    }
    for all in [net.parameters(), plain.parameters()] {
        all.iter().for_each(|p| p.set_grad(Some(p.grad().unwrap() * 2.0)));
    }
    let norms = [&net, &plain].map(|net| nn::clip_grad_norm_(&net.parameters(), 1e9).item());
    assert!((norms[0] - norms[1]).abs() < 1e-5 * norms[1], "{norms:?}");
}

#[test]
fn a_backward_that_failed_leaves_nothing() {
    on(2, goes_on, &());
}

/// A switch of a module is also that of those inside; a part of a larger mesh is by itself; what is ignored stays whole.
fn parts(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let mesh = DeviceMesh::new(&group, [("stage", 2), ("shard", 2)]).unwrap();
    let shards = mesh.slice(&["shard"]).unwrap();
    // Another model on each half of the ranks.
    let width = 4 + 2 * mesh.coordinates().unwrap()[0];
    let mut net = Sequential::new().append(Linear::new(6, width)).append(Linear::no_bias(width, 3));
    fully_shard(net.iter_mut().next().unwrap(), &shards, Default::default()).unwrap();
    let whole = fully_shard(&mut net, &shards, Default::default()).unwrap();
    assert_eq!(net.parameters()[0].shape(), [width / 2, 6]);
    whole.set_requires_gradient_sync(false);
    net.forward(&ones()).sum().backward();
    assert!(net.parameters().iter().all(|p| p.grad().is_none()), "none is reduced");
    whole.set_requires_gradient_sync(true);
    net.forward(&ones()).sum().backward();
    assert!(net.parameters().iter().all(|p| p.grad().is_some()));

    let mut layer = Linear::new(4, 4);
    let bias = layer.bias.as_ref().unwrap().tensor().clone();
    let keep = FullyShardOptions { ignored_params: vec![bias], ..Default::default() };
    fully_shard(&mut layer, &group, keep.clone()).unwrap();
    assert_eq!(
        (layer.parameters()[0].shape(), layer.parameters()[1].shape()),
        (&[1, 4][..], &[4][..])
    );
    let ignored_params = vec![net.parameters().remove(0)];
    let ignored = FullyShardOptions { ignored_params, ..Default::default() };
    let error = fully_shard(&mut Linear::new(2, 2), &group, ignored).unwrap_err().to_string();
    assert!(error.contains("ignored_params") && error.contains("has sharded"), "{error}");
}

#[test]
fn parts_of_modules_and_of_meshes() {
    on(4, parts, &());
}

/// Parameters of no elements, of fewer rows than ranks, and of several dtypes in one group.
#[derive(Module)]
struct Many {
    none: nn::Parameter,
    thin: nn::Parameter,
    half: nn::Parameter,
    brain: nn::Parameter,
    double: nn::Parameter,
    complex: nn::Parameter,
}

impl Many {
    fn new() -> Self {
        let of = |rows: i64, dtype| {
            let numbers = Tensor::arange(1, 1 + rows * 2, 1, Dtype::F64).reshape([rows, 2]);
            nn::Parameter::new(numbers.to_dtype(dtype))
        };
        Many {
            none: nn::Parameter::new(Tensor::zeros([0, 3], Dtype::F32)),
            thin: nn::Parameter::new(Tensor::zeros([4, 0], Dtype::F32)),
            half: of(5, Dtype::F16),
            brain: of(3, Dtype::BF16),
            double: of(7, Dtype::F64),
            complex: nn::Parameter::new(of(1, Dtype::F32).detach().view_as_complex()),
        }
    }

    fn loss(&self) -> Tensor {
        let complex = self.complex.view_as_real();
        let all = [&*self.none, &*self.thin, &*self.half, &*self.brain, &*self.double, &complex];
        let squares = all.map(|t| t.to_dtype(Dtype::F64).square().sum());
        squares.into_iter().reduce(|a, b| a + b).unwrap()
    }
}

fn dtypes(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let options = || SGDOptions { lr: 0.25, ..Default::default() };
    let (plain, mut sharded) = (Many::new(), Many::new());
    fully_shard(&mut sharded, &group, Default::default()).unwrap();
    // Optimizers take no complex numbers.
    let reals = |module: &Many| module.parameters()[..5].to_vec();
    let mut of_plain = SGD::new(reals(&plain), options());
    let mut of_shards = SGD::new(reals(&sharded), options());
    for _ in 0..2 {
        let losses = [&plain, &sharded].map(|module| {
            let loss = module.loss();
            loss.backward();
            loss.item()
        });
        assert_eq!(losses[0], losses[1]);
        let grads = [&plain, &sharded].map(|module| module.parameters()[5].grad().unwrap());
        // One row, which is rank 0's.
        let mine = grads[0].narrow(0, 0, usize::from(rank == 0));
        assert!(grads[1].equal(&mine), "{} {mine}", grads[1]);
        of_plain.step();
        of_shards.step();
        plain.zero_grad();
        sharded.zero_grad();
    }
    for ((name, left), (_, right)) in plain.state_dict().iter().zip(sharded.state_dict().iter()) {
        assert!(left.equal(right), "{name}: {left} {right}");
    }
    for reduces in [false, true] {
        let (bf16, none) = (Some(Dtype::BF16), None);
        let (param_dtype, reduce_dtype) = if reduces { (none, bf16) } else { (bf16, none) };
        let mp_policy = MixedPrecisionPolicy { param_dtype, reduce_dtype, ..Default::default() };
        let options = FullyShardOptions { mp_policy, ..Default::default() };
        let error = fully_shard(&mut Many::new(), &group, options).unwrap_err().to_string();
        assert!(error.contains("dtype bf16, but `complex` is c64"), "{error}");
    }
}

#[test]
fn one_group_has_parameters_of_all_dtypes_and_of_no_elements() {
    on(1, dtypes, &());
    on(4, dtypes, &());
}

/// What forward has saved is not what shards are after a step: as of a parameter that is whole, that is an error.
fn stale(rank: usize, (job, reshards): (Job, bool)) {
    let group = job.join(rank);
    let mut net = model();
    let reshard_after_forward = Some(reshards.into());
    let options = FullyShardOptions { reshard_after_forward, ..Default::default() };
    fully_shard(net.iter_mut().next().unwrap(), &group, options.clone()).unwrap();
    fully_shard(&mut net, &group, options).unwrap();
    let mut optimizer = SGD::new(net.parameters(), Default::default());
    for _ in 0..2 {
        let loss = net.forward(&ones()).square().mean();
        // Twice, with a forward between: nothing has changed.
        autograd::backward(&[&loss], &[None], autograd::GraphMode::Retain);
        autograd::no_grad(|| net.forward(&ones()));
        autograd::backward(&[&loss], &[None], autograd::GraphMode::Retain);
        optimizer.step();
        let error = catch(|| loss.backward()).unwrap_err().to_string();
        assert!(error.contains("`linear` saved for backward was changed in place"), "{error}");
        optimizer.zero_grad();
    }
}

#[test]
fn a_backward_over_parameters_that_have_changed_is_an_error() {
    on(1, stale, &true);
    on(2, stale, &true);
    on(2, stale, &false);
}

/// Rank 1 has frozen a parameter: the mean of the gradients would be that of some ranks.
fn frozen_by_one(rank: usize, (job, frozen): (Job, usize)) {
    let group = job.join(rank);
    let mut layer = Linear::new(6, 4);
    fully_shard(&mut layer, &group, Default::default()).unwrap();
    layer.parameters()[frozen].requires_grad_(rank == 0);
    let error = catch(|| layer.forward(&ones()).sum().backward()).unwrap_err().to_string();
    let other = ["the gradients of `bias`)", "the gradients of `weight`)"][frozen];
    let texts = ["the gradients of `weight`, `bias`", "rank 1 at", other];
    assert!(texts.iter().all(|text| error.contains(text)), "{error}");
}

#[test]
fn a_parameter_that_some_ranks_have_frozen_is_an_error() {
    on(2, frozen_by_one, &0);
    on(2, frozen_by_one, &1);
}
