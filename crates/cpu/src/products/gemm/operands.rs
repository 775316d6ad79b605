//! What a matrix product works on.

/// Where a matrix is: element (i, j) at `ptr + i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<P> {
    /// The first element.
    pub ptr: P,
    /// Distance between rows, in elements.
    pub row: isize,
    /// Distance between columns, in elements.
    pub column: isize,
}

impl<P> Matrix<P> {
    pub(super) fn transposed(self) -> Self {
        Matrix { ptr: self.ptr, row: self.column, column: self.row }
    }
}

macro_rules! at {
    ($($pointer:ty),*) => {$(
        impl<T> Matrix<$pointer> {
            /// The matrix from element (i, j) on.
            #[inline(always)]
            pub fn at(self, i: usize, j: usize) -> Self {
                self.moved(i as isize * self.row + j as isize * self.column)
            }

            #[inline(always)]
            pub(super) fn moved(self, by: isize) -> Self {
                Matrix { ptr: self.ptr.wrapping_offset(by), ..self }
            }
        }
    )*};
}
at!(*const T, *mut T);

/// `C = beta C + alpha A B` for matrices whose strides are not negative. With `beta` 0 what C holds is not
/// read (it may be NaN). `T` is f32 or f64.
///
/// *Gemm invariant*, kept by whoever runs one: A and B are readable and C is writable wherever their strides lead, C does
/// not overlap them nor itself, and nobody else uses C.
#[derive(Clone, Copy)]
pub struct Gemm<T> {
    /// m, n and k.
    pub size: (usize, usize, usize),
    /// Factor of the product.
    pub alpha: T,
    /// `m x k`.
    pub a: Matrix<*const T>,
    /// `k x n`.
    pub b: Matrix<*const T>,
    /// Factor of what C holds.
    pub beta: T,
    /// `m x n`.
    pub c: Matrix<*mut T>,
}
