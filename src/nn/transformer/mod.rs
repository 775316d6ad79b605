//! Attention with several heads and the layers of the transformer (`torch/nn/modules/transformer.py`;
//! Vaswani et al., "Attention Is All You Need", 2017).

mod attention;
mod layers;
mod stacks;

pub use attention::{
    AttentionWeights, MultiheadAttention, MultiheadAttentionOptions,
    generate_square_subsequent_mask,
};
pub use layers::{
    TransformerActivation, TransformerDecoderLayer, TransformerEncoderLayer, TransformerOptions,
};
pub use stacks::{Transformer, TransformerDecoder, TransformerEncoder, TransformerMasks};
