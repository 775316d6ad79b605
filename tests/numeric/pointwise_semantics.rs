//! What PyTorch's users expect of pointwise ops: promotion, errors, special values, in-place rules,
//! copies, and rows of the user's own.

use Dtype::*;
use torchrs::autograd::no_grad;
use torchrs::{Dtype, Tensor, catch};

fn message<T>(f: impl FnOnce() -> T) -> String {
    match catch(f) {
        Ok(_) => panic!("no error"),
        Err(e) => e.to_string(),
    }
}

fn f32s<const N: usize>(values: [f32; N]) -> Tensor {
    Tensor::from(values)
}

#[test]
fn mixed_types_promote() {
    let cases = [
        (F32, F64, F64),
        (F16, BF16, F32),
        (I64, F16, F16),
        (U8, I8, I16),
        (I32, I64, I64),
        (Bool, U8, U8),
    ];
    for (a, b, want) in cases {
        let (x, y) = (Tensor::ones([2], a), Tensor::ones([2], b));
        let sum = &x + &y;
        assert_eq!((sum.dtype(), sum.to_vec::<f64>()), (want, vec![2.0, 2.0]), "{a} + {b}");
    }
    // Numbers and 0-dim tensors only matter by category.
    assert_eq!((&Tensor::ones([2], F16) * 2.5).dtype(), F16);
    assert_eq!((&Tensor::ones([2], I32) + 1i64).dtype(), I32);
    assert_eq!((&Tensor::ones([2], I32) + 1.5).to_vec::<f64>(), [2.5, 2.5]);
    assert_eq!((&Tensor::ones([2], F32) + &Tensor::ones([], F64)).dtype(), F32);
    // True division, and functions of integers, are in floating point.
    assert_eq!((&Tensor::from([7i64]) / &Tensor::from([2i64])).to_vec::<f32>(), [3.5]);
    assert_eq!(Tensor::from([0i64]).exp().dtype(), F32);
    assert_eq!(Tensor::from([3i64]).relu().dtype(), I64);
    assert_eq!((&Tensor::from([true]) + &Tensor::from([true])).to_vec::<bool>(), [true]);
}

#[test]
fn large_integers_stay_exact() {
    let big = (1i64 << 60) + 1;
    let x = Tensor::from([big]);
    assert_eq!((&x + 1i64).to_vec::<i64>(), [big + 1]);
    assert_eq!(x.eq(big).to_vec::<bool>(), [true]);
    assert_eq!(x.eq(big - 1).to_vec::<bool>(), [false]);
    assert_eq!((&Tensor::from([200u8]) + 100i64).to_vec::<u8>(), [44]);
    assert_eq!((-&Tensor::from([1u8])).to_vec::<u8>(), [255]);
}

#[test]
fn errors_say_what_does_not_fit() {
    let (a, b) = (Tensor::ones([2, 3], F32), Tensor::ones([4], F32));
    assert_eq!(
        message(|| &a + &b),
        "add: shapes [2, 3] and [4] do not broadcast: dimension 1 has 3 and 4"
    );
    let text = message(|| b.add_(&a));
    assert!(text.starts_with("add: shapes"), "{text}");
    let text = message(|| _ = Tensor::ones([3], F32).add_(&a));
    assert!(
        text.contains("[2, 3]") && text.contains("in place into a tensor of shape [3]"),
        "{text}"
    );
    let text = message(|| _ = Tensor::ones([2], I64).mul_(1.5));
    assert!(text.contains("mul") && text.contains("f32") && text.contains("i64 tensor"), "{text}");
    let text = message(|| &Tensor::ones([2], Bool) - &Tensor::ones([2], Bool));
    assert!(text.contains("sub") && text.contains("logical"), "{text}");
    let text = message(|| &Tensor::ones([2], F32) & &Tensor::ones([2], Bool));
    assert!(text.contains("bitwise_and") && text.contains("f32"), "{text}");
    let text = message(|| a.where_(&a, &a));
    assert!(text.contains("`condition` must be a bool tensor, got a f32 tensor"), "{text}");
    let text = message(|| Tensor::from([5i64]).remainder(&Tensor::from([0i64])));
    assert!(text.contains("division by zero"), "{text}");
    let text = message(|| Tensor::from([5i64]).pow(-1i64));
    assert!(text.contains("pow") && text.contains("-1"), "{text}");
    let text = message(|| Tensor::from([5i64]).masked_fill(&Tensor::from([true]), 0.5));
    assert!(text.contains("masked_fill") && text.contains("i64"), "{text}");
    let text = message(|| a.copy_(&b));
    assert!(text.contains("copy_") && text.contains("[4]"), "{text}");
    let text = message(|| _ = Tensor::ones([1, 3], F32).expand(&[2, 3]).add_(1.0));
    assert!(text.contains("add") && text.contains("same memory"), "{text}");
    let leaf = f32s([1.0]).requires_grad_(true);
    let text = message(|| leaf.mul_(2.0));
    assert!(text.contains("mul") && text.contains("leaf"), "{text}");
}

