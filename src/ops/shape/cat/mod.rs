//! Putting tensors together: cat, stack, repeat, repeat_interleave; and reordering along dimensions:
//! flip, roll. The gradient of cat is cut into the inputs' parts.

pub(in crate::ops) mod cuda;

use std::borrow::Borrow;

use smallvec::SmallVec;

use crate::amp;
use crate::autograd::{no_grad, record};
use crate::cpu::{
    elementwise::copy::Elements, elementwise::copy::copy, folds::fold::Shared,
    folds::fold::SharedMut, threads::GRAIN, threads::parallel_for,
};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{compute_type, gpu, pointwise::assign_strided, shape::around::around};
use crate::profiler;
use crate::tensor::{Dtype, Shape, Tensor, normalize_dim, normalize_dims, promote_types};

/// Copies the contiguous `x` to entries `start..` of dimension `d` of the fresh tensor `out`.
fn place(out: &Tensor, x: &Tensor, d: usize, start: usize) {
    let [outer, n, inner] = around(x.shape(), d);
    let size = x.dtype().size();
    let (row, pitch) = (n * inner * size, out.shape()[d] * inner * size);
    let (from, to) = (Shared(x.data_ptr()), SharedMut(out.data_ptr()));
    let first = start * inner * size;
    // Bytes, so that one long row can be shared out too.
    parallel_for(outer * row, 4 * GRAIN, |bytes| {
        let mut at = bytes.start;
        while at < bytes.end {
            let (o, within) = (at / row, at % row);
            let count = (row - within).min(bytes.end - at);
            // SAFETY: `at + count` is inside x; its place is inside `out`, which is fresh.
            unsafe {
                to.at(o * pitch + first + within).copy_from_nonoverlapping(from.at(at), count);
            }
            at += count;
        }
    });
}

/// `out` as the tensors one after another, each from its start on, with its history.
fn joined(all: &[&Tensor], d: usize, starts: SmallVec<[usize; 8]>, out: Tensor) -> Tensor {
    record("cat", all, out, |_| {
        let shapes: Vec<Shape> = all.iter().map(|t| t.layout().shape.clone()).collect();
        move |ctx| {
            let g = ctx.grad(0);
            let part = |(i, (shape, &start)): (usize, (&Shape, &usize))| {
                ctx.needs(i).then(|| match &shape[..] {
                    [0] => Tensor::zeros([0], (g.dtype(), g.device())),
                    shape => g.narrow(d as i64, start, shape[d]),
                })
            };
            shapes.iter().zip(&starts).enumerate().map(part).collect()
        }
    })
}

impl Tensor {
    /// Tensors one after another along `dim` (`torch.cat`); of the type that all promote to.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2]]);
    /// assert_eq!(Tensor::cat(&[&x, &x], 0).shape(), &[2, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws when there is no tensor, or shapes differ in another dimension than `dim`. As in
    /// PyTorch, tensors of shape `[0]` are skipped.
    #[track_caller]
    pub fn cat(tensors: &[impl Borrow<Tensor>], dim: i64) -> Tensor {
        if amp::is_active()
            && let Some((region, cast)) = amp::Region::of_list("cat", tensors)
        {
            let out = Tensor::cat(&cast, dim);
            drop(region);
            return out;
        }
        if tensors.is_empty() {
            throw(Error::argument("cat", "tensors", "no tensor is given"));
        }
        let all: SmallVec<[&Tensor; 8]> = tensors.iter().map(Borrow::borrow).collect();
        let dtype = all.iter().map(|t| t.dtype()).reduce(promote_types).unwrap_or(Dtype::F32);
        let skipped = |t: &Tensor| t.shape() == [0];
        let first = all.iter().find(|t| !skipped(t)).unwrap_or(&all[0]);
        if first.dim() == 0 {
            throw(Error::shape("cat", "0-dim tensors cannot be joined; use `stack`"));
        }
        // Of what is skipped there is no dimension that would have to be there.
        let d = if skipped(first) { 0 } else { normalize_dim("cat", dim, first.dim()) };
        let mut shape: Shape = first.shape().into();
        shape[d] = 0;
        let mut starts: SmallVec<[usize; 8]> = SmallVec::new();
        for (i, t) in all.iter().enumerate() {
            starts.push(shape[d]);
            if skipped(t) {
                continue;
            }
            let others = |t: &Tensor| {
                let mut s: Shape = t.shape().into();
                s.get_mut(d).into_iter().for_each(|n| *n = 0);
                s
            };
            if others(t) != others(first) {
                throw(Error::shape(
                    "cat",
                    format!(
                        "tensor {i} has shape {:?}, the first {:?}; they may differ in dimension {d} \
                         only",
                        t.shape(),
                        first.shape()
                    ),
                ));
            }
            shape[d] += t.shape()[d];
        }
        let _span = profiler::op("cat");
        let gpu = gpu::of("cat", &all);
        let out = Tensor::empty(&shape, (dtype, first.device()));
        let filled = all.iter().zip(&starts).filter(|(t, _)| t.numel() > 0);
        if let Some(gpu) = gpu {
            let dense = |(t, &start): (&&Tensor, _)| (compute_type::dense(t, dtype), start);
            let dense: SmallVec<[(Tensor, usize); 8]> = filled.map(dense).collect();
            let parts: SmallVec<[_; 8]> = dense.iter().map(|(t, start)| (t, *start)).collect();
            cuda::join(gpu, &out, d, &parts);
            return joined(&all, d, starts, out);
        }
        for (t, &start) in filled {
            if t.dtype() == dtype && t.is_contiguous() {
                place(&out, t, d, start);
            } else {
                no_grad(|| out.narrow(d as i64, start, t.shape()[d]).copy_(t).numel());
            }
        }
        joined(&all, d, starts, out)
    }

