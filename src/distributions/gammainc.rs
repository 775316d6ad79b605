//! The regularised lower incomplete gamma function, computed on the host in f64: [`Gamma`](super::Gamma)'s cumulative
//! distribution function. To be replaced by an op of its own.

use crate::autograd::{BackwardCtx, no_grad, record};
use crate::tensor::Tensor;

/// Terms after which a series or a fraction is taken as it is.
const MOST: usize = 100_000;

/// P(a, x) with a logarithm of the gamma function of `a`.
fn lower(a: f64, x: f64, lgamma: f64) -> f64 {
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 {
        return f64::NAN;
    }
    if a == 0.0 {
        return if x > 0.0 { 1.0 } else { f64::NAN };
    }
    if x == 0.0 {
        return 0.0;
    }
    if x.is_infinite() {
        return if a.is_infinite() { f64::NAN } else { 1.0 };
    }
    if a.is_infinite() {
        return 0.0;
    }
    let scale = (a * x.ln() - x - lgamma).exp();
    if x < a + 1.0 {
        let (mut term, mut sum) = (1.0 / a, 1.0 / a);
        for n in 1..MOST {
            term *= x / (a + n as f64);
            sum += term;
            if term < sum * f64::EPSILON * 0.5 {
                break;
            }
        }
        return (scale * sum).min(1.0);
    }
    // Lentz's continued fraction of the upper part.
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / f64::MIN_POSITIVE, 1.0 / b);
    let mut h = d;
    for n in 1..MOST {
        let n = n as f64;
        let an = -n * (n - a);
        b += 2.0;
        let near = |v: f64| if v.abs() < f64::MIN_POSITIVE { f64::MIN_POSITIVE } else { v };
        d = 1.0 / near(an * d + b);
        c = near(b + an / c);
        let factor = d * c;
        h *= factor;
        if (factor - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    1.0 - scale * h
}

/// P(a, x), with a gradient by `x` (`torch.special.gammainc`). There is none by `a`, as in PyTorch: asking for it
/// throws.
#[track_caller]
pub(super) fn gammainc(a: &Tensor, x: &Tensor) -> Tensor {
    let (a, x) = super::params::pair("gammainc", a, x);
    let out = no_grad(|| {
        let wide = a.detach().to_dtype(crate::tensor::Dtype::F64);
        let lgammas = wide.lgamma().to_vec::<f64>();
        let (all, at) = (wide.to_vec::<f64>(), x.detach().to_vec::<f64>());
        let each = all.iter().zip(&at).zip(&lgammas).map(|((&a, &x), &l)| lower(a, x, l));
        Tensor::from_slice(&each.collect::<Vec<f64>>(), x.shape())
            .to_dtype(x.dtype())
            .to_device(x.device())
    });
    record("gammainc", &[&a, &x], out, |saver| {
        let (a, x) = (saver.save(&a), saver.save(&x));
        move |ctx: &BackwardCtx<'_>| {
            if ctx.needs(0) {
                super::distribution::missing("gammainc", "gradient by the concentration");
            }
            let (a, x) = (ctx.get(&a), ctx.get(&x));
            let density = (((&a - 1.0) * x.log()) - &x - a.lgamma()).exp();
            [None, Some(ctx.grad(0) * density)].into_iter().collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_closed_forms_say() {
        let x = Tensor::from([0f64, 0.1, 1., 2., 5., 40.]);
        let one = gammainc(&Tensor::from([1f64]), &x);
        assert!(one.allclose(&(1.0 - (-&x).exp()), Default::default()));
        let half = gammainc(&Tensor::from([0.5f64]), &x);
        assert!(half.allclose(&x.sqrt().erf(), Default::default()));
    }
}