#[test]
fn special_values() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = f32s([nan, inf, -inf, 0.0, -0.0, 1e-45]);
    let bits = |t: &Tensor| t.to_vec::<f32>().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let same = |got: Tensor, want: [f32; 6]| {
        for (i, (g, w)) in got.to_vec::<f32>().iter().zip(want).enumerate() {
            assert!(
                g.to_bits() == w.to_bits() || g.is_nan() && w.is_nan(),
                "element {i}: {g}, not {w}"
            );
        }
    };
    same(x.exp(), [nan, inf, 0.0, 1.0, 1.0, 1.0]);
    same(x.relu(), [nan, inf, 0.0, 0.0, 0.0, 1e-45]);
    same(x.tanh(), [nan, 1.0, -1.0, 0.0, -0.0, 1e-45]);
    same(x.sigmoid(), [nan, 1.0, 0.0, 0.5, 0.5, 0.5]);
    same(x.reciprocal(), [nan, 0.0, -0.0, inf, -inf, inf]);
    same(x.maximum(0.5), [nan, inf, 0.5, 0.5, 0.5, 0.5]);
    same(x.clamp(-1.0, 1.0), [nan, 1.0, -1.0, 0.0, -0.0, 1e-45]);
    same(x.sqrt(), [nan, inf, nan, 0.0, -0.0, 3.743_392e-23]);
    same(x.log(), [nan, inf, nan, -inf, -inf, -103.278_93]);
    same(
        x.pow(&f32s([0.0, 2.0, 3.0, -1.0, -1.0, 0.5])),
        [1.0, inf, -inf, inf, -inf, 3.743_392e-23],
    );
    assert_eq!(x.isnan().to_vec::<bool>(), [true, false, false, false, false, false]);
    assert_eq!(x.isinf().to_vec::<bool>(), [false, true, true, false, false, false]);
    assert_eq!(x.isfinite().to_vec::<bool>(), [false, false, false, true, true, true]);
    assert_eq!(x.ne(&x).to_vec::<bool>(), x.isnan().to_vec::<bool>());
    assert_eq!(bits(&f32s([0.5, 1.5, 2.5, -0.5]).round()), bits(&f32s([0.0, 2.0, 2.0, -0.0])));
    // Far arguments of sine are reduced exactly.
    let far = f32s([1e5, 3e10, -2e20, 3e38]);
    let want: Vec<f32> = far.to_vec::<f32>().iter().map(|v| (*v as f64).sin() as f32).collect();
    for (a, b) in far.sin().to_vec::<f32>().iter().zip(want) {
        assert!((a - b).abs() < 2e-7, "{a} {b}");
    }
}

#[test]
fn integers_divide_as_python_does() {
    let (a, b) = (Tensor::from([7i64, -7, 7, -7]), Tensor::from([2i64, 2, -2, -2]));
    assert_eq!(a.floor_divide(&b).to_vec::<i64>(), [3, -4, -4, 3]);
    assert_eq!((&a % &b).to_vec::<i64>(), [1, 1, -1, -1]);
    assert_eq!(a.pow(2i64).to_vec::<i64>(), [49; 4]);
    assert_eq!((!&Tensor::from([true, false])).to_vec::<bool>(), [false, true]);
    assert_eq!((!&Tensor::from([0i64, 5])).to_vec::<i64>(), [-1, -6]);
}

#[test]
fn operators_take_numbers_on_both_sides() {
    let x = f32s([1.0, 2.0, 4.0]);
    assert_eq!((10.0 - &x).to_vec::<f32>(), [9.0, 8.0, 6.0]);
    assert_eq!((8.0 / &x).to_vec::<f32>(), [8.0, 4.0, 2.0]);
    assert_eq!((2i64 * &x + 1i64).to_vec::<f32>(), [3.0, 5.0, 9.0]);
    assert_eq!((-&x - &x).to_vec::<f32>(), [-2.0, -4.0, -8.0]);
    let mut y = &x * 1.0;
    let view = y.slice(0, 0, 2, 1);
    y += &x;
    y *= 0.5;
    y -= 1i64;
    assert_eq!(view.to_vec::<f32>(), [0.0, 1.0]);
}

