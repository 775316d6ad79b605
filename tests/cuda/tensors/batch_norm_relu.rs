//! Batch norms with `relu` behind them, and a residual between: in one pass the same bits as in three.

use torchrs::autograd::{GraphMode, backward, grad};
use torchrs::models::{ResNet, ResNetBlock, ResNetOptions};
use torchrs::nn::functional as F;
use torchrs::nn::{BatchNorm2d, Forward, Module};
use torchrs::profiler::{ProfilerOptions, Traffic, profile_with};
use torchrs::{Device, Dtype, MemoryFormat, Tensor, catch};

use super::near::{FLOATS, numbers};

const GPU: Device = Device::Cuda(0);

/// How a layer is called.
#[derive(Clone, Copy, Debug)]
struct Case {
    training: bool,
    affine: bool,
    tracked: bool,
    residual: bool,
    /// In one pass, or by three ops.
    fused: bool,
}

fn layer(channels: usize, case: Case, statistics: Dtype) -> BatchNorm2d {
    let tracked = case.tracked;
    let mut norm = BatchNorm2d::new(channels).affine(case.affine).track_running_stats(tracked);
    let start = |t: Option<&Tensor>, to: Tensor| {
        let Some(t) = t else { return };
        torchrs::no_grad(|| _ = t.copy_(&to.to_device(t.device()).to_dtype(t.dtype())));
    };
    norm.to(statistics);
    norm.to_device(GPU);
    start(norm.weight.as_deref(), numbers(&[channels], Dtype::F32));
    start(norm.bias.as_deref(), numbers(&[channels], Dtype::F32) * 0.5);
    start(norm.running_mean.as_deref(), numbers(&[channels], Dtype::F32) * 0.1);
    start(norm.running_var.as_deref(), numbers(&[channels], Dtype::F32).abs() + 0.5);
    if case.training {
        norm.train()
    } else {
        norm.eval()
    };
    norm
}

/// The result, the gradients of the input, of the residual and of the parameters, and the buffers.
fn all_of(
    x: &Tensor,
    residual: &Tensor,
    dy: &Tensor,
    case: Case,
    statistics: Dtype,
) -> Vec<Tensor> {
    let norm = layer(x.size(1), case, statistics);
    let [x, residual] = [x, residual].map(|t| t.detach().requires_grad_(true));
    let y = match (case.fused, case.residual) {
        (true, false) => norm.forward_relu(&x),
        (true, true) => norm.forward_add_relu(&x, &residual),
        (false, false) => norm.forward(&x).relu(),
        (false, true) => (norm.forward(&x) + &residual).relu(),
    };
    assert_eq!(y.grad_fn().unwrap().name(), if case.fused { "batch_norm_relu" } else { "relu" });
    backward(&[&y], &[Some(dy)], GraphMode::Free);
    let mut all = vec![y.detach(), x.grad().unwrap()];
    all.extend(case.residual.then(|| residual.grad().unwrap()));
    all.extend(norm.parameters().iter().map(|p| p.grad().unwrap()));
    all.extend(norm.buffers().iter().map(|b| b.detach()));
    all
}

#[track_caller]
fn same_bits(what: &str, a: &[Tensor], b: &[Tensor]) {
    assert_eq!(a.len(), b.len(), "{what}");
    for (k, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!((a.dtype(), a.shape()), (b.dtype(), b.shape()), "{what}, {k}");
        let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
        let bits = |v: f64| if v.is_nan() { u64::MAX } else { v.to_bits() };
        if let Some(i) = a.iter().zip(&b).position(|(a, b)| bits(*a) != bits(*b)) {
            panic!("{what}, result {k}, element {i}: {} in one pass, {} in three", a[i], b[i]);
        }
    }
}

/// What a call counts by kernel.
fn calls<F: FnMut()>(f: F) -> impl Fn(&str) -> Traffic + use<F> {
    let options = ProfilerOptions { with_traffic: true, ..Default::default() };
    let calls = profile_with(options, f).1.device_calls().clone();
    move |name| calls.get(name).copied().unwrap_or_default()
}

