//! Optimizers, clipping, loss scaling and modules on a GPU, against the CPU.

use torchrs::amp::{GradScaler, GradScalerOptions};
use torchrs::nn::{
    BatchNorm1d, Linear, Module, Sequential, clip_grad_norm_, clip_grad_norm_with, clip_grad_value_,
};
use torchrs::optim::*;
use torchrs::{Device, Dtype, Tensor, cuda};

use super::compare::numbers;

const GPU: Device = Device::Cuda(0);

/// Parameters of many shapes with gradients, more than a launch takes, some of them from odd addresses.
fn parameters(device: Device, dtype: Dtype) -> Vec<Tensor> {
    let shapes = [vec![3, 5], vec![], vec![0], vec![1000], vec![17], vec![64, 64]];
    let params: Vec<Tensor> = (0..90)
        .map(|k| {
            let shape = &shapes[k % shapes.len()];
            let p = numbers(shape, k, dtype).to_device(device).detach();
            p.requires_grad_(true)
        })
        .collect();
    set_grads(&params, 0);
    params
}

fn set_grads(params: &[Tensor], step: usize) {
    for (k, p) in params.iter().enumerate() {
        let n = p.numel();
        // Behind another element: from no multiple of 16 bytes on.
        let all = numbers(&[n + 1], 7 * k + step, p.dtype()).to_device(p.device());
        let grad = if k % 4 == 1 { all.narrow(0, 1, n) } else { all.narrow(0, 0, n) };
        p.set_grad(
            (k != 13)
                .then(|| grad.reshape(p.shape().iter().map(|&n| n as i64).collect::<Vec<_>>())),
        );
    }
}

/// Steps on both devices.
fn compare(dtype: Dtype, tolerance: f64, make: impl Fn(Vec<Tensor>) -> Box<dyn Optimizer>) {
    let run = |device| {
        let params = parameters(device, dtype);
        let mut optimizer = make(params.clone());
        for step in 0..3 {
            set_grads(&params, step);
            let waited = cuda::synchronisations();
            optimizer.step();
            assert_eq!(cuda::synchronisations(), waited);
        }
        params.iter().map(|p| p.to_vec::<f64>()).collect::<Vec<_>>()
    };
    let (got, expected) = (run(GPU), run(Device::Cpu));
    for (k, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * (1.0 + b.abs());
        assert!(
            got.iter().zip(expected).all(near),
            "parameter {k} of {dtype}: {got:?} {expected:?}"
        );
    }
}

simulated! {
    fn stochastic_gradient_descent() {
        let options = SGDOptions { lr: 0.1, weight_decay: 0.01, ..Default::default() };
        let momentum = SGDOptions { momentum: 0.9, dampening: 0.1, ..options.clone() };
        let nesterov = SGDOptions { momentum: 0.9, nesterov: true, ..options.clone() };
        for options in [options, momentum, nesterov] {
            compare(Dtype::F32, 1e-6, |p| Box::new(SGD::new(p, options.clone())));
        }
    }

    fn adam_and_its_kin() {
        for (dtype, tolerance) in [(Dtype::F64, 1e-12), (Dtype::F32, 2e-6), (Dtype::BF16, 2e-2)] {
            compare(dtype, tolerance, |p| Box::new(AdamW::new(p, AdamWOptions { lr: 0.01, ..Default::default() })));
        }
        compare(Dtype::F32, 2e-6, |p| Box::new(Adam::new(p, AdamOptions { amsgrad: true, weight_decay: 0.1, ..Default::default() })));
    }

    fn other_optimizers() {
        compare(Dtype::F32, 5e-6, |p| Box::new(Adagrad::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(Adadelta::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(Adamax::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(RMSprop::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(NAdam::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(Rprop::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(RAdam::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(SparseAdam::new(p, Default::default())));
        compare(Dtype::F32, 5e-6, |p| Box::new(ASGD::new(p, Default::default())));
        compare(Dtype::F32, 2e-5, |p| Box::new(RMSprop::new(p, RMSpropOptions { centered: true, momentum: 0.5, ..Default::default() })));
    }

    fn states_are_saved_and_loaded() {
        let make = || {
            let p = Tensor::ones([5], (Dtype::F32, GPU)).requires_grad_(true);
            let optimizer = AdamW::new([p.clone()], Default::default());
            (p, optimizer)
        };
        let (p, mut a) = make();
        p.set_grad(Some(p.detach().mul(2.0)));
        a.step();
        let (q, mut b) = make();
        q.detach().copy_(&p.detach());
        b.load_state_dict(&a.state_dict())?;
        q.set_grad(Some(p.detach().clone_contiguous()));
        p.set_grad(Some(p.detach().clone_contiguous()));
        a.step();
        b.step();
        assert_eq!(p.to_vec::<f32>(), q.to_vec::<f32>());
    }

    fn clipping() {
        let run = |device| {
            let params = parameters(device, Dtype::F32);
            let waited = cuda::synchronisations();
            let norm = clip_grad_norm_(&params, 1.5);
            assert_eq!(cuda::synchronisations(), waited);
            let mut out = vec![norm.item()];
            assert_eq!((norm.device(), norm.dtype()), (device, Dtype::F32));
            out.push(clip_grad_norm_with(&params, 1e9, f64::INFINITY, true).unwrap().item());
            out.push(clip_grad_norm_with(&params, 0.7, 3.0, true).unwrap().item());
            clip_grad_value_(&params, 0.01);
            out.extend(params.iter().filter_map(Tensor::grad).flat_map(|g| g.to_vec::<f64>()));
            out
        };
        let (got, expected) = (run(GPU), run(Device::Cpu));
        assert!(got.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-6 * (1.0 + b.abs())), "{:?} {:?}", &got[..3], &expected[..3]);
    }

    fn scaled_losses() {
        let run = |device| {
            let params = parameters(device, Dtype::F32);
            let mut optimizer = SGD::new(params.clone(), SGDOptions { lr: 0.1, ..Default::default() });
            let mut scaler = GradScaler::new(GradScalerOptions { init_scale: 8.0, ..Default::default() });
            let mut steps = vec![scaler.step(&mut optimizer)];
            scaler.update();
            set_grads(&params, 1);
            params[3].grad().unwrap().select(0, 700).fill_(f64::INFINITY);
            steps.push(scaler.step(&mut optimizer));
            scaler.update();
            (steps, scaler.get_scale(), params.iter().flat_map(|p| p.to_vec::<f64>()).collect::<Vec<_>>())
        };
        let (got, expected) = (run(GPU), run(Device::Cpu));
        assert_eq!((&got.0, got.1), (&vec![true, false], 4.0));
        assert_eq!(expected.0, got.0);
        assert!(got.2.iter().zip(&expected.2).all(|(a, b)| (a - b).abs() <= 1e-6));
    }

    fn modules_move() {
        let mut model = Sequential::new().append(Linear::new(3, 2)).append(BatchNorm1d::new(2));
        model.to_device(GPU);
        assert!(model.parameters().iter().all(|p| p.device() == GPU && p.requires_grad() && p.is_leaf()));
        assert!(model.buffers().iter().all(|b| b.device() == GPU));
        model.to_device(Device::Cpu);
        assert!(model.parameters().iter().all(|p| p.device() == Device::Cpu));
    }
}