#[test]
fn in_place_ops_reach_views_and_overlapping_operands() {
    let x = Tensor::arange(0i64, 12i64, 1i64, F32).view([3, 4]);
    x.select(1, 2).mul_(10.0);
    assert_eq!(x.select(0, 1).to_vec::<f32>(), [4.0, 5.0, 60.0, 7.0]);
    // Rows 1.. += rows ..2: the operand must be read before it is overwritten.
    let y = Tensor::arange(0i64, 12i64, 1i64, F32).view([3, 4]);
    y.slice(0, 1, 3, 1).add_(&y.slice(0, 0, 2, 1));
    assert_eq!(y.to_vec::<f32>(), [0., 1., 2., 3., 4., 6., 8., 10., 12., 14., 16., 18.]);
    let z = Tensor::arange(0i64, 4i64, 1i64, F32).view([2, 2]);
    z.add_(&z.t());
    assert_eq!(z.to_vec::<f32>(), [0.0, 3.0, 3.0, 6.0]);
    z.mul_(&z);
    assert_eq!(z.to_vec::<f32>(), [0.0, 9.0, 9.0, 36.0]);
    let version = z.version();
    z.exp_();
    assert_eq!(z.version(), version + 1);
    // The result's type may differ from the target's, within its category.
    assert_eq!(Tensor::ones([2], F16).add_(&Tensor::ones([2], F64)).to_vec::<f32>(), [2.0, 2.0]);
    assert_eq!(f32s([1.0, 2.0]).eq_(2.0).to_vec::<f32>(), [0.0, 1.0]);
}

#[test]
fn in_place_gradients() {
    let x = Tensor::from([0.5f64, 2.0]).requires_grad_(true);
    let y = &x * 3.0;
    y.mul_(&x).sigmoid_();
    y.sum().backward();
    let want = [0.5f64, 2.0].map(|v| {
        let s = 1.0 / (1.0 + (-3.0 * v * v).exp());
        s * (1.0 - s) * 6.0 * v
    });
    for (g, w) in x.grad().unwrap().to_vec::<f64>().iter().zip(want) {
        assert!((g - w).abs() < 1e-12, "{g} {w}");
    }
    // The product with itself needs the old value twice.
    let x = Tensor::from([3f64]).requires_grad_(true);
    let y = &x * 1.0;
    y.mul_(&y).sum().backward();
    assert_eq!(x.grad().unwrap().item(), 6.0);
}

#[test]
fn gradients_come_in_the_inputs_types_and_shapes() {
    let x = Tensor::ones([2, 3], BF16).requires_grad_(true);
    let w = Tensor::ones([3], F32).requires_grad_(true);
    let y = &x * &w * 2.0;
    assert_eq!(y.dtype(), F32);
    y.sum().backward();
    let (gx, gw) = (x.grad().unwrap(), w.grad().unwrap());
    assert_eq!((gx.dtype(), gx.shape()), (BF16, &[2, 3][..]));
    assert_eq!((gw.dtype(), gw.to_vec::<f32>()), (F32, vec![4.0; 3]));
    // A comparison cuts the graph; a choice passes the gradient on.
    let x = f32s([-1.0, 2.0]).requires_grad_(true);
    assert!(!x.gt(0.0).requires_grad());
    x.where_self(&x.gt(0.0), 0.0).sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f32>(), [0.0, 1.0]);
}

#[test]
fn choices() {
    let (c, x) = (Tensor::from([true, false, true]), f32s([1.0, 2.0, 3.0]));
    assert_eq!(Tensor::where_(&c, &x, -1.0).to_vec::<f32>(), [1.0, -1.0, 3.0]);
    assert_eq!(c.where_(1i64, 0i64).dtype(), I64);
    assert_eq!(x.masked_fill(&c, 9i64).to_vec::<f32>(), [9.0, 2.0, 9.0]);
    x.masked_fill_(&!&c, &Tensor::scalar(7.0));
    assert_eq!(x.to_vec::<f32>(), [1.0, 7.0, 3.0]);
    assert_eq!(
        f32s([-2.0, 0.5, 2.0]).clamp(-1.0, &f32s([1.0, 0.0, 1.5])).to_vec::<f32>(),
        [-1.0, 0.0, 1.5]
    );
    assert_eq!(f32s([0.0]).lerp(10.0, 0.25).item(), 2.5);
}

