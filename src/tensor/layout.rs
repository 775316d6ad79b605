//! Shape, strides and offset: where in its storage a tensor's elements lie. Pure arithmetic, no
//! memory: property-tested on its own.
//!
//! ```
//! use torchrs::{Dtype, Tensor, tensor::Layout};
//! let x = Tensor::zeros([2, 3, 4], Dtype::F32);
//! assert_eq!(x.layout(), &Layout::contiguous(&[2, 3, 4]));
//! let view = x.select(1, 2);
//! assert_eq!((view.strides(), view.storage_offset()), (&[12, 1][..], 8));
//! ```

use std::mem::MaybeUninit;

use smallvec::SmallVec;

/// Dimensions that need no memory of their own.
const INLINE: usize = 5;

/// Sizes of the dimensions, outermost first.
///
/// ```
/// use torchrs::tensor::{Layout, Shape};
/// assert_eq!(Layout::contiguous(&[2, 3]).shape, Shape::from_slice(&[2, 3]));
/// ```
pub type Shape = SmallVec<[usize; INLINE]>;
/// Distance in elements between neighbours along each dimension.
///
/// ```
/// use torchrs::tensor::{Layout, Strides};
/// assert_eq!(Layout::contiguous(&[2, 3]).strides, Strides::from_slice(&[3, 1]));
/// ```
pub type Strides = SmallVec<[isize; INLINE]>;

/// Where the elements are: `storage[offset + sum(index[d] * strides[d])]`.
///
/// ```
/// use torchrs::{Dtype, Tensor, tensor::Layout};
/// let layout = Layout::contiguous(&[2, 3]);
/// assert_eq!((&layout.strides[..], layout.offset, layout.numel()), (&[3, 1][..], 0, 6));
/// assert_eq!(Tensor::zeros([2, 3], Dtype::F32).layout(), &layout);
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Layout {
    /// Sizes of the dimensions.
    pub shape: Shape,
    /// Strides in elements; never negative in a tensor's layout.
    pub strides: Strides,
    /// First element's position in the storage, in elements.
    pub offset: usize,
}

impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Self {
        Layout { shape: copy(&self.shape), strides: copy(&self.strides), offset: self.offset }
    }
}

/// A clone of sizes or strides. What is derived goes number by number, and by a slice it is a call.
#[inline]
fn copy<T: Copy>(numbers: &SmallVec<[T; INLINE]>) -> SmallVec<[T; INLINE]> {
    let mut place = MaybeUninit::uninit();
    // SAFETY: it is written, and read after that.
    unsafe {
        copy_to(numbers, place.as_mut_ptr());
        place.assume_init()
    }
}

/// [`copy`] to where it stays.
///
/// # Safety
/// There is memory at `to`, which is not used.
#[inline]
pub(crate) unsafe fn copy_to<T: Copy>(
    numbers: &SmallVec<[T; INLINE]>,
    to: *mut SmallVec<[T; INLINE]>,
) {
    // SAFETY: this function's contract; numbers that lie inside are cloned by copying them.
    unsafe {
        match numbers.spilled() {
            true => to.write(SmallVec::from_slice(numbers)),
            false => std::ptr::copy_nonoverlapping(numbers, to, 1),
        }
    }
}

/// Strides of a dense row-major tensor.
pub fn contiguous_strides(shape: &[usize]) -> Strides {
    Layout::contiguous(shape).strides
}

impl Layout {
    /// Of a complex tensor: the same memory as real numbers, with a last dimension for the two parts.
    ///
    /// ```
    /// use torchrs::tensor::Layout;
    /// assert_eq!(Layout::contiguous(&[3]).pairs(), Layout::contiguous(&[3, 2]));
    /// ```
    pub fn pairs(&self) -> Layout {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        strides.iter_mut().for_each(|s| *s *= 2);
        shape.push(2);
        strides.push(1);
        Layout { shape, strides, offset: 2 * self.offset }
    }

