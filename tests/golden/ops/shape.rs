//! Ops of group `shape`.

use torchrs::ops::Indexing;
use torchrs::{MemoryFormat, Tensor};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop, lacks};

fn x(c: &Call) -> Outcome<&Tensor> {
    c.tensor(0, "input")
}

pub fn fill(t: &mut Table) {
    views(t);
    layout_changes(t);
    joins(t);
    pieces(t);
    copies(t);
    conversions(t);
}

fn views(t: &mut Table) {
    t.op("view", |c| Ok(x(c)?.view(c.ints_from(1, "size")?)));
    t.op("reshape", |c| Ok(x(c)?.reshape(c.ints_from(1, "shape")?)));
    t.op("reshape_as", |c| Ok(x(c)?.reshape_as(c.tensor(1, "other")?)));
    t.op("view_as", |c| Ok(x(c)?.view_as(c.tensor(1, "other")?)));
    t.op("permute", |c| Ok(x(c)?.permute(&c.ints_from(1, "dims")?)));
    for name in ["transpose", "swapaxes", "swapdims"] {
        t.op(name, move |c| {
            let (a, b) = (c.int(1, "dim0", 0)?, c.int(2, "dim1", 0)?);
            Ok(match name {
                "transpose" => x(c)?.transpose(a, b),
                "swapaxes" => x(c)?.swapaxes(a, b),
                _ => x(c)?.swapdims(a, b),
            })
        });
    }
    t.op("t", |c| Ok(x(c)?.t()));
    t.op("T", |c| Ok(x(c)?.reversed_dims()));
    t.op("mT", |c| Ok(x(c)?.mt()));
    t.op("movedim", |c| Ok(x(c)?.movedims(&c.ints(1, "source")?, &c.ints(2, "destination")?)));
    t.op("moveaxis", |c| Ok(x(c)?.moveaxis(c.int(1, "source", 0)?, c.int(2, "destination", 0)?)));
    for name in ["expand", "broadcast_to"] {
        t.op(name, |c| Ok(x(c)?.expand_sizes(&c.ints_from(1, "size")?)));
    }
    t.op("expand_as", |c| Ok(x(c)?.expand_as(c.tensor(1, "other")?)));
    t.many("broadcast_tensors", |c| Ok(Tensor::broadcast_tensors(&c.tensors_from(0)?)));
    t.op("unfold", |c| {
        Ok(x(c)?.unfold(c.int(1, "dimension", 0)?, c.count(2, "size", 1)?, c.count(3, "step", 1)?))
    });
    t.op("as_strided", |c| {
        let input = x(c)?;
        let (shape, strides) = (c.size_list(1, "size")?, strides(c, 2)?);
        let offset = c.count(3, "storage_offset", input.storage_offset())?;
        Ok(input.as_strided_at(&shape, &strides, offset))
    });
    t.op("as_strided_scatter", |c| {
        let (source, offset) = (c.tensor(1, "src")?, own_offset(c, x(c)?, 4)?);
        Ok(x(c)?.as_strided_scatter(source, &c.size_list(2, "size")?, &strides(c, 3)?, offset))
    });
    t.op("squeeze", |c| match c.maybe_ints(1, "dim")? {
        None => Ok(x(c)?.squeeze()),
        Some(dims) => Ok(x(c)?.squeeze_dims(&dims)),
    });
    t.op("unsqueeze", |c| Ok(x(c)?.unsqueeze(c.int(1, "dim", 0)?)));
    t.op("flatten", |c| Ok(x(c)?.flatten(c.int(1, "start_dim", 0)?, c.int(2, "end_dim", -1)?)));
    t.op("unflatten", |c| Ok(x(c)?.unflatten(c.int(1, "dim", 0)?, &c.ints(2, "sizes")?)));
    t.op("ravel", |c| Ok(x(c)?.ravel()));
    t.op("narrow", |c| {
        let (dim, start) = (c.int(1, "dim", 0)?, c.int(2, "start", 0)?);
        Ok(x(c)?.narrow(dim, start, c.count(3, "length", 0)?))
    });
    t.op("select", |c| Ok(x(c)?.select(c.int(1, "dim", 0)?, c.int(2, "index", 0)?)));
    t.op("slice", |c| {
        let (start, end) = (c.int(2, "start", 0)?, c.int(3, "end", i64::MAX)?);
        Ok(x(c)?.slice(c.int(1, "dim", 0)?, start, end, c.count(4, "step", 1)?))
    });
    t.op("diagonal", |c| {
        let (dim1, dim2) = (c.int(2, "dim1", 0)?, c.int(3, "dim2", 1)?);
        Ok(x(c)?.diagonal(c.int(1, "offset", 0)?, dim1, dim2))
    });
    for (name, f) in [
        ("atleast_1d", Tensor::atleast_1d as fn(&Tensor) -> Tensor),
        ("atleast_2d", Tensor::atleast_2d),
        ("atleast_3d", Tensor::atleast_3d),
    ] {
        t.any(name, move |c| match c.get(0, "tensors") {
            Arg::List(list) => list
                .iter()
                .map(|item| match item {
                    Arg::Tensor(t) => Ok(Arg::Tensor(f(t))),
                    _ => c.odd(0, "tensors"),
                })
                .collect::<Outcome<Vec<Arg>>>()
                .map(Arg::List),
            _ => Ok(Arg::Tensor(f(x(c)?))),
        });
    }
}

