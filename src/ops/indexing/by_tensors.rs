//! Indexing by tensors, as Python's `x[i, :, j]`: integer or bool tensors, one per dimension (a bool
//! one for as many dimensions as it has), broadcast against each other. Their common shape takes the
//! place of the indexed dimensions if those are neighbours, else it comes first.
//!
//! The indexed dimensions are moved to the front and seen as one, in which a single list of numbers
//! selects slices: all else is `index_select`.

use smallvec::{SmallVec, smallvec};

use super::index_select::add_slices;
use super::{cuda, masked};
use crate::amp::cast_op;
use crate::autograd::{no_grad, record_inplace};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, values};
use crate::ops::{gpu, limits::assert_indices};
use crate::storage::race::Scope;
use crate::tensor::{Dtype, Shape, Tensor, broadcast_shapes};

/// What a list of indices means for a tensor.
#[derive(Clone)]
struct Plan {
    /// The dimensions, the indexed ones first.
    order: SmallVec<[i64; 5]>,
    /// Sizes of the indexed dimensions together.
    indexed: usize,
    /// Sizes of the others.
    rest: Shape,
    /// Shape of the indices together.
    common: Shape,
    /// The slices, numbered over the indexed dimensions seen as one.
    slices: Tensor,
    /// Where the common shape goes in the result.
    place: usize,
}

impl Plan {
    #[track_caller]
    fn new(op: &str, x: &Tensor, indices: &[Option<&Tensor>]) -> Plan {
        if let (Some((d, mask)), true) = (lone_mask(indices), x.device().is_apart()) {
            mask.assert_has_values(op);
            return Plan::of_mask(op, x, d, mask);
        }
        let (mut dims, mut lists) = (Vec::<usize>::new(), Vec::<Tensor>::new());
        let mut d = 0;
        for index in indices {
            let Some(index) = index else {
                d += 1;
                continue;
            };
            for list in per_dimension(op, x, d, index) {
                dims.push(d);
                lists.push(list);
                d += 1;
            }
        }
        if d > x.dim() || dims.is_empty() {
            throw(Error::argument(
                op,
                "indices",
                format!(
                    "index {d} dimensions of a tensor of shape {:?}; at least one and at most all are needed",
                    x.shape()
                ),
            ));
        }
        let mut common = Shape::new();
        for list in &lists {
            common = broadcast_shapes(&common, list.shape()).unwrap_or_else(|_| {
                let shapes: Vec<&[usize]> = lists.iter().map(Tensor::shape).collect();
                throw(Error::shape(op, format!("indices of shapes {shapes:?} do not broadcast")))
            });
        }
        let slices = match gpu::of(op, &[x]) {
            Some(_) => slices_on_gpu(op, x, &dims, &lists, &common),
            None => slices_on_host(op, x, &dims, &lists, &common),
        };
        let others = (0..x.dim()).filter(|d| !dims.contains(d));
        let neighbours = dims.windows(2).all(|w| w[1] == w[0] + 1);
        Plan {
            order: dims.iter().copied().chain(others.clone()).map(|d| d as i64).collect(),
            indexed: dims.iter().map(|&d| x.shape()[d]).product(),
            rest: others.map(|d| x.shape()[d]).collect(),
            common,
            slices,
            place: if neighbours { dims[0] } else { 0 },
        }
    }

    /// For a mask of the dimensions from `d` on, whose places are the slices.
    #[track_caller]
    fn of_mask(op: &str, x: &Tensor, d: usize, mask: &Tensor) -> Plan {
        assert_fits(op, x, d, mask);
        let (dims, slices) = (d..d + mask.dim(), masked::places(mask));
        let others = (0..x.dim()).filter(|k| !dims.contains(k));
        Plan {
            order: dims.clone().chain(others.clone()).map(|k| k as i64).collect(),
            indexed: mask.numel(),
            rest: others.map(|k| x.shape()[k]).collect(),
            common: smallvec![slices.numel()],
            slices,
            place: d,
        }
    }

    /// `t`, whose first dimensions are the common shape, with those moved to their place.
    fn to_place(&self, t: &Tensor) -> Tensor {
        let c = self.common.len();
        let order: SmallVec<[i64; 5]> = (c..c + self.place)
            .chain(0..c)
            .chain(c + self.place..t.dim())
            .map(|d| d as i64)
            .collect();
        t.permute(&order)
    }

