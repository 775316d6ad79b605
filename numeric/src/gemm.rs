//! Products of f32 and f64 matrices on one thread, each wherever its strides lead.

use gemm_common::Parallelism;

/// f32 and f64.
pub trait Gemm: Copy {
    /// `C = beta C + alpha A B` for an `m x k` matrix A and a `k x n` matrix B, each given by its first
    /// element and the distances, in elements, between rows and between columns. Without `beta` what C
    /// holds is not read.
    ///
    /// ```
    /// use torchrs_numeric::gemm::Gemm;
    /// let (a, b, mut c) = ([1f32, 2., 3., 4.], [5f32, 6.], [f32::NAN; 2]);
    /// // SAFETY: a 2 x 2 and a 2 x 1 matrix in rows, and room for a 2 x 1 matrix.
    /// unsafe {
    ///     let a = (a.as_ptr(), 2, 1);
    ///     f32::gemm((2, 1, 2), 1.0, a, (b.as_ptr(), 1, 1), None, (c.as_mut_ptr(), 1, 1));
    /// }
    /// assert_eq!(c, [17.0, 39.0]);
    /// ```
    ///
    /// # Safety
    /// A and B are readable and C is writable wherever their strides lead, C does not overlap them nor
    /// itself, and nobody else uses C. Where a size is 0, nothing is read.
    unsafe fn gemm(
        size: (usize, usize, usize),
        alpha: Self,
        a: (*const Self, isize, isize),
        b: (*const Self, isize, isize),
        beta: Option<Self>,
        c: (*mut Self, isize, isize),
    );
}

macro_rules! gemm {
    ($t:ty: $kernels:path) => {
        impl Gemm for $t {
            unsafe fn gemm(
                (m, n, k): (usize, usize, usize),
                alpha: $t,
                a: (*const $t, isize, isize),
                b: (*const $t, isize, isize),
                beta: Option<$t>,
                c: (*mut $t, isize, isize),
            ) {
                use $kernels as kernels;
                // They store columns: a result that lies in rows is the transposed product.
                let ((m, n), a, b, c) = match c.2.abs() < c.1.abs() {
                    true => ((n, m), (b.0, b.2, b.1), (a.0, a.2, a.1), (c.0, c.2, c.1)),
                    false => ((m, n), a, b, c),
                };
                // They name the factors the other way round: `alpha dst + beta lhs rhs`; and strides of
                // columns come first.
                // SAFETY: the caller's promise.
                unsafe {
                    kernels::get_gemm_fn()(
                        m,
                        n,
                        k,
                        c.0,
                        c.2,
                        c.1,
                        beta.is_some(),
                        a.0,
                        a.2,
                        a.1,
                        b.0,
                        b.2,
                        b.1,
                        beta.unwrap_or_default(),
                        alpha,
                        false,
                        false,
                        false,
                        Parallelism::None,
                    );
                }
            }
        }
    };
}
gemm!(f32: gemm_f32::gemm::f32);
gemm!(f64: gemm_f64::gemm::f64);
