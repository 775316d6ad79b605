//! Forward mode: dual tensors through ops, views and in-place changes, together with histories, and what
//! is refused.

use torchrs::autograd::forward_ad::{dual_level, make_dual, unpack_dual};
use torchrs::autograd::{self, functional, hessian, hvp, jacobian, jvp, vhp, vjp};
use torchrs::ops::pointwise::{Kind, Row, apply, apply_inplace, tables};
use torchrs::{Dtype, Operand, Scalar, Tensor, catch, no_grad};

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()])
}

fn tangent(y: &Tensor) -> Vec<f64> {
    unpack_dual(y).tangent.expect("a tangent").to_vec()
}

fn near(got: &Tensor, want: &Tensor) {
    assert_eq!(got.shape(), want.shape());
    let pairs = got.to_vec::<f64>().into_iter().zip(want.to_vec::<f64>());
    assert!(
        pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-9 * (1.0 + b.abs())),
        "{got:?} {want:?}"
    );
}

/// The Jacobian-vector product by two passes of backward: another way to the same numbers.
fn jvp_by_backward(f: impl Fn(&Tensor) -> Tensor, x: &Tensor, v: &Tensor) -> Tensor {
    let x = x.detach().requires_grad_(true);
    let y = f(&x);
    let u = y.zeros_like().requires_grad_(true);
    let by_x = autograd::grad(&[&y], &[&x], &[Some(&u)], autograd::GraphMode::Create)
        .swap_remove(0)
        .unwrap();
    autograd::grad(&[&by_x], &[&u], &[Some(v)], autograd::GraphMode::Free).swap_remove(0).unwrap()
}

#[test]
fn tangents_of_a_network_equal_those_of_two_backward_passes() {
    let x = Tensor::linspace(-1.0, 1.0, 6, Dtype::F64).view([2, 3]);
    let v = Tensor::linspace(0.5, -2.0, 6, Dtype::F64).view([2, 3]);
    let w = Tensor::linspace(-0.7, 0.9, 12, Dtype::F64).view([4, 3]);
    let b = vector(&[0.1, 0.2, -0.3, 0.4]);
    let f = |x: &Tensor| {
        let h = x.linear(&w, Some(&b)).gelu();
        let h = h.layer_norm(&[4], None, None, 1e-5).softmax(-1);
        Tensor::cat(&[&h, &h.t().matmul(x).sum_dim(&[1], false).view([1, 4])], 0).cumsum(0)
    };
    let (y, product) = jvp(f, &x, &v);
    near(&y, &f(&x));
    near(&product, &jvp_by_backward(f, &x, &v));
}

#[test]
fn products_and_matrices_agree() {
    let x = Tensor::from([[0.5f64, -1.0, 2.0], [0.1, 0.7, -0.3]]);
    let f = |x: &Tensor| x.sin().matmul(&x.t()).reshape([-1]);
    let j = jacobian(f, &x).reshape([4, 6]);
    let v = Tensor::from([[1.0f64, 0.5, -2.0], [0.25, 3.0, 1.0]]);
    near(&jvp(f, &x, &v).1, &j.mv(&v.reshape([-1])));
    let u = Tensor::from([1.0f64, -1.0, 0.5, 2.0]);
    near(&vjp(f, &x, &u).1.reshape([-1]), &j.t().mv(&u));
    // x^T A x has the Hessian A + A^T.
    let a = Tensor::from([[1.0f64, 2.0], [5.0, -3.0]]);
    let quadratic = |x: &Tensor| x.dot(&a.mv(x));
    let (x, v) = (vector(&[0.3, 0.4]), vector(&[2.0, -1.0]));
    let h = &a + a.t();
    near(&hessian(quadratic, &x), &h);
    near(&hvp(quadratic, &x, &v).1, &h.mv(&v));
    near(&vhp(quadratic, &x, &v).1, &h.mv(&v));
    // Of a linear function the Jacobian is there and the Hessian is zero.
    assert_eq!(hessian(|x| x.sum(), &x).to_vec::<f64>(), [0.0; 4]);
    assert_eq!(hvp(|x| x.sum(), &x, &v).1.to_vec::<f64>(), [0.0; 2]);
}

