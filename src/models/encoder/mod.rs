//! What encoders (BERT, ViT) share: attention to all tokens, the layers around it, labels and their losses.

mod labels;
mod layers;

pub use labels::ProblemType;
pub(super) use labels::{classification_loss, classifier, label2id, numbered, read_labels};
pub use layers::{EncoderDense, EncoderIntermediate, EncoderPooler, EncoderSelfAttention};
pub(super) use layers::{Sizes, linear, pooled, pooled_onnx};
