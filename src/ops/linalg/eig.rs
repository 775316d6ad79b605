//! `A V = V diag(w)` of matrices that need not be symmetric; w and V are complex. With `E_ij = w_j - w_i` and
//! `T = V^H dV`
//!
//! ```text
//! dA = V^-H (diag(dw) + (T - V^H V diag(Re T)) / conj(E)) V^H
//! ```
//!
//! of which the real part counts.

use smallvec::smallvec;

use super::checks::{check_square, eye_like};
use super::complex::solve_systems;
use super::on_host::each_anywhere;
use crate::amp::cast_op;
use crate::autograd::{BackwardCtx, is_differentiated, no_grad, record, record_many};
use crate::cpu::linalg;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// Why a matrix has no values here.
const NOT_FINITE: usize = 2;

/// Eigenvalues `[.., n]` and eigenvectors as columns `[.., n, n]`, both complex, of square matrices (`torch.linalg.eig`).
/// The values come in no order; a vector has length 1 and is fixed up to a factor of magnitude 1. Gradients are finite
/// where no two values are equal. The CPU computes them, of a GPU's matrices too.
///
/// ```
/// use torchrs::{Complex, Tensor, linalg};
/// let (w, v) = linalg::eig(&Tensor::from([[0f64, -1.], [1., 0.]]));
/// assert_eq!(w.to_vec::<Complex<f64>>(), [Complex::new(0.0, 1.0), Complex::new(0.0, -1.0)]);
/// assert!((v.abs() - 0.5f64.sqrt()).abs().max().item() < 1e-12);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless the matrices are square, [`Error::Dtype`] for types other than f32 and f64, and
/// [`Error::Argument`] for matrices with infinities or NaN, and if the steps do not converge. Backward throws
/// [`Error::Autograd`] where the result depends on the vectors' factors.
#[track_caller]
pub fn eig(a: &Tensor) -> (Tensor, Tensor) {
    cast_op!("linalg_eig", [x = a] => eig(&x));
    let (w, v) = decompose("linalg.eig", a, true);
    let outputs = [w, v];
    record_many("eig", &[a], &outputs, |saver| {
        let (w, v) = (saver.save_output(0), saver.save_output(1));
        move |ctx: &BackwardCtx<'_>| {
            let (w, v) = (ctx.get(&w), ctx.get(&v));
            smallvec![Some(backward(&w, &v, ctx.grad_opt(0), ctx.grad_opt(1)))]
        }
    });
    let [w, v] = outputs;
    (w, v)
}

/// The eigenvalues of [`eig`] (`torch.linalg.eigvals`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let w = linalg::eigvals(&Tensor::from([[1f64, 5.], [0., 2.]]));
/// assert_eq!((w.real().to_vec::<f64>(), w.imag().to_vec::<f64>()), (vec![1.0, 2.0], vec![0.0, 0.0]));
/// ```
///
/// # Panics
/// As [`eig`].
#[track_caller]
pub fn eigvals(a: &Tensor) -> Tensor {
    cast_op!("linalg_eigvals", [x = a] => eigvals(&x));
    let (w, v) = decompose("linalg.eigvals", a, is_differentiated(&[a]));
    record("eigvals", &[a], w, |saver| {
        let w = saver.save_output(0);
        move |ctx: &BackwardCtx<'_>| {
            // Vectors that have no history would be constants of a further derivative.
            if ctx.create_graph() {
                throw(Error::Autograd(
                    "linalg.eigvals has no derivative of a derivative; `linalg.eig` has".into(),
                ));
            }
            smallvec![Some(backward(&ctx.get(&w), &v, Some(ctx.grad(0)), None))]
        }
    })
}

/// Values and vectors without history.
#[track_caller]
fn decompose(op: &str, a: &Tensor, vectors: bool) -> (Tensor, Tensor) {
    check_square(op, a);
    let n = a.size(-1);
    let rows = if vectors { n } else { 0 };
    let batch = each_anywhere(op, &[a], &[&[n], &[n], &[rows, n], &[rows, n]], &|inputs, out| {
        if inputs[0].iter().any(|x| !x.is_finite()) {
            return NOT_FINITE;
        }
        let Some(found) = linalg::eig(inputs[0].to_vec(), n, vectors) else { return 1 };
        let parts = found.values.iter().chain(&found.vectors);
        out.iter_mut().zip(parts).for_each(|(out, part)| out.copy_from_slice(part));
        0
    });
    batch.expect(op, |info| match info as usize {
        NOT_FINITE => "has elements that are infinite or NaN".into(),
        _ => "has eigenvalues to which the steps do not converge".into(),
    });
    let [re, im, v_re, v_im] = &batch.outputs[..] else { unreachable!("four outputs") };
    no_grad(|| (Tensor::complex(re, im), Tensor::complex(v_re, v_im)))
}

