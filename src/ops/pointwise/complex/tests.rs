//! Tests of complex numbers: functions, views, promotion, gradients.

use super::*;
use crate::autograd::{self, gradcheck, gradgradcheck};
use crate::error::catch;
use crate::ops::{self, pointwise::tables};
use crate::tensor::{Complex, Operand, Scalar, promote_types, result_type};

type C = Complex<f64>;

fn z(list: &[(f64, f64)]) -> Tensor {
    Tensor::from(list.iter().map(|&(re, im)| C::new(re, im)).collect::<Vec<_>>())
}

#[track_caller]
fn near(got: &Tensor, want: &[C]) {
    let far = got.to_vec::<C>().into_iter().zip(want).map(|(g, w)| (g - w).norm());
    let far = far.fold(0.0, f64::max);
    assert!(got.numel() == want.len() && far < 1e-12, "{got} is not {want:?}");
}

#[test]
fn functions_agree_with_scalar_ones() {
    let list = [(1.5, -0.5), (-2.0, 0.25), (0.0, 3.0), (-1.0, 0.0), (2.0, -1e-3)];
    let x = z(&list);
    let values: Vec<C> = list.iter().map(|&(re, im)| C::new(re, im)).collect();
    let (w, b) = (z(&[(0.3, 0.7)]), C::new(0.3, 0.7));
    type Check = (&'static str, Tensor, fn(C, C) -> C);
    let all: [Check; 16] = [
        ("add", &x + &w, |a, b| a + b),
        ("sub", &x - &w, |a, b| a - b),
        ("mul", &x * &w, |a, b| a * b),
        ("div", &x / &w, |a, b| a / b),
        ("rdiv", 2.0 / &x, |a, _| C::from(2.0) / a),
        ("neg", -&x, |a, _| -a),
        ("conj", x.conj(), |a, _| a.conj()),
        ("abs", x.abs().to_complex(), |a, _| a.norm().into()),
        ("angle", x.angle().to_complex(), |a, _| a.arg().into()),
        ("exp", x.exp(), |a, _| a.exp()),
        ("log", x.log(), |a, _| a.ln()),
        ("sqrt", x.sqrt(), |a, _| a.sqrt()),
        ("pow", x.pow(&w), |a, b| a.powc(b)),
        ("sin", x.sin(), |a, _| a.sin()),
        ("cosh", x.cosh(), |a, _| a.cosh()),
        ("polar", Tensor::polar(&x.abs(), &x.angle()), |a, _| a),
    ];
    for (name, got, f) in all {
        let want: Vec<C> = values.iter().map(|&a| f(a, b)).collect();
        let far = got.to_vec::<C>().into_iter().zip(&want).map(|(g, w)| (g - w).norm());
        assert!(far.fold(0.0, f64::max) < 1e-11, "{name}: {got}, expected {want:?}");
    }
    near(&x.sum(), &[values.iter().sum()]);
    near(&x.mean(), &[values.iter().sum::<C>() / 5.0]);
    near(&x.square(), &values.iter().map(|a| a * a).collect::<Vec<_>>());
    near(&x.sgn(), &values.iter().map(|a| a / a.norm()).collect::<Vec<_>>());
    // No overflow on the way to a quotient that has none.
    near(&(z(&[(1e300, 1e300)]) / z(&[(1e300, 1e300)])), &[C::new(1.0, 0.0)]);
}

#[test]
fn parts_are_views_and_broadcast() {
    let x = Tensor::zeros([2, 3], Dtype::C64);
    x.real().fill_(2.0);
    x.imag().select(0, 1).copy_(&Tensor::from([1f32, 2., 3.]));
    assert_eq!(x.view_as_real().shape(), [2, 3, 2]);
    let want = [(2., 0.), (2., 0.), (2., 0.), (2., 1.), (2., 2.), (2., 3.)];
    near(&x, &want.map(|(re, im)| C::new(re, im)));
    near(
        &x.t().contiguous().t().select(0, 1),
        &want[3..].iter().map(|&(a, b)| C::new(a, b)).collect::<Vec<_>>(),
    );
    near(
        &Tensor::complex(&Tensor::from([[1f64], [2.]]), &Tensor::from([3f64])),
        &[C::new(1., 3.), C::new(2., 3.)],
    );
    assert!(x.eq(&x.conj()).select(0, 0).all().item() != 0.0 && !x.equal(&x.conj()));
    assert!(x.isreal().to_vec::<bool>()[..4] == [true, true, true, false]);
    assert!(x.allclose(&(&x + 1e-9), Default::default()));
    assert_eq!(x.detach().count_nonzero(&[]).item_i64(), 6);
    // Copies convert between the complex types, and from real ones.
    assert_eq!(x.to_dtype(Dtype::C128).to_dtype(Dtype::C64).imag().to_vec::<f32>()[5], 3.0);
    near(&Tensor::from([1i64, 2]).to_complex(), &[C::from(1.0), C::from(2.0)]);
    near(&Tensor::full([2], 3.0, Dtype::C128), &[C::from(3.0); 2]);
    x.fill_(7.0).select(0, 0).add_(&Tensor::full([], 1.0, Dtype::C64));
    near(&x, &[C::from(8.0), C::from(8.0), C::from(8.0), C::from(7.0), C::from(7.0), C::from(7.0)]);
}

#[test]
fn types_promote_as_in_pytorch() {
    use Dtype::{Bool, C64, C128, F16, F32, F64, I64};
    let pairs =
        [(C64, F64, C128), (C64, F32, C64), (C64, F16, C64), (I64, C64, C64), (Bool, C128, C128)];
    for (a, b, want) in pairs {
        assert_eq!((promote_types(a, b), promote_types(b, a)), (want, want), "{a} {b}");
    }
    let of = |shape: &[usize], dtype| Tensor::zeros(shape, dtype);
    let kinds: [(Tensor, Tensor, Dtype); 5] = [
        (of(&[2], C64), of(&[], F64), C64),
        (of(&[2], F64), of(&[], C64), C128),
        (of(&[2], F32), of(&[], C128), C64),
        (of(&[2], I64), of(&[], C128), C128),
        (of(&[2], C64), of(&[2], F64), C128),
    ];
    for (a, b, want) in kinds {
        assert_eq!((result_type(&a, &b), (a * b).dtype()), (want, want));
    }
    assert_eq!((of(&[2], C64) * 2.0).dtype(), C64);
    assert!(catch(|| of(&[2], F32).add_(&of(&[2], C64)).clone()).is_err());
}

#[test]
fn gradients_are_pairs_of_gradients_by_the_parts() {
    // d|z|^2 = 2 z; of a holomorphic function it is the conjugate of the derivative.
    let x = z(&[(1.0, 2.0), (-0.5, 0.25)]).requires_grad_(true);
    x.abs().square().sum().backward();
    near(&x.grad().unwrap(), &[C::new(2.0, 4.0), C::new(-1.0, 0.5)]);
    let y = x.square();
    let ones = Tensor::ones([2], Dtype::C128);
    let g = autograd::grad(&[&y], &[&x], &[Some(&ones)], autograd::GraphMode::Free)
        .swap_remove(0)
        .unwrap();
    near(&g, &[C::new(2.0, -4.0), C::new(-1.0, -0.5)]);
    // A real leaf gets a real gradient.
    let r = Tensor::from([3f64, 4.0]).requires_grad_(true);
    (&r * x.detach()).imag().sum().backward();
    assert_eq!(r.grad().unwrap().to_vec::<f64>(), [2.0, 0.25]);
    // At 0, where these have no derivative, the gradient is 0.
    let zero = z(&[(0.0, 0.0)]).requires_grad_(true);
    (zero.abs() + zero.angle() + zero.sgn().real() + zero.sqrt().real()).sum().backward();
    near(&zero.grad().unwrap(), &[C::from(0.0)]);
    let error = catch(|| x.sum().backward()).unwrap_err().to_string();
    assert!(error.contains("c128"), "{error}");
}

#[test]
fn complex_functions_pass_gradcheck_with_in_place_changes_of_parts() {
    let x = z(&[(1.0, 2.0), (-0.5, 0.25), (0.7, -0.3), (2.0, 1.0)]).view([2, 2]);
    let x = x.detach().requires_grad_(true);
    let r = Tensor::from([[0.5f64, -1.5], [2.0, 0.3]]).requires_grad_(true);
    let f = |t: &[Tensor]| {
        let y = &t[0] * &t[1];
        y.real().select(0, 0).mul_(&t[1].select(0, 1));
        let pairs = y.view_as_real();
        pairs.select(-1, 1).add_(&t[1]);
        y.select(0, 1).mul_(&t[0].select(0, 0));
        // A complex view of a real tensor that is changed.
        let q = Tensor::stack(&[&t[1], &t[1]], -1);
        q.view_as_complex().mul_(&t[0]);
        y * &t[0] + q.select(-1, 1)
    };
    gradcheck(f, &[&x, &r], Default::default()).unwrap();
    gradgradcheck(f, &[&x, &r], Default::default()).unwrap();
}

/// Ops that take complex tensors are linear, or in this list by their row's name; all others say
/// that they do not.
#[test]
fn no_row_computes_with_half_of_a_number() {
    let known = [
        "add",
        "add_scaled",
        "sub",
        "neg",
        "mul",
        "div",
        "reciprocal",
        "square",
        "addcmul",
        "addcdiv",
        "lerp",
        "eq",
        "ne",
        "isnan",
        "isinf",
        "isfinite",
        "logical_not",
        "where_",
        "masked_fill",
        "abs",
        "angle",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "pow",
        "sin",
        "cos",
        "sinh",
        "cosh",
    ];
    for row in tables() {
        let x = z(&[(0.5, 0.25), (0.75, -0.5)]);
        let mask = Tensor::from([true, false]);
        let inputs: Vec<Operand<'_>> =
            row.inputs.iter().map(|i| Operand::Tensor(if i.mask { &mask } else { &x })).collect();
        let params: Vec<Scalar> = row.params.iter().map(|p| Scalar::F(p.default)).collect();
        let outcome = catch(|| ops::pointwise::apply(row, &inputs, &params));
        match outcome {
            Ok(_) => assert!(known.contains(&row.name), "{row:?} takes complex numbers"),
            Err(Error::Dtype { .. }) => {
                assert!(!known.contains(&row.name), "{row:?} takes no complex numbers")
            }
            Err(other) => panic!("{row:?}: {other}"),
        }
    }
}

/// Of an op with a file of its own either the result for complex inputs is that for the parts, put
/// together (it is linear in them), or the op throws.
#[test]
fn other_ops_are_linear_or_throw() {
    let (mut linear, mut failures) = (0, Vec::new());
    // Right, but not linear, or seen as real numbers by the sample itself.
    let other = ["fft", "fft2", "fftshift, ifftshift", "local_response_norm(3)", "matrix_power(3)"];
    // Of matrices that are inverted; `linalg` has tests of complex ones.
    let inverted = ["inv", "solve", "tensorinv", "tensorsolve", "matrix_power(-2)"];
    let is_other =
        |name: &str| other.contains(&name) || inverted.iter().any(|i| name.starts_with(i));
    for sample in ops::all_samples().iter().filter(|s| !is_other(&s.name)) {
        // One complex input at a time, else a linear op of two would be squared.
        for k in 0..sample.inputs.len() {
            let x = &sample.inputs[k];
            if x.dtype() != Dtype::F64 {
                continue;
            }
            let with = |t: &Tensor| {
                let mut inputs = sample.inputs.clone();
                inputs[k] = t.clone();
                catch(|| (sample.f)(&inputs))
            };
            let complex = Tensor::complex(x, &(x * 2.0));
            let got = match with(&complex) {
                Err(error) if error.to_string().contains("c128") => continue,
                Err(other) => {
                    failures.push(format!("{}: input {k}: {other}", sample.name));
                    continue;
                }
                Ok(got) => got,
            };
            let want = with(x).unwrap();
            if !got.is_complex() || got.shape() != want.shape() {
                // Counting and comparing gives other types.
                if got.dtype().is_differentiable() {
                    failures.push(format!("{}: input {k} gives {got:?}", sample.name));
                }
                continue;
            }
            let affine = with(&x.zeros_like()).unwrap();
            let slope = |t: Tensor| t - &affine;
            let (re, im) = (slope(got.real()), got.imag());
            let limits =
                crate::ops::pointwise::Closeness { atol: 1e-9, rtol: 1e-9, equal_nan: true };
            let fits = re.allclose(&slope(want.clone()), limits)
                && im.allclose(&(slope(want) * 2.0), limits);
            match fits {
                true => linear += 1,
                false => failures.push(format!("{}: input {k} gives {got:?}", sample.name)),
            }
        }
    }
    assert!(failures.is_empty(), "{} samples:\n{}", failures.len(), failures.join("\n"));
    assert!(linear > 20, "only {linear} samples took complex inputs");
}