    /// The inverse of [`to_place`](Self::to_place).
    fn to_front(&self, t: &Tensor) -> Tensor {
        let c = self.common.len();
        let order: SmallVec<[i64; 5]> = (self.place..self.place + c)
            .chain(0..self.place)
            .chain(self.place + c..t.dim())
            .map(|d| d as i64)
            .collect();
        t.permute(&order)
    }

    /// The result's shape with the common shape in front.
    fn front_shape(&self) -> Shape {
        self.common.iter().chain(&self.rest).copied().collect()
    }

    /// Sizes of the tensor with the indexed dimensions as one.
    fn merged(&self) -> [usize; 2] {
        [self.indexed, self.rest.iter().product()]
    }
}

/// The slices' numbers: of indices i, j, .. into dimensions of sizes m, n, .. it is i n + j, and so on.
#[track_caller]
fn slices_on_host(
    op: &str,
    x: &Tensor,
    dims: &[usize],
    lists: &[Tensor],
    common: &[usize],
) -> Tensor {
    let mut slices = vec![0i64; common.iter().product()];
    for (&d, list) in dims.iter().zip(lists) {
        let n = x.shape()[d] as i64;
        for (slice, i) in slices.iter_mut().zip(list.expand(common).to_vec::<i64>()) {
            if i < -n || i >= n {
                throw(Error::argument(
                    op,
                    "indices",
                    format!("{i} is out of range for dimension {d} of shape {:?}", x.shape()),
                ));
            }
            *slice = *slice * n + if i < 0 { i + n } else { i };
        }
    }
    Tensor::from(slices)
}

/// The same, where kernels look whether the indices are in range.
#[track_caller]
fn slices_on_gpu(
    op: &str,
    x: &Tensor,
    dims: &[usize],
    lists: &[Tensor],
    common: &[usize],
) -> Tensor {
    let slices = Tensor::zeros(common, (Dtype::I64, x.device()));
    for (&d, list) in dims.iter().zip(lists) {
        let n = x.shape()[d] as i64;
        assert_indices(op, "indices", list, n as usize, true);
        slices.mul_(n).add_(&list.remainder(n.max(1)));
    }
    slices.ravel()
}

/// The mask that is the only index, and the first dimension that it covers.
fn lone_mask<'a>(indices: &[Option<&'a Tensor>]) -> Option<(usize, &'a Tensor)> {
    let mut given = indices.iter().enumerate().filter_map(|(d, index)| Some((d, (*index)?)));
    let (first, more) = (given.next()?, given.next());
    (more.is_none() && first.1.dtype() == Dtype::Bool && first.1.dim() > 0).then_some(first)
}

/// Throws unless the mask has the sizes of the dimensions from `d` on.
#[track_caller]
fn assert_fits(op: &str, x: &Tensor, d: usize, mask: &Tensor) {
    if x.shape().get(d..d + mask.dim()) != Some(mask.shape()) {
        throw(Error::shape(
            op,
            format!("a mask of shape {:?} at dimension {d} of shape {:?}", mask.shape(), x.shape()),
        ));
    }
}

/// An index as one list of integers per dimension that it covers, from dimension `d` on.
#[track_caller]
fn per_dimension(op: &str, x: &Tensor, d: usize, index: &Tensor) -> Vec<Tensor> {
    match index.dtype() {
        Dtype::Bool => {
            assert_fits(op, x, d, index);
            index.nonzero().unbind(1)
        }
        dtype if dtype.is_integral() => vec![index.detach().to_dtype(Dtype::I64)],
        dtype => {
            throw(Error::dtype(op, format!("an index holds {dtype}; integers or bools are needed")))
        }
    }
}

impl Tensor {
    /// Elements named by index tensors, one per dimension, `None` for a whole dimension (Python's
    /// `x[i, :, j]`). Integers (negative ones count from the end) or bools.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// let (i, j) = (Tensor::from([0i64, 1]), Tensor::from([2i64, -3]));
    /// assert_eq!(x.index(&[Some(&i), Some(&j)]).to_vec::<i64>(), [3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when the indices do not fit the shape or each other, or one is out of range.
    #[track_caller]
    pub fn index(&self, indices: &[Option<&Tensor>]) -> Tensor {
        if let (Some((0, mask)), true) = (lone_mask(indices), self.device().is_apart())
            && mask.shape() == self.shape()
        {
            mask.assert_has_values("index");
            return self.masked_select(mask);
        }
        let plan = Plan::new("index", self, indices);
        let merged = self.permute(&plan.order).reshape_to(&plan.merged());
        plan.to_place(&merged.index_select(0, &plan.slices).reshape_to(&plan.front_shape()))
    }

