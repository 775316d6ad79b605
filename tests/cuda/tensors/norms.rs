//! Layer, group, batch and instance normalisation.

use torchrs::amp::autocast;
use torchrs::nn::{LayerNorm, Module, RMSNorm, functional as F};
use torchrs::profiler::{ProfilerOptions, profile_with};
use torchrs::{Device, Dtype, MemoryFormat, Tensor};

use super::near::{FLOATS, numbers, same, with_gradients};

/// Room for what a few roundings of half types make of a gradient.
const SLACK: f64 = 8.0;

simulated! {
    fn layer_norm() {
        let cases: [(&[usize], usize); 14] = [
            (&[7], 1), (&[3, 4, 5], 2), (&[40, 3], 1), (&[5, 100], 1), (&[3, 256], 1), (&[2, 1000], 1), (&[2, 2049], 1),
            (&[2, 9000], 1), (&[0, 4], 1), (&[150, 72], 1), (&[19, 1024], 1), (&[20, 1032], 1), (&[5, 4096], 1), (&[3, 4104], 1),
        ];
        for (dtype, tolerance) in FLOATS {
            for (shape, inner) in cases {
                let normalized = &shape[shape.len() - inner..];
                let [x, w, b] = [numbers(shape, dtype), numbers(normalized, dtype).abs() + 0.5, numbers(normalized, dtype) * 0.5];
                same(&format!("{dtype} {shape:?}"), tolerance * SLACK, |device| {
                    let [x, w, b] = [&x, &w, &b].map(|t| t.to_device(device));
                    let leaves = [x, w, b];
                    let norm = |x: &Tensor, w: Option<&Tensor>, b: Option<&Tensor>| x.layer_norm(normalized, w, b, 1e-3);
                    let mut all = with_gradients(&leaves, |l| norm(&l[0], Some(&l[1]), Some(&l[2])));
                    all.extend(with_gradients(&leaves[..1], |l| norm(&l[0], None, None)));
                    all.extend(with_gradients(&leaves[..2], |l| norm(&l[0], Some(&l[1]), None)));
                    all.extend(with_gradients(&leaves[..2], |l| norm(&l[0], None, Some(&l[1]))));
                    all.extend(with_gradients(&leaves[..2], |l| l[0].rms_norm(normalized, Some(&l[1]), None)));
                    all
                });
            }
        }
    }

    fn layer_norm_of_halves_beside_wide_parameters() {
        same("mixed", 0.05, |device| {
            let leaves = [numbers(&[5, 24], Dtype::BF16), numbers(&[24], Dtype::F32), numbers(&[24], Dtype::F32)];
            let leaves = leaves.map(|t| t.to_device(device));
            with_gradients(&leaves, |l| l[0].layer_norm(&[24], Some(&l[1]), Some(&l[2]), 1e-5))
        });
    }

    /// A sum and its norm by one kernel, and their gradients, have the bits of two ops, in and out of autocast.
    fn sums_and_their_norms() {
        let gpu = Device::Cuda(0);
        let mut cases = vec![];
        for of_x in [Dtype::F32, Dtype::BF16, Dtype::F16] {
            for of_branch in [of_x, Dtype::BF16] {
                for (rows, n) in [(5, 7), (20, 64), (3, 1000), (4, 2048), (2, 4100), (2, 9000)] {
                    cases.push((of_x, of_branch, rows, n));
                }
            }
        }
        for (of_x, of_branch, rows, n) in cases {
            for (with_sum, with_norm, half) in [(true, true, false), (false, true, true), (true, false, false), (true, true, true)] {
                let leaf = |shape: &[usize], dtype| numbers(shape, dtype).to_device(gpu).requires_grad_(true);
                let (mut layer, mut rms) = (LayerNorm::new(n), RMSNorm::new(n));
                layer.to_device(gpu);
                rms.to_device(gpu);
                let both = |fused: bool, rms_norm: bool| {
                    let (x, branch) = (leaf(&[rows, n], of_x), leaf(&[rows, n], of_branch));
                    let run = || match (fused, rms_norm) {
                        (true, false) => layer.forward_add_for_linear(&x, &branch),
                        (true, true) => rms.forward_add_for_linear(&x, &branch),
                        (false, false) => {
                            let sum = &x + &branch;
                            let y = layer.forward_for_linear(&sum);
                            (sum, y)
                        }
                        (false, true) => {
                            let sum = &x + &branch;
                            let y = rms.forward_for_linear(&sum);
                            (sum, y)
                        }
                    };
                    let (sum, y) = if half { autocast(gpu, Dtype::BF16, run) } else { run() };
                    let mut loss = Tensor::zeros([], (Dtype::F32, gpu));
                    for (t, is_used) in [(&sum, with_sum), (&y, with_norm)] {
                        if is_used {
                            loss = loss + (t * &numbers(&[rows, n], t.dtype()).to_device(gpu)).to_dtype(Dtype::F32).sum();
                        }
                    }
                    loss.backward();
                    let parameters = if rms_norm { rms.parameters() } else { layer.parameters() };
                    let grads = parameters.iter().filter_map(|p| p.grad()).collect::<Vec<_>>();
                    parameters.iter().for_each(|p| p.set_grad(None));
                    ([sum.detach(), y.detach(), x.grad().unwrap(), branch.grad().unwrap()], grads)
                };
                for rms_norm in [false, true] {
                    let ((ours, grads), (theirs, their_grads)) = (both(true, rms_norm), both(false, rms_norm));
                    let what = format!("{of_x} {of_branch} {rows} {n} {with_sum} {with_norm} {half} {rms_norm}");
                    for (a, b) in ours.iter().zip(&theirs) {
                        assert!(a.dtype() == b.dtype() && a.equal(b), "{what}: {a:?} {b:?}");
                    }
                    assert_eq!(grads.len(), their_grads.len(), "{what}");
                    for (a, b) in grads.iter().zip(&their_grads) {
                        assert!(a.dtype() == b.dtype() && a.equal(b), "{what}: {a:?} {b:?}");
                    }
                }
            }
        }
    }

    /// The row and the gradient of its results are read once for all three gradients, if the row is not too long.
    fn gradients_of_a_norm_take_one_visit() {
        for (n, kernels) in [(64, ["both_short", "add_blocks"]), (2048, ["both_long", "add_blocks"])] {
            let leaf = |shape: &[usize]| numbers(shape, Dtype::F32).to_device(Device::Cuda(0)).requires_grad_(true);
            let (x, w, b) = (leaf(&[6, n]), leaf(&[n]), leaf(&[n]));
            let y = x.layer_norm(&[n], Some(&w), Some(&b), 1e-5);
            let g = y.detach();
            let options = ProfilerOptions { with_traffic: true, ..Default::default() };
            let backward = || torchrs::autograd::backward(&[&y], &[Some(&g)], torchrs::autograd::GraphMode::Free);
            let (_, profile) = profile_with(options, backward);
            let calls: Vec<&str> = profile.device_calls().keys().map(String::as_str).collect();
            assert!(calls.len() == 2 && kernels.iter().all(|kernel| calls.contains(kernel)), "{calls:?}");
        }
    }

    fn second_derivatives_of_norms() {
        let of = |dtype: Dtype, tolerance: f64, what: &str, f: &dyn Fn(&Tensor) -> Tensor| {
            same(what, tolerance, |device| {
                let x = numbers(&[4, 6], dtype).to_device(device).requires_grad_(true);
                let y = f(&x).square().sum();
                let first = torchrs::autograd::grad(&[&y], &[&x], &[None], torchrs::autograd::GraphMode::Create)[0].clone().unwrap();
                let second = torchrs::autograd::grad(&[&first.square().sum()], &[&x], &[None], torchrs::autograd::GraphMode::Free);
                vec![first.detach(), second[0].clone().unwrap()]
            });
        };
        let second = |what: &str, f: &dyn Fn(&Tensor) -> Tensor| of(Dtype::F64, 1e-10, what, f);
        second("layer_norm", &|x| x.layer_norm(&[6], None, None, 1e-3) * x);
        of(Dtype::F32, 1e-4, "a sum and its norm", &|x| {
            let mut norm = LayerNorm::new(6).eps(1e-3);
            norm.to_device(x.device());
            let (sum, y) = norm.forward_add(x, &(x * x));
            sum * y
        });
        second("batch_norm", &|x| F::batch_norm(x, F::BatchNormOptions { training: true, eps: 1e-3, ..Default::default() }) * x);
    }

    fn group_norm() {
        for (dtype, tolerance) in FLOATS {
            same(&format!("{dtype}"), tolerance * SLACK, |device| {
                let leaves = [numbers(&[2, 6, 5, 3], dtype), numbers(&[6], dtype), numbers(&[6], dtype)];
                let leaves = leaves.map(|t| t.to_device(device));
                with_gradients(&leaves, |l| l[0].group_norm(3, Some(&l[1]), Some(&l[2]), 1e-3))
            });
        }
    }

    fn batch_norm() {
        let shapes: [&[usize]; 10] =
            [&[7, 3], &[64, 8], &[4, 3, 2, 5], &[2, 4, 8, 8], &[3, 5, 77], &[300, 2, 3], &[2, 1, 5003], &[1000, 1], &[2, 3, 2, 3, 4], &[2, 32, 23, 25]];
        for (dtype, tolerance) in FLOATS {
            for shape in shapes {
                let x = numbers(shape, dtype);
                let mut inputs = vec![x.clone()];
                match shape.len() {
                    4 => inputs.push(x.contiguous_in(MemoryFormat::ChannelsLast)),
                    5 => inputs.push(x.contiguous_in(MemoryFormat::ChannelsLast3d)),
                    _ => {}
                }
                let c = shape[1];
                for (k, x) in inputs.iter().enumerate() {
                    for (training, statistics) in [(true, dtype), (true, Dtype::F32), (false, dtype)] {
                        let what = format!("{dtype} {shape:?} layout {k} training {training} {statistics}");
                        // Statistics of f32 are rounded to it.
                        same(&what, tolerance.max(if statistics == dtype { 0.0 } else { 1e-6 }) * SLACK, |device| {
                            let of = |t: Tensor| t.to_device(device);
                            let leaves = [of(x.clone()), of(numbers(&[c], dtype).abs() + 0.5), of(numbers(&[c], dtype))];
                            let (mean, var) = (of(numbers(&[c], statistics)), of(numbers(&[c], statistics).abs() + 0.5));
                            let norm = |x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>| {
                                let (running_mean, running_var) = (Some(&mean), Some(&var));
                                F::batch_norm(x, F::BatchNormOptions { running_mean, running_var, weight, bias, training, momentum: 0.25, eps: 1e-3 })
                            };
                            let mut all = with_gradients(&leaves, |l| norm(&l[0], Some(&l[1]), Some(&l[2])));
                            all.extend(with_gradients(&leaves[..1], |l| norm(&l[0], None, None)));
                            all.extend([mean.clone(), var.clone()]);
                            all
                        });
                    }
                }
            }
        }
        let x = numbers(&[2, 4, 8, 8], Dtype::F32).contiguous_in(MemoryFormat::ChannelsLast).cuda(0);
        let y = F::batch_norm(&x, F::BatchNormOptions { training: true, ..Default::default() });
        assert!(y.is_contiguous_in(MemoryFormat::ChannelsLast));
        // Strided statistics are moved too.
        same("strided statistics", 1e-12, |device| {
            let mean = numbers(&[3, 2], Dtype::F64).to_device(device);
            let of = mean.select(1, 1);
            let options = F::BatchNormOptions { running_mean: Some(&of), training: true, momentum: 0.5, ..Default::default() };
            let y = F::batch_norm(&numbers(&[4, 3], Dtype::F64).to_device(device), options);
            vec![mean, y]
        });
    }

    fn statistics_without_a_copy_to_the_host() {
        let x = numbers(&[8, 3, 4, 4], Dtype::F32).cuda(0).requires_grad_(true);
        let (mean, var) = (Tensor::zeros([3], (Dtype::F32, x.device())), Tensor::ones([3], (Dtype::F32, x.device())));
        let (waited, version) = (torchrs::cuda::synchronisations(), mean.version());
        let (running_mean, running_var) = (Some(&mean), Some(&var));
        let y = F::batch_norm(&x, F::BatchNormOptions { running_mean, running_var, training: true, ..Default::default() });
        y.layer_norm(&[4, 4], None, None, 1e-5).sum().backward();
        assert_eq!(torchrs::cuda::synchronisations(), waited);
        assert!(mean.version() > version);
    }

    fn instance_norm() {
        same("instance_norm", 1e-10, |device| {
            let leaves = [numbers(&[2, 3, 4, 2], Dtype::F64).to_device(device)];
            with_gradients(&leaves, |l| F::instance_norm(&l[0], Default::default()))
        });
    }

    fn batch_norm_where_squares_leave_the_range_of_floats() {
        // Channels last in packs of eight; not packed; planes.
        let layouts = [(&[6, 16, 5, 3], MemoryFormat::ChannelsLast), (&[6, 9, 5, 3], MemoryFormat::ChannelsLast),
            (&[6, 16, 5, 3], MemoryFormat::Contiguous)];
        for (shape, order) in layouts {
            for (dtype, tolerance) in [(Dtype::F32, 1e-5), (Dtype::BF16, 2e-2)] {
                // One channel is ordinary, its neighbours are huge or tiny.
                let scales: Vec<f64> = (0..shape[1]).map(|c| [1e19, 3e30, 1.0, 1e-22][c % 4]).collect();
                let scales = Tensor::from(scales).reshape([1, shape[1] as i64, 1, 1]);
                let x = (numbers(shape, Dtype::F64) * scales).to_dtype(dtype).contiguous_in(order);
                let options = F::BatchNormOptions { training: true, eps: 1e-60, ..Default::default() };
                let norm = |x: &Tensor| F::batch_norm(x, options);
                let right = norm(&x.to_dtype(Dtype::F64));
                let found = norm(&x.to_device(torchrs::Device::Cuda(0))).to_device(torchrs::Device::Cpu);
                let error = (found.to_dtype(Dtype::F64) - right).abs().max().item();
                // NaN is wrong, too.
                assert!(error <= tolerance, "{shape:?} {order:?} {dtype}: off by {error:e}");
            }
        }
    }
}
