//! Ops of the groups `aliases`, `functions` and `linalg_more` that are not in the tables of their kind.

use torchrs::linalg::{self, LuSolveOptions, TriangularOptions};
use torchrs::nn::functional as F;
use torchrs::ops::{Bins, FractionalSize, GradientOptions, Spacing};
use torchrs::{MemoryFormat, Tensor};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

fn x(c: &Call) -> Outcome<&Tensor> {
    c.tensor(0, "input")
}

fn tensors(list: impl IntoIterator<Item = Tensor>) -> Arg {
    Arg::List(list.into_iter().map(Arg::Tensor).collect())
}

/// `x.op(other)`, and `x.op_(other)`.
macro_rules! methods {
    ($t:ident: $($name:ident $inplace:ident)*) => {$(
        $t.op(stringify!($name), |c| Ok(x(c)?.$name(c.operand(1, "other")?)));
        $t.op(stringify!($inplace), |c| Ok(x(c)?.$inplace(c.operand(1, "other")?).clone()));
    )*};
}

pub fn fill(t: &mut Table) {
    names(t);
    facts(t);
    functions(t);
    places(t);
    factors(t);
    fractional(t);
}

fn names(t: &mut Table) {
    methods! { t:
        greater greater_ greater_equal greater_equal_ less less_ less_equal less_equal_
        not_equal not_equal_ multiply multiply_
    }
    // PyTorch takes tensors only.
    t.op("arctan2", |c| Ok(x(c)?.arctan2(c.tensor(1, "other")?)));
    t.op("arctan2_", |c| Ok(x(c)?.arctan2_(c.tensor(1, "other")?).clone()));
    t.op("subtract", |c| {
        let other = c.operand(1, "other")?;
        Ok(match c.maybe_number(usize::MAX, "alpha")? {
            Some(alpha) => x(c)?.sub_scaled(other, alpha),
            None => x(c)?.subtract(other),
        })
    });
    t.op("subtract_", |c| {
        let other = c.operand(1, "other")?;
        Ok(match c.maybe_number(usize::MAX, "alpha")? {
            Some(alpha) => x(c)?.sub_scaled_(other, alpha),
            None => x(c)?.subtract_(other),
        }
        .clone())
    });
    t.op("divide", |c| {
        let other = c.operand(1, "other")?;
        Ok(match super::binary::rounding(c)? {
            Some(rounding) => x(c)?.div_rounded(other, rounding),
            None => x(c)?.divide(other),
        })
    });
    t.op("divide_", |c| {
        let other = c.operand(1, "other")?;
        Ok(match super::binary::rounding(c)? {
            Some(rounding) => x(c)?.div_rounded_(other, rounding),
            None => x(c)?.divide_(other),
        }
        .clone())
    });
    t.op("clip", |c| match (c.given_operand(1, "min")?, c.given_operand(2, "max")?) {
        (Some(min), Some(max)) => Ok(x(c)?.clip(min, max)),
        (Some(min), None) => Ok(x(c)?.clamp_min(min)),
        (None, Some(max)) => Ok(x(c)?.clamp_max(max)),
        (None, None) => Err(Stop::Unwritable("neither min nor max".into())),
    });
    t.op("clip_", |c| match (c.given_operand(1, "min")?, c.given_operand(2, "max")?) {
        (Some(min), Some(max)) => Ok(x(c)?.clip_(min, max).clone()),
        (Some(min), None) => Ok(x(c)?.clamp_min_(min).clone()),
        (None, Some(max)) => Ok(x(c)?.clamp_max_(max).clone()),
        (None, None) => Err(Stop::Unwritable("neither min nor max".into())),
    });
    t.op("concat", |c| Ok(Tensor::concat(&c.tensor_list(0, "tensors")?, c.int(1, "dim", 0)?)));
    t.op("concatenate", |c| {
        Ok(Tensor::concatenate(&c.tensor_list(0, "tensors")?, c.int(1, "dim", 0)?))
    });
    t.op("row_stack", |c| Ok(Tensor::row_stack(&c.tensors_from(0)?)));
    t.op("chain_matmul", |c| Ok(Tensor::chain_matmul(&c.tensors_from(0)?)));
    t.op("ger", |c| Ok(x(c)?.ger(c.tensor(1, "vec2")?)));
    t.op("adjoint", |c| Ok(x(c)?.adjoint()));
    t.op("mH", |c| Ok(x(c)?.mh()));
    t.op("H", |c| Ok(x(c)?.h()));
    t.op("conj_physical_", |c| Ok(x(c)?.conj_physical_().clone()));
    t.op("short", |c| match c.keyword("memory_format") {
        Arg::None => Ok(x(c)?.short()),
        Arg::Format(MemoryFormat::Preserve) => Ok(x(c)?.short()),
        Arg::Format(format) => Ok(x(c)?.short().contiguous_in(*format)),
        _ => c.odd(usize::MAX, "memory_format"),
    });
    t.op("celu", |c| Ok(x(c)?.celu(c.float(1, "alpha", 1.0)?)));
    t.op("prelu", |c| Ok(x(c)?.prelu(c.tensor(1, "weight")?)));
    t.op("threshold", |c| {
        Ok(x(c)?.threshold(c.float(1, "threshold", 0.0)?, c.float(2, "value", 0.0)?))
    });
    t.op("rrelu", |c| {
        let (lower, upper) = (c.float(1, "lower", 1.0 / 8.0)?, c.float(2, "upper", 1.0 / 3.0)?);
        Ok(F::rrelu(x(c)?, lower, upper, c.flag(3, "training", false)?))
    });
    t.op("dropout", |c| Ok(F::dropout(x(c)?, c.float(1, "p", 0.5)?, c.flag(2, "train", true)?)));
}

