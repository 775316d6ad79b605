//! Linear maps, attention and tables of rows.

use crate::ops::{AttentionOptions, EmbeddingBagOptions, VarlenOptions};
use crate::tensor::Tensor;

methods! {
    linear(x, weight: &Tensor, bias: Option<&Tensor>);
    bilinear(x, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>);
    one_hot(x, num_classes: usize);
}

/// Attention of queries to keys and values, with PyTorch's options in their order (`attn_mask`,
/// `dropout_p`, `is_causal`, `scale`, `enable_gqa`) and flash-attention's `window_size`; see
/// [`Tensor::scaled_dot_product_attention_with`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::AttentionOptions};
/// // Equal keys share the attention.
/// let (query, keys) = (Tensor::from([[[[1f32]]]]), Tensor::from([[[[1f32], [1.]]]]));
/// let values = Tensor::from([[[[2f32], [4.]]]]);
/// let attend = |options| F::scaled_dot_product_attention(&query, &keys, &values, options).item();
/// assert_eq!(attend(AttentionOptions::default()), 3.0);
/// assert_eq!(attend(AttentionOptions { dropout_p: 1.0, ..Default::default() }), 0.0);
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn scaled_dot_product_attention(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    options: AttentionOptions,
) -> Tensor {
    query.scaled_dot_product_attention_with(key, value, &options)
}

/// Attention of sequences of several lengths that lie one after the other
/// (`torch.nn.attention.varlen.varlen_attn`): queries `[total_q, H, E]`, keys `[total_k, H, E]`, values
/// `[total_k, H, D]`; see [`Tensor::varlen_attn`].
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::functional as F, ops::VarlenOptions};
/// let (q, v) = (Tensor::zeros([3, 1, 1], Dtype::F32), Tensor::from([[[5f32]], [[1.]], [[3.]]]));
/// let starts = Tensor::from([0i32, 1, 3]);
/// let options = VarlenOptions { is_causal: true, ..Default::default() };
/// let y = F::varlen_attn(&q, &q, &v, &starts, &starts, 2, 2, options);
/// assert_eq!(y.to_vec::<f32>(), [5.0, 1.0, 2.0]);
/// ```
///
/// # Panics
/// As there.
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "PyTorch's")]
pub fn varlen_attn(
    query: &Tensor,
    key: &Tensor,
    value: &Tensor,
    cu_seq_q: &Tensor,
    cu_seq_k: &Tensor,
    max_q: usize,
    max_k: usize,
    options: VarlenOptions,
) -> Tensor {
    query.varlen_attn(key, value, cu_seq_q, cu_seq_k, max_q, max_k, options)
}

/// Sums, means or maxima of the rows of `weight` that bags of indices name; see
/// [`Tensor::embedding_bag`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::{BagMode, EmbeddingBagOptions}};
/// let (bags, weight) = (Tensor::from([[0i64, 2], [1, 1]]), Tensor::from([[1f32], [2.], [4.]]));
/// let options = EmbeddingBagOptions { mode: BagMode::Sum, ..Default::default() };
/// assert_eq!(F::embedding_bag(&bags, &weight, None, options).to_vec::<f32>(), [5.0, 4.0]);
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn embedding_bag(
    indices: &Tensor,
    weight: &Tensor,
    offsets: Option<&Tensor>,
    options: EmbeddingBagOptions,
) -> Tensor {
    weight.embedding_bag(indices, offsets, options)
}

/// The rows of `weight` named by `indices`; see [`Tensor::embedding`].
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let weight = Tensor::from([[1f32], [2.], [4.]]);
/// assert_eq!(F::embedding(&Tensor::from([2i64, 0]), &weight, None).to_vec::<f32>(), [4.0, 1.0]);
/// ```
#[track_caller]
pub fn embedding(indices: &Tensor, weight: &Tensor, padding_idx: Option<i64>) -> Tensor {
    weight.embedding(indices, padding_idx)
}

/// Options of [`embedding_with`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::nn::functional::EmbeddingOptions;
/// assert_eq!(EmbeddingOptions::default().norm_type, 2.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingOptions {
    /// A row that gets no gradient; negative counts from the end of the table.
    pub padding_idx: Option<i64>,
    /// Rows that are looked up and longer are shortened to it, in place ([`Tensor::embedding_renorm_`]).
    pub max_norm: Option<f64>,
    /// By which norm rows are that long.
    pub norm_type: f64,
    /// The gradient of a row is divided by how often the indices name it.
    pub scale_grad_by_freq: bool,
}

impl Default for EmbeddingOptions {
    fn default() -> Self {
        let (padding_idx, max_norm, norm_type) = (None, None, 2.0);
        EmbeddingOptions { padding_idx, max_norm, norm_type, scale_grad_by_freq: false }
    }
}

/// [`embedding`] with options.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let weight = Tensor::from([[3f64, 4.], [6., 8.]]);
/// let options = F::EmbeddingOptions { max_norm: Some(5.0), ..Default::default() };
/// let y = F::embedding_with(&Tensor::from([1i64]), &weight, options);
/// assert!(y.allclose(&Tensor::from([[3f64, 4.]]), Default::default()));
/// assert!((weight.i((1, 0)).item() - 3.0).abs() < 1e-6);
/// ```
///
/// # Panics
/// As [`Tensor::embedding`].
#[track_caller]
pub fn embedding_with(indices: &Tensor, weight: &Tensor, options: EmbeddingOptions) -> Tensor {
    if let Some(max_norm) = options.max_norm {
        weight.embedding_renorm_(indices, max_norm, options.norm_type);
    }
    match options.scale_grad_by_freq {
        true => weight.embedding_scaled_by_freq(indices, options.padding_idx),
        false => weight.embedding(indices, options.padding_idx),
    }
}
