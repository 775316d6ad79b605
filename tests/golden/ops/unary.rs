//! Ops of group `unary`.

use super::Table;

/// `x.op()`, and `x.op_()` for those behind the semicolon.
macro_rules! methods {
    ($t:ident: $($name:ident)*; $($inplace:ident)*) => {
        $($t.op(stringify!($name), |c| Ok(c.tensor(0, "input")?.$name()));)*
        $($t.op(stringify!($inplace), |c| Ok(c.tensor(0, "input")?.$inplace().clone()));)*
    };
}

pub fn fill(t: &mut Table) {
    methods! { t:
        abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp
        exp2 expm1 floor frac i0 isfinite isinf isnan isneginf isposinf lgamma log log10 log1p log2
        logical_not neg positive rad2deg reciprocal rsqrt sigmoid sign signbit sin sinc sinh sqrt
        square tan tanh trunc bitwise_not;
        abs_ acos_ acosh_ asin_ asinh_ atan_ atanh_ ceil_ cos_ cosh_ deg2rad_ digamma_ erf_ erfc_
        erfinv_ exp_ exp2_ expm1_ floor_ frac_ i0_ lgamma_ log_ log10_ log1p_ log2_ logical_not_
        neg_ rad2deg_ reciprocal_ rsqrt_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_
        trunc_ bitwise_not_
    }
    t.op("special.entr", |c| Ok(c.tensor(0, "input")?.entr()));
    t.op("special.ndtr", |c| Ok(c.tensor(0, "input")?.ndtr()));
    t.op("special.log_ndtr", |c| Ok(c.tensor(0, "input")?.log_ndtr()));
    t.op("special.erfcx", |c| Ok(c.tensor(0, "input")?.erfcx()));
    // Of real numbers the sign.
    t.op("sgn", |c| Ok(c.tensor(0, "input")?.sign()));
    t.op("sgn_", |c| Ok(c.tensor(0, "input")?.sign_().clone()));
    t.op("round", |c| {
        let x = c.tensor(0, "input")?;
        Ok(x.round_decimals(c.int(usize::MAX, "decimals", 0)? as i32))
    });
    t.op("round_", |c| {
        let x = c.tensor(0, "input")?;
        Ok(x.round_decimals_(c.int(usize::MAX, "decimals", 0)? as i32).clone())
    });
    t.op("logit", |c| Ok(c.tensor(0, "input")?.logit(c.maybe_float(1, "eps")?)));
    t.op("nan_to_num", |c| {
        let x = c.tensor(0, "input")?;
        let nan = c.float(1, "nan", 0.0)?;
        Ok(x.nan_to_num(nan, c.maybe_float(2, "posinf")?, c.maybe_float(3, "neginf")?))
    });
    t.op("nan_to_num_", |c| {
        let x = c.tensor(0, "input")?;
        let nan = c.float(1, "nan", 0.0)?;
        let (high, low) = (c.maybe_float(2, "posinf")?, c.maybe_float(3, "neginf")?);
        Ok(x.nan_to_num_(nan, high, low).clone())
    });
    t.op("polygamma", |c| Ok(c.tensor(1, "input")?.polygamma(c.count(0, "n", 0)? as u32)));
    t.op("polygamma_", |c| {
        Ok(c.tensor(0, "input")?.polygamma_(c.count(1, "n", 0)? as u32).clone())
    });
}
