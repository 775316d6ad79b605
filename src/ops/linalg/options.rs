//! Which part of a matrix counts, and on which side it stands.

/// Which equation `solve_triangular` solves.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::TriangularOptions;
/// let (a, b) = (Tensor::from([[2f64, 7.], [1., 2.]]), Tensor::from([[2f64], [5.]]));
/// let y = linalg::solve_triangular(&a, &b, TriangularOptions::default());
/// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0]);
/// let options = TriangularOptions { unitriangular: true, ..Default::default() };
/// assert_eq!(linalg::solve_triangular(&a, &b, options).to_vec::<f64>(), [2.0, 3.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriangularOptions {
    /// The matrix is upper triangular, else lower; the other triangle is not read. PyTorch has no
    /// default; here it is `false`.
    pub upper: bool,
    /// Solve `A X = B`, else `X A = B`.
    pub left: bool,
    /// The diagonal is taken for ones and not read.
    pub unitriangular: bool,
}

impl Default for TriangularOptions {
    fn default() -> Self {
        TriangularOptions { upper: false, left: true, unitriangular: false }
    }
}

/// Which triangle of symmetric matrices is read.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::Uplo;
/// let a = Tensor::from([[2f64, 0.], [1., 2.]]);
/// assert!(linalg::eigvalsh(&a, Uplo::L).allclose(&Tensor::from([1.0, 3.0]), Default::default()));
/// assert!(linalg::eigvalsh(&a, Uplo::U).allclose(&Tensor::from([2.0, 2.0]), Default::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Uplo {
    /// The lower one.
    #[default]
    L,
    /// The upper one.
    U,
}