    /// The inverse of [`pairs`](Self::pairs); `None` where the last dimension is not the two parts of
    /// numbers that lie at whole places.
    ///
    /// ```
    /// use torchrs::tensor::Layout;
    /// assert_eq!(Layout::contiguous(&[3, 2]).joined(), Some(Layout::contiguous(&[3])));
    /// assert_eq!(Layout::contiguous(&[2, 3]).joined(), None);
    /// ```
    pub fn joined(&self) -> Option<Layout> {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        if shape.pop() != Some(2) || strides.pop() != Some(1) || !self.offset.is_multiple_of(2) {
            return None;
        }
        for (s, &n) in strides.iter_mut().zip(&shape) {
            // With at most one element a stride has no meaning.
            if n > 1 && *s % 2 != 0 {
                return None;
            }
            *s /= 2;
        }
        Some(Layout { shape, strides, offset: self.offset / 2 })
    }

    /// Dense row-major, at offset 0.
    #[inline]
    pub fn contiguous(shape: &[usize]) -> Self {
        if Self::is_inline(shape) {
            Self::contiguous_inline(shape)
        } else {
            Self::contiguous_of_many(shape)
        }
    }

    /// Whether a layout of so many dimensions needs no memory of its own.
    #[inline]
    pub(super) fn is_inline(shape: &[usize]) -> bool {
        shape.len() <= INLINE
    }

    /// [`contiguous`](Self::contiguous), if [`is_inline`](Self::is_inline): every new tensor comes by here.
    #[inline]
    pub(super) fn contiguous_inline(shape: &[usize]) -> Self {
        let n = shape.len();
        // As many steps as the arrays are long, so that these are registers.
        let (mut sizes, mut strides, mut next) = ([0; INLINE], [0; INLINE], 1);
        for d in (0..INLINE).rev() {
            if d < n {
                sizes[d] = shape[d];
                strides[d] = next;
                // As PyTorch: a dimension of size 0 counts as 1, so strides stay positive.
                next *= shape[d].max(1) as isize;
            }
        }
        let (shape, strides) =
            (Shape::from_buf_and_len(sizes, n), Strides::from_buf_and_len(strides, n));
        Layout { shape, strides, offset: 0 }
    }