#[test]
fn copies_and_conversions() {
    let x = f32s([1.5, -2.5, 300.0, f32::NAN]);
    assert_eq!(x.to_dtype(I64).to_vec::<i64>()[..3], [1, -2, 300]);
    assert_eq!(x.to_dtype(Bool).to_vec::<bool>(), [true; 4]);
    assert_eq!(Tensor::from([1i64 << 53 | 1]).to_dtype(I32).to_vec::<i32>(), [1]);
    assert_eq!(Tensor::from([-1i64, 256]).to_dtype(U8).to_vec::<u8>(), [255, 0]);
    assert_eq!(Tensor::from([(1i64 << 60) + 1]).to_dtype(F64).item(), 2f64.powi(60));
    assert_eq!(Tensor::from([0.1f64]).to_dtype(F32).to_vec::<f32>(), [0.1]);
    assert_eq!(Tensor::from([true, false]).to_dtype(BF16).to_vec::<f32>(), [1.0, 0.0]);
    assert!(x.to_dtype(F32).ptr_eq(&x));

    let wide = Tensor::zeros([2, 3], F64);
    wide.t().copy_(&Tensor::from([[1i64], [2], [3]]));
    assert_eq!(wide.to_vec::<f64>(), [1., 2., 3., 1., 2., 3.]);
    wide.select(0, 1).copy_(&wide.select(0, 0).slice(0, 0, 1, 1));
    assert_eq!(wide.to_vec::<f64>(), [1., 2., 3., 1., 1., 1.]);
    wide.select(1, 0).fill_(8i64);
    assert_eq!(wide.to_vec::<f64>(), [8., 2., 3., 8., 1., 1.]);
    assert!(!wide.t().is_contiguous() && wide.t().contiguous().is_contiguous());
    assert!(wide.contiguous().ptr_eq(&wide) && !wide.clone_contiguous().ptr_eq(&wide));
    assert_eq!(Tensor::ones([2], Bool).fill_(-0.5).to_vec::<bool>(), [true; 2]);
    assert_eq!(wide.zero_().to_vec::<f64>(), [0.0; 6]);

    let x = f32s([1.0, 2.0]).requires_grad_(true);
    let y = Tensor::zeros([2, 2], F64);
    y.copy_(&x);
    y.select(0, 0).fill_(0i64);
    (&y * &y).sum().backward();
    assert_eq!(x.grad().unwrap().to_vec::<f32>(), [2.0, 4.0]);
}

torchrs::pointwise! {
    table own;

    /// x times a gate, which is between 0 and 1.
    float gated / gated_ (x, gate; sharpness = 2.0) = x * sigmoid(gate * sharpness);
        grad(g, x, gate) {
            x: g * sigmoid(gate * sharpness),
            gate: g * x * sharpness * sigmoid(gate * sharpness) * (1.0 - sigmoid(gate * sharpness)),
        }
}

torchrs::pointwise_update! {
    table steps;

    /// A step of Adam without bias correction.
    adam_step(param, grad, mean, square; rate, beta1, beta2, epsilon) {
        mean = mean + (grad - mean) * (1.0 - beta1);
        square = square + (grad * grad - square) * (1.0 - beta2);
        param = param - mean / (sqrt(square) + epsilon) * rate;
    }
}

#[test]
fn rows_of_the_users_own() {
    let (x, gate) =
        (f32s([2.0, 3.0]).requires_grad_(true), Tensor::scalar(0.0).requires_grad_(true));
    let y = gated(&x, &gate, 2.0);
    assert_eq!(y.to_vec::<f32>(), [1.0, 1.5]);
    y.sum().backward();
    assert_eq!(
        (x.grad().unwrap().to_vec::<f32>(), gate.grad().unwrap().item()),
        (vec![0.5, 0.5], 2.5)
    );
    let z = f32s([4.0]);
    gated_(&z, 0.0, 2.0);
    assert_eq!(z.item(), 2.0);
    assert_eq!(own::ROWS[0].formula, "x * sigmoid(gate * sharpness)");
    assert_eq!(own::gated.params[0].default, 2.0);
}

#[test]
fn updates_write_several_operands() {
    for dtype in [F32, F64, BF16] {
        let make = |v: f64| Tensor::full([1000, 3], v, dtype);
        let (p, g, m, s) = (make(1.0), make(0.5), make(0.0), make(0.0));
        let strided = Tensor::full([1000, 6], 0.0, dtype).slice(1, 0, 6, 2);
        adam_step(&p, &g, &m, &s, 0.5, 0.5, 0.75, 0.0);
        adam_step(&strided, &g, &m, &s, 0.5, 1.0, 1.0, 0.0);
        assert_eq!((m.to_vec::<f64>()[7], s.to_vec::<f64>()[2999]), (0.25, 0.0625));
        assert!(p.to_vec::<f64>().iter().all(|v| *v == 0.5), "{dtype}");
        assert!(strided.to_vec::<f64>().iter().all(|v| *v == -0.5), "{dtype}");
        assert_eq!((p.version(), g.version()), (1, 0));
    }
    let x = f32s([1.0, 2.0]);
    let text =
        message(|| adam_step(&x, &x, &f32s([0.0; 2]), &f32s([0.0; 2]), 0.1, 0.9, 0.99, 1e-8));
    assert!(text.contains("adam_step") && text.contains("shares memory with `grad`"), "{text}");
    let text = message(|| adam_step(&x, &f32s([1.0]), &x, &x, 0.1, 0.9, 0.99, 1e-8));
    assert!(text.contains("`grad` has [1]"), "{text}");
    let leaf = x.requires_grad_(true);
    let rest = || f32s([0.0; 2]);
    let text = message(|| adam_step(&leaf, &rest(), &rest(), &rest(), 0.1, 0.9, 0.99, 1e-8));
    assert!(text.contains("leaf"), "{text}");
    no_grad(|| adam_step(&leaf, &f32s([1.0; 2]), &rest(), &rest(), 0.1, 0.0, 0.0, 0.0));
    assert!((leaf.to_vec::<f32>()[0] - 0.9).abs() < 1e-6);
}