fn facts(t: &mut Table) {
    t.any("is_nonzero", |c| Ok(Arg::Bool(x(c)?.is_nonzero())));
    t.any("is_floating_point", |c| Ok(Arg::Bool(x(c)?.is_floating_point())));
    t.any("is_signed", |c| Ok(Arg::Bool(x(c)?.is_signed())));
    t.any("is_same_size", |c| Ok(Arg::Bool(x(c)?.is_same_size(c.tensor(1, "other")?))));
    t.any("numel", |c| Ok(Arg::Int(x(c)?.numel() as i64)));
    t.any("element_size", |c| Ok(Arg::Int(x(c)?.element_size() as i64)));
    t.op("type_as", |c| Ok(x(c)?.type_as(c.tensor(1, "other")?)));
    t.any("broadcast_shapes", |c| {
        let mut shapes = Vec::new();
        while c.given(shapes.len(), "") {
            shapes.push(c.size_list(shapes.len(), "shapes")?);
        }
        let all: Vec<&[usize]> = shapes.iter().map(|shape| &shape[..]).collect();
        let shape = Tensor::broadcast_shapes(&all);
        Ok(Arg::List(shape.iter().map(|&n| Arg::Int(n as i64)).collect()))
    });
}

fn functions(t: &mut Table) {
    t.any("frexp", |c| {
        let (mantissa, exponent) = x(c)?.frexp();
        Ok(tensors([mantissa, exponent]))
    });
    t.any("gradient", |c| {
        let (dims, edge_order) = (c.maybe_ints(1, "dim")?, c.count(2, "edge_order", 1)?);
        let options = GradientOptions { dims: dims.as_deref(), edge_order, ..Default::default() };
        let with =
            |spacing| x(c).map(|x| tensors(x.gradient(GradientOptions { spacing, ..options })));
        match c.keyword("spacing") {
            Arg::None => with(Spacing::default()),
            Arg::List(list) if matches!(list.first(), Some(Arg::Tensor(_))) => {
                with(Spacing::At(&c.tensor_list(usize::MAX, "spacing")?))
            }
            Arg::List(_) => with(Spacing::Each(&c.floats(usize::MAX, "spacing")?)),
            _ => with(Spacing::Every(c.float(usize::MAX, "spacing", 1.0)?)),
        }
    });
    t.any("histogram", |c| {
        let range = match c.keyword("range") {
            Arg::None => None,
            _ => Some(c.floats(usize::MAX, "range")?),
        };
        let bins = match (c.get(1, "bins"), &range) {
            (Arg::Tensor(edges), _) => Bins::Edges(edges),
            (_, Some(range)) => Bins::Between(c.count(1, "bins", 1)?, range[0], range[1]),
            _ => Bins::Count(c.count(1, "bins", 1)?),
        };
        let weight = c.maybe_tensor(usize::MAX, "weight")?;
        let (counts, edges) = x(c)?.histogram(bins, weight, c.flag(usize::MAX, "density", false)?);
        Ok(tensors([counts, edges]))
    });
    t.op("block_diag", |c| Ok(Tensor::block_diag(&c.tensors_from(0)?)));
    t.any("aminmax", |c| {
        let keepdim = c.flag(usize::MAX, "keepdim", false)?;
        let (least, most) = match c.maybe_int(usize::MAX, "dim")? {
            Some(dim) => x(c)?.aminmax_dim(dim, keepdim),
            None => x(c)?.aminmax(),
        };
        Ok(tensors([least, most]))
    });
}

