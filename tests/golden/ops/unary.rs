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
        exp2 expm1 floor frac i0 isfinite isinf isnan isneginf isposinf isreal lgamma log log10 log1p log2
        logical_not neg positive rad2deg reciprocal rsqrt sigmoid sign signbit sin sinc sinh sqrt
        square tan tanh trunc bitwise_not;
        abs_ acos_ acosh_ asin_ asinh_ atan_ atanh_ ceil_ cos_ cosh_ deg2rad_ digamma_ erf_ erfc_
        erfinv_ exp_ exp2_ expm1_ floor_ frac_ i0_ lgamma_ log_ log10_ log1p_ log2_ logical_not_
        neg_ rad2deg_ reciprocal_ rsqrt_ sigmoid_ sign_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_
        trunc_ bitwise_not_
    }
    synonyms(t);
    // Of real numbers the sign.
    t.op("sgn", |c| Ok(c.tensor(0, "input")?.sgn()));
    t.op("sgn_", |c| Ok(c.tensor(0, "input")?.sign_().clone()));
    t.op("round", |c| {
        let x = c.tensor(0, "input")?;
        Ok(x.round_decimals(c.int(usize::MAX, "decimals", 0)? as i32))
    });
    t.op("round_", |c| {
        let x = c.tensor(0, "input")?;
        Ok(x.round_decimals_(c.int(usize::MAX, "decimals", 0)? as i32).clone())
    });
    t.op("logit_", |c| Ok(c.tensor(0, "input")?.logit_(c.maybe_float(1, "eps")?).clone()));
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
}

/// Other names of the same functions.
fn synonyms(t: &mut Table) {
    macro_rules! synonyms {
        ($($name:literal $inplace:literal $method:ident $method_:ident)*) => {$(
            t.op($name, |c| Ok(c.tensor(0, "input")?.$method()));
            t.op($inplace, |c| Ok(c.tensor(0, "input")?.$method_().clone()));
        )*};
    }
    synonyms! {
        "absolute" "absolute_" abs abs_
        "arccos" "arccos_" acos acos_
        "arccosh" "arccosh_" acosh acosh_
        "arcsin" "arcsin_" asin asin_
        "arcsinh" "arcsinh_" asinh asinh_
        "arctan" "arctan_" atan atan_
        "arctanh" "arctanh_" atanh atanh_
        "fix" "fix_" trunc trunc_
        "negative" "negative_" neg neg_
    }
    macro_rules! special {
        ($($name:literal $method:ident)*) => {
            $(t.op($name, |c| Ok(c.tensor(0, "input")?.$method()));)*
        };
    }
    special! {
        "relu" relu "nn.functional.sigmoid" sigmoid "nn.functional.tanh" tanh
        "selu" selu
    }
    t.op("relu_", |c| Ok(c.tensor(0, "input")?.relu_().clone()));
}