    /// Tensors of one shape side by side along a new dimension (`torch.stack`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, y) = (Tensor::from([1i64, 2]), Tensor::from([3i64, 4]));
    /// assert_eq!(Tensor::stack(&[&x, &y], 0).to_vec::<i64>(), [1, 2, 3, 4]);
    /// assert_eq!(Tensor::stack(&[&x, &y], 1).to_vec::<i64>(), [1, 3, 2, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when there is no tensor, or shapes differ.
    #[track_caller]
    pub fn stack(tensors: &[impl Borrow<Tensor>], dim: i64) -> Tensor {
        if amp::is_active()
            && let Some((region, cast)) = amp::Region::of_list("stack", tensors)
        {
            let out = Tensor::stack(&cast, dim);
            drop(region);
            return out;
        }
        let Some(first) = tensors.first().map(Borrow::borrow) else {
            throw(Error::argument("stack", "tensors", "no tensor is given"))
        };
        let d = normalize_dim("stack", dim, first.dim() + 1) as i64;
        if let Some(i) = tensors.iter().position(|t| t.borrow().shape() != first.shape()) {
            throw(Error::shape(
                "stack",
                format!(
                    "tensor {i} has shape {:?}, the first {:?}",
                    tensors[i].borrow().shape(),
                    first.shape()
                ),
            ));
        }
        let parts: SmallVec<[Tensor; 8]> =
            tensors.iter().map(|t| t.borrow().unsqueeze(d)).collect();
        Tensor::cat(&parts, d)
    }

    /// Copies along each dimension, `repeats` may have more dimensions (`torch.Tensor.repeat`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2]);
    /// let y = x.repeat(&[2, 2]);
    /// assert_eq!((y.shape(), y.to_vec::<i64>()), (&[2, 4][..], vec![1, 2, 1, 2, 1, 2, 1, 2]));
    /// ```
    ///
    /// # Panics
    /// Throws when `repeats` has fewer entries than the tensor dimensions.
    #[track_caller]
    pub fn repeat(&self, repeats: &[usize]) -> Tensor {
        let Some(missing) = repeats.len().checked_sub(self.dim()) else {
            throw(Error::argument(
                "repeat",
                "repeats",
                format!("{repeats:?} has fewer entries than shape {:?}", self.shape()),
            ))
        };
        // Each dimension n becomes (repeats, n), of which the first is stretched.
        let (mut split, mut stretched, mut joined) = (Shape::new(), Shape::new(), Shape::new());
        for (d, &r) in repeats.iter().enumerate() {
            let n = if d < missing { 1 } else { self.shape()[d - missing] };
            split.extend([1, n]);
            stretched.extend([r, n]);
            joined.push(r * n);
        }
        self.reshape_to(&split).expand(&stretched).clone_contiguous().reshape_to(&joined)
    }

    /// Every entry of dimension `dim` `repeats` times (`torch.repeat_interleave`); without a dimension,
    /// of the tensor as a list.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.repeat_interleave(2, None).to_vec::<i64>(), [1, 1, 2, 2, 3, 3, 4, 4]);
    /// assert_eq!(x.repeat_interleave(2, 0).to_vec::<i64>(), [1, 2, 1, 2, 3, 4, 3, 4]);
    /// ```
    #[track_caller]
    pub fn repeat_interleave(&self, repeats: usize, dim: impl Into<Option<i64>>) -> Tensor {
        let Some(dim) = dim.into() else { return self.ravel().repeat_interleave(repeats, 0) };
        let d = normalize_dim("repeat_interleave", dim, self.dim());
        let mut shape: Shape = self.shape().into();
        shape.insert(d + 1, repeats);
        let stretched = self.unsqueeze(d as i64 + 1).expand(&shape);
        shape.remove(d + 1);
        shape[d] *= repeats;
        // Not the stretched view itself, which `reshape` would give of a number.
        stretched.clone_contiguous().reshape_to(&shape)
    }