fn places(t: &mut Table) {
    t.many("unravel_index", |c| Ok(x(c)?.unravel_index(&c.size_list(1, "shape")?)));
    t.op("index_copy", |c| {
        Ok(x(c)?.index_copy(c.int(1, "dim", 0)?, c.tensor(2, "index")?, c.tensor(3, "source")?))
    });
    t.op("index_copy_", |c| {
        let (index, source) = (c.tensor(2, "index")?, c.tensor(3, "source")?);
        Ok(x(c)?.index_copy_(c.int(1, "dim", 0)?, index, source).clone())
    });
    t.op("index_fill", |c| {
        Ok(x(c)?.index_fill(c.int(1, "dim", 0)?, c.tensor(2, "index")?, c.operand(3, "value")?))
    });
    t.op("index_fill_", |c| {
        let (index, value) = (c.tensor(2, "index")?, c.operand(3, "value")?);
        Ok(x(c)?.index_fill_(c.int(1, "dim", 0)?, index, value).clone())
    });
    t.op("slice_scatter", |c| {
        let (start, end) = (c.int(3, "start", 0)?, c.int(4, "end", i64::MAX)?);
        let (dim, step) = (c.int(2, "dim", 0)?, c.count(5, "step", 1)?);
        Ok(x(c)?.slice_scatter(c.tensor(1, "src")?, dim, start, end, step))
    });
    t.op("vander", |c| {
        let rising = x(c)?.vander(c.maybe_count(1, "N")?);
        Ok(if c.flag(2, "increasing", false)? { rising } else { rising.fliplr() })
    });
}

