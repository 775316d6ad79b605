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
        abs acos asin atan ceil cos cosh erf exp expm1 floor isfinite isinf isnan log log10 log1p
        log2 logical_not neg reciprocal rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
        bitwise_not;
        abs_ acos_ asin_ atan_ ceil_ cos_ cosh_ erf_ exp_ expm1_ floor_ log_ log10_ log1p_ log2_
        logical_not_ neg_ reciprocal_ rsqrt_ sigmoid_ sign_ sin_ sinh_ sqrt_ square_ tan_ tanh_
        trunc_ bitwise_not_
    }
    t.op("round", |c| Ok(c.tensor(0, "input")?.round()));
    t.op("round_", |c| Ok(c.tensor(0, "input")?.round_().clone()));
}