#[track_caller]
fn backward(w: &Tensor, v: &Tensor, dw: Option<Tensor>, dv: Option<Tensor>) -> Tensor {
    let adjoint = v.adjoint();
    let eye = eye_like(&v.real());
    let mut inner = Tensor::zeros(v.shape(), (v.dtype(), v.device()));
    if let Some(dv) = dv {
        let turned = adjoint.matmul(&dv);
        let own = turned.diagonal(0, -2, -1);
        let turns = || own.imag().abs().max_of_all() > 1e-2 * (1.0 + own.abs().max_of_all());
        // Without values there is nothing to look at.
        if !v.device().is_meta() && no_grad(turns) {
            throw(Error::Autograd(
                "linalg.eig: the result depends on the factors of magnitude 1 that the vectors are \
                 free up to; it has no derivative"
                    .into(),
            ));
        }
        let apart = w.unsqueeze(-2) - w.unsqueeze(-1);
        let scaled = adjoint.matmul(v) * own.real().unsqueeze(-2).to_dtype(v.dtype());
        // Ones on the diagonal, which does not count.
        let apart = apart.conj() + eye.to_dtype(v.dtype());
        inner = (turned - scaled) / apart * (1.0 - &eye).to_dtype(v.dtype());
    }
    if let Some(dw) = dw {
        inner = inner + dw.unsqueeze(-2) * eye.to_dtype(v.dtype());
    }
    solve_systems("linalg.eig", &adjoint, &inner.matmul(&adjoint)).real().contiguous()
}

impl Tensor {
    /// The largest element, 0 where there is none.
    pub(super) fn max_of_all(&self) -> f64 {
        if self.numel() == 0 { 0.0 } else { self.max().item() }
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{apart, sample};
    use crate::ops::checks::samples::Order;
    /// Free of the vectors' factors, and of the order of the values.
    fn both(x: &Tensor) -> Tensor {
        let (w, v) = eig(x);
        let weights = w.real().unsqueeze(-2) + w.imag().square().unsqueeze(-2) * 0.3;
        (v.abs().square() * weights).sum_dim(&[-1], false)
    }
    vec![
        sample("eig, real values", &[&[2, 3, 3]], |x| both(&apart(&x[0]))),
        sample("eig, complex values", &[&[2, 2]], |x| {
            let turn = x[0].triu(1) - x[0].mt().tril(-1);
            both(&(turn * 3.0 + &x[0] * 0.1))
        }),
        sample("eig, empty", &[&[2, 0, 0]], |x| eig(&x[0]).0.abs()),
        sample("eigvals", &[&[2, 3, 3]], |x| eigvals(&apart(&x[0])).abs().sum_dim(&[-1], false))
            .order(Order::First),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;
    use crate::ops::random::Generator;
    use crate::tensor::{Complex, Dtype};

    #[test]
    fn values_and_vectors_are_the_matrices() {
        for n in [1, 2, 3, 5, 8, 17, 40] {
            let a = Generator::new(n as u64).randn([3, n, n], Dtype::F64);
            let (w, v) = eig(&a);
            let left = a.to_dtype(Dtype::C128).matmul(&v);
            let apart = (left - &v * w.unsqueeze(-2)).abs().max().item();
            assert!(apart < 1e-10 * n as f64, "{n}: {apart}");
            let lengths = v.abs().square().sum_dim(&[-2], false);
            assert!((lengths - 1.0).abs().max().item() < 1e-12, "{n}");
            let trace = (w.real().sum() - a.diagonal(0, -2, -1).sum()).item();
            assert!(trace.abs() < 1e-9, "{n}: {trace}");
        }
    }

    #[test]
    fn matrices_of_special_forms_have_values() {
        let checked = |a: Tensor, expected: &[[f64; 2]]| {
            let mut found: Vec<[f64; 2]> =
                eig(&a).0.to_vec::<Complex<f64>>().iter().map(|w| [w.re, w.im]).collect();
            found.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
            for (found, expected) in found.iter().zip(expected) {
                let apart = (found[0] - expected[0]).abs() + (found[1] - expected[1]).abs();
                assert!(apart < 1e-6, "{found:?}, expected {expected:?}");
            }
        };
        checked(Tensor::zeros([3, 3], Dtype::F64), &[[0.0, 0.0]; 3]);
        // A permutation: roots of 1, with nothing on the diagonal.
        let turn = Tensor::from([
            [0f64, 0., 0., 1.],
            [1., 0., 0., 0.],
            [0., 1., 0., 0.],
            [0., 0., 1., 0.],
        ]);
        checked(turn, &[[-1.0, 0.0], [0.0, -1.0], [0.0, 1.0], [1.0, 0.0]]);
        checked(Tensor::from([[1f64, 1., 0.], [0., 1., 1.], [0., 0., 1.]]), &[[1.0, 0.0]; 3]);
        checked(Tensor::from([[1e-200f64, 0.], [0., 1e200]]), &[[1e-200, 0.0]]);
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        let a = Generator::new(5).randn([4, 4], Dtype::F64).requires_grad_(true);
        let f = |a: &Tensor| {
            let (w, v) = eig(a);
            // Free of the vectors' factors.
            (v.abs().square() * w.real().unsqueeze(-2)).sin().sum()
                + (w.imag().square() * 0.3).sum()
        };
        crate::autograd::gradcheck(|x| f(&x[0]), &[&a], Default::default()).expect("gradients");
        let g = |x: &[Tensor]| eigvals(&x[0]).abs().sum();
        crate::autograd::gradcheck(g, &[&a], Default::default()).expect("gradients");
    }

    #[test]
    fn what_has_no_values_is_refused() {
        let refused = |a: Tensor, what: &str| {
            let error = catch(|| eig(&a)).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(Tensor::zeros([2, 3], Dtype::F64), "square");
        refused(Tensor::zeros([2], Dtype::F64), "[2]");
        refused(Tensor::from([[f64::NAN]]), "NaN");
        refused(Tensor::from([[1i64]]), "i64");
        let a = Tensor::from([[0f64, -1.], [1., 0.]]).requires_grad_(true);
        let of_factor = catch(|| eig(&a).1.imag().sum().backward());
        assert!(of_factor.unwrap_err().to_string().contains("magnitude 1"));
    }
}
