//! Elements chosen by a mask: `masked_select` collects them in row-major order, `masked_scatter` puts
//! a list back in that order; `nonzero` tells their places.

pub(in crate::ops) mod cuda;

use smallvec::{SmallVec, smallvec};

use crate::autograd::record;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, values};
use crate::ops::{gpu, pointwise::complex::by_pairs};
use crate::profiler;
use crate::tensor::{Dtype, Tensor, broadcast_shapes, dispatch};

#[track_caller]
fn assert_mask(op: &str, mask: &Tensor) {
    if mask.dtype() != Dtype::Bool {
        throw(Error::dtype(op, format!("`mask` holds {}; bool is needed", mask.dtype())));
    }
}

/// The mask as a dense list of truth values.
fn truths(mask: &Tensor) -> Tensor {
    mask.detach().contiguous()
}

impl Tensor {
    /// The elements where `mask` is true, as a list (`torch.masked_select`). Both broadcast.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.masked_select(&x.gt(1)).to_vec::<i64>(), [2, 3, 4]);
    /// ```
    ///
    /// # Panics
    /// Throws when the mask is not bool or the shapes do not broadcast.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Tensor {
        assert_mask("masked_select", mask);
        mask.assert_has_values("masked_select");
        let Ok(shape) = broadcast_shapes(self.shape(), mask.shape()) else {
            throw(Error::shape(
                "masked_select",
                format!("tensor {:?} and mask {:?} do not broadcast", self.shape(), mask.shape()),
            ))
        };
        if self.is_complex() {
            let mask = mask.unsqueeze(-1);
            let select = |pairs: &Tensor| pairs.masked_select(&mask).reshape([-1, 2]);
            return by_pairs(&self.expand(&shape), select);
        }
        select_dense(&self.expand(&shape), &truths(&mask.expand(&shape)), None)
    }

    /// A copy of this tensor with the first elements of `source` written where `mask` is true
    /// (`torch.masked_scatter`). Tensor and mask broadcast.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1i64, 2], [3, 4]]);
    /// assert_eq!(x.masked_scatter(&x.gt(2), &Tensor::from([8i64, 9])).to_vec::<i64>(), [1, 2, 8, 9]);
    /// ```
    ///
    /// # Panics
    /// Throws when the mask is not bool or does not broadcast, or `source` is of another type or has
    /// too few elements.
    #[track_caller]
    pub fn masked_scatter(&self, mask: &Tensor, source: &Tensor) -> Tensor {
        assert_mask("masked_scatter", mask);
        if source.dtype() != self.dtype() {
            throw(Error::dtype(
                "masked_scatter",
                format!("the source holds {}, the tensor {}", source.dtype(), self.dtype()),
            ));
        }
        let Ok(shape) = broadcast_shapes(self.shape(), mask.shape()) else {
            throw(Error::shape(
                "masked_scatter",
                format!("tensor {:?} and mask {:?} do not broadcast", self.shape(), mask.shape()),
            ))
        };
        if self.is_complex() {
            let (mask, source) = (mask.unsqueeze(-1), source.view_as_real());
            return by_pairs(self, |pairs| pairs.masked_scatter(&mask, &source));
        }
        with_list(self, &truths(&mask.expand(&shape)), source, false)
    }

    /// Places of the elements that are not zero, one row of coordinates each (`torch.nonzero`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let places = Tensor::from([[0f32, 5.], [7., 0.]]).nonzero();
    /// assert_eq!((places.shape(), places.to_vec::<i64>()), (&[2, 2][..], vec![0, 1, 1, 0]));
    /// ```
    ///
    /// On a GPU this waits for the device, to know how many there are.
    #[track_caller]
    pub fn nonzero(&self) -> Tensor {
        self.assert_has_values("nonzero");
        let truths = self.detach().to_dtype(Dtype::Bool).contiguous();
        if let Some(gpu) = gpu::of("nonzero", &[&truths]) {
            return cuda::Counted::new(gpu, &truths).coordinates(self.shape());
        }
        // SAFETY: contiguous bools; nobody writes to them.
        let all = unsafe { truths.as_slice::<bool>() };
        let mut coordinates: Vec<i64> = Vec::new();
        let mut count = 0;
        for i in (0..all.len()).filter(|&i| all[i]) {
            let mut left = i;
            let mut place: SmallVec<[i64; 5]> = SmallVec::new();
            for &n in self.shape().iter().rev() {
                place.push((left % n) as i64);
                left /= n;
            }
            coordinates.extend(place.iter().rev());
            count += 1;
        }
        Tensor::from_slice(&coordinates, [count, self.dim()])
    }
}