/// In-place forms of views: they change the handle they are called on.
fn layout_changes(t: &mut Table) {
    fn changed(c: &Call, change: impl FnOnce(&mut Tensor)) -> Outcome<Tensor> {
        let mut handle = x(c)?.clone();
        change(&mut handle);
        Ok(handle)
    }
    t.op("squeeze_", |c| match c.maybe_ints(1, "dim")? {
        None => changed(c, |x| _ = x.squeeze_()),
        Some(dims) => changed(c, |x| _ = x.squeeze_dims_(&dims)),
    });
    t.op("unsqueeze_", |c| {
        let dim = c.int(1, "dim", 0)?;
        changed(c, |x| _ = x.unsqueeze_(dim))
    });
    t.op("t_", |c| changed(c, |x| _ = x.t_()));
    for (name, change) in [
        ("transpose_", Tensor::transpose_ as fn(&mut Tensor, i64, i64) -> &mut Tensor),
        ("swapaxes_", Tensor::swapaxes_),
        ("swapdims_", Tensor::swapdims_),
    ] {
        t.op(name, move |c| {
            let (a, b) = (c.int(1, "dim0", 0)?, c.int(2, "dim1", 0)?);
            changed(c, |x| _ = change(x, a, b))
        });
    }
    t.op("as_strided_", |c| {
        let (shape, strides) = (c.sizes(1, "size")?, strides(c, 2)?);
        let offset = c.count(3, "storage_offset", x(c)?.storage_offset())?;
        changed(c, |x| _ = x.as_strided_at_(&shape, &strides, offset))
    });
}

/// PyTorch's offset is the storage's, the library's is from the tensor's first element.
fn own_offset(c: &Call, input: &Tensor, i: usize) -> Outcome<usize> {
    match c.maybe_int(i, "storage_offset")? {
        None => Ok(0),
        Some(offset) => match usize::try_from(offset - input.storage_offset() as i64) {
            Ok(offset) => Ok(offset),
            Err(_) => lacks("a view that starts before its tensor"),
        },
    }
}

fn strides(c: &Call, i: usize) -> Outcome<Vec<isize>> {
    Ok(c.ints(i, "stride")?.into_iter().map(|s| s as isize).collect())
}