simulated! {
    fn one_pass_gives_the_bits_of_three() {
        let all_cases = || (0..16).map(|bits: u32| {
            let bit = |k: u32| bits >> k & 1 != 0;
            Case { training: bit(0), affine: bit(1), tracked: bit(2), residual: bit(3), fused: true }
        });
        // Packs of any type, of some, and of none.
        for shape in [[4usize, 16, 6, 4], [3, 4, 5, 2], [3, 5, 3, 3], [40, 8, 1, 1]] {
            for (dtype, _) in FLOATS {
                for order in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
                    let x = numbers(&shape, dtype).to_device(GPU).contiguous_in(order);
                    let residual = (numbers(&shape, dtype) * -0.75).to_device(GPU).contiguous_in(order);
                    let dy = (numbers(&shape, dtype) * 0.5).to_device(GPU);
                    for case in all_cases() {
                        let statistics = if dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
                        let of = |fused| all_of(&x, &residual, &dy, Case { fused, ..case }, statistics);
                        same_bits(&format!("{dtype} {shape:?} {order:?} {case:?}"), &of(true), &of(false));
                    }
                }
            }
        }
    }

    fn operands_that_are_not_aligned_nor_of_one_order() {
        let case = Case { training: true, affine: true, tracked: true, residual: true, fused: true };
        let shape = [4, 8, 4, 4];
        for dtype in [Dtype::F32, Dtype::BF16] {
            let aligned = |k: f64| (numbers(&shape, dtype) * k).to_device(GPU);
            // From the second element of a longer list on.
            let shifted = |k: f64| {
                let list = Tensor::cat(&[Tensor::zeros([1], (dtype, GPU)), aligned(k).flatten(0, -1)], 0);
                list.narrow(0, 1, 4 * 8 * 16).reshape(shape.map(|n| n as i64))
            };
            let turned = |k: f64| aligned(k).contiguous_in(MemoryFormat::ChannelsLast);
            let operands = [[aligned(1.0), shifted(-0.75), aligned(0.5)], [aligned(1.0), aligned(-0.75), shifted(0.5)],
                [shifted(1.0), aligned(-0.75), aligned(0.5)], [aligned(1.0), turned(-0.75), aligned(0.5)],
                [turned(1.0), aligned(-0.75), turned(0.5)]];
            for (k, [x, residual, dy]) in operands.iter().enumerate() {
                let of = |fused| all_of(x, residual, dy, Case { fused, ..case }, Dtype::F32);
                same_bits(&format!("{dtype} {k}"), &of(true), &of(false));
            }
        }
    }

    fn nan_infinities_and_zeros_are_as_with_relu() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            let of = |list: &[f64]| {
                let shape = [2, 1, 1, list.len() / 2];
                Tensor::from_slice(list, shape).to_dtype(dtype).to_device(GPU)
            };
            // By running statistics of 0 and 1, so that results are the numbers. The least numbers round to 0 with a factor.
            let x = of(&[f64::NAN, f64::INFINITY, -f64::INFINITY, -0.0, 0.0, 6e-8, 1e-40, -1e-40, 70000.0, -1.0, 2.0, 1.0]);
            let residual = of(&[1.0, f64::NEG_INFINITY, f64::INFINITY, -0.0, 0.0, 0.0, 0.0, 0.0, 70000.0, 1.0, -2.0, f64::NAN]);
            let dy = of(&[1.0, 2.0, 3.0, f64::NAN, f64::INFINITY, 6.0, 7.0, f64::NAN, 9.0, f64::NAN, 11.0, 12.0]);
            for residual_too in [false, true] {
                let run = |fused: bool| {
                    let [x, r] = [&x, &residual].map(|t| t.detach().requires_grad_(true));
                    let [mean, var, weight] = [0.0, 1.0, 0.4].map(|v| Tensor::full([1], v, (Dtype::F32, GPU)));
                    let options = F::BatchNormOptions {
                        running_mean: Some(&mean), running_var: Some(&var), weight: Some(&weight), eps: 0.0, ..Default::default()
                    };
                    let added = residual_too.then_some(&r);
                    let y = match (fused, added) {
                        (true, _) => F::batch_norm_relu(&x, options, added),
                        (false, Some(r)) => (F::batch_norm(&x, options) + r).relu(),
                        (false, None) => F::batch_norm(&x, options).relu(),
                    };
                    backward(&[&y], &[Some(&dy)], GraphMode::Free);
                    let mut all = vec![y.detach(), x.grad().unwrap()];
                    all.extend(added.map(|r| r.grad().unwrap()));
                    all
                };
                let (one, three) = (run(true), run(false));
                assert!(one[0].to_vec::<f64>()[0].is_nan());
                same_bits(&format!("{dtype} {residual_too}"), &one, &three);
            }
        }
    }

    fn second_derivatives() {
        let run = |fused: bool| {
            let leaf = |k: f64, shape: &[usize]| (numbers(shape, Dtype::F64) * k).to_device(GPU).requires_grad_(true);
            let leaves = [leaf(1.0, &[4, 2, 3, 3]), leaf(-0.75, &[4, 2, 3, 3]), leaf(0.5, &[2]), leaf(0.1, &[2])];
            let [x, r, weight, bias] = leaves.each_ref();
            let options = F::BatchNormOptions { weight: Some(weight), bias: Some(bias), training: true, ..Default::default() };
            let y = match fused {
                true => F::batch_norm_relu(x, options, Some(r)),
                false => (F::batch_norm(x, options) + r).relu(),
            };
            let all = [x, r, weight, bias];
            let first = grad(&[&y.pow(3.0).sum()], &all, &[None], GraphMode::Create);
            let first: Vec<Tensor> = first.into_iter().map(Option::unwrap).collect();
            let sum = first.iter().map(|g| g.square().sum()).reduce(|a, b| a + b).unwrap();
            let second = grad(&[&sum], &all, &[None], GraphMode::Free);
            first.iter().map(Tensor::detach).chain(second.into_iter().map(Option::unwrap)).collect::<Vec<_>>()
        };
        for (k, (a, b)) in run(true).iter().zip(&run(false)).enumerate() {
            let error = (a - b).abs().max().item();
            assert!(error < 1e-9 * (1.0 + b.abs().max().item()), "{k}: {error}");
        }
    }

    fn gradients_go_only_where_they_are_wanted() {
        let norm = layer(8, Case { training: true, affine: false, tracked: true, residual: true, fused: true }, Dtype::F32);
        let [a, b] = [1.0, -0.5].map(|k| (numbers(&[4, 8, 2, 2], Dtype::F32) * k).to_device(GPU));
        let leaf = |t: &Tensor| t.detach().requires_grad_(true);
        let ([x, r], dy) = ([leaf(&a), leaf(&b)], &a);
        backward(&[&norm.forward_add_relu(&x, &b)], &[Some(dy)], GraphMode::Free);
        backward(&[&norm.forward_add_relu(&a, &r)], &[Some(dy)], GraphMode::Free);
        let [x2, r2] = [leaf(&a), leaf(&b)];
        backward(&[&norm.forward_add_relu(&x2, &r2)], &[Some(dy)], GraphMode::Free);
        let of = |t: &Tensor| t.grad().unwrap();
        same_bits("alone", &[of(&x), of(&r)], &[of(&x2), of(&r2)]);
        assert!(!norm.forward_add_relu(&a, &b).requires_grad());
        // What was saved must not change, and is needed once.
        let x = leaf(&a) * 1.0;
        let y = norm.forward_relu(&x);
        x.add_(1.0);
        let text = catch(|| y.sum().backward()).unwrap_err().to_string();
        assert!(text.contains("batch_norm_relu") && text.contains("in-place") || text.contains("in place"), "{text}");
        let y = norm.forward_relu(&leaf(&a)).sum();
        y.backward();
        assert!(catch(|| y.backward()).is_err());
        // The result may change: a mask is kept in its place.
        let (x, x2) = (leaf(&a), leaf(&a));
        let y = norm.forward_relu(&x);
        (&y * 1.0).sum().backward();
        let y = norm.forward_relu(&x2);
        y.mul_(1.0);
        y.sum().backward();
        same_bits("changed", &[of(&x)], &[of(&x2)]);
    }

    fn other_operands_go_through_three_ops() {
        let norm = layer(3, Case { training: true, affine: true, tracked: true, residual: true, fused: true }, Dtype::F32);
        let x = numbers(&[4, 3, 2, 2], Dtype::BF16).to_device(GPU).requires_grad_(true);
        for residual in [numbers(&[3, 1, 1], Dtype::BF16), numbers(&[4, 3, 2, 2], Dtype::F32)] {
            let residual = residual.to_device(GPU);
            let y = norm.forward_add_relu(&x, &residual);
            assert_eq!(y.grad_fn().unwrap().name(), "relu");
            assert!(y.equal(&(norm.forward(&x) + &residual).relu()));
        }
        let elsewhere = numbers(&[4, 3, 2, 2], Dtype::BF16);
        assert!(catch(|| norm.forward_add_relu(&x, &elsewhere)).is_err());
        assert!(catch(|| norm.forward_relu(&x.select(0, 0))).unwrap_err().to_string().contains("[N, C, H, W]"));
    }

    fn batches_are_counted_without_a_launch() {
        let norm = layer(8, Case { training: true, affine: true, tracked: true, residual: false, fused: true }, Dtype::F32);
        let count = norm.num_batches_tracked.as_deref().unwrap();
        let x = numbers(&[4, 8, 2, 2], Dtype::F32).to_device(GPU).requires_grad_(true);
        let version = count.version();
        let step = || {
            norm.forward_relu(&x);
            norm.forward(&x);
        };
        let forward = calls(step);
        assert_eq!(count.item(), 2.0);
        assert!(count.version() > version);
        assert_eq!(["dense_i64", "packed"].map(|name| forward(name).launches), [0, 0]);
        assert_eq!((forward("each_wide").launches, forward("fold_columns").launches + forward("fold_rows_wide").launches), (2, 2));
        norm.eval();
        step();
        assert_eq!(count.item(), 2.0);
        // An average over all batches asks for the number.
        norm.train();
        let cumulative = norm.clone().momentum(None);
        cumulative.forward(&x);
        assert_eq!(cumulative.num_batches_tracked.as_deref().unwrap().item(), 3.0);
    }

    fn gradients_of_parameters_are_not_copied() {
        let norm = layer(8, Case { training: true, affine: true, tracked: true, residual: true, fused: true }, Dtype::F32);
        let x = numbers(&[4, 8, 2, 2], Dtype::F32).to_device(GPU).contiguous_in(MemoryFormat::ChannelsLast);
        // Not leaves, which would have their gradients row by row.
        let [x, residual] = [1.0, 0.5].map(|k| x.detach().requires_grad_(true) * k);
        let y = norm.forward_add_relu(&x, &residual);
        let dy = x.detach();
        let backward = calls(|| backward(&[&y], &[Some(&dy)], GraphMode::Free));
        assert_eq!(["each_wide", "fold_columns_wide", "dense_f32"].map(|name| backward(name).launches), [1, 1, 0]);
        assert!(norm.weight.as_deref().unwrap().grad().is_some());
    }

    fn gradients_of_a_result_that_goes_several_ways() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Watched { No, Hook, Retained, Wanted, Part, Anomaly }
        let norm = layer(8, Case { training: true, affine: true, tracked: false, residual: true, fused: true }, Dtype::F32);
        for dtype in [Dtype::F32, Dtype::BF16] {
            for order in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
                let of = |k: f64| (numbers(&[4, 8, 2, 3], dtype) * k).to_device(GPU).contiguous_in(order);
                let (a, b, g) = (of(1.0), of(-0.6), of(0.3));
                for ways in [1, 2, 3, 4] {
                    for watched in [Watched::No, Watched::Hook, Watched::Retained, Watched::Wanted, Watched::Part, Watched::Anomaly] {
                        let run = |fused: bool| {
                            let [x, r] = [&a, &b].map(|t| t.detach().requires_grad_(true));
                            let y = match fused {
                                true => norm.forward_add_relu(&x, &r),
                                false => (norm.forward(&x) + &r).relu(),
                            };
                            let mut seen = Vec::new();
                            let hook = (watched == Watched::Hook).then(|| y.register_hook(|g| Some(g * 0.5)));
                            if watched == Watched::Retained {
                                y.retain_grad();
                            }
                            let mut ends: Vec<Tensor> = (0..ways).map(|k| &y * (1.0 + f64::from(k))).collect();
                            if watched == Watched::Part {
                                ends.push(y.narrow(1, 2, 3));
                            }
                            let gs: Vec<Tensor> = ends.iter().map(|e| g.narrow(1, 0, e.size(1))).collect();
                            let (ends, gs) = (ends.iter().collect::<Vec<_>>(), gs.iter().map(Some).collect::<Vec<_>>());
                            match watched {
                                Watched::Wanted => {
                                    let all = grad(&ends, &[&x, &r, &y], &gs, GraphMode::Free);
                                    seen.extend(all.into_iter().map(Option::unwrap));
                                }
                                Watched::Anomaly => torchrs::autograd::detect_anomaly(|| backward(&ends, &gs, GraphMode::Free)),
                                _ => backward(&ends, &gs, GraphMode::Free),
                            }
                            seen.extend([x.grad(), r.grad(), y.grad()].into_iter().flatten());
                            drop(hook);
                            seen
                        };
                        same_bits(&format!("{dtype} {order:?} {ways} {watched:?}"), &run(true), &run(false));
                    }
                }
            }
        }
        // Two are added where they are read.
        norm.parameters().iter().for_each(|p| p.set_grad(None));
        let [x, r] = [1.0, -0.6].map(|k| (numbers(&[4, 8, 2, 3], Dtype::F32) * k).to_device(GPU).requires_grad_(true));
        let y = norm.forward_add_relu(&x, &r);
        let ends = [&y * 2.0, &y * 3.0];
        let g = x.detach();
        let calls = calls(|| backward(&[&ends[0], &ends[1]], &[Some(&g), Some(&g)], GraphMode::Free));
        let of = |names: &[&str]| names.iter().map(|name| calls(name).launches).sum::<u64>();
        assert_eq!((of(&["packed", "dense_f32", "strided"]), of(&["each", "each_wide"])), (2, 1));
    }

    fn residual_blocks_train_as_on_the_cpu() {
        let run = |device: Device| {
            torchrs::manual_seed(3);
            let mut net = ResNet::new(ResNetOptions::new(ResNetBlock::Basic, [1; 4]));
            net.double();
            net.to_device(device);
            torchrs::manual_seed(4);
            let x = Tensor::randn([2, 64, 5, 5], Dtype::F64).to_device(device);
            // With a shortcut as it is, and with one that changes the shape.
            let y = net.layer2.forward(&net.layer1.forward(&x));
            y.square().mean().backward();
            let mut all = vec![y.detach()];
            all.extend([&net.layer1, &net.layer2].iter().flat_map(|l| l.parameters()).map(|p| p.grad().unwrap()));
            all.extend([&net.layer1, &net.layer2].iter().flat_map(|l| l.buffers()).map(|b| b.detach()));
            all
        };
        for (k, (a, b)) in run(GPU).iter().zip(&run(Device::Cpu)).enumerate() {
            let (error, size) = ((a.cpu() - b).to_dtype(Dtype::F64).norm().item(), b.to_dtype(Dtype::F64).norm().item());
            assert!(error <= 1e-9 * (1e-3 + size), "{k}: {error} of {size}");
        }
    }
}
