//! Ops of group `indexing`.

use torchrs::nn::functional::{EmbeddingOptions, embedding_with};
use torchrs::ops::views::Index;
use torchrs::ops::{BagMode, EmbeddingBagOptions, ScatterReduce};
use torchrs::{Operand, Tensor};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

fn x(c: &Call) -> Outcome<&Tensor> {
    c.tensor(0, "input")
}

/// The list of index parts of `x[...]`.
fn parts(c: &Call) -> Outcome<Vec<Index>> {
    let Arg::List(parts) = c.get(1, "index") else { return c.odd(1, "index") };
    let part = |part: &Arg| match part {
        Arg::Int(i) => Ok(Index::At(*i)),
        Arg::Bool(b) => Ok(Index::Truth(*b)),
        Arg::None => Ok(Index::New),
        Arg::Ellipsis => Ok(Index::Rest),
        Arg::Tensor(t) => Ok(Index::Of(t.clone())),
        Arg::Slice([None, None, None]) => Ok(Index::All),
        Arg::Slice([start, end, step]) => {
            let step = usize::try_from(step.unwrap_or(1));
            let step = step.map_err(|_| Stop::Unwritable("a negative step".into()))?;
            Ok(Index::Strided(start.unwrap_or(0), end.unwrap_or(i64::MAX), step))
        }
        _ => c.odd(1, "index"),
    };
    parts.iter().map(part).collect()
}

/// The dimension and the index of gather, scatter and the like.
fn along(c: &Call) -> Outcome<(i64, &Tensor)> {
    Ok((c.int(1, "dim", 0)?, c.tensor(2, "index")?))
}

fn reduction(c: &Call, i: usize) -> Outcome<Option<ScatterReduce>> {
    let names = [
        ("", None),
        ("sum", Some(ScatterReduce::Sum)),
        ("add", Some(ScatterReduce::Sum)),
        ("mean", Some(ScatterReduce::Mean)),
        ("prod", Some(ScatterReduce::Prod)),
        ("multiply", Some(ScatterReduce::Prod)),
        ("amax", Some(ScatterReduce::Amax)),
        ("amin", Some(ScatterReduce::Amin)),
    ];
    c.choice(i, "reduce", &names)
}

fn list(c: &Call, i: usize) -> Outcome<Vec<Option<Tensor>>> {
    match c.get(i, "indices") {
        Arg::List(list) => list
            .iter()
            .map(|item| match item {
                Arg::Tensor(t) => Ok(Some(t.clone())),
                Arg::None => Ok(None),
                _ => c.odd(i, "indices"),
            })
            .collect(),
        _ => c.odd(i, "indices"),
    }
}

fn scatter(c: &Call) -> Outcome<Tensor> {
    let ((dim, index), source) = (along(c)?, c.operand(3, "src")?);
    Ok(match (source, reduction(c, usize::MAX)?) {
        (Operand::Tensor(source), None) => x(c)?.scatter(dim, index, source),
        (Operand::Scalar(value), None) => x(c)?.scatter_value(dim, index, value),
        (source, Some(reduce)) => x(c)?.scatter_reduce(dim, index, source, reduce, true),
    })
}

fn scatter_(c: &Call) -> Outcome<Tensor> {
    let ((dim, index), source) = (along(c)?, c.operand(3, "src")?);
    Ok(match (source, reduction(c, usize::MAX)?) {
        (Operand::Tensor(source), None) => x(c)?.scatter_(dim, index, source),
        (Operand::Scalar(value), None) => x(c)?.scatter_value_(dim, index, value),
        (source, Some(reduce)) => x(c)?.scatter_reduce_(dim, index, source, reduce, true),
    }
    .clone())
}