#[test]
fn large_tensors_are_split_over_threads() {
    let _turn = crate::number_of_threads();
    let before = torchrs::get_num_threads();
    torchrs::set_num_threads(3);
    let n = 200_003;
    let x = Tensor::arange(0i64, n as i64, 1i64, F64);
    let sum = &(&x * 2.0) + &x;
    assert!(sum.to_vec::<f64>().iter().enumerate().all(|(i, v)| *v == 3.0 * i as f64));
    let m = Tensor::arange(0i64, 600_000i64, 1i64, F32).view([600, 1000]);
    let t = &m.t() + &Tensor::arange(0i64, 600i64, 1i64, F32);
    assert_eq!(t.select(0, 999).select(0, 599).item(), 599_999.0 + 599.0);
    torchrs::set_num_threads(before);
}

/// Functions of one number, with their names.
type Named1 = (&'static str, fn(&Tensor) -> Tensor);

macro_rules! named {
    ($($f:ident)*) => { vec![$((stringify!($f), (|x| x.$f()) as fn(&Tensor) -> Tensor)),*] };
}

/// What can be said of a number whatever its type.
fn class(v: f64) -> &'static str {
    match v {
        v if v.is_nan() => "NaN",
        f64::INFINITY => "inf",
        f64::NEG_INFINITY => "-inf",
        _ => "a number",
    }
}

/// Value and gradient.
fn with_gradient(f: fn(&Tensor) -> Tensor, x: f64, dtype: Dtype) -> [f64; 2] {
    let x = Tensor::full([1], x, dtype).requires_grad_(true);
    let y = f(&x);
    y.sum().backward();
    [y.detach().item(), x.grad().map_or(0.0, |g| g.item())]
}

#[test]
fn special_values_are_the_same_in_all_types() {
    let functions: Vec<Named1> = named! {
        abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2
        expm1 floor frac i0 i0e i1 i1e lgamma log log10 log1p log2 neg rad2deg reciprocal rsqrt
        sigmoid sign sin sinh sqrt square tan tanh trunc trigamma entr ndtr ndtri log_ndtr erfcx
        relu gelu silu softsign logsigmoid hardswish hardsigmoid selu tanhshrink
    };
    for (name, f) in functions {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, -2.0, 0.5] {
            let want = with_gradient(f, x, F64);
            for dtype in [F32, F16, BF16] {
                let got = with_gradient(f, x, dtype);
                // Poles that pi's rounding makes large numbers are infinite in smaller types.
                let large = |v: f64| v.abs() > 1e15;
                for (what, got, want) in [("", got[0], want[0]), ("gradient of ", got[1], want[1])]
                {
                    let same = class(got) == class(want) || large(got) && large(want);
                    assert!(same, "{what}{name}({x}) of {dtype}: {got}, of f64 {want}");
                }
            }
        }
    }
}

#[test]
fn special_values_are_those_of_pytorch() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    // At infinity, minus infinity and NaN: values and gradients.
    let table: &[(Named1, [f64; 3], [f64; 3])] = &[
        (("i0", |x| x.i0()), [NAN; 3], [NAN; 3]),
        (("i1", |x| x.i1()), [NAN; 3], [NAN; 3]),
        (("digamma", |x| x.digamma()), [INF, NAN, NAN], [0.0, NAN, NAN]),
        (("lgamma", |x| x.lgamma()), [INF, INF, NAN], [INF, NAN, NAN]),
        (("log_ndtr", |x| x.log_ndtr()), [0.0, -INF, NAN], [0.0, NAN, NAN]),
        (("gelu", |x| x.gelu()), [INF, NAN, NAN], [NAN, NAN, NAN]),
        (("acosh", |x| x.acosh()), [INF, NAN, NAN], [0.0, 0.0, NAN]),
    ];
    for ((name, f), values, gradients) in table {
        for (i, x) in [INF, -INF, NAN].into_iter().enumerate() {
            let got = with_gradient(*f, x, F64);
            let want = [values[i], gradients[i]];
            let same = got.iter().zip(&want).all(|(g, w)| g == w || g.is_nan() && w.is_nan());
            assert!(same, "{name}({x}): value and gradient {got:?}, expected {want:?}");
        }
    }
    for (x, y) in [(INF, NAN), (NAN, INF), (-INF, NAN), (NAN, -INF)] {
        for dtype in [F64, F32, F16, BF16] {
            let [x, y] = [x, y].map(|v| Tensor::full([1], v, dtype));
            assert_eq!(x.hypot(&y).item(), INF, "hypot({x:?}, {y:?})");
        }
    }
    assert!(Tensor::from([NAN]).hypot(&Tensor::from([1.0])).item().is_nan());
    assert!((Tensor::from([5e-324f64]).ndtri().item() + 38.467_405_617).abs() < 1e-8);
    assert!(with_gradient(|x| x.digamma(), -1.0, F64)[1] > 1e30);
}

