//! Ops of group `matmul`.

use torchrs::Tensor;

use super::Table;
use crate::arg::{Arg, Call, Outcome, lacks};

/// `x.op(other)`.
macro_rules! products {
    ($t:ident: $($name:ident)*) => {
        $($t.op(stringify!($name), |c| {
            Ok(c.tensor(0, "input")?.$name(c.tensor(1, "other")?))
        });)*
    };
}

/// `x.op(a, b, beta, alpha)` and `x.op_(..)`.
macro_rules! added {
    ($t:ident: $($name:ident $inplace:ident($a:literal, $b:literal);)*) => {$(
        $t.op(stringify!($name), |c| {
            let (beta, alpha) = factors(c)?;
            Ok(c.tensor(0, "input")?.$name(c.tensor(1, $a)?, c.tensor(2, $b)?, beta, alpha))
        });
        $t.op(stringify!($inplace), |c| {
            let (beta, alpha) = factors(c)?;
            let x = c.tensor(0, "input")?;
            Ok(x.$inplace(c.tensor(1, $a)?, c.tensor(2, $b)?, beta, alpha).clone())
        });
    )*};
}

fn factors(c: &Call) -> Outcome<(f64, f64)> {
    let number = |name: &str| c.float(usize::MAX, name, 1.0);
    Ok((number("beta")?, number("alpha")?))
}

pub fn fill(t: &mut Table) {
    products! { t: mm bmm matmul mv dot outer vdot inner kron }
    added! { t:
        addmm addmm_("mat1", "mat2");
        addmv addmv_("mat", "vec");
        addr addr_("vec1", "vec2");
        baddbmm baddbmm_("batch1", "batch2");
        addbmm addbmm_("batch1", "batch2");
    }
    t.op("nn.functional.linear", |c| {
        let bias = c.maybe_tensor(2, "bias")?;
        Ok(c.tensor(0, "input")?.linear(c.tensor(1, "weight")?, bias))
    });
    t.op("nn.functional.bilinear", |c| {
        let (x1, x2) = (c.tensor(0, "input1")?, c.tensor(1, "input2")?);
        Ok(x1.bilinear(x2, c.tensor(2, "weight")?, c.maybe_tensor(3, "bias")?))
    });
    t.op("einsum", |c| {
        let equation = c.text(0, "equation", "")?;
        Ok(Tensor::einsum(&equation, &c.tensors_from(1)?))
    });
    t.op("tensordot", |c| {
        let (a, b) = (c.tensor(0, "a")?, c.tensor(1, "b")?);
        match c.get(2, "dims") {
            Arg::Int(_) => Ok(a.tensordot(b, c.count(2, "dims", 2)?)),
            Arg::List(lists) => match &lists[..] {
                [Arg::List(own), Arg::List(other)] => {
                    Ok(a.tensordot_dims(b, &integers(own)?, &integers(other)?))
                }
                _ => c.odd(2, "dims"),
            },
            Arg::None => Ok(a.tensordot(b, 2)),
            _ => c.odd(2, "dims"),
        }
    });
    t.op("linalg.multi_dot", |c| Ok(Tensor::multi_dot(&c.tensor_list(0, "tensors")?)));
    t.op("linalg.matrix_power", |c| Ok(c.tensor(0, "input")?.matrix_power(c.int(1, "n", 1)?)));
    t.op("cross", |c| {
        let (a, b) = (c.tensor(0, "input")?, c.tensor(1, "other")?);
        Ok(a.cross(b, c.maybe_int(2, "dim")?))
    });
    t.op("linalg.cross", |c| {
        let (a, b) = (c.tensor(0, "input")?, c.tensor(1, "other")?);
        Ok(a.cross(b, c.int(2, "dim", -1)?))
    });
}

fn integers(list: &[Arg]) -> Outcome<Vec<i64>> {
    let number = |arg: &Arg| match arg {
        Arg::Int(n) => Ok(*n),
        _ => lacks("these dims"),
    };
    list.iter().map(number).collect()
}
