//! How rows are put together, and which.

use crate::tensor::Tensor;

/// What [`Tensor::embedding_bag`] makes of a bag's rows.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{BagMode, EmbeddingBagOptions};
/// let (x, bag) = (Tensor::from([[1f32, 9.], [3., 5.]]), Tensor::from([[0i64, 1]]));
/// let of = |mode| {
///     x.embedding_bag(&bag, None, EmbeddingBagOptions { mode, ..Default::default() }).to_vec::<f32>()
/// };
/// assert_eq!((of(BagMode::Sum), of(BagMode::Mean)), (vec![4.0, 14.0], vec![2.0, 7.0]));
/// assert_eq!(of(BagMode::Max), [3.0, 9.0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean; 0 for an empty bag.
    #[default]
    Mean,
    /// The largest of each column; 0 for an empty bag.
    Max,
}

/// Options of [`Tensor::embedding_bag`].
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{BagMode, EmbeddingBagOptions};
/// let x = Tensor::from([[1f32], [10.], [100.]]);
/// let per_sample_weights = Some(Tensor::from([[1f32, 2.]]));
/// let options = EmbeddingBagOptions { mode: BagMode::Sum, per_sample_weights, ..Default::default() };
/// assert_eq!(x.embedding_bag(&Tensor::from([[0i64, 2]]), None, options).to_vec::<f32>(), [201.0]);
/// ```
#[derive(Clone, Debug)]
pub struct EmbeddingBagOptions {
    /// What is made of a bag's rows.
    pub mode: BagMode,
    /// For each index a factor of its row; only with [`BagMode::Sum`].
    pub per_sample_weights: Option<Tensor>,
    /// The last of the offsets is the end of the last bag, not the start of another.
    pub include_last_offset: bool,
    /// Indices that do not count; negative counts from the end of the table.
    pub padding_idx: Option<i64>,
    /// Rows that are looked up and longer are shortened to it, in place ([`Tensor::embedding_renorm_`]).
    pub max_norm: Option<f64>,
    /// By which norm rows are that long.
    pub norm_type: f64,
    /// The gradient of a row is divided by how often the indices name it; not with [`BagMode::Max`].
    pub scale_grad_by_freq: bool,
}

impl Default for EmbeddingBagOptions {
    fn default() -> Self {
        EmbeddingBagOptions {
            mode: BagMode::default(),
            per_sample_weights: None,
            include_last_offset: false,
            padding_idx: None,
            max_norm: None,
            norm_type: 2.0,
            scale_grad_by_freq: false,
        }
    }
}
