//! Softmax, cross entropy, negative log likelihood.

use torchrs::nn::Module;
use torchrs::nn::functional::multilabel_margin_loss;
use torchrs::ops::{CrossEntropyOptions, NLLLossOptions, Reduction};
use torchrs::{Device, Dtype, Tensor};

const GPU: Device = Device::Cuda(0);

use torchrs::amp::autocast;

use super::near::{FLOATS, numbers, same, with_gradients};

simulated! {
    fn softmax() {
        let cases: [(&[usize], i64); 14] = [
            (&[], 0), (&[1], 0), (&[5, 3], 1), (&[3, 100], 1), (&[2, 129], 1), (&[3, 256], -1), (&[2, 1000], 1),
            (&[2, 2048], 1), (&[1, 9000], 1), (&[2, 9001], 1), (&[3, 4, 5], 1), (&[40, 3], 0), (&[2, 3, 70], 1), (&[0, 3], 1),
        ];
        for (dtype, tolerance) in FLOATS {
            for (shape, dim) in cases {
                let x = numbers(shape, dtype);
                same(&format!("{dtype} {shape:?} {dim}"), tolerance, |device| {
                    let x = [x.to_device(device)];
                    let mut all = with_gradients(&x, |x| x[0].softmax(dim));
                    all.extend(with_gradients(&x, |x| x[0].log_softmax(dim)));
                    all
                });
            }
        }
        same("strided", 1e-12, |device| {
            let x = [numbers(&[6, 40], Dtype::F64).to_device(device)];
            with_gradients(&x, |x| x[0].t().softmax(1))
        });
    }

    fn softmax_of_infinities() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let x = Tensor::from([[1f32, inf, 3.], [-inf, -inf, -inf], [-inf, 2., 5.], [nan, 1., 1.], [1e30, 1., -1e30]]);
        same("special", 1e-6, |device| {
            let x = x.to_device(device);
            vec![x.softmax(1), x.log_softmax(1), x.softmax(0), x.t().contiguous().softmax(0)]
        });
    }

    fn cross_entropy_of_half_scores_in_autocast() {
        let x = (numbers(&[6, 1000], Dtype::F32) * 3.0).to_dtype(Dtype::BF16).to_device(GPU);
        let target = Tensor::from([3i64, 0, -100, 999, 2, 1]).to_device(GPU);
        for (reduction, label_smoothing) in [(Reduction::Mean, 0.0), (Reduction::Sum, 0.1), (Reduction::None, 0.0)] {
            let options = CrossEntropyOptions { reduction, label_smoothing, ..Default::default() };
            let [direct, copied] = [Dtype::BF16, Dtype::F32].map(|dtype| {
                let x = x.detach().requires_grad_(true);
                let loss = autocast(GPU, Dtype::BF16, || x.to_dtype(dtype).cross_entropy_with(&target, options.clone()));
                assert_eq!(loss.dtype(), Dtype::F32);
                loss.sum().backward();
                (loss, x.grad().unwrap())
            });
            let apart = |a: &Tensor, b: &Tensor| (a.to_dtype(Dtype::F32) - b.to_dtype(Dtype::F32)).abs().max().item();
            // Sums of a row's scores are in another order: a gradient may be rounded the other way.
            assert!(apart(&direct.0, &copied.0) <= 1e-5, "{:?} {:?}", direct.0, copied.0);
            assert!(apart(&direct.1, &copied.1) <= 1.0 / 256.0 * copied.1.to_dtype(Dtype::F32).abs().max().item());
        }
    }

    fn cross_entropy() {
        for (dtype, tolerance) in FLOATS {
            for (rows, classes) in [(1, 1), (5, 3), (7, 10), (4, 1000), (2, 1001), (0, 4), (1, 20000)] {
                let x = numbers(&[rows, classes], dtype);
                let target: Vec<i64> = (0..rows as i64).map(|i| if i % 5 == 3 { -100 } else { i * 31 % classes as i64 }).collect();
                let target = Tensor::from_slice(&target, [rows]);
                for (k, reduction) in [Reduction::Mean, Reduction::Sum, Reduction::None].into_iter().enumerate() {
                    for (weighted, label_smoothing) in [(false, 0.0), (true, 0.0), (true, 0.2), (false, 0.1)] {
                        let what = format!("{dtype} {rows} x {classes} {reduction:?} {weighted} {label_smoothing}");
                        same(&what, tolerance * [4.0, 40.0, 4.0][k], |device| {
                            let weight = weighted.then(|| (numbers(&[classes], dtype).abs() + 0.5).to_device(device));
                            let options = CrossEntropyOptions { weight, reduction, label_smoothing, ..Default::default() };
                            let target = target.to_device(device);
                            with_gradients(&[x.to_device(device)], |x| x[0].cross_entropy_with(&target, options.clone()))
                        });
                    }
                }
            }
        }
    }

    fn cross_entropy_of_images_and_probabilities() {
        same("[N, C, d]", 1e-12, |device| {
            let target = Tensor::from([[0i64, 1, 2, 0], [2, 2, 1, 0]]).to_device(device);
            with_gradients(&[numbers(&[2, 3, 4], Dtype::F64).to_device(device)], |x| x[0].cross_entropy(&target))
        });
        same("probabilities", 1e-12, |device| {
            let x = |k: f64| (numbers(&[4, 7], Dtype::F64) * k).to_device(device);
            with_gradients(&[x(1.0), x(0.3).exp()], |x| x[0].cross_entropy(&x[1]))
        });
    }

    fn second_derivatives_of_cross_entropy() {
        for (label_smoothing, reduction) in [(0.0, Reduction::Mean), (0.3, Reduction::None)] {
            same("second derivative", 1e-12, |device| {
                let weight = Some((numbers(&[6], Dtype::F64).abs() + 0.5).to_device(device));
                let options = CrossEntropyOptions { weight, reduction, label_smoothing, ..Default::default() };
                let target = Tensor::from([1i64, -100, 5]).to_device(device);
                let x = numbers(&[3, 6], Dtype::F64).to_device(device).requires_grad_(true);
                let loss = x.cross_entropy_with(&target, options.clone()).sum();
                let first = torchrs::autograd::grad(&[&loss], &[&x], &[None], torchrs::autograd::GraphMode::Create)[0].clone().unwrap();
                let second = torchrs::autograd::grad(&[&first.square().sum()], &[&x], &[None], torchrs::autograd::GraphMode::Free);
                vec![first.detach(), second[0].clone().unwrap()]
            });
        }
    }

    fn negative_log_likelihood() {
        for (dtype, tolerance) in FLOATS {
            for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
                for weighted in [false, true] {
                    same(&format!("{dtype} {reduction:?} {weighted}"), tolerance * 4.0, |device| {
                        let weight = weighted.then(|| (numbers(&[5], dtype).abs() + 0.5).to_device(device));
                        let options = NLLLossOptions { weight, reduction, ignore_index: 3 };
                        let target = Tensor::from([3i64, 4, 0, 3, 1]).to_device(device);
                        let x = numbers(&[5, 5], dtype).to_device(device);
                        with_gradients(&[x], |x| x[0].log_softmax(1).nll_loss_with(&target, options.clone()))
                    });
                }
            }
        }
    }

    fn many_labels_and_rare_ones() {
        let labels = Tensor::from([[1i64, 3, -1, 2, 0], [-1, 4, 3, 2, 1], [4, 3, 2, 1, 0], [2, 2, -1, 9, 9]]);
        let classes = Tensor::from([0i64, 7, 3, 9, 4]);
        same("labels", 1e-5, |device| {
            torchrs::manual_seed(3);
            let mut softmax = torchrs::nn::AdaptiveLogSoftmaxWithLoss::new(8, 10, &[2, 5], Default::default());
            softmax.to_device(device);
            let x = [numbers(&[4, 5], Dtype::F32).to_device(device)];
            let y = [numbers(&[5, 8], Dtype::F32).to_device(device)];
            let mut all = with_gradients(&x, |x| multilabel_margin_loss(&x[0], &labels.to_device(device), Reduction::None));
            all.extend(with_gradients(&y, |x| softmax.forward(&x[0], &classes.to_device(device)).0));
            all
        });
    }

    fn a_class_that_there_is_not_ends_the_work() {
        let x = numbers(&[2, 3], Dtype::F32).cuda(0);
        let loss = torchrs::catch(|| x.cross_entropy(&Tensor::from([1i64, 3]).cuda(0)).item());
        let message = loss.unwrap_err().to_string();
        assert!(message.contains("LAUNCH_FAILED"), "{message}");
    }
}
