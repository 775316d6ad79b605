//! Ops of group `special`: `torch.special`, and the names that `torch` has for the same functions.

use torchrs::{Operand, Tensor, special};

use super::Table;
use crate::arg::{Call, Outcome};

macro_rules! of_one {
    ($t:ident: $($name:ident)*) => {
        $($t.op(concat!("special.", stringify!($name)), |c| Ok(special::$name(c.tensor(0, "input")?)));)*
    };
}

macro_rules! of_two {
    ($t:ident: $($name:ident)*) => {
        $($t.op(concat!("special.", stringify!($name)), |c| {
            Ok(special::$name(c.operand(0, "input")?, second(c)?))
        });)*
    };
}

/// The second operand, by either of PyTorch's names.
fn second(c: &Call) -> Outcome<Operand<'_>> {
    c.operand(1, if c.given(usize::MAX, "n") { "n" } else { "other" })
}

pub fn fill(t: &mut Table) {
    of_one! { t:
        airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv exp2 expit expm1
        gammaln i0 i0e i1 i1e log1p log_ndtr modified_bessel_i0 modified_bessel_i1 modified_bessel_k0
        modified_bessel_k1 ndtr ndtri psi scaled_modified_bessel_k0 scaled_modified_bessel_k1 sinc
        spherical_bessel_j0
    }
    of_two! { t:
        chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w gammainc
        gammaincc hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p
        shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
        shifted_chebyshev_polynomial_w xlog1py xlogy zeta
    }
    t.op("xlogy", |c| Ok(special::xlogy(c.operand(0, "input")?, c.operand(1, "other")?)));
    t.op("igamma", |c| Ok(c.tensor(0, "input")?.igamma(c.operand(1, "other")?)));
    t.op("igamma_", |c| Ok(c.tensor(0, "input")?.igamma_(c.operand(1, "other")?).clone()));
    t.op("igammac", |c| Ok(c.tensor(0, "input")?.igammac(c.operand(1, "other")?)));
    t.op("igammac_", |c| Ok(c.tensor(0, "input")?.igammac_(c.operand(1, "other")?).clone()));
    t.op("float_power", |c| match (c.operand(0, "input")?, c.operand(1, "exponent")?) {
        (Operand::Tensor(x), exponent) => Ok(x.float_power(exponent)),
        (base, Operand::Tensor(x)) => Ok(x.rfloat_power(base)),
        _ => c.odd(1, "exponent"),
    });
    t.op("special.logit", |c| Ok(special::logit(c.tensor(0, "input")?, c.maybe_float(1, "eps")?)));
    t.op("special.round", |c| {
        let decimals = c.int(usize::MAX, "decimals", 0)? as i32;
        Ok(special::round(c.tensor(0, "input")?, decimals))
    });
    orders(t);
    folds(t);
}

fn orders(t: &mut Table) {
    for name in ["polygamma", "special.polygamma"] {
        t.op(name, |c| Ok(special::polygamma(c.count(0, "n", 0)? as u32, c.tensor(1, "input")?)));
    }
    t.op("polygamma_", |c| {
        Ok(c.tensor(0, "input")?.polygamma_(c.count(1, "n", 0)? as u32).clone())
    });
    for name in ["mvlgamma", "special.multigammaln"] {
        t.op(name, |c| {
            Ok(special::multigammaln(c.tensor(0, "input")?, c.count(1, "p", 1)? as u32))
        });
    }
    t.op("mvlgamma_", |c| Ok(c.tensor(0, "input")?.mvlgamma_(c.count(1, "p", 1)? as u32).clone()));
}

fn folds(t: &mut Table) {
    fn soft(f: fn(&Tensor, i64, Option<torchrs::Dtype>) -> Tensor, c: &Call) -> Outcome<Tensor> {
        Ok(f(c.tensor(0, "input")?, c.int(1, "dim", 0)?, c.maybe_dtype(2, "dtype")?))
    }
    t.op("special.softmax", |c| soft(special::softmax, c));
    t.op("special.log_softmax", |c| soft(special::log_softmax, c));
    t.op("special.logsumexp", |c| {
        let dims = c.ints(1, "dim")?;
        Ok(special::logsumexp(c.tensor(0, "input")?, &dims, c.flag(2, "keepdim", false)?))
    });
}
