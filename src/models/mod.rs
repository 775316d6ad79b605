//! Models (`torchvision.models`, Hugging Face's GPT-2, Llama, BERT and ViT, and two of NVIDIA's reference programs),
//! with the originals' parameter names, initial values and numbers: their weights load by
//! [`load_state_dict`](crate::nn::Module::load_state_dict), folders of Hugging Face's by `from_pretrained`.
//!
//! Knows nothing of `data` and `train`.
//!
//! | model | constructors | original |
//! | --- | --- | --- |
//! | [`AlexNet`] | [`alexnet`] | `torchvision.models.alexnet` |
//! | [`VGG`] | [`vgg11`], [`vgg13`], [`vgg16`], [`vgg19`], each also with `_bn` | `torchvision.models.vgg` |
//! | [`ResNet`] | [`resnet18`], [`resnet34`], [`resnet50`], [`resnet101`], [`resnet152`], [`resnext50_32x4d`], [`resnext101_32x8d`], [`resnext101_64x4d`], [`wide_resnet50_2`], [`wide_resnet101_2`] | `torchvision.models.resnet` |
//! | [`MobileNetV2`] | [`mobilenet_v2`] | `torchvision.models.mobilenetv2` |
//! | [`GPT2LMHeadModel`], [`GPT2Model`] | [`GPT2Config::gpt2`], [`medium`](GPT2Config::gpt2_medium), [`large`](GPT2Config::gpt2_large), [`xl`](GPT2Config::gpt2_xl), or a `config.json` | `transformers.models.gpt2` |
//! | [`LlamaForCausalLM`], [`LlamaModel`] | a `config.json`, [`LlamaConfig::llama3_2_1b`], [`llama3_8b`](LlamaConfig::llama3_8b), [`llama3_1_8b`](LlamaConfig::llama3_1_8b), [`llama2_7b`](LlamaConfig::llama2_7b) | `transformers.models.llama` |
//! | [`BertModel`], [`BertForMaskedLM`], [`BertForSequenceClassification`] | a [`BertConfig`], or a `config.json` | `transformers.models.bert` |
//! | [`ViTModel`], [`ViTForImageClassification`] | a [`ViTConfig`], or a `config.json` | `transformers.models.vit` |
//! | [`GNMT`] | [`GNMT::new`] | `seq2seq.models.gnmt` of DeepLearningExamples, PyTorch/Translation/GNMT |
//! | [`NeuMF`] | [`NeuMF::new`] | `neumf.NeuMF` of DeepLearningExamples, PyTorch/Recommendation/NCF |
//!
//! Images are `[batch, 3, height, width]`; a model of images is a [`Forward`](crate::nn::Forward)
//! from them to scores `[batch, num_classes]`. A new model is in training, as all modules are.
//!
//! ```no_run
//! use torchrs::nn::{Forward, Module, init};
//! use torchrs::{Dtype, Tensor, checkpoint::load_file, models, no_grad};
//!
//! // Initial values would be overwritten; see `init::skip_init`.
//! let model = init::skip_init(|| models::resnet50(1000));
//! model.load_state_dict(&load_file("resnet50.safetensors")?, true)?;
//! model.eval();
//! let scores = no_grad(|| model.forward(&Tensor::randn([1, 3, 224, 224], Dtype::F32)));
//! # Ok::<(), torchrs::Error>(())
//! ```

mod activation;
mod alexnet;
mod bert;
mod decoder;
mod encoder;
mod gnmt;
mod gpt2;
mod llama;
mod mobilenet;
mod ncf;
mod pretrained;
mod resnet;
mod vgg;
mod vit;

pub use activation::{HiddenActivation, HiddenActivation as GPT2Activation};
pub use alexnet::{AlexNet, AlexNetOptions, alexnet};
pub use bert::{
    BertAttention, BertConfig, BertEmbeddings, BertEncoder, BertForMaskedLM,
    BertForSequenceClassification, BertInputs, BertLayer, BertMLMHead, BertModel, BertOnnxInputs,
    BertOutput, BertPredictionHead, BertTransform,
};
pub use decoder::{ActivationCheckpointing, DecoderInputs, GenerateOptions, KeyValueCache};
pub use encoder::{
    EncoderDense, EncoderIntermediate, EncoderPooler, EncoderSelfAttention, ProblemType,
};
pub use gnmt::{
    BahdanauAttention, Classifier, Decoded, DecodedValues, GNMT, GNMTOptions, RecurrentAttention,
    ResidualRecurrentDecoder, ResidualRecurrentEncoder,
};
pub use gpt2::{Conv1D, GPT2Attention, GPT2Block, GPT2Config, GPT2LMHeadModel, GPT2MLP, GPT2Model};
pub use llama::{
    LlamaAttention, LlamaConfig, LlamaDecoderLayer, LlamaForCausalLM, LlamaMLP, LlamaModel,
    RopeScaling,
};
pub use mobilenet::{InvertedResidual, MobileNetV2, MobileNetV2Options, mobilenet_v2};
pub use ncf::{NeuMF, NeuMFOptions};
pub use pretrained::{GenerationConfig, PretrainedOptions};
pub use resnet::{
    BasicBlock, Bottleneck, ResNet, ResNetBlock, ResNetOptions, resnet18, resnet34, resnet50,
    resnet101, resnet152, resnext50_32x4d, resnext101_32x8d, resnext101_64x4d, wide_resnet50_2,
    wide_resnet101_2,
};
pub use vgg::{
    VGG, VGGOptions, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn,
};
pub use vit::{
    ViTAttention, ViTConfig, ViTEmbeddings, ViTEncoder, ViTForImageClassification, ViTLayer,
    ViTModel, ViTPatchEmbeddings,
};

use crate::nn::Module;
use crate::nn::init::{FanMode, Nonlinearity, kaiming_normal_};

/// The initial filters of torchvision's later models: He's normal ones, by the number of outputs.
/// Filters are what has four dimensions.
fn init_filters(model: &dyn Module) {
    for filter in model.parameters().iter().filter(|p| p.dim() == 4) {
        kaiming_normal_(filter, FanMode::FanOut, Nonlinearity::Relu);
    }
}
