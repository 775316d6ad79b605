//! Products of Householder's reflections `I - tau v v^T`, and the factors that they are taken from.

use super::checks::{check_matrices, common_batch};
use super::on_host::each_anywhere;
use crate::autograd::{BackwardCtx, record_many};
use crate::cpu::linalg;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// R in the upper trapezoid and the reflections' vectors below it, of which the leading 1 is not stored, and the
/// reflections' factors `[.., min(m, n)]` (`torch.geqrf`). [`householder_product`] makes Q of them. The CPU computes them,
/// of a GPU's matrices too.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[3f64, 1.], [4., 2.]]);
/// let (packed, tau) = linalg::geqrf(&a);
/// let q = linalg::householder_product(&packed, &tau);
/// assert!(q.matmul(&packed.triu(0)).allclose(&a, Default::default()));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for fewer than two dimensions and [`Error::Dtype`] for types other than f32 and f64. Backward
/// throws [`Error::Autograd`]: [`qr`](super::qr) has a derivative.
#[track_caller]
pub fn geqrf(a: &Tensor) -> (Tensor, Tensor) {
    let op = "geqrf";
    check_matrices(op, a);
    let (m, n) = (a.size(-2), a.size(-1));
    let batch = each_anywhere(op, &[a], &[&[m, n], &[m.min(n)]], &|inputs, out| {
        let [packed, tau] = out else { unreachable!("two outputs") };
        packed.copy_from_slice(inputs[0]);
        linalg::qr_factors(packed, m, n, tau);
        0
    });
    record_many(op, &[a], &batch.outputs, |_| {
        move |_: &BackwardCtx<'_>| {
            throw(Error::Autograd("geqrf has no derivative; linalg.qr has".into()))
        }
    });
    let [packed, tau]: [Tensor; 2] = batch.outputs.try_into().expect("two outputs");
    (packed, tau)
}

/// The vectors of reflections as columns: ones on the diagonal, zeros above.
#[track_caller]
fn columns(op: &str, a: &Tensor, tau: &Tensor) -> Tensor {
    check_matrices(op, a);
    let (m, k) = (a.size(-2), tau.shape().last().copied());
    let Some(k) = k.filter(|&k| k <= a.size(-1) && k <= m) else {
        let (a, t) = (a.shape(), tau.shape());
        let message =
            format!("tau of shape {t:?} for vectors of shape {a:?}; at most one for each column");
        throw(Error::shape(op, message));
    };
    if tau.shape()[..tau.dim() - 1] != a.shape()[..a.dim() - 2] {
        let (a, t) = (a.shape(), tau.shape());
        throw(Error::shape(op, format!("the batches of {a:?} and of tau, {t:?}, differ")));
    }
    if tau.dtype() != a.dtype() {
        let message = format!("takes one type, got {} and {}", a.dtype(), tau.dtype());
        throw(Error::dtype(op, message));
    }
    a.narrow(-1, 0, k).tril(-1) + Tensor::eye_of(m, k, (a.dtype(), a.device()))
}

/// `x` less `tau v (v^T x)`, for reflection `i`.
#[track_caller]
fn reflected(x: &Tensor, vectors: &Tensor, tau: &Tensor, i: usize) -> Tensor {
    let v = vectors.narrow(-1, i as i64, 1);
    let tau = tau.narrow(-1, i as i64, 1).unsqueeze(-1);
    x - (&v * tau).matmul(&v.mt().matmul(x))
}

/// The first n columns of the product of the reflections that the columns of `a`, `[.., m, n]`, and `tau`, `[.., k]`,
/// hold, as [`geqrf`] gives them (`torch.linalg.householder_product`, `torch.orgqr`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let q = linalg::householder_product(&Tensor::from([[9f64], [1.]]), &Tensor::from([1f64]));
/// assert_eq!(q.to_vec::<f64>(), [0.0, -1.0]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] unless `m >= n >= k` and the batches are the same, [`Error::Dtype`] for types other than f32 and
/// f64, or two types.
#[track_caller]
pub fn householder_product(a: &Tensor, tau: &Tensor) -> Tensor {
    let op = "linalg.householder_product";
    let vectors = columns(op, a, tau);
    let (m, n) = (a.size(-2), a.size(-1));
    if m < n {
        throw(Error::shape(op, format!("{m} rows for {n} columns; must have as many at least")));
    }
    let eye = Tensor::eye_of(m, n, (a.dtype(), a.device()));
    let start = eye.expand(a.shape());
    (0..tau.size(-1)).rev().fold(start, |q, i| reflected(&q, &vectors, tau, i))
}

