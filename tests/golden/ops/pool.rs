//! Ops of group `pool`.

use torchrs::Tensor;
use torchrs::ops::PoolOptions;

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

fn stride<const D: usize>(c: &Call, i: usize) -> Outcome<Option<[usize; D]>> {
    match c.get(i, "stride") {
        Arg::None => Ok(None),
        Arg::List(list) if list.is_empty() => Ok(None),
        _ => c.per_dim(i, "stride", 1).map(Some),
    }
}

fn maxima<const D: usize>(c: &Call) -> Outcome<PoolOptions<D>> {
    Ok(PoolOptions {
        stride: stride(c, 2)?,
        padding: c.per_dim(3, "padding", 0)?,
        dilation: c.per_dim(4, "dilation", 1)?,
        ceil_mode: c.flag(5, "ceil_mode", false)?,
        ..PoolOptions::new(c.per_dim(1, "kernel_size", 1)?)
    })
}

fn averages<const D: usize>(c: &Call) -> Outcome<PoolOptions<D>> {
    Ok(PoolOptions {
        stride: stride(c, 2)?,
        padding: c.per_dim(3, "padding", 0)?,
        ceil_mode: c.flag(4, "ceil_mode", false)?,
        count_include_pad: c.flag(5, "count_include_pad", true)?,
        divisor_override: c.maybe_int(6, "divisor_override")?,
        ..PoolOptions::new(c.per_dim(1, "kernel_size", 1)?)
    })
}

fn powers<const D: usize>(c: &Call) -> Outcome<(f64, PoolOptions<D>)> {
    let options = PoolOptions {
        stride: stride(c, 3)?,
        ceil_mode: c.flag(4, "ceil_mode", false)?,
        ..PoolOptions::new(c.per_dim(2, "kernel_size", 1)?)
    };
    Ok((c.float(1, "norm_type", 2.0)?, options))
}

/// Sizes of an adaptive pooling: `None` keeps a dimension's.
fn adaptive<const D: usize>(c: &Call) -> Outcome<[Option<usize>; D]> {
    if let Arg::List(list) = c.get(1, "output_size") {
        let size = |arg: &Arg| match arg {
            Arg::None => Some(None),
            Arg::Int(v) => usize::try_from(*v).ok().map(Some),
            _ => None,
        };
        let sizes: Option<Vec<_>> = list.iter().map(size).collect();
        return sizes
            .and_then(|s| s.try_into().ok())
            .ok_or_else(|| Stop::Unwritable(format!("output_size {list:?}")));
    }
    Ok(c.per_dim(1, "output_size", 1)?.map(Some))
}

fn with_indices(pair: (Tensor, Tensor), wanted: bool) -> Arg {
    let (y, places) = pair;
    if wanted { Arg::List(vec![Arg::Tensor(y), Arg::Tensor(places)]) } else { Arg::Tensor(y) }
}

fn unpool<const D: usize>(c: &Call) -> Outcome<Tensor> {
    let (x, indices) = (c.tensor(0, "input")?, c.tensor(1, "indices")?);
    let options = PoolOptions {
        stride: stride(c, 3)?,
        padding: c.per_dim(4, "padding", 0)?,
        ..PoolOptions::<D>::new(c.per_dim(2, "kernel_size", 1)?)
    };
    // All sizes, or only those that are pooled.
    let size = match c.get(5, "output_size") {
        Arg::None => None,
        _ => match c.size_list(5, "output_size")? {
            list if list.len() == D || list.len() == D + 2 => list.last_chunk().copied(),
            _ => return c.odd(5, "output_size"),
        },
    };
    Ok(x.max_unpool_of(indices, options, size))
}

pub fn fill(t: &mut Table) {
    macro_rules! pools {
        ($($max:literal $max_pool:ident, $avg:literal $avg_pool:ident;)*) => {$(
            t.any($max, |c| {
                let indices = c.flag(6, "return_indices", false)?;
                Ok(with_indices(c.tensor(0, "input")?.$max_pool(maxima(c)?), indices))
            });
            t.op($avg, |c| Ok(c.tensor(0, "input")?.$avg_pool(averages(c)?)));
        )*};
    }
    pools! {
        "nn.functional.max_pool1d" max_pool1d_with_indices, "nn.functional.avg_pool1d" avg_pool1d;
        "nn.functional.max_pool2d" max_pool2d_with_indices, "nn.functional.avg_pool2d" avg_pool2d;
        "nn.functional.max_pool3d" max_pool3d_with_indices, "nn.functional.avg_pool3d" avg_pool3d;
    }
    t.op("nn.functional.adaptive_avg_pool1d", |c| {
        let [size] = c.per_dim(1, "output_size", 1)?;
        Ok(c.tensor(0, "input")?.adaptive_avg_pool1d(size))
    });
    t.op("nn.functional.adaptive_avg_pool2d", |c| {
        Ok(c.tensor(0, "input")?.adaptive_avg_pool2d(adaptive(c)?))
    });
    t.op("nn.functional.adaptive_avg_pool3d", |c| {
        Ok(c.tensor(0, "input")?.adaptive_avg_pool3d(adaptive(c)?))
    });
    t.any("nn.functional.adaptive_max_pool1d", |c| {
        let [size] = c.per_dim(1, "output_size", 1)?;
        let indices = c.flag(2, "return_indices", false)?;
        Ok(with_indices(c.tensor(0, "input")?.adaptive_max_pool1d(size), indices))
    });
    t.any("nn.functional.adaptive_max_pool2d", |c| {
        let indices = c.flag(2, "return_indices", false)?;
        Ok(with_indices(c.tensor(0, "input")?.adaptive_max_pool2d(adaptive(c)?), indices))
    });
    t.any("nn.functional.adaptive_max_pool3d", |c| {
        let indices = c.flag(2, "return_indices", false)?;
        Ok(with_indices(c.tensor(0, "input")?.adaptive_max_pool3d(adaptive(c)?), indices))
    });
    t.op("nn.functional.lp_pool1d", |c| {
        let (p, options) = powers(c)?;
        Ok(c.tensor(0, "input")?.lp_pool1d(p, options))
    });
    t.op("nn.functional.lp_pool2d", |c| {
        let (p, options) = powers(c)?;
        Ok(c.tensor(0, "input")?.lp_pool2d(p, options))
    });
    t.op("nn.functional.lp_pool3d", |c| {
        let (p, options) = powers(c)?;
        Ok(c.tensor(0, "input")?.lp_pool3d(p, options))
    });
    t.op("nn.functional.max_unpool1d", unpool::<1>);
    t.op("nn.functional.max_unpool2d", unpool::<2>);
    t.op("nn.functional.max_unpool3d", unpool::<3>);
}