fn joins(t: &mut Table) {
    t.op("cat", |c| Ok(Tensor::cat(&c.tensor_list(0, "tensors")?, c.int(1, "dim", 0)?)));
    t.op("stack", |c| Ok(Tensor::stack(&c.tensor_list(0, "tensors")?, c.int(1, "dim", 0)?)));
    t.op("hstack", |c| Ok(Tensor::hstack(&c.tensor_list(0, "tensors")?)));
    t.op("vstack", |c| Ok(Tensor::vstack(&c.tensor_list(0, "tensors")?)));
    t.op("dstack", |c| Ok(Tensor::dstack(&c.tensor_list(0, "tensors")?)));
    t.op("column_stack", |c| Ok(Tensor::column_stack(&c.tensor_list(0, "tensors")?)));
    t.many("meshgrid", |c| {
        let names = [("ij", Indexing::Ij), ("xy", Indexing::Xy)];
        let indexing = c.choice(usize::MAX, "indexing", &names)?;
        Ok(Tensor::meshgrid(&c.tensors_from(0)?, indexing))
    });
    t.op("cartesian_prod", |c| Ok(Tensor::cartesian_prod(&c.tensors_from(0)?)));
    t.op("combinations", |c| {
        Ok(x(c)?.combinations(c.count(1, "r", 2)?, c.flag(2, "with_replacement", false)?))
    });
}

fn pieces(t: &mut Table) {
    t.many("split", |c| {
        let dim = c.int(2, "dim", 0)?;
        match c.get(1, "split_size_or_sections") {
            Arg::Int(_) => Ok(x(c)?.split(c.count(1, "split_size_or_sections", 1)?, dim)),
            _ => Ok(x(c)?.split_sizes(&c.size_list(1, "split_size_or_sections")?, dim)),
        }
    });
    t.many("split_with_sizes", |c| {
        Ok(x(c)?.split_sizes(&c.size_list(1, "split_sizes")?, c.int(2, "dim", 0)?))
    });
    t.many("chunk", |c| Ok(x(c)?.chunk(c.count(1, "chunks", 1)?, c.int(2, "dim", 0)?)));
    t.many("unbind", |c| Ok(x(c)?.unbind(c.int(1, "dim", 0)?)));
    t.many("tensor_split", |c| {
        let dim = c.int(2, "dim", 0)?;
        match c.get(1, "indices_or_sections") {
            Arg::Int(_) => Ok(x(c)?.tensor_split(c.count(1, "indices_or_sections", 1)?, dim)),
            Arg::Tensor(by) => Ok(x(c)?.tensor_split_by(by, dim)),
            _ => Ok(x(c)?.tensor_split_at(&c.ints(1, "indices_or_sections")?, dim)),
        }
    });
    type Split = fn(&Tensor, usize) -> Vec<Tensor>;
    type SplitAt = fn(&Tensor, &[i64]) -> Vec<Tensor>;
    for (name, split, split_at) in [
        ("hsplit", Tensor::hsplit as Split, Tensor::hsplit_at as SplitAt),
        ("vsplit", Tensor::vsplit, Tensor::vsplit_at),
        ("dsplit", Tensor::dsplit, Tensor::dsplit_at),
    ] {
        t.many(name, move |c| match c.get(1, "indices_or_sections") {
            Arg::Int(_) => Ok(split(x(c)?, c.count(1, "indices_or_sections", 1)?)),
            _ => Ok(split_at(x(c)?, &c.ints(1, "indices_or_sections")?)),
        });
    }
}

