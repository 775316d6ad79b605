//! Which ops are cast, and how: PyTorch's lists for the CPU and for CUDA. An op is known by the name
//! that it gives to [`cast_op!`](super::cast_op) or to its pointwise row.

/// What becomes of an op's floating-point inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Policy {
    /// They are cast to the half type.
    Lower,
    /// They are cast to f32.
    Single,
    /// They are cast to the widest type among them.
    Widest,
    /// They stay. The op is one op in PyTorch, so what it is composed of here is not cast either.
    Keep,
    /// They stay. The op is composed of others in PyTorch as here, which are cast one by one.
    Parts,
}

/// An op's policies on the CPU and on CUDA.
pub(super) fn policies(op: &str) -> [Policy; 2] {
    use Policy::{Keep, Lower, Parts, Single, Widest};
    match op {
        "mm"
        | "matmul"
        | "bmm"
        | "addmm"
        | "addbmm"
        | "baddbmm"
        | "linear"
        | "vecdot"
        | "prelu"
        | "conv1d"
        | "conv2d"
        | "conv3d"
        | "conv_transpose1d"
        | "conv_transpose2d"
        | "conv_transpose3d"
        | "scaled_dot_product_attention"
        | "varlen_attn" => [Lower, Lower],

        "mv" | "addmv" | "addr" => [Keep, Lower],
        "einsum" | "multi_dot" | "recurrent_layer" => [Parts, Lower],

        "prod" | "cdist" | "local_response_norm" => [Single, Single],
        "mse_loss"
        | "l1_loss"
        | "smooth_l1_loss"
        | "huber_loss"
        | "kl_div"
        | "nll_loss"
        | "binary_cross_entropy"
        | "binary_cross_entropy_with_logits"
        | "soft_margin_loss"
        | "poisson_nll_loss"
        | "margin_ranking_loss"
        | "hinge_embedding_loss"
        | "cosine_embedding_loss"
        | "triplet_margin_loss"
        | "multi_margin_loss"
        | "multilabel_margin_loss"
        | "cross_entropy" => [Single, Single],

        "trace"
        | "quantile"
        | "nanquantile"
        | "ctc_loss"
        | "reflection_pad1d"
        | "reflection_pad2d"
        | "replication_pad"
        | "max_pool3d"
        | "avg_pool3d"
        | "adaptive_avg_pool3d"
        | "adaptive_max_pool3d"
        | "max_unpool"
        | "fractional_max_pool2d"
        | "fractional_max_pool3d"
        | "polar"
        | "view_as_complex"
        | "stft" => [Single, Keep],
        "cholesky"
        | "cholesky_inverse"
        | "cholesky_solve"
        | "cond"
        | "eig"
        | "eigh"
        | "eigvals"
        | "eigvalsh"
        | "householder_product"
        | "inv"
        | "lstsq"
        | "lu_solve"
        | "matrix_rank"
        | "ormqr"
        | "pinv"
        | "qr"
        | "solve"
        | "solve_triangular"
        | "svd"
        | "svdvals"
        | "tensorinv"
        | "tensorsolve" => [Single, Keep],
        "fft" | "ifft" | "rfft" | "irfft" | "hfft" | "ihfft" | "fft2" | "ifft2" | "rfft2"
        | "irfft2" | "fftn" | "ifftn" | "rfftn" | "irfftn" => [Single, Keep],

        "acos" | "asin" | "cosh" | "erfinv" | "exp" | "expm1" | "log" | "log10" | "log2"
        | "log1p" | "reciprocal" | "rsqrt" | "sinh" | "tan" | "pow" | "rpow" | "softplus" => {
            [Keep, Single]
        }
        "layer_norm" | "rms_norm" | "group_norm" | "softmax" | "log_softmax" | "logsumexp"
        | "cumsum" | "cumprod" | "sum" | "norm" | "matrix_norm" | "cosine_similarity" | "dist"
        | "pdist" | "renorm" => [Keep, Single],

        "tensordot" => [Parts, Widest],
        "interpolate" => [Parts, Single],
        "grid_sample" => [Single, Widest],
        "cat" | "stack" => [Widest, Widest],
        "index_copy" => [Widest, Keep],
        "addcdiv" | "addcmul" | "atan2" | "bilinear" | "cross" | "dot" | "index_put"
        | "scatter_add" => [Keep, Widest],
        _ => [Keep, Keep],
    }
}
