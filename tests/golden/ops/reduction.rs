//! Ops of group `reduction`.

use torchrs::linalg::{self, NormOrder};
use torchrs::ops::{Interpolation, SearchOptions, Unique};
use torchrs::{Dtype, Operand, Scalar, Tensor};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop, lacks};

fn x(c: &Call) -> Outcome<&Tensor> {
    c.tensor(0, "input")
}

fn dtype(c: &Call) -> Outcome<Option<Dtype>> {
    c.maybe_dtype(usize::MAX, "dtype")
}

fn dims(c: &Call, i: usize) -> Outcome<Vec<i64>> {
    Ok(c.maybe_ints(i, "dim")?.unwrap_or_default())
}

fn keepdim(c: &Call, i: usize) -> Outcome<bool> {
    c.flag(i, "keepdim", false)
}

fn pair((a, b): (Tensor, Tensor)) -> Arg {
    Arg::List(vec![Arg::Tensor(a), Arg::Tensor(b)])
}

pub fn fill(t: &mut Table) {
    sums(t);
    extremes(t);
    moments(t);
    norms(t);
    scans(t);
    orders(t);
    sets(t);
    statistics(t);
}

fn sums(t: &mut Table) {
    type Plain = fn(&Tensor, &[i64], bool) -> Tensor;
    type Typed = fn(&Tensor, &[i64], bool, Dtype) -> Tensor;
    for (name, plain, typed) in [
        ("sum", Tensor::sum_dim as Plain, Tensor::sum_as as Typed),
        ("mean", Tensor::mean_dim, Tensor::mean_as),
        ("nansum", Tensor::nansum_dim, Tensor::nansum_as),
    ] {
        t.op(name, move |c| {
            let (dims, keepdim) = (dims(c, 1)?, keepdim(c, 2)?);
            Ok(match dtype(c)? {
                Some(dtype) => typed(x(c)?, &dims, keepdim, dtype),
                None => plain(x(c)?, &dims, keepdim),
            })
        });
    }
    t.op("nanmean", |c| Ok(x(c)?.nanmean_dim(&dims(c, 1)?, keepdim(c, 2)?)));
    t.op("prod", |c| {
        let (dim, keepdim) = (c.maybe_int(1, "dim")?, keepdim(c, 2)?);
        Ok(match (dtype(c)?, dim) {
            (Some(dtype), dim) => x(c)?.prod_as(dim, keepdim, dtype),
            (None, Some(dim)) => x(c)?.prod_dim(dim, keepdim),
            (None, None) => x(c)?.prod(),
        })
    });
    t.op("logsumexp", |c| Ok(x(c)?.logsumexp(&dims(c, 1)?, keepdim(c, 2)?)));
    t.op("all", |c| Ok(x(c)?.all_dim(&dims(c, 1)?, keepdim(c, 2)?)));
    t.op("any", |c| Ok(x(c)?.any_dim(&dims(c, 1)?, keepdim(c, 2)?)));
    t.op("count_nonzero", |c| Ok(x(c)?.count_nonzero(&dims(c, 1)?)));
    t.op("trace", |c| Ok(x(c)?.trace()));
    t.op("sum_to_size", |c| Ok(x(c)?.sum_to_size(&c.sizes(1, "size")?)));
}

fn extremes(t: &mut Table) {
    t.op("amax", |c| Ok(x(c)?.amax(&dims(c, 1)?, keepdim(c, 2)?)));
    t.op("amin", |c| Ok(x(c)?.amin(&dims(c, 1)?, keepdim(c, 2)?)));
    t.any("max", |c| match c.get(1, "dim") {
        Arg::None => Ok(Arg::Tensor(x(c)?.max())),
        Arg::Tensor(other) => Ok(Arg::Tensor(x(c)?.maximum(other))),
        _ => Ok(pair(x(c)?.max_dim(c.int(1, "dim", 0)?, keepdim(c, 2)?))),
    });
    t.any("min", |c| match c.get(1, "dim") {
        Arg::None => Ok(Arg::Tensor(x(c)?.min())),
        Arg::Tensor(other) => Ok(Arg::Tensor(x(c)?.minimum(other))),
        _ => Ok(pair(x(c)?.min_dim(c.int(1, "dim", 0)?, keepdim(c, 2)?))),
    });
    t.op("argmax", |c| match c.maybe_int(1, "dim")? {
        Some(dim) => Ok(x(c)?.argmax_dim(dim, keepdim(c, 2)?)),
        None => Ok(x(c)?.argmax()),
    });
    t.op("argmin", |c| match c.maybe_int(1, "dim")? {
        Some(dim) => Ok(x(c)?.argmin_dim(dim, keepdim(c, 2)?)),
        None => Ok(x(c)?.argmin()),
    });
}

