//! Casts of a model's parameters in autocast: together, in one launch there and one back, and as exact as one by one.

use torchrs::amp::autocast;
use torchrs::nn::{Conv2d, Forward, LayerNorm, Linear, Module, RMSNorm, ReLU, Sequential};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::profiler::{ProfilerOptions, Traffic, profile_with};
use torchrs::{Device, Dtype, Tensor};

const GPU: Device = Device::Cuda(0);

fn network(device: Device) -> Sequential {
    torchrs::manual_seed(4);
    let net = Sequential::new()
        .append(Linear::new(10, 33))
        .append(ReLU)
        .append(Linear::new(33, 7))
        .append(Linear::no_bias(7, 2));
    let mut net = net;
    net.to_device(device);
    net
}

/// Weights after some steps in half precision, and what the last of them called.
fn train(net: &Sequential, dtype: Dtype) -> (Vec<Tensor>, impl Fn(&str) -> Traffic + use<>) {
    let device = net.parameters()[0].device();
    let mut sgd = SGD::new(net.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
    torchrs::manual_seed(5);
    let x = Tensor::randn([6, 10], Dtype::F32).to_device(device);
    let mut step = || {
        sgd.zero_grad();
        let y = autocast(device, dtype, || net.forward(&x));
        y.to_dtype(Dtype::F32).square().mean().backward();
        sgd.step();
    };
    (0..4).for_each(|_| step());
    let options = ProfilerOptions { with_traffic: true, ..Default::default() };
    let calls = profile_with(options, step).1.device_calls().clone();
    let weights = net.parameters().iter().map(|p| p.detach().cpu()).collect();
    (weights, move |name: &str| calls.get(name).copied().unwrap_or_default())
}

simulated! {
    fn norms_give_linear_layers_their_type_at_once() {
        torchrs::manual_seed(7);
        for n in [5, 768, 1000, 1003, 5000] {
            let x = Tensor::randn([9, n], Dtype::F32).to_device(GPU);
            let g = Tensor::randn([9, n], Dtype::F32).to_device(GPU);
            for dtype in [Dtype::BF16, Dtype::F16] {
                let both = |direct: bool| {
                    let (mut layer, mut rms) = (LayerNorm::new(n), RMSNorm::new(n));
                    layer.to_device(GPU);
                    rms.to_device(GPU);
                    let x = x.detach().requires_grad_(true);
                    let results = autocast(GPU, dtype, || match direct {
                        true => [layer.forward_for_linear(&x), rms.forward_for_linear(&x)],
                        false => [layer.forward(&x), rms.forward(&x)].map(|y| y.to_dtype(dtype)),
                    });
                    let loss = (&results[0] * &g.to_dtype(dtype)).sum() + (&results[1] * &g.to_dtype(dtype)).sum();
                    loss.backward();
                    let of = |p: &Tensor| p.grad().unwrap();
                    let parameters = layer.parameters().into_iter().chain(rms.parameters());
                    let mut all: Vec<Tensor> = results.iter().map(Tensor::detach).collect();
                    all.extend(std::iter::once(of(&x)).chain(parameters.map(|p| of(&p))));
                    all
                };
                for (k, (a, b)) in both(true).iter().zip(&both(false)).enumerate() {
                    assert!(a.dtype() == b.dtype() && a.equal(b), "{n} {dtype} {k}: {a:?} {b:?}");
                }
            }
        }
    }

    fn layers_of_one_input_are_one_product() {
        for (with_bias, dtype) in [(true, Dtype::BF16), (false, Dtype::F16)] {
            let layer = |outputs| match with_bias {
                true => Linear::new(64, outputs),
                false => Linear::no_bias(64, outputs),
            };
            torchrs::manual_seed(8);
            let mut layers = [layer(256), layer(512), layer(7)];
            layers.iter_mut().for_each(|layer| layer.to_device(GPU));
            let x = Tensor::randn([2, 5, 64], Dtype::F32).to_device(GPU);
            let step = |together: bool| {
                layers.iter().flat_map(|layer| layer.parameters()).for_each(|p| p.set_grad(None));
                let x = x.detach().requires_grad_(true);
                let options = ProfilerOptions { with_traffic: true, ..Default::default() };
                let (y, profile) = profile_with(options, || autocast(GPU, dtype, || match together {
                    true => Linear::forward_each(layers.each_ref(), &x),
                    false => layers.each_ref().map(|layer| layer.forward(&x)),
                }));
                let sum: Tensor = y.iter().map(|y| y.to_dtype(Dtype::F32).square().sum()).reduce(|a, b| a + b).unwrap();
                sum.backward();
                let of = |p: &Tensor| p.grad().unwrap();
                let mut all: Vec<Tensor> = y.iter().map(|y| y.detach().contiguous()).collect();
                all.push(of(&x));
                all.extend(layers.iter().flat_map(|layer| layer.parameters()).map(|p| of(&p)));
                let calls = profile.device_calls().clone();
                let products = calls.values().map(|traffic| traffic.library_calls).sum::<u64>();
                (all, products)
            };
            let (alone, three) = step(false);
            for _ in 0..2 {
                let (joint, one) = step(true);
                assert_eq!((three, one), (3, 1), "{dtype}");
                for (k, (a, b)) in joint.iter().zip(&alone).enumerate() {
                    let [a, b] = [a, b].map(|t| t.cpu().to_dtype(Dtype::F64));
                    let error = (&a - &b).abs().max().item();
                    assert!(a.shape() == b.shape() && error <= 0.01 * b.abs().max().item(), "{dtype} {k}: {error}");
                }
            }
        }
    }

    fn parameters_are_cast_together() {
        for (dtype, there, back) in [
            (Dtype::BF16, "cast_to_bf16", "cast_of_bf16"),
            (Dtype::F16, "cast_to_f16", "cast_of_f16"),
        ] {
            let net = network(GPU);
            let (weights, calls) = train(&net, dtype);
            let numel: usize = weights.iter().map(Tensor::numel).sum();
            for name in [there, back] {
                assert_eq!((calls(name).launches, calls(name).bytes), (1, 6 * numel as u64), "{name}");
            }
            let (expected, _) = train(&network(Device::Cpu), dtype);
            for (a, b) in weights.iter().zip(&expected) {
                assert!((a - b).abs().max().item() < 2e-2, "{a:?} {b:?}");
            }
            // One whose gradient is watched has it as soon as it is there.
            let watched = network(GPU);
            let handle = watched.parameters()[0].register_post_accumulate_grad_hook(|_| ());
            let (same, calls) = train(&watched, dtype);
            assert_eq!((calls(there).launches, calls(back).launches), (1, 0));
            assert!(weights.iter().zip(&same).all(|(a, b)| a.equal(b)));
            handle.remove();
        }
    }

    fn casts_are_those_of_single_tensors() {
        torchrs::manual_seed(6);
        // Of all lengths beside a pack, more than a piece, more than a launch has, and not aligned.
        let row = |n: usize| Tensor::randn([1, n], Dtype::F32).to_device(GPU);
        let mut all: Vec<Tensor> = (0..100).map(row).collect();
        all.extend([row(20_001), row(65).narrow(1, 1, 64).detach()]);
        let all: Vec<Tensor> = all.into_iter().map(|t| t.requires_grad_(true)).collect();
        let products = || {
            autocast(GPU, Dtype::BF16, || {
                let product = |p: &Tensor| p.matmul(&Tensor::ones([p.size(1), 1], (Dtype::BF16, GPU)));
                all.iter().map(product).collect::<Vec<_>>()
            })
        };
        let first = products();
        let options = ProfilerOptions { with_traffic: true, ..Default::default() };
        let (second, profile) = profile_with(options, products);
        assert_eq!(profile.device_calls()["cast_to_bf16"].launches, 2);
        assert!(first.iter().zip(&second).all(|(a, b)| a.equal(b)));
    }

    /// From the second step on, filters come as cuDNN reads them, their gradients are put in order by the cast back, and
    /// the image is cast and put in order at once. The numbers stay.
    fn filters_are_cast_as_they_are_read() {
        let made = || {
            torchrs::manual_seed(8);
            let mut net = Sequential::new()
                .append(Conv2d::new(3, 8, 3))
                .append(ReLU)
                .append(Conv2d::new(8, 16, [2, 3]))
                .append(Conv2d::new(16, 5, 1));
            net.to_device(GPU);
            net
        };
        let image = Tensor::randn([2, 3, 9, 8], Dtype::F32).to_device(GPU);
        let step = |net: &Sequential| {
            net.parameters().iter().for_each(|p| p.set_grad(None));
            let y = autocast(GPU, Dtype::BF16, || net.forward(&image));
            (&y * &y).to_dtype(Dtype::F32).mean().backward();
            let grads: Vec<Tensor> = net.parameters().iter().map(|p| p.grad().unwrap()).collect();
            assert!(grads.iter().all(|grad| grad.is_contiguous() && grad.dtype() == Dtype::F32));
            grads
        };
        let counted = |net: &Sequential| {
            let options = ProfilerOptions { with_traffic: true, ..Default::default() };
            let (grads, profile) = profile_with(options, || step(net));
            let of = |name: &str| profile.device_calls().get(name).map_or(0, |calls| calls.launches);
            (grads, of("packed") + of("strided"), of("cast_of_bf16"))
        };
        let net = made();
        let (first, copies, _) = counted(&net);
        let (second, fewer, back) = counted(&net);
        // One of the image, and another with the channels that tensor cores want.
        assert!(fewer + 4 <= copies && back == 1, "{copies} copies, then {fewer}; {back} casts back");
        assert!(first.iter().zip(&second).all(|(a, b)| a.equal(b)));
        // One whose gradient is watched has it by itself, in order too.
        let watched = made();
        let handle = watched.parameters()[2].register_post_accumulate_grad_hook(|_| ());
        step(&watched);
        let third = step(&watched);
        assert!(first.iter().zip(&third).all(|(a, b)| a.equal(b)));
        handle.remove();
    }
}