fn copies(t: &mut Table) {
    t.op("flip", |c| Ok(x(c)?.flip(&c.ints(1, "dims")?)));
    t.op("fliplr", |c| Ok(x(c)?.fliplr()));
    t.op("flipud", |c| Ok(x(c)?.flipud()));
    t.op("rot90", |c| match <[i64; 2]>::try_from(c.ints(2, "dims")?) {
        Ok(dims) => Ok(x(c)?.rot90(c.int(1, "k", 1)?, dims)),
        Err(dims) => Err(Stop::Unwritable(format!("{dims:?} of two dimensions"))),
    });
    t.op("roll", |c| {
        let dims = c.maybe_ints(2, "dims")?.unwrap_or_default();
        Ok(x(c)?.roll(&c.ints(1, "shifts")?, &dims))
    });
    t.op("tile", |c| Ok(x(c)?.tile(&c.sizes(1, "dims")?)));
    t.op("repeat", |c| Ok(x(c)?.repeat(&c.sizes(1, "repeats")?)));
    t.op("repeat_interleave", |c| {
        let (input, dim) = (x(c)?, c.maybe_int(2, "dim")?);
        let out = match c.get(1, "repeats") {
            Arg::Tensor(repeats) => input.repeat_interleave_each(repeats, dim),
            _ => input.repeat_interleave(c.count(1, "repeats", 1)?, dim),
        };
        // A hint, which has to be right.
        match c.maybe_count(usize::MAX, "output_size")? {
            Some(size) if size != out.size(dim.unwrap_or(0)) => c.odd(usize::MAX, "output_size"),
            _ => Ok(out),
        }
    });
    t.op("select_scatter", |c| {
        let (dim, index) = (c.int(2, "dim", 0)?, c.int(3, "index", 0)?);
        Ok(x(c)?.select_scatter(c.tensor(1, "src")?, dim, index))
    });
    t.op("diagonal_scatter", |c| {
        let (dim1, dim2) = (c.int(3, "dim1", 0)?, c.int(4, "dim2", 1)?);
        Ok(x(c)?.diagonal_scatter(c.tensor(1, "src")?, c.int(2, "offset", 0)?, dim1, dim2))
    });
    t.op("diag", |c| Ok(x(c)?.diag(c.int(1, "diagonal", 0)?)));
    t.op("diagflat", |c| Ok(x(c)?.diagflat(c.int(1, "offset", 0)?)));
    t.op("tril", |c| Ok(x(c)?.tril(c.int(1, "diagonal", 0)?)));
    t.op("triu", |c| Ok(x(c)?.triu(c.int(1, "diagonal", 0)?)));
    t.op("tril_", |c| Ok(x(c)?.tril_(c.int(1, "diagonal", 0)?).clone()));
    t.op("triu_", |c| Ok(x(c)?.triu_(c.int(1, "diagonal", 0)?).clone()));
    t.op("contiguous", |c| Ok(x(c)?.contiguous_in(format(c, MemoryFormat::Contiguous)?)));
    t.op("clone", |c| Ok(x(c)?.clone_in(format(c, MemoryFormat::Preserve)?)));
    t.op("constant_pad_nd", |c| {
        let value = c.maybe_number(2, "value")?.unwrap_or(0i64.into());
        Ok(x(c)?.constant_pad_nd(&c.ints(1, "pad")?, value))
    });
    t.op("copy_", |c| Ok(x(c)?.copy_(c.tensor(1, "src")?).clone()));
    t.op("zero_", |c| Ok(x(c)?.zero_().clone()));
    t.op("fill_diagonal_", |c| Ok(x(c)?.fill_diagonal_(c.float(1, "fill_value", 0.0)?).clone()));
}

fn format(c: &Call, default: MemoryFormat) -> Outcome<MemoryFormat> {
    match c.keyword("memory_format") {
        Arg::None => Ok(default),
        Arg::Format(format) => Ok(*format),
        _ => c.odd(usize::MAX, "memory_format"),
    }
}

fn conversions(t: &mut Table) {
    for (name, f) in [
        ("double", Tensor::double as fn(&Tensor) -> Tensor),
        ("float", Tensor::float),
        ("half", Tensor::half),
        ("bfloat16", Tensor::bfloat16),
        ("long", Tensor::long),
        ("int", Tensor::int),
        ("byte", Tensor::byte),
        ("bool", Tensor::bool),
    ] {
        t.op(name, move |c| {
            let y = f(x(c)?);
            Ok(match format(c, MemoryFormat::Preserve)? {
                MemoryFormat::Preserve => y,
                format => y.contiguous_in(format),
            })
        });
    }
    t.op("to", |c| match c.maybe_dtype(1, "dtype")? {
        Some(dtype) => Ok(x(c)?.to_dtype(dtype)),
        None => c.odd(1, "dtype"),
    });
}
