//! Ops of group `matmul`.

use super::Table;

/// `x.op(other)`.
macro_rules! products {
    ($t:ident: $($name:ident)*) => {
        $($t.op(stringify!($name), |c| {
            Ok(c.tensor(0, "input")?.$name(c.tensor(1, "other")?))
        });)*
    };
}

pub fn fill(t: &mut Table) {
    products! { t: mm bmm matmul mv dot outer }
    t.op("addmm", |c| {
        let (beta, alpha) = (c.float(usize::MAX, "beta", 1.0)?, c.float(usize::MAX, "alpha", 1.0)?);
        Ok(c.tensor(0, "input")?.addmm(c.tensor(1, "mat1")?, c.tensor(2, "mat2")?, beta, alpha))
    });
    t.op("nn.functional.linear", |c| {
        let bias = c.maybe_tensor(2, "bias")?;
        Ok(c.tensor(0, "input")?.linear(c.tensor(1, "weight")?, bias))
    });
}