impl Tensor {
    /// [`nonzero`](Self::nonzero) as one list of coordinates per dimension, as an index takes it
    /// (`torch.nonzero` with `as_tuple`); a 0-dim tensor counts as a list of one.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[0i64, 5], [7, 0]]);
    /// let lists = x.nonzero_lists();
    /// assert_eq!((lists[0].to_vec::<i64>(), lists[1].to_vec::<i64>()), (vec![0, 1], vec![1, 0]));
    /// assert_eq!(x.index(&[Some(&lists[0]), Some(&lists[1])]).to_vec::<i64>(), [5, 7]);
    /// ```
    #[track_caller]
    pub fn nonzero_lists(&self) -> Vec<Tensor> {
        self.atleast_1d().nonzero().unbind(1)
    }
}

/// A copy of `x` with the list's elements, in order, where the dense mask is true; `exact` if the list must not
/// be longer than that, which a GPU finds out by itself.
#[track_caller]
fn with_list(x: &Tensor, mask: &Tensor, list: &Tensor, exact: bool) -> Tensor {
    if let Some(gpu) = gpu::of("masked_scatter", &[x, mask, list]) {
        let (x, list) = (x.expand(mask.shape()), list.reshape([-1]));
        let out = x.detach().clone_contiguous();
        let n = list.numel();
        cuda::Counted::new(gpu, mask).put(&list.detach().contiguous(), &out, true, exact);
        return record("masked_scatter", &[&x, &list], out, |saver| {
            let mask = saver.save(mask);
            move |ctx| {
                let (g, mask) = (ctx.grad(0), ctx.get(&mask));
                let own = ctx.needs(0).then(|| g.masked_fill(&mask, 0));
                smallvec![own, ctx.needs(1).then(|| select_dense(&g, &mask, Some(n)))]
            }
        });
    }
    let zeros = x.masked_fill(mask, 0);
    let placed = scatter_dense(&list.reshape([-1]), mask, exact);
    if x.dtype() == Dtype::Bool { zeros.logical_or(&placed) } else { zeros + placed }
}

/// Writes, or adds, the list's elements to the places where the mask, which broadcasts, is true: as many as there
/// are such places.
#[track_caller]
pub(in crate::ops) fn put_list(x: &Tensor, mask: &Tensor, list: &Tensor, accumulate: bool) {
    let mask = truths(&mask.expand(x.shape()));
    if accumulate {
        x.add_(&scatter_dense(&list.reshape([-1]), &mask, true));
    } else {
        x.copy_(&with_list(x, &mask, list, true));
    }
}

/// Places of the mask's true elements in it seen as a list. Waits for a GPU.
#[track_caller]
pub(in crate::ops) fn places(mask: &Tensor) -> Tensor {
    mask.ravel().nonzero().select(1, 0)
}