/// Dimensions, correction and keepdim of `std`, `var` and `var_mean`.
fn moment(c: &Call) -> Outcome<(Vec<i64>, Scalar, bool)> {
    // `(input, unbiased)` or `(input, dim, unbiased, keepdim)`.
    if let Arg::Bool(unbiased) = c.get(1, "unbiased") {
        let keepdim = c.flag(usize::MAX, "keepdim", false)?;
        return Ok((dims(c, usize::MAX)?, i64::from(*unbiased).into(), keepdim));
    }
    let unbiased = i64::from(c.flag(2, "unbiased", true)?);
    let correction = c.maybe_number(usize::MAX, "correction")?.unwrap_or(unbiased.into());
    Ok((dims(c, 1)?, correction, keepdim(c, 3)?))
}

fn moments(t: &mut Table) {
    t.op("std", |c| {
        let (dims, correction, keepdim) = moment(c)?;
        Ok(x(c)?.std_dim(&dims, correction, keepdim))
    });
    t.op("var", |c| {
        let (dims, correction, keepdim) = moment(c)?;
        Ok(x(c)?.var_dim(&dims, correction, keepdim))
    });
    t.any("var_mean", |c| {
        let (dims, correction, keepdim) = moment(c)?;
        Ok(pair(x(c)?.var_mean_dim(&dims, correction, keepdim)))
    });
}

/// The order of a vector norm.
fn order(c: &Call, i: usize, name: &str) -> Outcome<f64> {
    match c.get(i, name) {
        Arg::Str(s) if s == "fro" => Ok(2.0),
        Arg::Str(s) => lacks(format!("order {s}")),
        _ => c.float(i, name, 2.0),
    }
}

/// The input, converted if a type is given.
fn converted(c: &Call) -> Outcome<Tensor> {
    Ok(match dtype(c)? {
        Some(dtype) => x(c)?.to_dtype(dtype),
        None => x(c)?.clone(),
    })
}

/// The order of a norm, if one is given.
fn norm_order(c: &Call) -> Outcome<Option<NormOrder>> {
    Ok(Some(match c.get(1, "ord") {
        Arg::None => return Ok(None),
        Arg::Str(name) if name == "fro" => NormOrder::Fro,
        Arg::Str(name) if name == "nuc" => NormOrder::Nuc,
        _ => NormOrder::P(c.float(1, "ord", 0.0)?),
    }))
}

fn norms(t: &mut Table) {
    for (name, ord) in [("norm", "p"), ("linalg.vector_norm", "ord")] {
        t.op(name, move |c| {
            if matches!(c.get(1, ord), Arg::Str(order) if order == "nuc") {
                let dims = c.maybe_ints(2, "dim")?.unwrap_or(vec![-2, -1]);
                let Ok(dims) = dims.try_into() else {
                    return Err(Stop::Unwritable("not two dimensions".into()));
                };
                return Ok(linalg::matrix_norm(x(c)?, NormOrder::Nuc, dims, keepdim(c, 3)?));
            }
            let (order, dims, keepdim) = (order(c, 1, ord)?, dims(c, 2)?, keepdim(c, 3)?);
            Ok(match dtype(c)? {
                Some(dtype) => x(c)?.norm_as(order, &dims, keepdim, dtype),
                None => x(c)?.norm_dim(order, &dims, keepdim),
            })
        });
    }
    t.op("linalg.matrix_norm", |c| {
        let x = converted(c)?;
        let dims = c.maybe_ints(2, "dim")?.unwrap_or(vec![-2, -1]);
        let Ok(dims) = dims.try_into() else {
            return Err(Stop::Unwritable("not two dimensions".into()));
        };
        Ok(linalg::matrix_norm(&x, norm_order(c)?.unwrap_or_default(), dims, keepdim(c, 3)?))
    });
    t.op("linalg.norm", |c| {
        let x = converted(c)?;
        let dims = c.maybe_ints(2, "dim")?;
        Ok(linalg::norm(&x, norm_order(c)?, dims.as_deref(), keepdim(c, 3)?))
    });
    t.op("dist", |c| Ok(x(c)?.dist(c.tensor(1, "other")?, c.float(2, "p", 2.0)?)));
    t.op("cdist", |c| {
        // How PyTorch computes it: two numbers or names for the same.
        c.get(3, "compute_mode");
        Ok(c.tensor(0, "x1")?.cdist(c.tensor(1, "x2")?, c.float(2, "p", 2.0)?))
    });
    for (name, f) in [
        ("renorm", Tensor::renorm as fn(&Tensor, f64, i64, f64) -> Tensor),
        ("renorm_", |x, p, dim, maxnorm| x.renorm_(p, dim, maxnorm).clone()),
    ] {
        t.op(name, move |c| {
            let (p, dim) = (c.float(1, "p", 2.0)?, c.int(2, "dim", 0)?);
            Ok(f(x(c)?, p, dim, c.float(3, "maxnorm", 1.0)?))
        });
    }
}