#[test]
fn functions_of_several_tensors_with_options() {
    use functional::{Options, Strategy};
    let (a, b) = (vector(&[0.5, -1.5]), vector(&[2.0, 0.3, 1.0]));
    let f = |x: &[Tensor]| vec![x[0].unsqueeze(1) * x[1].exp(), x[0].sin().sum()];
    let plain = Options::default();
    let forward = Options { strategy: Strategy::ForwardMode, ..plain };
    let rows = functional::jacobian_with(f, &[&a, &b], plain);
    let columns = functional::jacobian_with(f, &[&a, &b], forward);
    for (row, column) in rows.iter().flatten().zip(columns.iter().flatten()) {
        near(column, row);
    }
    assert_eq!((rows[0][1].shape(), rows[1][0].shape()), (&[2, 3, 3][..], &[2][..]));
    let g = |x: &[Tensor]| (x[0].sin().sum() * x[1].exp()).sum();
    let first = functional::hessian_with(g, &[&a, &b], plain);
    let second = functional::hessian_with(g, &[&a, &b], forward);
    for (one, other) in first.iter().flatten().zip(second.iter().flatten()) {
        near(other, one);
    }
    let v = [&vector(&[1.0, 2.0]), &vector(&[0.5, -1.0, 3.0])];
    let (_, by_forward) = functional::hvp_with(g, &[&a, &b], &v, plain);
    let (_, by_backward) = functional::vhp_with(g, &[&a, &b], &v, plain);
    near(&by_forward[0], &by_backward[0]);
    near(&by_forward[1], &by_backward[1]);
    // Strictness, and results that can be differentiated.
    let strict = Options { strict: true, ..plain };
    let error = catch(|| functional::vjp_with(|x| vec![x[0].exp()], &[&a, &b], &[&a], strict));
    assert!(error.unwrap_err().to_string().contains("input 1"));
    let error = catch(|| functional::jvp_with(|_| vec![b.clone()], &[&a], &[&a], strict));
    assert!(error.unwrap_err().to_string().contains("output 0"));
    let graph = Options { create_graph: true, ..plain };
    let x = a.detach().requires_grad_(true);
    let one = vector(&[1.0, 1.0]);
    for product in [
        functional::jvp_with(|x| vec![x[0].exp()], &[&x], &[&one], graph).1,
        functional::vjp_with(|x| vec![x[0].exp()], &[&x], &[&one], graph).1,
        functional::jacobian_with(|x| vec![x[0].exp().sum()], &[&x], graph).swap_remove(0),
    ] {
        let g = autograd::grad(&[&product[0].sum()], &[&x], &[None], autograd::GraphMode::Free);
        near(g[0].as_ref().unwrap(), &a.exp());
    }
    let mixed = Options { create_graph: true, ..forward };
    assert!(catch(|| functional::jacobian_with(f, &[&a, &b], mixed)).is_err());
    let error = catch(|| jvp(|x| x.exp(), &a, &b)).unwrap_err().to_string();
    assert!(error.contains("[2]") && error.contains("[3]"), "{error}");
}

fn params(row: &Row) -> Vec<Scalar> {
    row.params.iter().map(|p| p.default.into()).collect()
}

/// Fixed values for input `k`, inside the row's own interval and off its middle.
fn inputs(row: &Row) -> Vec<Tensor> {
    let input = |k: usize| {
        let shape = [&[3usize, 4][..], &[3, 1], &[4]][k % 3];
        let n: usize = shape.iter().product();
        if row.inputs[k].mask {
            let bits: Vec<bool> = (0..n).map(|i| i % 3 == 0).collect();
            return Tensor::from_slice(&bits, shape);
        }
        let (low, high) = row.sample_range(k);
        let at = |i: usize| ((i * 7 + k * 5) % 16) as f64 / 16.0 + 0.031;
        let values: Vec<f64> = (0..n).map(|i| low + (high - low) * at(i).min(0.98)).collect();
        Tensor::from_slice(&values, shape)
    };
    (0..row.inputs.len()).map(input).collect()
}

fn operands(inputs: &[Tensor]) -> Vec<Operand<'_>> {
    inputs.iter().map(Operand::Tensor).collect()
}

