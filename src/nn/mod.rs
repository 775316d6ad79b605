//! Neural networks (`torch.nn`): the [`Module`] trait with its derive, parameters and state dicts,
//! modules, losses, functions ([`functional`]), initial values ([`init`]), and what `torch.nn.utils`
//! has ([`utils`]): gradient clipping, parametrizations, fusion.
//!
//! Knows nothing of `optim`, `checkpoint`, `data` and `models`.
//!
//! ```
//! use torchrs::nn::{Forward, Linear, Module, functional as F};
//! use torchrs::{Dtype::F32, Tensor};
//!
//! #[derive(Module)]
//! struct Mlp {
//!     fc1: Linear,
//!     fc2: Linear,
//! }
//!
//! impl Forward for Mlp {
//!     fn forward(&self, x: &Tensor) -> Tensor {
//!         self.fc2.forward(&self.fc1.forward(x).relu())
//!     }
//! }
//!
//! let model = Mlp { fc1: Linear::new(8, 16), fc2: Linear::new(16, 3) };
//! let loss = F::cross_entropy(&model.forward(&Tensor::ones([2, 8], F32)), &Tensor::from([0i64, 2]));
//! loss.backward();
//! let names: Vec<String> = model.named_parameters().into_iter().map(|(name, _)| name).collect();
//! assert_eq!(names, ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]);
//! assert!(model.fc1.weight.grad().is_some());
//! ```

mod activation;
mod adaptive_softmax;
mod batch_norm;
#[doc(hidden)]
pub mod calls;
mod containers;
mod conv;
mod conv_transpose;
mod display;
mod distance;
mod dropout;
mod embedding;
pub(crate) mod evaluation;
#[doc(hidden)]
pub mod field;
mod flatten;
mod forward;
mod fractional;
pub mod functional;
mod hooks;
pub mod init;
mod instance_norm;
mod lazy;
mod linear;
mod linear_loss;
pub mod llm;
pub mod lora;
mod loss;
mod loss_options;
mod materialise;
mod module;
mod module_dict;
mod normalization;
mod padding;
pub mod parallel;
mod parameter;
mod per_dim;
mod pooling;
mod resampling;
mod rnn;
mod running_norm;
mod scope;
mod state_dict;
mod statistics_group;
mod summary;
mod transformer;
pub mod utils;
mod walk;

pub use activation::*;
pub use adaptive_softmax::{AdaptiveLogSoftmaxOptions, AdaptiveLogSoftmaxWithLoss};
pub(crate) use batch_norm::AccumulateStatistics;
pub use batch_norm::{BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm};
pub use containers::Sequential;
pub use conv::{Conv1d, Conv2d, Conv3d};
pub use conv_transpose::{ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use distance::{Bilinear, CosineSimilarity, PairwiseDistance};
pub use dropout::{AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout};
pub use embedding::{Embedding, EmbeddingBag};
pub use field::Field;
pub use flatten::Flatten;
pub use forward::Forward;
pub use fractional::{FractionalMaxPool2d, FractionalMaxPool3d};
pub use functional::PairwiseDistanceOptions;
pub use hooks::Hooked;
pub use instance_norm::{InstanceNorm1d, InstanceNorm2d, InstanceNorm3d};
pub use lazy::{
    Lazy, LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LazyConv1d, LazyConv2d, LazyConv3d,
    LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d, LazyInstanceNorm1d,
    LazyInstanceNorm2d, LazyInstanceNorm3d, LazyLinear, LazySize,
};
pub use linear::{Identity, Linear};
pub use linear_loss::{LinearCrossEntropyLoss, LinearCrossEntropyLossOptions};
pub use loss::{BCEWithLogitsLoss, CrossEntropyLoss, Loss, NLLLoss};
pub use loss_options::{
    BCELoss, CTCLoss, CosineEmbeddingLoss, GaussianNLLLoss, HingeEmbeddingLoss, HuberLoss,
    KLDivLoss, L1Loss, MSELoss, MarginOptions, MarginRankingLoss, MultiLabelMarginLoss,
    MultiLabelSoftMarginLoss, MultiMarginLoss, PoissonNLLLoss, SmoothL1Loss, SoftMarginLoss,
    TripletMarginLoss, TripletMarginWithDistanceLoss,
};
pub use module::{Module, Visitor, VisitorMut};
pub use module_dict::ModuleDict;
pub use normalization::{GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm};
pub use padding::{
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d,
    ReplicationPad3d, Sides, ZeroPad1d, ZeroPad2d, ZeroPad3d,
};
pub use parameter::{Buffer, Parameter, Training};
pub use per_dim::{NormalizedShape, PerDim};
pub use pooling::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, LPPool1d, LPPool2d, LPPool3d, MaxPool1d,
    MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d,
};
pub use resampling::{
    ChannelShuffle, Fold, PixelShuffle, PixelUnshuffle, Unflatten, Unfold, Upsample,
};
pub use rnn::{
    GRU, GRUCell, LSTM, LSTMCell, PackPaddedSequenceOptions, PackedSequence,
    PadPackedSequenceOptions, PadSequenceOptions, RNN, RNNCell, RNNNonlinearity, RNNOptions,
    pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpack_sequence,
    unpad_sequence,
};
pub use state_dict::{LoadReport, NamedTensors, StateDict, unwrapped_name};
pub use statistics_group::StatisticsGroup;
pub use summary::{Summary, SummaryRow, summary, summary_with};
pub use torchrs_macros::{Module, forward};
pub use transformer::{
    AttentionWeights, MultiheadAttention, MultiheadAttentionOptions, Transformer,
    TransformerActivation, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer, TransformerMasks, TransformerOptions, generate_square_subsequent_mask,
};
pub use utils::{
    clip_grad_norm_, clip_grad_norm_with, clip_grad_value_, get_total_norm, parameters_to_vector,
    vector_to_parameters,
};
pub(crate) use walk::saved_tensors;