fn scans(t: &mut Table) {
    t.op("cumsum", |c| {
        let dim = c.int(1, "dim", 0)?;
        Ok(match dtype(c)? {
            Some(dtype) => x(c)?.cumsum_as(dim, dtype),
            None => x(c)?.cumsum(dim),
        })
    });
    t.op("cumprod", |c| {
        let dim = c.int(1, "dim", 0)?;
        Ok(match dtype(c)? {
            Some(dtype) => x(c)?.cumprod_as(dim, dtype),
            None => x(c)?.cumprod(dim),
        })
    });
    for (name, f) in [
        ("cumsum_", Tensor::cumsum_ as for<'a> fn(&'a Tensor, i64) -> &'a Tensor),
        ("cumprod_", Tensor::cumprod_),
    ] {
        t.op(name, move |c| match dtype(c)? {
            // PyTorch takes a type only if it is the tensor's own.
            Some(dtype) if dtype != x(c)?.dtype() => c.odd(usize::MAX, "dtype"),
            _ => Ok(f(x(c)?, c.int(1, "dim", 0)?).clone()),
        });
    }
    t.op("logcumsumexp", |c| Ok(x(c)?.logcumsumexp(c.int(1, "dim", 0)?)));
    t.any("cummax", |c| Ok(pair(x(c)?.cummax(c.int(1, "dim", 0)?))));
    t.any("cummin", |c| Ok(pair(x(c)?.cummin(c.int(1, "dim", 0)?))));
    t.op("diff", |c| {
        let (prepend, append) = (c.maybe_tensor(3, "prepend")?, c.maybe_tensor(4, "append")?);
        Ok(x(c)?.diff(c.count(1, "n", 1)?, c.int(2, "dim", -1)?, prepend, append))
    });
    t.op("trapezoid", |c| {
        let (y, dim) = (c.tensor(0, "y")?, c.int(usize::MAX, "dim", -1)?);
        Ok(match c.maybe_tensor(1, "x")? {
            Some(x) => y.trapezoid_at(x, dim),
            None => y.trapezoid(c.float(usize::MAX, "dx", 1.0)?, dim),
        })
    });
    t.op("cumulative_trapezoid", |c| {
        let (y, dim) = (c.tensor(0, "y")?, c.int(usize::MAX, "dim", -1)?);
        Ok(match c.maybe_tensor(1, "x")? {
            Some(x) => y.cumulative_trapezoid_at(x, dim),
            None => y.cumulative_trapezoid(c.float(usize::MAX, "dx", 1.0)?, dim),
        })
    });
}