#[test]
fn every_pointwise_row_agrees_with_finite_differences() {
    // A step to the next number of a half type is no smooth function.
    let smooth = |r: &&Row| r.kind != Kind::Update && r.name != "nextafter_half";
    for row in tables().filter(|r| !r.gradients.is_empty()).filter(smooth) {
        let xs = inputs(row);
        // Not every input has a derivative.
        let direction = |(k, x): (usize, &Tensor)| match row.gradients.iter().any(|g| g.input == k)
        {
            true => x.to_dtype(Dtype::F64).cos() * 0.7,
            false => Tensor::zeros(x.shape(), Dtype::F64),
        };
        let vs: Vec<Tensor> = xs.iter().enumerate().map(direction).collect();
        let run = |xs: &[Tensor]| apply(row, &operands(xs), &params(row));
        let dual = || -> Vec<Tensor> {
            let dual = |(x, v): (&Tensor, &Tensor)| match x.dtype() {
                Dtype::F64 => make_dual(x, v),
                _ => x.clone(),
            };
            xs.iter().zip(&vs).map(dual).collect()
        };
        let got = dual_level(|| tangent(&run(&dual())));
        let in_place = dual_level(|| {
            let mut duals = dual();
            if row.inputs[0].mask {
                return None;
            }
            duals[0] = duals[0].clone_contiguous();
            apply_inplace(row, &operands(&duals), &params(row));
            unpack_dual(&duals[0]).tangent.map(|t| t.to_vec::<f64>())
        });
        if let Some(in_place) = in_place {
            assert_eq!(in_place, got, "{} in place", row.name);
        }
        let at = |step: f64| {
            let moved = |(x, v): (&Tensor, &Tensor)| match x.dtype() {
                Dtype::F64 => x + v * step,
                _ => x.clone(),
            };
            run(&xs.iter().zip(&vs).map(moved).collect::<Vec<_>>()).to_vec::<f64>()
        };
        for (i, (up, down)) in at(1e-6).iter().zip(at(-1e-6)).enumerate() {
            let want = (up - down) / 2e-6;
            let ok = (got[i] - want).abs() <= 1e-5 * (1.0 + want.abs());
            assert!(ok, "{}: element {i} is {}, differences give {want}", row.name, got[i]);
        }
    }
}

#[test]
fn views_and_in_place_changes_of_dual_tensors() {
    let (x, v) = (vector(&[1.0, 2.0, 3.0, 4.0]), vector(&[1.0, 10.0, 100.0, 1000.0]));
    dual_level(|| {
        let y = make_dual(&x, &v).clone_contiguous();
        let (rows, last) = (y.view([2, 2]), y.narrow(0, 2, 2));
        assert_eq!(tangent(&rows.t()), [1.0, 100.0, 10.0, 1000.0]);
        // Through one view; the base and the other views see it.
        last.mul_(&last.detach());
        assert_eq!(tangent(&y), [1.0, 10.0, 300.0, 4000.0]);
        assert_eq!(tangent(&rows.select(0, 1)), [300.0, 4000.0]);
        // A constant overwrites a tangent, a dual tensor brings one.
        rows.select(1, 0).fill_(7.0);
        assert_eq!(tangent(&y), [0.0, 10.0, 0.0, 4000.0]);
        let z = Tensor::zeros([2, 2], Dtype::F64);
        z.select(0, 1).copy_(&y.narrow(0, 0, 2));
        assert_eq!(tangent(&z), [0.0, 0.0, 0.0, 10.0]);
        z.index_add_(0, &Tensor::from([1i64]), &rows.narrow(0, 1, 1));
        assert_eq!(tangent(&z), [0.0, 0.0, 0.0, 4010.0]);
        // An in-place op must not reach the tangent of what the tensor was computed from.
        let sum = &y + 1.0;
        sum.mul_(2.0);
        assert_eq!(tangent(&sum), [0.0, 20.0, 0.0, 8000.0]);
        assert_eq!(tangent(&y), [0.0, 10.0, 0.0, 4000.0]);
        y.zero_();
        assert!(unpack_dual(&y).tangent.is_none());
        // Expanded: one element in many places.
        let wide = make_dual(&vector(&[2.0]), &vector(&[3.0])).expand(&[2, 2]);
        assert_eq!(tangent(&wide.t().reshape([4])), [3.0; 4]);
    });
}

