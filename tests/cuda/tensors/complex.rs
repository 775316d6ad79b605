//! Complex numbers: the samples of every op that takes them, forward and backward.

use torchrs::{Complex, Device, Dtype, Tensor};

use super::near::{numbers, same, with_gradients};

/// Inputs are pairs of real numbers, results are seen as such.
fn each(name: &str, op: impl Fn(&Tensor, &Tensor) -> Tensor) {
    for (dtype, tolerance) in [(Dtype::F64, 1e-11), (Dtype::F32, 3e-4)] {
        let shapes: [(&[usize], &[usize]); 5] = [
            (&[5, 3, 2], &[3, 2]),
            (&[4, 1, 2], &[1, 3, 2]),
            (&[2, 0, 2], &[1, 2]),
            (&[2], &[7, 2]),
            (&[700, 3, 2], &[2]),
        ];
        for (a, b) in shapes {
            // Away from 0 and from the cut of the logarithm.
            let (a, b) = (numbers(a, dtype).abs() + 0.5, numbers(b, dtype) + 0.013);
            same(&format!("{name} {dtype} {:?} {:?}", a.shape(), b.shape()), tolerance, |device| {
                with_gradients(&[a.to_device(device), b.to_device(device)], |x| {
                    let y = op(&x[0].view_as_complex(), &x[1].view_as_complex());
                    if y.is_complex() { y.view_as_real() } else { y }
                })
            });
        }
    }
}

simulated! {
    fn arithmetic() {
        each("sums", |a, b| a + b - b * 0.5);
        each("products", |a, b| a * b + a * a);
        each("quotients", |a, b| b / a + a.reciprocal());
        each("by real numbers", |a, b| a * b.real() + b.imag() / a);
        each("by scalars", |a, b| 2.0 * a - b / 3.0 + 1.0 / a);
        each("square", |a, b| a.square() + (-b).conj());
        each("in place", |a, b| {
            let z = a * 1.0 + b * 0.0;
            z.mul_(b);
            z.add_(2.0);
            z.imag().mul_(3.0);
            z
        });
        each("by a number of the host", |a, b| {
            a * b * Tensor::full([], 1.5, Dtype::C64) + Tensor::full([], 0.5, Dtype::C128)
        });
    }

    fn functions() {
        each("abs", |a, b| a.abs() * b.abs());
        each("angle", |a, b| a.angle() + b.real());
        each("sgn", |a, b| a.sgn() * b);
        each("exp", |a, b| a.exp() * b.exp() * 0.01);
        each("log, sqrt", |a, b| a.log() + a.sqrt() * b);
        each("sin, cos", |a, b| a.sin() + b.cos() * 0.5);
        each("sinh, cosh", |a, b| a.sinh() + b.cosh() * 0.5);
        each("pow", |a, b| a.pow(1.5) + b.pow(3.0));
        each("complex powers", |a, b| a.pow(b) * 0.1);
        each("polar", |a, b| Tensor::polar(&a.real(), &b.real()));
        each("lerp, addcmul", |a, b| a.lerp(b, 0.3) + a.addcmul(b, a, 0.5));
    }

    fn sums_and_products_of_matrices() {
        each("sums", |a, b| a.sum_dim(&[0], false) * b.mean());
        each("where", |a, b| a.real().gt(1.2).where_(a, b) + a.real().le(0.9).where_(a, b));
        each("joined", |a, b| {
            let a = a + b;
            Tensor::cat(&[&a, &a.flip(&[0])], 0).index_select(0, &Tensor::from([1i64, 0]).to_device(a.device()))
        });
        let pair = |shape: &[usize], dtype| numbers(shape, dtype);
        for (dtype, tolerance) in [(Dtype::F64, 1e-11), (Dtype::F32, 1e-4)] {
            let (a, b) = (pair(&[3, 5, 4, 2], dtype), pair(&[4, 6, 2], dtype));
            same("matmul", tolerance, |device| {
                with_gradients(&[a.to_device(device), b.to_device(device)], |x| {
                    let [a, b] = [0, 1].map(|k| x[k].view_as_complex());
                    a.matmul(&b).view_as_real()
                })
            });
        }
    }

    fn comparisons() {
        let z = |device: Device| {
            let (inf, nan) = (f64::INFINITY, f64::NAN);
            let all = [(1., 2.), (0., 0.), (-0., 0.), (inf, 1.), (1., nan), (3., -4.)];
            let all: Vec<_> = all.iter().map(|&(a, b)| Complex::new(a, b)).collect();
            Tensor::from(all).to_device(device)
        };
        same("truths", 0.0, |device| {
            let z = z(device);
            vec![z.eq(&z), z.ne(0i64), z.isnan(), z.isinf(), z.isfinite(), z.logical_not(), z.abs(), z.angle()]
        });
        same("made of others", 0.0, |device| {
            let x = numbers(&[3, 4], Dtype::F32).to_device(device);
            let z = x.to_complex();
            let y = Tensor::full([2], 1.5, (Dtype::C128, device));
            vec![z.view_as_real(), y.view_as_real(), z.to_dtype(Dtype::Bool), z.t().contiguous().view_as_real()]
        });
    }

    fn second_derivatives() {
        let x = numbers(&[6, 2], Dtype::F64).abs() + 0.5;
        same("products, exp, abs", 1e-11, |device| {
            let x = x.to_device(device).requires_grad_(true);
            let z = x.view_as_complex();
            let y = (&z * &z * z.exp() / &z).abs();
            let g = torchrs::autograd::grad(&[&y.sum()], &[&x], &[None], torchrs::autograd::GraphMode::Create)[0].clone().expect("used");
            let h = torchrs::autograd::grad(&[&g.square().sum()], &[&x], &[None], torchrs::autograd::GraphMode::Free)[0].clone().expect("used");
            vec![g.detach(), h]
        });
    }
}