#[test]
fn gradients_at_limits_are_shared_by_tensors_and_not_by_numbers() {
    let leaf = |values: &[f64]| Tensor::from_slice(values, [values.len()]).requires_grad_(true);
    let nan = f64::NAN;
    let gradients = |f: &dyn Fn() -> Tensor, of: &[&Tensor]| -> Vec<Vec<f64>> {
        of.iter().for_each(|t| t.set_grad(None));
        f().sum().backward();
        of.iter().map(|t| t.grad().map_or(Vec::new(), |g| g.to_vec())).collect()
    };
    let x = leaf(&[nan, -0.5, 0.5, 0.0, 1.0, -1.0]);
    let (low, high) = (leaf(&[-0.5]), leaf(&[0.5]));
    assert_eq!(
        gradients(&|| x.clamp(&low, &high), &[&x, &low, &high]),
        [vec![1.0, 0.5, 0.5, 1.0, 0.0, 0.0], vec![1.5], vec![1.5]]
    );
    // Crossed limits: all is the upper one's.
    assert_eq!(
        gradients(&|| x.clamp(&high, &low), &[&x, &low, &high]),
        [vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0], vec![6.0], vec![0.0]]
    );
    assert_eq!(gradients(&|| x.clamp(-0.5, 0.5), &[&x]), [[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]);
    assert_eq!(gradients(&|| x.clamp_min(-0.5), &[&x]), [[0.0, 0.0, 1.0, 1.0, 1.0, 0.0]]);
    assert_eq!(gradients(&|| x.clamp_max(0.5), &[&x]), [[0.0, 1.0, 0.0, 1.0, 0.0, 1.0]]);
    assert_eq!(
        gradients(&|| x.clamp_min(&low), &[&x, &low]),
        [vec![1.0, 0.5, 1.0, 1.0, 1.0, 0.0], vec![2.5]]
    );
    let bad = leaf(&[nan]);
    assert_eq!(
        gradients(&|| x.clamp(&bad, &high), &[&x, &bad, &high]),
        [vec![1.0, 1.0, 1.0, 1.0, 0.0, 1.0], vec![0.0], vec![0.0]]
    );
    // NaN on either side of a maximum: both have the gradient.
    let (a, b) = (leaf(&[nan, 1.0, 1.0]), leaf(&[1.0, nan, 1.0]));
    assert_eq!(gradients(&|| a.maximum(&b), &[&a, &b]), [[1.0, 1.0, 0.5]; 2]);
    assert_eq!(gradients(&|| a.minimum(&b), &[&a, &b]), [[1.0, 1.0, 0.5]; 2]);
}

#[test]
fn the_next_number_of_every_floating_point_type() {
    for (dtype, least, step, most) in [
        (F16, 2f64.powi(-24), 2f64.powi(-10), 65504.0),
        (BF16, 2f64.powi(-133), 2f64.powi(-7), 3.3895313892515355e38),
        (F32, 2f64.powi(-149), 2f64.powi(-23), f64::from(f32::MAX)),
        (F64, 5e-324, f64::EPSILON, f64::MAX),
    ] {
        let next = |x: f64, to: f64| {
            Tensor::full([1], x, dtype).nextafter(&Tensor::full([1], to, dtype)).item()
        };
        let inf = f64::INFINITY;
        for (x, to, want) in [
            (0.0, 1.0, least),
            (0.0, -1.0, -least),
            (least, 0.0, 0.0),
            (least, 1.0, 2.0 * least),
            (1.0, 2.0, 1.0 + step),
            (1.0, 0.0, 1.0 - step / 2.0),
            (-1.0, 0.0, -1.0 + step / 2.0),
            (1.0 + step, 0.0, 1.0),
            (most, inf, inf),
            (inf, 0.0, most),
            (-inf, 0.0, -most),
            (3.0, 3.0, 3.0),
        ] {
            assert_eq!(next(x, to), want, "{dtype}: {x} towards {to}");
        }
        assert!(next(f64::NAN, 1.0).is_nan() && next(1.0, f64::NAN).is_nan(), "{dtype}");
    }
}