fn orders(t: &mut Table) {
    t.any("topk", |c| {
        let (k, dim) = (c.count(1, "k", 1)?, c.int(2, "dim", -1)?);
        // The results are in order either way.
        c.flag(4, "sorted", true)?;
        Ok(pair(x(c)?.topk(k, dim, c.flag(3, "largest", true)?)))
    });
    // The library's order is always stable.
    t.any("sort", |c| {
        c.flag(usize::MAX, "stable", true)?;
        Ok(pair(x(c)?.sort(c.int(1, "dim", -1)?, c.flag(2, "descending", false)?)))
    });
    t.op("argsort", |c| {
        c.flag(usize::MAX, "stable", true)?;
        Ok(x(c)?.argsort(c.int(1, "dim", -1)?, c.flag(2, "descending", false)?))
    });
    t.op("msort", |c| Ok(x(c)?.msort()));
    t.any("median", |c| match c.maybe_int(1, "dim")? {
        Some(dim) => Ok(pair(x(c)?.median_dim(dim, keepdim(c, 2)?))),
        None => Ok(Arg::Tensor(x(c)?.median())),
    });
    t.any("nanmedian", |c| match c.maybe_int(1, "dim")? {
        Some(dim) => Ok(pair(x(c)?.nanmedian_dim(dim, keepdim(c, 2)?))),
        None => Ok(Arg::Tensor(x(c)?.nanmedian())),
    });
    t.any("mode", |c| Ok(pair(x(c)?.mode(c.int(1, "dim", -1)?, keepdim(c, 2)?))));
    t.any("kthvalue", |c| {
        let (k, dim) = (c.count(1, "k", 1)?, c.int(2, "dim", -1)?);
        Ok(pair(x(c)?.kthvalue(k, dim, keepdim(c, 3)?)))
    });
    type Quantile = fn(&Tensor, Operand<'_>, i64, bool, Interpolation) -> Tensor;
    for (name, f) in [
        ("quantile", (|x, q, dim, keep, how| x.quantile_dim(q, dim, keep, how)) as Quantile),
        ("nanquantile", |x, q, dim, keep, how| x.nanquantile_dim(q, dim, keep, how)),
    ] {
        t.op(name, move |c| {
            let names = [
                ("linear", Interpolation::Linear),
                ("lower", Interpolation::Lower),
                ("higher", Interpolation::Higher),
                ("midpoint", Interpolation::Midpoint),
                ("nearest", Interpolation::Nearest),
            ];
            let how = c.choice(4, "interpolation", &names)?;
            let (x, q, keep) = (x(c)?, c.operand(1, "q")?, keepdim(c, 3)?);
            if let Some(dim) = c.maybe_int(2, "dim")? {
                return Ok(f(x, q, dim, keep, how));
            }
            let out = f(&x.ravel(), q, 0, false, how);
            let ones = std::iter::repeat_n(1, if keep { x.dim() } else { 0 });
            Ok(out.reshape(out.shape().iter().map(|&n| n as i64).chain(ones).collect::<Vec<_>>()))
        });
    }
}

/// What the call asks for of `unique`.
fn chosen(c: &Call, unique: Unique) -> Outcome {
    let mut all = vec![Arg::Tensor(unique.values)];
    if c.flag(usize::MAX, "return_inverse", false)? {
        all.push(Arg::Tensor(unique.inverse));
    }
    if c.flag(usize::MAX, "return_counts", false)? {
        all.push(Arg::Tensor(unique.counts));
    }
    Ok(if all.len() == 1 { all.remove(0) } else { Arg::List(all) })
}

fn sets(t: &mut Table) {
    t.any("unique", |c| {
        c.flag(usize::MAX, "sorted", true)?;
        match c.maybe_int(usize::MAX, "dim")? {
            Some(dim) => chosen(c, x(c)?.unique_dim(dim)),
            None => chosen(c, x(c)?.unique()),
        }
    });
    t.any("unique_consecutive", |c| match c.maybe_int(usize::MAX, "dim")? {
        Some(dim) => chosen(c, x(c)?.unique_consecutive_dim(dim)),
        None => chosen(c, x(c)?.unique_consecutive()),
    });
    t.op("searchsorted", |c| {
        let right = c.maybe_flag(3, "right")?;
        let side = c.choice(
            usize::MAX,
            "side",
            &[("", None), ("left", Some(false)), ("right", Some(true))],
        )?;
        // Two names of one option; PyTorch refuses `side="left"` beside `right=True`.
        if (right, side) == (Some(true), Some(false)) {
            return c.odd(usize::MAX, "side");
        }
        let options = SearchOptions {
            right: right == Some(true) || side == Some(true),
            out_int32: c.flag(2, "out_int32", false)?,
            sorter: c.maybe_tensor(usize::MAX, "sorter")?,
        };
        Ok(c.tensor(0, "sorted_sequence")?.searchsorted(c.operand(1, "values")?, options))
    });
    t.op("bucketize", |c| {
        let options = SearchOptions {
            right: c.flag(3, "right", false)?,
            out_int32: c.flag(2, "out_int32", false)?,
            sorter: None,
        };
        match c.operand(0, "input")? {
            torchrs::Operand::Tensor(x) => Ok(x.bucketize(c.tensor(1, "boundaries")?, options)),
            number => Ok(c.tensor(1, "boundaries")?.searchsorted(number, options)),
        }
    });
}

fn statistics(t: &mut Table) {
    t.op("histc", |c| {
        let (min, max) = (c.float(2, "min", 0.0)?, c.float(3, "max", 0.0)?);
        Ok(x(c)?.histc(c.count(1, "bins", 100)?, min, max))
    });
    t.op("bincount", |c| {
        Ok(x(c)?.bincount(c.maybe_tensor(1, "weights")?, c.count(2, "minlength", 0)?))
    });
    t.op("cov", |c| {
        let (fweights, aweights) =
            (c.maybe_tensor(usize::MAX, "fweights")?, c.maybe_tensor(usize::MAX, "aweights")?);
        Ok(x(c)?.cov(c.int(usize::MAX, "correction", 1)?, fweights, aweights))
    });
    t.op("corrcoef", |c| Ok(x(c)?.corrcoef()));
}
