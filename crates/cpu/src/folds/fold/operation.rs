//! What is folded, and the pointers that its threads share.

use std::ops::Range;

/// What is folded: how an element becomes a value, and how two values become one.
///
/// All methods are `#[inline(always)]` in implementations; `combine` is associative and commutative
/// up to rounding.
pub trait Fold: Sync {
    /// Element of the buffer.
    type In: Copy + Default + Send + Sync;
    /// The running value.
    type Acc: Copy + Send + Sync;
    /// Something that belongs to an output and that `map` wants: a mean, a maximum. `()` if nothing.
    type Param: Copy;

    /// The value of no elements.
    fn identity(&self) -> Self::Acc;
    /// What belongs to this output.
    fn param(&self, output: usize) -> Self::Param;
    /// The value of one element.
    fn map<const FMA: bool>(&self, x: Self::In, param: Self::Param) -> Self::Acc;
    /// The values of some elements.
    #[inline(always)]
    fn map_some<const FMA: bool, const Q: usize>(
        &self,
        some: &[Self::In; Q],
        param: Self::Param,
    ) -> [Self::Acc; Q] {
        let mut values = [self.identity(); Q];
        for j in 0..Q {
            values[j] = self.map::<FMA>(some[j], param);
        }
        values
    }
    /// The value of two parts together.
    fn combine(&self, a: Self::Acc, b: Self::Acc) -> Self::Acc;
}

/// A pointer that may go to other threads; what is done with it is argued for where it is used.
pub struct Shared<T>(pub *const T);
impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}
// SAFETY: only the address moves; reads are of memory that nobody writes meanwhile.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: only the address is shared; reads are of memory that nobody writes meanwhile.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The address of element `i`.
    ///
    /// # Safety
    /// It is inside the memory that the pointer was made from.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> *const T {
        // SAFETY: this function's contract: element `i` is inside the memory.
        unsafe { self.0.add(i) }
    }
}

/// A place to write results to from several threads, each its own elements.
pub struct SharedMut<T>(pub *mut T);
impl<T> Clone for SharedMut<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SharedMut<T> {}
// SAFETY: only the address moves; every user writes elements of its own.
unsafe impl<T> Send for SharedMut<T> {}
// SAFETY: only the address is shared; every user writes elements of its own.
unsafe impl<T> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    /// The address of element `i`.
    ///
    /// # Safety
    /// It is inside the memory that the pointer was made from.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> *mut T {
        // SAFETY: this function's contract: element `i` is inside the memory.
        unsafe { self.0.add(i) }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// They are initialised (for the types used here any bytes are), inside the memory that the
    /// pointer was made from, and nobody else uses them while the slice lives.
    #[inline(always)]
    pub unsafe fn slice<'a>(self, range: Range<usize>) -> &'a mut [T] {
        // SAFETY: this function's contract: initialised elements inside the memory, which nobody
        // else uses.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}