#[test]
fn subtraction_refuses_bools_beside_numbers_too() {
    type Op = fn(&Tensor, &Tensor) -> Tensor;
    let table: [(&str, Op); 9] = [
        ("sub: takes numbers, got f32 and bool", |x, mask| x - mask),
        ("sub: takes numbers, got bool and f32", |x, mask| mask - x),
        ("sub: takes numbers, got bool and i64", |_, mask| mask - 2i64),
        ("sub: takes numbers, got f32 and bool", |_, mask| 1.0 - mask),
        ("sub: takes numbers, got f32 and bool", |x, _| x.sub(true)),
        ("sub: takes numbers, got f32 and bool", |x, mask| x.sub_(mask).clone()),
        ("sub: takes numbers, got c64 and bool", |x, mask| x.to_dtype(torchrs::Dtype::C64) - mask),
        ("rsub: takes numbers, got f32 and bool", |x, mask| mask.rsub(x, 1)),
        ("sub_scaled: takes numbers, got f32 and bool", |x, mask| x.sub_scaled(mask, 2)),
    ];
    let (x, mask) = (f32s([1.0, 2.0]), Tensor::from([true, false]));
    for (want, f) in table {
        let text = catch(|| f(&x, &mask)).unwrap_err().to_string();
        assert!(text.starts_with(want) && text.contains("logical_xor"), "{want}: {text}");
    }
    assert_eq!(x.to_vec::<f32>(), [1.0, 2.0]);
}

/// Beside a half type a number, and a tensor without dimensions, is a number of that type, in comparisons too.
#[test]
fn comparisons_of_halves_round_both_sides() {
    let x = Tensor::from([1f32, 0.5, f32::NAN]).to_dtype(BF16);
    let wide = Tensor::scalar(1.001).to_dtype(F64);
    assert_eq!(x.eq(1.001).to_vec::<bool>(), [true, false, false]);
    assert_eq!(x.eq(&wide).to_vec::<bool>(), [true, false, false]);
    assert_eq!(wide.eq(&x).to_vec::<bool>(), [true, false, false]);
    assert_eq!(x.lt(&wide).to_vec::<bool>(), [false, true, false]);
    assert_eq!(x.ge(1.001).to_vec::<bool>(), [true, false, false]);
    assert_eq!(x.ne(f64::NAN).to_vec::<bool>(), [true; 3]);
    assert_eq!(x.logical_and(&Tensor::scalar(1e-60).to_dtype(F64)).to_vec::<bool>(), [false; 3]);
    // Above the largest f16 lies infinity only.
    let infinite = Tensor::from([65504f32, f32::INFINITY]).to_dtype(F16);
    assert_eq!(infinite.eq(1e6).to_vec::<bool>(), [false, true]);
    // In place, with the old value on either side.
    assert_eq!(x.clone_contiguous().lt_(1.001).to_vec::<f32>(), [0.0, 1.0, 0.0]);
    let counts = Tensor::from([257i64, 256]);
    assert_eq!(counts.eq_(&Tensor::from([256f32, 256.]).to_dtype(BF16)).to_vec::<i64>(), [1, 1]);
    // A wider tensor with dimensions is what all are compared in.
    assert_eq!(x.eq(&wide.expand(&[3])).to_vec::<bool>(), [false; 3]);
}

#[test]
fn ops_of_one_type_refuse_others() {
    let (x, wide) = (f32s([0.0, 1.0]), Tensor::from([1f64, 1.]));
    for (name, result) in [
        ("`end` of f64", catch(|| x.lerp(&wide, 0.5))),
        ("`weight` of f64", catch(|| x.lerp(&x, &wide))),
        ("`end` of f64", catch(|| x.lerp_(&wide, 0.5).clone())),
    ] {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("tensors of one type, got f32") && text.contains(name), "{text}");
    }
}

#[test]
fn ldexp_keeps_half_types() {
    let (x, by) = (Tensor::from([1.5f32, 3.]).to_dtype(F16), Tensor::from([2i64, -1]));
    assert_eq!((x.ldexp(&by).dtype(), x.ldexp(&by).to_vec::<f32>()), (F16, vec![6.0, 1.5]));
    assert_eq!(x.to_dtype(F64).ldexp(&by).dtype(), F64);
    assert_eq!(by.ldexp(&by).dtype(), F32);
}