fn factors(t: &mut Table) {
    t.any("linalg.eig", |c| {
        let (values, vectors) = linalg::eig(c.tensor(0, "A")?);
        Ok(tensors([values, vectors]))
    });
    t.op("linalg.eigvals", |c| Ok(linalg::eigvals(c.tensor(0, "A")?)));
    t.op("linalg.matmul", |c| Ok(linalg::matmul(c.tensor(0, "A")?, c.tensor(1, "B")?)));
    t.op("matrix_power", |c| Ok(x(c)?.matrix_power(c.int(1, "n", 1)?)));
    t.any("linalg.ldl_factor", |c| {
        // The same for real numbers.
        c.flag(usize::MAX, "hermitian", false)?;
        let (factors, pivots) = linalg::ldl_factor(c.tensor(0, "A")?);
        Ok(tensors([factors, pivots]))
    });
    t.any("linalg.ldl_factor_ex", |c| {
        c.flag(usize::MAX, "hermitian", false)?;
        let (factors, pivots, info) = linalg::ldl_factor_ex(c.tensor(0, "A")?);
        Ok(tensors([factors, pivots, info]))
    });
    t.op("linalg.ldl_solve", |c| {
        c.flag(usize::MAX, "hermitian", false)?;
        let (factors, pivots) = (c.tensor(0, "LD")?, c.tensor(1, "pivots")?);
        Ok(linalg::ldl_solve(factors, pivots, c.tensor(2, "B")?))
    });
    t.any("linalg.solve_ex", |c| {
        let (a, b) = (c.tensor(0, "A")?, c.tensor(1, "B")?);
        if !c.flag(usize::MAX, "left", true)? {
            return Err(Stop::NotImplemented("left=False".into()));
        }
        let (x, info) = linalg::solve_ex(a, b);
        Ok(tensors([x, info]))
    });
    t.op("lu_solve", |c| {
        let (b, lu, pivots) = (x(c)?, c.tensor(1, "LU_data")?, c.tensor(2, "LU_pivots")?);
        Ok(linalg::lu_solve(lu, pivots, b, LuSolveOptions::default()))
    });
    t.any("lu_unpack", |c| {
        let (lu, pivots) = (c.tensor(0, "LU_data")?, c.tensor(1, "LU_pivots")?);
        let (p, l, u) = linalg::lu_unpack(lu, pivots);
        Ok(tensors([p, l, u]))
    });
    for name in ["orgqr", "linalg.householder_product"] {
        t.op(name, |c| Ok(linalg::householder_product(x(c)?, c.tensor(1, "tau")?)));
    }
    t.op("ormqr", |c| {
        let (tau, other) = (c.tensor(1, "tau")?, c.tensor(2, "other")?);
        let (left, transpose) = (c.flag(3, "left", true)?, c.flag(4, "transpose", false)?);
        Ok(linalg::ormqr(x(c)?, tau, other, left, transpose))
    });
    t.any("geqrf", |c| {
        let (packed, tau) = linalg::geqrf(x(c)?);
        Ok(tensors([packed, tau]))
    });
    t.any("svd", |c| {
        let (u, s, vt) = linalg::svd(x(c)?, !c.flag(1, "some", true)?);
        Ok(tensors([u, s, vt.mh()]))
    });
    t.any("triangular_solve", |c| {
        let (b, a) = (x(c)?, c.tensor(1, "A")?);
        let (upper, transpose) = (c.flag(2, "upper", true)?, c.flag(3, "transpose", false)?);
        let unitriangular = c.flag(4, "unitriangular", false)?;
        let options = TriangularOptions { upper: upper != transpose, left: true, unitriangular };
        let matrices = if transpose { a.mt() } else { a.clone() };
        Ok(tensors([linalg::solve_triangular(&matrices, b, options), a.clone_contiguous()]))
    });
    t.op("linalg.matrix_sqrth", |c| Ok(linalg::matrix_sqrth(c.tensor(0, "A")?)));
    t.any("linalg.polar", |c| {
        let (u, h) = linalg::polar(c.tensor(0, "A")?);
        Ok(tensors([u, h]))
    });
}

/// The sizes of windows' numbers, as numbers or as parts of the input's.
pub fn fractional_size<const D: usize>(
    c: &Call,
    size: usize,
    ratio: usize,
) -> Outcome<FractionalSize<D>> {
    match (c.get(size, "output_size"), c.get(ratio, "output_ratio")) {
        (Arg::None, Arg::None) => Err(Stop::Unwritable("neither size nor ratio".into())),
        (Arg::None, Arg::Float(ratio)) => Ok(FractionalSize::Ratio([*ratio; D])),
        (Arg::None, _) => match c.floats(ratio, "output_ratio")?.try_into() {
            Ok(ratio) => Ok(FractionalSize::Ratio(ratio)),
            Err(_) => c.odd(ratio, "output_ratio"),
        },
        (_, Arg::None) => Ok(FractionalSize::Size(c.per_dim(size, "output_size", 1)?)),
        _ => Err(Stop::Unwritable("size and ratio".into())),
    }
}

fn fractional(t: &mut Table) {
    t.any("nn.functional.fractional_max_pool2d", |c| {
        let (kernel, size) = (c.per_dim::<2>(1, "kernel_size", 1)?, fractional_size(c, 2, 3)?);
        let samples = c.maybe_tensor(5, "_random_samples")?;
        let (y, places) = F::fractional_max_pool2d_with_indices(x(c)?, kernel, size, samples);
        let indices = c.flag(4, "return_indices", false)?;
        Ok(if indices { tensors([y, places]) } else { Arg::Tensor(y) })
    });
    t.any("nn.functional.fractional_max_pool3d", |c| {
        let (kernel, size) = (c.per_dim::<3>(1, "kernel_size", 1)?, fractional_size(c, 2, 3)?);
        let samples = c.maybe_tensor(5, "_random_samples")?;
        let (y, places) = F::fractional_max_pool3d_with_indices(x(c)?, kernel, size, samples);
        let indices = c.flag(4, "return_indices", false)?;
        Ok(if indices { tensors([y, places]) } else { Arg::Tensor(y) })
    });
}