    /// Writes `values`, which broadcast, to the elements named by `indices` (`torch.index_put_`,
    /// Python's `x[i, j] = v`), or adds them. Where an element is named twice, all are added, or the
    /// last stays.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::zeros([2, 2], Dtype::I64);
    /// let (rows, columns) = (Tensor::from([0i64, 1, 1]), Tensor::from([1i64, 0, 0]));
    /// x.index_put_(&[Some(&rows), Some(&columns)], &Tensor::from([5i64, 6, 7]), true);
    /// assert_eq!(x.to_vec::<i64>(), [0, 5, 13, 0]);
    /// ```
    ///
    /// # Panics
    /// As [`index`](Self::index), and when the values do not broadcast or are of another type.
    #[track_caller]
    pub fn index_put_(
        &self,
        indices: &[Option<&Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> &Tensor {
        if values.dtype() != self.dtype() {
            throw(Error::dtype(
                "index_put_",
                format!("the values hold {}, the tensor {}", values.dtype(), self.dtype()),
            ));
        }
        if let (Some((d, mask)), true) = (lone_mask(indices), self.device().is_apart()) {
            return put_by_mask(self, d, mask, values, accumulate);
        }
        let plan = Plan::new("index_put_", self, indices);
        let _scope = Scope::enter(|| "index_put_");
        self.assert_inplace_legal("index_put_");
        // The result's shape: the common shape among the dimensions that are not indexed.
        let mut shape = plan.rest.clone();
        shape.insert_many(plan.place, plan.common.iter().copied());
        let merged = plan.merged();
        let rows = plan.to_front(&values.detach().expand(&shape)).contiguous();
        let rows = rows.reshape_to(&[plan.slices.numel(), merged[1]]);
        self.detach().permute(&plan.order).change_dense(|x| {
            let x = x.reshape_to(&merged);
            if accumulate {
                add_slices(&x, 0, &plan.slices, &rows);
            } else {
                put_rows(&x, &plan.slices, &rows);
            }
        });
        let owned: Vec<Option<Tensor>> = indices.iter().map(|i| i.cloned()).collect();
        record_inplace("index_put_", self, &[self, values], |saver| {
            let indices: Vec<_> = owned.iter().map(|i| i.as_ref().map(|i| saver.save(i))).collect();
            let values_shape = values.layout().shape.clone();
            move |ctx| {
                let g = ctx.grad(0);
                let indices: Vec<Option<Tensor>> =
                    indices.iter().map(|i| i.as_ref().map(|i| ctx.get(i))).collect();
                let indices: Vec<Option<&Tensor>> = indices.iter().map(Option::as_ref).collect();
                let values = ctx.needs(1).then(|| g.index(&indices).sum_to(&values_shape));
                let own = if accumulate || !ctx.needs(0) {
                    g
                } else {
                    let cut = g.clone_contiguous();
                    cut.index_put_(&indices, &Tensor::zeros([], (g.dtype(), g.device())), false);
                    cut
                };
                smallvec![Some(own), values]
            }
        });
        self
    }

    /// [`index_put_`](Self::index_put_) to a copy (`torch.index_put`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, columns) = (Tensor::from([[1i64, 2], [3, 4]]), Tensor::from([1i64]));
    /// let y = x.index_put(&[None, Some(&columns)], &Tensor::from([9i64]), false);
    /// assert_eq!(y.to_vec::<i64>(), [1, 9, 3, 9]);
    /// ```
    #[track_caller]
    pub fn index_put(
        &self,
        indices: &[Option<&Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Tensor {
        cast_op!("index_put", [x = self, v = values] => x.index_put(indices, &v, accumulate));
        let out = self.clone_contiguous();
        out.index_put_(indices, values, accumulate);
        out
    }
}

/// `index_put_` by a mask of the dimensions from `d` on, without asking how many elements it chooses: values that
/// are the same for all of them are spread by the mask, and a list of values says itself how many there are.
#[track_caller]
fn put_by_mask<'a>(
    x: &'a Tensor,
    d: usize,
    mask: &Tensor,
    values: &Tensor,
    accumulate: bool,
) -> &'a Tensor {
    assert_fits("index_put_", x, d, mask);
    let (rest, covered) = (x.dim() - d - mask.dim(), mask.dim());
    let mut to_right: Shape = mask.layout().shape.clone();
    to_right.resize(covered + rest, 1);
    let over_all = mask.reshape_to(&to_right);
    let before = values.dim().saturating_sub(rest + 1);
    let along = values.dim().checked_sub(rest + 1);
    if along.is_some_and(|along| values.shape()[along] != 1) {
        // A list along the masked dimensions: those first, in x as in the values.
        let first: SmallVec<[i64; 5]> =
            (d..d + covered).chain(0..d).chain(d + covered..x.dim()).map(|k| k as i64).collect();
        let (view, list) = (x.permute(&first), values.movedim(before as i64, 0));
        let mut shape = Shape::from_slice(&view.shape()[covered..]);
        to_right.resize(view.dim(), 1);
        shape.insert(0, list.shape()[0]);
        let list = widened(&list, shape.len()).expand(&shape);
        masked::put_list(&view, &mask.reshape_to(&to_right), &list, accumulate);
        return x;
    }
    // The masked dimensions of the values are one of size 1, or none.
    let mut shape: Shape = values.layout().shape.clone();
    if let Some(along) = along {
        shape.insert_many(along, std::iter::repeat_n(1, covered - 1));
    }
    let values = values.reshape_to(&shape);
    if accumulate {
        x.add_(&over_all.where_(&values, &x.detach().zeros_like()));
    } else if values.dim() == 0 {
        x.masked_fill_(&over_all, &values);
    } else {
        x.copy_(&over_all.where_(&values, &x.clone_contiguous()));
    }
    x
}

/// A tensor whose first dimension stays the first of `dims`; ones come behind it.
fn widened(t: &Tensor, dims: usize) -> Tensor {
    let mut shape: Shape = t.layout().shape.clone();
    shape.insert_many(1, std::iter::repeat_n(1, dims - t.dim()));
    t.reshape_to(&shape)
}

/// Overwrites rows of the dense matrix `x`.
fn put_rows(x: &Tensor, slices: &Tensor, rows: &Tensor) {
    if let Some(gpu) = gpu::of("index_put_", &[x, slices, rows]) {
        return cuda::put_slices(gpu, x, 0, slices, rows);
    }
    let slices = slices.to_vec::<i64>();
    no_grad(|| {
        for (k, i) in slices.into_iter().enumerate() {
            x.select(0, i).copy_(&rows.select(0, k as i64));
        }
    });
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 2], 3)];
    let (i, j) = (|| Tensor::from([[0i64, 2], [1, -1]]), || Tensor::from([3i64, 0]));
    vec![
        OpSample::new("index [i]", x(), move |x| {
            x[0].index(&[Some(&i().to_device(x[0].device()))])
        }),
        OpSample::new("index [i, j]", x(), move |x| {
            x[0].index(&[Some(&i().to_device(x[0].device())), Some(&j().to_device(x[0].device()))])
        }),
        OpSample::new("index [:, i]", x(), move |x| {
            x[0].index(&[None, Some(&i().to_device(x[0].device()))])
        }),
        OpSample::new("index [i, :, j]", x(), |x| {
            x[0].index(&[
                Some(&Tensor::from([2i64, 0]).to_device(x[0].device())),
                None,
                Some(&Tensor::from([1i64, 1]).to_device(x[0].device())),
            ])
        }),
        OpSample::new("index [mask]", x(), |x| {
            let mask =
                Tensor::from([[true, false, false, true], [false; 4], [true, true, false, false]])
                    .to_device(x[0].device());
            x[0].index(&[Some(&mask)])
        }),
        OpSample::new("index_put [i, j]", [values([3, 4, 2], 3), values([2, 1], 1)], |x| {
            let (i, j) = (
                Tensor::from([2i64, 0]).to_device(x[0].device()),
                Tensor::from([1i64, 1]).to_device(x[0].device()),
            );
            x[0].index_put(&[Some(&i), Some(&j)], &x[1], false)
        }),
        OpSample::new(
            "index_put [:, i], accumulate",
            [values([3, 4], 3), values([3, 3], 1)],
            |x| {
                x[0].index_put(
                    &[None, Some(&Tensor::from([1i64, 1, -1]).to_device(x[0].device()))],
                    &x[1],
                    true,
                )
            },
        ),
        OpSample::new("index, i64", [Tensor::from([5i64, 6, 7])], |x| {
            x[0].index(&[Some(&Tensor::from([true, false, true]).to_device(x[0].device()))])
        })
        .order(Order::None),
    ]
}