pub fn fill(t: &mut Table) {
    t.op("__getitem__", |c| Ok(x(c)?.i(parts(c)?)));
    t.op("__setitem__", |c| Ok(x(c)?.set_i(parts(c)?, c.operand(2, "value")?).clone()));
    t.op("index_select", |c| {
        let (dim, index) = along(c)?;
        Ok(x(c)?.index_select(dim, index))
    });
    t.op("gather", |c| {
        let (dim, index) = along(c)?;
        Ok(x(c)?.gather(dim, index))
    });
    t.op("scatter", scatter);
    t.op("scatter_", scatter_);
    t.op("scatter_add", |c| {
        let (dim, index) = along(c)?;
        Ok(x(c)?.scatter_add(dim, index, c.tensor(3, "src")?))
    });
    t.op("scatter_add_", |c| {
        let (dim, index) = along(c)?;
        Ok(x(c)?.scatter_add_(dim, index, c.tensor(3, "src")?).clone())
    });
    type Reduce = fn(&Tensor, i64, &Tensor, &Tensor, ScatterReduce, bool) -> Tensor;
    for (name, source, f) in [
        (
            "scatter_reduce",
            "src",
            (|x, d, i, s, r, own| x.scatter_reduce(d, i, s, r, own)) as Reduce,
        ),
        ("scatter_reduce_", "src", |x, d, i, s, r, own| x.scatter_reduce_(d, i, s, r, own).clone()),
        ("index_reduce", "source", Tensor::index_reduce),
        ("index_reduce_", "source", |x, d, i, s, r, own| x.index_reduce_(d, i, s, r, own).clone()),
    ] {
        t.op(name, move |c| {
            let (dim, index) = along(c)?;
            let own = c.flag(usize::MAX, "include_self", true)?;
            let Some(reduce) = reduction(c, 4)? else { return c.odd(4, "reduce") };
            Ok(f(x(c)?, dim, index, c.tensor(3, source)?, reduce, own))
        });
    }
    t.op("index_add", |c| {
        let ((dim, index), source) = (along(c)?, c.tensor(3, "source")?);
        Ok(match c.maybe_number(usize::MAX, "alpha")? {
            None => x(c)?.index_add(dim, index, source),
            Some(alpha) => x(c)?.index_add_scaled(dim, index, source, alpha),
        })
    });
    t.op("index_add_", |c| {
        let ((dim, index), source) = (along(c)?, c.tensor(3, "source")?);
        Ok(match c.maybe_number(usize::MAX, "alpha")? {
            None => x(c)?.index_add_(dim, index, source),
            Some(alpha) => x(c)?.index_add_scaled_(dim, index, source, alpha),
        }
        .clone())
    });
    t.op("index_put", |c| {
        let list = list(c, 1)?;
        let list: Vec<Option<&Tensor>> = list.iter().map(Option::as_ref).collect();
        Ok(x(c)?.index_put(&list, c.tensor(2, "values")?, c.flag(3, "accumulate", false)?))
    });
    t.op("index_put_", |c| {
        let list = list(c, 1)?;
        let list: Vec<Option<&Tensor>> = list.iter().map(Option::as_ref).collect();
        let accumulate = c.flag(3, "accumulate", false)?;
        Ok(x(c)?.index_put_(&list, c.tensor(2, "values")?, accumulate).clone())
    });
    t.op("masked_fill", |c| Ok(x(c)?.masked_fill(c.tensor(1, "mask")?, c.operand(2, "value")?)));
    t.op("masked_fill_", |c| {
        Ok(x(c)?.masked_fill_(c.tensor(1, "mask")?, c.operand(2, "value")?).clone())
    });
    t.op("masked_scatter", |c| {
        Ok(x(c)?.masked_scatter(c.tensor(1, "mask")?, c.tensor(2, "source")?))
    });
    t.op("masked_scatter_", |c| {
        Ok(x(c)?.masked_scatter_(c.tensor(1, "mask")?, c.tensor(2, "source")?).clone())
    });
    t.op("masked_select", |c| Ok(x(c)?.masked_select(c.tensor(1, "mask")?)));
    t.op("take", |c| Ok(x(c)?.take(c.tensor(1, "index")?)));
    t.op("take_along_dim", |c| {
        Ok(x(c)?.take_along_dim(c.tensor(1, "indices")?, c.maybe_int(2, "dim")?))
    });
    t.op("put", |c| {
        let accumulate = c.flag(3, "accumulate", false)?;
        Ok(x(c)?.put(c.tensor(1, "index")?, c.tensor(2, "source")?, accumulate))
    });
    t.op("put_", |c| {
        let accumulate = c.flag(3, "accumulate", false)?;
        Ok(x(c)?.put_(c.tensor(1, "index")?, c.tensor(2, "source")?, accumulate).clone())
    });
    t.any("nonzero", |c| {
        Ok(match c.flag(usize::MAX, "as_tuple", false)? {
            true => Arg::List(x(c)?.nonzero_lists().into_iter().map(Arg::Tensor).collect()),
            false => Arg::Tensor(x(c)?.nonzero()),
        })
    });
    t.op("argwhere", |c| Ok(x(c)?.argwhere()));
    t.op("isin", |c| {
        Ok(c.tensor(0, "elements")?
            .isin(c.tensor(1, "test_elements")?, c.flag(3, "invert", false)?))
    });
    t.op("nn.functional.embedding", |c| {
        let options = EmbeddingOptions {
            padding_idx: c.maybe_int(2, "padding_idx")?,
            max_norm: c.maybe_float(3, "max_norm")?,
            norm_type: c.float(4, "norm_type", 2.0)?,
            scale_grad_by_freq: c.flag(5, "scale_grad_by_freq", false)?,
        };
        Ok(embedding_with(c.tensor(0, "input")?, c.tensor(1, "weight")?, options))
    });
    t.op("nn.functional.embedding_bag", |c| {
        let modes = [("mean", BagMode::Mean), ("sum", BagMode::Sum), ("max", BagMode::Max)];
        let mode = c.choice(usize::MAX, "mode", &modes)?;
        let options = EmbeddingBagOptions {
            mode,
            per_sample_weights: c.maybe_tensor(usize::MAX, "per_sample_weights")?.cloned(),
            include_last_offset: c.flag(usize::MAX, "include_last_offset", false)?,
            padding_idx: c.maybe_int(usize::MAX, "padding_idx")?,
            max_norm: c.maybe_float(3, "max_norm")?,
            norm_type: c.float(4, "norm_type", 2.0)?,
            scale_grad_by_freq: c.flag(5, "scale_grad_by_freq", false)?,
        };
        let offsets = c.maybe_tensor(2, "offsets")?;
        Ok(c.tensor(1, "weight")?.embedding_bag(c.tensor(0, "input")?, offsets, options))
    });
    t.op("nn.functional.one_hot", |c| match c.maybe_int(1, "num_classes")? {
        None | Some(-1) => Ok(x(c)?.one_hot(None)),
        Some(_) => Ok(x(c)?.one_hot(c.count(1, "num_classes", 0)?)),
    });
}
