//! What `torch.nn.utils` has: gradient clipping, parameters as one vector, parametrizations, fusion
//! of a convolution with its norm, and sequences of different lengths ([`rnn`]).

mod clip_grad;
mod fusion;
pub mod parametrizations;
pub mod parametrize;
mod vectors;

pub use clip_grad::{
    clip_grad_norm_, clip_grad_norm_with, clip_grad_value_, clip_grads_with_norm_, get_total_norm,
};
pub use fusion::{ChannelNorm, FusesBatchNorm, fuse_conv_bn_eval, fuse_linear_bn_eval};
pub use vectors::{parameters_to_vector, vector_to_parameters};

/// Sequences of different lengths (`torch.nn.utils.rnn`).
pub mod rnn {
    pub use crate::nn::{
        PackPaddedSequenceOptions, PackedSequence, PadPackedSequenceOptions, PadSequenceOptions,
        pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpack_sequence,
        unpad_sequence,
    };
}