/// PyTorch looks at no dimension where there is nothing to do.
#[test]
fn tensors_without_elements_take_any_dimension_as_in_pytorch() {
    let (none, number) = (Tensor::zeros([0], F32), Tensor::scalar(2.0));
    for dim in [-3, 2] {
        assert_eq!(none.cummax(dim).1.shape(), [0]);
        assert_eq!((number.cummin(dim).0.item(), number.cummin(dim).1.item()), (2.0, 0.0));
        assert_eq!(none.roll(&[1], &[dim]).shape(), [0]);
        assert_eq!(Tensor::cat(&[&none, &none], dim).shape(), [0]);
    }
    assert!(message(|| Tensor::ones([3], F32).cummax(2).0).contains("dim"));
    assert!(message(|| Tensor::cat(&[&none, &Tensor::ones([2], F32)], 2)).contains("dim"));
    assert!(message(|| number.roll(&[1], &[0])).contains("0-dim"));
    let sizes =
        |x: &Tensor, n, dim| x.chunk(n, dim).iter().map(|t| t.size(dim)).collect::<Vec<_>>();
    assert_eq!(sizes(&Tensor::zeros([0, 3], F32), 4, 0), [0; 4]);
    assert_eq!(sizes(&Tensor::zeros([0, 3], F32), 2, 1), [2, 1]);
}

/// Which type an op of one operand gives for each of the operand's types.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    /// f32 for integers and bool.
    Floating,
    /// The operand's; bool is refused.
    Numeric,
    /// The operand's.
    Own,
    /// The operand's; i64 for bool.
    Arithmetic,
    Truth,
    /// i64 for integers and bool.
    Sum,
}

#[test]
fn types_of_results_follow_pytorchs_rules() {
    use Rule::*;
    type Op = fn(&Tensor) -> Tensor;
    let table: Vec<(&str, Rule, Op)> = vec![
        ("exp", Floating, |x| x.exp()),
        ("sigmoid", Floating, |x| x.sigmoid()),
        ("sin", Floating, |x| x.sin()),
        ("reciprocal", Floating, |x| x.reciprocal()),
        ("rsqrt", Floating, |x| x.rsqrt()),
        ("digamma", Floating, |x| x.digamma()),
        ("i0", Floating, |x| x.i0()),
        ("logit", Floating, |x| x.logit(None)),
        ("deg2rad", Floating, |x| x.deg2rad()),
        ("entr", Floating, |x| x.entr()),
        ("sinc", Floating, |x| x.sinc()),
        ("angle", Floating, |x| x.angle()),
        ("erf", Floating, |x| x.erf()),
        ("square", Arithmetic, |x| x.square()),
        ("pow(2)", Arithmetic, |x| x.pow(2)),
        ("x + 1", Arithmetic, |x| x + 1i64),
        ("x * 2", Arithmetic, |x| x * 2i64),
        ("abs", Own, |x| x.abs()),
        ("sign", Own, |x| x.sign()),
        ("sgn", Own, |x| x.sgn()),
        ("x + x", Own, |x| x + x),
        ("x * x", Own, |x| x * x),
        ("maximum", Own, |x| x.maximum(x)),
        ("roll", Own, |x| x.roll(&[1], &[0])),
        ("neg", Numeric, |x| -x),
        ("x - x", Numeric, |x| x - x),
        ("relu", Numeric, |x| x.relu()),
        ("isnan", Truth, |x| x.isnan()),
        ("isfinite", Truth, |x| x.isfinite()),
        ("signbit", Truth, |x| x.signbit()),
        ("logical_not", Truth, |x| x.logical_not()),
        ("x == x", Truth, |x| x.eq(x)),
        ("logical_xor", Truth, |x| x.logical_xor(x)),
        ("sum", Sum, |x| x.sum()),
        ("prod", Sum, |x| x.prod()),
        ("nansum", Sum, |x| x.nansum_dim(&[], false)),
        ("cumsum", Sum, |x| x.cumsum(0)),
        ("cumprod", Sum, |x| x.cumprod(0)),
        ("x / x", Floating, |x| x / x),
    ];
    for (name, rule, f) in table {
        for dtype in [F64, F32, F16, BF16, I64, I32, I16, I8, U8, Bool] {
            let integral = !dtype.is_floating_point();
            let want = match rule {
                Floating if integral => Some(F32),
                Sum if integral => Some(I64),
                Arithmetic if dtype == Bool => Some(I64),
                Numeric if dtype == Bool => None,
                Truth => Some(Bool),
                _ => Some(dtype),
            };
            let got = catch(|| f(&Tensor::ones([2], dtype))).map(|y| y.dtype()).ok();
            assert_eq!(got, want, "{name} of {dtype} ({rule:?})");
        }
    }
}