#[test]
fn in_place_changes_keep_tangents_and_histories_together() {
    let x = vector(&[0.5, -1.0]).requires_grad_(true);
    let v = vector(&[2.0, 3.0]).requires_grad_(true);
    let grads = dual_level(|| {
        let y = make_dual(&x, &v) * 1.0;
        let first = y.select(0, 0);
        first.mul_(&y.select(0, 1).exp());
        let t = unpack_dual(&y).tangent.unwrap();
        autograd::grad(&[&t.sum()], &[&x, &v], &[None], autograd::GraphMode::Free)
    });
    // y0 = x0 e^x1: its tangent is v0 e^x1 + v1 x0 e^x1.
    let (e, x0, v) = ((-1f64).exp(), 0.5, [2.0, 3.0]);
    near(grads[0].as_ref().unwrap(), &vector(&[v[1] * e, v[0] * e + v[1] * x0 * e]));
    near(grads[1].as_ref().unwrap(), &vector(&[e, x0 * e + 1.0]));
}

#[test]
fn no_grad_keeps_tangents_detach_and_the_end_of_the_level_drop_them() {
    let x = vector(&[2.0]);
    let (y, kept) = dual_level(|| {
        let x = make_dual(&x, &vector(&[1.0]));
        assert!(unpack_dual(&x.detach()).tangent.is_none());
        assert!(unpack_dual(&x.gt(0.0).to_dtype(Dtype::F64)).tangent.is_none());
        assert_eq!(tangent(&no_grad(|| &x * &x)), [4.0]);
        assert_eq!(tangent(&x.to_dtype(Dtype::F32).exp()), [2f64.exp() as f32 as f64]);
        assert!(!unpack_dual(&x).primal.requires_grad());
        (&x * &x, unpack_dual(&(&x * &x)))
    });
    assert!(unpack_dual(&y).tangent.is_none());
    assert_eq!(kept.tangent.unwrap().item(), 4.0);
    // Another thread has no part in the level.
    dual_level(|| {
        let y = make_dual(&x, &vector(&[1.0]));
        std::thread::scope(|s| {
            s.spawn(|| assert!(unpack_dual(&(&y * 2.0)).tangent.is_none()));
        });
        assert_eq!(tangent(&(&y * 2.0)), [2.0]);
    });
}

#[test]
fn gradients_flow_to_the_primal_and_to_the_tangent() {
    let x = vector(&[0.3]).requires_grad_(true);
    let v = vector(&[2.0]).requires_grad_(true);
    dual_level(|| {
        let y = unpack_dual(&make_dual(&x, &v).exp());
        (y.primal * 10.0 + y.tangent.unwrap()).backward();
    });
    let e = 0.3f64.exp();
    near(&x.grad().unwrap(), &vector(&[10.0 * e + 2.0 * e]));
    near(&v.grad().unwrap(), &vector(&[e]));
}

#[test]
fn misuse_is_named() {
    let x = vector(&[1.0, 2.0]);
    let text = |f: &dyn Fn() -> Tensor| catch(f).unwrap_err().to_string();
    assert!(text(&|| make_dual(&x, &x)).contains("outside a dual_level"));
    let inside = |f: &dyn Fn() -> Tensor| text(&|| dual_level(f));
    assert!(inside(&|| dual_level(|| x.clone())).contains("nested"));
    assert!(inside(&|| make_dual(&x, &vector(&[1.0]))).contains("shape"));
    let integers = Tensor::from([1i64]);
    assert!(inside(&|| make_dual(&integers, &integers)).contains("i64"));
    assert!(inside(&|| make_dual(&make_dual(&x, &x), &x)).contains("has one already"));
    // The memory of a leaf would change without its knowing.
    let leaf = x.detach().requires_grad_(true);
    assert!(inside(&|| make_dual(&leaf, &x).mul_(2.0).clone()).contains("make_dual"));
    // After an error the level is closed.
    assert_eq!(dual_level(|| tangent(&make_dual(&x, &x))), [1.0, 2.0]);
}