    /// The order of entries reversed along `dims` (`torch.flip`); a copy.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.flip(&[1]).to_vec::<i64>(), [2, 1, 4, 3]);
    /// assert_eq!(x.flip(&[0, 1]).to_vec::<i64>(), [4, 3, 2, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when a dimension is out of range or named twice.
    #[track_caller]
    pub fn flip(&self, dims: &[i64]) -> Tensor {
        let flipped = normalize_dims("flip", dims, self.dim());
        let out = flipped_copy(self, &flipped);
        let dims: SmallVec<[i64; 5]> = dims.into();
        record("flip", &[self], out, |_| {
            move |ctx| smallvec::smallvec![Some(ctx.grad(0).flip(&dims))]
        })
    }

    /// Entries shifted cyclically, by `shifts[i]` along `dims[i]` (`torch.roll`). With no `dims` the
    /// tensor is rolled as one list.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2, 3], [4, 5, 6]]);
    /// assert_eq!(x.roll(&[1], &[1]).to_vec::<i64>(), [3, 1, 2, 6, 4, 5]);
    /// assert_eq!(x.roll(&[-1], &[]).to_vec::<i64>(), [2, 3, 4, 5, 6, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws when there are no shifts, the lists differ in length, or a dimension is out of range. As in PyTorch, the
    /// dimensions of a tensor without elements are not looked at.
    #[track_caller]
    pub fn roll(&self, shifts: &[i64], dims: &[i64]) -> Tensor {
        if dims.is_empty() && shifts.len() == 1 {
            return self.reshape([-1]).roll(shifts, &[0]).reshape_to(self.shape());
        }
        if shifts.len() != dims.len() || shifts.is_empty() {
            throw(Error::argument(
                "roll",
                "shifts",
                format!("{} shifts for {} dimensions", shifts.len(), dims.len()),
            ));
        }
        if self.numel() == 0 {
            return self.clone_contiguous();
        }
        let mut out = self.clone();
        for (&shift, &dim) in shifts.iter().zip(dims) {
            let n = out.size(dim);
            let shift = shift.rem_euclid(n as i64) as usize;
            let (head, tail) = (out.narrow(dim, 0, n - shift), out.narrow(dim, n - shift, shift));
            out = Tensor::cat(&[tail, head], dim);
        }
        out
    }
}

/// A dense copy with the order reversed along some dimensions, which are read with negative strides.
fn flipped_copy(x: &Tensor, flipped: &[usize]) -> Tensor {
    let out = x.empty_like();
    if x.numel() == 0 {
        return out;
    }
    let size = x.dtype().size();
    let (mut start, mut strides) = (0, SmallVec::<[isize; 5]>::new());
    for (d, (&n, &stride)) in x.shape().iter().zip(x.strides()).enumerate() {
        let reversed = flipped.contains(&d);
        start += if reversed { (n as isize - 1) * stride } else { 0 };
        strides.push(if reversed { -stride } else { stride });
    }
    if x.device().is_apart() {
        let first = x.device_ptr().wrapping_offset(start * size as isize);
        // SAFETY: the same elements in another order, and a new tensor.
        unsafe { assign_strided(&out, first, &strides) };
        return out;
    }
    let to = Elements { ptr: out.data_ptr(), shape: out.shape(), strides: out.strides() };
    let first = x.data_ptr().wrapping_offset(start * size as isize);
    // SAFETY: the same elements in another order, and a new tensor.
    unsafe { copy(size, to, Elements { ptr: first, shape: x.shape(), strides: &strides }) };
    out
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let two = || vec![values([2, 3], 1), values([2, 2], 2)];
    let same = || vec![values([2, 3], 1), values([2, 3], 2)];
    let x = || vec![values([2, 3, 2], 1)];
    vec![
        OpSample::new("cat(1)", two(), |x| Tensor::cat(x, 1)),
        OpSample::new("cat(0), thrice", same(), |x| Tensor::cat(&[&x[0], &x[1], &x[0]], 0)),
        OpSample::new("cat, empty ones", [values([0], 1), values([2, 1], 1)], |x| {
            Tensor::cat(x, -1)
        }),
        OpSample::new("cat, promoted", [Tensor::from([1i32]), Tensor::from([2i64])], |x| {
            Tensor::cat(x, 0)
        }),
        OpSample::new("stack(1)", same(), |x| Tensor::stack(x, 1)),
        OpSample::new("stack(-1), 0-dim", [values([], 1), values([], 2)], |x| Tensor::stack(x, -1)),
        OpSample::new("repeat", x(), |x| x[0].repeat(&[2, 1, 3, 2])),
        OpSample::new("repeat_interleave", x(), |x| x[0].repeat_interleave(3, 1)),
        OpSample::new("flip([0, 2])", x(), |x| x[0].flip(&[0, -1])),
        OpSample::new("rot90", x(), |x| x[0].rot90(1, [0, -1])),
        OpSample::new("rot90, backwards", x(), |x| x[0].rot90(-1, [2, 1])),
        OpSample::new("flip([1])", x(), |x| x[0].flip(&[1])),
        OpSample::new("flip, 0-dim", [values([], 1)], |x| x[0].flip(&[])),
        OpSample::new("roll", x(), |x| x[0].roll(&[1, -4], &[0, 1])),
        OpSample::new("roll, flat", x(), |x| x[0].roll(&[5], &[])),
    ]
}