/// `Q C`, or with `transpose` `Q^T C`, where Q, `m x m`, is the product of reflections; without `left` `C Q` and `C Q^T`
/// (`torch.ormqr`).
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let (packed, tau) = linalg::geqrf(&Tensor::from([[3f64, 1.], [4., 2.]]));
/// let c = Tensor::from([[1f64], [2.]]);
/// let back = linalg::ormqr(&packed, &tau, &linalg::ormqr(&packed, &tau, &c, true, false), true, true);
/// assert!(back.allclose(&c, Default::default()));
/// ```
///
/// # Panics
/// As [`householder_product`], and throws [`Error::Shape`] where `c` does not fit.
#[track_caller]
pub fn ormqr(a: &Tensor, tau: &Tensor, c: &Tensor, left: bool, transpose: bool) -> Tensor {
    let op = "ormqr";
    check_matrices(op, c);
    if !left {
        return ormqr(a, tau, &c.mt(), true, !transpose).mt();
    }
    let vectors = columns(op, a, tau);
    if a.size(-2) != c.size(-2) {
        let (a, c) = (a.shape(), c.shape());
        throw(Error::shape(op, format!("reflections of shape {a:?} do not fit {c:?}")));
    }
    let (vectors, c) = common_batch(op, &vectors, c);
    let count = tau.size(-1);
    let order: Vec<usize> =
        if transpose { (0..count).collect() } else { (0..count).rev().collect() };
    order.into_iter().fold(c, |c, i| reflected(&c, &vectors, tau, i))
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    use crate::ops::checks::samples::Order;
    vec![
        sample("geqrf", &[&[2, 4, 3]], |x| geqrf(&x[0].detach()).0).order(Order::None),
        sample("geqrf, tau", &[&[3, 4]], |x| geqrf(&x[0].detach()).1).order(Order::None),
        sample("householder_product", &[&[2, 4, 3], &[2, 2]], |x| {
            householder_product(&x[0], &x[1])
        }),
        sample("householder_product, none", &[&[3, 2], &[0]], |x| {
            householder_product(&x[0], &x[1])
        })
        .order(Order::None),
        sample("ormqr", &[&[2, 4, 3], &[2, 3], &[4, 2]], |x| {
            ormqr(&x[0], &x[1], &x[2], true, false)
        }),
        sample("ormqr, right, transposed", &[&[4, 3], &[3], &[2, 2, 4]], |x| {
            ormqr(&x[0], &x[1], &x[2], false, true)
        }),
        sample("householder_product of geqrf", &[&[3, 3]], |x| {
            let (packed, tau) = geqrf(&heavy(&x[0]).detach());
            householder_product(&packed, &tau)
        })
        .order(Order::None),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{QrMode, qr};
    use super::*;
    use crate::error::catch;
    use crate::ops::random::Generator;
    use crate::tensor::Dtype;

    #[test]
    fn reflections_are_those_of_the_factors() {
        for (m, n) in [(3, 3), (5, 2), (2, 4), (3, 0)] {
            let a = Generator::new(4).randn([2, m, n], Dtype::F64);
            let (packed, tau) = geqrf(&a);
            let (q, r) = qr(&a, QrMode::Reduced);
            let k = m.min(n);
            assert!((packed.triu(0).narrow(-2, 0, k) - r).abs().max_of_all() < 1e-12);
            let own = householder_product(&packed.narrow(-1, 0, k), &tau);
            assert!((own - &q).abs().max_of_all() < 1e-12);
            let c = Generator::new(5).randn([2, m, 2], Dtype::F64);
            let full = qr(&a, QrMode::Complete).0;
            let by = |left, transpose| match left {
                true => ormqr(&packed, &tau, &c, true, transpose),
                false => ormqr(&packed, &tau, &c.mt(), false, transpose),
            };
            assert!((by(true, false) - full.matmul(&c)).abs().max_of_all() < 1e-12);
            assert!((by(true, true) - full.mt().matmul(&c)).abs().max_of_all() < 1e-12);
            assert!((by(false, false) - c.mt().matmul(&full)).abs().max_of_all() < 1e-12);
            assert!((by(false, true) - c.mt().matmul(&full.mt())).abs().max_of_all() < 1e-12);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (a, tau) = (Tensor::zeros([3, 2], Dtype::F64), Tensor::zeros([2], Dtype::F64));
        let refused = |f: &dyn Fn(), what: &str| {
            let error = catch(f).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        refused(&|| _ = householder_product(&a, &Tensor::zeros([3], Dtype::F64)), "tau");
        refused(&|| _ = householder_product(&a, &tau.float()), "one type");
        refused(&|| _ = householder_product(&a.mt(), &tau), "at least");
        refused(&|| _ = householder_product(&a, &tau.unsqueeze(0)), "batches");
        refused(&|| _ = ormqr(&a, &tau, &a.mt(), true, false), "fit");
        let x = Tensor::from([[1f64], [2.]]).requires_grad_(true);
        refused(&|| geqrf(&x).1.sum().backward(), "linalg.qr");
    }
}