    #[cold]
    fn contiguous_of_many(shape: &[usize]) -> Self {
        let mut strides = Strides::from_elem(1, shape.len());
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d].max(1) as isize;
        }
        Layout { shape: Shape::from_slice(shape), strides, offset: 0 }
    }

    /// Number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        let shape = &self.shape[..];
        let mut n = 1;
        for d in 0..shape.len() {
            n *= shape[d];
        }
        n
    }

    /// True when the elements lie densely in row-major order.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// assert!(x.layout().is_contiguous() && !x.t().layout().is_contiguous());
    /// ```
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        let (shape, strides) = (&self.shape[..], &self.strides[..]);
        let mut expected = 1isize;
        for d in (0..shape.len()).rev() {
            if shape[d] == 0 {
                return true;
            }
            if shape[d] != 1 {
                if strides[d] != expected {
                    return false;
                }
                expected *= shape[d] as isize;
            }
        }
        true
    }

    /// True when no two indices name the same element and the elements fill a range without gaps
    /// (a permuted contiguous tensor is dense).
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// assert!(x.t().layout().is_non_overlapping_and_dense());
    /// assert!(!x.narrow(1, 0, 2).layout().is_non_overlapping_and_dense()); // a gap after each row
    /// ```
    pub fn is_non_overlapping_and_dense(&self) -> bool {
        let mut dims: SmallVec<[(isize, usize); 5]> = SmallVec::new();
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            match size {
                0 => return true,
                1 => {}
                _ => dims.push((stride, size)),
            }
        }
        dims.sort_unstable();
        let mut expected = 1isize;
        for (stride, size) in dims {
            if stride != expected {
                return false;
            }
            expected *= size as isize;
        }
        true
    }

    /// True when two different indices can name the same element (an expanded dimension, or
    /// overlapping windows). Sufficient test, as PyTorch's: sorted strides must cover their inner
    /// extent.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([1, 2], torchrs::Dtype::F32);
    /// assert!(!x.t().layout().may_overlap_itself());
    /// assert!(x.expand(&[3, 2]).layout().may_overlap_itself());
    /// ```
    pub fn may_overlap_itself(&self) -> bool {
        let mut dims: SmallVec<[(isize, usize); 5]> = SmallVec::new();
        for (&size, &stride) in self.shape.iter().zip(&self.strides) {
            match size {
                0 => return false,
                1 => {}
                _ => dims.push((stride, size)),
            }
        }
        dims.sort_unstable();
        let mut covered = 0isize;
        let nested = dims.iter().all(|&(stride, size)| {
            let apart = stride > covered;
            covered += stride * (size as isize - 1);
            apart
        });
        !nested && repeats(&dims)
    }

    /// One past the highest storage element that any index names, counted from the storage's start.
    /// 0 without elements: an empty view (the last row of a 3 x 0 tensor) may have any offset.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([3, 4], torchrs::Dtype::F32);
    /// assert_eq!((x.layout().extent(), x.narrow(1, 1, 2).layout().extent()), (12, 11));
    /// ```
    pub fn extent(&self) -> usize {
        self.checked_extent().expect("an existing tensor's layout is inside its storage")
    }

    /// [`extent`](Self::extent) of a layout that nobody has checked yet; `None` beyond all memory.
    ///
    /// ```
    /// use torchrs::tensor::Layout;
    /// assert_eq!(Layout::contiguous(&[2, 3]).checked_extent(), Some(6));
    /// assert_eq!(Layout::contiguous(&[usize::MAX, 2]).checked_extent(), None);
    /// ```
    pub fn checked_extent(&self) -> Option<usize> {
        let numel = self.shape.iter().try_fold(1usize, |n, &size| n.checked_mul(size))?;
        if numel == 0 {
            return Some(0);
        }
        let span = self.shape.iter().zip(&self.strides).try_fold(0isize, |span, (&n, &s)| {
            span.checked_add(isize::try_from(n - 1).ok()?.checked_mul(s)?)
        })?;
        self.offset.checked_add(usize::try_from(span).ok()?)?.checked_add(1)
    }

    /// Strides that give `shape` over the same elements in the same order without a copy
    /// (`torch.Tensor.view`'s rule), if there are such.
    ///
    /// ```
    /// let x = torchrs::Tensor::zeros([2, 3], torchrs::Dtype::F32);
    /// assert_eq!(x.layout().view_strides(&[3, 2]).unwrap()[..], [2, 1]);
    /// assert!(x.t().layout().view_strides(&[6]).is_none()); // needs a copy
    /// ```
    pub fn view_strides(&self, shape: &[usize]) -> Option<Strides> {
        let numel = self.numel();
        if numel != shape.iter().product::<usize>() {
            return None;
        }
        if numel == 0 {
            return Some(contiguous_strides(shape));
        }
        let mut strides: Strides = SmallVec::from_elem(0, shape.len());
        // Walk both shapes from the innermost dimension: each run of old dimensions that lies like
        // one dense dimension ("chunk") is cut into new dimensions.
        let mut d = shape.len();
        let mut chunk_stride = *self.strides.last().unwrap_or(&1);
        let (mut old_numel, mut new_numel) = (1usize, 1usize);
        if self.shape.is_empty() {
            strides.iter_mut().for_each(|s| *s = 1);
            return Some(strides);
        }
        for i in (0..self.shape.len()).rev() {
            old_numel *= self.shape[i];
            let ends_chunk = i == 0
                || (self.shape[i - 1] != 1
                    && self.strides[i - 1] != old_numel as isize * chunk_stride);
            if ends_chunk {
                while d > 0 && (new_numel < old_numel || shape[d - 1] == 1) {
                    strides[d - 1] = new_numel as isize * chunk_stride;
                    new_numel *= shape[d - 1];
                    d -= 1;
                }
                if new_numel != old_numel {
                    return None;
                }
                if i > 0 {
                    chunk_stride = self.strides[i - 1];
                    old_numel = 1;
                    new_numel = 1;
                }
            }
        }
        (d == 0).then_some(strides)
    }
}