/// The elements of `x` where the dense mask of the same shape is true: on a GPU `number` of them where that is
/// known already, else it waits for the device.
#[track_caller]
fn select_dense(x: &Tensor, mask: &Tensor, number: Option<usize>) -> Tensor {
    let _span = profiler::op("masked_select");
    let dense = x.detach().contiguous();
    if let Some(gpu) = gpu::of("masked_select", &[x, mask]) {
        let counted = cuda::Counted::new(gpu, mask);
        let out = match number {
            // Elements of a source that the mask had no place for.
            Some(n) => Tensor::zeros([n], (x.dtype(), x.device())),
            None => Tensor::empty([counted.number()], (x.dtype(), x.device())),
        };
        counted.select(&dense, &out);
        return selected(x, mask, out);
    }
    // SAFETY: contiguous bools; nobody writes to them.
    let chosen = unsafe { mask.as_slice::<bool>() };
    let out = dispatch!(x.dtype(), T => {
        // SAFETY: contiguous and of type T.
        let all = unsafe { dense.as_slice::<T>() };
        let picked: Vec<T> = all.iter().zip(chosen).filter(|(_, m)| **m).map(|(x, _)| *x).collect();
        Tensor::from(picked)
    });
    selected(x, mask, out)
}

/// `out`, which was selected from `x`, with its history.
fn selected(x: &Tensor, mask: &Tensor, out: Tensor) -> Tensor {
    record("masked_select", &[x], out, |saver| {
        let mask = saver.save(mask);
        move |ctx| smallvec![Some(scatter_dense(&ctx.grad(0), &ctx.get(&mask), false))]
    })
}

/// Zeros of the dense mask's shape with the list's elements, in order, where it is true. Of a list that is too
/// long the rest is left out, unless a GPU is to see that it is `exact`.
#[track_caller]
fn scatter_dense(list: &Tensor, mask: &Tensor, exact: bool) -> Tensor {
    let _span = profiler::op("masked_scatter");
    let dense = list.detach().contiguous();
    if let Some(gpu) = gpu::of("masked_scatter", &[list, mask]) {
        let out = Tensor::empty(mask.shape(), (list.dtype(), list.device()));
        cuda::Counted::new(gpu, mask).put(&dense, &out, false, exact);
        return scattered(list, mask, out);
    }
    let out = Tensor::zeros(mask.shape(), list.dtype().on_host());
    // SAFETY: contiguous bools; nobody writes to them.
    let chosen = unsafe { mask.as_slice::<bool>() };
    let needed = chosen.iter().filter(|m| **m).count();
    if dense.numel() < needed {
        throw(Error::shape(
            "masked_scatter",
            format!("{} elements in the source for {needed} places in the mask", dense.numel()),
        ));
    }
    dispatch!(list.dtype(), T => {
        // SAFETY: contiguous and of type T; `out` is fresh.
        let (list, out) = unsafe { (dense.as_slice::<T>(), out.as_mut_slice::<T>()) };
        let places = out.iter_mut().zip(chosen).filter(|(_, m)| **m);
        places.zip(list).for_each(|((o, _), &v)| *o = v);
    });
    scattered(list, mask, out)
}

/// `out`, to which `list` was scattered, with its history.
fn scattered(list: &Tensor, mask: &Tensor, out: Tensor) -> Tensor {
    record("masked_scatter", &[list], out, |saver| {
        let mask = saver.save(mask);
        let n = list.numel();
        move |ctx| {
            let picked = select_dense(&ctx.grad(0), &ctx.get(&mask), Some(n));
            let rest = n - picked.numel();
            if rest == 0 {
                return smallvec![Some(picked)];
            }
            let zeros = Tensor::zeros([rest], (picked.dtype(), picked.device()));
            smallvec![Some(Tensor::cat(&[picked, zeros], 0))]
        }
    })
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let mask = || Tensor::from([[true, false, true], [false, false, true]]);
    let x = || vec![values([2, 3], 4)];
    vec![
        OpSample::new("masked_select", x(), move |x| {
            x[0].masked_select(&mask().to_device(x[0].device()))
        }),
        OpSample::new("masked_select, broadcast", [values([2, 1], 4)], move |x| {
            x[0].masked_select(&mask().to_device(x[0].device()))
        }),
        OpSample::new("masked_scatter", [values([2, 3], 4), values([5], 1)], move |x| {
            x[0].masked_scatter(&mask().to_device(x[0].device()), &x[1])
        }),
        OpSample::new("nonzero", [mask()], |x| x[0].nonzero()).order(Order::None),
    ]
}