/// The shape that `a` and `b` broadcast to (NumPy's and PyTorch's rule), or the first dimension,
/// counted in the result, at which they do not.
///
/// ```
/// use torchrs::tensor::broadcast_shapes;
/// assert_eq!(broadcast_shapes(&[2, 1], &[3]).unwrap()[..], [2, 3]);
/// assert_eq!(broadcast_shapes(&[4, 2], &[3]), Err(1));
/// ```
pub fn broadcast_shapes(a: &[usize], b: &[usize]) -> Result<Shape, usize> {
    let n = a.len().max(b.len());
    let mut out: Shape = SmallVec::from_elem(1, n);
    for d in 0..n {
        let x = if d + a.len() >= n { a[d + a.len() - n] } else { 1 };
        let y = if d + b.len() >= n { b[d + b.len() - n] } else { 1 };
        out[d] = match (x, y) {
            _ if x == y => x,
            (1, _) => y,
            (_, 1) => x,
            _ => return Err(d),
        };
    }
    Ok(out)
}

/// Whether dimensions (stride, size) whose ranges mix name a place twice; taken for granted where there are many
/// places.
fn repeats(dims: &[(isize, usize)]) -> bool {
    const MOST: usize = 1 << 16;
    let count = dims.iter().try_fold(1usize, |n, &(_, size)| n.checked_mul(size));
    if count.is_none_or(|count| count > MOST) || dims.iter().any(|&(stride, _)| stride == 0) {
        return true;
    }
    let mut places = vec![0isize];
    for &(stride, size) in dims {
        let one = places.len();
        for i in 1..size as isize {
            for k in 0..one {
                places.push(places[k] + i * stride);
            }
        }
    }
    places.sort_unstable();
    places.windows(2).any(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn positions(l: &Layout) -> Vec<isize> {
        let mut out = vec![l.offset as isize];
        for (&n, &s) in l.shape.iter().zip(&l.strides) {
            out = out.iter().flat_map(|&p| (0..n as isize).map(move |i| p + i * s)).collect();
        }
        out
    }

    proptest! {
        #[test]
        fn a_view_names_the_same_elements_in_the_same_order(
            dims in prop::collection::vec((1usize..4, 0usize..3), 0..4),
            split in 1usize..5,
            swap in 0usize..3,
        ) {
            let mut l = Layout::contiguous(&dims.iter().map(|d| d.0).collect::<Vec<_>>());
            for (stride, (_, gap)) in l.strides.iter_mut().zip(&dims) {
                *stride *= 1 + *gap as isize;
            }
            if l.shape.len() > swap + 1 {
                l.shape.swap(swap, swap + 1);
                l.strides.swap(swap, swap + 1);
            }
            let n = l.numel();
            for target in [vec![n], vec![1, n], vec![n, 1], vec![n / split, split]] {
                if target.iter().product::<usize>() != n { continue }
                if let Some(strides) = l.view_strides(&target) {
                    let v = Layout { shape: SmallVec::from_slice(&target), strides, offset: 0 };
                    prop_assert_eq!(positions(&v), positions(&l));
                } else {
                    prop_assert!(!l.is_contiguous());
                }
            }
        }

        #[test]
        fn dense_layouts_fill_a_range(shape in prop::collection::vec(1usize..4, 0..4)) {
            let mut l = Layout::contiguous(&shape);
            l.shape.reverse();
            l.strides.reverse();
            prop_assert!(l.is_non_overlapping_and_dense());
            prop_assert!(!l.may_overlap_itself());
            let mut p = positions(&l);
            p.sort();
            prop_assert_eq!(p, (0..l.numel() as isize).collect::<Vec<_>>());
        }
    }

    #[test]
    fn mixed_ranges_overlap_only_where_a_place_repeats() {
        let overlaps = |shape: &[usize], strides: &[isize]| {
            let (shape, strides) = (SmallVec::from_slice(shape), SmallVec::from_slice(strides));
            Layout { shape, strides, offset: 0 }.may_overlap_itself()
        };
        // 0 3 6 and 4 7 10.
        assert!(!overlaps(&[1, 3, 2, 1], &[3, 3, 4, 1]));
        assert!(overlaps(&[3, 2], &[3, 6]));
        assert!(overlaps(&[4, 2], &[1, 3]));
    }

    #[test]
    fn expanded_layouts_overlap() {
        let l = Layout {
            shape: SmallVec::from_slice(&[3, 2]),
            strides: SmallVec::from_slice(&[0, 1]),
            offset: 0,
        };
        assert!(l.may_overlap_itself());
        assert_eq!(l.extent(), 2);
    }
}
